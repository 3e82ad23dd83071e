//! Verdicts on skills, our own and others'.

use gateway_core::ids::{EvaluationId, OrgId, RubricId, SkillId};
use gateway_core::skills::gate::EvaluationVote;
use gateway_core::skills::rubric::Axes;
use gateway_core::time::Timestamp;

use crate::page::{Page, Paged};
use crate::row::{Row, args, json};
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    pub id: EvaluationId,
    pub org_id: OrgId,
    pub skill_id: SkillId,
    pub skill_version: i64,
    /// Of the text that was judged.
    pub content_hash: String,
    pub rubric_config_id: Option<RubricId>,
    pub axes: Axes,
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
    pub created_at: Timestamp,
}

/// False when this dispatch left its verdict on the version before. The transaction holds the skill.
pub async fn insert_evaluation(
    tx: &mut Tx,
    evaluation: &Evaluation,
    dispatch: &str,
) -> Result<bool, StoreError> {
    let Evaluation {
        id,
        org_id,
        skill_id,
        skill_version,
        content_hash,
        rubric_config_id,
        axes,
        overall_score,
        passed,
        judge_provider,
        judge_model,
        latency_ms,
        prompt_tokens,
        completion_tokens,
        source,
        external_ref,
        created_at,
    } = evaluation;
    let added = tx
        .exec(
            "INSERT INTO evaluations (id, org_id, skill_id, skill_version, content_hash, rubric_config_id, axes, \
             overall_score, passed, judge_provider, judge_model, latency_ms, prompt_tokens, completion_tokens, source, \
             external_ref, dispatch, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
             $15, $16, $17, $18) ON CONFLICT (skill_id, skill_version, dispatch) DO NOTHING",
            args![
                *id,
                *org_id,
                *skill_id,
                *skill_version,
                content_hash,
                *rubric_config_id,
                json(axes),
                *overall_score,
                *passed,
                judge_provider,
                judge_model,
                *latency_ms,
                *prompt_tokens,
                *completion_tokens,
                source,
                external_ref,
                dispatch,
                *created_at
            ],
        )
        .await?;
    Ok(added == 1)
}

/// Newest first.
pub async fn list_evaluations(
    db: &Db,
    org: OrgId,
    skill: SkillId,
    page: &Page,
) -> Result<Paged<Evaluation>, StoreError> {
    let rows = db
        .all(
            "SELECT id, org_id, skill_id, skill_version, content_hash, rubric_config_id, axes, overall_score, passed, \
             judge_provider, judge_model, latency_ms, prompt_tokens, completion_tokens, source, external_ref, created_at \
             FROM evaluations WHERE org_id = $1 AND skill_id = $2 AND ($3 IS NULL OR id < $3) \
             ORDER BY id DESC LIMIT $4",
            args![org, skill, page.before.clone(), page.fetch()],
        )
        .await?;
    let found = rows.iter().map(read).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(found, |evaluation| evaluation.id.to_string()))
}

/// What the gate looks at: who says what of this version. The transaction holds the skill.
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

fn read(row: &Row) -> Result<Evaluation, StoreError> {
    Ok(Evaluation {
        id: row.get("id")?,
        org_id: row.get("org_id")?,
        skill_id: row.get("skill_id")?,
        skill_version: row.get("skill_version")?,
        content_hash: row.get("content_hash")?,
        rubric_config_id: row.get("rubric_config_id")?,
        axes: row.json("axes")?,
        overall_score: row.get("overall_score")?,
        passed: row.get("passed")?,
        judge_provider: row.get("judge_provider")?,
        judge_model: row.get("judge_model")?,
        latency_ms: row.get("latency_ms")?,
        prompt_tokens: row.get("prompt_tokens")?,
        completion_tokens: row.get("completion_tokens")?,
        source: row.get("source")?,
        external_ref: row.get("external_ref")?,
        created_at: row.get("created_at")?,
    })
}
