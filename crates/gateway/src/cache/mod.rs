//! The response cache. Entries are in memory, separated by organization and bounded in bytes; a second tier in Redis is
//! shared by the nodes when configured. Identical concurrent requests cause one call (single flight). The rules for
//! when two requests are the same are in `gateway_core::cache`.
//!
//! `Cache::lookup` returns a `CacheHit`, or a `CacheFill`. The owner of a fill makes the call and reports its result
//! with `complete` or `fail`; dropping it, for example when the client disconnects, hands the call to a waiting
//! request. A semantic request calls `CacheFill::find_similar` before it makes the call.

mod entry;
mod fill;
mod redis_tier;
mod semantic;
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
use gateway_store::cache_purges::PurgeScope;

use crate::clock::Clock;
use crate::metrics::events::CacheResult;
use crate::singleflight::{Leader, Waited};
use tenant::{NewEntry, Probe, Tenant};

pub use entry::{CacheEntry, CacheableResponse};
pub use fill::CacheFill;
pub use redis_tier::{PurgeSource, RedisTier};
pub use semantic::SemanticQuery;
pub use stats::{CacheStats, NamespaceStats};

const SHARDS: usize = 16;
/// Larger responses are forwarded but not stored.
const MAX_ENTRY_BYTES: u64 = 4 << 20;

pub struct Cache {
    clock: Clock,
    max_bytes: u64,
    total: Arc<AtomicU64>,
    hasher: RandomState,
    tenants: [RwLock<HashMap<OrgId, Arc<Tenant>>>; SHARDS],
    redis_tier: Option<RedisTier>,
}

#[derive(Debug, Clone, Copy)]
pub struct CacheRequest<'a> {
    pub org: OrgId,
    pub namespace: &'a str,
    pub key: CacheKey,
    pub mode: CacheMode,
    pub ttl: Duration,
    /// How long to wait for an identical request in progress.
    pub wait_timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheMode {
    Exact,
    /// Also accepts responses to similar requests.
    Semantic,
    /// Always makes the call and replaces the entry.
    Refresh,
}

/// Identifies requests in progress. A semantic request never leads an exact one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FlightKey {
    key: CacheKey,
    is_semantic: bool,
}

pub enum Lookup {
    Hit(CacheHit),
    Miss(CacheFill),
}

#[derive(Debug, Clone)]
pub struct CacheHit {
    pub entry: Arc<CacheEntry>,
    /// The key of the entry. A semantic hit has another key than its request.
    pub key: CacheKey,
    pub kind: HitKind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HitKind {
    Exact,
    /// Another node had stored the entry.
    Shared,
    /// An identical request was in progress.
    Coalesced,
    Semantic {
        similarity: f32,
    },
}

impl From<HitKind> for CacheResult {
    fn from(kind: HitKind) -> Self {
        match kind {
            HitKind::Exact => Self::Hit,
            HitKind::Shared => Self::SharedHit,
            HitKind::Coalesced => Self::CoalescedHit,
            HitKind::Semantic { .. } => Self::SemanticHit,
        }
    }
}

impl Cache {
    pub fn new(max_bytes: u64, clock: Clock, redis_tier: Option<RedisTier>) -> Self {
        Self {
            clock,
            max_bytes,
            total: Arc::default(),
            hasher: RandomState::new(),
            tenants: Default::default(),
            redis_tier,
        }
    }

    /// Returns the entry, waits for an identical request, or returns the right to fill the cache. The shared tier is
    /// given a few milliseconds at most.
    pub async fn lookup(self: &Arc<Self>, request: CacheRequest<'_>) -> Lookup {
        let tenant = self.tenant(request.org);
        let key = FlightKey { key: request.key, is_semantic: request.mode == CacheMode::Semantic };
        match tenant.probe(key, request.mode == CacheMode::Refresh, self.clock.now()) {
            Probe::Entry(entry) => {
                tenant.count_hit(request.namespace);
                Lookup::Hit(CacheHit { entry, key: request.key, kind: HitKind::Exact })
            }
            Probe::Lead { leader, purges } => self.lookup_shared(&tenant, request, leader, purges).await,
            Probe::Wait(waiter) => match tokio::time::timeout(request.wait_timeout, waiter.wait()).await {
                Ok(Waited::Value(hit)) => {
                    tenant.count_hit(request.namespace);
                    tenant.counters.coalesced.fetch_add(1, Ordering::Relaxed);
                    Lookup::Hit(CacheHit { kind: HitKind::Coalesced, ..hit })
                }
                Ok(Waited::Promoted(leader)) => {
                    let purges = tenant.purges();
                    self.lookup_shared(&tenant, request, Some(leader), purges).await
                }
                Ok(Waited::Failed) | Err(_) => {
                    let purges = tenant.purges();
                    Lookup::Miss(CacheFill::new(self, &tenant, request, None, purges))
                }
            },
        }
    }

