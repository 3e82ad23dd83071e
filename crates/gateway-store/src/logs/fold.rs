//! The lines of an organization in the roll-ups of a day have a maximum, because callers choose users and models, and
//! daily usage is kept forever. Beyond it, users and models that are new on that day are counted as `other`. Sums by
//! organization, key, application, team and status stay exact.

use std::collections::{BTreeMap, HashMap, HashSet};

use gateway_core::ids::OrgId;
use gateway_core::totals::Totals;
use rustc_hash::FxBuildHasher;
use sqlx::AssertSqlSafe;

use super::bulk::{id_list, in_ids};
use super::days::{BatchDays, LineLimits};
use super::rollup::{Cube, Dims, RollupKey};
use crate::row::args;
use crate::{StoreError, Tx};

/// The user or model of what is counted together.
pub(super) const OTHER: &str = "other";

pub(super) type ByKey<'a> = HashMap<RollupKey<'a>, Totals, FxBuildHasher>;

/// Folds what is beyond the limits. None if all organizations are far from them, as almost always. Reads the roll-ups only
/// for organizations that are close to a limit.
pub(super) async fn fold<'a>(
    tx: &mut Tx,
    by_key: &ByKey<'a>,
    days: &mut BatchDays,
    limits: LineLimits,
) -> Result<Option<ByKey<'a>>, StoreError> {
    let mut keys_of_days: BTreeMap<(OrgId, i64), usize> = BTreeMap::new();
    for key in by_key.keys() {
        *keys_of_days.entry((key.org, key.day())).or_default() += 1;
    }
    keys_of_days.retain(|(org, day), keys| {
        let counts = *days.counts(*org, *day);
        let most = |cubes: usize| i64::try_from(*keys * cubes).unwrap_or(i64::MAX);
        counts.user_lines.saturating_add(most(2)) > limits.by_user
            || counts.model_lines.saturating_add(most(5)) > limits.by_model
    });
    if keys_of_days.is_empty() {
        return Ok(None);
    }
    let (mut folded, mut close) = (ByKey::default(), BTreeMap::new());
    for (key, totals) in by_key {
        let day = (key.org, key.day());
        if keys_of_days.contains_key(&day) {
            let keys: &mut Vec<(RollupKey<'a>, Totals)> = close.entry(day).or_default();
            keys.push((*key, totals.clone()));
        } else {
            folded.insert(*key, totals.clone());
        }
    }
    for ((org, day), mut keys) in close {
        let counts = *days.counts(org, day);
        let mut lines = Lines {
            known: known_lines(tx, day, &keys).await?,
            left_by_user: limits.by_user - counts.user_lines,
            left_by_model: limits.by_model - counts.model_lines,
        };
        // What is frequent is kept rather than what is rare.
        keys.sort_by_key(|(_, totals)| std::cmp::Reverse(totals.requests));
        for (key, _) in &mut keys {
            lines.admit(key);
        }
        for (key, totals) in keys {
            folded.entry(key).or_default().add(&totals);
        }
    }
    Ok(Some(folded))
}

/// The lines that the day has already.
async fn known_lines(
    tx: &mut Tx,
    day: i64,
    keys: &[(RollupKey<'_>, Totals)],
) -> Result<HashSet<i64>, StoreError> {
    let ids = keys.iter().flat_map(|(key, _)| Cube::of(key).map(|cube| Dims::of(key, cube).id()));
    let list = id_list(ids);
    let sql =
        format!("SELECT dim_id FROM usage_days WHERE at = $1 AND {}", in_ids(tx.dialect(), "dim_id", 2));
    let rows = tx.all(AssertSqlSafe(sql), args![day, list]).await?;
    rows.iter().map(|row| row.get("dim_id")).collect()
}

struct Lines {
    /// Stored, or admitted in this batch.
    known: HashSet<i64>,
    left_by_user: i64,
    left_by_model: i64,
}

impl Lines {
    /// Folds the user or the model of a key if its lines are new and there is no room for them.
    fn admit(&mut self, key: &mut RollupKey<'_>) {
        if self.new_lines(key, false) > self.left_by_model.max(0) {
            key.model = key.model.map(|_| OTHER);
            // The providers of an organization are limited. Those of ingested spans are any text.
            if key.is_ingested() {
                key.provider = OTHER;
            }
        }
        if self.new_lines(key, true) > self.left_by_user.max(0) {
            key.user = key.user.map(|_| OTHER);
        }
        for cube in Cube::of(key) {
            if self.known.insert(Dims::of(key, cube).id()) {
                *(if cube.has_user() { &mut self.left_by_user } else { &mut self.left_by_model }) -= 1;
            }
        }
    }

    fn new_lines(&self, key: &RollupKey<'_>, of_users: bool) -> i64 {
        let cubes = Cube::of(key).filter(|cube| cube.has_user() == of_users);
        let new = cubes.filter(|cube| !self.known.contains(&Dims::of(key, *cube).id())).count();
        i64::try_from(new).unwrap_or(i64::MAX)
    }
}
