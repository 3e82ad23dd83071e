//! How much work waits in the queues of the database, and how large the log database is, for the operator's metrics.

use gateway_core::logs::log_id_time;
use gateway_core::time::Timestamp;

use crate::db::Dialect;
use crate::row::args;
use crate::{Db, StoreError};

/// Items are counted up to this number, because counting a longer queue would take too long.
pub const MAX_COUNTED: i64 = 10_000;

/// The items of a queue that are due and that no node has taken yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// At most `MAX_COUNTED`.
    pub items: i64,
    /// Since when the oldest of them waits.
    pub oldest: Option<Timestamp>,
}

/// Background jobs.
pub async fn jobs(db: &Db, now: Timestamp) -> Result<QueueDepth, StoreError> {
    let sql = "SELECT COUNT(*) AS items, MIN(due_at) AS oldest FROM \
               (SELECT due_at FROM jobs WHERE due_at <= $1 LIMIT $2) due";
    read(db, sql, now).await
}

/// Webhook deliveries, without those of webhooks that are switched off.
pub async fn deliveries(db: &Db, now: Timestamp) -> Result<QueueDepth, StoreError> {
    let sql = "SELECT COUNT(*) AS items, MIN(next_attempt_at) AS oldest FROM \
               (SELECT d.next_attempt_at FROM deliveries d JOIN webhooks w ON w.id = d.webhook_id \
               WHERE d.status = 'pending' AND d.next_attempt_at <= $1 \
               AND (d.leased_until IS NULL OR d.leased_until <= $1) AND (w.active = 1 OR d.forced = 1) \
               LIMIT $2) due";
    read(db, sql, now).await
}

/// Log rows and verdicts for exports, without those of exports that are disabled or wait for a retry.
pub async fn exports(logs: &Db, now: Timestamp) -> Result<QueueDepth, StoreError> {
    let sql = "SELECT COUNT(*) AS items, MIN(log_id) AS oldest FROM \
               (SELECT q.log_id FROM export_queue q JOIN exports e ON e.id = q.export_id \
               WHERE e.enabled = 1 AND e.retry_at <= $1 LIMIT $2) due";
    let Some(row) = logs.opt(sql, args![now, MAX_COUNTED]).await? else { return Ok(QueueDepth::default()) };
    let oldest: Option<i64> = row.get("oldest")?;
    Ok(QueueDepth { items: row.get("items")?, oldest: oldest.map(log_id_time) })
}

/// Bytes of the log database: the file on SQLite, without its write-ahead log; the tables of log rows with their indexes
/// on PostgreSQL.
pub async fn log_bytes(logs: &Db) -> Result<i64, StoreError> {
    let sql = match logs.dialect() {
        Dialect::Sqlite => {
            "SELECT page_count * page_size AS bytes FROM pragma_page_count(), pragma_page_size()"
        }
        Dialect::Postgres => {
            "SELECT COALESCE(SUM(pg_total_relation_size(c.oid)), 0)::BIGINT AS bytes FROM pg_class c \
             JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = current_schema() AND c.relkind = 'r' \
             AND (c.relname LIKE 'log%' OR c.relname LIKE 'usage%' OR c.relname LIKE 'export_queue%')"
        }
    };
    logs.opt(sql, Vec::new()).await?.map_or(Ok(0), |row| row.get("bytes"))
}

async fn read(db: &Db, sql: &'static str, now: Timestamp) -> Result<QueueDepth, StoreError> {
    let row = db.opt(sql, args![now, MAX_COUNTED]).await?;
    row.map_or(Ok(QueueDepth::default()), |row| {
        Ok(QueueDepth { items: row.get("items")?, oldest: row.get("oldest")? })
    })
}
