//! Permits for concurrent calls that the nodes share. Each node holds a number of permits of a limit, in a lease that it
//! renews. The permits of a node that crashed are free when its lease ends.

use std::time::Duration;

use gateway_core::ids::{LimitId, OrgId};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::{SERVER_NOW, millis};
use crate::row::args;
use crate::{Db, StoreError};

/// Hashed with the organization's id to the key of its advisory lock.
const SEED: i64 = 0x6761_7465_7761_790c;
pub const LEASE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitRequest {
    pub limit: LimitId,
    pub bucket: String,
    /// How many permits there are.
    pub capacity: i64,
    /// How many permits the node wants to hold in all. Fewer than it holds gives the others back.
    pub wanted: i64,
}

/// Leases permits of every limit, or of none. Returns how many the node holds of each.
pub async fn lease(
    db: &Db,
    org: OrgId,
    node: &str,
    requests: &[PermitRequest],
) -> Result<Vec<i64>, StoreError> {
    let wanted: Value = requests
        .iter()
        .map(|request| {
            let PermitRequest { limit, bucket, capacity, wanted } = request;
            json!({"limit_id": limit, "bucket": bucket, "capacity": capacity, "wanted": wanted})
        })
        .collect();
    let sql = format!(
        "WITH n AS (SELECT {SERVER_NOW} AS now), \
         wanted AS (SELECT w.* FROM ROWS FROM (json_to_recordset(CAST($1 AS json)) \
         AS (limit_id text, bucket text, capacity bigint, wanted bigint)) \
         WITH ORDINALITY AS w(limit_id, bucket, capacity, wanted, place)), \
         found AS (SELECT w.*, \
         CAST(COALESCE(SUM(p.held) FILTER (WHERE p.node = $2), 0) AS BIGINT) AS own, \
         CAST(COALESCE(SUM(p.held) FILTER (WHERE p.node <> $2), 0) AS BIGINT) AS others \
         FROM wanted w CROSS JOIN n LEFT JOIN limit_permits p \
         ON p.limit_id = w.limit_id AND p.bucket = w.bucket AND p.expires_at > n.now \
         GROUP BY w.limit_id, w.bucket, w.capacity, w.wanted, w.place), \
         verdict AS (SELECT BOOL_AND(wanted <= own OR wanted + others <= capacity) AS has_all FROM found), \
         held AS (SELECT f.limit_id, f.bucket, f.place, CASE WHEN v.has_all THEN f.wanted ELSE f.own END AS held \
         FROM found f CROSS JOIN verdict v), \
         written AS (INSERT INTO limit_permits (limit_id, bucket, node, held, expires_at) \
         SELECT h.limit_id, h.bucket, $2, h.held, n.now + $3 FROM held h CROSS JOIN n \
         JOIN limits l ON l.id = h.limit_id \
         ON CONFLICT (limit_id, bucket, node) DO UPDATE SET held = excluded.held, expires_at = excluded.expires_at) \
         SELECT held FROM held ORDER BY place"
    );
    let mut tx = db.begin().await?;
    tx.exec("SELECT pg_advisory_xact_lock(hashtextextended($1, $2))", args![org.to_string(), SEED]).await?;
    let rows = tx.all(AssertSqlSafe(sql), args![wanted.to_string(), node, millis(LEASE)]).await?;
    tx.commit().await?;
    rows.iter().map(|row| row.get("held")).collect()
}

/// Extends the leases of a node. To be called more often than `LEASE`.
pub async fn renew(db: &Db, node: &str) -> Result<(), StoreError> {
    let sql = format!("UPDATE limit_permits SET expires_at = {SERVER_NOW} + $2 WHERE node = $1 AND held > 0");
    db.exec(AssertSqlSafe(sql), args![node, millis(LEASE)]).await.map(|_| ())
}

/// Deletes leases that ended, and those of nothing.
pub async fn sweep(db: &Db) -> Result<(), StoreError> {
    let sql = format!("DELETE FROM limit_permits WHERE held = 0 OR expires_at < {SERVER_NOW}");
    db.exec(AssertSqlSafe(sql), Vec::new()).await.map(|_| ())
}
