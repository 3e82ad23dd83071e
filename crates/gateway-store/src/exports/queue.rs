//! The queue of what exports still have to deliver (`enqueue` adds to it). One node at a time delivers an export, in
//! batches, and deletes what was delivered.

use gateway_core::audit::checkpoint::SignedCheckpoint;
use gateway_core::ids::{ExportId, OrgId};
use gateway_core::logs::first_log_id;
use gateway_core::otlp::encode::EvaluationResult;
use gateway_core::time::{DAY, Timestamp};
use sqlx::AssertSqlSafe;

use super::Export;
use super::enqueue::CHECKPOINT;
use crate::leases::{Claim, Lease, LeaseTable, Release};
use crate::logs::bodies::SIZE;
use crate::logs::bulk::{id_list, in_ids};
use crate::row::{Row, args, json};
use crate::table::Table as _;
use crate::{Db, StoreError, Tx};

/// Rows that a sweep deletes in one transaction.
const SWEEP_ROWS: i64 = 1_000;
/// Transactions of one sweep of what has waited for too long.
const MAX_EXPIRY_TRANSACTIONS: usize = 100;
/// What the status of an export says about it.
const EXPIRED: &str = "rows were dropped: they waited for longer than the organization keeps log rows";

const LEASES: LeaseTable = LeaseTable { table: "exports", owner: "lease", until: "leased_until" };

/// Enabled exports that are due, have queued items and are free or leased to `owner`, each with its organization.
pub async fn list_due(logs: &Db, owner: &str, now: Timestamp) -> Result<Vec<(OrgId, ExportId)>, StoreError> {
    let sql = format!(
        "SELECT e.org_id, e.id FROM exports e WHERE e.enabled = 1 AND e.retry_at <= $2 AND ({} OR e.lease = $1) \
         AND EXISTS (SELECT 1 FROM export_queue q WHERE q.export_id = e.id) ORDER BY e.retry_at",
        LEASES.is_free("e.", "$2")
    );
    let rows = logs.all(AssertSqlSafe(sql), args![owner, now]).await?;
    rows.iter().map(|row| Ok((row.get("org_id")?, row.get("id")?))).collect()
}

/// An export whose lease the caller holds.
#[derive(Debug, Clone)]
pub struct ExportClaim {
    pub export: Export,
    /// Consecutive failures so far.
    pub tries: i64,
    /// The number of rows to send in one request.
    pub batch: i64,
}

/// Claims an export, or renews the caller's own claim. None when another node holds it, or it is not due, disabled or
/// deleted.
pub async fn claim(logs: &Db, id: ExportId, lease: &Lease<'_>) -> Result<Option<ExportClaim>, StoreError> {
    let mut tx = logs.begin().await?;
    let condition = format!(
        "id = $4 AND enabled = 1 AND retry_at <= $3 AND ({} OR lease = $1)",
        LEASES.is_free("", "$3")
    );
    let returning = format!("{}, tries, batch", Export::columns(""));
    let claim = Claim { condition: &condition, also_set: "", returning: &returning };
    let rows = LEASES.claim(&mut tx, lease, claim, args![id]).await?;
    tx.commit().await?;
    let read = |row: &Row| {
        Ok(ExportClaim { export: Export::from_row(row)?, tries: row.get("tries")?, batch: row.get("batch")? })
    };
    rows.first().map(read).transpose()
}

/// A row, verdict or checkpoint that waits for delivery.
#[derive(Debug, Clone)]
pub struct QueuedItem {
    /// The id of the row; for a checkpoint, derived from its time.
    pub log_id: i64,
    /// Distinguishes items with the same id; empty for a row.
    key: String,
    pub content: QueuedContent,
    /// The size of the bodies of the row, or of the row of the verdict, in bytes.
    pub size: i64,
}

#[derive(Debug, Clone)]
pub enum QueuedContent {
    /// It is in the log.
    Row,
    /// A verdict on the row.
    Verdict(EvaluationResult),
    Checkpoint(SignedCheckpoint),
}

impl QueuedItem {
    fn from_row(row: &Row) -> Result<Self, StoreError> {
        let (key, content): (String, Option<String>) = (row.get("verdict")?, row.get("content")?);
        let parsed = match content {
            None => Ok(QueuedContent::Row),
            Some(text) if key.starts_with(CHECKPOINT) => {
                serde_json::from_str(&text).map(QueuedContent::Checkpoint)
            }
            Some(text) => serde_json::from_str(&text).map(QueuedContent::Verdict),
        };
        let content = parsed.map_err(|error| StoreError::Other(error.to_string()))?;
        let size = match content {
            QueuedContent::Row | QueuedContent::Verdict(_) => row.get::<Option<i64>>("size")?.unwrap_or(0),
            QueuedContent::Checkpoint(_) => 0,
        };
        Ok(Self { log_id: row.get("log_id")?, key, content, size })
    }
}

