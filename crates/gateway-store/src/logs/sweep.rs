//! Retention of log rows, by default or by organization. Bodies and index entries are deleted with their rows, and a
//! session with its last row.
//!
//! On PostgreSQL, days past the longest retention are dropped as partitions, so organizations with that retention keep
//! up to a day more. Everything else is deleted in short transactions. Daily usage is kept forever, hourly usage for
//! 400 days, and usage by user as long as the organization's rows.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use gateway_core::ids::OrgId;
use gateway_core::logs::first_log_id;
use gateway_core::time::{DAY, Timestamp};
use sqlx::AssertSqlSafe;

use super::bulk::{id_list, in_ids};
use super::partitions::{self, Day};
use super::rollup::{Cube, Grain};
use super::write::lock_usage;
use super::{bodies, days, user_spend, words};
use crate::db::Dialect;
use crate::row::args;
use crate::{Db, StoreError};

/// Rows per transaction.
pub(super) const SWEEP_ROWS: i64 = 1_000;
/// Dimensions of users per transaction. Each may have hours and days of many years.
const SWEEP_DIMS: i64 = 50;
/// Transactions per call.
const MAX_TRANSACTIONS: u32 = 200;
const HOURLY_RETENTION_DAYS: u32 = 400;

/// Deletes rows, sessions and usage by user past their retention; returns how many. The work of one call is bounded: call it again soon when it
/// returns more than 0.
pub async fn sweep(
    logs: &Db,
    now: Timestamp,
    default_days: u32,
    overrides: &[(OrgId, u32)],
) -> Result<u64, StoreError> {
    let longest = overrides.iter().map(|(_, days)| *days).fold(default_days, u32::max);
    let mut removed = 0;
    if logs.dialect() == Dialect::Postgres {
        let upcoming = [Day::of(now), Day::of(now.plus(DAY))];
        partitions::ensure_days(logs, BTreeSet::from(upcoming)).await?;
        for day in partitions::days(logs).await? {
            if partitions::ends_before(day, cutoff(now, longest)) {
                removed += partitions::drop_day(logs, day).await?;
            }
        }
    }
    let mut budget = MAX_TRANSACTIONS;
    for (org, kept_days) in organizations(logs, default_days, overrides).await? {
        let by_partition = logs.dialect() == Dialect::Postgres && kept_days == longest;
        let oldest = now.plus(-i64::from(kept_days) * DAY);
        if !by_partition {
            removed += repeat(&mut budget, || delete_rows(logs, org, first_log_id(oldest))).await?;
        }
        removed += repeat(&mut budget, || delete_sessions(logs, org, oldest)).await?;
        removed += repeat(&mut budget, || delete_user_usage(logs, org, oldest)).await?;
    }
    for (grain, days) in [(Grain::Hours, longest.max(HOURLY_RETENTION_DAYS)), (Grain::UserHours, longest)] {
        let oldest = now.plus(-i64::from(days) * DAY);
        let mut budget = MAX_TRANSACTIONS;
        repeat(&mut budget, || delete_hours(logs, grain, oldest)).await?;
    }
    let mut budget = MAX_TRANSACTIONS;
    repeat(&mut budget, || words::remove_before(logs, cutoff(now, longest))).await?;
    let oldest = now.plus(-i64::from(longest) * DAY);
    let mut budget = MAX_TRANSACTIONS;
    repeat(&mut budget, || days::delete_before(logs, (oldest, first_log_id(oldest)), SWEEP_ROWS)).await?;
    let mut budget = MAX_TRANSACTIONS;
    repeat(&mut budget, || user_spend::delete_old(logs, now, SWEEP_ROWS)).await?;
    Ok(removed)
}

/// Repeats a deletion until it finds nothing or the budget of transactions is used up; returns how much was deleted.
async fn repeat<F: Future<Output = Result<u64, StoreError>>>(
    budget: &mut u32,
    delete: impl Fn() -> F,
) -> Result<u64, StoreError> {
    let mut removed = 0;
    while *budget > 0 {
        let deleted = delete().await?;
        if deleted == 0 {
            break;
        }
        *budget -= 1;
        removed += deleted;
    }
    Ok(removed)
}

fn cutoff(now: Timestamp, days: u32) -> i64 {
    first_log_id(now.plus(-i64::from(days) * DAY))
}

/// Every organization that ever had a row, with its retention in days.
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

