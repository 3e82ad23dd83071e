//! Evals: definitions here, runs in `runs`, verdicts in `results`.

mod results;
mod runs;

pub use results::{
    EvalResult, NewEvalResult, VerdictCounts, VerdictFlip, compare_runs, count_verdicts, insert_live_results,
    list as list_results, list_run_results, live_judged_ids, results_for_export,
};
pub use runs::{
    ItemOutcome, NewRun, Run, RunFilter, RunItem, RunItemError, RunStatus, add_case_items, add_log_items,
    cancel_run, count_unfinished, find as find_run, finish_run, insert as insert_run, item_errors,
    list as list_runs, pending_items, record_outcomes, start_run,
};

use gateway_core::evaluators::EvaluatorKind;
use gateway_core::ids::OrgId;
use gateway_core::time::Timestamp;
use serde_json::Value;
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::{Row, args, json};
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq)]
pub struct Eval {
    pub id: i64,
    pub org_id: OrgId,
    pub name: String,
    pub kind: EvaluatorKind,
    pub evaluator: String,
    pub config: Value,
    pub enabled: bool,
    pub sample_rate: f64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A definition that judges new log rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LiveEval {
    pub id: i64,
    pub org_id: OrgId,
    pub sample_rate: f64,
}

const COLUMNS: &str =
    "id, org_id, name, type, evaluator, config, enabled, sample_rate, created_at, updated_at";

pub async fn insert(tx: &mut Tx, eval: &Eval) -> Result<(), StoreError> {
    let Eval { id, org_id, name, kind, evaluator, config, enabled, sample_rate, created_at, updated_at } =
        eval;
    tx.exec(
        "INSERT INTO evals (id, org_id, name, type, evaluator, config, enabled, sample_rate, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        args![
            *id,
            *org_id,
            name,
            kind.as_str(),
            evaluator,
            json(config),
            *enabled,
            *sample_rate,
            *created_at,
            *updated_at
        ],
    )
    .await
    .map(|_| ())
}

/// Holds the definition until the transaction ends.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, id: i64) -> Result<Option<Eval>, StoreError> {
    let sql = format!("UPDATE evals SET id = id WHERE org_id = $1 AND id = $2 RETURNING {COLUMNS}");
    tx.opt(AssertSqlSafe(sql), args![org, id]).await?.as_ref().map(read).transpose()
}

/// Writes a definition that is held.
pub async fn update(tx: &mut Tx, eval: &Eval) -> Result<(), StoreError> {
    let Eval { id, org_id, name, kind, evaluator, config, enabled, sample_rate, created_at: _, updated_at } =
        eval;
    tx.exec(
        "UPDATE evals SET name = $3, type = $4, evaluator = $5, config = $6, enabled = $7, sample_rate = $8, \
         updated_at = $9 WHERE org_id = $1 AND id = $2",
        args![
            *org_id,
            *id,
            name,
            kind.as_str(),
            evaluator,
            json(config),
            *enabled,
            *sample_rate,
            *updated_at
        ],
    )
    .await
    .map(|_| ())
}

/// With all its runs and results.
pub async fn delete(tx: &mut Tx, org: OrgId, id: i64) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM evals WHERE org_id = $1 AND id = $2", args![org, id]).await? == 1)
}

pub async fn find(db: &Db, org: OrgId, id: i64) -> Result<Option<Eval>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM evals WHERE org_id = $1 AND id = $2");
    db.opt(AssertSqlSafe(sql), args![org, id]).await?.as_ref().map(read).transpose()
}

/// Newest first; the cursor is a number.
pub async fn list(
    db: &Db,
    org: OrgId,
    kind: Option<EvaluatorKind>,
    enabled: Option<bool>,
    page: &Page,
) -> Result<Paged<Eval>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM evals WHERE org_id = $1 AND ($2 IS NULL OR type = $2) \
         AND ($3 IS NULL OR enabled = $3) AND ($4 IS NULL OR id < $4) ORDER BY id DESC LIMIT $5"
    );
    let values = args![org, kind.map(EvaluatorKind::as_str), enabled, number(page), page.fetch()];
    let evals =
        db.all(AssertSqlSafe(sql), values).await?.iter().map(read).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(evals, |eval| eval.id.to_string()))
}

/// The definitions of all organizations that judge new rows.
pub async fn list_live(db: &Db) -> Result<Vec<LiveEval>, StoreError> {
    let sql = "SELECT id, org_id, sample_rate FROM evals WHERE enabled = 1 AND sample_rate > 0";
    let rows = db.all(sql, Vec::new()).await?;
    rows.iter()
        .map(|row| {
            Ok(LiveEval {
                id: row.get("id")?,
                org_id: row.get("org_id")?,
                sample_rate: row.get("sample_rate")?,
            })
        })
        .collect()
}

/// The cursor of a page whose ids are numbers.
fn number(page: &Page) -> Option<i64> {
    page.before.as_deref().and_then(|before| before.parse().ok())
}

fn read(row: &Row) -> Result<Eval, StoreError> {
    let kind: String = row.get("type")?;
    Ok(Eval {
        id: row.get("id")?,
        org_id: row.get("org_id")?,
        name: row.get("name")?,
        kind: EvaluatorKind::parse(&kind)
            .ok_or_else(|| StoreError::Other(format!("column type holds the unknown value {kind:?}")))?,
        evaluator: row.get("evaluator")?,
        config: row.json("config")?,
        enabled: row.get("enabled")?,
        sample_rate: row.get("sample_rate")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
    })
}
