//! Limits of requests, tokens and concurrent calls: their definitions, the keys that a key's limit applies to, and how
//! many calls they refused. What is left of them is in memory, in Redis, or in `cluster::limit_slices`.

use std::collections::HashMap;

use gateway_core::ids::{AppId, KeyId, LimitId, OrgId, TeamId};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::db::Dialect;
use crate::page::{Page, Paged};
use crate::row::{Row, args};
use crate::{Db, StoreError, Tx};

const COLUMNS: &str = "id, name, definition, created_at, updated_at";

/// A limit as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLimit {
    pub id: LimitId,
    pub name: String,
    /// JSON.
    pub definition: String,
    /// For scope `key`: the key and those that replaced it.
    pub keys: Vec<KeyId>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What a limit belongs to. It is deleted together with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitOwner {
    pub team: Option<TeamId>,
    pub app: Option<AppId>,
    pub key: Option<KeyId>,
}

/// Inserts a limit. `Duplicate` when the name is in use.
pub async fn insert(
    tx: &mut Tx,
    org: OrgId,
    limit: &StoredLimit,
    owner: LimitOwner,
) -> Result<(), StoreError> {
    let StoredLimit { id, name, definition, keys: _, created_at, updated_at } = limit;
    tx.exec(
        "INSERT INTO limits (id, org_id, name, definition, team_id, app_id, key_id, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        args![*id, org, name, definition, owner.team, owner.app, owner.key, *created_at, *updated_at],
    )
    .await?;
    set_keys(tx, limit).await
}

/// Updates name, definition and owner, but not the keys: see `set_keys`. `Duplicate` when the name is in use.
pub async fn update(
    tx: &mut Tx,
    org: OrgId,
    limit: &StoredLimit,
    owner: LimitOwner,
) -> Result<(), StoreError> {
    let StoredLimit { id, name, definition, updated_at, .. } = limit;
    tx.exec(
        "UPDATE limits SET name = $3, definition = $4, team_id = $5, app_id = $6, key_id = $7, updated_at = $8 \
         WHERE org_id = $1 AND id = $2",
        args![org, *id, name, definition, owner.team, owner.app, owner.key, *updated_at],
    )
    .await
    .map(|_| ())
}

/// Replaces the keys that the limit applies to.
pub async fn set_keys(tx: &mut Tx, limit: &StoredLimit) -> Result<(), StoreError> {
    tx.exec("DELETE FROM limit_keys WHERE limit_id = $1", args![limit.id]).await?;
    for key in &limit.keys {
        tx.exec("INSERT INTO limit_keys (limit_id, key_id) VALUES ($1, $2)", args![limit.id, *key]).await?;
    }
    Ok(())
}

/// Adds a rotated key to the limits of its predecessor. True when there are any.
pub async fn add_rotated_key(tx: &mut Tx, old: KeyId, new: KeyId) -> Result<bool, StoreError> {
    let sql =
        "INSERT INTO limit_keys (limit_id, key_id) SELECT limit_id, $2 FROM limit_keys WHERE key_id = $1";
    Ok(tx.exec(sql, args![old, new]).await? > 0)
}

pub async fn delete(tx: &mut Tx, org: OrgId, id: LimitId) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM limits WHERE org_id = $1 AND id = $2", args![org, id]).await? == 1)
}

pub async fn count(tx: &mut Tx, org: OrgId) -> Result<i64, StoreError> {
    let row = tx.opt("SELECT COUNT(*) AS count FROM limits WHERE org_id = $1", args![org]).await?;
    row.map_or(Ok(0), |row| row.get("count"))
}

pub async fn find(db: &Db, org: OrgId, id: LimitId) -> Result<Option<StoredLimit>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM limits WHERE org_id = $1 AND id = $2");
    let row = db.opt(AssertSqlSafe(sql), args![org, id]).await?;
    let Some(mut limit) = row.as_ref().map(read).transpose()? else { return Ok(None) };
    for row in db.all("SELECT key_id FROM limit_keys WHERE limit_id = $1", args![id]).await? {
        limit.keys.push(row.get("key_id")?);
    }
    Ok(Some(limit))
}

/// Locks the limit until the transaction ends.
pub async fn find_for_update(
    tx: &mut Tx,
    org: OrgId,
    id: LimitId,
) -> Result<Option<StoredLimit>, StoreError> {
    tx.exec("UPDATE limits SET created_at = created_at WHERE org_id = $1 AND id = $2", args![org, id])
        .await?;
    find_in_tx(tx, org, id).await
}

/// Reads the limit inside a transaction. `find_for_update` locks it.
pub async fn find_in_tx(tx: &mut Tx, org: OrgId, id: LimitId) -> Result<Option<StoredLimit>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM limits WHERE org_id = $1 AND id = $2");
    let row = tx.opt(AssertSqlSafe(sql), args![org, id]).await?;
    let Some(mut limit) = row.as_ref().map(read).transpose()? else { return Ok(None) };
    for row in tx.all("SELECT key_id FROM limit_keys WHERE limit_id = $1", args![id]).await? {
        limit.keys.push(row.get("key_id")?);
    }
    Ok(Some(limit))
}

/// The limits by name, without their keys, for a transaction that changes many.
pub async fn by_name(tx: &mut Tx, org: OrgId) -> Result<HashMap<String, StoredLimit>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM limits WHERE org_id = $1");
    let rows = tx.all(AssertSqlSafe(sql), args![org]).await?;
    rows.iter().map(|row| read(row).map(|limit| (limit.name.clone(), limit))).collect()
}

