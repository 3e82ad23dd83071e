//! Evaluations of skills, by the built-in judge and by others.

use gateway_core::ids::{EvaluationId, OrgId, RubricId, SkillId};
use gateway_core::skills::gate::EvaluationVote;
use gateway_core::skills::rubric::Axes;
use gateway_core::time::Timestamp;

use crate::page::{Page, Paged};
use crate::row::{Row, args};
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

table! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct Evaluation in "evaluations" {
        pub id: EvaluationId [key],
        pub org_id: OrgId [key],
        pub skill_id: SkillId,
        pub skill_version: i64,
        /// The hash of the judged text.
        pub content_hash: String,
        pub rubric_config_id: Option<RubricId>,
        pub axes: Axes [json],
        pub overall_score: f64,
        pub passed: bool,
        pub judge_provider: String,
        pub judge_model: String,
        pub latency_ms: i64,
        pub prompt_tokens: i64,
        pub completion_tokens: i64,
        pub source: String,
        /// Empty when there is none.
        pub external_ref: String,
        pub created_at: Timestamp [once],
    }
}

/// Inserts an evaluation of a locked skill. False when the same dispatch already evaluated this version.
pub async fn insert_evaluation(
    tx: &mut Tx,
    evaluation: &Evaluation,
    dispatch: &str,
) -> Result<bool, StoreError> {
    let conflict = "ON CONFLICT (skill_id, skill_version, dispatch) DO NOTHING";
    let added = table::insert_with(tx, evaluation, vec![("dispatch", dispatch.into())], conflict).await?;
    Ok(added == 1)
}

/// Newest first.
pub async fn list_evaluations(
    db: &Db,
    org: OrgId,
    skill: SkillId,
    page: &Page,
) -> Result<Paged<Evaluation>, StoreError> {
    let sql = Evaluation::select(
        "org_id = $1 AND skill_id = $2 AND ($3 IS NULL OR id < $3) ORDER BY id DESC LIMIT $4",
    );
    let rows = db.all(sql, args![org, skill, page.before.clone(), page.fetch()]).await?;
    Ok(page.cut(table::read_all::<Evaluation>(&rows)?, |evaluation| evaluation.id.to_string()))
}

/// The votes that the publish gate counts: the verdict of each source on this version. The skill is locked.
pub async fn list_votes(
    tx: &mut Tx,
    skill: SkillId,
    version: i64,
) -> Result<Vec<EvaluationVote>, StoreError> {
    let rows = tx
        .all(
            "SELECT DISTINCT skill_version, passed, source FROM evaluations WHERE skill_id = $1 AND skill_version = $2",
            args![skill, version],
        )
        .await?;
    let read = |row: &Row| {
        Ok(EvaluationVote {
            version: row.get("skill_version")?,
            passed: row.get("passed")?,
            source: row.get("source")?,
        })
    };
    rows.iter().map(read).collect()
}