pub(super) async fn delete_rows(logs: &Db, org: OrgId, before: i64) -> Result<u64, StoreError> {
    let old = logs
        .all(
            "SELECT id, body_block FROM log_rows WHERE org_id = $1 AND id < $2 ORDER BY id LIMIT $3",
            args![org, before, SWEEP_ROWS],
        )
        .await?;
    if old.is_empty() {
        return Ok(0);
    }
    let ids = old.iter().map(|row| row.get("id")).collect::<Result<Vec<i64>, _>>()?;
    let list = id_list(ids.iter().copied());
    let mut blocks = HashSet::new();
    for row in &old {
        blocks.extend(row.get::<Option<i64>>("body_block")?);
    }
    let counts = words::count_rows(logs, &ids).await?;
    let index_key = match logs.dialect() {
        Dialect::Sqlite => "rowid",
        Dialect::Postgres => "id",
    };
    let mut tx = logs.begin().await?;
    let mut removed = 0;
    for (table, column) in
        [("log_unindexed", "id"), ("log_words", index_key), ("log_bodies", "id"), ("log_rows", "id")]
    {
        let sql = format!("DELETE FROM {table} WHERE {}", in_ids(tx.dialect(), column, 1));
        removed = tx.exec(AssertSqlSafe(sql), args![list.as_str()]).await?;
    }
    bodies::delete_blocks(&mut tx, &blocks, ids.last().copied().unwrap_or_default()).await?;
    words::note_deleted(&mut tx, &counts).await?;
    tx.commit().await?;
    Ok(removed)
}

async fn delete_sessions(logs: &Db, org: OrgId, before: Timestamp) -> Result<u64, StoreError> {
    logs.exec(
        "DELETE FROM log_sessions WHERE org_id = $1 AND id IN (SELECT id FROM log_sessions \
         WHERE org_id = $1 AND first_id < $2 AND last_seen_at < $3 ORDER BY first_id LIMIT $4)",
        args![org, first_log_id(before), before, SWEEP_ROWS],
    )
    .await
}

/// Deletes the usage of users on days before this time, and the dimensions that have no usage any more. The names of
/// users are callers' texts, so they are kept no longer than rows.
async fn delete_user_usage(logs: &Db, org: OrgId, before: Timestamp) -> Result<u64, StoreError> {
    let day = Day::of(before).0;
    let sql = format!(
        "SELECT d.id FROM usage_dims d WHERE d.org_id = $1 AND d.cube IN ({}, {}) \
         AND (EXISTS (SELECT 1 FROM usage_days u WHERE u.dim_id = d.id AND u.at < $2) \
         OR NOT EXISTS (SELECT 1 FROM usage_days u WHERE u.dim_id = d.id)) LIMIT $3",
        Cube::Users.number(),
        Cube::UsersWhole.number()
    );
    let dims = logs.all(AssertSqlSafe(sql), args![org, day, SWEEP_DIMS]).await?;
    if dims.is_empty() {
        return Ok(0);
    }
    let list = id_list(dims.iter().map(|row| row.get("id")).collect::<Result<Vec<i64>, _>>()?);
    let mut tx = logs.begin().await?;
    // A writer must not add usage to a dimension that is being deleted.
    lock_usage(&mut tx).await?;
    let mut removed = 0;
    for table in [Grain::UserHours.table(), Grain::Days.table()] {
        let sql = format!("DELETE FROM {table} WHERE {} AND at < $2", in_ids(tx.dialect(), "dim_id", 1));
        removed += tx.exec(AssertSqlSafe(sql), args![list.as_str(), day]).await?;
    }
    let sql = format!(
        "DELETE FROM usage_dims WHERE {} AND NOT EXISTS (SELECT 1 FROM usage_days u WHERE u.dim_id = usage_dims.id)",
        in_ids(tx.dialect(), "id", 1)
    );
    removed += tx.exec(AssertSqlSafe(sql), args![list]).await?;
    tx.commit().await?;
    Ok(removed)
}

async fn delete_hours(logs: &Db, grain: Grain, before: Timestamp) -> Result<u64, StoreError> {
    let table = grain.table();
    let sql = format!(
        "DELETE FROM {table} WHERE (dim_id, at) IN (SELECT dim_id, at FROM {table} WHERE at < $1 ORDER BY at LIMIT $2)"
    );
    logs.exec(AssertSqlSafe(sql), args![before, SWEEP_ROWS]).await
}