/// Newest first.
pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<StoredLimit>, StoreError> {
    let limits = fetch(db, org, page.before.clone(), page.fetch()).await?;
    Ok(page.cut(limits, |limit| limit.id.to_string()))
}

/// All limits of an organization, newest first.
pub async fn list_all(db: &Db, org: OrgId) -> Result<Vec<StoredLimit>, StoreError> {
    fetch(db, org, None, i64::MAX).await
}

async fn fetch(
    db: &Db,
    org: OrgId,
    before: Option<String>,
    limit: i64,
) -> Result<Vec<StoredLimit>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM limits WHERE org_id = $1 AND ($2 IS NULL OR id < $2) ORDER BY id DESC LIMIT $3"
    );
    let rows = db.all(AssertSqlSafe(sql), args![org, before, limit]).await?;
    let mut limits = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    if limits.is_empty() {
        return Ok(limits);
    }
    let applied = db
        .all(
            "SELECT k.limit_id, k.key_id FROM limit_keys k JOIN limits l ON l.id = k.limit_id WHERE l.org_id = $1",
            args![org],
        )
        .await?;
    let mut keys: HashMap<LimitId, Vec<KeyId>> = HashMap::new();
    for row in &applied {
        keys.entry(row.get("limit_id")?).or_default().push(row.get("key_id")?);
    }
    for limit in &mut limits {
        limit.keys = keys.remove(&limit.id).unwrap_or_default();
    }
    Ok(limits)
}

fn read(row: &Row) -> Result<StoredLimit, StoreError> {
    Ok(StoredLimit {
        id: row.get("id")?,
        name: row.get("name")?,
        definition: row.get("definition")?,
        keys: Vec::new(),
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
    })
}

/// Calls of an hour that a limit refused, or in dry run would have refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusals {
    pub limit: LimitId,
    /// The start of the hour.
    pub hour: Timestamp,
    pub refused: i64,
    pub would_refuse: i64,
}

/// Adds refusals to those that are stored. Limits that were deleted are skipped.
pub async fn add_refusals(db: &Db, refusals: &[Refusals]) -> Result<(), StoreError> {
    if refusals.is_empty() {
        return Ok(());
    }
    let list = match db.dialect() {
        Dialect::Sqlite => {
            "SELECT value ->> 'limit_id' AS limit_id, value ->> 'hour' AS hour, value ->> 'refused' AS refused, \
             value ->> 'would_refuse' AS would_refuse FROM json_each($1)"
        }
        Dialect::Postgres => {
            "SELECT * FROM json_to_recordset(CAST($1 AS json)) \
             AS r(limit_id text, hour bigint, refused bigint, would_refuse bigint)"
        }
    };
    let sql = format!(
        "INSERT INTO limit_refusals (limit_id, hour, refused, would_refuse) \
         SELECT r.limit_id, r.hour, r.refused, r.would_refuse FROM ({list}) r JOIN limits l ON l.id = r.limit_id \
         WHERE true ON CONFLICT (limit_id, hour) DO UPDATE SET refused = limit_refusals.refused + excluded.refused, \
         would_refuse = limit_refusals.would_refuse + excluded.would_refuse"
    );
    let list: serde_json::Value = refusals
        .iter()
        .map(|one| {
            serde_json::json!({
                "limit_id": one.limit, "hour": one.hour.0, "refused": one.refused, "would_refuse": one.would_refuse,
            })
        })
        .collect();
    db.exec(AssertSqlSafe(sql), args![list.to_string()]).await.map(|_| ())
}

/// The refusals of hours that began at `since` or later, in the order of time.
pub async fn list_refusals(
    db: &Db,
    org: OrgId,
    id: LimitId,
    since: Timestamp,
) -> Result<Vec<Refusals>, StoreError> {
    let rows = db
        .all(
            "SELECT r.limit_id, r.hour, r.refused, r.would_refuse FROM limit_refusals r \
             JOIN limits l ON l.id = r.limit_id WHERE l.org_id = $1 AND l.id = $2 AND r.hour >= $3 ORDER BY r.hour",
            args![org, id, since],
        )
        .await?;
    let read = |row: &Row| {
        Ok(Refusals {
            limit: row.get("limit_id")?,
            hour: row.get("hour")?,
            refused: row.get("refused")?,
            would_refuse: row.get("would_refuse")?,
        })
    };
    rows.iter().map(read).collect()
}

/// Deletes refusals of hours that began before this time.
pub async fn delete_refusals_before(db: &Db, before: Timestamp) -> Result<u64, StoreError> {
    db.exec("DELETE FROM limit_refusals WHERE hour < $1", args![before]).await
}

/// Records that a limit was reached in the window that starts at this time. False when it was recorded before or the
/// limit does not exist.
pub async fn record_notice(
    tx: &mut Tx,
    org: OrgId,
    id: LimitId,
    window_start: Timestamp,
) -> Result<bool, StoreError> {
    let changed = tx
        .exec(
            "UPDATE limits SET noticed_at = $3 WHERE org_id = $1 AND id = $2 \
             AND (noticed_at IS NULL OR noticed_at < $3)",
            args![org, id, window_start],
        )
        .await?;
    Ok(changed == 1)
}
