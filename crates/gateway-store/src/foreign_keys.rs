//! Keys that another gateway made, by their SHA-256. Each belongs to a key of the organization, which has its scopes,
//! budgets and revocation.

use std::collections::HashMap;
use std::fmt::Write as _;

use gateway_core::accounts::KeyHash;
use gateway_core::ids::{KeyId, OrgId};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::row::{Arg, args};
use crate::{Db, StoreError, Tx};

/// Hashes that one statement looks up.
const BATCH: usize = 500;

/// What a foreign key stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignKey {
    pub org: OrgId,
    /// The hash of the key that it belongs to.
    pub key_hash: KeyHash,
}

pub async fn insert(
    tx: &mut Tx,
    hash: KeyHash,
    key: KeyId,
    source: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.exec(
        "INSERT INTO foreign_keys (hash, key_id, source, created_at) VALUES ($1, $2, $3, $4)",
        args![hash, key, source, now],
    )
    .await
    .map(|_| ())
}

pub async fn find(db: &Db, hash: KeyHash) -> Result<Option<ForeignKey>, StoreError> {
    let sql =
        "SELECT k.org_id, k.hash FROM foreign_keys f JOIN api_keys k ON k.id = f.key_id WHERE f.hash = $1";
    let row = db.opt(sql, args![hash]).await?;
    row.map(|row| Ok(ForeignKey { org: row.get("org_id")?, key_hash: row.get("hash")? })).transpose()
}

/// The owners of those hashes that are stored, whatever the organization.
pub async fn owners(tx: &mut Tx, hashes: &[KeyHash]) -> Result<HashMap<KeyHash, (OrgId, KeyId)>, StoreError> {
    let mut owners = HashMap::new();
    for batch in hashes.chunks(BATCH) {
        let mut sql =
            "SELECT f.hash, f.key_id, k.org_id FROM foreign_keys f JOIN api_keys k ON k.id = f.key_id \
                       WHERE f.hash IN ("
                .to_owned();
        for index in 1..=batch.len() {
            let separator = if index == 1 { "" } else { ", " };
            let _ = write!(sql, "{separator}${index}");
        }
        sql.push(')');
        let values: Vec<Arg> = batch.iter().map(|hash| (*hash).into()).collect();
        for row in tx.all(AssertSqlSafe(sql), values).await? {
            owners.insert(row.get("hash")?, (row.get("org_id")?, row.get("key_id")?));
        }
    }
    Ok(owners)
}

/// The gateways that the keys of an organization were imported from, by key. Others are left out.
pub async fn sources(db: &Db, org: OrgId, keys: &[KeyId]) -> Result<HashMap<KeyId, String>, StoreError> {
    let mut sources = HashMap::new();
    for batch in keys.chunks(BATCH) {
        let mut sql = "SELECT f.key_id, f.source FROM foreign_keys f JOIN api_keys k ON k.id = f.key_id \
                       WHERE k.org_id = $1 AND f.key_id IN ("
            .to_owned();
        for index in 1..=batch.len() {
            let separator = if index == 1 { "" } else { ", " };
            let _ = write!(sql, "{separator}${}", index + 1);
        }
        sql.push(')');
        let values = std::iter::once(Arg::from(org)).chain(batch.iter().map(|key| Arg::from(*key))).collect();
        for row in db.all(AssertSqlSafe(sql), values).await? {
            sources.insert(row.get("key_id")?, row.get("source")?);
        }
    }
    Ok(sources)
}

/// Deletes all foreign keys of an organization. The keys that they belong to stay. Returns their number.
pub async fn retire(tx: &mut Tx, org: OrgId) -> Result<u64, StoreError> {
    tx.exec(
        "DELETE FROM foreign_keys WHERE key_id IN (SELECT id FROM api_keys WHERE org_id = $1)",
        args![org],
    )
    .await
}
