//! Runs and their items. An item waits, is judged once, or is given up with a reason; a run's counts are always taken
//! from what its items and results say, so that they cannot drift however often a run is taken up again.

use std::sync::LazyLock;

use gateway_core::ids::{DatasetId, OrgId};
use gateway_core::time::Timestamp;
use serde_json::Value;
use sqlx::AssertSqlSafe;

use super::number;
use super::results::{NewEvalResult, insert as insert_results};
use crate::datasets::Edition;
use crate::logs::bulk::{Bulk, id_list, in_ids};
use crate::page::{Page, Paged};
use crate::row::{Row, args, json};
use crate::{Db, StoreError, Tx};

pub use gateway_core::statuses::RunStatus;

#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub id: i64,
    pub org_id: OrgId,
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
    /// The definition as it was when the run was made.
    pub definition: Value,
    pub target: Option<Value>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
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
    pub created_by: &'a str,
    pub now: Timestamp,
}

/// One thing to judge.
#[derive(Debug, Clone, PartialEq)]
pub struct RunItem {
    pub position: i64,
    pub log_id: Option<i64>,
    pub case_id: Option<String>,
    /// Of a case.
    pub input: Option<Value>,
    pub expected: Option<Value>,
    pub metadata: Option<Value>,
    /// How often it could not be judged.
    pub attempts: i64,
}

/// What became of an item.
#[derive(Debug, Clone)]
pub enum ItemOutcome {
    Judged(NewEvalResult),
    /// It may work another time.
    Retry {
        position: i64,
        error: String,
    },
    /// It is given up.
    Error {
        position: i64,
        error: String,
    },
}

/// An item that could not be judged.
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

const COLUMNS: &str = "id, org_id, eval_id, dataset_id, dataset_version, begun_by, status, total, passed, failed, errors, \
    error, definition, target, created_at, started_at, finished_at";

/// Adds a run without items.
pub async fn insert(tx: &mut Tx, run: &NewRun<'_>) -> Result<(), StoreError> {
    let (dataset, version) = run.dataset.map_or((None, None), |(dataset, version)| (Some(dataset), version));
    tx.exec(
        "INSERT INTO eval_runs (id, org_id, eval_id, dataset_id, dataset_version, begun_by, status, total, passed, \
         failed, errors, definition, target, created_by, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, 'queued', 0, 0, 0, 0, $7, $8, $9, $10)",
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
            run.now
        ],
    )
    .await
    .map(|_| ())
}

static ROWS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO eval_run_items (run_id, position, log_id, state, attempts)",
        "(?,?,?,'pending',0)",
        "",
    )
});

/// Gives a new run these log rows to judge.
pub async fn add_log_items(tx: &mut Tx, run: i64, log_ids: &[i64]) -> Result<(), StoreError> {
    let lines: Vec<_> = (0_i64..).zip(log_ids).map(|(position, log)| args![run, position, *log]).collect();
    ROWS.run(tx, lines.into_iter()).await?;
    note_total(tx, run).await
}

/// Gives a new run the cases of a dataset, copied as they are now, since the working copy goes on changing.
pub async fn add_case_items(
    tx: &mut Tx,
    run: i64,
    dataset: DatasetId,
    of: Edition,
) -> Result<(), StoreError> {
    let sql = format!(
        "INSERT INTO eval_run_items (run_id, position, case_id, input, expected, metadata, state, attempts) \
         SELECT $1, ROW_NUMBER() OVER (ORDER BY c.id) - 1, c.id, c.input, c.expected, c.metadata, 'pending', 0 \
         FROM dataset_cases c WHERE c.dataset_id = $2 AND {}",
        of.condition()
    );
    tx.exec(AssertSqlSafe(sql), args![run, dataset]).await?;
    note_total(tx, run).await
}

async fn note_total(tx: &mut Tx, run: i64) -> Result<(), StoreError> {
    tx.exec(
        "UPDATE eval_runs SET total = (SELECT COUNT(*) FROM eval_run_items WHERE run_id = $1) WHERE id = $1",
        args![run],
    )
    .await
    .map(|_| ())
}

/// How many runs of the organization are not at their end.
pub async fn count_unfinished(tx: &mut Tx, org: OrgId) -> Result<i64, StoreError> {
    let sql = "SELECT COUNT(*) AS found FROM eval_runs WHERE org_id = $1 AND finished_at IS NULL";
    tx.opt(sql, args![org]).await?.map_or(Ok(0), |row| row.get("found"))
}

pub async fn find(db: &Db, org: OrgId, id: i64) -> Result<Option<Run>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM eval_runs WHERE org_id = $1 AND id = $2");
    db.opt(AssertSqlSafe(sql), args![org, id]).await?.as_ref().map(read).transpose()
}

/// Newest first; the cursor is a number.
pub async fn list(db: &Db, org: OrgId, filter: &RunFilter, page: &Page) -> Result<Paged<Run>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM eval_runs WHERE org_id = $1 AND ($2 IS NULL OR eval_id = $2) \
         AND ($3 IS NULL OR dataset_id = $3) AND ($4 IS NULL OR status = $4) AND ($5 IS NULL OR id < $5) \
         ORDER BY id DESC LIMIT $6"
    );
    let RunFilter { eval_id, dataset_id, status } = filter;
    let values = args![org, *eval_id, *dataset_id, status.map(RunStatus::as_str), number(page), page.fetch()];
    let runs =
        db.all(AssertSqlSafe(sql), values).await?.iter().map(read).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(runs, |run| run.id.to_string()))
}

