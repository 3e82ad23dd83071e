//! What destinations are owed, rows and verdicts on them: written with the rows or after the verdicts, taken in batches by
//! one node at a time, removed once delivered.

use std::collections::HashMap;
use std::sync::LazyLock;

use gateway_core::exports::ActivePeriods;
use gateway_core::ids::{ExportId, OrgId};
use gateway_core::logs::{LogRow, LogSource};
use gateway_core::otlp::encode::EvaluationResult;
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use super::{Export, read, read_sources};
use crate::logs::bulk::{Bulk, id_list, in_ids};
use crate::row::{args, json};
use crate::{Db, StoreError, Tx};

const SLICE: i64 = 1_000;

static QUEUE: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::new("INSERT INTO export_queue (export_id, log_id)", "(?,?)", ""));

/// Notes which exports are owed which of the rows that have just been stored.
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
        let export = (row.get("id")?, read_sources(row)?, row.json("periods")?);
        exports.entry(row.get("org_id")?).or_default().push(export);
    }
    let mut owed = Vec::new();
    for row in rows {
        for (export, sources, periods) in exports.get(&row.org_id).into_iter().flatten() {
            if sources.contains(&row.source) && periods.covers(row) {
                owed.push(args![*export, row.id]);
            }
        }
    }
    QUEUE.run(tx, owed.into_iter()).await
}

static VERDICTS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO export_queue (export_id, log_id, verdict, content)",
        "(?,?,?,?)",
        "ON CONFLICT DO NOTHING",
    )
});

/// Is there an export that verdicts which are made now go to?
pub async fn has_verdict_export(logs: &Db, org: OrgId) -> Result<bool, StoreError> {
    let sql = "SELECT 1 AS one FROM exports WHERE org_id = $1 AND kind = 'otlp' AND enabled = 1 LIMIT 1";
    Ok(logs.opt(sql, args![org]).await?.is_some())
}

/// Notes which exports are owed which verdicts, each with its row and the row's source. What is noted already stays.
pub async fn enqueue_verdicts(
    logs: &Db,
    org: OrgId,
    verdicts: &[(i64, LogSource, EvaluationResult)],
) -> Result<(), StoreError> {
    let mut tx = logs.begin().await?;
    let sql = "SELECT id, sources, periods FROM exports WHERE org_id = $1 AND kind = 'otlp'";
    let mut owed = Vec::new();
    for row in &tx.all(sql, args![org]).await? {
        let (export, sources): (ExportId, _) = (row.get("id")?, read_sources(row)?);
        let periods: ActivePeriods = row.json("periods")?;
        for (log_id, source, verdict) in verdicts {
            if sources.contains(source) && periods.covers_time(verdict.at) {
                owed.push(args![export, *log_id, &verdict.id, json(verdict)]);
            }
        }
    }
    VERDICTS.run(&mut tx, owed.into_iter()).await?;
    tx.commit().await
}

/// Enabled exports that have something to deliver now and are no other node's, each with its organization.
pub async fn list_due(logs: &Db, lease: &str, now: Timestamp) -> Result<Vec<(OrgId, ExportId)>, StoreError> {
    let rows = logs
        .all(
            "SELECT e.org_id, e.id FROM exports e WHERE e.enabled = 1 AND e.retry_at <= $2 \
             AND (e.leased_until IS NULL OR e.leased_until <= $2 OR e.lease = $1) \
             AND EXISTS (SELECT 1 FROM export_queue q WHERE q.export_id = e.id) ORDER BY e.retry_at",
            args![lease, now],
        )
        .await?;
    rows.iter().map(|row| Ok((row.get("org_id")?, row.get("id")?))).collect()
}

/// An export that is this node's to deliver, as long as the lease lasts.
#[derive(Debug, Clone)]
pub struct ExportClaim {
    pub export: Export,
    /// Failures in a row so far.
    pub tries: i64,
    /// How many rows to send at once.
    pub batch: i64,
}

/// Takes an export for the holder of `lease`; None when it is another's, not due, switched off or gone.
pub async fn claim(
    logs: &Db,
    id: ExportId,
    lease: &str,
    now: Timestamp,
    until: Timestamp,
) -> Result<Option<ExportClaim>, StoreError> {
    let mut tx = logs.begin().await?;
    let row = tx
        .opt(
            "UPDATE exports SET lease = $2, leased_until = $4 WHERE id = $1 AND enabled = 1 AND retry_at <= $3 \
             AND (leased_until IS NULL OR leased_until <= $3 OR lease = $2) \
             RETURNING id, org_id, name, kind, endpoint, headers, secret, sources, enabled, periods, revision, \
             created_at, updated_at, tries, batch",
            args![id, lease, now, until],
        )
        .await?;
    tx.commit().await?;
    row.map(|row| Ok(ExportClaim { export: read(&row)?, tries: row.get("tries")?, batch: row.get("batch")? }))
        .transpose()
}

