//! Verdicts: of the items of runs, each once, and of live traffic, each row once.

use std::collections::HashSet;
use std::sync::LazyLock;

use gateway_core::ids::OrgId;
use gateway_core::otlp::encode::EvaluationResult;
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use super::number;
use crate::logs::bulk::{Bulk, id_list, in_ids};
use crate::page::{Page, Paged};
use crate::row::{Row, args};
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq)]
pub struct EvalResult {
    pub id: i64,
    pub eval_id: i64,
    pub run_id: Option<i64>,
    pub log_id: Option<i64>,
    pub case_id: Option<String>,
    pub score: f64,
    pub passed: bool,
    pub details: String,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone)]
pub struct NewEvalResult {
    pub id: i64,
    /// In its run; of no meaning for live traffic.
    pub position: i64,
    pub log_id: Option<i64>,
    pub case_id: Option<String>,
    pub score: f64,
    pub passed: bool,
    pub details: String,
}

/// How many verdicts were good, and how many were not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerdictCounts {
    pub passed: i64,
    pub failed: i64,
}

/// Something that two runs judged differently.
#[derive(Debug, Clone, PartialEq)]
pub struct VerdictFlip {
    pub log_id: Option<i64>,
    pub case_id: Option<String>,
    /// The verdict of the first run; the second's is the opposite.
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

/// A verdict that is there already stays.
pub(super) async fn insert(
    tx: &mut Tx,
    org: OrgId,
    eval: i64,
    run: Option<i64>,
    results: Vec<NewEvalResult>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let line = |result: NewEvalResult| {
        let NewEvalResult { id, position, log_id, case_id, score, passed, details } = result;
        let position = run.map(|_| position);
        args![id, org, eval, run, position, log_id, case_id, score, passed, details.replace('\0', " "), now]
    };
    RESULTS.run(tx, results.into_iter().map(line).collect::<Vec<_>>().into_iter()).await
}

/// Adds verdicts on live traffic.
pub async fn insert_live_results(
    tx: &mut Tx,
    org: OrgId,
    eval: i64,
    results: Vec<NewEvalResult>,
    now: Timestamp,
) -> Result<(), StoreError> {
    insert(tx, org, eval, None, results, now).await
}

/// Which of these rows of live traffic the definition has judged.
pub async fn live_judged_ids(db: &Db, eval: i64, log_ids: &[i64]) -> Result<HashSet<i64>, StoreError> {
    let sql = format!(
        "SELECT log_id FROM eval_results WHERE eval_id = $1 AND run_id IS NULL AND {}",
        in_ids(db.dialect(), "log_id", 2)
    );
    let rows = db.all(AssertSqlSafe(sql), args![eval, id_list(log_ids.iter().copied())]).await?;
    rows.iter().map(|row| row.get("log_id")).collect()
}

/// Verdicts on log rows by their ids, each with its row, as exports tell them.
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

const COLUMNS: &str = "id, eval_id, run_id, log_id, case_id, score, passed, details, created_at";

/// Of a definition, newest first; the cursor is a number.
pub async fn list(db: &Db, org: OrgId, eval: i64, page: &Page) -> Result<Paged<EvalResult>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM eval_results WHERE eval_id = $2 AND org_id = $1 AND ($3 IS NULL OR id < $3) \
         ORDER BY id DESC LIMIT $4"
    );
    paged(&db.all(AssertSqlSafe(sql), args![org, eval, number(page), page.fetch()]).await?, page)
}

/// Of a run, newest first; the cursor is a number.
pub async fn list_run_results(
    db: &Db,
    org: OrgId,
    run: i64,
    page: &Page,
) -> Result<Paged<EvalResult>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM eval_results WHERE run_id = $2 AND org_id = $1 AND ($3 IS NULL OR id < $3) \
         ORDER BY id DESC LIMIT $4"
    );
    paged(&db.all(AssertSqlSafe(sql), args![org, run, number(page), page.fetch()]).await?, page)
}

/// Of everything that the organization had judged.
pub async fn count_verdicts(db: &Db, org: OrgId) -> Result<VerdictCounts, StoreError> {
    let row = db
        .opt(
            "SELECT (SELECT COUNT(*) FROM eval_results WHERE org_id = $1 AND passed = 1) AS passed, \
             (SELECT COUNT(*) FROM eval_results WHERE org_id = $1 AND passed = 0) AS failed",
            args![org],
        )
        .await?;
    row.map_or(Ok(VerdictCounts::default()), |row| {
        Ok(VerdictCounts { passed: row.get("passed")?, failed: row.get("failed")? })
    })
}

/// How many things both runs judged, and the first of those on which they differ, in the order of the first run.
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
    // Two joins instead of one with an OR, which no index could serve.
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

fn paged(rows: &[Row], page: &Page) -> Result<Paged<EvalResult>, StoreError> {
    let results = rows
        .iter()
        .map(|row| {
            Ok(EvalResult {
                id: row.get("id")?,
                eval_id: row.get("eval_id")?,
                run_id: row.get("run_id")?,
                log_id: row.get("log_id")?,
                case_id: row.get("case_id")?,
                score: row.get("score")?,
                passed: row.get("passed")?,
                details: row.get("details")?,
                created_at: row.get("created_at")?,
            })
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(results, |result| result.id.to_string()))
}
