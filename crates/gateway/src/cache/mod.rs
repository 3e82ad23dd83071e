//! The cache of answers. Entries live in this process's memory, apart by organization and bounded in bytes; a second
//! level that nodes share is asked when it is configured (`second`). The same request under way several times costs
//! one call (`flight`). What makes two requests the same is decided in `gateway_core::cache`.
//!
//! The proxy's way through it: `Cache::look` answers a `Hit`, or a `Lead`. Whoever holds a lead makes the call and then says
//! how it went: `Lead::complete`, `Lead::failed`, or dropping it when the caller hangs up. A request that takes near
//! answers asks `Lead::similar` before it makes the call.

mod entry;
mod flight;
mod second;
mod similar;
mod stats;
mod tenant;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use gateway_core::cache::CacheKey;
use gateway_core::ids::OrgId;
use gateway_core::time::{DAY, Timestamp};
use gateway_store::redis::cache::{Generation, Purge, PurgeScope};

use crate::clock::Clock;
use flight::{FlightId, Followed, Leading};
use tenant::{Seen, Tenant};

pub use entry::{Answer, Entry};
pub use second::Second;
pub use similar::Probe;
pub use stats::{NamespaceStats, Stats};

const SHARDS: usize = 16;
/// A larger answer is handed on but not kept.
const LARGEST_ENTRY: u64 = 4 << 20;

pub struct Cache {
    clock: Clock,
    limit: u64,
    total: Arc<AtomicU64>,
    hasher: RandomState,
    tenants: [RwLock<HashMap<OrgId, Arc<Tenant>>>; SHARDS],
    second: Option<Second>,
}

/// What a request wants of the cache.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    pub org: OrgId,
    pub namespace: &'a str,
    pub key: CacheKey,
    pub mode: Mode,
    /// How long the answer may be given again.
    pub ttl: Duration,
    /// How long to wait for somebody else's call at most.
    pub patience: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Exact,
    /// Near answers are taken too.
    Semantic,
    /// The call is made in any case, and its answer replaces what is there.
    Refresh,
}

pub enum Lookup {
    Hit(Hit),
    Lead(Lead),
}

#[derive(Debug, Clone)]
pub struct Hit {
    pub entry: Arc<Entry>,
    /// The entry's name, which for a near answer is not that of the request.
    pub key: CacheKey,
    pub how: How,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum How {
    Exact,
    /// Another node had it.
    Shared,
    /// The same request was under way already.
    Coalesced,
    Semantic {
        nearness: f32,
    },
}

/// The right to make the call, and the duty to say how it went. Dropping it passes the right on.
pub struct Lead {
    cache: Arc<Cache>,
    tenant: Arc<Tenant>,
    org: OrgId,
    namespace: Box<str>,
    key: CacheKey,
    ttl: Duration,
    /// None: nobody waits for this one.
    leading: Option<Leading>,
    purges: u64,
    generation: Option<Generation>,
    /// Counted as a miss.
    is_miss: bool,
}

impl Cache {
    /// `limit` is in bytes.
    pub fn new(limit: u64, clock: Clock, second: Option<Second>) -> Self {
        Self {
            clock,
            limit,
            total: Arc::default(),
            hasher: RandomState::new(),
            tenants: Default::default(),
            second,
        }
    }

    /// Finds the answer, waits for it, or answers the lead. Waits for nothing but the same request of somebody else and,
    /// for a few milliseconds, the shared cache.
    pub async fn look(self: &Arc<Self>, ask: Ask<'_>) -> Lookup {
        let tenant = self.tenant(ask.org);
        let id = FlightId { key: ask.key, semantic: ask.mode == Mode::Semantic };
        match tenant.see(id, ask.mode == Mode::Refresh, self.clock.now()) {
            Seen::Entry(entry) => {
                tenant.count_hit(ask.namespace);
                Lookup::Hit(Hit { entry, key: ask.key, how: How::Exact })
            }
            Seen::Lead { leading, purges } => self.lead(&tenant, ask, leading, purges).await,
            Seen::Follow(seat) => match seat.follow(ask.patience).await {
                Followed::Answered(hit) => {
                    tenant.count_hit(ask.namespace);
                    tenant.counts.coalesced.fetch_add(1, Ordering::Relaxed);
                    Lookup::Hit(Hit { how: How::Coalesced, ..hit })
                }
                Followed::Leads(leading) => {
                    let purges = tenant.purges();
                    self.lead(&tenant, ask, Some(leading), purges).await
                }
                Followed::Alone => {
                    let purges = tenant.purges();
                    Lookup::Lead(self.new_lead(&tenant, ask, None, purges))
                }
            },
        }
    }

