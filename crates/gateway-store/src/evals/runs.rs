//! Eval runs and their items. An item is pending, judged or failed, and leaves the first of these states once: the counts
//! of a run grow in the same transaction, so that they stay correct when a run is resumed. `new_items` adds the items.

use std::collections::HashSet;

use gateway_core::ids::{DatasetId, OrgId};
use gateway_core::logs::PromptVersionRef;
use gateway_core::time::Timestamp;
use serde_json::Value;
use sqlx::AssertSqlSafe;

use super::results::{NewEvalResult, ResultsOf, insert as insert_results};
use crate::logs::bulk::{id_list, in_ids};
use crate::page::{Page, Paged};
use crate::row::{args, json};
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

pub use gateway_core::statuses::RunStatus;

table! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct Run in "eval_runs" {
        pub id: i64 [key],
        pub org_id: OrgId [key],
        pub eval_id: i64,
        pub dataset_id: Option<DatasetId>,
        pub dataset_version: Option<i64>,
        pub begun_by: String,
        pub status: RunStatus,
        pub total: i64,
        pub passed: i64,
        pub failed: i64,
        pub errors: i64,
        pub error: Option<String>,
        /// The definition at the time the run was created.
        pub definition: Value [json],
        pub target: Option<Value> [optional json],
        pub created_at: Timestamp [once],
        pub started_at: Option<Timestamp>,
        pub finished_at: Option<Timestamp>,
    }
}

#[derive(Debug, Clone)]
pub struct NewRun<'a> {
    pub id: i64,
    pub org: OrgId,
    pub eval_id: i64,
    pub dataset: Option<(DatasetId, Option<i64>)>,
    pub begun_by: &'a str,
    pub definition: &'a Value,
    pub target: Option<&'a Value>,
    /// The prompt of the target.
    pub prompt: Option<&'a PromptVersionRef>,
    pub created_by: &'a str,
    pub now: Timestamp,
}

table! {
    /// A log row or a case to judge.
    #[derive(Debug, Clone, PartialEq)]
    pub struct RunItem in "eval_run_items" {
        pub position: i64 [key],
        pub log_id: Option<i64>,
        pub case_id: Option<String>,
        /// Copied from the case.
        pub input: Option<Value> [via strict_json],
        pub expected: Option<Value> [via strict_json],
        pub metadata: Option<Value> [via strict_json],
        /// Failed attempts so far.
        pub attempts: i64,
    }
}

/// Nullable JSON that must be valid: an item with broken content is an error, not an item without content.
mod strict_json {
    use serde_json::Value;

    use crate::StoreError;
    use crate::row::{Arg, Row, optional_json};

    #[expect(clippy::ref_option, reason = "a codec of a column takes a reference to the field")]
    pub(super) fn to_arg(value: &Option<Value>) -> Arg {
        optional_json(value.as_ref())
    }

    pub(super) fn from_row(row: &Row, column: &'static str) -> Result<Option<Value>, StoreError> {
        if row.get::<Option<String>>(column)?.is_none() {
            return Ok(None);
        }
        row.json(column).map(Some)
    }
}

/// The outcome of an item.
#[derive(Debug, Clone)]
pub enum ItemOutcome {
    Judged(NewEvalResult),
    /// Failed, to be retried.
    Retry {
        position: i64,
        error: String,
    },
    /// Failed for good.
    Error {
        position: i64,
        error: String,
    },
}

/// An item that failed for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunItemError {
    pub position: i64,
    pub log_id: Option<i64>,
    pub case_id: Option<String>,
    pub error: String,
}

#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    pub eval_id: Option<i64>,
    pub dataset_id: Option<DatasetId>,
    pub status: Option<RunStatus>,
}

/// Adds a run without items.
pub async fn insert(tx: &mut Tx, run: &NewRun<'_>) -> Result<(), StoreError> {
    let (dataset, version) = run.dataset.map_or((None, None), |(dataset, version)| (Some(dataset), version));
    tx.exec(
        "INSERT INTO eval_runs (id, org_id, eval_id, dataset_id, dataset_version, begun_by, status, total, passed, \
         failed, errors, definition, target, created_by, created_at, prompt, prompt_version) \
         VALUES ($1, $2, $3, $4, $5, $6, 'queued', 0, 0, 0, 0, $7, $8, $9, $10, $11, $12)",
        args![
            run.id,
            run.org,
            run.eval_id,
            dataset,
            version,
            run.begun_by,
            json(run.definition),
            run.target.map(Value::to_string),
            run.created_by,
            run.now,
            run.prompt.map(|prompt| prompt.name.clone()),
            run.prompt.map(|prompt| prompt.version)
        ],
    )
    .await
    .map(|_| ())
}

/// The number of unfinished runs of an organization.
pub async fn count_unfinished(tx: &mut Tx, org: OrgId) -> Result<i64, StoreError> {
    let sql = "SELECT COUNT(*) AS found FROM eval_runs WHERE org_id = $1 AND finished_at IS NULL";
    tx.opt(sql, args![org]).await?.map_or(Ok(0), |row| row.get("found"))
}

