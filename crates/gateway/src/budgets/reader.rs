//! Reads budgets and spending from the store into ledgers.

use std::sync::Arc;

use gateway_core::budget::ledger::{BudgetReading, Reading};
use gateway_core::budget::{Amount, Budget, Period, Scope};
use gateway_core::time::Timestamp;
use gateway_store::StoreError;
use gateway_store::budgets::{self, LimitNotice};
use gateway_store::logs::{DaySpend, SpendSnapshot, UserDay};

use super::org::UserRules;
use super::shared_ledger::SharedLedger;
use crate::services::Services;

/// Reads the store. The caller holds the ledger's `read_lock`.
pub async fn reload(services: &Services, ledger: &Arc<SharedLedger>) -> Result<(), StoreError> {
    match ledger.user() {
        None => reload_org(services, ledger).await,
        Some(user) => reload_users(services, &user.rules(), std::slice::from_ref(ledger)).await,
    }
}

async fn reload_org(services: &Services, org: &SharedLedger) -> Result<(), StoreError> {
    let number = org.lock().begin_read();
    let budgets = budgets::list_all(&services.db, org.org()).await?;
    let now = services.clock.now();
    let since = budgets.iter().map(|budget| budget.period.start_of(now)).min().unwrap_or(now);
    let notices = budgets::list_notices(&services.db, org.org(), since).await?;
    let mut snapshot = SpendSnapshot::open(&services.logs).await?;
    let mut spending = Spending::default();
    if budgets.iter().any(|budget| matches!(budget.scope, Scope::Org(_))) {
        spending.of_org = snapshot.of_org(org.org(), since).await?;
    }
    let scope_ids = scope_ids(&budgets);
    if !scope_ids.is_empty() {
        spending.of_scopes = snapshot.of_ids(org.org(), since, &scope_ids).await?;
    }
    let uncertain = org.lock().uncertain_rows();
    let included = snapshot.contained_rows(&uncertain).await?;
    drop(snapshot);
    let budgets = budgets.into_iter().map(|budget| spending.reading(budget, &notices, now)).collect();
    org.reload(Reading { number, budgets, included }, now);
    Ok(())
}

/// Reads the spending of several users of one organization at once. The caller holds the `read_lock` of each.
pub async fn reload_users(
    services: &Services,
    rules: &Arc<UserRules>,
    ledgers: &[Arc<SharedLedger>],
) -> Result<(), StoreError> {
    let Some(org) = ledgers.first().map(|ledger| ledger.org()) else { return Ok(()) };
    let users = ledgers.iter().filter_map(|ledger| Some((ledger, ledger.user()?)));
    let reads: Vec<_> = users
        .map(|(ledger, user)| (ledger, user, ledger.lock().begin_read(), rules.budgets.of(&user.name)))
        .collect();
    let now = services.clock.now();
    let today = Period::Daily.start_of(now);
    let budgets = reads.iter().flat_map(|(_, _, _, budgets)| budgets);
    let since = budgets.map(|budget| budget.period.start_of(now)).min().unwrap_or(today);
    let names: Vec<&str> = reads.iter().map(|(_, user, _, _)| &*user.name).collect();
    let mut snapshot = SpendSnapshot::open(&services.logs).await?;
    let spending = snapshot.of_users(org, (since, today), &names).await?;
    let uncertain: Vec<i64> = reads.iter().flat_map(|(ledger, ..)| ledger.lock().uncertain_rows()).collect();
    let included = snapshot.contained_rows(&uncertain).await?;
    drop(snapshot);
    for ((ledger, user, number, budgets), days) in reads.into_iter().zip(spending) {
        let readings = budgets.into_iter().map(|budget| user_reading(ledger, budget, &days, now)).collect();
        // Ids of other users' rows have no effect.
        ledger.reload(Reading { number, budgets: readings, included: included.clone() }, now);
        user.set_rules(Arc::clone(rules));
    }
    Ok(())
}

fn user_reading(ledger: &SharedLedger, budget: Budget, days: &[UserDay], now: Timestamp) -> BudgetReading {
    let starts_at = budget.period.start_of(now);
    let counted = days.iter().filter(|day| day.day >= starts_at);
    let stored = sum(&budget, counted.map(|day| (day.cost, day.unpriced_calls)), now);
    // The store is not asked for notices: it skips what was reported before.
    let notified = ledger.lock().notified(budget.id, now);
    BudgetReading { budget, stored, notified }
}

/// What days count in a budget, each with its cost and the number of its calls without a price.
fn sum(budget: &Budget, days: impl Iterator<Item = (i64, u64)>, now: Timestamp) -> Amount {
    let (cost, unpriced) = days.fold((0, 0_u64), |(cost, unpriced): (Amount, u64), day| {
        (cost + Amount::from(day.0), unpriced.saturating_add(day.1))
    });
    budget.sum_of(cost, unpriced).saturating_add(budget.opening_at(now))
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
        let stored = sum(&budget, counted.map(|day| (day.cost, day.unpriced_calls)), now);
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
        Scope::Org(_) | Scope::User(_) => Vec::new(),
        Scope::Team(_) | Scope::App(_) => vec![budget.scope.id()],
        Scope::Key(_) => budget.keys.iter().map(ToString::to_string).collect(),
    };
    budgets.iter().flat_map(ids).collect()
}
