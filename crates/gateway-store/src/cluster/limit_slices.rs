//! Buckets of limits that the nodes share. A node takes slices out of a bucket and admits calls from them, so that few
//! calls need the store. A slice counts as used from then on: all nodes together admit no more than the bucket has, and
//! what a node still holds when the bucket is full again is the most by which they exceed it.

use std::time::Duration;

use gateway_core::ids::{LimitId, OrgId};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::{SERVER_NOW, millis};
use crate::row::args;
use crate::{Db, StoreError};

/// Hashed with the organization's id to the key of its advisory lock.
const SEED: i64 = 0x6761_7465_7761_790b;

/// The level of a stored bucket `b` at `n.now`, in units of 1 / `window_ms`. An absent bucket is full. When the limit
/// was changed, what is used of it stays used. The elapsed time is bounded so that the product fits in 64 bits.
const LEVEL: &str = "CASE WHEN b.limit_id IS NULL THEN w.capacity * w.window_ms \
    WHEN b.capacity = w.capacity AND b.window_ms = w.window_ms THEN \
        LEAST(b.capacity * b.window_ms, \
              b.level + LEAST(GREATEST(n.now - b.at, 0), 8 * b.window_ms) * b.capacity) \
    ELSE (w.capacity - b.capacity + CAST(FLOOR(CAST(LEAST(b.capacity * b.window_ms, \
              b.level + LEAST(GREATEST(n.now - b.at, 0), 8 * b.window_ms) * b.capacity) AS NUMERIC) / b.window_ms) \
              AS BIGINT)) * w.window_ms \
    END";

/// What a node wants of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceRequest {
    pub limit: LimitId,
    pub bucket: String,
    pub unit: &'static str,
    pub capacity: i64,
    pub window: Duration,
    /// The least that helps.
    pub need: i64,
    /// Taken if the bucket has it; at least `need`.
    pub slice: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// 0 if one of the buckets has less than what is needed of it.
    pub granted: i64,
    /// What is left in the bucket afterwards. Negative if calls used more than they reserved.
    pub left: i64,
}

/// Takes a slice out of every bucket, or out of none.
pub async fn take(db: &Db, org: OrgId, requests: &[SliceRequest]) -> Result<Vec<Slice>, StoreError> {
    let wanted: Value = requests
        .iter()
        .map(|request| {
            json!({
                "limit_id": request.limit, "bucket": request.bucket, "unit": request.unit,
                "capacity": request.capacity, "window_ms": millis(request.window), "need": request.need,
                "slice": request.slice.max(request.need),
            })
        })
        .collect();
    let sql = format!(
        "WITH n AS (SELECT {SERVER_NOW} AS now), \
         wanted AS (SELECT w.* FROM ROWS FROM (json_to_recordset(CAST($1 AS json)) AS (limit_id text, bucket text, \
         unit text, capacity bigint, window_ms bigint, need bigint, slice bigint)) \
         WITH ORDINALITY AS w(limit_id, bucket, unit, capacity, window_ms, need, slice, place)), \
         found AS (SELECT w.*, {LEVEL} AS level FROM wanted w CROSS JOIN n LEFT JOIN limit_buckets b \
         ON b.limit_id = w.limit_id AND b.bucket = w.bucket AND b.unit = w.unit), \
         verdict AS (SELECT BOOL_AND(need = 0 OR level >= need * window_ms) AS has_all FROM found), \
         taken AS (SELECT f.*, CASE WHEN v.has_all \
         THEN LEAST(f.slice, GREATEST(f.level, 0) / f.window_ms) ELSE 0 END AS granted \
         FROM found f CROSS JOIN verdict v), \
         written AS (INSERT INTO limit_buckets (limit_id, bucket, unit, level, capacity, window_ms, at) \
         SELECT t.limit_id, t.bucket, t.unit, t.level - t.granted * t.window_ms, t.capacity, t.window_ms, n.now \
         FROM taken t CROSS JOIN n JOIN limits l ON l.id = t.limit_id \
         ON CONFLICT (limit_id, bucket, unit) DO UPDATE SET level = excluded.level, capacity = excluded.capacity, \
         window_ms = excluded.window_ms, at = excluded.at) \
         SELECT granted, CAST(FLOOR(CAST(level AS NUMERIC) / window_ms) AS BIGINT) - granted AS left_over \
         FROM taken ORDER BY place"
    );
    let mut tx = db.begin().await?;
    tx.exec("SELECT pg_advisory_xact_lock(hashtextextended($1, $2))", args![org.to_string(), SEED]).await?;
    let rows = tx.all(AssertSqlSafe(sql), args![wanted.to_string()]).await?;
    tx.commit().await?;
    rows.iter().map(|row| Ok(Slice { granted: row.get("granted")?, left: row.get("left_over")? })).collect()
}

/// What a node puts back into a bucket, or takes out of it because a call used more than was reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returned {
    pub limit: LimitId,
    pub bucket: String,
    pub unit: &'static str,
    pub amount: i64,
}

pub async fn give_back(db: &Db, org: OrgId, returned: &[Returned]) -> Result<(), StoreError> {
    let list: Value = returned
        .iter()
        .map(|one| json!({"limit_id": one.limit, "bucket": one.bucket, "unit": one.unit, "amount": one.amount}))
        .collect();
    let sql = format!(
        "UPDATE limit_buckets b SET level = LEAST(b.capacity * b.window_ms, r.amount * b.window_ms + \
         LEAST(b.capacity * b.window_ms, b.level + LEAST(GREATEST(n.now - b.at, 0), 8 * b.window_ms) * b.capacity)), \
         at = n.now FROM (SELECT {SERVER_NOW} AS now) n, \
         (SELECT limit_id, bucket, unit, CAST(SUM(amount) AS BIGINT) AS amount \
         FROM json_to_recordset(CAST($1 AS json)) AS r(limit_id text, bucket text, unit text, amount bigint) \
         GROUP BY limit_id, bucket, unit) r \
         WHERE b.limit_id = r.limit_id AND b.bucket = r.bucket AND b.unit = r.unit"
    );
    let mut tx = db.begin().await?;
    tx.exec("SELECT pg_advisory_xact_lock(hashtextextended($1, $2))", args![org.to_string(), SEED]).await?;
    tx.exec(AssertSqlSafe(sql), args![list.to_string()]).await?;
    tx.commit().await
}

/// Deletes buckets that are full again.
pub async fn sweep(db: &Db) -> Result<(), StoreError> {
    let sql = format!("DELETE FROM limit_buckets WHERE level >= 0 AND at + window_ms + 60000 < {SERVER_NOW}");
    db.exec(AssertSqlSafe(sql), Vec::new()).await.map(|_| ())
}