/// The verdicts of one eval on a version of a prompt, over all runs whose target used it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptScore {
    pub version: i64,
    pub eval_id: i64,
    pub eval_name: String,
    pub runs: i64,
    pub passed: i64,
    pub failed: i64,
}

/// The scores of a prompt (`namespace/slug`) by version, newest first, and eval.
pub async fn prompt_scores(
    db: &Db,
    org: OrgId,
    prompt: &str,
    limit: i64,
) -> Result<Vec<PromptScore>, StoreError> {
    let rows = db
        .all(
            "SELECT r.prompt_version AS version, r.eval_id, e.name, COUNT(*) AS runs, \
             CAST(SUM(r.passed) AS BIGINT) AS passed, CAST(SUM(r.failed) AS BIGINT) AS failed \
             FROM eval_runs r JOIN evals e ON e.id = r.eval_id WHERE r.org_id = $1 AND r.prompt = $2 AND r.total >= 0 \
             GROUP BY r.prompt_version, r.eval_id, e.name ORDER BY r.prompt_version DESC, r.eval_id LIMIT $3",
            args![org, prompt, limit],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(PromptScore {
                version: row.get("version")?,
                eval_id: row.get("eval_id")?,
                eval_name: row.get("name")?,
                runs: row.get("runs")?,
                passed: row.get("passed")?,
                failed: row.get("failed")?,
            })
        })
        .collect()
}

