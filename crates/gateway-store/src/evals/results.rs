//! Eval results: one for each item of a run, and one for each sampled row of live traffic.

use std::collections::HashSet;
use std::sync::LazyLock;

use gateway_core::ids::OrgId;
use gateway_core::otlp::encode::EvaluationResult;
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::logs::bulk::{Bulk, id_list, in_ids};
use crate::page::{Page, Paged};
use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

table! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct EvalResult in "eval_results" {
        pub id: i64 [key],
        pub eval_id: i64,
        pub run_id: Option<i64>,
        pub log_id: Option<i64>,
        pub case_id: Option<String>,
        pub score: f64,
        pub passed: bool,
        pub details: String,
        pub created_at: Timestamp [once],
    }
}

#[derive(Debug, Clone)]
pub struct NewEvalResult {
    pub id: i64,
    /// In its run; ignored for live traffic.
    pub position: i64,
    pub log_id: Option<i64>,
    pub case_id: Option<String>,
    pub score: f64,
    pub passed: bool,
    pub details: String,
}

/// The number of passed and failed results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerdictCounts {
    pub passed: i64,
    pub failed: i64,
}

/// A row or case that two runs judged differently.
#[derive(Debug, Clone, PartialEq)]
pub struct VerdictFlip {
    pub log_id: Option<i64>,
    pub case_id: Option<String>,
    /// The verdict of the first run. The second run has the opposite one.
    pub passed: bool,
    pub score: f64,
    pub other_score: f64,
}

static RESULTS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO eval_results (id, org_id, eval_id, run_id, position, log_id, case_id, score, passed, details, \
         created_at)",
        "(?,?,?,?,?,?,?,?,?,?,?)",
        "ON CONFLICT DO NOTHING",
    )
});

/// The definition and, except for live traffic, the run that results belong to.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResultsOf {
    pub eval: i64,
    pub run: Option<i64>,
}

/// Inserts results. Existing ones are not changed.
pub(super) async fn insert(
    tx: &mut Tx,
    org: OrgId,
    of: ResultsOf,
    results: Vec<NewEvalResult>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let ResultsOf { eval, run } = of;
    let values = |result: NewEvalResult| {
        let NewEvalResult { id, position, log_id, case_id, score, passed, details } = result;
        let position = run.map(|_| position);
        args![id, org, eval, run, position, log_id, case_id, score, passed, details, now]
    };
    RESULTS.run(tx, results.into_iter().map(values).collect::<Vec<_>>().into_iter()).await
}

/// Inserts results of live traffic.
pub async fn insert_live_results(
    tx: &mut Tx,
    org: OrgId,
    eval: i64,
    results: Vec<NewEvalResult>,
    now: Timestamp,
) -> Result<(), StoreError> {
    insert(tx, org, ResultsOf { eval, run: None }, results, now).await
}

/// The rows among these that the definition already judged as live traffic.
pub async fn live_judged_ids(db: &Db, eval: i64, log_ids: &[i64]) -> Result<HashSet<i64>, StoreError> {
    let sql = format!(
        "SELECT log_id FROM eval_results WHERE eval_id = $1 AND run_id IS NULL AND {}",
        in_ids(db.dialect(), "log_id", 2)
    );
    let rows = db.all(AssertSqlSafe(sql), args![eval, id_list(log_ids.iter().copied())]).await?;
    rows.iter().map(|row| row.get("log_id")).collect()
}

/// The results with these ids that are on log rows, in the form that exports send, each with the id of its row.
pub async fn results_for_export(
    db: &Db,
    org: OrgId,
    ids: &[i64],
) -> Result<Vec<(i64, EvaluationResult)>, StoreError> {
    let sql = format!(
        "SELECT r.id, r.log_id, r.score, r.passed, r.details, r.created_at, e.name FROM eval_results r \
         JOIN evals e ON e.id = r.eval_id WHERE r.org_id = $1 AND r.log_id IS NOT NULL AND {} ORDER BY r.id",
        in_ids(db.dialect(), "r.id", 2)
    );
    let rows = db.all(AssertSqlSafe(sql), args![org, id_list(ids.iter().copied())]).await?;
    rows.iter()
        .map(|row| {
            let result = EvaluationResult {
                id: row.get::<i64>("id")?.to_string(),
                name: row.get("name")?,
                score: row.get("score")?,
                passed: row.get("passed")?,
                explanation: None,
                at: row.get("created_at")?,
            };
            Ok((row.get("log_id")?, result.with_explanation(&row.get::<String>("details")?)))
        })
        .collect()
}

