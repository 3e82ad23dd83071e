//! Slots for concurrent work that organizations share fairly: each has a maximum of its own, and those that wait take
//! turns.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gateway_core::fair_queue::FairQueue;
use gateway_core::ids::OrgId;
use tokio::sync::oneshot;

/// Waiting callers of all organizations together.
const MAX_WAITING: usize = 10_000;

/// The organization has too many callers waiting, or the caller waited too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too much work of this organization is waiting")]
pub struct Overloaded;

/// The limits of a set of slots.
#[derive(Debug, Clone, Copy)]
pub struct SlotLimits {
    pub slots: usize,
    pub per_org: usize,
    /// Callers of one organization that may wait.
    pub waiting_per_org: usize,
}

pub struct FairSlots<K: Key = OrgId> {
    limits: SlotLimits,
    state: Mutex<State<K>>,
    granted: AtomicU64,
    refused: AtomicU64,
    waited_ms: AtomicU64,
}

struct State<K: Key> {
    free: usize,
    in_use: HashMap<K, usize>,
    waiting: FairQueue<K, oneshot::Sender<Slot<K>>>,
}

/// What takes turns.
pub trait Key: Copy + Eq + Hash {}

impl<K: Copy + Eq + Hash> Key for K {}

/// Counts for metrics.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SlotStats {
    pub waiting: u64,
    pub granted: u64,
    pub refused: u64,
    pub waited_ms: u64,
}

/// A slot, released on drop.
pub struct Slot<K: Key = OrgId> {
    slots: Arc<FairSlots<K>>,
    org: K,
}

