//! The delivery log of a webhook: list and retry deliveries, and send a test event.

use axum::extract::State;
use gateway_core::ids::{DeliveryId, EventId, OrgId, WebhookId};
use gateway_core::time::Timestamp;
use gateway_core::webhooks::{TEST_EVENT, delivery_id};
use gateway_store::deliveries::{
    self, Delivery, DeliveryAttempt, DeliveryFilter, DeliveryStatus, NewDelivery,
};
use gateway_store::webhooks::{self, Webhook};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::api::audited::Audited;
use crate::api::caller::{Admin, AppState, Caller, Viewer, Webhooks};
use crate::api::extract::{OptionalBody, PagedQuery, PathParam};
use crate::api::page;
use crate::api::response::{Accepted, Json};
use crate::app::App;
use crate::problem::{ApiResult, Problem};

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Delivery")]
pub(super) struct DeliveryView {
    id: DeliveryId,
    /// The `webhook-id` header, which is the same in every attempt.
    event_id: EventId,
    event_type: String,
    status: DeliveryStatus,
    attempts: Vec<AttemptView>,
    next_attempt_at: Option<Timestamp>,
    /// The body of the request.
    #[schemars(with = "serde_json::Value")]
    payload: Box<RawValue>,
    created_at: Timestamp,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeliveryAttempt")]
struct AttemptView {
    at: Timestamp,
    /// Null if there was no response.
    status_code: Option<u16>,
    latency_ms: i64,
    error: Option<String>,
    /// The beginning of the response body.
    response_body: Option<String>,
}

impl From<DeliveryAttempt> for AttemptView {
    fn from(attempt: DeliveryAttempt) -> Self {
        let DeliveryAttempt { at, status_code, latency_ms, error, response_body } = attempt;
        Self { at, status_code, latency_ms, error, response_body }
    }
}

fn view(delivery: Delivery) -> ApiResult<DeliveryView> {
    let Delivery { id, event_id, event_type, status, attempts, next_attempt_at, payload, created_at } =
        delivery;
    Ok(DeliveryView {
        id,
        event_id,
        event_type,
        status,
        attempts: attempts.into_iter().map(Into::into).collect(),
        next_attempt_at,
        payload: RawValue::from_string(payload).map_err(Problem::internal)?,
        created_at,
    })
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct DeliveryParams {
    status: Option<DeliveryStatus>,
    /// An event type, such as `key.create`.
    r#type: Option<String>,
    /// Start of the time range, inclusive.
    from: Option<Timestamp>,
    /// End of the time range, exclusive.
    to: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct DeliveryList {
    deliveries: Vec<DeliveryView>,
    next_cursor: Option<String>,
}

pub(super) async fn list_deliveries(
    State(app): AppState,
    caller: Caller<Viewer, Webhooks>,
    PathParam(webhook): PathParam<WebhookId>,
    PagedQuery { page, filter: params }: PagedQuery<DeliveryParams>,
) -> ApiResult<Json<DeliveryList>> {
    let filter =
        DeliveryFilter { status: params.status, event_type: params.r#type, from: params.from, to: params.to };
    let (org, page) = (caller.org.id, page.page()?);
    exists(&app, org, webhook).await?;
    let found = deliveries::list(&app.services.db, org, webhook, &filter, &page).await?;
    let next_cursor = page::encode_cursor(found.next.as_deref());
    let deliveries = found.rows.into_iter().map(view).collect::<ApiResult<_>>()?;
    Ok(Json(DeliveryList { deliveries, next_cursor }))
}

pub(super) async fn get_delivery(
    State(app): AppState,
    caller: Caller<Viewer, Webhooks>,
    PathParam(webhook): PathParam<WebhookId>,
    PathParam(id): PathParam<DeliveryId>,
) -> ApiResult<Json<DeliveryView>> {
    stored(&app, caller.org.id, webhook, id).await.map(Json)
}

pub(super) async fn retry_delivery(
    app: Audited,
    caller: Caller<Admin, Webhooks>,
    PathParam(webhook): PathParam<WebhookId>,
    PathParam(id): PathParam<DeliveryId>,
) -> ApiResult<Accepted<DeliveryView>> {
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    if !deliveries::retry(&mut tx, org, webhook, id, app.services.clock.now()).await? {
        return Err(Problem::not_found());
    }
    tx.record(app.entry().created(&json!({"delivery_id": id})));
    tx.commit().await?;
    stored(&app, org, webhook, id).await.map(Accepted)
}

#[derive(Deserialize, JsonSchema, Default)]
pub(super) struct RetryRequest {
    /// Default: `failed`.
    status: Option<DeliveryStatus>,
    r#type: Option<String>,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Retried {
    /// Number of deliveries that are sent again.
    retried: u64,
}

pub(super) async fn retry_deliveries(
    app: Audited,
    caller: Caller<Admin, Webhooks>,
    PathParam(webhook): PathParam<WebhookId>,
    OptionalBody(request): OptionalBody<RetryRequest>,
) -> ApiResult<Accepted<Retried>> {
    let org = caller.org.id;
    let filter = DeliveryFilter {
        status: Some(request.status.unwrap_or(DeliveryStatus::Failed)),
        event_type: request.r#type,
        from: request.from,
        to: request.to,
    };
    exists(&app, org, webhook).await?;
    // Before the first of several transactions, so that nothing is sent again without an entry.
    app.write(app.entry().created(&json!({"status": filter.status, "type": filter.event_type}))).await?;
    let retried =
        deliveries::retry_all(&app.services.db, org, webhook, &filter, app.services.clock.now()).await?;
    Ok(Accepted(Retried { retried }))
}

pub(super) async fn test(
    app: Audited,
    caller: Caller<Admin, Webhooks>,
    PathParam(webhook): PathParam<WebhookId>,
) -> ApiResult<Accepted<DeliveryView>> {
    let (org, event, now) = (caller.org.id, app.services.ids.new_id::<EventId>(), app.services.clock.now());
    let id = delivery_id(event, webhook);
    let format = found(&app, org, webhook).await?.format;
    let data = json!({"webhook_id": webhook});
    let new = NewDelivery {
        id,
        org_id: org,
        webhook_id: webhook,
        event_id: event,
        event_type: TEST_EVENT,
        payload: format.payload_of(event, org, (TEST_EVENT, &data), now),
        forced: true,
        created_at: now,
    };
    let mut tx = app.services.db.begin().await?;
    deliveries::insert(&mut tx, new).await?;
    tx.record(app.entry().created(&json!({"delivery_id": id})));
    tx.commit().await?;
    stored(&app, org, webhook, id).await.map(Accepted)
}

async fn exists(app: &App, org: OrgId, webhook: WebhookId) -> ApiResult<()> {
    found(app, org, webhook).await.map(|_| ())
}

async fn found(app: &App, org: OrgId, webhook: WebhookId) -> ApiResult<Webhook> {
    webhooks::find(&app.services.db, org, webhook).await?.ok_or_else(Problem::not_found)
}

async fn stored(app: &App, org: OrgId, webhook: WebhookId, id: DeliveryId) -> ApiResult<DeliveryView> {
    let found = deliveries::find(&app.services.db, org, webhook, id).await?;
    view(found.ok_or_else(Problem::not_found)?)
}
