//! What is used of a limit, as the API shows it: the buckets of all nodes, if the store that they share is reachable.

mod most_used;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use gateway_core::ids::{LimitId, OrgId};
use gateway_core::limits::{Bucket, Definition, Per, Unit};
use gateway_core::time::Timestamp;
use gateway_store::cluster::{limit_permits, limit_slices};
use gateway_store::limits::StoredLimit;
use gateway_store::redis::limits::{self as redis_limits, BucketRead};
use schemars::JsonSchema;
use serde::Serialize;

use super::state::{OrgState, State};
use super::{Limits, parse};
use most_used::MostUsed;

/// Buckets that the API shows of a limit.
const MAX_SHOWN: usize = 50;
/// Buckets that are read from the database, because the most used of them are not known before.
const MAX_READ: i64 = 1_000;
/// Buckets of this node that are compared with those of the database.
const MAX_COMPARED: usize = 1_000;
/// Buckets that one script reads from Redis: more than are shown, because other nodes may have used others more.
const MAX_READ_REDIS: usize = 250;
/// Subjects of which a node may have buckets that are looked at while calls wait for the state.
const SUBJECTS_AT_ONCE: usize = 2_000;

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
    fn new(bucket: &str, unit: Unit, limit: u64, remaining: i64, resets_in: Duration) -> Self {
        let used = used(limit, remaining);
        Self { bucket: bucket.to_owned(), unit, limit, used, remaining, resets_in }
    }
}

fn used(limit: u64, remaining: i64) -> u64 {
    let used = i64::try_from(limit).unwrap_or(i64::MAX).saturating_sub(remaining);
    u64::try_from(used).unwrap_or(0)
}

/// What the store knows of buckets.
#[derive(Default)]
struct Shared {
    left: HashMap<(String, Unit), i64>,
    /// Calls that run on other nodes, or on all if it is `of_all_nodes`.
    running: HashMap<String, u64>,
    /// It has everything of the buckets of this node. Those that it does not know are full.
    of_all_nodes: bool,
    /// There may be further buckets.
    is_partial: bool,
}

impl Limits {
    /// The buckets of a limit that are used most.
    pub async fn usage(&self, org: OrgId, limit: StoredLimit) -> (Vec<BucketUsage>, UsageScope) {
        let id = limit.id;
        let Some((_, definition, _)) = parse(limit) else { return (Vec::new(), UsageScope::All) };
        let now = self.0.services.clock.now();
        let state = self.orgs().get(&org).cloned().unwrap_or_default();
        let is_in_redis = self.0.redis.as_ref().is_some_and(|redis| redis.is_up());
        if !is_in_redis && !self.is_sliced() {
            return (known(&state, id, now, MAX_SHOWN).await, UsageScope::All);
        }
        if is_in_redis {
            let mut known = known(&state, id, now, MAX_READ_REDIS).await;
            let shared = self.read_redis(org, id, &definition, &known).await;
            let Some(shared) = shared else { return (shown(known), UsageScope::Node) };
            merge(&mut known, &shared, id, &definition, (&mut state.lock(), now));
            let is_complete = definition.per == Per::None;
            return (shown(known), if is_complete { UsageScope::All } else { UsageScope::Node });
        }
        // What is given back is neither here nor there until it is recorded.
        let _guard = self.lock_in_time(&state.fetching).await;
        let mut known = known(&state, id, now, MAX_COMPARED).await;
        let Some(shared) = self.read_slices(id, &definition).await else {
            return (shown(known), UsageScope::Node);
        };
        merge(&mut known, &shared, id, &definition, (&mut state.lock(), now));
        (shown(known), UsageScope::All)
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
        Some(Shared { left: left.collect(), running: running.collect(), of_all_nodes: false, is_partial })
    }

    /// Redis has no list of buckets: those that this node knows are read, and the one of a limit that has no other. None if
    /// it does not answer in time.
    async fn read_redis(
        &self,
        org: OrgId,
        id: LimitId,
        definition: &Definition,
        known: &[BucketUsage],
    ) -> Option<Shared> {
        let redis = self.0.redis.as_ref()?;
        let mut subjects: BTreeSet<&str> = known.iter().map(|one| &*one.bucket).collect();
        if definition.per == Per::None {
            subjects.insert("");
        }
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
        Some(Shared { left: left.collect(), running, of_all_nodes: true, is_partial: false })
    }
}

