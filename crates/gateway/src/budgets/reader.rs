//! Reads budgets and spending from the store into a ledger.

use gateway_core::budget::ledger::{BudgetReading, Reading};
use gateway_core::budget::{Amount, Budget, Scope};
use gateway_core::time::Timestamp;
use gateway_store::StoreError;
use gateway_store::budgets::{self, LimitNotice};
use gateway_store::logs::{DaySpend, SpendSnapshot};

use super::OrgBudgets;
use crate::services::Services;

/// Reads the store. The caller holds the organization's `read_lock`.
pub async fn reload(services: &Services, org: &OrgBudgets) -> Result<(), StoreError> {
    let number = org.ledger().begin_read();
    let budgets = budgets::list_all(&services.db, org.id()).await?;
    let now = services.clock.now();
    let since = budgets.iter().map(|budget| budget.period.start_of(now)).min().unwrap_or(now);
    let notices = budgets::list_notices(&services.db, org.id(), since).await?;
    let mut snapshot = SpendSnapshot::open(&services.logs).await?;
    let mut spending = Spending::default();
    if budgets.iter().any(|budget| matches!(budget.scope, Scope::Org(_))) {
        spending.of_org = snapshot.of_org(org.id(), since).await?;
    }
    let scope_ids = scope_ids(&budgets);
    if !scope_ids.is_empty() {
        spending.of_scopes = snapshot.of_ids(org.id(), since, &scope_ids).await?;
    }
    let uncertain = org.ledger().uncertain_rows();
    let included = snapshot.contained_rows(&uncertain).await?;
    drop(snapshot);
    let budgets = budgets.into_iter().map(|budget| spending.reading(budget, &notices, now)).collect();
    org.reload(Reading { number, budgets, included }, now);
    Ok(())
}

#[derive(Default)]
struct Spending {
    /// Of the whole organization.
    of_org: Vec<DaySpend>,
    /// Of the keys, applications and teams that have budgets.
    of_scopes: Vec<DaySpend>,
}

impl Spending {
    fn reading(&self, budget: Budget, notices: &[(LimitNotice, String)], now: Timestamp) -> BudgetReading {
        let starts_at = budget.period.start_of(now);
        let days = if matches!(budget.scope, Scope::Org(_)) { &self.of_org } else { &self.of_scopes };
        let counted = days.iter().filter(|day| day.day >= starts_at && budget.covers(&day.spender));
        let (cost, unpriced) = counted.fold((0, 0_u64), |(cost, unpriced): (Amount, u64), day| {
            (cost + Amount::from(day.cost), unpriced.saturating_add(day.unpriced_calls))
        });
        let stored = budget.sum_of(cost, unpriced).saturating_add(budget.opening_at(now));
        let is_own = |(notice, period): &&(LimitNotice, String)| {
            notice.budget == budget.id && notice.starts_at == starts_at && period == budget.period.as_str()
        };
        let notified = notices.iter().filter(is_own).map(|(notice, _)| notice.kind).collect();
        BudgetReading { budget, stored, notified }
    }
}

/// The ids of the teams, applications and keys that have budgets.
fn scope_ids(budgets: &[Budget]) -> Vec<String> {
    let ids = |budget: &Budget| match budget.scope {
        Scope::Org(_) => Vec::new(),
        Scope::Team(_) | Scope::App(_) => vec![budget.scope.id()],
        Scope::Key(_) => budget.keys.iter().map(ToString::to_string).collect(),
    };
    budgets.iter().flat_map(ids).collect()
}
