//! Node ids, which are part of log ids. A node leases a free one, so that two nodes never use the same.

use std::time::Duration;

use gateway_core::logs::OTEL_NODE;
use sqlx::AssertSqlSafe;

use super::{SERVER_NOW, millis};
use crate::row::args;
use crate::{Db, StoreError};

/// A node id is free again when its holder has not renewed the lease for this time.
pub const LEASE: Duration = Duration::from_secs(30);
/// The key of the advisory lock for claims.
const LOCK: i64 = 0x6761_7465_7761_7909;

/// Leases a free node id; none when all are in use. Ids that were never used come first, then the id that has been free
/// longest: a node that lost its connection may still be using an expired id.
pub async fn claim(db: &Db, holder: &str) -> Result<Option<i64>, StoreError> {
    let mut tx = db.begin().await?;
    tx.exec("SELECT pg_advisory_xact_lock($1)", args![LOCK]).await?;
    let sql = format!(
        "INSERT INTO nodes (id, holder, kept_until) \
         SELECT number, $1, {SERVER_NOW} + $2 FROM generate_series(0, $3 - 1) AS number \
         LEFT JOIN nodes taken ON taken.id = number \
         WHERE taken.id IS NULL OR taken.kept_until <= {SERVER_NOW} \
         ORDER BY COALESCE(taken.kept_until, 0), number LIMIT 1 \
         ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, kept_until = excluded.kept_until \
         RETURNING id"
    );
    let row = tx.opt(AssertSqlSafe(sql), args![holder, millis(LEASE), OTEL_NODE]).await?;
    tx.commit().await?;
    row.map(|row| row.get("id")).transpose()
}

/// Renews the lease and returns the number of live nodes. None when another node holds the id.
pub async fn renew(db: &Db, id: i64, holder: &str) -> Result<Option<i64>, StoreError> {
    let sql = format!("UPDATE nodes SET kept_until = {SERVER_NOW} + $3 WHERE id = $1 AND holder = $2");
    if db.exec(AssertSqlSafe(sql), args![id, holder, millis(LEASE)]).await? == 0 {
        return Ok(None);
    }
    let sql = format!("SELECT COUNT(*) AS alive FROM nodes WHERE kept_until > {SERVER_NOW}");
    db.opt(AssertSqlSafe(sql), Vec::new()).await?.map(|row| row.get("alive")).transpose()
}

/// Ends the lease.
pub async fn release(db: &Db, id: i64, holder: &str) -> Result<(), StoreError> {
    let sql = format!("UPDATE nodes SET kept_until = {SERVER_NOW} WHERE id = $1 AND holder = $2");
    db.exec(AssertSqlSafe(sql), args![id, holder]).await.map(|_| ())
}
