//! Webhooks: URLs that the events of an organization are delivered to. The secret is only in the response that creates
//! it.

mod deliveries;

use axum::extract::State;
use gateway_core::events::{EVENT_TYPES, NAMED_EVENT_TYPES};
use gateway_core::ids::{OrgId, WebhookId};
use gateway_core::quotas::Quota;
use gateway_core::signing::format_secret;
use gateway_core::time::{HOUR, Timestamp};
use gateway_core::webhooks::WebhookFormat;
use gateway_store::partial_deletion::RowsToDelete;
use gateway_store::webhooks::{self, Webhook};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::audited::Audited;
use super::caller::{Admin, AppState, Caller, Viewer, Webhooks};
use super::destinations::check_url;
use super::extract::{Body, OptionalBody, PathParam, QueryParams};
use super::large_deletions::delete_large_parts;
use super::openapi::Area;
use super::page::{self, PageParams};
use super::response::{Created, Deleted, Json};
use crate::app::App;
use crate::problem::{ApiResult, Problem};
use crate::quotas;
use crate::vault::encryption_context;

const DEFAULT_OVERLAP_HOURS: i64 = 24;
const MAX_OVERLAP_HOURS: i64 = 720;

pub fn area() -> Area {
    Area::new("webhooks", "HTTP notifications of organization events, signed as in Standard Webhooks.")
        .post("/webhooks", create, "Create a webhook; its signing secret is returned only in this response")
        .get("/webhooks", list, "List the organization's webhooks, without secrets")
        .get("/webhooks/{webhookId}", get, "Get a webhook, without its secret")
        .put("/webhooks/{webhookId}", update, "Update the URL, the event types or the active state")
        .delete("/webhooks/{webhookId}", delete, "Delete a webhook with its delivery log")
        .post(
            "/webhooks/{webhookId}/rotate-secret",
            rotate_secret,
            "Create a new signing secret; deliveries carry both signatures during the overlap",
        )
        .post(
            "/webhooks/{webhookId}/test",
            deliveries::test,
            "Send a test event, even to an inactive webhook",
        )
        .get(
            "/webhooks/{webhookId}/deliveries",
            deliveries::list_deliveries,
            "List the deliveries with all attempts",
        )
        .post(
            "/webhooks/{webhookId}/deliveries/retry",
            deliveries::retry_deliveries,
            "Send all matching deliveries again; by default the failed ones",
        )
        .get("/webhooks/{webhookId}/deliveries/{deliveryId}", deliveries::get_delivery, "Get a delivery")
        .post(
            "/webhooks/{webhookId}/deliveries/{deliveryId}/retry",
            deliveries::retry_delivery,
            "Send a delivery again, regardless of its status",
        )
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Webhook")]
struct WebhookView {
    id: WebhookId,
    url: String,
    /// Empty for all event types.
    events: Vec<String>,
    /// Absent for `standard`.
    #[serde(skip_serializing_if = "WebhookFormat::is_standard")]
    format: WebhookFormat,
    active: bool,
    /// The time since which every attempt has failed; null if the latest one succeeded.
    failing_since: Option<Timestamp>,
    /// The reason why the gateway deactivated the webhook.
    deactivated_reason: Option<String>,
    created_at: Timestamp,
}

impl From<Webhook> for WebhookView {
    fn from(webhook: Webhook) -> Self {
        let Webhook {
            id,
            org_id: _,
            url,
            secret: _,
            previous_secret: _,
            previous_until: _,
            events,
            format,
            active,
            failing_since,
            deactivated_reason,
            revision: _,
            created_at,
        } = webhook;
        Self { id, url, events, format, active, failing_since, deactivated_reason, created_at }
    }
}

#[derive(Serialize, JsonSchema)]
struct WebhookWithSecret {
    #[serde(flatten)]
    webhook: WebhookView,
    /// Returned only in this response.
    secret: String,
}

#[derive(Deserialize, JsonSchema)]
struct NewWebhook {
    url: String,
    /// Default: all event types but `audit.checkpoint`, `limit.reached`, `alert.fired` and `alert.resolved`, which must
    /// be named.
    events: Option<Vec<String>>,
    /// `slack` sends messages that Slack and compatible chats show. Default: `standard`.
    format: Option<WebhookFormat>,
}

async fn create(
    app: Audited,
    caller: Caller<Admin, Webhooks>,
    Body(request): Body<NewWebhook>,
) -> ApiResult<Created<WebhookWithSecret>> {
    check_url(&request.url).map_err(|why| Problem::field("url", why))?;
    let events = checked_events(request.events.unwrap_or_default())?;
    let (org, id) = (caller.org.id, app.services.ids.new_id());
    let (secret, sealed) = new_secret(&app, org, id)?;
    let webhook = Webhook {
        id,
        org_id: org,
        url: request.url,
        secret: sealed,
        previous_secret: None,
        previous_until: None,
        events,
        format: request.format.unwrap_or_default(),
        active: true,
        failing_since: None,
        deactivated_reason: None,
        revision: 0,
        created_at: app.services.clock.now(),
    };
    let mut tx = app.services.db.begin().await?;
    quotas::check(&app.services, &mut tx, &caller.org, Quota::Webhooks).await?;
    webhooks::insert(&mut tx, &webhook).await?;
    let view = WebhookView::from(webhook);
    tx.record(app.entry().target(view.id, &shown_url(&view.url)).created(&view).secret_if(true, "secret"));
    tx.commit().await?;
    Ok(Created(WebhookWithSecret { webhook: view, secret }))
}

#[derive(Serialize, JsonSchema)]
struct WebhookList {
    webhooks: Vec<WebhookView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: Caller<Viewer, Webhooks>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<WebhookList>> {
    let found = webhooks::list(&app.services.db, caller.org.id, &params.page()?).await?;
    let (webhooks, next_cursor) = page::into_views(found);
    Ok(Json(WebhookList { webhooks, next_cursor }))
}

async fn get(
    State(app): AppState,
    caller: Caller<Viewer, Webhooks>,
    PathParam(id): PathParam<WebhookId>,
) -> ApiResult<Json<WebhookView>> {
    let webhook =
        webhooks::find(&app.services.db, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    Ok(Json(webhook.into()))
}

#[derive(Deserialize, JsonSchema)]
struct WebhookChange {
    url: Option<String>,
    /// Replaces the whole list; empty for all event types.
    events: Option<Vec<String>>,
    format: Option<WebhookFormat>,
    active: Option<bool>,
}

async fn update(
    app: Audited,
    caller: Caller<Admin, Webhooks>,
    PathParam(id): PathParam<WebhookId>,
    Body(change): Body<WebhookChange>,
) -> ApiResult<Json<WebhookView>> {
    if let Some(url) = &change.url {
        check_url(url).map_err(|why| Problem::field("url", why))?;
    }
    let events = change.events.map(checked_events).transpose()?;
    let mut tx = app.services.db.begin().await?;
    let mut webhook =
        webhooks::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    let before = WebhookView::from(webhook.clone());
    if change.url.as_ref().is_some_and(|url| *url != webhook.url) || change.active == Some(true) {
        // Earlier failures do not count for a new URL or a reactivated webhook.
        (webhook.failing_since, webhook.deactivated_reason) = (None, None);
    }
    webhook.url = change.url.unwrap_or(webhook.url);
    webhook.events = events.unwrap_or(webhook.events);
    webhook.format = change.format.unwrap_or(webhook.format);
    webhook.active = change.active.unwrap_or(webhook.active);
    webhook.revision += 1;
    webhooks::update(&mut tx, &webhook).await?;
    let view = WebhookView::from(webhook);
    tx.record(app.entry().named(&shown_url(&view.url)).changed(&before, &view));
    tx.commit().await?;
    Ok(Json(view))
}

async fn delete(
    app: Audited,
    caller: Caller<Admin, Webhooks>,
    PathParam(id): PathParam<WebhookId>,
) -> ApiResult<Json<Deleted>> {
    delete_large_parts(&app, caller.org.id, RowsToDelete::Webhook(id)).await?;
    let mut tx = app.services.db.begin().await?;
    let webhook =
        webhooks::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    webhooks::delete(&mut tx, caller.org.id, id).await?;
    let before = WebhookView::from(webhook);
    tx.record(app.entry().named(&shown_url(&before.url)).deleted(&before));
    tx.commit().await?;
    Ok(Deleted::yes())
}

#[derive(Deserialize, JsonSchema, Default)]
struct RotateSecretRequest {
    /// Hours during which the old secret also signs, 0 to 720. Default: 24.
    #[schemars(range(min = 0, max = 720))]
    overlap_hours: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
struct RotatedSecret {
    #[serde(flatten)]
    webhook: WebhookView,
    /// Returned only in this response.
    secret: String,
    /// Deliveries also carry a signature with the old secret until this time.
    previous_secret_until: Option<Timestamp>,
}

async fn rotate_secret(
    app: Audited,
    caller: Caller<Admin, Webhooks>,
    PathParam(id): PathParam<WebhookId>,
    OptionalBody(request): OptionalBody<RotateSecretRequest>,
) -> ApiResult<Created<RotatedSecret>> {
    let hours = request.overlap_hours.unwrap_or(DEFAULT_OVERLAP_HOURS);
    if !(0..=MAX_OVERLAP_HOURS).contains(&hours) {
        return Err(Problem::field("overlap_hours", format!("must be between 0 and {MAX_OVERLAP_HOURS}")));
    }
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    let mut webhook = webhooks::find_for_update(&mut tx, org, id).await?.ok_or_else(Problem::not_found)?;
    let (secret, sealed) = new_secret(&app, org, id)?;
    let until = (hours > 0).then(|| app.services.clock.now().plus(hours * HOUR));
    let old = std::mem::replace(&mut webhook.secret, sealed);
    webhook.previous_secret = until.map(|_| old);
    webhook.previous_until = until;
    webhook.revision += 1;
    webhooks::update(&mut tx, &webhook).await?;
    tx.record(app.entry().named(&shown_url(&webhook.url)).secret_if(true, "secret"));
    tx.commit().await?;
    Ok(Created(RotatedSecret { webhook: webhook.into(), secret, previous_secret_until: until }))
}

/// Generates a secret, and returns it in plain text and encrypted.
fn new_secret(app: &App, org: OrgId, id: WebhookId) -> ApiResult<(String, String)> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(Problem::internal)?;
    let secret = format_secret(&random);
    let context = encryption_context(org, &format!("webhook/{id}"), "secret");
    let sealed = app.services.vault.seal(&context, &secret).map_err(Problem::internal)?;
    Ok((secret, sealed))
}

/// The URL without its query, which may be a credential.
fn shown_url(url: &str) -> String {
    url.split('?').next().unwrap_or_default().to_owned()
}

/// Checks the event types and removes duplicates.
fn checked_events(events: Vec<String>) -> ApiResult<Vec<String>> {
    let mut checked: Vec<String> = Vec::new();
    for event in events {
        if !EVENT_TYPES.contains(&event.as_str()) && !NAMED_EVENT_TYPES.contains(&event.as_str()) {
            let known = [EVENT_TYPES.join(", "), NAMED_EVENT_TYPES.join(", ")].join(", ");
            return Err(Problem::field("events", format!("must be one of {known}")));
        }
        if !checked.contains(&event) {
            checked.push(event);
        }
    }
    Ok(checked)
}
