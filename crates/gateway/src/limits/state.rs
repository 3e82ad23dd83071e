//! What a node knows of the limits of one organization: its buckets, the calls that wait, and what was refused. One
//! lock, which is never held while something is awaited.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gateway_core::ids::{KeyId, LimitId, OrgId};
use gateway_core::limits::{
    Account, Averages, Demand, Limit, LimitSet, Lru, MAX_BUCKETS, Policy, Shortage, Tightest, Unit,
    WaitQueue, share_left,
};
use gateway_core::time::Timestamp;

use super::OrgLimits;
use super::refusals::Refused;
use super::waiting::{BucketKey, Waiter};

/// Buckets of all limits of an organization on a node.
const MAX_ORG_BUCKETS: usize = 200_000;
/// Buckets that the limit with the most of them gives up before the largest one is looked for again.
const ROOM_STEP: usize = 500;

#[derive(Default)]
pub struct OrgState {
    inner: Mutex<State>,
    /// Held while slices are fetched, so that concurrent calls do not fetch one each.
    pub fetching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
pub struct State {
    /// In the order of the limits, so that a limit finds its buckets by its place.
    accounts: Vec<(LimitId, Lru<Arc<str>, Entry>)>,
    buckets: usize,
    pub averages: Averages,
    pub queue: WaitQueue<Waiter>,
    /// The bodies of calls that wait.
    pub waiting_bytes: usize,
    pub refused: HashMap<LimitId, Refused>,
    /// The buckets of which this node holds slices or permits.
    pub sliced: HashSet<BucketKey>,
    /// The permits that the database counts for this node. Known apart from the buckets, which may leave before.
    pub recorded_permits: HashMap<BucketKey, i64>,
    /// Permits that calls hold in Redis, by call.
    pub leased_calls: HashMap<Arc<str>, Vec<(LimitId, Arc<str>)>>,
}

/// The buckets of one limit and subject.
pub struct Entry {
    /// On PostgreSQL and Redis: as it was known last.
    pub account: Account,
    pub lease: NodeLease,
}

/// Where an entry is in a locked state.
#[derive(Clone, Copy)]
struct EntryPlace {
    limit: usize,
    entry: usize,
}

/// The buckets that a call wants something of.
struct Found {
    place: EntryPlace,
    /// The limit is in dry run, and has too little.
    would_refuse: bool,
}

/// What the node has taken of shared buckets and not used yet.
#[derive(Clone, Copy, Default)]
pub struct NodeLease {
    /// By refilling unit.
    pub credit: [i64; 4],
    /// Permits that the node holds, used or not.
    pub permits: i64,
    /// How many calls may run so that the shares of other classes stay free. Only the next call may rely on it, because
    /// the other nodes go on.
    pub unreserved: i64,
    pub used_at: i64,
    pub refused: Option<RefusedFetch>,
}

/// The store had too little the last time it was asked.
#[derive(Clone, Copy)]
pub struct RefusedFetch {
    /// Until then a call that needs as much is refused without being asked for.
    pub until: i64,
    pub shortage: Shortage,
}

/// What a call wants of one limit.
#[derive(Clone)]
pub struct Wanted {
    /// The place of the limit in the set.
    pub limit: usize,
    pub bucket: Arc<str>,
    pub demand: Demand,
}

/// Everything that a call wants.
pub struct Request {
    pub wanted: Vec<Wanted>,
    pub class: Option<Arc<str>>,
}

/// What was taken from buckets in memory.
pub struct Taken {
    found: Vec<Found>,
    pub policies: Vec<Policy>,
}

impl Taken {
    /// Whether a limit in dry run would have refused the call, for each limit.
    pub fn would_refuse(&self) -> impl Iterator<Item = bool> {
        self.found.iter().map(|found| found.would_refuse)
    }
}

/// An enforced limit has too little.
#[derive(Clone, Debug)]
pub struct Short {
    pub limit: usize,
    pub bucket: Arc<str>,
    pub shortage: Shortage,
}

impl Short {
    /// The bucket that has too little.
    pub fn key(&self, org: &OrgLimits) -> BucketKey {
        (org.limit(self.limit).id, Arc::clone(&self.bucket))
    }

    /// The one that a caller should be told: what never fits, else what takes longest.
    pub fn worse(self, other: Option<Self>) -> Self {
        let rank = |short: &Self| (short.shortage.wait.is_none(), short.shortage.wait);
        match other {
            Some(other) if rank(&other) >= rank(&self) => other,
            _ => self,
        }
    }
}

impl OrgState {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The buckets of a limit and subject, at the given time.
    pub fn entry(&mut self, limit: &Limit, bucket: &Arc<str>, now: Timestamp) -> &mut Entry {
        let place = self.place(limit, bucket, now);
        self.at(place)
    }