/// The first `limit` queued items of an export, ordered by row.
pub async fn queued(logs: &Db, id: ExportId, limit: i64) -> Result<Vec<QueuedItem>, StoreError> {
    let sql = format!(
        "SELECT q.log_id, q.verdict, q.content, (SELECT {SIZE} FROM log_rows r WHERE r.id = q.log_id) AS size \
         FROM export_queue q WHERE q.export_id = $1 ORDER BY q.log_id, q.verdict LIMIT $2"
    );
    let rows = logs.all(AssertSqlSafe(sql), args![id, limit]).await?;
    rows.iter().map(QueuedItem::from_row).collect()
}

/// The result of a batch that was processed.
#[derive(Debug, Clone, Default)]
pub struct BatchResult<'a> {
    /// Removed from the queue, delivered or dropped.
    pub done: &'a [QueuedItem],
    pub delivered: i64,
    pub dropped: i64,
    /// They do not match the query of the export.
    pub skipped: i64,
    /// The error of the destination, if it rejected some items.
    pub error: Option<&'a str>,
    pub next_batch: i64,
}

/// Updates the counters and removes processed items from the queue. False without a change when the caller does not
/// hold the lease any more: then another node delivers and counts the items, or the export was changed or deleted.
pub async fn record_batch(
    logs: &Db,
    id: ExportId,
    owner: &str,
    progress: &BatchResult<'_>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let BatchResult { done, delivered, dropped, skipped, error, next_batch } = progress;
    let mut tx = logs.begin().await?;
    let counted = tx
        .exec(
            "UPDATE exports SET delivered = delivered + $3, dropped = dropped + $4, skipped = skipped + $8, \
             last_error = $5, tries = 0, retry_at = 0, batch = $6, \
             last_success_at = CASE WHEN $3 > 0 THEN $7 ELSE last_success_at END WHERE id = $1 AND lease = $2",
            args![id, owner, *delivered, *dropped, *error, *next_batch, now, *skipped],
        )
        .await?;
    if counted == 0 {
        return Ok(false);
    }
    remove(&mut tx, id, done).await?;
    tx.commit().await?;
    Ok(true)
}

/// Removes processed items from the queue. The range of the rows is a condition of its own: with the list alone
/// PostgreSQL may compare every queued row with every entry of the list, because it plans by the size that the queue had
/// at the last analysis.
async fn remove(tx: &mut Tx, id: ExportId, done: &[QueuedItem]) -> Result<(), StoreError> {
    let (Some(first), Some(last)) =
        (done.iter().map(|item| item.log_id).min(), done.iter().map(|item| item.log_id).max())
    else {
        return Ok(());
    };
    let listed = in_ids(tx.dialect(), "log_id", 4);
    let batch = format!("export_id = $1 AND log_id >= $2 AND log_id <= $3 AND {listed}");
    let rows = id_list(done.iter().filter(|item| item.key.is_empty()).map(|item| item.log_id));
    let sql = format!("DELETE FROM export_queue WHERE {batch} AND verdict = ''");
    tx.exec(AssertSqlSafe(sql), args![id, first, last, rows]).await?;
    let others = done.iter().filter(|item| !item.key.is_empty());
    let (ids, keys): (Vec<i64>, Vec<&str>) = others.map(|item| (item.log_id, item.key.as_str())).unzip();
    if !keys.is_empty() {
        let sql =
            format!("DELETE FROM export_queue WHERE {batch} AND {}", tx.dialect().in_texts("verdict", 5));
        tx.exec(AssertSqlSafe(sql), args![id, first, last, id_list(ids), json(&keys)]).await?;
    }
    Ok(())
}

/// A delivery that failed.
#[derive(Debug, Clone, Copy)]
pub struct FailedBatch<'a> {
    pub error: &'a str,
    pub retry_at: Timestamp,
    pub next_batch: i64,
}

/// Records a failure and the time of the next attempt. The queue stays as it is.
pub async fn record_failure(
    logs: &Db,
    id: ExportId,
    owner: &str,
    failed: FailedBatch<'_>,
) -> Result<(), StoreError> {
    let FailedBatch { error, retry_at, next_batch } = failed;
    logs.exec(
        "UPDATE exports SET failed = failed + 1, last_error = $3, tries = tries + 1, retry_at = $4, batch = $5 \
         WHERE id = $1 AND lease = $2",
        args![id, owner, error, retry_at, next_batch],
    )
    .await
    .map(|_| ())
}

/// Gives up the lease, so that other nodes can deliver the export.
pub async fn release(logs: &Db, id: ExportId, owner: &str) -> Result<(), StoreError> {
    let mut tx = logs.begin().await?;
    LEASES.release(&mut tx, id, owner, Release::default()).await?;
    tx.commit().await
}

