//! The cached entries of one organization, their eviction order, the semantic index, and the requests in progress. One
//! lock guards them; it is held for map operations only and never across an await.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gateway_core::cache::CacheKey;
use gateway_core::time::Timestamp;

use super::entry::CacheEntry;
use super::semantic::{GroupKey, IndexedText, MAX_GROUP_TEXTS, SemanticQuery};
use super::stats::{CacheCounters, CacheStats, NamespaceStats};
use super::{CacheHit, FlightKey};
use crate::singleflight::{Joined, Leader, SingleFlight, Waiter};

/// Namespaces with statistics of their own. Callers choose the names, so their number is bounded.
const MAX_NAMESPACES: usize = 1_000;

pub struct Tenant {
    inner: Mutex<Inner>,
    /// The requests in progress. Its lock is taken inside that of `inner`, never the other way round.
    pub flights: Arc<SingleFlight<FlightKey, CacheHit>>,
    pub counters: CacheCounters,
    bytes: AtomicU64,
    /// The bytes of all tenants.
    total: Arc<AtomicU64>,
    last_used: AtomicI64,
}

#[derive(Default)]
struct Inner {
    slots: HashMap<CacheKey, Slot>,
    /// The eviction order. Items whose serial differs from the slot's are outdated.
    order: VecDeque<(CacheKey, u64)>,
    serial: u64,
    groups: HashMap<GroupKey, Vec<Arc<IndexedText>>>,
    namespaces: HashMap<Arc<str>, NamespaceStats>,
    purges: u64,
}

struct Slot {
    entry: Arc<CacheEntry>,
    namespace: Arc<str>,
    bytes: usize,
    serial: u64,
    /// Used since the eviction last passed it, so it gets a second chance.
    touched: bool,
    group: Option<GroupKey>,
}

/// The result of looking for an entry and for an identical request in progress.
pub enum Probe {
    Entry(Arc<CacheEntry>),
    Wait(Waiter<FlightKey, CacheHit>),
    /// The caller makes the call. Without a leader, no other request waits for it.
    Lead {
        leader: Option<Leader<FlightKey, CacheHit>>,
        purges: u64,
    },
}

