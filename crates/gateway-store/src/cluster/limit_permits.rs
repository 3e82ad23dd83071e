//! Permits for concurrent calls that the nodes share. Each node holds a number of permits of a limit, in a lease that it
//! renews. The permits of a node that crashed are free when its lease ends.

use std::time::Duration;

use gateway_core::ids::{LimitId, OrgId};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::{SERVER_NOW, millis};
use crate::row::{Row, args};
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
    /// How many permits must stay free for other classes. With such a floor, the node asks for every call, and what it
    /// holds and does not use stays its own.
    pub floor: i64,
    /// How many permits the node wants to hold in all. Fewer than it holds gives the others back.
    pub wanted: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leased {
    /// How many permits the node holds now.
    pub held: i64,
    /// False if there are too few of this one.
    pub fits: bool,
}

/// Leases permits of every limit, or of none.
pub async fn lease(
    db: &Db,
    org: OrgId,
    node: &str,
    requests: &[PermitRequest],
) -> Result<Vec<Leased>, StoreError> {
    let wanted: Value = requests
        .iter()
        .map(|request| {
            let PermitRequest { limit, bucket, capacity, floor, wanted } = request;
            json!({"limit_id": limit, "bucket": bucket, "capacity": capacity, "kept": floor, "wanted": wanted})
        })
        .collect();
    let sql = format!(
        "WITH n AS (SELECT {SERVER_NOW} AS now), \
         wanted AS (SELECT w.* FROM ROWS FROM (json_to_recordset(CAST($1 AS json)) \
         AS (limit_id text, bucket text, capacity bigint, kept bigint, wanted bigint)) \
         WITH ORDINALITY AS w(limit_id, bucket, capacity, kept, wanted, place)), \
         found AS (SELECT w.*, \
         CAST(COALESCE(SUM(p.held) FILTER (WHERE p.node = $2), 0) AS BIGINT) AS own, \
         CAST(COALESCE(SUM(p.held) FILTER (WHERE p.node <> $2), 0) AS BIGINT) AS others \
         FROM wanted w CROSS JOIN n LEFT JOIN limit_permits p \
         ON p.limit_id = w.limit_id AND p.bucket = w.bucket AND p.expires_at > n.now \
         GROUP BY w.limit_id, w.bucket, w.capacity, w.kept, w.wanted, w.place), \
         checked AS (SELECT f.*, ((kept = 0 AND wanted <= own) OR wanted + others + kept <= capacity) AS fits \
         FROM found f), \
         verdict AS (SELECT BOOL_AND(fits) AS has_all FROM checked), \
         held AS (SELECT c.limit_id, c.bucket, c.place, c.fits, \
         CASE WHEN NOT v.has_all THEN c.own WHEN c.kept > 0 THEN GREATEST(c.own, c.wanted) ELSE c.wanted END AS held \
         FROM checked c CROSS JOIN verdict v), \
         written AS (INSERT INTO limit_permits (limit_id, bucket, node, held, expires_at) \
         SELECT h.limit_id, h.bucket, $2, h.held, n.now + $3 FROM held h CROSS JOIN n \
         JOIN limits l ON l.id = h.limit_id \
         ON CONFLICT (limit_id, bucket, node) DO UPDATE SET held = excluded.held, expires_at = excluded.expires_at) \
         SELECT held, CAST(CASE WHEN fits THEN 1 ELSE 0 END AS BIGINT) AS fits FROM held ORDER BY place"
    );
    let mut tx = db.begin().await?;
    tx.exec("SELECT pg_advisory_xact_lock(hashtextextended($1, $2))", args![org.to_string(), SEED]).await?;
    let rows = tx.all(AssertSqlSafe(sql), args![wanted.to_string(), node, millis(LEASE)]).await?;
    tx.commit().await?;
    let leased = |row: &Row| Ok(Leased { held: row.get("held")?, fits: row.get("fits")? });
    rows.iter().map(leased).collect()
}

/// Permits that a node holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldPermits {
    pub limit: LimitId,
    pub bucket: String,
    pub held: i64,
}

/// Records permits of a node that are no longer recorded.
pub async fn restore(db: &Db, node: &str, permits: &[HeldPermits]) -> Result<(), StoreError> {
    let held: Value = permits
        .iter()
        .map(|HeldPermits { limit, bucket, held }| json!({"limit_id": limit, "bucket": bucket, "held": held}))
        .collect();
    let sql = format!(
        "INSERT INTO limit_permits (limit_id, bucket, node, held, expires_at) \
         SELECT h.limit_id, h.bucket, $2, h.held, {SERVER_NOW} + $3 \
         FROM json_to_recordset(CAST($1 AS json)) AS h(limit_id text, bucket text, held bigint) \
         JOIN limits l ON l.id = h.limit_id ON CONFLICT (limit_id, bucket, node) DO NOTHING"
    );
    db.exec(AssertSqlSafe(sql), args![held.to_string(), node, millis(LEASE)]).await.map(|_| ())
}

/// Extends the leases of a node. To be called more often than `LEASE`.
pub async fn renew(db: &Db, node: &str) -> Result<(), StoreError> {
    let sql = format!("UPDATE limit_permits SET expires_at = {SERVER_NOW} + $2 WHERE node = $1 AND held > 0");
    db.exec(AssertSqlSafe(sql), args![node, millis(LEASE)]).await.map(|_| ())
}

/// How many permits of a limit the other nodes hold, by bucket, the largest numbers first.
pub async fn held_by_others(
    db: &Db,
    limit: LimitId,
    node: &str,
    count: i64,
) -> Result<Vec<(String, i64)>, StoreError> {
    let sql = format!(
        "SELECT bucket, CAST(SUM(held) AS BIGINT) AS held FROM limit_permits \
         WHERE limit_id = $1 AND node <> $2 AND held > 0 AND expires_at > {SERVER_NOW} \
         GROUP BY bucket ORDER BY held DESC, bucket LIMIT $3"
    );
    let rows = db.all(AssertSqlSafe(sql), args![limit.to_string(), node, count]).await?;
    rows.iter().map(|row| Ok((row.get("bucket")?, row.get("held")?))).collect()
}

/// Deletes leases that ended, and those of nothing.
pub async fn sweep(db: &Db) -> Result<(), StoreError> {
    let sql = format!("DELETE FROM limit_permits WHERE held = 0 OR expires_at < {SERVER_NOW}");
    db.exec(AssertSqlSafe(sql), Vec::new()).await.map(|_| ())
}
