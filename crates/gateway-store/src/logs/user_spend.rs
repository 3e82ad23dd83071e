//! What end users spent by day, for their budgets. It is written in the transaction of the rows. Calls that cost nothing
//! and ingested spans are not counted.
//!
//! Callers choose the names of users, so those of an organization that are told apart on a day have a maximum. Users
//! beyond it are counted together. As long as the day lasts, a user without a line of its own counts as one of them:
//! they share one budget rather than to have none.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use gateway_core::budget::spending_user;
use gateway_core::ids::OrgId;
use gateway_core::logs::{LogRow, LogSource};
use gateway_core::time::{DAY, Timestamp};
use gateway_core::totals::{cost_units, digest};
use rustc_hash::FxBuildHasher;
use sqlx::AssertSqlSafe;

use super::bulk::{Bulk, id_list, in_ids};
use super::days::{BatchDays, day_of};
use crate::row::args;
use crate::{Db, StoreError, Tx};

/// Longer than the longest period of a budget.
const RETENTION: i64 = 62 * DAY;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spend {
    cost: i64,
    /// Calls without a price.
    unpriced: i64,
}

impl Spend {
    fn add(&mut self, other: Self) {
        self.cost = self.cost.saturating_add(other.cost);
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
    }
}

/// What a user spent in a day, in units of 1e-12 USD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserDay {
    pub day: Timestamp,
    pub cost: i64,
    pub unpriced_calls: u64,
}

fn id_of(org: OrgId, user: &str) -> i64 {
    digest(&[Some(&org.to_string()), Some(&spending_user(user))])
}

/// The line of the users that are counted together.
fn id_of_others(org: OrgId) -> i64 {
    digest(&[Some(&org.to_string()), None])
}

/// Adds new rows. The caller holds the lock of usage.
pub(super) async fn add(
    tx: &mut Tx,
    rows: &[&LogRow],
    days: &mut BatchDays,
    max_lines: i64,
) -> Result<(), StoreError> {
    let mut by_user: HashMap<(i64, OrgId, &str), Spend, FxBuildHasher> = HashMap::default();
    for row in rows.iter().filter(|row| row.source != LogSource::Otel) {
        let spend = Spend { cost: row.cost_usd.map_or(0, cost_units), unpriced: i64::from(row.unpriced) };
        if let Some(user) = row.user.as_deref().filter(|_| spend != Spend::default()) {
            by_user.entry((day_of(row), row.org_id, user)).or_default().add(spend);
        }
    }
    let mut new: BTreeMap<i64, BTreeMap<(OrgId, i64), Spend>> = BTreeMap::new();
    for ((day, org, user), spend) in by_user {
        new.entry(day).or_default().entry((org, id_of(org, user))).or_default().add(spend);
    }
    for (day, lines) in new {
        let known = known_lines(tx, day, &lines).await?;
        let mut sums: BTreeMap<(OrgId, i64), Spend> = BTreeMap::new();
        for ((org, id), spend) in lines {
            let counts = days.counts(org, day);
            let is_known = known.contains_key(&id);
            let line = if is_known || counts.spend_lines < max_lines { id } else { id_of_others(org) };
            if !is_known && line == id {
                counts.spend_lines += 1;
            }
            let sum =
                sums.entry((org, line)).or_insert_with(|| known.get(&line).copied().unwrap_or_default());
            sum.add(spend);
        }
        let sums =
            sums.into_iter().map(|((org, id), Spend { cost, unpriced })| args![id, day, org, cost, unpriced]);
        UPSERT.run(tx, sums).await?;
    }
    Ok(())
}

/// The lines that the day has already, with those of the users that are counted together.
async fn known_lines(
    tx: &mut Tx,
    day: i64,
    lines: &BTreeMap<(OrgId, i64), Spend>,
) -> Result<HashMap<i64, Spend>, StoreError> {
    let orgs: BTreeSet<OrgId> = lines.keys().map(|(org, _)| *org).collect();
    let ids = lines.keys().map(|(_, id)| *id).chain(orgs.into_iter().map(id_of_others));
    let list = id_list(ids);
    let these = in_ids(tx.dialect(), "id", 2);
    let sql = format!("SELECT id, cost, unpriced FROM user_spend WHERE day = $1 AND {these}");
    let rows = tx.all(AssertSqlSafe(sql), args![day, list]).await?;
    rows.iter()
        .map(|row| Ok((row.get("id")?, Spend { cost: row.get("cost")?, unpriced: row.get("unpriced")? })))
        .collect()
}

/// What each of these users spent since the start of a day, in their order. `today` is the start of the current day.
pub(super) async fn of_users(
    tx: &mut Tx,
    org: OrgId,
    (since, today): (Timestamp, Timestamp),
    users: &[&str],
) -> Result<Vec<Vec<UserDay>>, StoreError> {
    let others = id_of_others(org);
    let ids: Vec<i64> = users.iter().map(|user| id_of(org, user)).collect();
    let list = id_list(ids.iter().copied().chain([others]));
    let these = in_ids(tx.dialect(), "id", 2);
    let sql = format!("SELECT id, day, cost, unpriced FROM user_spend WHERE day >= $1 AND {these}");
    let mut by_id: HashMap<i64, Vec<UserDay>> = HashMap::new();
    for row in tx.all(AssertSqlSafe(sql), args![since, list]).await? {
        let unpriced_calls = u64::try_from(row.get::<i64>("unpriced")?).unwrap_or(0);
        let day = UserDay { day: row.get("day")?, cost: row.get("cost")?, unpriced_calls };
        by_id.entry(row.get("id")?).or_default().push(day);
    }
    let shared: Option<UserDay> =
        by_id.get(&others).and_then(|days| days.iter().find(|day| day.day == today)).copied();
    let days_of = |id: &i64| {
        let mut days = by_id.get(id).cloned().unwrap_or_default();
        if !days.iter().any(|day| day.day == today) {
            days.extend(shared);
        }
        days
    };
    Ok(ids.iter().map(days_of).collect())
}

/// Deletes some of the days that no budget counts any more.
pub(super) async fn delete_old(logs: &Db, now: Timestamp, limit: i64) -> Result<u64, StoreError> {
    let oldest = now.plus(-RETENTION);
    // Readers look first: a sweep that finds nothing does not take SQLite's write lock.
    if logs.opt("SELECT 1 AS found FROM user_spend WHERE day < $1 LIMIT 1", args![oldest]).await?.is_none() {
        return Ok(0);
    }
    let sql =
        "DELETE FROM user_spend WHERE (id, day) IN (SELECT id, day FROM user_spend WHERE day < $1 LIMIT $2)";
    logs.exec(sql, args![oldest, limit]).await
}

static UPSERT: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO user_spend (id, day, org_id, cost, unpriced)",
        "(?,?,?,?,?)",
        "ON CONFLICT (id, day) DO UPDATE SET cost = excluded.cost, unpriced = excluded.unpriced",
    )
});
