//! Exports of log rows and checkpoints. They are in the logs part of the store, so that rows and the queue of a destination are written
//! in one transaction. Callers encrypt the secrets before they pass them in.

mod enqueue;
mod queue;

use gateway_core::exports::{ActivePeriods, ExportKind, ExportSource, MAX_BATCH_ROWS};
use gateway_core::ids::{ExportId, OrgId};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::db::Dialect;
use crate::page::{Page, Paged};
use crate::row::{Row, args};
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

pub(crate) use enqueue::enqueue;
pub use enqueue::{
    COPY_JOB, enqueue_checkpoints, enqueue_verdicts, has_checkpoint_export, has_verdict_export,
};
pub use queue::{
    BatchResult, ExportClaim, FailedBatch, QueuedContent, QueuedItem, claim, discard_queue, list_due, queued,
    record_batch, record_failure, release, release_all, renew, sweep, sweep_expired,
};

table! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Export in "exports" {
        pub id: ExportId [key],
        pub org_id: OrgId [key],
        pub name: String,
        pub kind: ExportKind,
        pub endpoint: String,
        /// Encrypted JSON object.
        pub headers: Option<String>,
        /// Encrypted.
        pub secret: Option<String>,
        pub sources: Vec<ExportSource> [via sources],
        /// Only rows that match it are sent; empty for all.
        pub query: String,
        pub enabled: bool,
        pub periods: ActivePeriods [json],
        pub revision: i64,
        pub created_at: Timestamp [once],
        pub updated_at: Timestamp,
    }
}

/// Counters and the last result of an export's deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportStatus {
    pub last_success_at: Option<Timestamp>,
    pub last_error: Option<String>,
    pub delivered: i64,
    pub failed: i64,
    pub dropped: i64,
    /// Rows that did not match the query, and verdicts on such rows.
    pub skipped: i64,
    /// The number of queued items, counted up to `MAX_LAG`.
    pub lag: i64,
}

/// Counting a longer queue would take too long.
const MAX_LAG: i64 = 100_000;

/// Hashed with the organization's id to the key of its advisory lock.
const LOCK_SEED: i64 = 0x6761_7465_7761_790b;

/// Inserts an export unless the organization has `max` already. Concurrent inserts of an organization wait for each
/// other, so that they cannot exceed the limit together.
pub async fn insert(tx: &mut Tx, export: &Export, max: i64) -> Result<bool, StoreError> {
    let counters =
        ["delivered", "failed", "dropped", "skipped", "tries", "retry_at"].map(|name| (name, 0_i64.into()));
    let mut extra = Vec::from(counters);
    extra.push(("batch", MAX_BATCH_ROWS.into()));
    // SQLite has one writer. The organization's own row may be in another database.
    if tx.dialect() == Dialect::Postgres {
        let key = args![export.org_id.to_string(), LOCK_SEED];
        tx.exec("SELECT pg_advisory_xact_lock(hashtextextended($1, $2))", key).await?;
    }
    if count(tx, export.org_id).await? >= max {
        return Ok(false);
    }
    table::insert(tx, export, extra).await?;
    Ok(true)
}

/// Updates an export. The destination may have changed, so the next attempt is due at once.
pub async fn update(tx: &mut Tx, export: &Export) -> Result<(), StoreError> {
    let reset = "tries = 0, retry_at = 0, lease = NULL, leased_until = NULL";
    table::update(tx, export, vec![], reset).await.map(|_| ())
}

pub async fn find(logs: &Db, org: OrgId, id: ExportId) -> Result<Option<(Export, ExportStatus)>, StoreError> {
    let sql = select_with_status("e.org_id = $1 AND e.id = $2");
    logs.opt(sql, args![org, id]).await?.as_ref().map(read_with_status).transpose()
}

/// Locks the export until the transaction ends, so that concurrent changes do not overwrite each other.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, id: ExportId) -> Result<Option<Export>, StoreError> {
    let row = tx.opt(Export::select_for_update("org_id = $1 AND id = $2"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

/// Newest first.
pub async fn list(logs: &Db, org: OrgId, page: &Page) -> Result<Paged<(Export, ExportStatus)>, StoreError> {
    let sql = select_with_status("e.org_id = $1 AND ($2 IS NULL OR e.id < $2) ORDER BY e.id DESC LIMIT $3");
    let rows = logs.all(sql, args![org, page.before.clone(), page.fetch()]).await?;
    let found = rows.iter().map(read_with_status).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(found, |(export, _)| export.id.to_string()))
}

async fn count(tx: &mut Tx, org: OrgId) -> Result<i64, StoreError> {
    let row = tx.opt("SELECT COUNT(*) AS n FROM exports WHERE org_id = $1", args![org]).await?;
    row.map_or(Ok(0), |row| row.get("n"))
}

/// Deletes the export and its queue.
pub async fn delete(tx: &mut Tx, org: OrgId, id: ExportId) -> Result<bool, StoreError> {
    let deleted = tx.exec("DELETE FROM exports WHERE org_id = $1 AND id = $2", args![org, id]).await?;
    if deleted == 1 {
        tx.exec("DELETE FROM export_queue WHERE export_id = $1", args![id]).await?;
    }
    Ok(deleted == 1)
}

/// Deletes the exports of a deleted organization.
pub async fn delete_by_org(tx: &mut Tx, org: OrgId) -> Result<(), StoreError> {
    tx.exec(
        "DELETE FROM export_queue WHERE export_id IN (SELECT id FROM exports WHERE org_id = $1)",
        args![org],
    )
    .await?;
    tx.exec("DELETE FROM exports WHERE org_id = $1", args![org]).await.map(|_| ())
}

/// The revision of an enabled export; none when it was deleted or disabled.
pub async fn revision(logs: &Db, id: ExportId) -> Result<Option<i64>, StoreError> {
    let row = logs.opt("SELECT revision FROM exports WHERE id = $1 AND enabled = 1", args![id]).await?;
    row.map(|row| row.get("revision")).transpose()
}

/// The sources of an export are stored as a comma-separated list.
mod sources {
    use gateway_core::exports::ExportSource;

    use crate::StoreError;
    use crate::row::{Arg, Row};

    pub(super) fn to_arg(sources: &[ExportSource]) -> Arg {
        sources.iter().map(|source| source.as_str()).collect::<Vec<_>>().join(",").into()
    }

    pub(super) fn from_row(row: &Row, column: &'static str) -> Result<Vec<ExportSource>, StoreError> {
        let text: String = row.get(column)?;
        Ok(text.split(',').filter_map(ExportSource::parse).collect())
    }
}

fn select_with_status(condition: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!(
        "SELECT {}, e.last_success_at, e.last_error, e.delivered, e.failed, e.dropped, e.skipped, \
         (SELECT COUNT(*) FROM (SELECT 1 FROM export_queue q WHERE q.export_id = e.id LIMIT {MAX_LAG}) waiting) AS lag \
         FROM exports e WHERE {condition}",
        Export::columns("e.")
    ))
}

fn read_with_status(row: &Row) -> Result<(Export, ExportStatus), StoreError> {
    let status = ExportStatus {
        last_success_at: row.get("last_success_at")?,
        last_error: row.get("last_error")?,
        delivered: row.get("delivered")?,
        failed: row.get("failed")?,
        dropped: row.get("dropped")?,
        skipped: row.get("skipped")?,
        lag: row.get("lag")?,
    };
    Ok((Export::from_row(row)?, status))
}