    /// The leader looks into the shared tier before it makes the call.
    async fn lookup_shared(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        request: CacheRequest<'_>,
        leader: Option<Leader<FlightKey, CacheHit>>,
        purges: u64,
    ) -> Lookup {
        let CacheRequest { org, namespace, key, .. } = request;
        // From here on, a disconnect drops the fill and promotes a waiter.
        let mut fill = CacheFill::new(self, tenant, request, leader, purges);
        let Some(redis_tier) = &self.redis_tier else { return Lookup::Miss(fill) };
        let Some((generation, entry)) = redis_tier.get(org, namespace, key).await else {
            return Lookup::Miss(fill);
        };
        fill.set_generation(generation);
        // An entry that was purged while it was read must not reach the requests that wait for it.
        let is_valid = |entry: &CacheEntry| {
            fill.counts_as_miss() && !entry.is_expired(self.clock.now()) && tenant.purges() == purges
        };
        let Some(entry) = entry.filter(is_valid).map(Arc::new) else { return Lookup::Miss(fill) };
        self.insert(tenant, NewEntry { key, namespace, entry: &entry, query: None, purges });
        tenant.recount_miss_as_hit(namespace);
        tenant.counters.shared_hits.fetch_add(1, Ordering::Relaxed);
        Lookup::Hit(fill.resolve(CacheHit { entry, key, kind: HitKind::Shared }))
    }

    /// Removes the entries of the scope from the memory of this node and returns their number. The purge must be known
    /// to the `PurgeSource` before, because the shared tier could bring a purged entry back.
    pub fn purge(&self, org: OrgId, scope: &PurgeScope) -> u64 {
        let tenant = self.tenant(org);
        match scope {
            PurgeScope::All => tenant.purge(None),
            PurgeScope::Namespace(namespace) => tenant.purge(Some(namespace)),
            PurgeScope::Entry(key) => tenant.purge_entry(*key),
        }
    }

    /// Removes all entries of all organizations from the memory of this node.
    pub fn purge_all(&self) {
        self.for_each_tenant(|tenant| {
            tenant.purge(None);
        });
    }

    pub fn stats(&self, org: OrgId) -> CacheStats {
        self.existing_tenant(org).map(|tenant| tenant.stats()).unwrap_or_default()
    }

    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// The memory that the entries of all organizations take.
    pub fn bytes(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Removes expired entries, and organizations that have not used the cache for a day.
    pub fn sweep(&self, now: Timestamp) {
        self.for_each_tenant(|tenant| tenant.sweep(now));
        for shard in &self.tenants {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, tenant| Arc::strong_count(tenant) > 1 || !tenant.is_idle_since(now.plus(-DAY)));
        }
    }

    /// Runs the background work of the shared tier until dropped.
    pub async fn run(&self) {
        match &self.redis_tier {
            Some(redis_tier) => redis_tier.run().await,
            None => std::future::pending().await,
        }
    }

    fn shard(&self, org: OrgId) -> &RwLock<HashMap<OrgId, Arc<Tenant>>> {
        let hash = usize::try_from(self.hasher.hash_one(org) & 0xff).unwrap_or(0);
        &self.tenants[hash % SHARDS]
    }

    fn existing_tenant(&self, org: OrgId) -> Option<Arc<Tenant>> {
        self.shard(org).read().unwrap_or_else(PoisonError::into_inner).get(&org).cloned()
    }

    fn tenant(&self, org: OrgId) -> Arc<Tenant> {
        self.existing_tenant(org).unwrap_or_else(|| {
            let mut shard = self.shard(org).write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(shard.entry(org).or_insert_with(|| Arc::new(Tenant::new(Arc::clone(&self.total)))))
        })
    }

    fn for_each_tenant(&self, mut visit: impl FnMut(&Arc<Tenant>)) {
        for shard in &self.tenants {
            shard.read().unwrap_or_else(PoisonError::into_inner).values().for_each(&mut visit);
        }
    }

    /// Returns false if the entry is too large, or if a purge came in between.
    fn insert(&self, tenant: &Tenant, new: NewEntry<'_>) -> bool {
        if new.entry.bytes as u64 > MAX_ENTRY_BYTES.min(self.max_bytes / 8) {
            return false;
        }
        let is_stored = tenant.store(new);
        self.evict_to_limit();
        is_stored
    }

    /// Evicts from the organization with the most bytes, so that one with less than its equal share loses nothing to
    /// the others. Frees a little more than needed, so that not every insert evicts.
    fn evict_to_limit(&self) {
        if self.bytes() <= self.max_bytes {
            return;
        }
        let goal = self.max_bytes - self.max_bytes / 64;
        while self.bytes() > goal {
            let mut largest: Option<Arc<Tenant>> = None;
            let mut active = 0;
            self.for_each_tenant(|tenant| {
                active += u64::from(tenant.bytes() > 0);
                if largest.as_ref().is_none_or(|largest| tenant.bytes() > largest.bytes()) {
                    largest = Some(Arc::clone(tenant));
                }
            });
            let share = self.max_bytes / active.max(1);
            let wanted = self.bytes().saturating_sub(goal);
            if !largest.is_some_and(|largest| largest.evict(wanted, share)) {
                return;
            }
        }
    }
}
