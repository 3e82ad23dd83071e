//! What is used of a limit, as the API shows it: the buckets of all nodes, if the store that they share is reachable.

use std::collections::HashMap;
use std::time::Duration;

use gateway_core::ids::{LimitId, OrgId};
use gateway_core::limits::{Bucket, Definition, Per, Unit};
use gateway_core::time::Timestamp;
use gateway_store::cluster::{limit_permits, limit_slices};
use gateway_store::limits::StoredLimit;
use gateway_store::redis::limits::{self as redis_limits, BucketRead};
use schemars::JsonSchema;
use serde::Serialize;

use super::state::State;
use super::{Limits, parse};

/// Buckets that the API shows of a limit.
const MAX_SHOWN: usize = 50;
/// Buckets that are read from the store, because the most used of them are not known before.
const MAX_READ: i64 = 1_000;

/// Whose buckets are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "LimitUsageScope")]
pub enum UsageScope {
    /// Those of all nodes.
    All,
    /// Those that this node has seen.
    Node,
}

/// One bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketUsage {
    /// The key, user, session or value that it is for; empty for a bucket of all.
    pub bucket: String,
    pub unit: Unit,
    pub limit: u64,
    pub used: u64,
    pub remaining: i64,
    pub resets_in: Duration,
}

impl BucketUsage {
    pub fn new(bucket: &str, unit: Unit, limit: u64, remaining: i64, resets_in: Duration) -> Self {
        let used = i64::try_from(limit).unwrap_or(i64::MAX).saturating_sub(remaining);
        let used = u64::try_from(used).unwrap_or(0);
        Self { bucket: bucket.to_owned(), unit, limit, used, remaining, resets_in }
    }
}

/// What the store knows of buckets.
#[derive(Default)]
struct Shared {
    left: HashMap<(String, Unit), i64>,
    /// Calls that run on other nodes, or on all if `counts_own`.
    running: HashMap<String, u64>,
    counts_own: bool,
    /// There may be further buckets.
    is_partial: bool,
}

impl Limits {
    /// The buckets of a limit that are used most.
    pub async fn usage(&self, org: OrgId, limit: StoredLimit) -> (Vec<BucketUsage>, UsageScope) {
        let id = limit.id;
        let Some((_, definition, _)) = parse(limit) else { return (Vec::new(), UsageScope::All) };
        let now = self.0.services.clock.now();
        let state = self.orgs().get(&org).cloned();
        let seen = || state.as_ref().map_or_else(Vec::new, |state| state.lock().usage(id, now));
        let is_in_redis = self.0.redis.as_ref().is_some_and(|redis| redis.is_up());
        if !is_in_redis && !self.is_sliced() {
            return (most_used(seen()), UsageScope::All);
        }
        // What is given back is neither here nor there until it is recorded.
        let _guard = match state.as_ref().filter(|_| !is_in_redis) {
            Some(state) => self.lock_in_time(&state.fetching).await,
            None => None,
        };
        let mut known = seen();
        let shared = if is_in_redis {
            self.read_redis(org, id, &definition, &most_used(known.clone())).await
        } else {
            self.read_slices(id, &definition).await
        };
        let Some(shared) = shared else { return (most_used(known), UsageScope::Node) };
        if let Some(state) = &state {
            merge(&mut known, &shared, id, &definition, (&mut state.lock(), now));
        } else {
            merge(&mut known, &shared, id, &definition, (&mut State::default(), now));
        }
        let is_complete = !is_in_redis || definition.per == Per::None;
        (most_used(known), if is_complete { UsageScope::All } else { UsageScope::Node })
    }

    async fn read_slices(&self, id: LimitId, definition: &Definition) -> Option<Shared> {
        let number = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        let amounts = Unit::REFILLING.into_iter();
        let amounts = amounts.filter_map(|unit| Some((unit.as_str(), number(definition.amount(unit)?))));
        let amounts: Vec<(&str, i64)> = amounts.collect();
        let (db, node) = (&self.0.services.db, self.0.peers.node_name());
        let read = async {
            let window = definition.window.length();
            let buckets = limit_slices::most_used(db, id, &amounts, window, MAX_READ).await?;
            let permits = limit_permits::held_by_others(db, id, node, MAX_READ).await?;
            Ok((buckets, permits))
        };
        let (buckets, permits) = self.in_time(read).await.ok()?;
        let is_partial = i64::try_from(buckets.len()).is_ok_and(|count| count >= MAX_READ);
        let unit = |name: &str| Unit::REFILLING.into_iter().find(|unit| unit.as_str() == name);
        let left = buckets.into_iter().filter_map(|one| Some(((one.bucket, unit(&one.unit)?), one.left)));
        let running = permits.into_iter().map(|(bucket, held)| (bucket, held.max(0).unsigned_abs()));
        Some(Shared { left: left.collect(), running: running.collect(), counts_own: false, is_partial })
    }

