//! What each organization stored on a day, and what its quotas still admit. A row belongs to the day of its id.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use gateway_core::ids::OrgId;
use gateway_core::logs::{LogRow, log_id_time};
use gateway_core::time::{DAY, Timestamp};
use sqlx::AssertSqlSafe;

use super::bulk::Bulk;
use crate::row::args;
use crate::{Db, StoreError, Tx};

/// What a batch may store.
#[derive(Debug, Clone)]
pub struct BatchLimits {
    /// The quotas of organizations. Those that are not in it have none.
    pub quotas: HashMap<OrgId, DayQuota>,
    pub lines: LineLimits,
}

/// The quotas of an organization for one day. None is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DayQuota {
    pub rows: Option<u64>,
    pub body_bytes: Option<u64>,
}

/// The maximum number of lines of an organization in the roll-ups of a day. Beyond it, new users and models are counted
/// together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineLimits {
    pub by_user: i64,
    pub by_model: i64,
    /// Users whose spending is counted for budgets.
    pub spenders: i64,
}

impl BatchLimits {
    /// Whether an organization of these rows has a quota.
    pub(super) fn apply_to(&self, rows: &[LogRow]) -> bool {
        let is_limited = |quota: &DayQuota| *quota != DayQuota::default();
        rows.iter().any(|row| self.quotas.get(&row.org_id).is_some_and(is_limited))
    }
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self {
            quotas: HashMap::new(),
            lines: LineLimits { by_user: 50_000, by_model: 10_000, spenders: 100_000 },
        }
    }
}

/// What an organization has stored on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredDay {
    pub org: OrgId,
    pub day: Timestamp,
    pub rows: i64,
    pub body_bytes: i64,
}

/// How a new row is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Whole,
    WithoutBodies,
    /// Only in the roll-ups.
    Counted,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DayCounts {
    rows: i64,
    body_bytes: i64,
    pub(super) user_lines: i64,
    pub(super) model_lines: i64,
    pub(super) spend_lines: i64,
}

/// The counts of all organizations and days of a batch.
#[derive(Default)]
pub(super) struct BatchDays(BTreeMap<(OrgId, i64), DayCounts>);

pub(super) fn day_of(row: &LogRow) -> i64 {
    log_id_time(row.id).0.div_euclid(DAY) * DAY
}

impl BatchDays {
    /// Reads the counts. They change until the caller holds the lock of usage.
    pub(super) async fn read<'a>(
        tx: &mut Tx,
        rows: impl Iterator<Item = &'a LogRow>,
    ) -> Result<Self, StoreError> {
        let mut days: BTreeMap<(OrgId, i64), DayCounts> = BTreeMap::new();
        let mut orgs_by_day: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
        for row in rows {
            days.entry((row.org_id, day_of(row))).or_default();
            orgs_by_day.entry(day_of(row)).or_default().insert(row.org_id.to_string());
        }
        let sql = format!(
            "SELECT org_id, stored_rows, body_bytes, user_lines, model_lines, spend_lines FROM log_days \
             WHERE day = $1 AND {}",
            tx.dialect().in_texts("org_id", 2)
        );
        for (day, orgs) in orgs_by_day {
            let list = serde_json::to_string(&orgs).unwrap_or_default();
            for row in tx.all(AssertSqlSafe(sql.clone()), args![day, list]).await? {
                let counts = DayCounts {
                    rows: row.get("stored_rows")?,
                    body_bytes: row.get("body_bytes")?,
                    user_lines: row.get("user_lines")?,
                    model_lines: row.get("model_lines")?,
                    spend_lines: row.get("spend_lines")?,
                };
                days.insert((row.get("org_id")?, day), counts);
            }
        }
        Ok(Self(days))
    }

    /// Counts a row, and decides how much of it its organization's quota admits.
    pub(super) fn admit(&mut self, row: &LogRow, quotas: &HashMap<OrgId, DayQuota>) -> Admission {
        let quota = quotas.get(&row.org_id).copied().unwrap_or_default();
        let exceeds = |count: i64, limit: Option<u64>| {
            limit.is_some_and(|limit| u64::try_from(count).is_ok_and(|count| count > limit))
        };
        let counts = self.0.entry((row.org_id, day_of(row))).or_default();
        if exceeds(counts.rows + 1, quota.rows) {
            return Admission::Counted;
        }
        counts.rows += 1;
        let bytes = i64::try_from(row.request.len() + row.response.len()).unwrap_or(i64::MAX);
        let sum = counts.body_bytes.saturating_add(bytes);
        if bytes > 0 && exceeds(sum, quota.body_bytes) {
            return Admission::WithoutBodies;
        }
        counts.body_bytes = sum;
        Admission::Whole
    }

    pub(super) fn counts(&mut self, org: OrgId, day: i64) -> &mut DayCounts {
        self.0.entry((org, day)).or_default()
    }

    pub(super) async fn write(&self, tx: &mut Tx) -> Result<(), StoreError> {
        let lines = self.0.iter().map(|((org, day), counts)| {
            let DayCounts { rows, body_bytes, user_lines, model_lines, spend_lines } = *counts;
            args![*org, *day, rows, body_bytes, user_lines, model_lines, spend_lines]
        });
        UPSERT.run(tx, lines).await
    }

    pub(super) fn stored(&self) -> Vec<StoredDay> {
        let days = self.0.iter().map(|((org, day), counts)| StoredDay {
            org: *org,
            day: Timestamp(*day),
            rows: counts.rows,
            body_bytes: counts.body_bytes,
        });
        days.collect()
    }
}

/// Deletes the counts of days before this time, and the ids of rows that were only counted, at most `limit` of them.
pub(super) async fn delete_before(
    logs: &Db,
    (before, first_id): (Timestamp, i64),
    limit: i64,
) -> Result<u64, StoreError> {
    let days = "DELETE FROM log_days WHERE (org_id, day) IN \
                (SELECT org_id, day FROM log_days WHERE day < $1 LIMIT $2)";
    let rows = "DELETE FROM log_counted WHERE id IN (SELECT id FROM log_counted WHERE id < $1 LIMIT $2)";
    let day = before.0.div_euclid(DAY) * DAY;
    let mut deleted = 0;
    // Readers look first: a sweep that finds nothing does not take SQLite's write lock.
    if logs.opt("SELECT 1 AS found FROM log_days WHERE day < $1 LIMIT 1", args![day]).await?.is_some() {
        deleted += logs.exec(days, args![day, limit]).await?;
    }
    if logs.opt("SELECT 1 AS found FROM log_counted WHERE id < $1 LIMIT 1", args![first_id]).await?.is_some()
    {
        deleted += logs.exec(rows, args![first_id, limit]).await?;
    }
    Ok(deleted)
}

pub(super) static COUNTED: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::new("INSERT INTO log_counted (id)", "(?)", ""));

static UPSERT: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO log_days (org_id, day, stored_rows, body_bytes, user_lines, model_lines, spend_lines)",
        "(?,?,?,?,?,?,?)",
        "ON CONFLICT (org_id, day) DO UPDATE SET stored_rows = excluded.stored_rows, \
         body_bytes = excluded.body_bytes, user_lines = excluded.user_lines, model_lines = excluded.model_lines, \
         spend_lines = excluded.spend_lines",
    )
});
