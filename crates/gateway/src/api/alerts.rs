//! Alerts: rules on the log rows that match a query, told to webhooks that name `alert.fired` and `alert.resolved`.

use axum::extract::State;
use gateway_core::alerts::{Definition, MAX_ALERTS, MAX_MUTE_MINUTES, Measure, Reading};
use gateway_core::ids::AlertId;
use gateway_core::time::{MINUTE, Timestamp};
use gateway_store::alerts::{self as store, HistoryEntry, StoredAlert};
use gateway_store::orgs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::audited::Audited;
use super::caller::{Admin, AppState, InOrg, Viewer};
use super::extract::{Body, PathParam, QueryParams};
use super::openapi::Area;
use super::page::{self, PageParams};
use super::query::query_problem;
use super::response::{Created, Deleted, Json};
use crate::app::alerts::{self, Notice};
use crate::problem::{ApiResult, Problem};

pub fn area() -> Area {
    Area::new("alerts", "Rules on log rows that tell webhooks when they are met.")
        .get("/orgs/{orgId}/alerts", list, "List the organization's alerts with their state")
        .post("/orgs/{orgId}/alerts", create, "Create an alert")
        .get("/orgs/{orgId}/alerts/{alertId}", get, "Get an alert")
        .put("/orgs/{orgId}/alerts/{alertId}", update, "Replace the definition of an alert")
        .delete("/orgs/{orgId}/alerts/{alertId}", delete, "Delete an alert with its history")
        .post(
            "/orgs/{orgId}/alerts/{alertId}/test",
            test,
            "Measure the rows of the window now, and send an event that is marked as a test",
        )
        .post(
            "/orgs/{orgId}/alerts/{alertId}/mute",
            mute,
            "Send no events for some minutes; 0 ends it. The history goes on",
        )
        .get(
            "/orgs/{orgId}/alerts/{alertId}/history",
            history,
            "List when the alert fired, was resolved or tested, newest first",
        )
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Alert")]
struct AlertView {
    id: AlertId,
    name: String,
    query: String,
    measure: Measure,
    above: f64,
    window_minutes: u32,
    min_requests: u32,
    enabled: bool,
    /// True from the check that found the measure above the threshold to the one that did not.
    firing: bool,
    /// When `firing` changed last.
    changed_at: Option<Timestamp>,
    muted_until: Option<Timestamp>,
    checked_at: Option<Timestamp>,
    /// What the last check measured; null without rows to measure.
    value: Option<f64>,
    /// The last check had too many rows to read: only those since `scanned_to` were measured.
    partial: bool,
    scanned_to: Option<Timestamp>,
    /// Why the last check failed; null if it did not.
    error: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl TryFrom<StoredAlert> for AlertView {
    type Error = Problem;

    fn try_from(alert: StoredAlert) -> ApiResult<Self> {
        let definition: Definition = serde_json::from_str(&alert.definition).map_err(Problem::internal)?;
        let Definition { name, query, measure, above, window_minutes, min_requests, enabled } = definition;
        let StoredAlert { id, firing, changed_at, muted_until, checked_at, value, error, .. } = alert;
        let StoredAlert { scanned_to, created_at, updated_at, .. } = alert;
        Ok(Self {
            id,
            name,
            query,
            measure,
            above,
            window_minutes,
            min_requests,
            enabled,
            firing,
            changed_at,
            muted_until,
            checked_at,
            value,
            partial: scanned_to.is_some(),
            scanned_to,
            error,
            created_at,
            updated_at,
        })
    }
}

#[derive(Serialize, JsonSchema)]
struct AlertList {
    alerts: Vec<AlertView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: InOrg<Viewer>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<AlertList>> {
    let found = store::list(&app.services.db, caller.org.id, &params.page()?).await?;
    let (alerts, next_cursor) = page::try_into_views(found)?;
    Ok(Json(AlertList { alerts, next_cursor }))
}

async fn get(
    State(app): AppState,
    caller: InOrg<Viewer>,
    PathParam(id): PathParam<AlertId>,
) -> ApiResult<Json<AlertView>> {
    let found = store::find(&app.services.db, caller.org.id, id).await?;
    found.ok_or_else(Problem::not_found)?.try_into().map(Json)
}

const DUPLICATE: &str = "an alert with this name already exists; change it with PUT, or choose another name";

async fn create(
    app: Audited,
    caller: InOrg<Admin>,
    Body(definition): Body<Definition>,
) -> ApiResult<Created<AlertView>> {
    let org = caller.org.id;
    check(&definition)?;
    let mut tx = app.services.db.begin().await?;
    orgs::lock_for_update(&mut tx, org).await?;
    let count = store::count(&mut tx, org).await?;
    if usize::try_from(count).unwrap_or(usize::MAX) >= MAX_ALERTS {
        let why =
            format!("the organization already has the maximum of {MAX_ALERTS} alerts; delete one first");
        return Err(Problem::conflict(why));
    }
    let now = app.services.clock.now();
    let alert = StoredAlert {
        id: app.services.ids.new_id(),
        org_id: org,
        name: definition.name.clone(),
        definition: serde_json::to_string(&definition).map_err(Problem::internal)?,
        enabled: definition.enabled,
        firing: false,
        notified: false,
        changed_at: None,
        muted_until: None,
        checked_at: None,
        value: None,
        scanned_to: None,
        error: None,
        next_check_at: now,
        created_at: now,
        updated_at: now,
    };
    store::insert(&mut tx, &alert).await.map_err(Problem::on_duplicate(DUPLICATE))?;
    let view = AlertView::try_from(alert)?;
    tx.record(app.entry().target(view.id, &view.name).created(&view));
    tx.commit().await?;
    Ok(Created(view))
}

/// A changed alert begins anew: what it found by its old definition says nothing about the new one.
async fn update(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(id): PathParam<AlertId>,
    Body(definition): Body<Definition>,
) -> ApiResult<Json<AlertView>> {
    check(&definition)?;
    let mut tx = app.services.db.begin().await?;
    let before = store::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    let now = app.services.clock.now();
    let alert = StoredAlert {
        name: definition.name.clone(),
        definition: serde_json::to_string(&definition).map_err(Problem::internal)?,
        enabled: definition.enabled,
        firing: false,
        notified: false,
        changed_at: None,
        checked_at: None,
        value: None,
        scanned_to: None,
        error: None,
        next_check_at: now,
        updated_at: now,
        ..before.clone()
    };
    alerts::withdraw(&app, &mut tx, &before).await?;
    store::update(&mut tx, &alert).await.map_err(Problem::on_duplicate(DUPLICATE))?;
    let view = AlertView::try_from(alert)?;
    tx.record(app.entry().named(&view.name).changed(&AlertView::try_from(before)?, &view));
    tx.commit().await?;
    Ok(Json(view))
}

async fn delete(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(id): PathParam<AlertId>,
) -> ApiResult<Json<Deleted>> {
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    let alert = store::find_for_update(&mut tx, org, id).await?.ok_or_else(Problem::not_found)?;
    alerts::withdraw(&app, &mut tx, &alert).await?;
    store::delete(&mut tx, org, id).await?;
    let view = AlertView::try_from(alert)?;
    tx.record(app.entry().named(&view.name).deleted(&view));
    tx.commit().await?;
    Ok(Deleted::yes())
}

#[derive(Serialize, JsonSchema)]
struct AlertTest {
    /// Null without rows to measure.
    value: Option<f64>,
    /// The rows of the window that match.
    requests: i64,
    /// There were too many rows to read: only those since `scanned_to` were measured.
    partial: bool,
    scanned_to: Option<Timestamp>,
    /// Whether a check would find the measure above the threshold.
    would_fire: bool,
}

async fn test(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(id): PathParam<AlertId>,
) -> ApiResult<Json<AlertTest>> {
    let org = caller.org.id;
    let alert = store::find(&app.services.db, org, id).await?.ok_or_else(Problem::not_found)?;
    let definition: Definition = serde_json::from_str(&alert.definition).map_err(Problem::internal)?;
    let reading = alerts::measure(&app, org, &definition, app.services.clock.now()).await?;
    let mut tx = app.services.db.begin().await?;
    let alert = store::find_for_update(&mut tx, org, id).await?.ok_or_else(Problem::not_found)?;
    let notice = Notice { kind: "tested", is_sent: true };
    alerts::notify(&app, &mut tx, (&alert, &definition), reading, notice).await?;
    let Reading { value, requests, scanned_to, is_above } = reading;
    let partial = scanned_to.is_some();
    let tested = AlertTest { value, requests, partial, scanned_to, would_fire: is_above };
    tx.record(app.entry().named(&alert.name).created(&tested));
    tx.commit().await?;
    Ok(Json(tested))
}

#[derive(Deserialize, JsonSchema)]
struct MuteRequest {
    /// 0 to 43200; 0 ends the mute.
    #[schemars(range(min = 0, max = 43_200))]
    minutes: u32,
}

async fn mute(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(id): PathParam<AlertId>,
    Body(request): Body<MuteRequest>,
) -> ApiResult<Json<AlertView>> {
    if request.minutes > MAX_MUTE_MINUTES {
        return Err(Problem::field("minutes", format!("must be from 0 to {MAX_MUTE_MINUTES}")));
    }
    let mut tx = app.services.db.begin().await?;
    let mut alert =
        store::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    let before = AlertView::try_from(alert.clone())?;
    let until = app.services.clock.now().plus(i64::from(request.minutes) * MINUTE);
    alert.muted_until = (request.minutes > 0).then_some(until);
    if alert.muted_until.is_none() {
        // What was not sent is sent at once.
        alert.next_check_at = app.services.clock.now();
    }
    store::update(&mut tx, &alert).await?;
    let view = AlertView::try_from(alert)?;
    tx.record(app.entry().named(&view.name).changed(&before, &view));
    tx.commit().await?;
    Ok(Json(view))
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AlertHistoryEntry")]
struct EntryView {
    at: Timestamp,
    /// `fired`, `resolved` or `tested`.
    kind: String,
    value: Option<f64>,
    requests: i64,
    /// There were too many rows to read: only those since `scanned_to` were measured.
    partial: bool,
    scanned_to: Option<Timestamp>,
    /// No event was sent, because the alert was muted.
    muted: bool,
}

impl From<HistoryEntry> for EntryView {
    fn from(entry: HistoryEntry) -> Self {
        let HistoryEntry { id: _, kind, value, requests, scanned_to, muted, created_at } = entry;
        let partial = scanned_to.is_some();
        Self { at: created_at, kind, value, requests, partial, scanned_to, muted }
    }
}

#[derive(Serialize, JsonSchema)]
struct AlertHistory {
    history: Vec<EntryView>,
    next_cursor: Option<String>,
}

async fn history(
    State(app): AppState,
    caller: InOrg<Viewer>,
    PathParam(id): PathParam<AlertId>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<AlertHistory>> {
    let db = &app.services.db;
    store::find(db, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    let found = store::list_history(db, id, &params.page()?).await?;
    let (history, next_cursor) = page::into_views(found);
    Ok(Json(AlertHistory { history, next_cursor }))
}

fn check(definition: &Definition) -> ApiResult<()> {
    definition.check().map_err(|(field, why)| Problem::field(field, why))?;
    definition.parsed_query().map(|_| ()).map_err(query_problem)
}
