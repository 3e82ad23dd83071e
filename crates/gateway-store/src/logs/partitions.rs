//! Daily partitions (UTC) of the log tables on PostgreSQL, so that old days are dropped instead of deleted row by row.
//! The partitions of a day are created before its first row is inserted, so no default partition is needed.

use std::collections::BTreeSet;

use gateway_core::logs::{LOG_EPOCH, first_log_id, log_id_time};
use gateway_core::time::{DAY, Timestamp};
use sqlx::AssertSqlSafe;

use crate::db::Dialect;
use crate::row::args;
use crate::{Db, StoreError, Tx};

const ROWS: &str = "log_rows";
const TABLES: [&str; 4] = [ROWS, "log_bodies", "log_words", NEWEST];
/// The table that was added last: a day that an earlier version created lacks it.
const NEWEST: &str = "log_body_blocks";
/// The key of the advisory lock for creating and dropping partitions.
const LOCK: i64 = 0x6761_7465_7761_7902;

/// A day, as the timestamp of its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Day(pub i64);

impl Day {
    pub(super) fn of(at: Timestamp) -> Self {
        Self(at.0.div_euclid(DAY) * DAY)
    }

    fn next(self) -> Self {
        Self(self.0 + DAY)
    }

    /// `20261119`
    fn name(self) -> String {
        Timestamp(self.0).to_string().chars().take(10).filter(char::is_ascii_digit).collect()
    }

    fn parse(name: &str) -> Option<Self> {
        let (year, month, day) = (name.get(0..4)?, name.get(4..6)?, name.get(6..8)?);
        let midnight: Timestamp = format!("{year}-{month}-{day}T00:00:00Z").parse().ok()?;
        (name.len() == 8).then_some(Self(midnight.0))
    }
}

/// Creates the partitions that rows with these ids need.
pub(super) async fn ensure(logs: &Db, ids: impl IntoIterator<Item = i64>) -> Result<(), StoreError> {
    let days: BTreeSet<Day> = ids.into_iter().map(|id| Day::of(log_id_time(id.max(0)))).collect();
    ensure_days(logs, days).await
}

pub(super) async fn ensure_days(logs: &Db, days: BTreeSet<Day>) -> Result<(), StoreError> {
    if logs.dialect() == Dialect::Sqlite {
        return Ok(());
    }
    for day in days {
        let probe = logs.opt(PROBE, args![NEWEST, partition(NEWEST, day)]).await?;
        if probe.is_none() {
            create(logs, day).await?;
        }
    }
    Ok(())
}

/// Queries the catalogue, because a connection caches that `to_regclass` found no table.
const PROBE: &str = "SELECT 1 AS one FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
    WHERE i.inhparent = to_regclass($1) AND c.relname = $2";

/// The days with partitions, oldest first.
pub(super) async fn days(logs: &Db) -> Result<Vec<Day>, StoreError> {
    let rows = logs
        .all(
            "SELECT CAST(c.relname AS TEXT) AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
             WHERE i.inhparent = to_regclass('log_rows') ORDER BY c.relname",
            Vec::new(),
        )
        .await?;
    let mut days = Vec::new();
    for row in rows {
        let name: String = row.get("name")?;
        days.extend(name.strip_prefix("log_rows_").and_then(Day::parse));
    }
    Ok(days)
}

/// Drops the partitions of a day; returns the number of rows in them.
pub(super) async fn drop_day(logs: &Db, day: Day) -> Result<u64, StoreError> {
    let mut tx = logs.begin().await?;
    tx.exec("SELECT pg_advisory_xact_lock($1)", args![LOCK]).await?;
    // Does not wait long for readers of the table, because later queries queue behind the lock. The next sweep retries.
    tx.script("SET LOCAL lock_timeout = '2s'".into()).await?;
    // Counting and removing the files of a large day may take longer than a statement otherwise may.
    tx.lift_timeout().await?;
    let count = format!("SELECT COUNT(*) AS n FROM {}", partition("log_rows", day));
    let removed: i64 = match tx.opt(AssertSqlSafe(count), Vec::new()).await? {
        Some(row) => row.get("n")?,
        None => 0,
    };
    for table in TABLES {
        tx.script(format!("DROP TABLE IF EXISTS {}", partition(table, day))).await?;
    }
    tx.exec(
        "DELETE FROM log_unindexed WHERE id >= $1 AND id < $2",
        args![first_log_id(Timestamp(day.0)), first_log_id(Timestamp(day.next().0))],
    )
    .await?;
    tx.commit().await?;
    Ok(removed.max(0).cast_unsigned())
}

/// Whether all rows of the day are older than the id.
pub(super) fn ends_before(day: Day, id: i64) -> bool {
    first_log_id(Timestamp(day.next().0)) <= id
}

async fn create(logs: &Db, day: Day) -> Result<(), StoreError> {
    let mut tx = logs.begin().await?;
    tx.exec("SELECT pg_advisory_xact_lock($1)", args![LOCK]).await?;
    for table in TABLES {
        if tx.opt(PROBE, args![table, partition(table, day)]).await?.is_none() {
            create_one(&mut tx, table, day).await?;
        }
    }
    tx.commit().await
}

/// Lists and searches read the newest rows, and an index answers alone only where VACUUM has been: by default that is
/// after a fifth of a table is new, so the newest rows of a large day are the slow ones.
const VACUUM_OFTEN: &str =
    "WITH (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000)";

/// Creates a separate table and attaches it, which does not block readers and writers of other days.
async fn create_one(tx: &mut Tx, table: &str, day: Day) -> Result<(), StoreError> {
    let name = partition(table, day);
    // Ids begin at LOG_EPOCH. The first partition includes everything before.
    let from =
        if day.0 <= LOG_EPOCH { "MINVALUE".into() } else { first_log_id(Timestamp(day.0)).to_string() };
    let to = first_log_id(Timestamp(day.next().0));
    let vacuum = if table == ROWS { VACUUM_OFTEN } else { "" };
    tx.script(format!(
        "CREATE TABLE {name} (LIKE {table} INCLUDING ALL) {vacuum}; \
         ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({from}) TO ({to})"
    ))
    .await
}

fn partition(table: &str, day: Day) -> String {
    format!("{table}_{}", day.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_named_by_its_date() {
        let day = Day::of("2026-11-19T23:59:59.999Z".parse().unwrap());
        assert_eq!(day.name(), "20261119");
        assert_eq!(Day::parse("20261119"), Some(day));
        assert_eq!(day.next().name(), "20261120");
        assert_eq!(Day::parse("2026111"), None);
        assert_eq!(Day::parse("by_org"), None);
    }
}
