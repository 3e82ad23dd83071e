//! Monthly partitions (UTC) of the audit log on PostgreSQL. The default partition takes entries of months that have none.

use gateway_core::time::{DAY, Timestamp};

use crate::db::Dialect;
use crate::row::args;
use crate::{Db, StoreError};

/// The key of the advisory lock for creating partitions.
const LOCK: i64 = 0x6761_7465_7761_790e;

/// A month, as the timestamps of its start and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Month {
    start: Timestamp,
    end: Timestamp,
}

impl Month {
    fn of(at: Timestamp) -> Option<Self> {
        let start = start_of(at)?;
        // No month has more than 31 days, and none fewer than 4.
        let end = start_of(start.plus(31 * DAY + 4 * DAY))?;
        Some(Self { start, end })
    }

    /// `audit_entries_202611`
    fn partition(self) -> String {
        let digits: String = self.start.to_string().chars().take(7).filter(char::is_ascii_digit).collect();
        format!("audit_entries_{digits}")
    }
}

fn start_of(at: Timestamp) -> Option<Timestamp> {
    let text = at.to_string();
    format!("{}-01T00:00:00Z", text.get(..7)?).parse().ok()
}

/// Creates the partitions of this month and the next one.
pub async fn ensure_partitions(db: &Db, now: Timestamp) -> Result<(), StoreError> {
    if db.dialect() == Dialect::Sqlite {
        return Ok(());
    }
    let Some(month) = Month::of(now) else { return Ok(()) };
    for month in [Some(month), Month::of(month.end)].into_iter().flatten() {
        create(db, month).await?;
    }
    Ok(())
}

async fn create(db: &Db, month: Month) -> Result<(), StoreError> {
    let name = month.partition();
    let mut tx = db.begin().await?;
    tx.exec("SELECT pg_advisory_xact_lock($1)", args![LOCK]).await?;
    let known = tx
        .opt(
            "SELECT 1 AS one FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
             WHERE i.inhparent = to_regclass('audit_entries') AND c.relname = $1",
            args![&name],
        )
        .await?;
    // Entries that the default partition has taken stay there: the month then has no partition of its own.
    let taken = tx
        .opt(
            "SELECT 1 AS one FROM audit_entries_default WHERE at >= $1 AND at < $2 LIMIT 1",
            args![month.start, month.end],
        )
        .await?;
    if known.is_none() && taken.is_none() {
        let (from, to) = (month.start.0, month.end.0);
        tx.script(format!(
            "SET LOCAL lock_timeout = '2s'; \
             CREATE TABLE {name} (LIKE audit_entries INCLUDING ALL); \
             ALTER TABLE audit_entries ATTACH PARTITION {name} FOR VALUES FROM ({from}) TO ({to})"
        ))
        .await?;
    }
    tx.commit().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_follow_each_other_without_a_gap() {
        let mut month = Month::of("2027-12-31T23:59:59.999Z".parse().unwrap()).unwrap();
        assert_eq!(month.partition(), "audit_entries_202712");
        for name in ["202801", "202802", "202803"] {
            let next = Month::of(month.end).unwrap();
            assert_eq!(next.partition(), format!("audit_entries_{name}"));
            assert_eq!(next.start, month.end);
            month = next;
        }
    }
}
