//! Calls that wait for their turn. The first of those that share a bucket tries; the others wait until one leaves.

use std::collections::HashSet;
use std::sync::Arc;

use gateway_core::ids::LimitId;
use gateway_core::limits::Order;
use tokio::sync::Notify;

use super::state::{OrgState, State};

/// Bounds for an organization on a node.
const MAX_WAITING: usize = 1_000;
const MAX_WAITING_BYTES: usize = 16 << 20;

/// A limit and the bucket in it.
pub type BucketKey = (LimitId, Arc<str>);

pub struct Waiter {
    /// The bucket that has too little for it, or for somebody before it.
    key: BucketKey,
    bytes: usize,
    turn: Arc<Notify>,
}

/// A place in the queue. It is left when this is dropped, also because the caller hung up.
pub struct Place {
    state: Arc<OrgState>,
    pub order: Order,
    pub turn: Arc<Notify>,
}

impl State {
    /// The bucket among these for which a call that is served earlier waits.
    pub fn behind(&self, order: Order, keys: &[BucketKey]) -> Option<BucketKey> {
        if self.queue.is_empty() {
            return None;
        }
        self.queue.before(order).map(|waiter| &waiter.key).find(|key| keys.contains(key)).cloned()
    }

    /// Wakes those whose turn it is: nobody before them waits for the same bucket.
    pub fn wake_first(&self) {
        if self.queue.is_empty() {
            return;
        }
        let mut taken: HashSet<&BucketKey> = HashSet::new();
        for (_, waiter) in self.queue.iter() {
            if taken.insert(&waiter.key) {
                waiter.turn.notify_one();
            }
        }
    }
}

impl Place {
    /// None if too many wait already.
    pub fn enter(state: &Arc<OrgState>, order: Order, key: BucketKey, bytes: usize) -> Option<Self> {
        let mut locked = state.lock();
        let waiting_bytes = locked.waiting_bytes.saturating_add(bytes);
        if locked.queue.len() >= MAX_WAITING || waiting_bytes > MAX_WAITING_BYTES {
            return None;
        }
        locked.waiting_bytes = waiting_bytes;
        let turn = Arc::new(Notify::new());
        locked.queue.insert(order, Waiter { key, bytes, turn: Arc::clone(&turn) });
        drop(locked);
        Some(Self { state: Arc::clone(state), order, turn })
    }

    /// Waits for another bucket from now on. Those behind may go on.
    pub fn wait_for(&self, key: BucketKey) {
        let mut state = self.state.lock();
        let Some(waiter) = state.queue.get_mut(self.order) else { return };
        if waiter.key != key {
            waiter.key = key;
            state.wake_first();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if let Some(waiter) = state.queue.remove(self.order) {
            state.waiting_bytes = state.waiting_bytes.saturating_sub(waiter.bytes);
            state.wake_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::time::Timestamp;

    use super::*;

    #[test]
    fn calls_that_wait_are_bounded_in_number_and_bytes() {
        let state = Arc::new(OrgState::default());
        let key: BucketKey = (LimitId(uuid::Uuid::nil()), "".into());
        let enter = |bytes| {
            let order = state.lock().queue.place(5, Timestamp(0));
            Place::enter(&state, order, key.clone(), bytes)
        };
        let mut places: Vec<Place> = (0..MAX_WAITING).filter_map(|_| enter(0)).collect();
        assert_eq!(places.len(), MAX_WAITING);
        assert!(enter(0).is_none(), "as many wait as may");
        places.truncate(1);
        let large = enter(MAX_WAITING_BYTES);
        assert!(large.is_some() && enter(1).is_none(), "their bodies are bounded, too");
        drop(large);
        assert!(enter(1).is_some(), "what leaves gives its place back");
    }
}
