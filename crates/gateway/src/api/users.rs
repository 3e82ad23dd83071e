//! Usage of one user: a member of the organization, or an end user that callers name.

use axum::extract::State;
use gateway_core::time::Timestamp;
use gateway_store::logs::{self, TimeRange, UsageFilter, UsageGroup, UsageQuery};
use gateway_store::names::{NamedResource, names_by_id};
use schemars::JsonSchema;
use serde::Serialize;

use super::budgets::{self, BudgetView};
use super::caller::{AppState, Caller, Viewer};
use super::extract::{PathParam, text_path_param};
use super::openapi::Area;
use super::response::Json;
use crate::problem::{ApiResult, Problem};

const TOP_MODELS: usize = 10;

pub fn area() -> Area {
    Area::new("users", "Usage of a single user.").get(
        "/users/{userId}/summary",
        summary,
        "Get requests, tokens, cost and top models of a member or an end user",
    )
}

text_path_param!(
    /// The id of a member, or the name that callers use for an end user.
    AnyUser = "userId"
);

#[derive(Serialize, JsonSchema)]
struct UserSummary {
    user: String,
    requests: i64,
    prompt_tokens: i64,
    completion_tokens: i64,
    total_tokens: i64,
    /// Null if tokens were used, but no model had a price.
    cost_usd: Option<f64>,
    /// The top ten by cost, then by requests.
    top_models: Vec<ModelShare>,
    first_seen_at: Option<Timestamp>,
    last_seen_at: Option<Timestamp>,
    /// The budgets that hold for the user, with what the user has spent in the current period. Empty for callers who
    /// read only their own rows.
    budgets: Vec<BudgetView>,
}

#[derive(Serialize, JsonSchema)]
struct ModelShare {
    model: Option<String>,
    requests: i64,
    cost_usd: Option<f64>,
}

async fn summary(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(AnyUser(user)): PathParam<AnyUser>,
) -> ApiResult<Json<UserSummary>> {
    let org = caller.org.id;
    let stored = app.query_logs(org).await?;
    // Times are those of all rows of the user, so a caller that reads only its own gets none.
    let own_key = caller.row_access().restrict(None);
    let seen = if own_key.is_none() { logs::user_seen(&stored, org, &user).await? } else { None };
    if own_key.is_none()
        && seen.is_none()
        && !names_by_id(&app.services.db, org, NamedResource::Members).await?.contains_key(&user)
    {
        return Err(Problem::not_found());
    }
    let filter = UsageFilter { user: Some(user.clone()), key_id: own_key, ..UsageFilter::default() };
    let group = Some(UsageGroup::Model);
    let query = UsageQuery { filter: &filter, range: TimeRange::all_time(), interval: None, group };
    let mut models = logs::usage(&stored, org, &query).await?;
    let mut all = gateway_core::totals::Totals::default();
    for usage in &models {
        all.add(&usage.totals);
    }
    if own_key.is_some() && all.requests == 0 {
        return Err(Problem::not_found());
    }
    models.sort_by_key(|usage| std::cmp::Reverse((usage.totals.cost, usage.totals.requests)));
    models.truncate(TOP_MODELS);
    let budgets = if own_key.is_none() { budgets::of_user(&app, org, &user).await? } else { Vec::new() };
    Ok(Json(UserSummary {
        user,
        requests: all.requests,
        prompt_tokens: all.prompt_tokens,
        completion_tokens: all.completion_tokens,
        total_tokens: all.total_tokens(),
        cost_usd: all.cost_usd(),
        top_models: models
            .into_iter()
            .map(|usage| ModelShare {
                cost_usd: usage.totals.cost_usd(),
                requests: usage.totals.requests,
                model: usage.group,
            })
            .collect(),
        first_seen_at: seen.map(|(first, _)| first),
        last_seen_at: seen.map(|(_, last)| last),
        budgets,
    }))
}