/// The run is under way. None when it is gone or at its end.
pub async fn start_run(db: &Db, org: OrgId, id: i64, now: Timestamp) -> Result<Option<Run>, StoreError> {
    let sql = format!(
        "UPDATE eval_runs SET status = 'running', started_at = COALESCE(started_at, $3) \
         WHERE org_id = $1 AND id = $2 AND finished_at IS NULL RETURNING {COLUMNS}"
    );
    let mut tx = db.begin().await?;
    let row = tx.opt(AssertSqlSafe(sql), args![org, id, now]).await?;
    tx.commit().await?;
    row.as_ref().map(read).transpose()
}

/// The items that wait, those that failed least often first.
pub async fn pending_items(db: &Db, run: i64, limit: i64) -> Result<Vec<RunItem>, StoreError> {
    let rows = db
        .all(
            "SELECT position, log_id, case_id, input, expected, metadata, attempts FROM eval_run_items \
             WHERE run_id = $1 AND state = 'pending' ORDER BY attempts, position LIMIT $2",
            args![run, limit],
        )
        .await?;
    let value = |row: &Row, column: &'static str| -> Result<Option<Value>, StoreError> {
        let text: Option<String> = row.get(column)?;
        text.map(|text| serde_json::from_str(&text).map_err(|error| StoreError::Other(error.to_string())))
            .transpose()
    };
    rows.iter()
        .map(|row| {
            Ok(RunItem {
                position: row.get("position")?,
                log_id: row.get("log_id")?,
                case_id: row.get("case_id")?,
                input: value(row, "input")?,
                expected: value(row, "expected")?,
                metadata: value(row, "metadata")?,
                attempts: row.get("attempts")?,
            })
        })
        .collect()
}

/// Notes what became of some items; an item that was judged before stays as it was. False when the run is at its end.
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
    for outcome in outcomes {
        let (position, error, state) = match outcome {
            ItemOutcome::Judged(result) => {
                judged.push(result);
                continue;
            }
            ItemOutcome::Retry { position, error } => (position, error, "pending"),
            ItemOutcome::Error { position, error } => (position, error, "error"),
        };
        tx.exec(
            "UPDATE eval_run_items SET state = $3, attempts = attempts + 1, error = $4 \
             WHERE run_id = $1 AND position = $2 AND state = 'pending'",
            args![run.id, position, state, error],
        )
        .await?;
    }
    let sql = format!(
        "UPDATE eval_run_items SET state = 'judged', error = NULL, input = NULL, expected = NULL, metadata = NULL \
         WHERE run_id = $1 AND {}",
        in_ids(tx.dialect(), "position", 2)
    );
    tx.exec(AssertSqlSafe(sql), args![run.id, id_list(judged.iter().map(|result| result.position))]).await?;
    insert_results(tx, run.org_id, run.eval_id, Some(run.id), judged, now).await?;
    count(tx, run.id).await?;
    Ok(true)
}

async fn count(tx: &mut Tx, run: i64) -> Result<(), StoreError> {
    tx.exec(
        "UPDATE eval_runs SET \
         passed = (SELECT COUNT(*) FROM eval_results WHERE run_id = $1 AND passed = 1), \
         failed = (SELECT COUNT(*) FROM eval_results WHERE run_id = $1 AND passed = 0), \
         errors = (SELECT COUNT(*) FROM eval_run_items WHERE run_id = $1 AND state = 'error') WHERE id = $1",
        args![run],
    )
    .await
    .map(|_| ())
}

/// Ends a run that is not at its end yet.
pub async fn finish_run(
    db: &Db,
    org: OrgId,
    id: i64,
    status: RunStatus,
    error: Option<&str>,
    now: Timestamp,
) -> Result<(), StoreError> {
    db.exec(
        "UPDATE eval_runs SET status = $3, error = $4, finished_at = $5 \
         WHERE org_id = $1 AND id = $2 AND finished_at IS NULL",
        args![org, id, status.as_str(), error, now],
    )
    .await
    .map(|_| ())
}

/// Ends a run before its time. False when it was at its end already.
pub async fn cancel_run(tx: &mut Tx, org: OrgId, id: i64, now: Timestamp) -> Result<bool, StoreError> {
    let cancelled = tx
        .exec(
            "UPDATE eval_runs SET status = 'cancelled', finished_at = $3 \
             WHERE org_id = $1 AND id = $2 AND finished_at IS NULL",
            args![org, id, now],
        )
        .await?;
    Ok(cancelled == 1)
}

/// The items that were given up, and why.
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

fn read(row: &Row) -> Result<Run, StoreError> {
    let status: String = row.get("status")?;
    let target: Option<String> = row.get("target")?;
    Ok(Run {
        id: row.get("id")?,
        org_id: row.get("org_id")?,
        eval_id: row.get("eval_id")?,
        dataset_id: row.get("dataset_id")?,
        dataset_version: row.get("dataset_version")?,
        begun_by: row.get("begun_by")?,
        status: RunStatus::parse(&status)
            .ok_or_else(|| StoreError::Other(format!("column status holds the unknown value {status:?}")))?,
        total: row.get("total")?,
        passed: row.get("passed")?,
        failed: row.get("failed")?,
        errors: row.get("errors")?,
        error: row.get("error")?,
        definition: row.json("definition")?,
        target: target.and_then(|target| serde_json::from_str(&target).ok()),
        created_at: row.get("created_at")?,
        started_at: row.get("started_at")?,
        finished_at: row.get("finished_at")?,
    })
}
