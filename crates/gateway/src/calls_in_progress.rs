//! Calls in progress: how many there may be in the process, and how many of them one organization may have. A call takes
//! descriptors, memory and a connection to a provider for as long as it waits for its limits, for the provider or for
//! its caller, so slow calls of one organization must not keep those of others out. `core::fair_share` has the rule.
//!
//! Calls of the gateway itself wait for the end of others; organizations take turns. Proxied calls do not wait.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_core::fair_queue::FairQueue;
use gateway_core::fair_share::{ShareRule, Use};
use gateway_core::ids::OrgId;
use tokio::sync::oneshot;

use crate::org_accounts::OrgAccounts;
use crate::problem::Problem;

/// Calls of one organization that may wait, and of all.
const MAX_WAITING_PER_ORG: usize = 256;
const MAX_WAITING: usize = 10_000;

pub struct CallsInProgress {
    shared: Arc<Shared>,
    accounts: OrgAccounts<OrgCalls>,
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
    calls: FairQueue<OrgId, oneshot::Sender<CallInProgress>>,
    orgs: HashMap<OrgId, Arc<OrgCalls>>,
}

/// The calls of one organization.
pub struct OrgCalls {
    org: OrgId,
    shared: Arc<Shared>,
    running: AtomicU64,
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
        let calls = FairQueue::new(MAX_WAITING_PER_ORG, MAX_WAITING);
        let shared = Shared {
            total,
            running: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(Queue { calls, orgs: HashMap::new() }),
        };
        Self { shared: Arc::new(shared), accounts: OrgAccounts::default() }
    }

    pub fn of(&self, org: OrgId) -> Arc<OrgCalls> {
        let open = || OrgCalls { org, shared: Arc::clone(&self.shared), running: AtomicU64::new(0) };
        self.accounts.get(org, open)
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
        let (used, own) = (self.shared.running.load(Ordering::Relaxed), self.running.load(Ordering::Relaxed));
        if !self.shared.admits(used, own) {
            return Err(TooManyCalls);
        }
        if self.add() {
            return Ok(CallInProgress(Arc::clone(self)));
        }
        // Those who wait may have been refused because this call was counted for a moment.
        self.shared.serve_waiting();
        Err(TooManyCalls)
    }

    /// Counts a call. Returns false if it was one too many.
    fn add(&self) -> bool {
        let used = self.shared.running.fetch_add(1, Ordering::SeqCst);
        let own = self.running.fetch_add(1, Ordering::SeqCst);
        let is_admitted = self.shared.admits(used, own);
        if !is_admitted {
            self.subtract();
        }
        is_admitted
    }

    fn subtract(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.shared.running.fetch_sub(1, Ordering::SeqCst);
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
    fn admits(&self, used: u64, own: u64) -> bool {
        ShareRule::CALLS.admits(Use { total: self.total, used, own }, 1)
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
        if let Err(sender) = self.calls.push(calls.org, sender) {
            // Callers that went away take no place.
            self.calls.retain(|waiting| !waiting.is_closed());
            self.calls.push(calls.org, sender).map_err(|_| TooManyCalls)?;
            self.orgs.retain(|org, _| self.calls.len_of(*org) > 0);
        }
        self.orgs.insert(calls.org, Arc::clone(calls));
        Ok(())
    }

    /// The calls that begin now. Nothing is dropped here that would ask for the queue again.
    fn grant(&mut self) -> Vec<(oneshot::Sender<CallInProgress>, CallInProgress)> {
        let mut granted = Vec::new();
        loop {
            let orgs = &self.orgs;
            let may_begin = |org| {
                orgs.get(&org).is_some_and(|calls: &Arc<OrgCalls>| {
                    let used = calls.shared.running.load(Ordering::SeqCst);
                    calls.shared.admits(used, calls.running.load(Ordering::SeqCst))
                })
            };
            let Some((org, waiting)) = self.calls.pop(may_begin) else { return granted };
            let calls = self.orgs.get(&org).cloned();
            if self.calls.len_of(org) == 0 {
                self.orgs.remove(&org);
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
mod tests {
    use super::*;

    fn org(number: u128) -> OrgId {
        OrgId(uuid::Uuid::from_u128(number))
    }

    fn begin_all(calls: &Arc<OrgCalls>) -> Vec<CallInProgress> {
        std::iter::from_fn(|| calls.begin().ok()).collect()
    }

    #[test]
    fn an_organization_leaves_room_and_everything_is_given_back() {
        let calls = CallsInProgress::new(640);
        let (one, two) = (calls.of(org(1)), calls.of(org(2)));
        let held = begin_all(&one);
        assert_eq!((held.len(), calls.running(), calls.refusals()), (448, 448, 1));
        let others = begin_all(&two);
        assert!(others.len() >= 80, "{}", others.len());
        drop(held);
        assert_eq!(calls.running(), others.len() as u64);
        drop(others);
        assert_eq!((calls.running(), one.running.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn an_organization_is_counted_once_however_often_it_is_loaded() {
        let calls = CallsInProgress::new(64);
        let first = calls.of(org(1));
        let held = begin_all(&first);
        drop(first);
        assert_eq!(calls.of(org(1)).begin().err(), Some(TooManyCalls));
        drop(held);
        assert!(calls.of(org(1)).begin().is_ok());
    }

    #[tokio::test]
    async fn those_who_wait_begin_when_others_end_and_take_turns() {
        let calls = CallsInProgress::new(8);
        let mut held: Vec<_> = (3..6).flat_map(|number| begin_all(&calls.of(org(number)))).collect();
        let order = Mutex::new(Vec::new());
        let begun = |number: u128| {
            let (calls, order) = (calls.of(org(number)), &order);
            async move {
                let call = calls.begin_in_turn(Duration::from_secs(600)).await.unwrap();
                order.lock().unwrap().push(number);
                call
            }
        };
        let waiting = futures_util::future::join_all([begun(1), begun(1), begun(1), begun(2)]);
        let ending = async {
            while calls.shared.waiting.load(Ordering::SeqCst) < 4 {
                tokio::task::yield_now().await;
            }
            for (ended, call) in held.drain(..4).enumerate() {
                assert_eq!(order.lock().unwrap().len(), ended);
                drop(call);
                while order.lock().unwrap().len() == ended {
                    tokio::task::yield_now().await;
                }
            }
        };
        let (begun, ()) = tokio::join!(waiting, ending);
        assert_eq!(*order.lock().unwrap(), [1, 2, 1, 1]);
        assert!(calls.shared.queue(|queue| queue.orgs.is_empty()));
        drop((begun, held));
        assert_eq!(calls.running(), 0);
    }

    #[tokio::test]
    async fn a_call_waits_for_a_limited_time_and_only_so_many_of_an_organization_wait() {
        let calls = CallsInProgress::new(8);
        let one = calls.of(org(1));
        let held = begin_all(&one);
        let refused = calls.refusals();
        let waiting = (0..=MAX_WAITING_PER_ORG).map(|_| one.begin_in_turn(Duration::from_millis(50)));
        let answers = futures_util::future::join_all(waiting).await;
        assert!(answers.iter().all(Result::is_err));
        assert_eq!(calls.refusals() - refused, MAX_WAITING_PER_ORG as u64 + 1);
        assert_eq!(calls.shared.waiting.load(Ordering::SeqCst), MAX_WAITING_PER_ORG);
        // Those who have gone away leave room for the next one.
        let (next, ()) = tokio::join!(one.begin_in_turn(Duration::from_secs(600)), async { drop(held) });
        assert!(next.is_ok());
        assert_eq!(calls.shared.waiting.load(Ordering::SeqCst), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn nobody_who_waits_is_overlooked() {
        let calls = Arc::new(CallsInProgress::new(16));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..8 {
            for _ in 0..8 {
                let account = calls.of(org(number));
                tasks.spawn(async move {
                    for _ in 0..500 {
                        let call = account.begin_in_turn(Duration::from_secs(60)).await;
                        assert!(call.is_ok());
                        tokio::task::yield_now().await;
                    }
                });
            }
        }
        let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
        tokio::time::timeout(Duration::from_secs(50), all).await.expect("somebody waits for ever");
        assert_eq!(calls.running(), 0);
    }

    #[test]
    fn threads_that_begin_calls_at_once_do_not_exceed_the_total() {
        let calls = CallsInProgress::new(100);
        let most = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 0..8 {
                let (account, most) = (calls.of(org(number)), &most);
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        let held = account.begin();
                        if held.is_ok() {
                            // Those that are being refused are counted for a moment as well.
                            most.fetch_max(account.shared.running.load(Ordering::Relaxed), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert!(most.load(Ordering::Relaxed) <= 100 + 8);
        assert_eq!(calls.running(), 0);
    }
}
