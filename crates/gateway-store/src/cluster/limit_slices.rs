//! Buckets of limits that the nodes share. A node takes slices out of a bucket and admits calls from them, so that few
//! calls need the store. A slice counts as used from then on: all nodes together admit no more than the bucket has, and
//! what a node still holds when the bucket is full again is the most by which they exceed it.

use std::time::Duration;

use gateway_core::ids::{LimitId, OrgId};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::{SERVER_NOW, millis};
use crate::row::{Row, args};
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

/// A bucket as all nodes know it. What nodes hold in advance counts as used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedBucket {
    pub bucket: String,
    pub unit: String,
    pub left: i64,
}

/// The buckets of a limit that are used most. `amounts`: its units with their numbers.
pub async fn most_used(
    db: &Db,
    limit: LimitId,
    amounts: &[(&str, i64)],
    window: Duration,
    count: i64,
) -> Result<Vec<SharedBucket>, StoreError> {
    let units: Value = amounts
        .iter()
        .map(|(unit, capacity)| json!({"unit": unit, "capacity": capacity, "window_ms": millis(window)}))
        .collect();
    let sql = format!(
        "WITH n AS (SELECT {SERVER_NOW} AS now), \
         found AS (SELECT b.bucket, b.unit, w.capacity, w.window_ms, {LEVEL} AS level \
         FROM limit_buckets b CROSS JOIN n \
         JOIN json_to_recordset(CAST($1 AS json)) AS w(unit text, capacity bigint, window_ms bigint) ON w.unit = b.unit \
         WHERE b.limit_id = $2) \
         SELECT bucket, unit, CAST(FLOOR(CAST(level AS NUMERIC) / window_ms) AS BIGINT) AS left_over FROM found \
         ORDER BY CAST(level AS DOUBLE PRECISION) / (capacity * window_ms), bucket, unit LIMIT $3"
    );
    let rows = db.all(AssertSqlSafe(sql), args![units.to_string(), limit.to_string(), count]).await?;
    let shared = |row: &Row| {
        Ok(SharedBucket { bucket: row.get("bucket")?, unit: row.get("unit")?, left: row.get("left_over")? })
    };
    rows.iter().map(shared).collect()
}

/// Rows of one limit: as many buckets as a node keeps, of all units.
const MAX_ROWS: i64 = 400_000;

pub async fn sweep(db: &Db) -> Result<(), StoreError> {
    sweep_beyond(db, MAX_ROWS).await
}

/// Deletes buckets that are full again, which is what an absent one is; and those of a limit beyond a number of rows that
/// were not used for the longest time, because callers may invent users.
pub async fn sweep_beyond(db: &Db, max_rows: i64) -> Result<(), StoreError> {
    let full = format!(
        "DELETE FROM limit_buckets b USING (SELECT {SERVER_NOW} AS now) n WHERE b.at < n.now - 60000 \
         AND b.level + LEAST(n.now - b.at, 8 * b.window_ms) * b.capacity >= b.capacity * b.window_ms"
    );
    db.exec(AssertSqlSafe(full), Vec::new()).await?;
    let beyond = "DELETE FROM limit_buckets b USING (SELECT limit_id, bucket, unit, \
         ROW_NUMBER() OVER (PARTITION BY limit_id ORDER BY at DESC) AS place FROM limit_buckets WHERE limit_id IN \
         (SELECT limit_id FROM limit_buckets GROUP BY limit_id HAVING COUNT(*) > $1)) r \
         WHERE r.place > $1 AND b.limit_id = r.limit_id AND b.bucket = r.bucket AND b.unit = r.unit";
    db.exec(beyond, args![max_rows]).await.map(|_| ())
}
