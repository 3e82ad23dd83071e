//! Reservations that need a lease from the store, and the record of this node's leases in it.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::budget::ledger::{BudgetExceeded, BudgetLease, Denied, OtherNodes};
use gateway_core::budget::{Charge, Spender};
use gateway_store::StoreError;
use gateway_store::cluster::budget_leases::{self, LeaseOwner};
use gateway_store::cluster::invalidations::{self, Invalidation};
use gateway_store::faults::{KillPoint, kill_point};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::shared_ledger::{Hold, SharedLedger};
use super::{Budgets, Refused, Unread, reader};

/// How long a call waits while the store answers, but slowly or to others first. Then it is refused: a call without a
/// lease could exceed the limit together with those of other nodes.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
/// Before a request is made again that the store gave up or whose connection broke.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// A store that answers but fails as many requests in a row, with a full disk for example, is as good as gone.
const MAX_FAILED: usize = 5;
/// Attempts for one call in its turn: other calls of this node may use up what was leased for it.
const MAX_ATTEMPTS: usize = 5;

type Reserved = Result<Option<Hold>, Box<BudgetExceeded>>;

/// What became of a call whose lease was too small.
enum Requested {
    Decided(Reserved),
    /// The store cannot be reached or records nothing, so the node goes on with its part of what was left.
    Unreachable,
    /// The store can be reached, but nothing was decided in time.
    Undecided,
}

/// A request that ends with its caller. Those that wait for the turn of their call are therefore no more than the calls in
/// progress of their organization.
struct OfCaller(JoinHandle<Requested>);

impl Drop for OfCaller {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Leases that the store may have recorded or not, because their request failed or was given up. They are recorded again.
struct Unconfirmed<'a> {
    ledger: &'a SharedLedger,
    leases: &'a [BudgetLease],
    is_known: bool,
}

impl<'a> Unconfirmed<'a> {
    fn new(ledger: &'a SharedLedger, leases: &'a [BudgetLease]) -> Self {
        Self { ledger, leases, is_known: false }
    }

    /// The store has recorded them.
    fn granted(mut self) {
        self.ledger.lock().lease_granted(self.leases);
        self.is_known = true;
    }
}

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        if !self.is_known {
            self.ledger.lock().lease_changes_failed(self.leases);
        }
    }
}

/// Waits until the deadline at most.
pub async fn reserve(
    budgets: &Budgets,
    org: &Arc<SharedLedger>,
    spender: Spender,
    charge: Charge,
    deadline: Instant,
) -> Result<Option<Hold>, Refused> {
    let services = &budgets.0.services;
    match org.reserve(spender, charge, services.clock.now()) {
        Ok(reserved) => return Ok(reserved),
        Err(Denied::Exceeded(exceeded)) => return Err(exceeded.into()),
        Err(Denied::LeaseTooSmall) => {}
    }
    // Only tasks of the main runtime use the database.
    let (task_budgets, task_org) = (budgets.clone(), Arc::clone(org));
    let request = async move { request_in_time(&task_budgets, &task_org, spender, charge, deadline).await };
    let mut request = OfCaller(services.tasks.runtime.spawn(request));
    match (&mut request.0).await {
        Ok(Requested::Decided(reserved)) => Ok(reserved?),
        Ok(Requested::Unreachable) => {
            tracing::debug!(
                "cannot lease money of a budget; this node continues with its part of what was left"
            );
            let now = services.clock.now();
            Ok(org.reserve_offline(spender, charge, budgets.0.peers.alive(), now)?)
        }
        Ok(Requested::Undecided) | Err(_) => Err(Refused::Unread(Unread::Unavailable)),
    }
}

async fn request_in_time(
    budgets: &Budgets,
    org: &Arc<SharedLedger>,
    spender: Spender,
    charge: Charge,
    deadline: Instant,
) -> Requested {
    tokio::select! {
        requested = Box::pin(request(budgets, org, spender, charge)) => requested,
        () = budgets.0.reachability.lost(&budgets.0.services) => Requested::Unreachable,
        () = tokio::time::sleep_until(deadline) => Requested::Undecided,
    }
}

/// Requests leases until the call is admitted or refused, or the store fails.
async fn request(budgets: &Budgets, org: &Arc<SharedLedger>, spender: Spender, charge: Charge) -> Requested {
    let mut failed = 0;
    loop {
        match request_lease(budgets, org, spender, charge).await {
            Ok(Some(reserved)) => return Requested::Decided(reserved),
            // Other calls have their turn first.
            Ok(None) => {}
            Err(error @ StoreError::Unavailable(_)) => {
                // After a time-out, whether the store is gone or busy is found out meanwhile. A connection can also be
                // closed by an operator or a proxy.
                failed += usize::from(!error.is_timeout());
                let is_gone = async || !budgets.0.reachability.answers(&budgets.0.services).await;
                if !error.is_timeout() && (failed == MAX_FAILED || is_gone().await) {
                    tracing::debug!(%error, "the store of the budgets is not available");
                    return Requested::Unreachable;
                }
                tracing::debug!(%error, "a request for money of a budget is made again");
                tokio::time::sleep(RETRY_DELAY).await;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot lease money of a budget; the call is refused");
                return Requested::Undecided;
            }
        }
    }
}