    /// The leader asks the shared cache before it goes on.
    async fn lead(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        ask: Ask<'_>,
        leading: Option<Leading>,
        purges: u64,
    ) -> Lookup {
        // From here on, hanging up drops the lead, and somebody else gets it.
        let mut lead = self.new_lead(tenant, ask, leading, purges);
        let Some(second) = &self.second else { return Lookup::Lead(lead) };
        let Some((generation, entry)) = second.find(ask.org, ask.namespace, ask.key).await else {
            return Lookup::Lead(lead);
        };
        lead.generation = Some(generation);
        let entry = entry.filter(|entry| lead.is_miss && !entry.is_over(self.clock.now()));
        let Some(entry) = entry.map(Arc::new) else { return Lookup::Lead(lead) };
        self.keep(tenant, ask.key, ask.namespace, &entry, None, purges);
        tenant.miss_became_hit(ask.namespace);
        tenant.counts.shared_hits.fetch_add(1, Ordering::Relaxed);
        Lookup::Hit(lead.settle(Hit { entry, key: ask.key, how: How::Shared }))
    }

    fn new_lead(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        ask: Ask<'_>,
        leading: Option<Leading>,
        purges: u64,
    ) -> Lead {
        let Ask { org, namespace, key, mode, ttl, patience: _ } = ask;
        let is_miss = mode != Mode::Refresh;
        if is_miss {
            tenant.count_miss(namespace);
        }
        Lead {
            cache: Arc::clone(self),
            tenant: Arc::clone(tenant),
            org,
            namespace: namespace.into(),
            key,
            ttl,
            leading,
            purges,
            generation: None,
            is_miss,
        }
    }

    /// Removes what the scope names, here, in the shared cache and, within a second, on the other nodes. Answers how
    /// many entries this node had of it.
    pub async fn purge(&self, org: OrgId, scope: PurgeScope) -> u64 {
        let purge = Purge { org, scope };
        // First what would bring an entry back, then the entries.
        if let Some(second) = &self.second {
            second.purge(&purge).await;
        }
        self.apply(&purge)
    }

    /// The same on this node alone.
    pub fn apply(&self, purge: &Purge) -> u64 {
        let tenant = self.tenant(purge.org);
        match &purge.scope {
            PurgeScope::All => tenant.purge(None),
            PurgeScope::Namespace(namespace) => tenant.purge(Some(namespace)),
            PurgeScope::Entry(key) => tenant.purge_entry(*key),
        }
    }

