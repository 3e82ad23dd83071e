//! Bodies of rows: in compressed blocks, and those of earlier versions one by one in `log_bodies`.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use gateway_core::body_blocks::{Bodies, BodyBlock, Conversation, RowBodies, blocks_of, read_bodies};
use gateway_core::logs::{BodyStorage, LogRow};
use sqlx::AssertSqlSafe;

use super::bulk::{Bulk, id_list, in_ids};
use super::texts::has_bodies;
use crate::row::{Row, args};
use crate::{Db, StoreError, Tx};

/// Blocks that one query reads.
const BLOCKS_AT_ONCE: usize = 16;

static BLOCKS: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::new("INSERT INTO log_body_blocks (id, last_id, bodies)", "(?,?,?)", ""));

/// The size of the bodies of a row `r` in SQL, null without bodies.
pub(crate) const SIZE: &str = "COALESCE(r.body_bytes, (SELECT CAST(LENGTH(b.request) + LENGTH(b.response) AS BIGINT) \
    FROM log_bodies b WHERE b.id = r.id))";

/// The bodies of rows in blocks.
pub(super) fn blocks<'a>(rows: impl IntoIterator<Item = &'a LogRow>) -> Vec<BodyBlock> {
    let bodies = |row: &'a LogRow| RowBodies {
        id: row.id,
        org: row.org_id,
        conversation: Conversation {
            session: row.session_id.as_deref(),
            user: row.user.as_deref(),
            key: row.key_id,
        },
        request: &row.request,
        response: &row.response,
    };
    blocks_of(rows.into_iter().filter(|row| has_bodies(row)).map(bodies))
}

/// The block of each row that has bodies.
pub(super) fn by_row(blocks: &[BodyBlock]) -> HashMap<i64, i64> {
    blocks.iter().flat_map(|block| block.ids.iter().map(|id| (*id, block.id()))).collect()
}

pub(super) async fn add(tx: &mut Tx, blocks: Vec<BodyBlock>) -> Result<(), StoreError> {
    BLOCKS.run(tx, blocks.into_iter().map(|block| args![block.id(), block.last_id, block.bytes])).await
}

/// Adds bodies to rows that were read from `stored`. A row whose block is damaged is one without stored bodies.
pub(super) async fn add_to(logs: &Db, rows: &mut [LogRow], stored: &[Row]) -> Result<(), StoreError> {
    let mut bodies = read(logs, stored).await?;
    for (row, stored) in rows.iter_mut().zip(stored) {
        if let Some(bodies) = bodies.remove(&row.id) {
            (row.request, row.response) = bodies;
        } else if stored.get::<Option<i64>>("body_block")?.is_some() {
            (row.request_stored, row.response_stored) = (BodyStorage::Off, BodyStorage::Off);
        }
    }
    Ok(())
}

/// The bodies of rows, which were read with their ids and blocks.
async fn read(logs: &Db, rows: &[Row]) -> Result<HashMap<i64, Bodies>, StoreError> {
    let (mut wanted, mut blocks, mut earlier) = (HashSet::new(), Vec::new(), Vec::new());
    for row in rows {
        let id: i64 = row.get("id")?;
        match row.get::<Option<i64>>("body_block")? {
            Some(block) => {
                wanted.insert(id);
                blocks.push(block);
            }
            None => earlier.push(id),
        }
    }
    blocks.sort_unstable();
    blocks.dedup();
    let mut found = read_earlier(logs, &earlier).await?;
    let sql = format!("SELECT id, bodies FROM log_body_blocks WHERE {}", in_ids(logs.dialect(), "id", 1));
    for some in blocks.chunks(BLOCKS_AT_ONCE) {
        for row in logs.all(AssertSqlSafe(sql.clone()), args![id_list(some.iter().copied())]).await? {
            let (block, bytes): (i64, Vec<u8>) = (row.get("id")?, row.get("bodies")?);
            found.extend(read_bodies(block, &bytes, |id| wanted.contains(&id)).unwrap_or_default());
        }
    }
    Ok(found)
}

async fn read_earlier(logs: &Db, ids: &[i64]) -> Result<HashMap<i64, Bodies>, StoreError> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let these = in_ids(logs.dialect(), "id", 1);
    let sql = format!("SELECT id, request, response FROM log_bodies WHERE {these}");
    let rows = logs.all(AssertSqlSafe(sql), args![id_list(ids.iter().copied())]).await?;
    rows.iter().map(|row| Ok((row.get("id")?, (row.get("request")?, row.get("response")?)))).collect()
}

/// Deletes the blocks among these whose rows are all deleted. The rows of an organization are deleted in the order of
/// their ids, `last` being the last.
pub(super) async fn delete_blocks(tx: &mut Tx, blocks: &HashSet<i64>, last: i64) -> Result<(), StoreError> {
    let these = in_ids(tx.dialect(), "id", 1);
    let sql = format!("DELETE FROM log_body_blocks WHERE {these} AND last_id <= $2");
    tx.exec(AssertSqlSafe(sql), args![id_list(blocks.iter().copied()), last]).await.map(|_| ())
}
