//! The right to make a call and to store its response in the cache.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gateway_core::cache::CacheKey;
use gateway_core::ids::OrgId;
use gateway_store::cache_purges::Generation;

use super::tenant::{NewEntry, Tenant};
use super::{
    Cache, CacheEntry, CacheHit, CacheMode, CacheRequest, CacheableResponse, FlightKey, HitKind, Lookup,
    SemanticQuery,
};
use crate::singleflight::Leader;

/// Must be ended with `complete` or `fail`. Dropping it promotes a request that waits for the same response.
pub struct CacheFill {
    cache: Arc<Cache>,
    tenant: Arc<Tenant>,
    org: OrgId,
    namespace: Box<str>,
    key: CacheKey,
    ttl: Duration,
    /// `None` if no other request can wait for this one.
    leader: Option<Leader<FlightKey, CacheHit>>,
    /// The tenant's number of purges when the fill began.
    purges: u64,
    /// The generation in the shared tier, if there is one.
    generation: Option<Generation>,
    counts_as_miss: bool,
}

impl CacheFill {
    pub(super) fn new(
        cache: &Arc<Cache>,
        tenant: &Arc<Tenant>,
        request: CacheRequest<'_>,
        leader: Option<Leader<FlightKey, CacheHit>>,
        purges: u64,
    ) -> Self {
        let CacheRequest { org, namespace, key, mode, ttl, wait_timeout: _ } = request;
        let counts_as_miss = mode != CacheMode::Refresh;
        if counts_as_miss {
            tenant.count_miss(namespace);
        }
        Self {
            cache: Arc::clone(cache),
            tenant: Arc::clone(tenant),
            org,
            namespace: namespace.into(),
            key,
            ttl,
            leader,
            purges,
            generation: None,
            counts_as_miss,
        }
    }

    /// The key of the entry, which callers can use to delete it.
    pub fn key(&self) -> CacheKey {
        self.key
    }

    /// Searches for the response to a request that differs only in its last user text. A hit ends the fill.
    pub fn find_similar(self, query: &SemanticQuery, threshold: f32) -> Lookup {
        let now = self.cache.clock.now();
        let matches = query.matches(&self.tenant.group(&query.group()), threshold);
        let found = matches
            .into_iter()
            .find_map(|(similarity, key)| Some((similarity, key, self.tenant.find(key, now)?)));
        let Some((similarity, key, entry)) = found else { return Lookup::Miss(self) };
        if self.counts_as_miss {
            self.tenant.recount_miss_as_hit(&self.namespace);
        }
        self.tenant.counters.semantic_hits.fetch_add(1, Ordering::Relaxed);
        Lookup::Hit(self.resolve(CacheHit { entry, key, kind: HitKind::Semantic { similarity } }))
    }

    /// Stores the response and returns it to every waiting request. A query makes it available to semantic lookups. The
    /// response must have passed `gateway_core::cache::is_storable`.
    pub fn complete(self, response: CacheableResponse, query: Option<&SemanticQuery>) -> Arc<CacheEntry> {
        let now = self.cache.clock.now();
        let ttl = i64::try_from(self.ttl.as_millis()).unwrap_or(i64::MAX);
        let entry = Arc::new(CacheEntry::new(response, now, now.plus(ttl)));
        let (key, purges) = (self.key, self.purges);
        let new = NewEntry { key, namespace: &self.namespace, entry: &entry, query, purges };
        let is_stored = self.cache.insert(&self.tenant, new);
        if is_stored && let (Some(redis_tier), Some(generation)) = (&self.cache.redis_tier, &self.generation)
        {
            redis_tier.put(self.org, key, generation.clone(), &entry);
        }
        self.resolve(CacheHit { entry, key, kind: HitKind::Coalesced }).entry
    }

    /// The call failed. Waiting requests make their own calls.
    pub fn fail(self) {
        if let Some(leader) = self.leader {
            leader.fail();
        }
    }

    pub(super) fn resolve(self, hit: CacheHit) -> CacheHit {
        if let Some(leader) = self.leader {
            leader.complete(hit.clone());
        }
        hit
    }

    pub(super) fn set_generation(&mut self, generation: Generation) {
        self.generation = Some(generation);
    }

    pub(super) fn counts_as_miss(&self) -> bool {
        self.counts_as_miss
    }

    #[cfg(test)]
    pub(super) fn waiters(&self) -> usize {
        [false, true]
            .iter()
            .map(|&is_semantic| self.tenant.flights.waiters(&FlightKey { key: self.key, is_semantic }))
            .sum()
    }
}
