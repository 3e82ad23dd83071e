//! The tables of budgets: those of users have one of their own. And the objects that scopes name.

use std::str::FromStr;

use gateway_core::budget::{Budget, MAX_BUDGETS, MAX_USER_BUDGETS, Scope, user_scope};
use gateway_core::ids::{BudgetId, KeyId, OrgId};
use gateway_store::{StoreError, Tx, apps, budgets, keys, teams, user_budgets};

use super::ScopeName;
use crate::problem::{ApiResult, Problem};

pub(super) async fn insert(tx: &mut Tx, org: OrgId, budget: &Budget) -> Result<(), StoreError> {
    match budget.scope {
        Scope::User(_) => user_budgets::upsert(tx, org, budget).await,
        Scope::Org(_) | Scope::Team(_) | Scope::App(_) | Scope::Key(_) => {
            budgets::insert(tx, org, budget).await
        }
    }
}

/// Whether one more budget of this scope may be added.
pub(super) async fn check_count(tx: &mut Tx, org: OrgId, scope: ScopeName) -> ApiResult<()> {
    let (count, max, what) = if scope == ScopeName::User {
        (user_budgets::count(tx, org).await?, MAX_USER_BUDGETS, "budgets of users")
    } else {
        (budgets::count(tx, org).await?, MAX_BUDGETS, "budgets")
    };
    if count < max {
        return Ok(());
    }
    Err(Problem::conflict(format!("the organization already has the maximum of {max} {what}")))
}

pub(super) async fn find_for_update(tx: &mut Tx, org: OrgId, id: BudgetId) -> ApiResult<Budget> {
    if let Some(budget) = budgets::find_for_update(tx, org, id).await? {
        return Ok(budget);
    }
    user_budgets::find_for_update(tx, org, id).await?.ok_or_else(Problem::not_found)
}

pub(super) async fn remove(tx: &mut Tx, org: OrgId, id: BudgetId) -> ApiResult<()> {
    let _ = budgets::delete(tx, org, id).await? || user_budgets::delete(tx, org, id).await?;
    Ok(())
}

/// The scope of a budget, and for scope `key` the keys whose spending it counts.
pub(super) async fn find_scope(
    tx: &mut Tx,
    org: OrgId,
    name: ScopeName,
    id: Option<&str>,
) -> ApiResult<(Scope, Vec<KeyId>)> {
    let invalid = |why: &str| Problem::field("scope_id", why);
    let missing = || invalid("no such resource in this organization");
    let id = match (name, id) {
        (ScopeName::Org, None) => return Ok((Scope::Org(org), Vec::new())),
        (_, None) => return Err(invalid("is required for every scope except org")),
        (_, Some(id)) => id,
    };
    match name {
        ScopeName::User => Ok((user_scope(id).map_err(invalid)?, Vec::new())),
        ScopeName::Org if parse::<OrgId>(id)? == org => Ok((Scope::Org(org), Vec::new())),
        ScopeName::Org => Err(invalid("must be the id of this organization")),
        ScopeName::Team => {
            let team = parse(id)?;
            let found = teams::exists(tx, org, team).await?;
            found.then_some((Scope::Team(team), Vec::new())).ok_or_else(missing)
        }
        ScopeName::App => {
            let found = apps::find(tx, org, parse(id)?).await?;
            found.map(|app| (Scope::App(app.id), Vec::new())).ok_or_else(missing)
        }
        ScopeName::Key => {
            let found = keys::find_for_update(tx, org, parse(id)?).await?;
            found.map(|(key, _)| (Scope::Key(key.id), vec![key.id])).ok_or_else(missing)
        }
    }
}

fn parse<T: FromStr>(id: &str) -> ApiResult<T>
where
    T::Err: std::fmt::Display,
{
    id.parse().map_err(|why: T::Err| Problem::field("scope_id", why))
}