/// The results of a definition, newest first; the cursor is a number.
pub async fn list(db: &Db, org: OrgId, eval: i64, page: &Page) -> Result<Paged<EvalResult>, StoreError> {
    list_where(db, org, "eval_id = $2", eval, page).await
}

/// The results of a run, newest first; the cursor is a number.
pub async fn list_run_results(
    db: &Db,
    org: OrgId,
    run: i64,
    page: &Page,
) -> Result<Paged<EvalResult>, StoreError> {
    list_where(db, org, "run_id = $2", run, page).await
}

/// The counts over all results of an organization.
pub async fn count_verdicts(db: &Db, org: OrgId) -> Result<VerdictCounts, StoreError> {
    let row = db
        .opt(
            // Kept by triggers, so that a scrape of metrics does not count all results.
            "SELECT passed, failed FROM eval_counts WHERE org_id = $1",
            args![org],
        )
        .await?;
    row.map_or(Ok(VerdictCounts::default()), |row| {
        Ok(VerdictCounts { passed: row.get("passed")?, failed: row.get("failed")? })
    })
}

/// The number of rows and cases that both runs judged, and the first `limit` flips in the order of the first run.
pub async fn compare_runs(
    db: &Db,
    org: OrgId,
    run: i64,
    other: i64,
    limit: i64,
) -> Result<(i64, Vec<VerdictFlip>), StoreError> {
    let on = |same: &str| {
        format!(
            "SELECT a.position, a.log_id, a.case_id, a.passed, a.score, b.passed AS other_passed, b.score AS other_score \
             FROM eval_results a JOIN eval_results b ON b.run_id = $3 AND {same} \
             WHERE a.org_id = $1 AND b.org_id = $1 AND a.run_id = $2"
        )
    };
    // Two joins instead of one with OR, which could not use an index.
    let by_log = on("b.log_id = a.log_id AND a.case_id IS NULL AND b.case_id IS NULL");
    let pairs = format!("FROM ({} UNION ALL {by_log}) pairs", on("b.case_id = a.case_id"));
    let sql = format!("SELECT COUNT(*) AS found {pairs}");
    let both = db.opt(AssertSqlSafe(sql), args![org, run, other]).await?;
    let sql = format!(
        "SELECT log_id, case_id, passed, score, other_score {pairs} WHERE passed <> other_passed \
         ORDER BY position LIMIT $4"
    );
    let rows = db.all(AssertSqlSafe(sql), args![org, run, other, limit]).await?;
    let flips = rows
        .iter()
        .map(|row| {
            Ok(VerdictFlip {
                log_id: row.get("log_id")?,
                case_id: row.get("case_id")?,
                passed: row.get("passed")?,
                score: row.get("score")?,
                other_score: row.get("other_score")?,
            })
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    Ok((both.map_or(Ok(0), |row| row.get("found"))?, flips))
}

async fn list_where(
    db: &Db,
    org: OrgId,
    condition: &str,
    id: i64,
    page: &Page,
) -> Result<Paged<EvalResult>, StoreError> {
    let sql = EvalResult::select(&format!(
        "{condition} AND org_id = $1 AND ($3 IS NULL OR id < $3) ORDER BY id DESC LIMIT $4"
    ));
    let rows = db.all(sql, args![org, id, page.number_cursor(), page.fetch()]).await?;
    Ok(page.cut(table::read_all::<EvalResult>(&rows)?, |result| result.id.to_string()))
}
