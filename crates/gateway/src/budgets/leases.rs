//! Leases of budgets' money, where several nodes share a store: asked for when what is leased does not cover a call, noted
//! when it becomes less. While the store is away each node goes on with an equal part of what was left.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::budget::Spender;
use gateway_store::StoreError;
use gateway_store::cluster::budget_leases;

use super::state::Denied;
use super::{OrgBudgets, Refused, Reservation, read};
use crate::app::App;
use crate::nodes::{self, Invalidation};

/// A store that has not answered after this long is taken for away.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is asked for one call: others on this node may be faster to use what was leased.
const TRIES: usize = 5;

type Answer = Result<Option<Reservation>, Box<Refused>>;

/// Holds what a call may cost, in every budget that covers the spender or in none. None when no budget does.
pub async fn hold(app: &Arc<App>, org: &Arc<OrgBudgets>, spender: Spender, amount: i64) -> Answer {
    match org.reserve(spender, amount, app.services.clock.now()) {
        Ok(held) => return Ok(held),
        Err(Denied::Refused(refused)) => return Err(refused),
        Err(Denied::Short) => {}
    }
    // Only the main runtime talks to the database.
    let (own_app, own_org) = (Arc::clone(app), Arc::clone(org));
    let asking =
        async move { tokio::time::timeout(PATIENCE, ask(&own_app, &own_org, spender, amount)).await };
    let why = match app.services.tasks.runtime.spawn(asking).await {
        Ok(Ok(Ok(answer))) => return answer,
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(_)) => "the store does not answer".to_owned(),
        Err(error) => error.to_string(),
    };
    tracing::debug!(why, "money of a budget could not be leased");
    let nodes = app.nodes.alive();
    org.goes_alone(nodes);
    org.reserve_alone(spender, amount, nodes, app.services.clock.now())
}

async fn ask(app: &App, org: &Arc<OrgBudgets>, spender: Spender, amount: i64) -> Result<Answer, StoreError> {
    let readings = org.readings();
    let _turn = app.proxy.budgets.gate.lock().await;
    for _ in 0..TRIES {
        // Whoever was before us may have leased enough for both, or learned that there is nothing left.
        match org.reserve(spender, amount, app.services.clock.now()) {
            Ok(held) => return Ok(Ok(held)),
            Err(Denied::Refused(refused)) => return Ok(Err(refused)),
            Err(Denied::Short) => {}
        }
        if let Some(refused) = org.refused_after(readings, spender) {
            return Ok(Err(refused));
        }
        org.begins_reading();
        let mut tx = app.services.db.begin().await?;
        let others = budget_leases::leased_by_others(&mut tx, org.id(), &app.nodes.name).await?;
        let read = read(app, org.id()).await?;
        let now = app.services.clock.now();
        org.replace(read, now);
        match org.plan(spender, amount, &others, app.nodes.alive(), now) {
            Ok(planned) => {
                budget_leases::upsert(&mut tx, &app.nodes.name, &planned).await?;
                tx.commit().await?;
                org.granted(&planned);
            }
            Err(refused) => {
                drop(tx);
                let period = refused.budget.period.start_of(now);
                if others.get(&(refused.budget.id, period)).is_some_and(|leased| *leased > 0)
                    && org.may_recall(now)
                {
                    // For those who ask after this one: what other nodes have and do not need comes back.
                    nodes::say(app, Invalidation::BudgetLeases(org.id())).await?;
                }
                return Ok(Err(refused));
            }
        }
    }
    Err(StoreError::Other("what was leased was used by others, again and again".into()))
}

/// Tells the store of leases that became less, or more than it knows.
pub async fn note(app: &App, org: &OrgBudgets) -> Result<(), StoreError> {
    if !org.has_to_note(app.services.clock.now()) {
        return Ok(());
    }
    // Not while one is asked for, whose answer would be overwritten.
    let _turn = app.proxy.budgets.gate.lock().await;
    let leases = org.to_note(app.services.clock.now());
    let noted = async {
        let mut tx = app.services.db.begin().await?;
        budget_leases::upsert(&mut tx, &app.nodes.name, &leases).await?;
        tx.commit().await
    };
    let noted = noted.await;
    if noted.is_err() {
        org.not_noted(&leases);
    }
    noted
}
