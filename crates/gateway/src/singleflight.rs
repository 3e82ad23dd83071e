//! Single flight: of several callers that need the same value at the same time, one (the leader) produces it and the
//! others wait. A leader that is dropped without a result, for example because its client disconnected, hands the
//! leadership to one waiter. A leader that finishes or fails releases all waiters at once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Semaphore;

pub struct SingleFlight<K, V> {
    flights: Mutex<HashMap<K, Arc<Flight<V>>>>,
}

/// One value that is being produced.
struct Flight<V> {
    /// Has a permit while the leadership is vacant. Closed when the flight ends.
    leadership: Semaphore,
    /// The value, or `None` if the leader failed.
    outcome: OnceLock<Option<V>>,
    /// The leader and the waiters. Changed under the lock of the map.
    members: AtomicUsize,
}

/// The role of a caller that joins a flight.
pub enum Joined<K: Hash + Eq, V> {
    Leader(Leader<K, V>),
    Waiter(Waiter<K, V>),
}

/// How a wait ended.
pub enum Waited<K: Hash + Eq, V> {
    /// The previous leader was dropped; this caller must produce the value.
    Promoted(Leader<K, V>),
    Value(V),
    /// The leader failed. Every waiter continues on its own.
    Failed,
}

/// Must produce the value and call `complete` or `fail`. Dropping it promotes a waiter.
pub struct Leader<K: Hash + Eq, V> {
    member: Member<K, V>,
    has_ended: bool,
}

/// May be dropped at any time, also while it waits.
pub struct Waiter<K: Hash + Eq, V> {
    member: Member<K, V>,
}

struct Member<K: Hash + Eq, V> {
    group: Arc<SingleFlight<K, V>>,
    key: K,
    flight: Arc<Flight<V>>,
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self { flights: Mutex::default() }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> SingleFlight<K, V> {
    /// Joins the flight of this key, or starts one as its leader.
    pub fn join(self: &Arc<Self>, key: &K) -> Joined<K, V> {
        let mut flights = self.lock();
        if let Some(flight) = flights.get(key) {
            return Joined::Waiter(Waiter { member: Member::new(self, key, flight) });
        }
        Joined::Leader(self.start(&mut flights, key))
    }

    /// Starts a flight of this key; `None` if one is in progress.
    pub fn try_lead(self: &Arc<Self>, key: &K) -> Option<Leader<K, V>> {
        let mut flights = self.lock();
        if flights.contains_key(key) {
            return None;
        }
        Some(self.start(&mut flights, key))
    }

    /// True if no flight is in progress.
    pub fn is_idle(&self) -> bool {
        self.lock().is_empty()
    }

    #[cfg(test)]
    pub fn waiters(&self, key: &K) -> usize {
        self.lock().get(key).map_or(0, |flight| flight.members.load(Ordering::Relaxed) - 1)
    }

    fn start(self: &Arc<Self>, flights: &mut HashMap<K, Arc<Flight<V>>>, key: &K) -> Leader<K, V> {
        let flight = Arc::new(Flight {
            leadership: Semaphore::new(0),
            outcome: OnceLock::new(),
            members: AtomicUsize::new(0),
        });
        flights.insert(key.clone(), Arc::clone(&flight));
        Leader { member: Member::new(self, key, &flight), has_ended: false }
    }
}

impl<K: Hash + Eq, V> SingleFlight<K, V> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Arc<Flight<V>>>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq, V> Leader<K, V> {
    /// Ends the flight and returns the value to every waiter.
    pub fn complete(self, value: V) {
        self.end(Some(value));
    }

    /// Ends the flight without a value.
    pub fn fail(self) {
        self.end(None);
    }

    fn end(mut self, outcome: Option<V>) {
        self.has_ended = true;
        let Member { group, key, flight } = &self.member;
        // Removed first, so that no caller joins a flight that has ended.
        remove(&mut group.lock(), key, flight);
        let _ = flight.outcome.set(outcome);
        flight.leadership.close();
    }
}

impl<K: Hash + Eq, V> Drop for Leader<K, V> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.member.flight.leadership.add_permits(1);
        }
    }
}

impl<K: Hash + Eq, V: Clone> Waiter<K, V> {
    /// Waits until the flight ends or this waiter is promoted.
    pub async fn wait(self) -> Waited<K, V> {
        let is_promoted = match self.member.flight.leadership.acquire().await {
            Ok(permit) => {
                permit.forget();
                true
            }
            Err(_closed) => false,
        };
        if is_promoted {
            return Waited::Promoted(Leader { member: self.member, has_ended: false });
        }
        match self.member.flight.outcome.get() {
            Some(Some(value)) => Waited::Value(value.clone()),
            _ => Waited::Failed,
        }
    }
}

impl<K: Hash + Eq + Clone, V> Member<K, V> {
    /// Called under the lock of the map.
    fn new(group: &Arc<SingleFlight<K, V>>, key: &K, flight: &Arc<Flight<V>>) -> Self {
        flight.members.fetch_add(1, Ordering::Relaxed);
        Self { group: Arc::clone(group), key: key.clone(), flight: Arc::clone(flight) }
    }
}

/// The last member to leave removes the flight.
impl<K: Hash + Eq, V> Drop for Member<K, V> {
    fn drop(&mut self) {
        let mut flights = self.group.lock();
        if self.flight.members.fetch_sub(1, Ordering::Relaxed) == 1 {
            remove(&mut flights, &self.key, &self.flight);
        }
    }
}

/// Removes the flight, unless a newer one has taken its key.
fn remove<K: Hash + Eq, V>(flights: &mut HashMap<K, Arc<Flight<V>>>, key: &K, flight: &Arc<Flight<V>>) {
    if flights.get(key).is_some_and(|current| Arc::ptr_eq(current, flight)) {
        flights.remove(key);
    }
}

#[cfg(test)]
mod tests;
