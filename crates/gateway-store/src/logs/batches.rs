//! The rows of the latest batches in the order in which they were stored. A row's id is its start, so a live tail cannot
//! find the rows of other nodes by their ids. Writers count their batches and commit one at a time, so batches become
//! visible in their order.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use gateway_core::ids::OrgId;
use gateway_core::logs::LogRow;

use super::bulk::{Bulk, id_list};
use crate::row::args;
use crate::{Db, StoreError, Tx};

/// Batches that are kept. A reader that is further behind has to find the rows by their ids.
const KEPT: i64 = 5_000;
/// Old batches are removed once in this many.
const PRUNE_INTERVAL: i64 = 64;

static INSERT: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::new("INSERT INTO log_batches (seq, org_id, ids)", "(?,?,?)", ""));

/// Records a batch. The caller holds the lock of usage.
pub(super) async fn add(tx: &mut Tx, rows: &[&LogRow]) -> Result<(), StoreError> {
    let counted = tx.opt("UPDATE log_batch_counter SET seq = seq + 1 RETURNING seq", Vec::new()).await?;
    let seq: i64 = counted.map_or(Ok(0), |row| row.get("seq"))?;
    let mut by_org: BTreeMap<OrgId, Vec<i64>> = BTreeMap::new();
    for row in rows {
        by_org.entry(row.org_id).or_default().push(row.id);
    }
    INSERT.run(tx, by_org.into_iter().map(|(org, ids)| args![seq, org, id_list(ids)])).await?;
    if seq % PRUNE_INTERVAL == 0 {
        tx.exec("DELETE FROM log_batches WHERE seq <= $1", args![seq - KEPT]).await?;
    }
    Ok(())
}

/// The number of the last batch.
pub async fn last_batch(logs: &Db) -> Result<i64, StoreError> {
    let row = logs.opt("SELECT seq FROM log_batch_counter", Vec::new()).await?;
    row.map_or(Ok(0), |row| row.get("seq"))
}

/// The rows of some batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batches {
    /// The number of the last of them.
    pub last: i64,
    pub ids: Vec<i64>,
    /// Earlier batches may have been removed before they were read.
    pub is_incomplete: bool,
}

/// The organization's rows in the batches after this one, of at most `limit` batches.
pub async fn batches_after(logs: &Db, org: OrgId, after: i64, limit: i64) -> Result<Batches, StoreError> {
    let end = last_batch(logs).await?;
    let rows = logs
        .all(
            "SELECT seq, ids FROM log_batches WHERE org_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4",
            args![org, after, end, limit],
        )
        .await?;
    let mut batches = Batches { last: end, ids: Vec::new(), is_incomplete: end - KEPT > after };
    for row in &rows {
        let ids: String = row.get("ids")?;
        batches.ids.extend(ids.split(',').filter_map(|id| id.parse::<i64>().ok()));
    }
    if i64::try_from(rows.len()).is_ok_and(|count| count == limit)
        && let Some(last) = rows.last()
    {
        batches.last = last.get("seq")?;
    }
    Ok(batches)
}
