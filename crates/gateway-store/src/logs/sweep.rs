//! Retention. Every organization keeps its rows for its own number of days, or else for the default; rows go with their
//! bodies and words, sessions when their last request goes. On PostgreSQL a day that nobody keeps any longer is dropped
//! as a whole, so an organization with the longest retention keeps up to a day more; all else is deleted in slices, each
//! a short transaction of its own. Usage outlives rows: by the hour for 400 days (of users, as long as
//! rows are kept at most), by the day for good.

use std::collections::{BTreeMap, BTreeSet};

use gateway_core::ids::OrgId;
use gateway_core::logs::first_log_id;
use gateway_core::time::{DAY, Timestamp};
use sqlx::AssertSqlSafe;

use super::bulk::{id_list, in_ids};
use super::partitions::{self, Day};
use super::rollup::Grain;
use crate::db::Dialect;
use crate::row::args;
use crate::{Db, StoreError};

/// Rows per transaction, and transactions per call.
const SLICE: i64 = 1_000;
const MOST_SLICES: u32 = 200;
const HOURS_KEPT_DAYS: u32 = 400;

/// Removes what is older than it may be; answers how many rows that were. A call ends after a bounded amount of work: it
/// is to be called again soon when it answers more than nothing.
pub async fn sweep(
    logs: &Db,
    now: Timestamp,
    default_days: u32,
    overrides: &[(OrgId, u32)],
) -> Result<u64, StoreError> {
    let longest = overrides.iter().map(|(_, days)| *days).fold(default_days, u32::max);
    let mut removed = 0;
    if logs.dialect() == Dialect::Postgres {
        let ahead = [Day::of(now), Day::of(now.plus(DAY))];
        partitions::ensure_days(logs, BTreeSet::from(ahead)).await?;
        for day in partitions::days(logs).await? {
            if partitions::ends_before(day, cutoff(now, longest)) {
                removed += partitions::drop_day(logs, day).await?;
            }
        }
    }
    let mut slices = 0;
    for (org, days) in organizations(logs, default_days, overrides).await? {
        let by_day = logs.dialect() == Dialect::Postgres && days == longest;
        while !by_day && slices < MOST_SLICES {
            let gone = remove_slice(logs, org, cutoff(now, days)).await?;
            if gone == 0 {
                break;
            }
            slices += 1;
            removed += gone;
        }
        forget_sessions(logs, org, cutoff(now, days), now.plus(-i64::from(days) * DAY)).await?;
    }
    for (grain, days) in [(Grain::Hours, longest.max(HOURS_KEPT_DAYS)), (Grain::UserHours, longest)] {
        forget_hours(logs, grain, now.plus(-i64::from(days) * DAY)).await?;
    }
    Ok(removed)
}

fn cutoff(now: Timestamp, days: u32) -> i64 {
    first_log_id(now.plus(-i64::from(days) * DAY))
}

/// Every organization that ever had a row, with the days that it keeps them.
async fn organizations(
    logs: &Db,
    default_days: u32,
    overrides: &[(OrgId, u32)],
) -> Result<BTreeMap<OrgId, u32>, StoreError> {
    let mut all = BTreeMap::new();
    for row in logs.all("SELECT DISTINCT org_id FROM usage_dims WHERE cube = 0", Vec::new()).await? {
        all.insert(row.get("org_id")?, default_days);
    }
    all.extend(overrides.iter().copied());
    Ok(all)
}

async fn remove_slice(logs: &Db, org: OrgId, before: i64) -> Result<u64, StoreError> {
    let old = logs
        .all(
            "SELECT id FROM log_rows WHERE org_id = $1 AND id < $2 ORDER BY id LIMIT $3",
            args![org, before, SLICE],
        )
        .await?;
    if old.is_empty() {
        return Ok(0);
    }
    let list = id_list(old.iter().map(|row| row.get("id")).collect::<Result<Vec<i64>, _>>()?);
    let words = match logs.dialect() {
        Dialect::Sqlite => "rowid",
        Dialect::Postgres => "id",
    };
    let mut tx = logs.begin().await?;
    let mut removed = 0;
    for (table, column) in
        [("log_unindexed", "id"), ("log_words", words), ("log_bodies", "id"), ("log_rows", "id")]
    {
        let sql = format!("DELETE FROM {table} WHERE {}", in_ids(tx.dialect(), column, 1));
        removed = tx.exec(AssertSqlSafe(sql), args![list.as_str()]).await?;
    }
    tx.commit().await?;
    Ok(removed)
}

async fn forget_sessions(
    logs: &Db,
    org: OrgId,
    first_before: i64,
    seen_before: Timestamp,
) -> Result<(), StoreError> {
    logs.exec(
        "DELETE FROM log_sessions WHERE org_id = $1 AND id IN (SELECT id FROM log_sessions \
         WHERE org_id = $1 AND first_id < $2 AND last_seen_at < $3 ORDER BY first_id LIMIT $4)",
        args![org, first_before, seen_before, SLICE],
    )
    .await
    .map(|_| ())
}

async fn forget_hours(logs: &Db, grain: Grain, before: Timestamp) -> Result<(), StoreError> {
    let table = grain.table();
    let sql = format!(
        "DELETE FROM {table} WHERE (dim_id, at) IN (SELECT dim_id, at FROM {table} WHERE at < $1 ORDER BY at LIMIT $2)"
    );
    for _ in 0..MOST_SLICES {
        if logs.exec(AssertSqlSafe(sql.clone()), args![before, SLICE]).await? == 0 {
            break;
        }
    }
    Ok(())
}
