//! Calls in progress: how many there may be in the process, and how many of them one organization may have. A call takes
//! descriptors, memory and a connection to a provider for as long as it waits for its limits, for the provider or for
//! its caller, so slow calls of one organization must not keep those of others out, and neither must those of an account
//! with many organizations. `core::fair_share` has the rule.
//!
//! Calls of the gateway itself wait for the end of others; owners and their organizations take turns. Proxied calls do not
//! wait.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_core::fair_groups::{FairGroups, QueueLimits};
use gateway_core::fair_share::{ShareRule, Use};
use gateway_core::ids::{OrgId, OwnerId};
use gateway_store::org_owners::OrgOwners;
use tokio::sync::oneshot;

use crate::org_accounts::{OrgAccounts, OwnedOrg};
use crate::problem::Problem;

/// Calls of one organization that may wait, of those of one owner, and of all.
const MAX_WAITING_PER_ORG: usize = 256;
const MAX_WAITING_PER_OWNER: usize = 5_000;
const MAX_WAITING: usize = 10_000;

pub struct CallsInProgress {
    shared: Arc<Shared>,
    owners: Arc<OrgOwners>,
    accounts: OrgAccounts<OrgCalls>,
    of_owners: OrgAccounts<AtomicU64, OwnerId>,
}

struct Shared {
    total: u64,
    running: AtomicU64,
    refusals: AtomicU64,
    /// The number of those in `queue`, readable without its lock at the end of each call.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

/// Calls that wait, and the organizations that they are of.
struct Queue {
    calls: FairGroups<OwnerId, OrgId, oneshot::Sender<CallInProgress>>,
    orgs: HashMap<OwnedOrg, Arc<OrgCalls>>,
}

/// The calls of one organization.
pub struct OrgCalls {
    org: OrgId,
    owner: OwnerId,
    shared: Arc<Shared>,
    running: AtomicU64,
    /// Of all organizations of the owner.
    of_owner: Arc<AtomicU64>,
}

/// A call in progress, until it is dropped.
pub struct CallInProgress(Arc<OrgCalls>);

/// The organization has as many calls in progress as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyCalls;

impl From<TooManyCalls> for Problem {
    fn from(_: TooManyCalls) -> Self {
        Problem::overloaded(
            "this organization has as many calls in progress as its share of the gateway allows; retry after the time in \
             Retry-After, with fewer calls at once",
        )
    }
}

impl CallsInProgress {
    pub fn new(total: u64) -> Self {
        let limits =
            QueueLimits { per_key: MAX_WAITING_PER_ORG, per_group: MAX_WAITING_PER_OWNER, all: MAX_WAITING };
        let shared = Shared {
            total,
            running: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(Queue { calls: FairGroups::new(limits), orgs: HashMap::new() }),
        };
        Self {
            shared: Arc::new(shared),
            owners: Arc::default(),
            accounts: OrgAccounts::default(),
            of_owners: OrgAccounts::default(),
        }
    }

    /// The same, shared between these owners. Otherwise each organization is its own owner.
    pub fn sharing_by(self, owners: &Arc<OrgOwners>) -> Self {
        Self { owners: Arc::clone(owners), ..self }
    }

    pub fn of(&self, org: OrgId) -> Arc<OrgCalls> {
        let owner = self.owners.of(org);
        let open = || OrgCalls {
            org,
            owner,
            shared: Arc::clone(&self.shared),
            running: AtomicU64::new(0),
            of_owner: self.of_owners.get(owner, AtomicU64::default),
        };
        self.accounts.get((org, owner), open)
    }

    pub fn running(&self) -> u64 {
        self.shared.running.load(Ordering::Relaxed)
    }

    pub fn refusals(&self) -> u64 {
        self.shared.refusals.load(Ordering::Relaxed)
    }
}

impl OrgCalls {
    pub fn begin(self: &Arc<Self>) -> Result<CallInProgress, TooManyCalls> {
        self.begin_if_admitted().inspect_err(|_| self.shared.count_refusal())
    }

    /// Waits until another call has ended if the organization has as many as it may.
    pub async fn begin_in_turn(self: &Arc<Self>, max_wait: Duration) -> Result<CallInProgress, TooManyCalls> {
        if let Ok(call) = self.begin_if_admitted() {
            return Ok(call);
        }
        let granted = match self.wait() {
            Ok(granted) => tokio::time::timeout(max_wait, granted).await.ok().and_then(Result::ok),
            Err(TooManyCalls) => None,
        };
        granted.ok_or(TooManyCalls).inspect_err(|_| self.shared.count_refusal())
    }

