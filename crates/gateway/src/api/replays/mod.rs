//! Replays: log rows whose requests are made again with another model, provider or prompt, as a background job. This file
//! has the replays; `selection` finds the rows and estimates the cost, `rows` shows both answers of each row.

mod rows;
mod selection;
mod view;

use axum::extract::State;
use gateway_core::replays::{CallFigures, SideTotals};
use gateway_core::statuses::RunStatus;
use gateway_core::totals::usd;
use gateway_store::orgs;
use gateway_store::replays::{self, NewItem, Replay};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::audited::Audited;
use super::caller::{AppState, Caller, Member, Viewer};
use super::extract::{Body, PathParam, QueryParams, integer_path_param};
use super::openapi::Area;
use super::page::{self, PageParams};
use super::response::{Accepted, Deleted, Json};
use crate::app::App;
use crate::auth::{Identity, RowAccess};
use crate::jobs;
use crate::jobs::run_replay::RunReplay;
use crate::problem::{ApiResult, Problem};
pub(super) use selection::price_of;
use selection::{ReplayRequest, Selection, checked_name};
use view::{EstimateView, ReplayDetail, ReplayView};

/// Unfinished replays of one organization, and all that it can keep.
const MAX_UNFINISHED: i64 = 20;
const MAX_STORED: i64 = 500;

pub fn area() -> Area {
    Area::new(
        "replays",
        "Replays: make logged requests again with another model, provider or prompt, and compare.",
    )
    .post("/replays/estimate", estimate, "Get the rows that a replay would have, and what it would cost")
    .post("/replays", create, "Start a replay; poll it for its state")
    .get("/replays", list, "List the replays, newest first")
    .get("/replays/{replayId}", get, "Get a replay with cost, latency and scores before and after")
    .get("/replays/{replayId}/rows", rows::rows, "List the rows with the answers before and after")
    .post("/replays/{replayId}/cancel", cancel, "Cancel a replay")
    .delete("/replays/{replayId}", delete, "Delete a replay; the log rows stay")
}

integer_path_param!(
    /// The id of a replay.
    ReplayId = "replayId"
);

async fn estimate(
    State(app): AppState,
    caller: Caller<Member>,
    Body(request): Body<ReplayRequest>,
) -> ApiResult<Json<EstimateView>> {
    let selection = Selection::find(&app, &caller, request).await?;
    Ok(Json(EstimateView::new(&selection)))
}

async fn create(
    app: Audited,
    caller: Caller<Member>,
    Body(request): Body<ReplayRequest>,
) -> ApiResult<Accepted<ReplayView>> {
    let name = checked_name(request.name.as_deref())?;
    let max_cost = request.max_cost()?;
    let selection = Selection::find(&app, &caller, request).await?;
    let Selection { rows, estimate, target, evals, .. } = selection;
    if let Some(max) = max_cost.filter(|max| estimate.cost > *max) {
        let (expected, max) = (usd(estimate.cost), usd(max));
        let why = format!(
            "the estimated cost is {expected} USD, which is more than {max} USD; choose fewer rows or a higher value"
        );
        return Err(Problem::field("max_cost_usd", why));
    }
    if max_cost.is_some() && estimate.unpriced > 0 {
        let why = format!(
            "cannot hold, because {} of the rows go to a model without a price; set a price, or leave max_cost_usd out",
            estimate.unpriced
        );
        return Err(Problem::field("max_cost_usd", why));
    }
    let (org, id) = (caller.org.id, app.services.ids.next_row_id());
    let replay = Replay {
        id,
        org_id: org,
        name,
        status: RunStatus::Queued,
        target: serde_json::to_value(&target).map_err(Problem::internal)?,
        evals: serde_json::to_value(&evals).map_err(Problem::internal)?,
        total: estimate.rows,
        done: 0,
        errors: 0,
        spent: 0,
        estimated: estimate.cost,
        unpriced: estimate.unpriced,
        max_cost,
        error: None,
        created_by: Some(caller.actor()),
        created_at: app.services.clock.now(),
        started_at: None,
        finished_at: None,
    };
    let items = rows.iter().map(|row| NewItem { log_id: row.id, before: CallFigures::of(row) }).collect();
    let mut tx = app.services.db.begin().await?;
    // The lock keeps concurrent requests from exceeding the limits.
    orgs::lock_for_update(&mut tx, org).await?;
    let (stored, unfinished) = replays::count(&mut tx, org).await?;
    if unfinished >= MAX_UNFINISHED {
        return Err(Problem::conflict(format!(
            "the organization already has {MAX_UNFINISHED} unfinished replays; wait until some finish"
        )));
    }
    if stored >= MAX_STORED {
        return Err(Problem::conflict(format!(
            "the organization already has {MAX_STORED} replays; delete some that are not needed any more"
        )));
    }
    replays::insert(&mut tx, &replay).await?;
    replays::add_items(&mut tx, id, items).await?;
    let shown_name = replay.name.clone().unwrap_or_else(|| id.to_string());
    let entry = json!({"rows": replay.total, "target": view::without_variables(&target)});
    tx.record(app.entry().target(id, &shown_name).created(&entry));
    let queued = jobs::enqueue(&app.jobs, &mut tx, org, &RunReplay { replay: id }).await?;
    tx.commit().await?;
    queued.notify(&app.jobs);
    Ok(Accepted(replay.into()))
}

