//! The queue of log rows and verdicts that exports still have to deliver. Rows are queued in the transaction that
//! stores them, verdicts by a job. One node at a time delivers an export, in batches, and deletes what was delivered.

use std::collections::HashMap;
use std::sync::LazyLock;

use gateway_core::exports::ActivePeriods;
use gateway_core::ids::{ExportId, OrgId};
use gateway_core::logs::{LogRow, LogSource};
use gateway_core::otlp::encode::EvaluationResult;
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use super::{Export, sources};
use crate::leases::{Claim, Lease, LeaseTable, Release};
use crate::logs::bulk::{Bulk, id_list, in_ids};
use crate::row::{Row, args, json};
use crate::table::Table as _;
use crate::{Db, StoreError, Tx};

/// Rows that a sweep deletes in one transaction.
const SWEEP_ROWS: i64 = 1_000;

const LEASES: LeaseTable = LeaseTable { table: "exports", owner: "lease", until: "leased_until" };

static QUEUE: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::new("INSERT INTO export_queue (export_id, log_id)", "(?,?)", ""));

/// Queues new rows for every export that covers them.
pub(crate) async fn enqueue(tx: &mut Tx, rows: &[&LogRow]) -> Result<(), StoreError> {
    let mut orgs: Vec<String> = rows.iter().map(|row| row.org_id.to_string()).collect();
    orgs.sort_unstable();
    orgs.dedup();
    let sql = format!(
        "SELECT id, org_id, sources, periods FROM exports WHERE {}",
        tx.dialect().in_texts("org_id", 1)
    );
    let found = tx.all(AssertSqlSafe(sql), args![json(&orgs)]).await?;
    if found.is_empty() {
        return Ok(());
    }
    let mut exports: HashMap<OrgId, Vec<(ExportId, Vec<LogSource>, ActivePeriods)>> = HashMap::new();
    for row in &found {
        let export = (row.get("id")?, sources::from_row(row, "sources")?, row.json("periods")?);
        exports.entry(row.get("org_id")?).or_default().push(export);
    }
    let mut items = Vec::new();
    for row in rows {
        for (export, sources, periods) in exports.get(&row.org_id).into_iter().flatten() {
            if sources.contains(&row.source) && periods.covers(row) {
                items.push(args![*export, row.id]);
            }
        }
    }
    QUEUE.run(tx, items.into_iter()).await
}

static VERDICTS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO export_queue (export_id, log_id, verdict, content)",
        "(?,?,?,?)",
        "ON CONFLICT DO NOTHING",
    )
});

/// Whether the organization has an enabled export that receives verdicts.
pub async fn has_verdict_export(logs: &Db, org: OrgId) -> Result<bool, StoreError> {
    let sql = "SELECT 1 AS one FROM exports WHERE org_id = $1 AND kind = 'otlp' AND enabled = 1 LIMIT 1";
    Ok(logs.opt(sql, args![org]).await?.is_some())
}

/// Queues verdicts for every export that covers them. Each comes with the id and the source of its row. Verdicts that
/// are already queued are skipped.
pub async fn enqueue_verdicts(
    logs: &Db,
    org: OrgId,
    verdicts: &[(i64, LogSource, EvaluationResult)],
) -> Result<(), StoreError> {
    let mut tx = logs.begin().await?;
    let sql = "SELECT id, sources, periods FROM exports WHERE org_id = $1 AND kind = 'otlp'";
    let mut items = Vec::new();
    for row in &tx.all(sql, args![org]).await? {
        let (export, sources): (ExportId, _) = (row.get("id")?, sources::from_row(row, "sources")?);
        let periods: ActivePeriods = row.json("periods")?;
        for (log_id, source, verdict) in verdicts {
            if sources.contains(source) && periods.covers_time(verdict.at) {
                items.push(args![export, *log_id, &verdict.id, json(verdict)]);
            }
        }
    }
    VERDICTS.run(&mut tx, items.into_iter()).await?;
    tx.commit().await
}

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

/// A row or verdict that waits for delivery.
#[derive(Debug, Clone)]
pub struct QueuedItem {
    pub log_id: i64,
    /// The verdict on the row; none for the row itself.
    pub verdict: Option<EvaluationResult>,
    /// The size of the row's bodies in bytes.
    pub size: i64,
}

/// The first `limit` queued items of an export, ordered by row.
pub async fn queued(logs: &Db, id: ExportId, limit: i64) -> Result<Vec<QueuedItem>, StoreError> {
    let rows = logs
        .all(
            "SELECT q.log_id, q.content, (SELECT CAST(LENGTH(b.request) + LENGTH(b.response) AS BIGINT) FROM log_bodies b \
             WHERE b.id = q.log_id) AS size FROM export_queue q WHERE q.export_id = $1 \
             ORDER BY q.log_id, q.verdict LIMIT $2",
            args![id, limit],
        )
        .await?;
    rows.iter()
        .map(|row| {
            let content: Option<String> = row.get("content")?;
            let verdict = content.map(|text| serde_json::from_str(&text)).transpose();
            let verdict = verdict.map_err(|error| StoreError::Other(error.to_string()))?;
            let size = if verdict.is_none() { row.get::<Option<i64>>("size")?.unwrap_or(0) } else { 0 };
            Ok(QueuedItem { log_id: row.get("log_id")?, verdict, size })
        })
        .collect()
}

/// The result of a batch that was processed.
#[derive(Debug, Clone, Default)]
pub struct BatchResult<'a> {
    /// Removed from the queue, delivered or dropped.
    pub done: &'a [QueuedItem],
    pub delivered: i64,
    pub dropped: i64,
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
    let BatchResult { done, delivered, dropped, error, next_batch } = progress;
    let mut tx = logs.begin().await?;
    let counted = tx
        .exec(
            "UPDATE exports SET delivered = delivered + $3, dropped = dropped + $4, last_error = $5, tries = 0, \
             retry_at = 0, batch = $6, last_success_at = CASE WHEN $3 > 0 THEN $7 ELSE last_success_at END \
             WHERE id = $1 AND lease = $2",
            args![id, owner, *delivered, *dropped, *error, *next_batch, now],
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
    let rows = id_list(done.iter().filter(|item| item.verdict.is_none()).map(|item| item.log_id));
    let sql = format!("DELETE FROM export_queue WHERE {batch} AND verdict = ''");
    tx.exec(AssertSqlSafe(sql), args![id, first, last, rows]).await?;
    let (judged, verdicts): (Vec<i64>, Vec<&str>) =
        done.iter().filter_map(|item| Some((item.log_id, item.verdict.as_ref()?.id.as_str()))).unzip();
    if !verdicts.is_empty() {
        let sql =
            format!("DELETE FROM export_queue WHERE {batch} AND {}", tx.dialect().in_texts("verdict", 5));
        tx.exec(AssertSqlSafe(sql), args![id, first, last, id_list(judged), json(&verdicts)]).await?;
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
