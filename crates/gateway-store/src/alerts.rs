//! Alerts of organizations, when they are checked, and their history.

use gateway_core::ids::{AlertId, EventId, OrgId};
use gateway_core::time::Timestamp;

use crate::page::{Page, Paged};
use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

/// Entries of the history that are kept of an alert.
const MAX_HISTORY: i64 = 200;

table! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct StoredAlert in "alerts" {
        pub id: AlertId [key],
        pub org_id: OrgId [key],
        pub name: String,
        /// JSON.
        pub definition: String,
        pub enabled: bool,
        pub firing: bool,
        /// Whether receivers were told that it fires, and not that it is resolved.
        pub notified: bool,
        pub changed_at: Option<Timestamp>,
        pub muted_until: Option<Timestamp>,
        pub checked_at: Option<Timestamp>,
        pub value: Option<f64>,
        /// Set if the last check had too many rows to read: only those since this time were measured.
        pub scanned_to: Option<Timestamp>,
        pub error: Option<String>,
        pub next_check_at: Timestamp,
        pub created_at: Timestamp [once],
        pub updated_at: Timestamp,
    }
}

/// Inserts an alert. `Duplicate` when the name is in use.
pub async fn insert(tx: &mut Tx, alert: &StoredAlert) -> Result<(), StoreError> {
    table::insert(tx, alert, vec![]).await
}

/// `Duplicate` when the name is in use.
pub async fn update(tx: &mut Tx, alert: &StoredAlert) -> Result<(), StoreError> {
    table::update(tx, alert, vec![], "").await.map(|_| ())
}

pub async fn delete(tx: &mut Tx, org: OrgId, id: AlertId) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM alerts WHERE org_id = $1 AND id = $2", args![org, id]).await? == 1)
}

pub async fn count(tx: &mut Tx, org: OrgId) -> Result<i64, StoreError> {
    let row = tx.opt("SELECT COUNT(*) AS count FROM alerts WHERE org_id = $1", args![org]).await?;
    row.map_or(Ok(0), |row| row.get("count"))
}

pub async fn find(db: &Db, org: OrgId, id: AlertId) -> Result<Option<StoredAlert>, StoreError> {
    let row = db.opt(StoredAlert::select("org_id = $1 AND id = $2"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

/// Locks the alert until the transaction ends.
pub async fn find_for_update(
    tx: &mut Tx,
    org: OrgId,
    id: AlertId,
) -> Result<Option<StoredAlert>, StoreError> {
    let row = tx.opt(StoredAlert::select_for_update("org_id = $1 AND id = $2"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

/// Newest first.
pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<StoredAlert>, StoreError> {
    let sql = StoredAlert::select("org_id = $1 AND ($2 IS NULL OR id < $2) ORDER BY id DESC LIMIT $3");
    let rows = db.all(sql, args![org, page.before.clone(), page.fetch()]).await?;
    Ok(page.cut(table::read_all::<StoredAlert>(&rows)?, |alert| alert.id.to_string()))
}

/// The organizations with alerts to check, in the order of their oldest one.
pub async fn list_due_orgs(db: &Db, now: Timestamp, limit: i64) -> Result<Vec<OrgId>, StoreError> {
    let sql = "SELECT org_id FROM alerts WHERE enabled = 1 AND next_check_at <= $1 \
               GROUP BY org_id ORDER BY MIN(next_check_at) LIMIT $2";
    let rows = db.all(sql, args![now, limit]).await?;
    rows.iter().map(|row| row.get("org_id")).collect()
}

/// Takes the alert of an organization that waited longest for a check. No other node takes it before `again_at`.
pub async fn claim_due(
    db: &Db,
    org: OrgId,
    now: Timestamp,
    again_at: Timestamp,
) -> Result<Option<StoredAlert>, StoreError> {
    let sql = StoredAlert::select(
        "org_id = $1 AND enabled = 1 AND next_check_at <= $2 ORDER BY next_check_at LIMIT 1",
    );
    let row = db.opt(sql, args![org, now]).await?;
    let Some(alert) = table::read_opt::<StoredAlert>(row.as_ref())? else { return Ok(None) };
    let claim = "UPDATE alerts SET next_check_at = $3 WHERE id = $1 AND next_check_at = $2";
    let is_claimed = db.exec(claim, args![alert.id, alert.next_check_at, again_at]).await? == 1;
    Ok(is_claimed.then_some(alert))
}

/// An entry of the history.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryEntry {
    pub id: EventId,
    /// `fired`, `resolved` or `tested`.
    pub kind: String,
    pub value: Option<f64>,
    pub requests: i64,
    /// Set if only the rows since this time were measured.
    pub scanned_to: Option<Timestamp>,
    pub muted: bool,
    pub created_at: Timestamp,
}

/// Adds an entry, and removes the oldest ones beyond the number that is kept.
pub async fn add_history(tx: &mut Tx, alert: AlertId, entry: &HistoryEntry) -> Result<(), StoreError> {
    let HistoryEntry { id, kind, value, requests, scanned_to, muted, created_at } = entry;
    tx.exec(
        "INSERT INTO alert_history (id, alert_id, kind, value, requests, scanned_to, muted, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        args![*id, alert, kind, *value, *requests, *scanned_to, *muted, *created_at],
    )
    .await?;
    let old = "DELETE FROM alert_history WHERE alert_id = $1 AND id <= \
               (SELECT id FROM alert_history WHERE alert_id = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)";
    tx.exec(old, args![alert, MAX_HISTORY]).await.map(|_| ())
}

/// Newest first.
pub async fn list_history(db: &Db, alert: AlertId, page: &Page) -> Result<Paged<HistoryEntry>, StoreError> {
    let sql = "SELECT id, kind, value, requests, scanned_to, muted, created_at FROM alert_history \
               WHERE alert_id = $1 AND ($2 IS NULL OR id < $2) ORDER BY id DESC LIMIT $3";
    let rows = db.all(sql, args![alert, page.before.clone(), page.fetch()]).await?;
    let entries = rows.iter().map(|row| {
        Ok(HistoryEntry {
            id: row.get("id")?,
            kind: row.get("kind")?,
            value: row.get("value")?,
            requests: row.get("requests")?,
            scanned_to: row.get("scanned_to")?,
            muted: row.get("muted")?,
            created_at: row.get("created_at")?,
        })
    });
    Ok(page.cut(entries.collect::<Result<_, StoreError>>()?, |entry| entry.id.to_string()))
}
