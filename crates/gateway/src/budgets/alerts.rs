//! Events for limits that were reached, each once per period, and of budgets of users once per user.

use std::sync::Arc;

use gateway_core::budget::ledger::PendingAlert;
use gateway_core::budget::{AlertKind, Scope};
use gateway_core::events::{BudgetEventData, Event};
use gateway_store::budgets::LimitNotice;
use gateway_store::faults::{KillPoint, kill_point};
use gateway_store::{StoreError, Tx, budgets as store, events, user_budgets};

use super::shared_ledger::SharedLedger;
use crate::services::Services;

/// Records the events of these ledgers. The store skips those that were recorded before.
pub async fn send(services: &Services, ledgers: &[&Arc<SharedLedger>]) -> Result<(), StoreError> {
    let now = services.clock.now();
    let pending = ledgers.iter().map(|ledger| (*ledger, ledger.lock().pending_alerts(now)));
    let pending: Vec<(&Arc<SharedLedger>, Vec<PendingAlert>)> =
        pending.filter(|(_, alerts)| !alerts.is_empty()).collect();
    if pending.is_empty() {
        return Ok(());
    }
    let mut tx = services.db.begin().await?;
    for (ledger, alerts) in &pending {
        for alert in alerts {
            record(&mut tx, services, ledger, alert).await?;
        }
    }
    kill_point(KillPoint::BudgetAlertWritten);
    tx.commit().await?;
    kill_point(KillPoint::BudgetAlertCommitted);
    for (ledger, alerts) in &pending {
        ledger.lock().mark_notified(alerts);
    }
    Ok(())
}

async fn record(
    tx: &mut Tx,
    services: &Services,
    ledger: &SharedLedger,
    alert: &PendingAlert,
) -> Result<(), StoreError> {
    let PendingAlert { budget, starts_at, kind, limit, spent } = alert;
    let (org, period) = (ledger.org(), budget.period.as_str());
    let notice = LimitNotice { budget: budget.id, starts_at: *starts_at, kind: *kind };
    let is_new = match &budget.scope {
        Scope::User(user) => user_budgets::record_notice(tx, org, &notice, (period, user)).await?,
        Scope::Org(_) | Scope::Team(_) | Scope::App(_) | Scope::Key(_) => {
            store::record_notice(tx, org, &notice, period).await?
        }
    };
    if !is_new {
        return Ok(());
    }
    let facts = BudgetEventData {
        budget_id: budget.id,
        scope: budget.scope.clone(),
        period: budget.period,
        limit: *limit,
        spent: *spent,
    };
    let event = match kind {
        AlertKind::Warning => Event::BudgetWarning(facts),
        AlertKind::Exceeded => Event::BudgetExceeded(facts),
    };
    events::record(tx, org, services.ids.new_id(), &event, services.clock.now()).await
}