impl Tenant {
    pub fn new(total: Arc<AtomicU64>) -> Self {
        Self {
            inner: Mutex::default(),
            flights: Arc::default(),
            counters: CacheCounters::default(),
            bytes: AtomicU64::new(0),
            total,
            last_used: AtomicI64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the entry, a place behind the request that fetches it, or the leadership. A refresh always leads.
    pub fn probe(&self, key: FlightKey, is_refresh: bool, now: Timestamp) -> Probe {
        self.last_used.store(now.0, Ordering::Relaxed);
        let mut inner = self.lock();
        if is_refresh {
            return Probe::Lead { leader: self.flights.try_lead(&key), purges: inner.purges };
        }
        if let Some(entry) = self.live(&mut inner, key.key, now) {
            return Probe::Entry(entry);
        }
        // Joined under the lock: an entry is stored before its flight ends, so it cannot be missed here.
        match self.flights.join(&key) {
            Joined::Waiter(waiter) => Probe::Wait(waiter),
            Joined::Leader(leader) => Probe::Lead { leader: Some(leader), purges: inner.purges },
        }
    }

    /// Returns the entry unless it has expired.
    pub fn find(&self, key: CacheKey, now: Timestamp) -> Option<Arc<CacheEntry>> {
        self.live(&mut self.lock(), key, now)
    }

    /// The number of purges so far. A response requested before a purge is not stored after it.
    pub fn purges(&self) -> u64 {
        self.lock().purges
    }

    pub fn count_hit(&self, namespace: &str) {
        self.counters.hits.fetch_add(1, Ordering::Relaxed);
        self.lock().namespace(namespace).hits += 1;
    }

    pub fn count_miss(&self, namespace: &str) {
        self.counters.misses.fetch_add(1, Ordering::Relaxed);
        self.lock().namespace(namespace).misses += 1;
    }

    /// Corrects the statistics when a counted miss turns out to be a hit.
    pub fn recount_miss_as_hit(&self, namespace: &str) {
        self.counters.misses.fetch_sub(1, Ordering::Relaxed);
        let mut inner = self.lock();
        let stats = inner.namespace(namespace);
        stats.misses = stats.misses.saturating_sub(1);
        drop(inner);
        self.count_hit(namespace);
    }

    fn live(&self, inner: &mut Inner, key: CacheKey, now: Timestamp) -> Option<Arc<CacheEntry>> {
        let slot = inner.slots.get_mut(&key)?;
        if slot.entry.is_expired(now) {
            self.remove(inner, key);
            return None;
        }
        slot.touched = true;
        Some(Arc::clone(&slot.entry))
    }

    /// Stores an entry, and indexes it if it has a semantic query. Stores nothing if a purge came in between.
    pub fn store(&self, NewEntry { key, namespace, entry, query, purges }: NewEntry<'_>) -> bool {
        let mut inner = self.lock();
        if inner.purges != purges {
            return false;
        }
        self.remove(&mut inner, key);
        let bytes = entry.bytes + query.map_or(0, SemanticQuery::bytes);
        inner.serial += 1;
        let serial = inner.serial;
        let group = query.map(SemanticQuery::group);
        if let (Some(query), Some(group)) = (query, &group) {
            let texts = inner.groups.entry(group.clone()).or_default();
            if texts.len() >= MAX_GROUP_TEXTS {
                texts.remove(0);
            }
            texts.push(Arc::new(query.indexed_as(key)));
        }
        let stats = inner.namespace(namespace);
        stats.entries += 1;
        stats.bytes += bytes as u64;
        let namespace = Arc::clone(&stats.name);
        let entry = Arc::clone(entry);
        inner.slots.insert(key, Slot { entry, namespace, bytes, serial, touched: false, group });
        inner.order.push_back((key, serial));
        if inner.order.len() > 2 * inner.slots.len() + 64 {
            let Inner { order, slots, .. } = &mut *inner;
            order.retain(|(key, serial)| slots.get(key).is_some_and(|slot| slot.serial == *serial));
        }
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.total.fetch_add(bytes as u64, Ordering::Relaxed);
        true
    }

    fn remove(&self, inner: &mut Inner, key: CacheKey) {
        let Some(slot) = inner.slots.remove(&key) else { return };
        if let Some(group) = &slot.group
            && let Some(texts) = inner.groups.get_mut(group)
        {
            texts.retain(|text| text.key != key);
            if texts.is_empty() {
                inner.groups.remove(group);
            }
        }
        if let Some(stats) = inner.namespaces.get_mut(&slot.namespace) {
            stats.entries -= 1;
            stats.bytes -= slot.bytes as u64;
        }
        self.bytes.fetch_sub(slot.bytes as u64, Ordering::Relaxed);
        self.total.fetch_sub(slot.bytes as u64, Ordering::Relaxed);
    }

    /// Evicts at least one entry, and more until `wanted` bytes are free or the tenant is down to its share. Returns
    /// false if there was nothing to evict.
    pub fn evict(&self, wanted: u64, share: u64) -> bool {
        let mut inner = self.lock();
        let before = self.bytes();
        let mut found = false;
        while let Some((key, serial)) = inner.order.pop_front() {
            let Some(slot) = inner.slots.get_mut(&key).filter(|slot| slot.serial == serial) else { continue };
            if std::mem::take(&mut slot.touched) {
                inner.order.push_back((key, serial));
                continue;
            }
            self.remove(&mut inner, key);
            self.counters.evictions.fetch_add(1, Ordering::Relaxed);
            found = true;
            if before - self.bytes() >= wanted || self.bytes() <= share {
                break;
            }
        }
        found
    }

    /// Removes expired entries.
    pub fn sweep(&self, now: Timestamp) {
        let mut inner = self.lock();
        let expired: Vec<CacheKey> =
            inner.slots.iter().filter(|(_, slot)| slot.entry.is_expired(now)).map(|(key, _)| *key).collect();
        for key in expired {
            self.remove(&mut inner, key);
        }
    }

    /// True if the tenant has no entries and no requests in progress, and was not used since then.
    pub fn is_idle_since(&self, then: Timestamp) -> bool {
        let inner = self.lock();
        inner.slots.is_empty() && self.flights.is_idle() && self.last_used.load(Ordering::Relaxed) < then.0
    }

    /// Removes the entries of a namespace, or all entries, and returns their number.
    pub fn purge(&self, namespace: Option<&str>) -> u64 {
        let mut inner = self.lock();
        inner.purges += 1;
        let is_purged = |slot: &Slot| namespace.is_none_or(|namespace| *slot.namespace == *namespace);
        let keys: Vec<CacheKey> =
            inner.slots.iter().filter(|(_, slot)| is_purged(slot)).map(|(key, _)| *key).collect();
        for key in &keys {
            self.remove(&mut inner, *key);
        }
        keys.len() as u64
    }

    pub fn purge_entry(&self, key: CacheKey) -> u64 {
        let mut inner = self.lock();
        inner.purges += 1;
        let found = inner.slots.contains_key(&key);
        self.remove(&mut inner, key);
        u64::from(found)
    }

    /// Returns the texts of a group, to be compared outside the lock.
    pub fn group(&self, key: &GroupKey) -> Vec<Arc<IndexedText>> {
        self.lock().groups.get(key).cloned().unwrap_or_default()
    }

    pub fn stats(&self) -> CacheStats {
        let inner = self.lock();
        let mut namespaces: Vec<NamespaceStats> = inner.namespaces.values().cloned().collect();
        namespaces.sort_by(|a, b| a.name.cmp(&b.name));
        self.counters.stats(inner.slots.len() as u64, self.bytes(), namespaces)
    }
}

/// An entry to be stored.
#[derive(Clone, Copy)]
pub struct NewEntry<'a> {
    pub key: CacheKey,
    pub namespace: &'a str,
    pub entry: &'a Arc<CacheEntry>,
    /// Makes the entry available to semantic lookups.
    pub query: Option<&'a SemanticQuery>,
    /// The number of purges when the response was requested.
    pub purges: u64,
}

impl Inner {
    /// Returns the statistics of a namespace. Above the maximum, namespaces without entries are dropped; the number of
    /// the others is bounded by the memory of their entries.
    fn namespace(&mut self, name: &str) -> &mut NamespaceStats {
        let known = self.namespaces.get_key_value(name).map(|(name, _)| Arc::clone(name));
        let name = known.unwrap_or_else(|| {
            if self.namespaces.len() >= MAX_NAMESPACES {
                self.namespaces.retain(|_, stats| stats.entries > 0);
            }
            name.into()
        });
        self.namespaces.entry(Arc::clone(&name)).or_insert_with(|| NamespaceStats::new(name))
    }
}
