//! Reservations that need a lease from the store, and the record of this node's leases in it.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::budget::ledger::{BudgetExceeded, BudgetLease, Denied, OtherNodes};
use gateway_core::budget::{Charge, Spender};
use gateway_store::StoreError;
use gateway_store::cluster::budget_leases::{self, LeaseOwner};
use gateway_store::cluster::invalidations::{self, Invalidation};
use gateway_store::faults::{KillPoint, kill_point};

use super::shared_ledger::{Hold, SharedLedger};
use super::{Budgets, reader};

/// The store counts as unreachable when a lease request takes longer.
const LEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts for one call: other calls of this node may use up what was leased for it.
const MAX_ATTEMPTS: usize = 5;

type Reserved = Result<Option<Hold>, Box<BudgetExceeded>>;

pub async fn reserve(
    budgets: &Budgets,
    org: &Arc<SharedLedger>,
    spender: Spender,
    charge: Charge,
) -> Reserved {
    let services = &budgets.0.services;
    match org.reserve(spender, charge, services.clock.now()) {
        Ok(reserved) => return Ok(reserved),
        Err(Denied::Exceeded(exceeded)) => return Err(exceeded),
        Err(Denied::LeaseTooSmall) => {}
    }
    // Only tasks of the main runtime use the database.
    let (task_budgets, task_org) = (budgets.clone(), Arc::clone(org));
    let request = async move {
        let leased = request_lease(&task_budgets, &task_org, spender, charge);
        tokio::time::timeout(LEASE_TIMEOUT, leased).await
    };
    let error = match services.tasks.runtime.spawn(request).await {
        Ok(Ok(Ok(reserved))) => return reserved,
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(_)) => "the store does not respond".to_owned(),
        Err(error) => error.to_string(),
    };
    tracing::debug!(
        error,
        "cannot lease money of a budget; this node continues with its part of what was left"
    );
    org.reserve_offline(spender, charge, budgets.0.peers.alive(), services.clock.now())
}

/// Reads what was spent and what other nodes have leased, and leases enough for the call.
async fn request_lease(
    budgets: &Budgets,
    org: &Arc<SharedLedger>,
    spender: Spender,
    charge: Charge,
) -> Result<Reserved, StoreError> {
    let (services, peers) = (&budgets.0.services, &budgets.0.peers);
    let reads = org.lock().reads_begun();
    let _guard = org.read_lock.lock().await;
    for _ in 0..MAX_ATTEMPTS {
        // An earlier request may have leased enough for both, or found that nothing is left.
        match org.reserve(spender, charge, services.clock.now()) {
            Ok(reserved) => return Ok(Ok(reserved)),
            Err(Denied::Exceeded(exceeded)) => return Ok(Err(exceeded)),
            Err(Denied::LeaseTooSmall) => {}
        }
        if let Some(exceeded) = org.lock().exhausted_after(reads, spender) {
            return Ok(Err(exceeded));
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
                budget_leases::upsert(&mut tx, peers.node_name(), &owned(org, &planned)).await?;
                kill_point(KillPoint::LeasePlanned);
                tx.commit().await?;
                kill_point(KillPoint::LeaseCommitted);
                org.lock().lease_granted(&planned);
            }
            Err(exceeded) => {
                drop(tx);
                let period = exceeded.budget.period.start_of(now);
                let is_leased =
                    others.leased.get(&(exceeded.budget.id, period)).is_some_and(|amount| *amount > 0);
                if is_leased && org.lock().may_recall_others(now) {
                    // For later calls: other nodes return what they do not use.
                    recall_others(budgets, org).await?;
                }
                return Ok(Err(exceeded));
            }
        }
    }
    Err(StoreError::Other("concurrent calls used up what was leased".into()))
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
