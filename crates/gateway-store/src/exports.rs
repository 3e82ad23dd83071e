//! Exports of log rows. They live in the logs part of the store: what a destination is owed is written in the transaction
//! of the rows. Secrets arrive here sealed and leave sealed.

mod queue;

use gateway_core::exports::{ActivePeriods, ExportKind};
use gateway_core::ids::{ExportId, OrgId};
use gateway_core::logs::LogSource;
use gateway_core::time::Timestamp;

use crate::page::{Page, Paged};
use crate::row::{Row, args, json};
use crate::{Db, StoreError, Tx};

pub(crate) use queue::enqueue;
pub use queue::{
    BatchResult, ExportClaim, QueuedItem, claim, discard_queue, enqueue_verdicts, has_verdict_export,
    list_due, queued, record_batch, record_failure, release, release_all, sweep,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    pub id: ExportId,
    pub org_id: OrgId,
    pub name: String,
    pub kind: ExportKind,
    pub endpoint: String,
    /// Sealed JSON object.
    pub headers: Option<String>,
    /// Sealed.
    pub secret: Option<String>,
    pub sources: Vec<LogSource>,
    pub enabled: bool,
    pub periods: ActivePeriods,
    pub revision: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// How deliveries go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportStatus {
    pub last_success_at: Option<Timestamp>,
    pub last_error: Option<String>,
    pub delivered: i64,
    pub failed: i64,
    pub dropped: i64,
    /// What waits, counted up to a bound.
    pub lag: i64,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT e.id, e.org_id, e.name, e.kind, e.endpoint, e.headers, e.secret, e.sources, e.enabled, e.periods, ",
            "e.revision, e.created_at, e.updated_at, e.last_success_at, e.last_error, e.delivered, e.failed, ",
            "e.dropped, e.tries, e.batch, (SELECT COUNT(*) FROM (SELECT 1 FROM export_queue q ",
            "WHERE q.export_id = e.id LIMIT 100000) waiting) AS lag ",
            "FROM exports e WHERE ",
            $rest
        )
    };
}

pub async fn insert(logs: &Db, export: &Export) -> Result<(), StoreError> {
    let Export {
        id,
        org_id,
        name,
        kind,
        endpoint,
        headers,
        secret,
        sources,
        enabled,
        periods,
        revision,
        created_at,
        updated_at,
    } = export;
    logs.exec(
        "INSERT INTO exports (id, org_id, name, kind, endpoint, headers, secret, sources, enabled, periods, revision, \
         created_at, updated_at, delivered, failed, dropped, tries, retry_at, batch) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 0, 0, 0, 0, 0, $14)",
        args![
            *id,
            *org_id,
            name,
            kind.as_str(),
            endpoint,
            headers.clone(),
            secret.clone(),
            sources_text(sources),
            *enabled,
            json(periods),
            *revision,
            *created_at,
            *updated_at,
            gateway_core::exports::MAX_BATCH_ROWS
        ],
    )
    .await
    .map(|_| ())
}

/// Writes a change and has the destination tried at once, since it may be another one now.
pub async fn update(tx: &mut Tx, export: &Export) -> Result<(), StoreError> {
    let Export {
        id,
        org_id,
        name,
        kind,
        endpoint,
        headers,
        secret,
        sources,
        enabled,
        periods,
        revision,
        created_at: _,
        updated_at,
    } = export;
    tx.exec(
        "UPDATE exports SET name = $3, kind = $4, endpoint = $5, headers = $6, secret = $7, sources = $8, enabled = $9, \
         periods = $10, revision = $11, updated_at = $12, tries = 0, retry_at = 0, lease = NULL, leased_until = NULL \
         WHERE org_id = $1 AND id = $2",
        args![
            *org_id,
            *id,
            name,
            kind.as_str(),
            endpoint,
            headers.clone(),
            secret.clone(),
            sources_text(sources),
            *enabled,
            json(periods),
            *revision,
            *updated_at
        ],
    )
    .await
    .map(|_| ())
}

