//! Slots for concurrent work that organizations share fairly: each has a maximum of its own, and so have all of one owner
//! together. Owners that wait take turns, and so do the organizations of each.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gateway_core::fair_groups::{FairGroups, QueueLimits};
use gateway_core::ids::{OrgId, OwnerId};
use tokio::sync::oneshot;

use crate::org_owners::OrgOwners;

/// Waiting callers of all organizations together.
const MAX_WAITING: usize = 10_000;
/// The organizations of one owner leave half of the places to wait to others.
const MAX_WAITING_PER_OWNER: usize = MAX_WAITING / 2;

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

impl SlotLimits {
    /// The organizations of one owner leave a quarter of the slots to others, unless one organization may have more.
    fn per_owner(self) -> usize {
        self.per_org.max(self.slots - self.slots.div_ceil(4))
    }
}

pub struct FairSlots<K: Key = OrgId> {
    limits: SlotLimits,
    owners: Arc<OrgOwners>,
    state: Mutex<State<K>>,
    granted: AtomicU64,
    refused: AtomicU64,
    waited_ms: AtomicU64,
}

struct State<K: Key> {
    free: usize,
    in_use: HashMap<K, usize>,
    in_use_by_owner: HashMap<Owner, usize>,
    waiting: FairGroups<Owner, K, oneshot::Sender<Slot<K>>>,
}

/// None for the gateway itself.
type Owner = Option<OwnerId>;

/// What takes turns within its owner's.
pub trait Key: Copy + Eq + Hash {
    fn owner(self, owners: &OrgOwners) -> Owner;
}

impl Key for OrgId {
    fn owner(self, owners: &OrgOwners) -> Owner {
        Some(owners.of(self))
    }
}

impl Key for Option<OrgId> {
    fn owner(self, owners: &OrgOwners) -> Owner {
        self.map(|org| owners.of(org))
    }
}

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
    /// When the slot was taken: the owner of the organization may change meanwhile.
    owner: Owner,
}

impl<K: Key> FairSlots<K> {
    pub fn new(limits: SlotLimits, owners: &Arc<OrgOwners>) -> Arc<Self> {
        let waiting = QueueLimits {
            per_key: limits.waiting_per_org,
            per_group: limits.waiting_per_org.max(MAX_WAITING_PER_OWNER),
            all: MAX_WAITING,
        };
        Arc::new(Self {
            limits,
            owners: Arc::clone(owners),
            state: Mutex::new(State {
                free: limits.slots,
                in_use: HashMap::new(),
                in_use_by_owner: HashMap::new(),
                waiting: FairGroups::new(waiting),
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
        let owner = org.owner(&self.owners);
        let mut state = self.lock();
        if state.free > 0
            && has_share(&state.in_use, org, self.limits.per_org)
            && has_share(&state.in_use_by_owner, owner, self.limits.per_owner())
        {
            return Ok(Ok(self.take(&mut state, org, owner)));
        }
        let (sender, receiver) = oneshot::channel();
        if let Err(sender) = state.waiting.push(owner, org, sender) {
            // Callers that went away take no place.
            state.waiting.retain(|waiting| !waiting.is_closed());
            state.waiting.push(owner, org, sender).map_err(|_| Overloaded)?;
        }
        Ok(Err(receiver))
    }

    fn take(self: &Arc<Self>, state: &mut State<K>, org: K, owner: Owner) -> Slot<K> {
        state.free -= 1;
        *state.in_use.entry(org).or_default() += 1;
        *state.in_use_by_owner.entry(owner).or_default() += 1;
        Slot { slots: Arc::clone(self), org, owner }
    }

    fn release(self: &Arc<Self>, org: K, owner: Owner) {
        let mut state = self.lock();
        state.free += 1;
        give_back(&mut state.in_use, org);
        give_back(&mut state.in_use_by_owner, owner);
        let mut grants = Vec::new();
        while state.free > 0 {
            let State { in_use, in_use_by_owner, waiting, .. } = &mut *state;
            let (per_org, per_owner) = (self.limits.per_org, self.limits.per_owner());
            let may_take =
                |owner, org| has_share(in_use, org, per_org) && has_share(in_use_by_owner, owner, per_owner);
            let Some((owner, org, sender)) = waiting.pop(may_take) else { break };
            if !sender.is_closed() {
                grants.push((sender, self.take(&mut state, org, owner)));
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

fn has_share<K: Copy + Eq + Hash>(in_use: &HashMap<K, usize>, key: K, limit: usize) -> bool {
    in_use.get(&key).is_none_or(|used| *used < limit)
}

fn give_back<K: Copy + Eq + Hash>(in_use: &mut HashMap<K, usize>, key: K) {
    if let Some(used) = in_use.get_mut(&key) {
        *used -= 1;
        if *used == 0 {
            in_use.remove(&key);
        }
    }
}

impl<K: Key> Drop for Slot<K> {
    fn drop(&mut self) {
        self.slots.release(self.org, self.owner);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::future::poll_immediate;
    use gateway_core::ids::UserId;

    use super::*;

    fn org(number: u128) -> OrgId {
        OrgId(uuid::Uuid::from_u128(number))
    }

    fn slots(slots: usize, per_org: usize, waiting_per_org: usize) -> Arc<FairSlots> {
        FairSlots::new(SlotLimits { slots, per_org, waiting_per_org }, &Arc::default())
    }

    /// Slots, and the organizations with these numbers are of one owner.
    fn slots_of_one_owner(slots: usize, per_org: usize, orgs: std::ops::Range<u128>) -> Arc<FairSlots> {
        let owners = OrgOwners::default();
        orgs.for_each(|number| owners.set(org(number), UserId(uuid::Uuid::max())));
        FairSlots::new(SlotLimits { slots, per_org, waiting_per_org: 10 }, &Arc::new(owners))
    }

    #[tokio::test]
    async fn an_account_with_many_organizations_leaves_slots_to_others() {
        let slots = slots_of_one_owner(8, 2, 1..101);
        let mut held = Vec::new();
        for number in 1..101 {
            held.extend(poll_immediate(Box::pin(slots.acquire(org(number), None))).await);
        }
        assert!(held.len() == 6 && held.iter().all(Result::is_ok), "{}", held.len());
        let others = [slots.acquire(org(200), None).await, slots.acquire(org(201), None).await];
        assert!(others.iter().all(Result::is_ok));
        drop(others);
        held.clear();
        let state = slots.lock();
        assert!(state.in_use_by_owner.is_empty() && state.in_use.is_empty());
    }

    #[tokio::test]
    async fn an_account_with_many_organizations_has_one_turn() {
        let slots = slots_of_one_owner(1, 1, 1..51);
        let held = slots.acquire(org(200), None).await.unwrap();
        let mut flood: Vec<_> = (1..51).map(|number| Box::pin(slots.acquire(org(number), None))).collect();
        for waiting in &mut flood {
            assert!(poll_immediate(waiting).await.is_none());
        }
        let mut other = pin!(slots.acquire(org(201), None));
        assert!(poll_immediate(&mut other).await.is_none());
        drop(held);
        let Some(Ok(first)) = poll_immediate(&mut flood[0]).await else { panic!("the first one waits") };
        drop(first);
        let Some(Ok(second)) = poll_immediate(&mut other).await else { panic!("49 others are first") };
        drop(second);
        // The organizations of the account take turns too.
        assert!(poll_immediate(&mut flood[2]).await.is_none());
        assert!(matches!(poll_immediate(&mut flood[1]).await, Some(Ok(_))));
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