    pub fn stats(&self, org: OrgId) -> Stats {
        self.known(org).map(|tenant| tenant.stats()).unwrap_or_default()
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The bytes of all organizations, and their entries' bound.
    pub fn bytes(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Removes what is over, and organizations that have not used the cache for a day.
    pub fn sweep(&self, now: Timestamp) {
        self.each(|tenant| tenant.sweep(now));
        for shard in &self.tenants {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, tenant| Arc::strong_count(tenant) > 1 || !tenant.is_idle_since(now.plus(-DAY)));
        }
    }

    /// Looks after the second level, until it is dropped.
    pub async fn run(&self) {
        match &self.second {
            Some(second) => {
                second
                    .run(|purge| {
                        self.apply(purge);
                    })
                    .await;
            }
            None => std::future::pending().await,
        }
    }

    fn shard(&self, org: OrgId) -> &RwLock<HashMap<OrgId, Arc<Tenant>>> {
        let hash = usize::try_from(self.hasher.hash_one(org) & 0xff).unwrap_or(0);
        &self.tenants[hash % SHARDS]
    }

    fn known(&self, org: OrgId) -> Option<Arc<Tenant>> {
        self.shard(org).read().unwrap_or_else(PoisonError::into_inner).get(&org).cloned()
    }

    fn tenant(&self, org: OrgId) -> Arc<Tenant> {
        self.known(org).unwrap_or_else(|| {
            let mut shard = self.shard(org).write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(shard.entry(org).or_insert_with(|| Arc::new(Tenant::new(Arc::clone(&self.total)))))
        })
    }

    fn each(&self, mut seen: impl FnMut(&Arc<Tenant>)) {
        for shard in &self.tenants {
            shard.read().unwrap_or_else(PoisonError::into_inner).values().for_each(&mut seen);
        }
    }

    fn keep(
        &self,
        tenant: &Tenant,
        key: CacheKey,
        namespace: &str,
        entry: &Arc<Entry>,
        probe: Option<&Probe>,
        purges: u64,
    ) -> bool {
        if entry.bytes as u64 > LARGEST_ENTRY.min(self.limit / 8) {
            return false;
        }
        let near = probe.map(|probe| (probe.set(), probe.near(key), probe.bytes()));
        let kept = tenant.store(key, namespace, Arc::clone(entry), near, purges);
        self.make_room();
        kept
    }

    /// Holds the bound. Room is made by whoever has the most, so an organization that has less than its equal share
    /// loses nothing to the others. A little more than needed goes, so that this is not done for every entry.
    fn make_room(&self) {
        if self.bytes() <= self.limit {
            return;
        }
        let goal = self.limit - self.limit / 64;
        while self.bytes() > goal {
            let mut largest: Option<Arc<Tenant>> = None;
            let mut active = 0;
            self.each(|tenant| {
                active += u64::from(tenant.bytes() > 0);
                if largest.as_ref().is_none_or(|largest| tenant.bytes() > largest.bytes()) {
                    largest = Some(Arc::clone(tenant));
                }
            });
            let share = self.limit / active.max(1);
            let wanted = self.bytes().saturating_sub(goal);
            if !largest.is_some_and(|largest| largest.evict(wanted, share)) {
                return;
            }
        }
    }
}

impl Lead {
    /// The name of the entry, with which it can be deleted.
    pub fn key(&self) -> CacheKey {
        self.key
    }

    /// Looks for an answer to a request that differs in its last user text only. A hit ends the lead.
    pub fn similar(self, probe: &Probe, threshold: f32) -> Lookup {
        let now = self.cache.clock.now();
        let matches = probe.matches(&self.tenant.set(&probe.set()), threshold);
        let found = matches
            .into_iter()
            .find_map(|(nearness, key)| Some((nearness, key, self.tenant.find(key, now)?)));
        let Some((nearness, key, entry)) = found else { return Lookup::Lead(self) };
        if self.is_miss {
            self.tenant.miss_became_hit(&self.namespace);
        }
        self.tenant.counts.semantic_hits.fetch_add(1, Ordering::Relaxed);
        Lookup::Hit(self.settle(Hit { entry, key, how: How::Semantic { nearness } }))
    }

    /// The call succeeded: the answer is kept, and everybody who waits gets it. `probe` makes it findable for near
    /// requests. The answer must have passed `gateway_core::cache::is_storable`.
    pub fn complete(self, answer: Answer, probe: Option<&Probe>) -> Arc<Entry> {
        let now = self.cache.clock.now();
        let life = i64::try_from(self.ttl.as_millis()).unwrap_or(i64::MAX);
        let entry = Arc::new(Entry::new(answer, now, now.plus(life)));
        let kept = self.cache.keep(&self.tenant, self.key, &self.namespace, &entry, probe, self.purges);
        if kept && let (Some(second), Some(generation)) = (&self.cache.second, &self.generation) {
            second.put(self.org, self.key, generation.clone(), &entry, self.ttl);
        }
        let key = self.key;
        self.settle(Hit { entry, key, how: How::Coalesced }).entry
    }

    /// The call failed: nobody waits any longer, and nobody inherits the failure.
    pub fn failed(self) {
        if let Some(leading) = self.leading {
            leading.close(None);
        }
    }

    fn settle(self, hit: Hit) -> Hit {
        if let Some(leading) = self.leading {
            leading.close(Some(hit.clone()));
        }
        hit
    }
}
