//! What one organization has in memory: its entries in the order in which they go, its flights, its semantic index and
//! its counts. Everything of a tenant is behind one lock that is held for a look into a map, never across an await.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gateway_core::cache::CacheKey;
use gateway_core::time::Timestamp;

use super::entry::Entry;
use super::flight::{Flight, FlightId, Leading, Seat};
use super::similar::{MOST, Near, SetId};
use super::stats::{Counts, NamespaceStats, Stats};

/// Namespaces whose counts are kept apart; callers choose the names, so there is a bound.
const NAMESPACES: usize = 1_000;

pub struct Tenant {
    inner: Mutex<Inner>,
    pub counts: Counts,
    bytes: AtomicU64,
    /// The bytes of all tenants.
    total: Arc<AtomicU64>,
    last_used: AtomicI64,
}

#[derive(Default)]
struct Inner {
    slots: HashMap<CacheKey, Slot>,
    /// Who goes first. An item whose serial is not the slot's is a leftover.
    order: VecDeque<(CacheKey, u64)>,
    serial: u64,
    flights: HashMap<FlightId, Arc<Flight>>,
    sets: HashMap<SetId, Vec<Arc<Near>>>,
    namespaces: HashMap<Arc<str>, NamespaceStats>,
    purges: u64,
}

struct Slot {
    entry: Arc<Entry>,
    namespace: Arc<str>,
    bytes: usize,
    serial: u64,
    /// Used since it was last looked at: it may stay another round.
    touched: bool,
    set: Option<SetId>,
}

/// What a request finds.
pub enum Seen {
    Entry(Arc<Entry>),
    Follow(Seat),
    Lead { leading: Option<Leading>, purges: u64 },
}

impl Tenant {
    pub fn new(total: Arc<AtomicU64>) -> Self {
        Self {
            inner: Mutex::default(),
            counts: Counts::default(),
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

    /// The entry, a seat behind whoever fetches it, or the lead. Who wants it fresh always leads.
    pub fn see(self: &Arc<Self>, id: FlightId, fresh: bool, now: Timestamp) -> Seen {
        self.last_used.store(now.0, Ordering::Relaxed);
        let mut inner = self.lock();
        if !fresh && let Some(entry) = self.live(&mut inner, id.key, now) {
            return Seen::Entry(entry);
        }
        if let Some(flight) = inner.flights.get(&id) {
            return if fresh {
                Seen::Lead { leading: None, purges: inner.purges }
            } else {
                Seen::Follow(Seat::take(self, id, flight))
            };
        }
        let (flight, baton) = Flight::new();
        let leading = baton.map(|baton| Seat::take(self, id, &flight).leading(baton));
        if leading.is_some() {
            inner.flights.insert(id, flight);
        }
        Seen::Lead { leading, purges: inner.purges }
    }

    /// An entry that is there and not over.
    pub fn find(&self, key: CacheKey, now: Timestamp) -> Option<Arc<Entry>> {
        self.live(&mut self.lock(), key, now)
    }

    /// How often something was purged: what was asked for before a purge is not stored after it.
    pub fn purges(&self) -> u64 {
        self.lock().purges
    }

    pub fn count_hit(&self, namespace: &str) {
        self.counts.hits.fetch_add(1, Ordering::Relaxed);
        self.lock().namespace(namespace).hits += 1;
    }

    pub fn count_miss(&self, namespace: &str) {
        self.counts.misses.fetch_add(1, Ordering::Relaxed);
        self.lock().namespace(namespace).misses += 1;
    }

    /// What was counted as a miss turned out to be a hit after all.
    pub fn miss_became_hit(&self, namespace: &str) {
        self.counts.misses.fetch_sub(1, Ordering::Relaxed);
        let mut inner = self.lock();
        let stats = inner.namespace(namespace);
        stats.misses = stats.misses.saturating_sub(1);
        drop(inner);
        self.count_hit(namespace);
    }

    fn live(&self, inner: &mut Inner, key: CacheKey, now: Timestamp) -> Option<Arc<Entry>> {
        let slot = inner.slots.get_mut(&key)?;
        if slot.entry.is_over(now) {
            self.remove(inner, key);
            return None;
        }
        slot.touched = true;
        Some(Arc::clone(&slot.entry))
    }

    /// Stores an entry, and its vector when it has one. Nothing is stored when a purge came in between.
    pub fn store(
        &self,
        key: CacheKey,
        namespace: &str,
        entry: Arc<Entry>,
        near: Option<(SetId, Near, usize)>,
        purges: u64,
    ) -> bool {
        let mut inner = self.lock();
        if inner.purges != purges {
            return false;
        }
        self.remove(&mut inner, key);
        let (set, near, extra) =
            near.map_or((None, None, 0), |(set, near, bytes)| (Some(set), Some(near), bytes));
        let bytes = entry.bytes + extra;
        inner.serial += 1;
        let serial = inner.serial;
        if let Some((set, near)) = set.clone().zip(near) {
            let list = inner.sets.entry(set).or_default();
            if list.len() >= MOST {
                list.remove(0);
            }
            list.push(Arc::new(near));
        }
        let stats = inner.namespace(namespace);
        stats.entries += 1;
        stats.bytes += bytes as u64;
        let namespace = Arc::clone(&stats.name);
        inner.slots.insert(key, Slot { entry, namespace, bytes, serial, touched: false, set });
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
        if let Some(set) = &slot.set
            && let Some(list) = inner.sets.get_mut(set)
        {
            list.retain(|near| near.key != key);
            if list.is_empty() {
                inner.sets.remove(set);
            }
        }
        if let Some(stats) = inner.namespaces.get_mut(&slot.namespace) {
            stats.entries -= 1;
            stats.bytes -= slot.bytes as u64;
        }
        self.bytes.fetch_sub(slot.bytes as u64, Ordering::Relaxed);
        self.total.fetch_sub(slot.bytes as u64, Ordering::Relaxed);
    }

    /// Lets go of at least one entry, and of more until so many bytes are free or the tenant is down to its share.
    /// Answers whether there was one.
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
            self.counts.evictions.fetch_add(1, Ordering::Relaxed);
            found = true;
            if before - self.bytes() >= wanted || self.bytes() <= share {
                break;
            }
        }
        found
    }