/// Extends the lease. False when the caller does not hold it any more.
pub async fn renew(logs: &Db, id: ExportId, owner: &str, until: Timestamp) -> Result<bool, StoreError> {
    LEASES.renew(logs, id, owner, until).await
}

/// Empties the queue of an export whose organization lost the entitlement. Does nothing when the caller does not hold
/// the lease any more.
pub async fn discard_queue(logs: &Db, id: ExportId, owner: &str, why: &str) -> Result<(), StoreError> {
    let mut tx = logs.begin().await?;
    let sql = "UPDATE exports SET last_error = $3 WHERE id = $1 AND lease = $2";
    if tx.exec(sql, args![id, owner, why]).await? == 1 {
        tx.exec("DELETE FROM export_queue WHERE export_id = $1", args![id]).await?;
    }
    tx.commit().await
}

/// Ends every lease at start-up, when no other process works on the database.
pub async fn release_all(logs: &Db) -> Result<(), StoreError> {
    LEASES.release_all(logs, None).await
}

/// Deletes queued items of exports that were deleted while rows for them were being written.
pub async fn sweep(logs: &Db) -> Result<u64, StoreError> {
    logs.exec(
        "DELETE FROM export_queue WHERE (export_id, log_id) IN (SELECT q.export_id, q.log_id FROM export_queue q \
         WHERE NOT EXISTS (SELECT 1 FROM exports e WHERE e.id = q.export_id) LIMIT $1)",
        args![SWEEP_ROWS],
    )
    .await
}

/// Drops rows, and verdicts on them, that still wait although their log rows are past their retention: nothing is left to
/// send, and a destination that never comes back would make the queue grow for ever. `overrides` are organizations with
/// their own retention. Checkpoints of the audit log wait on. The work of one call is bounded: call it again soon when it
/// returns more than 0.
pub async fn sweep_expired(
    logs: &Db,
    now: Timestamp,
    default_days: u32,
    overrides: &[(OrgId, u32)],
) -> Result<u64, StoreError> {
    // An export that is being delivered drops such rows by itself, and would count them twice.
    let sql = format!(
        "SELECT e.id, e.org_id, (SELECT MIN(q.log_id) FROM export_queue q WHERE q.export_id = e.id \
         AND q.verdict NOT LIKE $2) AS oldest FROM exports e WHERE {}",
        LEASES.is_free("e.", "$1")
    );
    let mut transactions = 0;
    let mut dropped = 0;
    for row in &logs.all(AssertSqlSafe(sql), args![now, format!("{CHECKPOINT}%")]).await? {
        let (id, org): (ExportId, OrgId) = (row.get("id")?, row.get("org_id")?);
        let days = overrides.iter().find(|(own, _)| *own == org).map_or(default_days, |(_, days)| *days);
        // PostgreSQL drops rows in whole days, up to a day later.
        let before = first_log_id(now.plus(-(i64::from(days) + 1) * DAY));
        if row.get::<Option<i64>>("oldest")?.is_none_or(|oldest| oldest >= before) {
            continue;
        }
        while transactions < MAX_EXPIRY_TRANSACTIONS {
            transactions += 1;
            let removed = drop_before(logs, id, before, now).await?;
            dropped += removed;
            if removed == 0 {
                break;
            }
        }
    }
    Ok(dropped)
}

/// Drops some of the rows and verdicts before a row, unless the export is being delivered. Returns their number.
async fn drop_before(logs: &Db, id: ExportId, before: i64, now: Timestamp) -> Result<u64, StoreError> {
    let mut tx = logs.begin().await?;
    // First, as every transaction that removes from the queue: it locks the export.
    let sql = format!("UPDATE exports SET last_error = $2 WHERE id = $1 AND {}", LEASES.is_free("", "$3"));
    if tx.exec(AssertSqlSafe(sql), args![id, EXPIRED, now]).await? == 0 {
        return Ok(0);
    }
    let removed = tx
        .exec(
            "DELETE FROM export_queue WHERE (export_id, log_id, verdict) IN \
             (SELECT q.export_id, q.log_id, q.verdict FROM export_queue q WHERE q.export_id = $1 AND q.log_id < $2 \
              AND q.verdict NOT LIKE $3 ORDER BY q.log_id LIMIT $4)",
            args![id, before, format!("{CHECKPOINT}%"), SWEEP_ROWS],
        )
        .await?;
    if removed == 0 {
        return Ok(0);
    }
    let sql = "UPDATE exports SET dropped = dropped + $2 WHERE id = $1";
    tx.exec(sql, args![id, i64::try_from(removed).unwrap_or(i64::MAX)]).await?;
    tx.commit().await?;
    Ok(removed)
}