/// Reads what was spent and what other nodes have leased, and leases enough for the call. None if other calls used up
/// what was leased.
async fn request_lease(
    budgets: &Budgets,
    org: &Arc<SharedLedger>,
    spender: Spender,
    charge: Charge,
) -> Result<Option<Reserved>, StoreError> {
    let (services, peers) = (&budgets.0.services, &budgets.0.peers);
    let reads = org.lock().reads_begun();
    let _guard = org.read_lock.lock().await;
    for _ in 0..MAX_ATTEMPTS {
        // An earlier request may have leased enough for both, or found that nothing is left.
        match org.reserve(spender, charge, services.clock.now()) {
            Ok(reserved) => return Ok(Some(Ok(reserved))),
            Err(Denied::Exceeded(exceeded)) => return Ok(Some(Err(exceeded))),
            Err(Denied::LeaseTooSmall) => {}
        }
        if let Some(exceeded) = org.lock().exhausted_after(reads, spender) {
            return Ok(Some(Err(exceeded)));
        }
        // Held while the transaction waits for a second connection, so that the pool cannot run dry.
        let _slot = budgets.lease_slot(org).await.map_err(|error| StoreError::Other(error.to_string()))?;
        let mut tx = services.db.begin().await?;
        let leased = budget_leases::leased_by_others(&mut tx, org.lease_owner(), peers.node_name()).await?;
        reader::reload(services, org).await?;
        let now = services.clock.now();
        let others = OtherNodes { leased, alive: peers.alive() };
        let planned = org.lock().plan_leases(spender, charge, &others, now);
        match planned {
            Ok(planned) => {
                let unconfirmed = Unconfirmed::new(org, &planned);
                budget_leases::upsert(&mut tx, peers.node_name(), &owned(org, &planned)).await?;
                kill_point(KillPoint::LeasePlanned);
                tx.commit().await?;
                kill_point(KillPoint::LeaseCommitted);
                unconfirmed.granted();
            }
            Err(exceeded) => {
                drop(tx);
                let period = exceeded.budget.period.start_of(now);
                let is_leased =
                    others.leased.get(&(exceeded.budget.id, period)).is_some_and(|amount| *amount > 0);
                // For later calls: other nodes return what they do not use. This one is decided.
                if is_leased
                    && org.lock().may_recall_others(now)
                    && let Err(error) = recall_others(budgets, org).await
                {
                    tracing::debug!(%error, "cannot recall leases of other nodes; a later call does");
                }
                return Ok(Some(Err(exceeded)));
            }
        }
    }
    Ok(None)
}

async fn recall_others(budgets: &Budgets, ledger: &SharedLedger) -> Result<(), StoreError> {
    let mut tx = budgets.0.services.db.begin().await?;
    let org = ledger.org();
    let recalled = match ledger.user() {
        None => Invalidation::BudgetLeases(org),
        Some(user) => Invalidation::UserBudgetLeases { org, user: user.name.to_string() },
    };
    invalidations::record(&mut tx, &recalled).await?;
    tx.commit().await?;
    ledger.lock().recall();
    budgets.0.wake.notify_one();
    Ok(())
}

/// Leases as the store records them.
fn owned<'a>(ledger: &'a SharedLedger, leases: &[BudgetLease]) -> Vec<(LeaseOwner<'a>, BudgetLease)> {
    leases.iter().map(|lease| (ledger.lease_owner(), *lease)).collect()
}

/// Records leases that shrank, or that the store does not know.
pub async fn record_changes(budgets: &Budgets, org: &SharedLedger) -> Result<(), StoreError> {
    let services = &budgets.0.services;
    if !org.lock().has_lease_changes(services.clock.now()) {
        return Ok(());
    }
    // Not during a lease request, whose result would be overwritten.
    let _guard = org.read_lock.lock().await;
    let leases = org.lock().take_lease_changes(services.clock.now());
    let recorded = async {
        let mut tx = services.db.begin().await?;
        budget_leases::upsert(&mut tx, budgets.0.peers.node_name(), &owned(org, &leases)).await?;
        tx.commit().await
    };
    let recorded = recorded.await;
    kill_point(KillPoint::LeaseReturned);
    if recorded.is_err() {
        org.lock().lease_changes_failed(&leases);
    }
    recorded
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use gateway_core::budget::ledger::{BudgetReading, Reading, Sharing};
    use gateway_core::budget::{Budget, Period, Scope, Unpriced};
    use gateway_core::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_lease_that_was_given_up_is_recorded_again() {
        let now: Timestamp = "2026-11-18T12:00:00Z".parse().unwrap();
        let (spender, charge) = (Spender::default(), Charge::priced(10));
        let others = OtherNodes { leased: HashMap::new(), alive: 1 };
        for is_granted in [true, false] {
            let ledger = read_ledger(now);
            assert!(matches!(ledger.reserve(spender, charge, now), Err(Denied::LeaseTooSmall)));
            let planned = ledger.lock().plan_leases(spender, charge, &others, now).unwrap();
            let unconfirmed = Unconfirmed::new(&ledger, &planned);
            if is_granted {
                unconfirmed.granted();
            } else {
                drop(unconfirmed);
            }
            assert_eq!(ledger.lock().has_lease_changes(now), !is_granted);
            assert_eq!(ledger.reserve(spender, charge, now).is_ok(), is_granted);
        }
    }

    fn read_ledger(now: Timestamp) -> Arc<SharedLedger> {
        let budget = Budget {
            id: Uuid::from_u128(1).into(),
            scope: Scope::Org(Uuid::nil().into()),
            keys: Vec::new(),
            period: Period::Daily,
            soft_limit: None,
            hard_limit: Some(1_000),
            unpriced: Unpriced::Allow,
            opening: 0,
            created_at: now,
        };
        let ledger = Arc::new(SharedLedger::of_org(Uuid::nil().into(), Arc::default(), Sharing::Leased));
        let number = ledger.lock().begin_read();
        let budgets = vec![BudgetReading { budget, stored: 0, notified: Vec::new() }];
        ledger.reload(Reading { number, budgets, included: HashSet::new() }, now);
        ledger
    }
}
