//! Counts that limits are held against, over all nodes. Each node writes only rows of its own, as whole counts: writing
//! one again changes nothing, and no node waits for another.

use gateway_core::time::Timestamp;
use serde::Serialize;

use crate::row::args;
use crate::{Db, StoreError};

/// What a key or user has used in a minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WindowCount {
    pub id: String,
    pub minute: i64,
    pub used: i64,
}

/// Tells what was used on this node; answers what was used on the others, in the same order. What is told is committed
/// before the others are read, so that of two nodes that tell at the same time at least one sees the other.
pub async fn exchange(db: &Db, node: &str, mine: &[WindowCount]) -> Result<Vec<i64>, StoreError> {
    let told = serde_json::to_string(mine).map_err(|error| StoreError::Other(error.to_string()))?;
    db.exec(
        "INSERT INTO rate_counts (minute, id, node, used) \
         SELECT minute, id, $2, used FROM json_to_recordset(CAST($1 AS json)) AS mine(id text, minute bigint, used bigint) \
         ON CONFLICT (minute, id, node) DO UPDATE SET used = excluded.used",
        args![&told, node],
    )
    .await?;
    let rows = db
        .all(
            "SELECT CAST(COALESCE((SELECT SUM(used) FROM rate_counts others WHERE others.minute = mine.minute \
             AND others.id = mine.id AND others.node <> $2), 0) AS BIGINT) AS used \
             FROM ROWS FROM (json_to_recordset(CAST($1 AS json)) AS (id text, minute bigint)) \
             WITH ORDINALITY AS mine(id, minute, place) ORDER BY place",
            args![&told, node],
        )
        .await?;
    rows.iter().map(|row| row.get("used")).collect()
}

/// Counts one more attempt from an address over all nodes, in a window that begins with the first; answers when that
/// was, and how many there are.
pub async fn count_attempt(
    db: &Db,
    kind: &str,
    address: &str,
    window: i64,
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
            args![kind, address, now, window],
        )
        .await?;
    tx.commit().await?;
    let row = row.ok_or_else(|| StoreError::Other("an attempt was not counted".into()))?;
    Ok((row.get("began_at")?, row.get("tried")?))
}

/// Removes what is over: counts of minutes before `minute`, attempts that began before `began`.
pub async fn sweep(db: &Db, minute: i64, began: Timestamp) -> Result<(), StoreError> {
    db.exec("DELETE FROM rate_counts WHERE minute < $1", args![minute]).await?;
    db.exec("DELETE FROM attempt_counts WHERE began_at < $1", args![began]).await.map(|_| ())
}
