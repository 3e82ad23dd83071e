//! Events for limits that were reached, each once per period.

use gateway_core::budget::AlertKind;
use gateway_core::budget::ledger::PendingAlert;
use gateway_core::events::{BudgetEventData, Event};
use gateway_store::budgets::LimitNotice;
use gateway_store::faults::{KillPoint, kill_point};
use gateway_store::{StoreError, budgets as store, events};

use super::OrgBudgets;
use crate::services::Services;

/// Records the events. The store skips those that another node has recorded.
pub async fn send(services: &Services, org: &OrgBudgets) -> Result<(), StoreError> {
    let alerts = org.ledger().pending_alerts(services.clock.now());
    if alerts.is_empty() {
        return Ok(());
    }
    let mut tx = services.db.begin().await?;
    for PendingAlert { budget, starts_at, kind, limit, spent } in &alerts {
        let notice = LimitNotice { budget: budget.id, starts_at: *starts_at, kind: *kind };
        if !store::record_notice(&mut tx, org.id(), &notice, budget.period.as_str()).await? {
            continue;
        }
        let facts = BudgetEventData {
            budget_id: budget.id,
            scope: budget.scope,
            period: budget.period,
            limit: *limit,
            spent: *spent,
        };
        let event = match kind {
            AlertKind::Warning => Event::BudgetWarning(facts),
            AlertKind::Exceeded => Event::BudgetExceeded(facts),
        };
        events::record(&mut tx, org.id(), services.ids.new_id(), &event, services.clock.now()).await?;
    }
    kill_point(KillPoint::BudgetAlertWritten);
    tx.commit().await?;
    kill_point(KillPoint::BudgetAlertCommitted);
    org.ledger().mark_notified(&alerts);
    Ok(())
}