/// The buckets that are used most among those that this node knows. Calls do not wait until all have been looked at.
async fn known(state: &OrgState, limit: LimitId, now: Timestamp, count: usize) -> Vec<BucketUsage> {
    let mut most_used = MostUsed::new(count);
    let mut looked_at = 0;
    loop {
        let mut found = 0;
        for (bucket, entry) in state.lock().entries_of(limit, looked_at, SUBJECTS_AT_ONCE) {
            found += 1;
            entry.account.refill(now);
            for reading in entry.account.readings() {
                most_used.offer(bucket, &reading, entry.lease.credit_of(reading.unit));
            }
        }
        if found < SUBJECTS_AT_ONCE {
            return most_used.into_sorted();
        }
        looked_at += found;
        tokio::task::yield_now().await;
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
    let knows_all = shared.of_all_nodes || shared.is_partial;
    let is_shared = |one: &BucketUsage| {
        knows_all || one.unit == Unit::Concurrent || shared.left.contains_key(&(one.bucket.clone(), one.unit))
    };
    let own = known.iter().filter(|one| one.unit == Unit::Concurrent);
    let own: HashSet<String> = own.map(|one| one.bucket.clone()).collect();
    known.retain(|one| !is_shared(one));
    for ((bucket, unit), left) in &shared.left {
        let Some(capacity) = definition.amount(*unit) else { continue };
        let credit =
            state.find(id, 0, &bucket.as_str().into()).map_or(0, |entry| entry.lease.credit_of(*unit));
        let remaining = if shared.of_all_nodes { *left } else { left.saturating_add(credit) };
        let mut level = Bucket::new(capacity, definition.window.millis(), now);
        level.set_left(remaining, now);
        known.push(BucketUsage::new(bucket, *unit, capacity, remaining, level.time_until_full()));
    }
    let Some(capacity) = definition.concurrent else { return };
    let others = shared.running.keys().filter(|bucket| !own.contains(bucket.as_str()));
    for bucket in own.iter().chain(others) {
        let running = shared.running.get(bucket).copied().unwrap_or(0);
        let own = state.find(id, 0, &bucket.as_str().into()).map_or(0, |entry| entry.account.running());
        let running = if shared.of_all_nodes { running } else { running.saturating_add(own) };
        let left = i64::try_from(capacity.saturating_sub(running)).unwrap_or(i64::MAX);
        known.push(BucketUsage::new(bucket, Unit::Concurrent, capacity, left, Duration::ZERO));
    }
}

fn shown(usage: Vec<BucketUsage>) -> Vec<BucketUsage> {
    let mut most_used = MostUsed::new(MAX_SHOWN);
    for one in usage {
        most_used.keep(one);
    }
    most_used.into_sorted()
}

#[cfg(test)]
mod tests {
    use gateway_core::limits::{Demand, LimitSet};

    use super::*;

    /// More subjects than are looked at at once; the later ones use more.
    #[tokio::test]
    async fn the_most_used_of_many_buckets_are_known() {
        let definition = r#"{"name": "each", "per": "user", "requests": 10000, "concurrent": 5}"#;
        let definition: Definition = serde_json::from_str(definition).unwrap();
        let id = LimitId(uuid::Uuid::nil());
        let set = LimitSet::new([(id, definition, Vec::new())]);
        let (state, now) = (OrgState::default(), Timestamp(0));
        let subjects = u64::try_from(2 * SUBJECTS_AT_ONCE).unwrap() + 500;
        for requests in 1..=subjects {
            let mut state = state.lock();
            let account = &mut state.entry(&set.limits[0], &format!("u{requests}").into(), now).account;
            account.take(&Demand { requests, ..Demand::default() }, now);
            account.release();
        }
        let found = known(&state, id, now, 3).await;
        let found: Vec<(&str, Unit, u64)> =
            found.iter().map(|one| (&*one.bucket, one.unit, one.used)).collect();
        let expected = [
            ("u4500", Unit::Requests, 4_500),
            ("u4499", Unit::Requests, 4_499),
            ("u4498", Unit::Requests, 4_498),
        ];
        assert_eq!(found, expected);
        assert_eq!(known(&state, LimitId(uuid::Uuid::max()), now, 3).await, []);
    }

    /// What Redis says replaces what the node remembers, and what it does not know is full.
    #[test]
    fn redis_knows_better_than_the_node() {
        let definition = r#"{"name": "each", "per": "user", "requests": 100, "concurrent": 5}"#;
        let definition: Definition = serde_json::from_str(definition).unwrap();
        let of =
            |bucket: &str, unit, limit, left| BucketUsage::new(bucket, unit, limit, left, Duration::ZERO);
        let mut known = vec![
            of("ann", Unit::Requests, 100, 99),
            of("bob", Unit::Requests, 100, 10),
            of("ann", Unit::Concurrent, 5, 5),
        ];
        let shared = Shared {
            left: HashMap::from([(("ann".to_owned(), Unit::Requests), 40)]),
            running: HashMap::from([("ann".to_owned(), 2)]),
            of_all_nodes: true,
            is_partial: false,
        };
        let (id, now) = (LimitId(uuid::Uuid::nil()), Timestamp(0));
        merge(&mut known, &shared, id, &definition, (&mut State::default(), now));
        let found = shown(known);
        let found: Vec<(&str, Unit, u64)> =
            found.iter().map(|one| (&*one.bucket, one.unit, one.used)).collect();
        assert_eq!(found, [("ann", Unit::Requests, 60), ("ann", Unit::Concurrent, 2)]);
    }
}
