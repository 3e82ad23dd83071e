//! Calls in progress: how many there may be in the process, and how many of them one organization may have. A call takes
//! descriptors, memory and a connection to a provider for as long as it waits for its limits, for the provider or for
//! its caller, so slow calls of one organization must not keep those of others out. `core::fair_share` has the rule.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gateway_core::fair_share::{ShareRule, Use};
use gateway_core::ids::OrgId;

use crate::org_accounts::OrgAccounts;
use crate::problem::Problem;

pub struct CallsInProgress {
    shared: Arc<Shared>,
    accounts: OrgAccounts<OrgCalls>,
}

struct Shared {
    total: u64,
    running: AtomicU64,
    refusals: AtomicU64,
}

/// The calls of one organization.
pub struct OrgCalls {
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
        let shared = Shared { total, running: AtomicU64::new(0), refusals: AtomicU64::new(0) };
        Self { shared: Arc::new(shared), accounts: OrgAccounts::default() }
    }

    pub fn of(&self, org: OrgId) -> Arc<OrgCalls> {
        self.accounts.get(org, || OrgCalls { shared: Arc::clone(&self.shared), running: AtomicU64::new(0) })
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
        let Shared { total, running, refusals } = &*self.shared;
        let is_admitted = |used, own| ShareRule::CALLS.admits(Use { total: *total, used, own }, 1);
        // A refused call must not disturb the others, so it is usually found before anything is added.
        if is_admitted(running.load(Ordering::Relaxed), self.running.load(Ordering::Relaxed)) {
            let used = running.fetch_add(1, Ordering::Relaxed);
            let own = self.running.fetch_add(1, Ordering::Relaxed);
            let call = CallInProgress(Arc::clone(self));
            if is_admitted(used, own) {
                return Ok(call);
            }
        }
        refusals.fetch_add(1, Ordering::Relaxed);
        Err(TooManyCalls)
    }
}

impl Drop for CallInProgress {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
        self.0.shared.running.fetch_sub(1, Ordering::Relaxed);
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
