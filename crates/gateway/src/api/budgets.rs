//! Budgets: spending limits of the organization, a team, an application or a key per day, week or month.

use std::str::FromStr;

use axum::extract::State;
use gateway_core::budget::{Amount, Budget, MAX_BUDGETS, Period, Scope, Unpriced, limit_units};
use gateway_core::ids::{BudgetId, KeyId, OrgId};
use gateway_core::time::Timestamp;
use gateway_core::totals::usd;
use gateway_store::{Tx, apps, budgets as store, keys, orgs, teams};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::audited::Audited;
use super::caller::{Admin, AppState, InOrg, Viewer};
use super::extract::{Body, PathParam, QueryParams, double_option};
use super::openapi::Area;
use super::page::{self, PageParams};
use super::response::{Created, Deleted, Json};
use crate::app::App;
use crate::budgets::OrgBudgets;
use crate::cluster::invalidation::{self, Invalidation};
use crate::problem::{ApiResult, Problem};

/// The highest flat charge, 1,000,000 USD.
const MAX_FLAT: Amount = 1_000_000_000_000_000_000;

pub fn area() -> Area {
    Area::new(
        "budgets",
        "Spending limits of the organization, a team, an application or a key per day, week or month.",
    )
    .get("/orgs/{orgId}/budgets", list, "List the organization's budgets with their spending")
    .post("/orgs/{orgId}/budgets", create, "Create a budget; earlier spending in the current period counts")
    .get("/orgs/{orgId}/budgets/{budgetId}", read, "Get a budget")
    .put("/orgs/{orgId}/budgets/{budgetId}", update, "Update a budget")
    .delete("/orgs/{orgId}/budgets/{budgetId}", delete, "Delete a budget")
}

#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "BudgetScope")]
enum ScopeName {
    Org,
    Team,
    App,
    Key,
}