impl<K: Key> FairSlots<K> {
    pub fn new(limits: SlotLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            state: Mutex::new(State {
                free: limits.slots,
                in_use: HashMap::new(),
                waiting: FairQueue::new(limits.waiting_per_org, MAX_WAITING),
            }),
            granted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            waited_ms: AtomicU64::new(0),
        })
    }

    /// Waits for a slot, at most for the given time.
    pub async fn acquire(
        self: &Arc<Self>,
        org: K,
        max_wait: Option<Duration>,
    ) -> Result<Slot<K>, Overloaded> {
        let started = Instant::now();
        let slot = match (self.take_or_wait(org), max_wait) {
            (Ok(Ok(slot)), _) => Ok(slot),
            (Ok(Err(granted)), None) => granted.await.map_err(|_| Overloaded),
            (Ok(Err(granted)), Some(max_wait)) => match tokio::time::timeout(max_wait, granted).await {
                Ok(Ok(slot)) => Ok(slot),
                Ok(Err(_)) | Err(_) => Err(Overloaded),
            },
            (Err(Overloaded), _) => Err(Overloaded),
        };
        let counter = if slot.is_ok() { &self.granted } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        let waited = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.waited_ms.fetch_add(waited, Ordering::Relaxed);
        slot
    }

    pub fn stats(&self) -> SlotStats {
        SlotStats {
            waiting: self.lock().waiting.len() as u64,
            granted: self.granted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            waited_ms: self.waited_ms.load(Ordering::Relaxed),
        }
    }

    /// A free slot, or a receiver that gets one when it is the organization's turn.
    fn take_or_wait(
        self: &Arc<Self>,
        org: K,
    ) -> Result<Result<Slot<K>, oneshot::Receiver<Slot<K>>>, Overloaded> {
        let mut state = self.lock();
        if state.free > 0 && state.has_share(org, self.limits.per_org) {
            return Ok(Ok(self.take(&mut state, org)));
        }
        let (sender, receiver) = oneshot::channel();
        if let Err(sender) = state.waiting.push(org, sender) {
            // Callers that went away take no place.
            state.waiting.retain(|waiting| !waiting.is_closed());
            state.waiting.push(org, sender).map_err(|_| Overloaded)?;
        }
        Ok(Err(receiver))
    }

    fn take(self: &Arc<Self>, state: &mut State<K>, org: K) -> Slot<K> {
        state.free -= 1;
        *state.in_use.entry(org).or_default() += 1;
        Slot { slots: Arc::clone(self), org }
    }

    fn release(self: &Arc<Self>, org: K) {
        let mut state = self.lock();
        state.free += 1;
        if let Some(in_use) = state.in_use.get_mut(&org) {
            *in_use -= 1;
            if *in_use == 0 {
                state.in_use.remove(&org);
            }
        }
        let mut grants = Vec::new();
        while state.free > 0 {
            let State { in_use, waiting, .. } = &mut *state;
            let has_share = |org| in_use.get(&org).is_none_or(|used| *used < self.limits.per_org);
            let Some((org, sender)) = waiting.pop(has_share) else { break };
            if !sender.is_closed() {
                grants.push((sender, self.take(&mut state, org)));
            }
        }
        drop(state);
        for (sender, slot) in grants {
            // If the caller has just gone away, dropping the slot grants it to the next one.
            let _ = sender.send(slot);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Key> State<K> {
    fn has_share(&self, org: K, per_org: usize) -> bool {
        self.in_use.get(&org).is_none_or(|used| *used < per_org)
    }
}

impl<K: Key> Drop for Slot<K> {
    fn drop(&mut self) {
        self.slots.release(self.org);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::future::poll_immediate;

    use super::*;

    fn org(number: u128) -> OrgId {
        OrgId(uuid::Uuid::from_u128(number))
    }

    fn slots(slots: usize, per_org: usize, waiting_per_org: usize) -> Arc<FairSlots> {
        FairSlots::new(SlotLimits { slots, per_org, waiting_per_org })
    }

    #[tokio::test]
    async fn an_organization_waits_for_its_own_slots_only() {
        let slots = slots(3, 2, 10);
        let held = (slots.acquire(org(1), None).await.unwrap(), slots.acquire(org(1), None).await.unwrap());
        let mut third = pin!(slots.acquire(org(1), None));
        assert!(poll_immediate(&mut third).await.is_none());
        let other = slots.acquire(org(2), None).await.unwrap();
        drop(other);
        assert!(poll_immediate(&mut third).await.is_none());
        drop(held.0);
        assert!(matches!(poll_immediate(&mut third).await, Some(Ok(_))));
    }

    #[tokio::test]
    async fn those_who_wait_take_turns() {
        let slots = slots(1, 1, 10);
        let held = slots.acquire(org(1), None).await.unwrap();
        let mut flood: Vec<_> = (0..5).map(|_| Box::pin(slots.acquire(org(1), None))).collect();
        for waiting in &mut flood {
            assert!(poll_immediate(waiting).await.is_none());
        }
        let mut other = pin!(slots.acquire(org(2), None));
        assert!(poll_immediate(&mut other).await.is_none());
        drop(held);
        let Some(Ok(first)) = poll_immediate(&mut flood[0]).await else { panic!("the first one waits") };
        assert!(poll_immediate(&mut other).await.is_none());
        drop(first);
        assert!(matches!(poll_immediate(&mut other).await, Some(Ok(_))), "the flood comes later");
    }

    #[tokio::test]
    async fn waiting_is_bounded_and_callers_that_left_take_no_place() {
        let slots = slots(1, 1, 2);
        let held = slots.acquire(org(1), None).await.unwrap();
        assert_eq!(slots.acquire(org(1), Some(Duration::from_millis(5))).await.err(), Some(Overloaded));
        let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(slots.acquire(org(1), None))).collect();
        for waiting in &mut waiting {
            assert!(poll_immediate(waiting).await.is_none());
        }
        assert_eq!(slots.acquire(org(1), None).await.err(), Some(Overloaded));
        waiting.pop();
        let mut last = pin!(slots.acquire(org(1), None));
        assert!(poll_immediate(&mut last).await.is_none());
        drop(held);
        drop(waiting);
        assert!(last.await.is_ok());
        let stats = slots.stats();
        assert_eq!((stats.waiting, stats.granted, stats.refused), (0, 2, 2));
    }
}
