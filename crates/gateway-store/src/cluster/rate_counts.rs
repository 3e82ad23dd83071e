//! Rate limit counts over all nodes. Each node writes only its own rows, as absolute counts. A repeated write changes
//! nothing, and no node waits for another.

use gateway_core::time::Timestamp;
use serde::Serialize;

use crate::row::args;
use crate::{Db, StoreError};

/// The requests of a key or user in a minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WindowCount {
    pub id: String,
    pub minute: i64,
    pub used: i64,
}

/// Writes the counts of this node and returns the counts of the other nodes, in the same order. The write is committed
/// before the read, so that of two concurrent exchanges at least one sees the other.
pub async fn exchange(db: &Db, node: &str, mine: &[WindowCount]) -> Result<Vec<i64>, StoreError> {
    let counts = serde_json::to_string(mine).map_err(|error| StoreError::Other(error.to_string()))?;
    db.exec(
        "INSERT INTO rate_counts (minute, id, node, used) \
         SELECT minute, id, $2, used FROM json_to_recordset(CAST($1 AS json)) AS mine(id text, minute bigint, used bigint) \
         ON CONFLICT (minute, id, node) DO UPDATE SET used = excluded.used",
        args![&counts, node],
    )
    .await?;
    let rows = db
        .all(
            "SELECT CAST(COALESCE((SELECT SUM(used) FROM rate_counts others WHERE others.minute = mine.minute \
             AND others.id = mine.id AND others.node <> $2), 0) AS BIGINT) AS used \
             FROM ROWS FROM (json_to_recordset(CAST($1 AS json)) AS (id text, minute bigint)) \
             WITH ORDINALITY AS mine(id, minute, place) ORDER BY place",
            args![&counts, node],
        )
        .await?;
    rows.iter().map(|row| row.get("used")).collect()
}

/// Counts an attempt from an address over all nodes, in a window that starts with the first attempt. Returns the start
/// of the window and the number of attempts in it.
pub async fn count_attempt(
    db: &Db,
    kind: &str,
    address: &str,
    window_ms: i64,
    now: Timestamp,
) -> Result<(Timestamp, i64), StoreError> {
    let mut tx = db.begin().await?;
    let row = tx
        .opt(
            "INSERT INTO attempt_counts (kind, address, began_at, tried) VALUES ($1, $2, $3, 1) \
             ON CONFLICT (kind, address) DO UPDATE SET \
             began_at = CASE WHEN attempt_counts.began_at + $4 <= $3 THEN $3 ELSE attempt_counts.began_at END, \
             tried = CASE WHEN attempt_counts.began_at + $4 <= $3 THEN 1 ELSE attempt_counts.tried + 1 END \
             RETURNING began_at, tried",
            args![kind, address, now, window_ms],
        )
        .await?;
    tx.commit().await?;
    let row = row.ok_or_else(|| StoreError::Other("the upsert of an attempt returned no row".into()))?;
    Ok((row.get("began_at")?, row.get("tried")?))
}

/// Takes back one attempt.
pub async fn uncount_attempt(db: &Db, kind: &str, address: &str) -> Result<(), StoreError> {
    let sql = "UPDATE attempt_counts SET tried = tried - 1 WHERE kind = $1 AND address = $2 AND tried > 0";
    db.exec(sql, args![kind, address]).await.map(|_| ())
}

/// Deletes counts of minutes before this one.
pub async fn sweep_windows(db: &Db, minute: i64) -> Result<(), StoreError> {
    db.exec("DELETE FROM rate_counts WHERE minute < $1", args![minute]).await.map(|_| ())
}

/// Deletes windows of attempts that began before `began`.
pub async fn sweep_attempts(db: &Db, began: Timestamp) -> Result<(), StoreError> {
    db.exec("DELETE FROM attempt_counts WHERE began_at < $1", args![began]).await.map(|_| ())
}