    fn begin_if_admitted(self: &Arc<Self>) -> Result<CallInProgress, TooManyCalls> {
        // A refused call must not disturb the others, so it is usually found before anything is added.
        if !self.may_begin(Ordering::Relaxed) {
            return Err(TooManyCalls);
        }
        if self.add() {
            return Ok(CallInProgress(Arc::clone(self)));
        }
        // Those who wait may have been refused because this call was counted for a moment.
        self.shared.serve_waiting();
        Err(TooManyCalls)
    }

    fn counts(&self) -> [&AtomicU64; 3] {
        [&self.shared.running, &self.running, &self.of_owner]
    }

    fn may_begin(&self, ordering: Ordering) -> bool {
        self.shared.admits(self.counts().map(|count| count.load(ordering)))
    }

    /// Counts a call. Returns false if it was one too many.
    fn add(&self) -> bool {
        let is_admitted = self.shared.admits(self.counts().map(|count| count.fetch_add(1, Ordering::SeqCst)));
        if !is_admitted {
            self.subtract();
        }
        is_admitted
    }

    fn subtract(&self) {
        for count in self.counts() {
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn wait(self: &Arc<Self>) -> Result<oneshot::Receiver<CallInProgress>, TooManyCalls> {
        let (sender, receiver) = oneshot::channel();
        self.shared.queue(|queue| queue.push(self, sender))?;
        // A call may have ended before this one was in the queue.
        self.shared.serve_waiting();
        Ok(receiver)
    }
}

impl Shared {
    fn admits(&self, [used, own, of_owner]: [u64; 3]) -> bool {
        ShareRule::CALLS.admits(Use { total: self.total, used, own, of_owner }, 1)
    }

    fn count_refusal(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// A call has ended: those who wait begin, as far as they may now. The order of this read after the end of the call,
    /// and of `waiting` before the counts in the queue, is why nobody is overlooked.
    fn serve_waiting(&self) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let granted = self.queue(Queue::grant);
        for (waiting, call) in granted {
            // If the caller has just gone away, dropping the call lets the next one begin.
            let _ = waiting.send(call);
        }
    }

    fn queue<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut queue);
        self.waiting.store(queue.calls.len(), Ordering::SeqCst);
        result
    }
}

impl Queue {
    fn push(
        &mut self,
        calls: &Arc<OrgCalls>,
        sender: oneshot::Sender<CallInProgress>,
    ) -> Result<(), TooManyCalls> {
        let (org, owner) = (calls.org, calls.owner);
        if let Err(sender) = self.calls.push(owner, org, sender) {
            // Callers that went away take no place.
            self.calls.retain(|waiting| !waiting.is_closed());
            self.calls.push(owner, org, sender).map_err(|_| TooManyCalls)?;
            self.orgs.retain(|(org, owner), _| self.calls.len_of(*owner, *org) > 0);
        }
        self.orgs.insert((org, owner), Arc::clone(calls));
        Ok(())
    }

    /// The calls that begin now. Nothing is dropped here that would ask for the queue again.
    fn grant(&mut self) -> Vec<(oneshot::Sender<CallInProgress>, CallInProgress)> {
        let mut granted = Vec::new();
        loop {
            let orgs = &self.orgs;
            let may_begin = |owner, org| {
                orgs.get(&(org, owner)).is_some_and(|calls: &Arc<OrgCalls>| calls.may_begin(Ordering::SeqCst))
            };
            let Some((owner, org, waiting)) = self.calls.pop(may_begin) else { return granted };
            let calls = self.orgs.get(&(org, owner)).cloned();
            if self.calls.len_of(owner, org) == 0 {
                self.orgs.remove(&(org, owner));
            }
            let Some(calls) = calls.filter(|_| !waiting.is_closed()) else { continue };
            if !calls.add() {
                // A call that does not wait was faster. This one is served at the end of the next.
                let _ = self.push(&calls, waiting);
                return granted;
            }
            granted.push((waiting, CallInProgress(calls)));
        }
    }
}

impl Drop for CallInProgress {
    fn drop(&mut self) {
        self.0.subtract();
        self.0.shared.serve_waiting();
    }
}

#[cfg(test)]
mod tests;