pub async fn find(db: &Db, org: OrgId, id: i64) -> Result<Option<Run>, StoreError> {
    let row = db.opt(Run::select("org_id = $1 AND id = $2 AND total >= 0"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

const LISTED: &str = "org_id = $1 AND ($2 IS NULL OR eval_id = $2) AND ($3 IS NULL OR dataset_id = $3) \
    AND ($4 IS NULL OR status = $4) AND ($5 IS NULL OR id < $5) AND total >= 0 ORDER BY id DESC LIMIT $6";

/// Newest first; the cursor is a number. A page has fewer than its limit if the runs are large.
pub async fn list(db: &Db, org: OrgId, filter: &RunFilter, page: &Page) -> Result<Paged<Run>, StoreError> {
    let RunFilter { eval_id, dataset_id, status } = filter;
    let status = status.map(RunStatus::as_str);
    let values = |limit: i64| args![org, *eval_id, *dataset_id, status, page.number_cursor(), limit];
    let sizes = format!(
        "SELECT CAST(LENGTH(definition) + COALESCE(LENGTH(target), 0) AS BIGINT) AS size FROM eval_runs WHERE {LISTED}"
    );
    let sizes = db.all(AssertSqlSafe(sizes), values(page.limit)).await?;
    let page = page.bounded(&sizes)?;
    let rows = db.all(Run::select(LISTED), values(page.fetch())).await?;
    Ok(page.cut(table::read_all::<Run>(&rows)?, |run| run.id.to_string()))
}

/// Marks the run as running. None when it does not exist, is over, or is incomplete.
pub async fn start_run(db: &Db, org: OrgId, id: i64, now: Timestamp) -> Result<Option<Run>, StoreError> {
    let sql = format!(
        "UPDATE eval_runs SET status = 'running', started_at = COALESCE(started_at, $3) \
         WHERE org_id = $1 AND id = $2 AND finished_at IS NULL AND total >= 0 RETURNING {}",
        Run::columns("")
    );
    let mut tx = db.begin().await?;
    let row = tx.opt(AssertSqlSafe(sql), args![org, id, now]).await?;
    tx.commit().await?;
    table::read_opt(row.as_ref())
}

/// Pending items, those with the fewest attempts first.
pub async fn pending_items(db: &Db, run: i64, limit: i64) -> Result<Vec<RunItem>, StoreError> {
    let sql = RunItem::select("run_id = $1 AND state = 'pending' ORDER BY attempts, position LIMIT $2");
    table::read_all(&db.all(sql, args![run, limit]).await?)
}

/// The size of a pending item's content in characters, and the log row that it names instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingSize {
    pub log_id: Option<i64>,
    pub size: i64,
}

/// The sizes of the items that `pending_items` returns, in the same order.
pub async fn pending_sizes(db: &Db, run: i64, limit: i64) -> Result<Vec<PendingSize>, StoreError> {
    let rows = db
        .all(
            "SELECT log_id, CAST(COALESCE(LENGTH(input), 0) + COALESCE(LENGTH(expected), 0) + \
             COALESCE(LENGTH(metadata), 0) AS BIGINT) AS size FROM eval_run_items \
             WHERE run_id = $1 AND state = 'pending' ORDER BY attempts, position LIMIT $2",
            args![run, limit],
        )
        .await?;
    rows.iter().map(|row| Ok(PendingSize { log_id: row.get("log_id")?, size: row.get("size")? })).collect()
}

/// Records the outcomes of items. An item that is judged or failed already is not changed. False when the run is over.
pub async fn record_outcomes(
    tx: &mut Tx,
    run: &Run,
    outcomes: Vec<ItemOutcome>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let open = tx
        .exec("UPDATE eval_runs SET status = status WHERE id = $1 AND finished_at IS NULL", args![run.id])
        .await?;
    if open == 0 {
        return Ok(false);
    }
    let mut judged = Vec::new();
    let mut errors = 0_u64;
    for outcome in outcomes {
        let (position, error, state) = match outcome {
            ItemOutcome::Judged(result) => {
                judged.push(result);
                continue;
            }
            ItemOutcome::Retry { position, error } => (position, error, "pending"),
            ItemOutcome::Error { position, error } => (position, error, "error"),
        };
        let changed = tx
            .exec(
                "UPDATE eval_run_items SET state = $3, attempts = attempts + 1, error = $4 \
                 WHERE run_id = $1 AND position = $2 AND state = 'pending'",
                args![run.id, position, state, error],
            )
            .await?;
        if state == "error" {
            errors += changed;
        }
    }
    let judged = mark_judged(tx, run.id, judged).await?;
    let passed = judged.iter().filter(|result| result.passed).count() as u64;
    let failed = judged.len() as u64 - passed;
    insert_results(tx, run.org_id, ResultsOf { eval: run.eval_id, run: Some(run.id) }, judged, now).await?;
    // Added up, because counting the rows of a large run after each batch would take long.
    tx.exec(
        "UPDATE eval_runs SET passed = passed + $2, failed = failed + $3, errors = errors + $4 WHERE id = $1",
        args![run.id, passed.cast_signed(), failed.cast_signed(), errors.cast_signed()],
    )
    .await?;
    Ok(true)
}

/// Marks the items of these results as judged. Returns the results of those that were pending.
async fn mark_judged(
    tx: &mut Tx,
    run: i64,
    mut judged: Vec<NewEvalResult>,
) -> Result<Vec<NewEvalResult>, StoreError> {
    // Not `state = 'pending'`, for which a database may read the whole index of pending items.
    let sql = format!(
        "UPDATE eval_run_items SET state = 'judged', error = NULL, input = NULL, expected = NULL, metadata = NULL \
         WHERE run_id = $1 AND state NOT IN ('judged', 'error') AND {} RETURNING position",
        in_ids(tx.dialect(), "position", 2)
    );
    let positions = id_list(judged.iter().map(|result| result.position));
    let rows = tx.all(AssertSqlSafe(sql), args![run, positions]).await?;
    let positions = rows.iter().map(|row| row.get("position"));
    let mut marked = positions.collect::<Result<HashSet<i64>, StoreError>>()?;
    judged.retain(|result| marked.remove(&result.position));
    Ok(judged)
}

/// How a run ended.
#[derive(Debug, Clone, Copy)]
pub struct RunEnd<'a> {
    pub status: RunStatus,
    pub error: Option<&'a str>,
    pub at: Timestamp,
}

/// Finishes a run that is not over yet. An incomplete one stays as it is.
pub async fn finish_run(db: &Db, org: OrgId, id: i64, end: RunEnd<'_>) -> Result<(), StoreError> {
    let RunEnd { status, error, at } = end;
    db.exec(
        "UPDATE eval_runs SET status = $3, error = $4, finished_at = $5 \
         WHERE org_id = $1 AND id = $2 AND finished_at IS NULL AND total >= 0",
        args![org, id, status, error, at],
    )
    .await
    .map(|_| ())
}

/// Cancels a run. False when it was already over, or is incomplete.
pub async fn cancel_run(tx: &mut Tx, org: OrgId, id: i64, now: Timestamp) -> Result<bool, StoreError> {
    let cancelled = tx
        .exec(
            "UPDATE eval_runs SET status = 'cancelled', finished_at = $3 \
             WHERE org_id = $1 AND id = $2 AND finished_at IS NULL AND total >= 0",
            args![org, id, now],
        )
        .await?;
    Ok(cancelled == 1)
}

/// Deletes a run that is over, with its items and verdicts. False if there is none.
pub async fn delete(tx: &mut Tx, org: OrgId, id: i64) -> Result<bool, StoreError> {
    let sql = "DELETE FROM eval_runs WHERE org_id = $1 AND id = $2 AND finished_at IS NOT NULL";
    Ok(tx.exec(sql, args![org, id]).await? == 1)
}

/// The items that failed for good, with their errors.
pub async fn item_errors(db: &Db, org: OrgId, run: i64, limit: i64) -> Result<Vec<RunItemError>, StoreError> {
    let rows = db
        .all(
            "SELECT i.position, i.log_id, i.case_id, i.error FROM eval_runs r JOIN eval_run_items i ON i.run_id = r.id \
             WHERE r.org_id = $1 AND r.id = $2 AND i.state = 'error' ORDER BY i.position LIMIT $3",
            args![org, run, limit],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(RunItemError {
                position: row.get("position")?,
                log_id: row.get("log_id")?,
                case_id: row.get("case_id")?,
                error: row.get::<Option<String>>("error")?.unwrap_or_default(),
            })
        })
        .collect()
}