/// What a destination is owed.
#[derive(Debug, Clone)]
pub struct QueuedItem {
    pub log_id: i64,
    /// None: the row itself; else a verdict on it.
    pub verdict: Option<EvaluationResult>,
    /// The bytes that the row's bodies take.
    pub size: i64,
}

/// What waits for an export, in order of the rows, up to a number.
pub async fn queued(logs: &Db, id: ExportId, most: i64) -> Result<Vec<QueuedItem>, StoreError> {
    let rows = logs
        .all(
            "SELECT q.log_id, q.content, (SELECT CAST(LENGTH(b.request) + LENGTH(b.response) AS BIGINT) FROM log_bodies b \
             WHERE b.id = q.log_id) AS size FROM export_queue q WHERE q.export_id = $1 \
             ORDER BY q.log_id, q.verdict LIMIT $2",
            args![id, most],
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

/// What has become of a batch.
#[derive(Debug, Clone, Default)]
pub struct BatchResult<'a> {
    /// Off the queue, delivered or not.
    pub done: &'a [QueuedItem],
    pub delivered: i64,
    pub dropped: i64,
    /// What the destination had to say against it.
    pub error: Option<&'a str>,
    pub next_batch: i64,
}

/// Takes things off the queue and notes how it went. An export that has gone meanwhile is no error.
pub async fn record_batch(
    logs: &Db,
    id: ExportId,
    progress: &BatchResult<'_>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let BatchResult { done, delivered, dropped, error, next_batch } = progress;
    let mut tx = logs.begin().await?;
    let rows = id_list(done.iter().filter(|owed| owed.verdict.is_none()).map(|owed| owed.log_id));
    let sql = format!(
        "DELETE FROM export_queue WHERE export_id = $1 AND {} AND verdict = ''",
        in_ids(tx.dialect(), "log_id", 2)
    );
    tx.exec(AssertSqlSafe(sql), args![id, rows]).await?;
    let (judged, verdicts): (Vec<i64>, Vec<&str>) =
        done.iter().filter_map(|owed| Some((owed.log_id, owed.verdict.as_ref()?.id.as_str()))).unzip();
    if !verdicts.is_empty() {
        let sql = format!(
            "DELETE FROM export_queue WHERE export_id = $1 AND {} AND {}",
            in_ids(tx.dialect(), "log_id", 2),
            tx.dialect().in_texts("verdict", 3)
        );
        tx.exec(AssertSqlSafe(sql), args![id, id_list(judged), json(&verdicts)]).await?;
    }
    tx.exec(
        "UPDATE exports SET delivered = delivered + $2, dropped = dropped + $3, last_error = $4, tries = 0, retry_at = 0, \
         batch = $5, last_success_at = CASE WHEN $2 > 0 THEN $6 ELSE last_success_at END WHERE id = $1",
        args![id, *delivered, *dropped, *error, *next_batch, now],
    )
    .await?;
    tx.commit().await
}

/// Notes a failure and when to try again. What waits goes on waiting.
pub async fn record_failure(
    logs: &Db,
    id: ExportId,
    lease: &str,
    error: &str,
    retry_at: Timestamp,
    next_batch: i64,
) -> Result<(), StoreError> {
    logs.exec(
        "UPDATE exports SET failed = failed + 1, last_error = $3, tries = tries + 1, retry_at = $4, batch = $5 \
         WHERE id = $1 AND lease = $2",
        args![id, lease, error, retry_at, next_batch],
    )
    .await
    .map(|_| ())
}

/// Lets others deliver the export.
pub async fn release(logs: &Db, id: ExportId, lease: &str) -> Result<(), StoreError> {
    let sql = "UPDATE exports SET leased_until = NULL WHERE id = $1 AND lease = $2";
    logs.exec(sql, args![id, lease]).await.map(|_| ())
}

/// Forgets what waits for an export whose organization may not export any more.
pub async fn discard_queue(logs: &Db, id: ExportId, why: &str) -> Result<(), StoreError> {
    let mut tx = logs.begin().await?;
    tx.exec("DELETE FROM export_queue WHERE export_id = $1", args![id]).await?;
    tx.exec("UPDATE exports SET last_error = $2 WHERE id = $1", args![id, why]).await?;
    tx.commit().await
}

/// Ends every lease. Only for a store that no other node uses: what its last process held is free again.
pub async fn release_all(logs: &Db) -> Result<(), StoreError> {
    let sql = "UPDATE exports SET lease = NULL, leased_until = NULL WHERE leased_until IS NOT NULL";
    logs.exec(sql, Vec::new()).await.map(|_| ())
}

/// Removes what is owed to exports that were deleted while rows for them were being written.
pub async fn sweep(logs: &Db) -> Result<u64, StoreError> {
    logs.exec(
        "DELETE FROM export_queue WHERE (export_id, log_id) IN (SELECT q.export_id, q.log_id FROM export_queue q \
         WHERE NOT EXISTS (SELECT 1 FROM exports e WHERE e.id = q.export_id) LIMIT $1)",
        args![SLICE],
    )
    .await
}