#[derive(Serialize, JsonSchema)]
struct ReplayList {
    replays: Vec<ReplayView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: Caller<Viewer>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<ReplayList>> {
    let own = own_replays(&caller);
    let found =
        replays::list(&app.services.db, caller.org.id, own.as_deref(), &params.numeric_page()?).await?;
    let (replays, next_cursor) = page::into_views(found);
    Ok(Json(ReplayList { replays, next_cursor }))
}

async fn get(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(ReplayId(id)): PathParam<ReplayId>,
) -> ApiResult<Json<ReplayDetail>> {
    let replay = stored(&app, &caller, id).await?;
    let figures = replays::figures(&app.services.db, &replay).await?;
    let before = SideTotals::of(figures.iter().map(|(before, _)| before));
    let after = SideTotals::of(figures.iter().map(|(_, after)| after));
    let scores = replays::score_totals(&app.services.db, &replay).await?;
    Ok(Json(ReplayDetail::new(replay, (before, after), &scores)))
}

async fn cancel(
    app: Audited,
    caller: Caller<Member>,
    PathParam(ReplayId(id)): PathParam<ReplayId>,
) -> ApiResult<Json<ReplayView>> {
    let replay = stored(&app, &caller, id).await?;
    let mut tx = app.services.db.begin().await?;
    if !replays::cancel(&mut tx, caller.org.id, id, app.services.clock.now()).await? {
        return Err(Problem::conflict(format!("the replay is already {}", replay.status.as_str())));
    }
    tx.record(app.entry());
    tx.commit().await?;
    stored(&app, &caller, id).await.map(|replay| Json(replay.into()))
}

async fn delete(
    app: Audited,
    caller: Caller<Member>,
    PathParam(ReplayId(id)): PathParam<ReplayId>,
) -> ApiResult<Json<Deleted>> {
    let replay = stored(&app, &caller, id).await?;
    let mut tx = app.services.db.begin().await?;
    if !replays::delete(&mut tx, caller.org.id, id).await? {
        return Err(Problem::not_found());
    }
    tx.record(app.entry().deleted(&json!({"rows": replay.total, "status": replay.status})));
    tx.commit().await?;
    Ok(Deleted::yes())
}

/// A replay that the caller may see.
async fn stored(app: &App, caller: &Identity, id: i64) -> ApiResult<Replay> {
    let found = replays::find(&app.services.db, caller.org.id, id).await?;
    let own = own_replays(caller);
    let may_see = |replay: &Replay| own.is_none() || replay.created_by == own;
    found.filter(may_see).ok_or_else(Problem::not_found)
}

/// The actor whose replays a caller sees. `None`: all of the organization. A key that reads only its own rows sees only
/// its own replays.
fn own_replays(caller: &Identity) -> Option<String> {
    match caller.row_access() {
        RowAccess::All => None,
        RowAccess::Own(_) => Some(caller.actor()),
    }
}
