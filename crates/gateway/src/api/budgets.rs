//! Budgets: spending limits of the organization, a team, an application, a key or end users per day, week or month.

mod stored;

use axum::extract::State;
use gateway_core::budget::{Amount, Budget, Period, Scope, Unpriced, limit_units};
use gateway_core::ids::{BudgetId, OrgId};
use gateway_core::time::Timestamp;
use gateway_core::totals::usd;
use gateway_store::{Tx, budgets as store, orgs, user_budgets};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::audited::Audited;
use super::caller::{Admin, AppState, InOrg, Viewer};
use super::extract::{Body, PagedQuery, PathParam, double_option};
use super::openapi::Area;
use super::page;
use super::response::{Created, Deleted, Json};
use crate::app::App;
use crate::budgets::OrgBudgets;
use crate::cluster::invalidation::{self, Invalidation};
use crate::problem::{ApiResult, Problem};
use stored::{check_count, find_for_update, find_scope, insert, remove};

/// The highest flat charge, 1,000,000 USD.
const MAX_FLAT: Amount = 1_000_000_000_000_000_000;

pub fn area() -> Area {
    Area::new(
        "budgets",
        "Spending limits of the organization, a team, an application, a key or end users per day, week or month.",
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
    /// An end user as the log rows name it: the value of `X-Gateway-User`, else the user of the body; or a member.
    User,
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
pub(super) struct BudgetView {
    id: BudgetId,
    scope: ScopeName,
    /// For scope `org`, the id of the organization. For scope `user`, the name of the user, or `*` for a default that
    /// holds for each user without a budget of its own.
    scope_id: String,
    period: Period,
    soft_limit_usd: Option<f64>,
    hard_limit_usd: Option<f64>,
    unpriced: UnpricedName,
    /// What each call without a price counts; null unless `unpriced` is `flat`.
    unpriced_flat_usd: Option<f64>,
    /// Spending in the current period. Null for a default of all users: each has its own, see the parameter `user`.
    spent_usd: Option<f64>,
    /// The part of `spent_usd` that was spent at another gateway before this key was imported.
    opening_usd: f64,
    /// End of the current period, in UTC.
    resets_at: Timestamp,
    created_at: Timestamp,
}

fn view(budget: &Budget, spent: Option<Amount>, now: Timestamp) -> BudgetView {
    BudgetView {
        id: budget.id,
        scope: match budget.scope {
            Scope::Org(_) => ScopeName::Org,
            Scope::Team(_) => ScopeName::Team,
            Scope::App(_) => ScopeName::App,
            Scope::Key(_) => ScopeName::Key,
            Scope::User(_) => ScopeName::User,
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
        spent_usd: spent.map(usd),
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

#[derive(Deserialize, JsonSchema)]
struct BudgetParams {
    /// Only the budgets that hold for this user, each with what this user has spent: its own, or the defaults.
    user: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: InOrg<Viewer>,
    PagedQuery { page, filter: params }: PagedQuery<BudgetParams>,
) -> ApiResult<Json<BudgetList>> {
    let page = page.page()?;
    if let Some(user) = &params.user {
        let budgets = of_user(&app, caller.org.id, user).await?;
        return Ok(Json(BudgetList { budgets, next_cursor: None }));
    }
    let found = store::list(&app.services.db, caller.org.id, &page).await?;
    let known = app.proxy.budgets.load(caller.org.id).await?;
    let mut budgets = Vec::with_capacity(found.rows.len());
    for budget in &found.rows {
        budgets.push(current_view(&app, known.as_deref(), budget).await?);
    }
    Ok(Json(BudgetList { budgets, next_cursor: page::encode_cursor(found.next.as_deref()) }))
}

/// The budgets that hold for a user, with what the user has spent.
pub(super) async fn of_user(app: &App, org: OrgId, user: &str) -> ApiResult<Vec<BudgetView>> {
    let Some(known) = app.proxy.budgets.load(org).await? else { return Ok(Vec::new()) };
    let found = app.proxy.budgets.of_user(&known, user).await?;
    let now = app.services.clock.now();
    Ok(found.iter().map(|(budget, spent)| view(budget, Some(*spent), now)).collect())
}

async fn read(
    State(app): AppState,
    caller: InOrg<Viewer>,
    PathParam(id): PathParam<BudgetId>,
) -> ApiResult<Json<BudgetView>> {
    let known = app.proxy.budgets.load(caller.org.id).await?;
    let budget = store::find(&app.services.db, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    current_view(&app, known.as_deref(), &budget).await.map(Json)
}

/// The budget with what was spent in its current period.
async fn current_view(app: &App, known: Option<&OrgBudgets>, budget: &Budget) -> ApiResult<BudgetView> {
    let spent = match known {
        Some(known) => app.proxy.budgets.spent(known, budget).await?,
        None => Some(0),
    };
    Ok(view(budget, spent, app.services.clock.now()))
}

#[derive(Deserialize, JsonSchema)]
struct NewBudget {
    scope: ScopeName,
    /// The id of the team, application or key, or the name of the user. `*` with scope `user` is a default that holds
    /// for each user without a budget of its own. Optional for scope `org`.
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
    check_count(&mut tx, org, request.scope).await?;
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
    insert(&mut tx, org, &budget).await?;
    tx.record(app.entry().target(budget.id, &title(&budget)).created(&view(&budget, Some(0), now)));
    commit(&app, tx, org).await?;
    let known = app.proxy.budgets.load(org).await?;
    current_view(&app, known.as_deref(), &budget).await.map(Created)
}

#[derive(Deserialize, JsonSchema)]
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
    let mut budget = find_for_update(&mut tx, org, id).await?;
    let now = app.services.clock.now();
    let before = view(&budget, Some(0), now);
    budget.soft_limit = soft.unwrap_or(budget.soft_limit);
    budget.hard_limit = hard.unwrap_or(budget.hard_limit);
    budget.period = change.period.unwrap_or(budget.period);
    check_limits(budget.soft_limit, budget.hard_limit)?;
    let current = view(&budget, Some(0), now);
    let kind = change.unpriced.unwrap_or(current.unpriced);
    budget.unpriced = unpriced(kind, change.unpriced_flat_usd, budget.unpriced)?;
    let name = change.scope.unwrap_or(current.scope);
    let same_id = change.scope_id.as_ref().is_none_or(|id| *id == current.scope_id);
    // An unchanged scope keeps its keys, which include the successors of rotated keys.
    let scope_changed = name != current.scope || !same_id;
    if scope_changed {
        (budget.scope, budget.keys) = find_scope(&mut tx, org, name, change.scope_id.as_deref()).await?;
    }
    if (name == ScopeName::User) != (current.scope == ScopeName::User) {
        // Budgets of users have a table of their own.
        check_count(&mut tx, org, name).await?;
        remove(&mut tx, org, id).await?;
        insert(&mut tx, org, &budget).await?;
    } else if name == ScopeName::User {
        user_budgets::upsert(&mut tx, org, &budget).await?;
    } else {
        store::update(&mut tx, org, &budget).await?;
        if scope_changed {
            store::set_keys(&mut tx, &budget).await?;
        }
    }
    tx.record(app.entry().named(&title(&budget)).changed(&before, &view(&budget, Some(0), now)));
    commit(&app, tx, org).await?;
    let known = app.proxy.budgets.load(org).await?;
    current_view(&app, known.as_deref(), &budget).await.map(Json)
}

async fn delete(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(id): PathParam<BudgetId>,
) -> ApiResult<Json<Deleted>> {
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    let budget = find_for_update(&mut tx, org, id).await?;
    remove(&mut tx, org, id).await?;
    let before = view(&budget, Some(0), app.services.clock.now());
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
