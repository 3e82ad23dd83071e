//! The sum of closed days by provider, model and status. All-time metrics are this sum plus the days behind it, so a
//! scrape does not read the whole history.

use std::sync::LazyLock;

use gateway_core::time::{DAY, Timestamp};
use gateway_core::totals::Totals;
use sqlx::AssertSqlSafe;

use super::bulk::{Bulk, id_list, in_ids};
use super::rollup::Cube;
use super::write::lock_usage;
use crate::row::args;
use crate::{Db, StoreError, Tx};

/// Days are closed when they ended this long ago, because most late rows have arrived by then.
const OPEN: i64 = 2 * DAY;
/// Dimensions per transaction.
const DIMS: i64 = 200;
/// Transactions per call.
const MAX_TRANSACTIONS: u32 = 200;

static UPSERT: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO usage_closed (dim_id, until, totals)",
        "(?,?,?)",
        "ON CONFLICT (dim_id) DO UPDATE SET until = excluded.until, totals = excluded.totals",
    )
});

/// Closes days that are over; returns how many sums were extended. Its work is bounded: call it again soon when it
/// returns more than 0.
pub async fn close_days(logs: &Db, now: Timestamp) -> Result<u64, StoreError> {
    let until = (now.0 - OPEN).div_euclid(DAY) * DAY;
    let mut closed = 0;
    for _ in 0..MAX_TRANSACTIONS {
        let dims = logs.all(AssertSqlSafe(open_dims("d.id", "")), args![until, DIMS]).await?;
        if dims.is_empty() {
            break;
        }
        let ids = dims.iter().map(|row| row.get("id")).collect::<Result<Vec<i64>, _>>()?;
        let mut tx = logs.begin().await?;
        lock_usage(&mut tx).await?;
        extend(&mut tx, &ids, until).await?;
        tx.commit().await?;
        closed += ids.len() as u64;
    }
    Ok(closed)
}

/// Dimensions with days before `$1` that are not closed yet, at most `$2`.
fn open_dims(columns: &str, condition: &str) -> String {
    format!(
        "SELECT {columns} FROM usage_dims d LEFT JOIN usage_closed c ON c.dim_id = d.id WHERE d.cube = {} \
         AND EXISTS (SELECT 1 FROM usage_days u WHERE u.dim_id = d.id AND u.at >= COALESCE(c.until, 0) \
         AND u.at < $1){condition} LIMIT $2",
        Cube::Models.number()
    )
}

async fn extend(tx: &mut Tx, ids: &[i64], until: i64) -> Result<(), StoreError> {
    let columns = "d.id, c.totals AS closed, (SELECT string_agg(u.totals, ';') FROM usage_days u \
                   WHERE u.dim_id = d.id AND u.at >= COALESCE(c.until, 0) AND u.at < $1) AS packed";
    let condition = format!(" AND {}", in_ids(tx.dialect(), "d.id", 3));
    let list = id_list(ids.iter().copied());
    let rows = tx.all(AssertSqlSafe(open_dims(columns, &condition)), args![until, DIMS, list]).await?;
    let mut sums = Vec::new();
    for row in rows {
        let (closed, packed) = (row.get::<Option<String>>("closed")?, row.get::<Option<String>>("packed")?);
        let totals = sum_packed(&[closed, packed]);
        sums.push(args![row.get::<i64>("id")?, until, totals.pack(until)]);
    }
    UPSERT.run(tx, sums.into_iter()).await
}

/// Adds new rows of closed days to the sum. The caller holds the lock of usage.
pub(super) async fn add_late(tx: &mut Tx, new: &[(i64, i64, Totals)]) -> Result<(), StoreError> {
    let sql =
        format!("SELECT dim_id, until, totals FROM usage_closed WHERE {}", in_ids(tx.dialect(), "dim_id", 1));
    let list = id_list(new.iter().map(|(dim, _, _)| *dim));
    let mut changed = Vec::new();
    for row in tx.all(AssertSqlSafe(sql), args![list]).await? {
        let (dim, until): (i64, i64) = (row.get("dim_id")?, row.get("until")?);
        let late = || new.iter().filter(|(id, day, _)| *id == dim && *day < until);
        if late().next().is_some() {
            let mut totals = sum_packed(&[Some(row.get("totals")?), None]);
            late().for_each(|(_, _, added)| totals.add(added));
            changed.push(args![dim, until, totals.pack(until)]);
        }
    }
    UPSERT.run(tx, changed.into_iter()).await
}

/// Adds up packed totals.
pub(super) fn sum_packed(texts: &[Option<String>]) -> Totals {
    let mut totals = Totals::default();
    for text in texts.iter().flatten() {
        text.split(';').for_each(|one| totals.add_packed(one));
    }
    totals
}
