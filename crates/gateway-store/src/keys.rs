//! API keys. Only hashes are stored; the raw key is seen by its caller once.

use gateway_core::access::Role;
use gateway_core::accounts::KeyHash;
use gateway_core::ids::{AppId, KeyId, OrgId, TeamId};
use gateway_core::scopes::Scopes;
use gateway_core::time::Timestamp;

use crate::page::{Page, Paged};
use crate::row::{Row, args, json};
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub id: KeyId,
    pub org_id: OrgId,
    pub app_id: Option<AppId>,
    pub name: String,
    pub key_prefix: String,
    pub scopes: Scopes,
    /// What a key of full scope may do at most: no more than its maker could.
    pub role: Role,
    /// The user or key that made it.
    pub created_by: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
}

impl Key {
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

macro_rules! select_key {
    ($tail:literal) => {
        concat!(
            "SELECT k.id, k.org_id, k.app_id, k.name, k.key_prefix, k.hash, k.scopes, k.role, k.created_by, k.created_at, \
             k.expires_at, k.revoked_at, k.last_used_at FROM api_keys k ",
            $tail
        )
    };
}

pub async fn insert(tx: &mut Tx, key: &Key, hash: KeyHash) -> Result<(), StoreError> {
    let Key {
        id, org_id, app_id, name, key_prefix, scopes, role, created_by, created_at, expires_at, ..
    } = key;
    tx.exec(
        "INSERT INTO api_keys (id, org_id, app_id, name, key_prefix, hash, scopes, role, created_by, \
         created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        args![
            *id,
            *org_id,
            *app_id,
            name,
            key_prefix,
            hash,
            json(scopes),
            *role,
            created_by.clone(),
            *created_at,
            *expires_at
        ],
    )
    .await
    .map(|_| ())
}

pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<Key>, StoreError> {
    let rows = db
        .all(
            select_key!("WHERE k.org_id = $1 AND ($2 IS NULL OR k.id < $2) ORDER BY k.id DESC LIMIT $3"),
            args![org, page.before.clone(), page.fetch()],
        )
        .await?;
    let keys = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(page.cut(keys, |key| key.id.to_string()))
}

pub async fn find(db: &Db, org: OrgId, id: KeyId) -> Result<Option<Key>, StoreError> {
    let row = db.opt(select_key!("WHERE k.org_id = $1 AND k.id = $2"), args![org, id]).await?;
    row.as_ref().map(read).transpose()
}

/// The key with its hash, read inside a change of it.
pub async fn find_for_update(
    tx: &mut Tx,
    org: OrgId,
    id: KeyId,
) -> Result<Option<(Key, KeyHash)>, StoreError> {
    // The update that changes nothing takes the row's lock on both databases.
    tx.exec("UPDATE api_keys SET id = id WHERE org_id = $1 AND id = $2", args![org, id]).await?;
    let row = tx.opt(select_key!("WHERE k.org_id = $1 AND k.id = $2"), args![org, id]).await?;
    row.map(|row| Ok((read(&row)?, row.get("hash")?))).transpose()
}

pub async fn update(tx: &mut Tx, org: OrgId, key: &Key) -> Result<(), StoreError> {
    tx.exec(
        "UPDATE api_keys SET name = $3, scopes = $4, app_id = $5, expires_at = $6, revoked_at = $7, role = $8 \
         WHERE org_id = $1 AND id = $2",
        args![org, key.id, &key.name, json(&key.scopes), key.app_id, key.expires_at, key.revoked_at, key.role],
    )
    .await
    .map(|_| ())
}

/// What the request path needs to know of a key, found by its hash alone.
#[derive(Debug, Clone)]
pub struct KeyAccess {
    pub key: Key,
    pub team_id: Option<TeamId>,
}

pub async fn find_access(db: &Db, hash: KeyHash) -> Result<Option<KeyAccess>, StoreError> {
    let row = db
        .opt(
            "SELECT k.id, k.org_id, k.app_id, k.name, k.key_prefix, k.hash, k.scopes, k.role, k.created_by, k.created_at, \
             k.expires_at, k.revoked_at, k.last_used_at, a.team_id FROM api_keys k \
             LEFT JOIN apps a ON a.id = k.app_id WHERE k.hash = $1",
            args![hash],
        )
        .await?;
    row.map(|row| Ok(KeyAccess { key: read(&row)?, team_id: row.get("team_id")? })).transpose()
}

/// Notes when keys were last used; told in batches, off the request path.
pub async fn touch(db: &Db, used: &[(KeyId, Timestamp)]) -> Result<(), StoreError> {
    let mut tx = db.begin().await?;
    for (id, at) in used {
        tx.exec(
            "UPDATE api_keys SET last_used_at = $2 WHERE id = $1 AND COALESCE(last_used_at, 0) < $2",
            args![*id, *at],
        )
        .await?;
    }
    tx.commit().await
}

fn read(row: &Row) -> Result<Key, StoreError> {
    Ok(Key {
        id: row.get("id")?,
        org_id: row.get("org_id")?,
        app_id: row.get("app_id")?,
        name: row.get("name")?,
        key_prefix: row.get("key_prefix")?,
        scopes: row.json("scopes")?,
        role: row.get("role")?,
        created_by: row.get("created_by")?,
        created_at: row.get("created_at")?,
        expires_at: row.get("expires_at")?,
        revoked_at: row.get("revoked_at")?,
        last_used_at: row.get("last_used_at")?,
    })
}