    /// Removes what is over.
    pub fn sweep(&self, now: Timestamp) {
        let mut inner = self.lock();
        let over: Vec<CacheKey> =
            inner.slots.iter().filter(|(_, slot)| slot.entry.is_over(now)).map(|(key, _)| *key).collect();
        for key in over {
            self.remove(&mut inner, key);
        }
    }

    /// Nothing in it, nothing under way, and long unused.
    pub fn is_idle_since(&self, then: Timestamp) -> bool {
        let inner = self.lock();
        inner.slots.is_empty() && inner.flights.is_empty() && self.last_used.load(Ordering::Relaxed) < then.0
    }

    /// Removes the entries of a namespace, or all; answers how many there were.
    pub fn purge(&self, namespace: Option<&str>) -> u64 {
        let mut inner = self.lock();
        inner.purges += 1;
        let named = |slot: &Slot| namespace.is_none_or(|namespace| *slot.namespace == *namespace);
        let keys: Vec<CacheKey> =
            inner.slots.iter().filter(|(_, slot)| named(slot)).map(|(key, _)| *key).collect();
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

    /// The texts of one set, to be compared outside the lock.
    pub fn set(&self, id: &SetId) -> Vec<Arc<Near>> {
        self.lock().sets.get(id).cloned().unwrap_or_default()
    }

    pub fn stats(&self) -> Stats {
        let inner = self.lock();
        let mut namespaces: Vec<NamespaceStats> = inner.namespaces.values().cloned().collect();
        namespaces.sort_by(|a, b| a.name.cmp(&b.name));
        self.counts.stats(inner.slots.len() as u64, self.bytes(), namespaces)
    }

    pub(super) fn end_flight(&self, id: FlightId, flight: &Arc<Flight>) {
        self.leave_flight(id, flight, || true);
    }

    /// Takes the flight off the board when `is_last` says so. The question is asked under the lock, so that nobody
    /// takes a seat in between.
    pub(super) fn leave_flight(&self, id: FlightId, flight: &Arc<Flight>, is_last: impl FnOnce() -> bool) {
        let mut inner = self.lock();
        let is_this = inner.flights.get(&id).is_some_and(|known| Arc::ptr_eq(known, flight));
        if is_last() && is_this {
            inner.flights.remove(&id);
        }
    }
}

impl Inner {
    /// The counts of a namespace. Past the bound, those without entries are forgotten; the others are bounded by what
    /// their entries take.
    fn namespace(&mut self, name: &str) -> &mut NamespaceStats {
        let known = self.namespaces.get_key_value(name).map(|(name, _)| Arc::clone(name));
        let name = known.unwrap_or_else(|| {
            if self.namespaces.len() >= NAMESPACES {
                self.namespaces.retain(|_, stats| stats.entries > 0);
            }
            name.into()
        });
        self.namespaces.entry(Arc::clone(&name)).or_insert_with(|| NamespaceStats::new(name))
    }
}
