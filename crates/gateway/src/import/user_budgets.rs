//! Budgets of end users of an import.

use gateway_core::budget::{Budget, MAX_USER_BUDGETS, Scope, Unpriced, limit_units};
use gateway_core::import::PlannedUserBudget;
use gateway_store::{Tx, user_budgets as store};

use super::{Changes, Existing, Importer, Kind};
use crate::problem::{ApiResult, Problem};

impl Importer<'_> {
    /// A budget is the same as another if user and period are.
    pub(super) async fn apply_user_budgets(
        &self,
        tx: &mut Tx,
        planned: &[PlannedUserBudget],
        changes: &mut Changes,
    ) -> ApiResult<()> {
        if planned.is_empty() {
            return Ok(());
        }
        let limit = |usd: Option<f64>| {
            usd.map(limit_units).transpose().map_err(|why| Problem::field("max_budget", why))
        };
        let stored = store::list_in_tx(tx, self.org).await?;
        let mut unwritten = 0;
        for planned in planned {
            let (soft_limit, hard_limit) = (limit(planned.soft_limit_usd)?, limit(planned.hard_limit_usd)?);
            let is_it = |budget: &&Budget| {
                budget.period == planned.period
                    && matches!(&budget.scope, Scope::User(user) if **user == *planned.user)
            };
            let found = stored.iter().find(is_it);
            let existing = match found {
                None => Existing::Nothing,
                Some(found) if found.soft_limit == soft_limit && found.hard_limit == hard_limit => {
                    Existing::Same
                }
                Some(_) => Existing::Other,
            };
            let name = format!("{} of user {}", planned.period, planned.user);
            if !changes.decide(Kind::Budget, &name, &existing, self.on_conflict) {
                continue;
            }
            if self.dry_run {
                unwritten += i64::from(found.is_none());
                continue;
            }
            let budget = Budget {
                soft_limit,
                hard_limit,
                ..found.cloned().unwrap_or_else(|| Budget {
                    id: (self.new_id)().into(),
                    scope: Scope::User(planned.user.as_str().into()),
                    keys: Vec::new(),
                    period: planned.period,
                    soft_limit,
                    hard_limit,
                    unpriced: Unpriced::Allow,
                    opening: 0,
                    created_at: self.now,
                })
            };
            store::upsert(tx, self.org, &budget).await?;
        }
        if store::count(tx, self.org).await? + unwritten > MAX_USER_BUDGETS {
            return Err(Problem::conflict(format!(
                "the organization would have more than the maximum of {MAX_USER_BUDGETS} budgets of users"
            )));
        }
        Ok(())
    }
}