    /// Where the buckets of a limit and subject are, brought to the given time. Valid while the state is locked and no
    /// other subject of the same limit is looked up.
    fn place(&mut self, limit: &Limit, bucket: &Arc<str>, now: Timestamp) -> EntryPlace {
        let index = self.index_of(limit.id, limit.index).unwrap_or_else(|| {
            self.accounts.push((limit.id, Lru::new(MAX_BUCKETS)));
            self.accounts.len() - 1
        });
        let accounts = &mut self.accounts[index].1;
        let before = accounts.len();
        let is_full = self.buckets >= MAX_ORG_BUCKETS && before > 0;
        accounts.set_capacity(if is_full { before } else { MAX_BUCKETS });
        let make = || Entry { account: Account::new(limit, now), lease: NodeLease::default() };
        let is_held = |entry: &Entry| entry.account.is_held();
        let entry = accounts.place(bucket, make, is_held);
        self.buckets += accounts.len() - before;
        accounts.at(entry).account.update(limit, now);
        EntryPlace { limit: index, entry }
    }

    /// Makes room in a full state: the limits with the most subjects give up those that were used least recently, so that
    /// a limit with few of them holds too.
    pub fn make_room(&mut self) {
        if self.buckets < MAX_ORG_BUCKETS {
            return;
        }
        while self.buckets > MAX_ORG_BUCKETS / 10 * 9 {
            let Some((_, largest)) = self.accounts.iter_mut().max_by_key(|(_, accounts)| accounts.len())
            else {
                return;
            };
            for _ in 0..ROOM_STEP.min(largest.len()) {
                largest.remove_oldest(|entry| entry.account.is_held());
                self.buckets -= 1;
            }
        }
    }

    fn at(&mut self, place: EntryPlace) -> &mut Entry {
        self.accounts[place.limit].1.at(place.entry)
    }

    /// The buckets, if they have not left. `index`: where the limit is in its set.
    pub fn find(&mut self, limit: LimitId, index: usize, bucket: &Arc<str>) -> Option<&mut Entry> {
        let index = self.index_of(limit, index)?;
        self.accounts[index].1.get(bucket)
    }

    /// Where the buckets of a limit are: in its place, or in another one if the limits have changed since.
    fn index_of(&self, limit: LimitId, expected: usize) -> Option<usize> {
        if self.accounts.get(expected).is_some_and(|(id, _)| *id == limit) {
            return Some(expected);
        }
        self.accounts.iter().position(|(id, _)| *id == limit)
    }

    pub fn entries(&mut self) -> impl Iterator<Item = (LimitId, &Arc<str>, &mut Entry)> {
        self.accounts.iter_mut().flat_map(|(limit, accounts)| {
            accounts.values_mut().map(|(bucket, entry)| (*limit, bucket, entry))
        })
    }

    /// Takes everything that the call wants from buckets in memory, or nothing. `nodes`: how many share the limits without
    /// seeing each other.
    pub fn take(
        &mut self,
        set: &LimitSet,
        request: &Request,
        now: Timestamp,
        nodes: u64,
    ) -> Result<Taken, Short> {
        let mut worst: Option<Short> = None;
        let mut found = Vec::with_capacity(request.wanted.len());
        let demand = |wanted: &Wanted| if nodes > 1 { wanted.demand.times(nodes) } else { wanted.demand };
        for wanted in &request.wanted {
            let limit = &set.limits[wanted.limit];
            let place = self.place(limit, &wanted.bucket, now);
            let account = &mut self.at(place).account;
            account.note_class(limit, request.class.as_deref(), now);
            let floor = account.floor(limit, request.class.as_deref(), now);
            let mut would_refuse = false;
            if let Err(shortage) = account.check(&wanted.demand, floor, nodes) {
                would_refuse = !limit.is_enforced();
                if !would_refuse {
                    let short = Short { limit: wanted.limit, bucket: Arc::clone(&wanted.bucket), shortage };
                    worst = Some(short.worse(worst.take()));
                }
            }
            found.push(Found { place, would_refuse });
        }
        if let Some(worst) = worst {
            return Err(worst);
        }
        let mut tightest = Tightest::default();
        for (index, (wanted, found)) in request.wanted.iter().zip(&found).enumerate() {
            if !found.would_refuse {
                let entry = self.at(found.place);
                entry.account.take(&demand(wanted), now);
                entry.add_to(&mut tightest, &set.limits[wanted.limit], index);
            }
        }
        let policies = self.chosen(set, &request.wanted, &found, &tightest);
        Ok(Taken { found, policies })
    }

