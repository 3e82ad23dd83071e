//! What the caller itself used: the calls of a key, or those of a member with its session and its keys.

use axum::extract::State;
use gateway_core::ids::KeyId;
use gateway_core::time::{DAY, Timestamp};
use gateway_core::totals::Totals;
use gateway_store::keys;
use gateway_store::logs::{self, OwnRows, UsageFilter, UsageGroup, UsageQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::caller::{AppState, RowReader};
use super::extract::{PagedQuery, QueryParams};
use super::logs::{LogList, LogParams, page_of_rows};
use super::openapi::Area;
use super::response::Json;
use super::usage::{DEFAULT_DAYS, Sums, range};
use crate::app::App;
use crate::auth::{Identity, Principal, RowAccess};
use crate::problem::ApiResult;

pub fn area() -> Area {
    Area::new(
        "me",
        "Own usage: the calls of the key, or those of the member with a session token and with the keys that the member \
         made, whatever else the caller may read.",
    )
    .get("/me/usage", usage, "Get requests, tokens, cost and models of the caller's own calls")
    .get("/me/logs", own_logs, "List the log rows of the caller's own calls, newest first")
}

/// Which rows are the caller's own.
struct Own {
    key: Option<KeyId>,
    rows: Option<OwnRows>,
}

async fn own(app: &App, caller: &Identity) -> ApiResult<Own> {
    match &caller.principal {
        Principal::Key(key) => Ok(Own { key: Some(key.id), rows: None }),
        Principal::User { id, .. } => {
            let keys = keys::made_by(&app.services.db, caller.org.id, *id).await?;
            Ok(Own { key: None, rows: Some(OwnRows { user: id.to_string(), keys }) })
        }
        Principal::Org => {
            let rows = OwnRows { user: caller.org.id.to_string(), keys: Vec::new() };
            Ok(Own { key: None, rows: Some(rows) })
        }
    }
}

#[derive(Deserialize, JsonSchema)]
struct OwnUsageParams {
    /// Start of the time range, inclusive. Default: the start of the day 29 days before `to`.
    from: Option<Timestamp>,
    /// End of the time range, exclusive. Default: now.
    to: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
struct OwnUsage {
    #[serde(flatten)]
    sums: Sums,
    /// The most expensive first.
    models: Vec<OwnModel>,
    from: Timestamp,
    to: Timestamp,
}

#[derive(Serialize, JsonSchema)]
struct OwnModel {
    /// Null for requests without a model.
    model: Option<String>,
    #[serde(flatten)]
    sums: Sums,
}

async fn usage(
    State(app): AppState,
    caller: RowReader,
    QueryParams(params): QueryParams<OwnUsageParams>,
) -> ApiResult<Json<OwnUsage>> {
    let range = range(&app, params.from, params.to, DEFAULT_DAYS * DAY)?;
    let Own { key, rows } = own(&app, &caller).await?;
    let filter = UsageFilter { key_id: key, own: rows, ..UsageFilter::default() };
    let query =
        UsageQuery { filter: &filter, range: range.read, interval: None, group: Some(UsageGroup::Model) };
    let org = caller.org.id;
    let mut found = logs::usage(&*app.query_logs(org).await?, org, &query).await?;
    let mut all = Totals::default();
    for usage in &found {
        all.add(&usage.totals);
    }
    found.sort_by_key(|usage| std::cmp::Reverse((usage.totals.cost, usage.totals.requests)));
    let models = found.into_iter().map(|usage| OwnModel { sums: (&usage.totals).into(), model: usage.group });
    Ok(Json(OwnUsage {
        sums: (&all).into(),
        models: models.collect(),
        from: range.requested.from,
        to: range.requested.to,
    }))
}

async fn own_logs(
    State(app): AppState,
    caller: RowReader,
    PagedQuery { page, filter: params }: PagedQuery<LogParams>,
) -> ApiResult<Json<LogList>> {
    let Own { key, rows } = own(&app, &caller).await?;
    let access = key.map_or(RowAccess::All, RowAccess::Own);
    let mut filter = params.filter(access)?;
    filter.own = rows;
    Ok(Json(page_of_rows(&app, caller.org.id, &params, &filter, &page).await?))
}