pub async fn find(logs: &Db, org: OrgId, id: ExportId) -> Result<Option<(Export, ExportStatus)>, StoreError> {
    let row = logs.opt(select!("e.org_id = $1 AND e.id = $2"), args![org, id]).await?;
    row.as_ref().map(|row| Ok((read(row)?, read_status(row)?))).transpose()
}

/// The export, held until the transaction ends, so that two changes at once do not undo each other.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, id: ExportId) -> Result<Option<Export>, StoreError> {
    tx.exec("UPDATE exports SET id = id WHERE org_id = $1 AND id = $2", args![org, id]).await?;
    let row = tx.opt(select!("e.org_id = $1 AND e.id = $2"), args![org, id]).await?;
    row.as_ref().map(read).transpose()
}

/// Newest first.
pub async fn list(logs: &Db, org: OrgId, page: &Page) -> Result<Paged<(Export, ExportStatus)>, StoreError> {
    let rows = logs
        .all(
            select!("e.org_id = $1 AND ($2 IS NULL OR e.id < $2) ORDER BY e.id DESC LIMIT $3"),
            args![org, page.before.clone(), page.fetch()],
        )
        .await?;
    let found =
        rows.iter().map(|row| Ok((read(row)?, read_status(row)?))).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(found, |(export, _)| export.id.to_string()))
}

pub async fn count(logs: &Db, org: OrgId) -> Result<i64, StoreError> {
    let row = logs.opt("SELECT COUNT(*) AS n FROM exports WHERE org_id = $1", args![org]).await?;
    row.map_or(Ok(0), |row| row.get("n"))
}

/// What it still waits for goes with it.
pub async fn delete(tx: &mut Tx, org: OrgId, id: ExportId) -> Result<bool, StoreError> {
    let gone = tx.exec("DELETE FROM exports WHERE org_id = $1 AND id = $2", args![org, id]).await?;
    if gone == 1 {
        tx.exec("DELETE FROM export_queue WHERE export_id = $1", args![id]).await?;
    }
    Ok(gone == 1)
}

/// The exports of an organization that is gone.
pub async fn delete_by_org(tx: &mut Tx, org: OrgId) -> Result<(), StoreError> {
    tx.exec(
        "DELETE FROM export_queue WHERE export_id IN (SELECT id FROM exports WHERE org_id = $1)",
        args![org],
    )
    .await?;
    tx.exec("DELETE FROM exports WHERE org_id = $1", args![org]).await.map(|_| ())
}

/// The revision of an export that still delivers; None when it is gone or switched off.
pub async fn revision(logs: &Db, id: ExportId) -> Result<Option<i64>, StoreError> {
    let row = logs.opt("SELECT revision FROM exports WHERE id = $1 AND enabled = 1", args![id]).await?;
    row.map(|row| row.get("revision")).transpose()
}

fn sources_text(sources: &[LogSource]) -> String {
    sources.iter().map(|source| source.as_str()).collect::<Vec<_>>().join(",")
}

fn read_sources(row: &Row) -> Result<Vec<LogSource>, StoreError> {
    let text: String = row.get("sources")?;
    Ok(text.split(',').filter_map(LogSource::parse).collect())
}

fn read(row: &Row) -> Result<Export, StoreError> {
    let kind: String = row.get("kind")?;
    Ok(Export {
        id: row.get("id")?,
        org_id: row.get("org_id")?,
        name: row.get("name")?,
        kind: ExportKind::parse(&kind)
            .ok_or_else(|| StoreError::Other(format!("an export has the unknown kind {kind:?}")))?,
        endpoint: row.get("endpoint")?,
        headers: row.get("headers")?,
        secret: row.get("secret")?,
        sources: read_sources(row)?,
        enabled: row.get("enabled")?,
        periods: row.json("periods")?,
        revision: row.get("revision")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
    })
}

fn read_status(row: &Row) -> Result<ExportStatus, StoreError> {
    Ok(ExportStatus {
        last_success_at: row.get("last_success_at")?,
        last_error: row.get("last_error")?,
        delivered: row.get("delivered")?,
        failed: row.get("failed")?,
        dropped: row.get("dropped")?,
        lag: row.get("lag")?,
    })
}
