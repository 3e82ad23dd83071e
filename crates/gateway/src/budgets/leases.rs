//! Reservations that need a lease from the store, and the record of this node's leases in it.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::budget::ledger::{BudgetExceeded, Denied, OtherNodes};
use gateway_core::budget::{Charge, Spender};
use gateway_core::ids::OrgId;
use gateway_store::StoreError;
use gateway_store::cluster::budget_leases;
use gateway_store::cluster::invalidations::{self, Invalidation};
use gateway_store::faults::{KillPoint, kill_point};

use super::{Budgets, OrgBudgets, Reservation, reader};

/// The store counts as unreachable when a lease request takes longer.
const LEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts for one call: other calls of this node may use up what was leased for it.
const MAX_ATTEMPTS: usize = 5;

type Reserved = Result<Option<Reservation>, Box<BudgetExceeded>>;

pub async fn reserve(budgets: &Budgets, org: &Arc<OrgBudgets>, spender: Spender, charge: Charge) -> Reserved {
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
    org: &Arc<OrgBudgets>,
    spender: Spender,
    charge: Charge,
) -> Result<Reserved, StoreError> {
    let (services, peers) = (&budgets.0.services, &budgets.0.peers);
    let reads = org.ledger().reads_begun();
    let _guard = org.read_lock.lock().await;
    for _ in 0..MAX_ATTEMPTS {
        // An earlier request may have leased enough for both, or found that nothing is left.
        match org.reserve(spender, charge, services.clock.now()) {
            Ok(reserved) => return Ok(Ok(reserved)),
            Err(Denied::Exceeded(exceeded)) => return Ok(Err(exceeded)),
            Err(Denied::LeaseTooSmall) => {}
        }
        if let Some(exceeded) = org.ledger().exhausted_after(reads, spender) {
            return Ok(Err(exceeded));
        }
        // Held while the transaction waits for a second connection, so that the pool cannot run dry.
        let _slot =
            budgets.0.lease_slots.acquire().await.map_err(|error| StoreError::Other(error.to_string()))?;
        let mut tx = services.db.begin().await?;
        let leased = budget_leases::leased_by_others(&mut tx, org.id(), peers.node_name()).await?;
        reader::reload(services, org).await?;
        let now = services.clock.now();
        let others = OtherNodes { leased, alive: peers.alive() };
        let planned = org.ledger().plan_leases(spender, charge, &others, now);
        match planned {
            Ok(planned) => {
                budget_leases::upsert(&mut tx, peers.node_name(), &planned).await?;
                kill_point(KillPoint::LeasePlanned);
                tx.commit().await?;
                kill_point(KillPoint::LeaseCommitted);
                org.ledger().lease_granted(&planned);
            }
            Err(exceeded) => {
                drop(tx);
                let period = exceeded.budget.period.start_of(now);
                let is_leased =
                    others.leased.get(&(exceeded.budget.id, period)).is_some_and(|amount| *amount > 0);
                if is_leased && org.ledger().may_recall_others(now) {
                    // For later calls: other nodes return what they do not use.
                    recall_others(budgets, org.id()).await?;
                }
                return Ok(Err(exceeded));
            }
        }
    }
    Err(StoreError::Other("concurrent calls used up what was leased".into()))
}

async fn recall_others(budgets: &Budgets, org: OrgId) -> Result<(), StoreError> {
    let mut tx = budgets.0.services.db.begin().await?;
    invalidations::record(&mut tx, &Invalidation::BudgetLeases(org)).await?;
    tx.commit().await?;
    budgets.recall(org);
    Ok(())
}

/// Records leases that shrank, or that the store does not know.
pub async fn record_changes(budgets: &Budgets, org: &OrgBudgets) -> Result<(), StoreError> {
    let services = &budgets.0.services;
    if !org.ledger().has_lease_changes(services.clock.now()) {
        return Ok(());
    }
    // Not during a lease request, whose result would be overwritten.
    let _guard = org.read_lock.lock().await;
    let leases = org.ledger().take_lease_changes(services.clock.now());
    let recorded = async {
        let mut tx = services.db.begin().await?;
        budget_leases::upsert(&mut tx, budgets.0.peers.node_name(), &leases).await?;
        tx.commit().await
    };
    let recorded = recorded.await;
    kill_point(KillPoint::LeaseReturned);
    if recorded.is_err() {
        org.ledger().lease_changes_failed(&leases);
    }
    recorded
}