/// What happens to calls whose cost cannot be known, because the model has no price or the operation reports no usage.
#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "UnpricedCalls")]
enum UnpricedName {
    /// They are admitted and count nothing.
    Allow,
    /// They get 403 `unpriced`.
    Refuse,
    /// Each counts `unpriced_flat_usd`.
    Flat,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Budget")]
struct BudgetView {
    id: BudgetId,
    scope: ScopeName,
    /// For scope `org`, the id of the organization.
    scope_id: String,
    period: Period,
    soft_limit_usd: Option<f64>,
    hard_limit_usd: Option<f64>,
    unpriced: UnpricedName,
    /// What each call without a price counts; null unless `unpriced` is `flat`.
    unpriced_flat_usd: Option<f64>,
    /// Spending in the current period.
    spent_usd: f64,
    /// The part of `spent_usd` that was spent at another gateway before this key was imported.
    opening_usd: f64,
    /// End of the current period, in UTC.
    resets_at: Timestamp,
    created_at: Timestamp,
}

fn view(budget: &Budget, spent: Amount, now: Timestamp) -> BudgetView {
    BudgetView {
        id: budget.id,
        scope: match budget.scope {
            Scope::Org(_) => ScopeName::Org,
            Scope::Team(_) => ScopeName::Team,
            Scope::App(_) => ScopeName::App,
            Scope::Key(_) => ScopeName::Key,
        },
        scope_id: budget.scope.id(),
        period: budget.period,
        soft_limit_usd: budget.soft_limit.map(usd),
        hard_limit_usd: budget.hard_limit.map(usd),
        unpriced: match budget.unpriced {
            Unpriced::Allow => UnpricedName::Allow,
            Unpriced::Refuse => UnpricedName::Refuse,
            Unpriced::Flat(_) => UnpricedName::Flat,
        },
        unpriced_flat_usd: match budget.unpriced {
            Unpriced::Allow | Unpriced::Refuse => None,
            Unpriced::Flat(flat) => Some(usd(flat)),
        },
        spent_usd: usd(spent),
        opening_usd: usd(budget.opening_at(now)),
        resets_at: budget.period.end_of(now),
        created_at: budget.created_at,
    }
}

#[derive(Serialize, JsonSchema)]
struct BudgetList {
    budgets: Vec<BudgetView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: InOrg<Viewer>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<BudgetList>> {
    let found = store::list(&app.services.db, caller.org.id, &params.page()?).await?;
    let known = app.proxy.budgets.load(caller.org.id).await?;
    let now = app.services.clock.now();
    let spent = |budget: &Budget| {
        known.as_ref().and_then(|known| known.spent(budget.id, now)).map_or(0, |line| line.1)
    };
    let budgets = found.rows.iter().map(|budget| view(budget, spent(budget), now)).collect();
    Ok(Json(BudgetList { budgets, next_cursor: page::encode_cursor(found.next.as_deref()) }))
}

async fn read(
    State(app): AppState,
    caller: InOrg<Viewer>,
    PathParam(id): PathParam<BudgetId>,
) -> ApiResult<Json<BudgetView>> {
    let known = app.proxy.budgets.load(caller.org.id).await?;
    find_view(&app, known.as_deref(), id).map(Json)
}

fn find_view(app: &App, known: Option<&OrgBudgets>, id: BudgetId) -> ApiResult<BudgetView> {
    let now = app.services.clock.now();
    let (budget, spent) = known.and_then(|known| known.spent(id, now)).ok_or_else(Problem::not_found)?;
    Ok(view(&budget, spent, now))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewBudget {
    scope: ScopeName,
    /// The id of the team, application or key. Optional for scope `org`.
    scope_id: Option<String>,
    period: Period,
    /// Reaching it emits `budget.warning` once per period.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    soft_limit_usd: Option<f64>,
    /// Reaching it rejects further proxied requests and emits `budget.exceeded` once per period.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    hard_limit_usd: Option<f64>,
    /// Default: `allow`.
    unpriced: Option<UnpricedName>,
    /// Required if `unpriced` is `flat`.
    #[schemars(range(min = 0, max = 1_000_000))]
    unpriced_flat_usd: Option<f64>,
}

async fn create(
    app: Audited,
    caller: InOrg<Admin>,
    Body(request): Body<NewBudget>,
) -> ApiResult<Created<BudgetView>> {
    let org = caller.org.id;
    let soft_limit = limit("soft_limit_usd", request.soft_limit_usd)?;
    let hard_limit = limit("hard_limit_usd", request.hard_limit_usd)?;
    check_limits(soft_limit, hard_limit)?;
    let unpriced = unpriced(
        request.unpriced.unwrap_or(UnpricedName::Allow),
        request.unpriced_flat_usd,
        Unpriced::Allow,
    )?;
    let mut tx = app.services.db.begin().await?;
    orgs::lock_for_update(&mut tx, org).await?;
    let (scope, keys) = find_scope(&mut tx, org, request.scope, request.scope_id.as_deref()).await?;
    if store::count(&mut tx, org).await? >= MAX_BUDGETS {
        return Err(Problem::conflict(format!(
            "the organization already has the maximum of {MAX_BUDGETS} budgets"
        )));
    }
    let now = app.services.clock.now();
    let budget = Budget {
        id: app.services.ids.new_id(),
        scope,
        keys,
        period: request.period,
        soft_limit,
        hard_limit,
        unpriced,
        opening: 0,
        created_at: now,
    };
    store::insert(&mut tx, org, &budget).await?;
    tx.record(app.entry().target(budget.id, &title(&budget)).created(&view(&budget, 0, now)));
    commit(&app, tx, org).await?;
    let known = app.proxy.budgets.load(org).await?;
    find_view(&app, known.as_deref(), budget.id).map(Created)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BudgetChange {
    scope: Option<ScopeName>,
    scope_id: Option<String>,
    period: Option<Period>,
    #[serde(default, deserialize_with = "double_option")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    soft_limit_usd: Option<Option<f64>>,
    #[serde(default, deserialize_with = "double_option")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    hard_limit_usd: Option<Option<f64>>,
    unpriced: Option<UnpricedName>,
    #[schemars(range(min = 0, max = 1_000_000))]
    unpriced_flat_usd: Option<f64>,
}

async fn update(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(id): PathParam<BudgetId>,
    Body(change): Body<BudgetChange>,
) -> ApiResult<Json<BudgetView>> {
    let org = caller.org.id;
    let soft = change.soft_limit_usd.map(|usd| limit("soft_limit_usd", usd)).transpose()?;
    let hard = change.hard_limit_usd.map(|usd| limit("hard_limit_usd", usd)).transpose()?;
    let mut tx = app.services.db.begin().await?;
    orgs::lock_for_update(&mut tx, org).await?;
    let mut budget = store::find_for_update(&mut tx, org, id).await?.ok_or_else(Problem::not_found)?;
    let now = app.services.clock.now();
    let before = view(&budget, 0, now);
    budget.soft_limit = soft.unwrap_or(budget.soft_limit);
    budget.hard_limit = hard.unwrap_or(budget.hard_limit);
    budget.period = change.period.unwrap_or(budget.period);
    check_limits(budget.soft_limit, budget.hard_limit)?;
    let current = view(&budget, 0, now);
    let kind = change.unpriced.unwrap_or(current.unpriced);
    budget.unpriced = unpriced(kind, change.unpriced_flat_usd, budget.unpriced)?;
    let name = change.scope.unwrap_or(current.scope);
    let same_id = change.scope_id.as_ref().is_none_or(|id| *id == current.scope_id);
    // An unchanged scope keeps its keys, which include the successors of rotated keys.
    let scope_changed = name != current.scope || !same_id;
    if scope_changed {
        (budget.scope, budget.keys) = find_scope(&mut tx, org, name, change.scope_id.as_deref()).await?;
    }
    store::update(&mut tx, org, &budget).await?;
    if scope_changed {
        store::set_keys(&mut tx, &budget).await?;
    }
    tx.record(app.entry().named(&title(&budget)).changed(&before, &view(&budget, 0, now)));
    commit(&app, tx, org).await?;
    let known = app.proxy.budgets.load(org).await?;
    find_view(&app, known.as_deref(), id).map(Json)
}

async fn delete(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(id): PathParam<BudgetId>,
) -> ApiResult<Json<Deleted>> {
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    let budget = store::find_for_update(&mut tx, org, id).await?.ok_or_else(Problem::not_found)?;
    store::delete(&mut tx, org, id).await?;
    let before = view(&budget, 0, app.services.clock.now());
    tx.record(app.entry().named(&title(&budget)).deleted(&before));
    commit(&app, tx, org).await?;
    Ok(Deleted::yes())
}

/// What a budget is called in the audit log.
fn title(budget: &Budget) -> String {
    format!("{} {}", budget.period.as_str(), budget.scope.id())
}

/// Commits a change of budgets. The team that a member's calls count for depends on which teams have one.
async fn commit(app: &App, mut tx: Tx, org: OrgId) -> ApiResult<()> {
    let pending = [
        invalidation::record(&mut tx, Invalidation::Org(org)).await?,
        invalidation::record(&mut tx, Invalidation::OrgKeys(org)).await?,
    ];
    Ok(invalidation::commit(tx, pending, &app.cluster).await?)
}

fn limit(name: &str, usd: Option<f64>) -> ApiResult<Option<Amount>> {
    usd.map(|usd| limit_units(usd).map_err(|why| Problem::field(name, why))).transpose()
}

/// The flat charge may be left out where the budget has one.
fn unpriced(kind: UnpricedName, flat_usd: Option<f64>, before: Unpriced) -> ApiResult<Unpriced> {
    let wrong = |why: &str| Problem::field("unpriced_flat_usd", why);
    let flat = limit("unpriced_flat_usd", flat_usd)?;
    if flat.is_some_and(|flat| flat == 0 || flat > MAX_FLAT) {
        return Err(wrong("must be greater than 0 and at most 1000000"));
    }
    match (kind, flat, before) {
        (UnpricedName::Flat, Some(flat), _) | (UnpricedName::Flat, None, Unpriced::Flat(flat)) => {
            Ok(Unpriced::Flat(flat))
        }
        (UnpricedName::Flat, None, _) => Err(wrong("is required if unpriced is flat")),
        (_, Some(_), _) => Err(wrong("is allowed only if unpriced is flat")),
        (UnpricedName::Allow, None, _) => Ok(Unpriced::Allow),
        (UnpricedName::Refuse, None, _) => Ok(Unpriced::Refuse),
    }
}

fn check_limits(soft: Option<Amount>, hard: Option<Amount>) -> ApiResult<()> {
    match (soft, hard) {
        (None, None) => Err(Problem::field("hard_limit_usd", "a budget requires a soft or a hard limit")),
        (Some(0), _) => Err(Problem::field("soft_limit_usd", "must be greater than 0")),
        (Some(soft), Some(hard)) if soft > hard => {
            Err(Problem::field("soft_limit_usd", "must not be greater than hard_limit_usd"))
        }
        _ => Ok(()),
    }
}

/// The scope of a budget, and for scope `key` the keys whose spending it counts.
async fn find_scope(
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
