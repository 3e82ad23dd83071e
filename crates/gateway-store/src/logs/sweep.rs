//! Retention of log rows, by default or by organization. Bodies and index entries are deleted with their rows, and a
//! session with its last row.
//!
//! On PostgreSQL, days past the longest retention are dropped as partitions, so organizations with that retention keep
//! up to a day more. Everything else is deleted in short transactions. Daily usage is kept forever, hourly usage for
//! 400 days, and hourly usage of users as long as the rows.

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

/// Rows per transaction.
const SWEEP_ROWS: i64 = 1_000;
/// Transactions per call.
const MAX_TRANSACTIONS: u32 = 200;
const HOURLY_RETENTION_DAYS: u32 = 400;

/// Deletes rows past their retention; returns how many. The work of one call is bounded: call it again soon when it
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
    let mut transactions = 0;
    for (org, days) in organizations(logs, default_days, overrides).await? {
        let by_partition = logs.dialect() == Dialect::Postgres && days == longest;
        while !by_partition && transactions < MAX_TRANSACTIONS {
            let deleted = delete_rows(logs, org, cutoff(now, days)).await?;
            if deleted == 0 {
                break;
            }
            transactions += 1;
            removed += deleted;
        }
        delete_sessions(logs, org, cutoff(now, days), now.plus(-i64::from(days) * DAY)).await?;
    }
    for (grain, days) in [(Grain::Hours, longest.max(HOURLY_RETENTION_DAYS)), (Grain::UserHours, longest)] {
        delete_hours(logs, grain, now.plus(-i64::from(days) * DAY)).await?;
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

async fn delete_rows(logs: &Db, org: OrgId, before: i64) -> Result<u64, StoreError> {
    let old = logs
        .all(
            "SELECT id FROM log_rows WHERE org_id = $1 AND id < $2 ORDER BY id LIMIT $3",
            args![org, before, SWEEP_ROWS],
        )
        .await?;
    if old.is_empty() {
        return Ok(0);
    }
    let list = id_list(old.iter().map(|row| row.get("id")).collect::<Result<Vec<i64>, _>>()?);
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
    tx.commit().await?;
    Ok(removed)
}

async fn delete_sessions(
    logs: &Db,
    org: OrgId,
    first_before: i64,
    seen_before: Timestamp,
) -> Result<(), StoreError> {
    logs.exec(
        "DELETE FROM log_sessions WHERE org_id = $1 AND id IN (SELECT id FROM log_sessions \
         WHERE org_id = $1 AND first_id < $2 AND last_seen_at < $3 ORDER BY first_id LIMIT $4)",
        args![org, first_before, seen_before, SWEEP_ROWS],
    )
    .await
    .map(|_| ())
}

async fn delete_hours(logs: &Db, grain: Grain, before: Timestamp) -> Result<(), StoreError> {
    let table = grain.table();
    let sql = format!(
        "DELETE FROM {table} WHERE (dim_id, at) IN (SELECT dim_id, at FROM {table} WHERE at < $1 ORDER BY at LIMIT $2)"
    );
    for _ in 0..MAX_TRANSACTIONS {
        if logs.exec(AssertSqlSafe(sql.clone()), args![before, SWEEP_ROWS]).await? == 0 {
            break;
        }
    }
    Ok(())
}