    /// The buckets of a call as headers show them.
    pub fn policies(&mut self, set: &LimitSet, wanted: &[Wanted], now: Timestamp) -> Vec<Policy> {
        let mut tightest = Tightest::default();
        let mut found = Vec::with_capacity(wanted.len());
        for (index, one) in wanted.iter().enumerate() {
            let limit = &set.limits[one.limit];
            let place = self.place(limit, &one.bucket, now);
            self.at(place).add_to(&mut tightest, limit, index);
            found.push(Found { place, would_refuse: false });
        }
        self.chosen(set, wanted, &found, &tightest)
    }

    /// The policies of the buckets that were chosen, by their places in `wanted`.
    fn chosen(
        &mut self,
        set: &LimitSet,
        wanted: &[Wanted],
        found: &[Found],
        tightest: &Tightest<usize>,
    ) -> Vec<Policy> {
        let mut policies = Vec::with_capacity(tightest.max_chosen());
        for (unit, index) in tightest.chosen() {
            let entry = self.at(found[index].place);
            if let Some(reading) = entry.account.reading(unit) {
                let limit = &set.limits[wanted[index].limit];
                policies.push(Policy::new(limit, &reading, entry.lease.credit_of(unit)));
            }
        }
        policies
    }

    /// Some buckets of a limit: those of so many subjects behind the first ones. In no order that means anything.
    pub fn entries_of(
        &mut self,
        limit: LimitId,
        skipped: usize,
        count: usize,
    ) -> impl Iterator<Item = (&Arc<str>, &mut Entry)> {
        let accounts = self.index_of(limit, 0).and_then(|index| self.accounts.get_mut(index));
        accounts.into_iter().flat_map(move |(_, accounts)| accounts.values_mut().skip(skipped).take(count))
    }

    /// Notes how many permits the database counts for this node.
    pub fn record_permits(&mut self, key: BucketKey, held: i64) {
        if held > 0 {
            self.recorded_permits.insert(key, held);
        } else {
            self.recorded_permits.remove(&key);
        }
    }

    /// Forgets limits that are no longer there, and orders the others as they are in the set.
    pub fn retain(&mut self, set: &LimitSet) {
        let mut known: HashMap<LimitId, _> = std::mem::take(&mut self.accounts).into_iter().collect();
        let mut known = |id| known.remove(&id).unwrap_or_else(|| Lru::new(MAX_BUCKETS));
        self.accounts = set.limits.iter().map(|limit| limit.id).map(|id| (id, known(id))).collect();
        self.buckets = self.accounts.iter().map(|(_, accounts)| accounts.len()).sum();
    }

    /// Whether a new state would be the same.
    pub fn is_unused(&mut self, now: Timestamp) -> bool {
        self.queue.is_empty()
            && self.refused.is_empty()
            && self.leased_calls.is_empty()
            && self.sliced.is_empty()
            && self.recorded_permits.is_empty()
            && self.entries().all(|(_, _, entry)| {
                entry.account.refill(now);
                entry.account.is_unused() && entry.lease.is_empty()
            })
    }
}

impl Entry {
    /// Adds the buckets to those that headers may show. Limits in dry run are not shown.
    fn add_to(&self, tightest: &mut Tightest<usize>, limit: &Limit, index: usize) {
        if !limit.is_enforced() {
            return;
        }
        self.account.for_each_share(|unit, share| {
            let credit = self.lease.credit_of(unit);
            let amount = || limit.definition.amount(unit).unwrap_or_default();
            let share = if credit == 0 { share } else { share + share_left(credit, amount()) };
            tightest.add(share, unit, index);
        });
    }
}

impl NodeLease {
    pub fn credit_of(&self, unit: Unit) -> i64 {
        self.credit.get(unit as usize).map_or(0, |credit| (*credit).max(0))
    }

    /// How many calls may run, if this many permits are kept for other classes.
    pub fn permits_beside(&self, kept: u64) -> i64 {
        if kept > 0 { self.unreserved } else { self.permits }
    }

    pub fn is_empty(&self) -> bool {
        self.permits == 0 && self.credit == [0; 4]
    }
}

impl OrgLimits {
    /// Whether some limit applies to one target of a call and not to another.
    pub fn depends_on_model(&self) -> bool {
        self.set.limits.iter().any(Limit::depends_on_model)
    }

    /// The average output of the calls of a key to a model.
    pub fn average(&self, key: Option<KeyId>, model: &str) -> Option<u64> {
        self.state.lock().averages.get(key, model)
    }

    pub fn limit(&self, index: usize) -> &Limit {
        &self.set.limits[index]
    }

    pub(super) fn state(&self) -> &Arc<OrgState> {
        &self.state
    }

    pub(super) fn org(&self) -> OrgId {
        self.id
    }
}