    /// Redis has no list of buckets: those that this node knows are read, and the one of a limit that has no other.
    async fn read_redis(
        &self,
        org: OrgId,
        id: LimitId,
        definition: &Definition,
        known: &[BucketUsage],
    ) -> Option<Shared> {
        let redis = self.0.redis.as_ref()?;
        let mut subjects: Vec<&str> = known.iter().map(|one| &*one.bucket).collect();
        if definition.per == Per::None {
            subjects.push("");
        }
        subjects.sort_unstable();
        subjects.dedup();
        let mut reads = Vec::new();
        let mut units = Vec::new();
        for bucket in &subjects {
            for unit in Unit::REFILLING {
                let Some(capacity) = definition.amount(unit) else { continue };
                let (bucket, window) = ((*bucket).to_owned(), definition.window.length());
                reads.push(BucketRead { bucket, unit: unit.as_str(), capacity, window });
                units.push(unit);
            }
        }
        let permits: Vec<String> = match definition.concurrent {
            Some(_) => subjects.iter().map(|bucket| (*bucket).to_owned()).collect(),
            None => Vec::new(),
        };
        let (levels, held) = redis_limits::read(redis, org, id, &reads, &permits).await.ok()?;
        let left = reads.into_iter().zip(units).zip(levels);
        let left = left.filter_map(|((read, unit), left)| Some(((read.bucket, unit), left?)));
        let running = permits.into_iter().zip(held).collect();
        Some(Shared { left: left.collect(), running, counts_own: true, is_partial: false })
    }
}

/// Replaces what this node remembers by what the store knows, and adds the buckets of other nodes.
fn merge(
    known: &mut Vec<BucketUsage>,
    shared: &Shared,
    id: LimitId,
    definition: &Definition,
    (state, now): (&mut State, Timestamp),
) {
    let is_shared = |one: &BucketUsage| match one.unit {
        Unit::Concurrent => true,
        unit => shared.is_partial || shared.left.contains_key(&(one.bucket.clone(), unit)),
    };
    let own: Vec<String> =
        known.iter().filter(|one| one.unit == Unit::Concurrent).map(|one| one.bucket.clone()).collect();
    known.retain(|one| !is_shared(one));
    for ((bucket, unit), left) in &shared.left {
        let Some(capacity) = definition.amount(*unit) else { continue };
        let credit =
            state.find(id, 0, &bucket.as_str().into()).map_or(0, |entry| entry.lease.credit_of(*unit));
        let remaining = if shared.counts_own { *left } else { left.saturating_add(credit) };
        let mut level = Bucket::new(capacity, definition.window.millis(), now);
        level.set_left(remaining, now);
        known.push(BucketUsage::new(bucket, *unit, capacity, remaining, level.time_until_full()));
    }
    let Some(capacity) = definition.concurrent else { return };
    let others = shared.running.keys().filter(|bucket| !own.contains(bucket));
    for bucket in own.iter().chain(others) {
        let running = shared.running.get(bucket).copied().unwrap_or(0);
        let own = state.find(id, 0, &bucket.as_str().into()).map_or(0, |entry| entry.account.running());
        let running = if shared.counts_own { running } else { running.saturating_add(own) };
        let left = i64::try_from(capacity.saturating_sub(running)).unwrap_or(i64::MAX);
        known.push(BucketUsage::new(bucket, Unit::Concurrent, capacity, left, Duration::ZERO));
    }
}

fn most_used(mut usage: Vec<BucketUsage>) -> Vec<BucketUsage> {
    let share = |bucket: &BucketUsage| bucket.used.saturating_mul(1_000_000) / bucket.limit.max(1);
    let order =
        |a: &BucketUsage, b: &BucketUsage| share(b).cmp(&share(a)).then_with(|| a.bucket.cmp(&b.bucket));
    usage.sort_by(|a, b| order(a, b).then_with(|| a.unit.cmp(&b.unit)));
    usage.truncate(MAX_SHOWN);
    usage
}
