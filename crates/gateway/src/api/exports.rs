//! Exports: destinations that log rows and checkpoints of the audit log are delivered to, as OTLP traces or as signed webhook batches.

use std::collections::BTreeMap;

use axum::extract::State;
use gateway_core::accounts::check_name;
use gateway_core::audit::Draft;
use gateway_core::exports::{ActivePeriods, ExportKind, ExportSource};
use gateway_core::ids::{ExportId, OrgId};
use gateway_core::query;
use gateway_core::quotas::Quota;
use gateway_core::signing::decode_secret;
use gateway_core::time::Timestamp;
use gateway_store::StoreError;
use gateway_store::exports::{self, Export, ExportStatus};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::audited::Audited;
use super::caller::{Admin, AppState, Caller, Integrations, Viewer};
use super::destinations::{check_headers, check_url};
use super::extract::{Body, PathParam, QueryParams, double_option};
use super::openapi::Area;
use super::page::{self, PageParams};
use super::query::query_problem;
use super::response::{Created, Deleted, Json};
use crate::app::App;
use crate::auth::Identity;
use crate::cluster::invalidation::{self, Invalidation};
use crate::delivery::batch;
use crate::problem::{ApiResult, Problem};
use crate::quotas;
use crate::vault::encryption_context;

const MAX_SECRET_BYTES: usize = 1_024;

const UPDATE_SUMMARY: &str = "Update an export; omitted fields stay unchanged, except that a change of the endpoint's \
                              origin drops headers and secret if the request does not repeat them";

pub fn area() -> Area {
    Area::new("exports", "Delivery of log rows to other tools, as OTLP traces or as signed webhook batches.")
        .get("/exports", list, "List the organization's exports with the status of their deliveries")
        .post("/exports", create, "Create an export with immediate effect")
        .get("/exports/{exportId}", get, "Get an export")
        .put("/exports/{exportId}", update, UPDATE_SUMMARY)
        .delete("/exports/{exportId}", delete, "Delete an export and stop its deliveries")
        .post("/exports/{exportId}/test", test, "Send a delivery without rows to test the destination")
}

#[derive(Serialize, JsonSchema)]
struct ExportConfig {
    id: ExportId,
    name: String,
    kind: &'static str,
    endpoint: String,
    include_sources: Vec<ExportSource>,
    /// Only rows that match it are sent; empty for all.
    query: String,
    enabled: bool,
    has_secret: bool,
    created_at: Timestamp,
    updated_at: Timestamp,
    status: ExportStatusView,
    /// True if this change of the origin (scheme, host, port) dropped stored headers or the secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    secrets_dropped: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ExportStatus")]
struct ExportStatusView {
    last_success_at: Option<Timestamp>,
    /// The latest error; null after a successful delivery.
    last_error: Option<String>,
    /// Rows, verdicts and checkpoints that the destination accepted.
    delivered: i64,
    /// Failed deliveries. Their rows are sent again.
    failed: i64,
    /// Those that were dropped: too large for the destination, rejected by it one by one, or past their retention.
    dropped: i64,
    /// Rows that did not match `query`, and verdicts on such rows.
    skipped: i64,
    /// Those in the queue, counted up to 100,000.
    lag: i64,
}

impl From<(Export, ExportStatus)> for ExportConfig {
    fn from((export, status): (Export, ExportStatus)) -> Self {
        let Export {
            id, org_id: _, name, kind, endpoint, headers: _, secret, sources, query, enabled, ..
        } = export;
        let ExportStatus { last_success_at, last_error, delivered, failed, dropped, skipped, lag } = status;
        Self {
            id,
            name,
            kind: kind.as_str(),
            endpoint,
            include_sources: sources,
            query,
            enabled,
            has_secret: secret.is_some(),
            created_at: export.created_at,
            updated_at: export.updated_at,
            status: ExportStatusView {
                last_success_at,
                last_error,
                delivered,
                failed,
                dropped,
                skipped,
                lag,
            },
            secrets_dropped: None,
        }
    }
}

#[derive(Serialize, JsonSchema)]
struct ExportList {
    exports: Vec<ExportConfig>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: Caller<Viewer, Integrations>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<ExportList>> {
    let found = exports::list(&app.services.logs, caller.org.id, &params.page()?).await?;
    let (exports, next_cursor) = page::into_views(found);
    Ok(Json(ExportList { exports, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
struct NewExport {
    /// Unique in the organization.
    #[schemars(required)]
    name: Option<String>,
    /// `otlp` or `webhook`.
    #[schemars(required)]
    kind: Option<String>,
    /// The URL of the destination. For `otlp`, `/v1/traces` is appended if it has no path.
    #[schemars(required)]
    endpoint: Option<String>,
    /// Write-only: sent with every delivery.
    headers: Option<BTreeMap<String, String>>,
    /// Write-only, for kind `webhook`: signs every delivery.
    secret: Option<String>,
    /// Any of `proxy`, `api`, `otel` and `audit` (signed checkpoints of the audit log). Default: `proxy` and `api`.
    include_sources: Option<Vec<String>>,
    /// Only rows that match this query are sent, in the language of `GET /logs`. An error has the `position` of the wrong
    /// character. Words need bodies that the organization stores. Default: all rows.
    query: Option<String>,
    enabled: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
struct ExportChange {
    name: Option<String>,
    kind: Option<String>,
    endpoint: Option<String>,
    /// Write-only. Replaces all headers; null or an empty object removes them.
    #[serde(default, deserialize_with = "double_option")]
    headers: Option<Option<BTreeMap<String, String>>>,
    /// Write-only. Null removes it.
    #[serde(default, deserialize_with = "double_option")]
    secret: Option<Option<String>>,
    include_sources: Option<Vec<String>>,
    /// Takes effect at once, also on rows that wait. An empty query sends all rows.
    query: Option<String>,
    enabled: Option<bool>,
}

async fn create(
    app: Audited,
    caller: Caller<Admin, Integrations>,
    Body(new): Body<NewExport>,
) -> ApiResult<Created<ExportConfig>> {
    let NewExport { name, kind, endpoint, headers, secret, include_sources, query, enabled } = new;
    for (field, given) in [("name", &name), ("kind", &kind), ("endpoint", &endpoint)] {
        if given.is_none() {
            return Err(invalid(field, "is required"));
        }
    }
    let (headers, secret) = (Some(headers), Some(secret));
    let fields = ExportChange { name, kind, endpoint, headers, secret, include_sources, query, enabled };
    let (org, now) = (caller.org.id, app.services.clock.now());
    let mut export = Export {
        id: app.services.ids.new_id(),
        org_id: org,
        name: String::new(),
        kind: ExportKind::Otlp,
        endpoint: String::new(),
        headers: None,
        secret: None,
        sources: ExportSource::DEFAULT.to_vec(),
        query: String::new(),
        enabled: true,
        periods: ActivePeriods::default(),
        revision: 1,
        created_at: now,
        updated_at: now,
    };
    let secrets = fields.secrets();
    apply(&app, &mut export, fields.checked(stores_bodies(&app, &caller))?, now)?;
    let limit = app.services.config.quotas.limit(caller.org.plan, Quota::Exports);
    let most = limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(i64::MAX);
    let mut tx = app.services.logs.begin().await?;
    if !exports::insert(&mut tx, &export, most).await.map_err(name_taken)? {
        return Err(quotas::exceeded(caller.org.plan, Quota::Exports, limit.unwrap_or_default()));
    }
    let entry = app.entry().target(export.id, &export.name).created(&state(&export));
    app.record_beside(&mut tx, with_secrets(entry, secrets)).await?;
    tx.commit().await?;
    stored(&app, org, export.id).await.map(Created)
}

async fn get(
    State(app): AppState,
    caller: Caller<Viewer, Integrations>,
    PathParam(id): PathParam<ExportId>,
) -> ApiResult<Json<ExportConfig>> {
    stored(&app, caller.org.id, id).await.map(Json)
}

async fn update(
    app: Audited,
    caller: Caller<Admin, Integrations>,
    PathParam(id): PathParam<ExportId>,
    Body(fields): Body<ExportChange>,
) -> ApiResult<Json<ExportConfig>> {
    let (org, now) = (caller.org.id, app.services.clock.now());
    let secrets = fields.secrets();
    // An invalid change is reported before a missing export.
    let fields = fields.checked(stores_bodies(&app, &caller))?;
    let mut tx = app.services.logs.begin().await?;
    let mut export = exports::find_for_update(&mut tx, org, id).await?.ok_or_else(Problem::not_found)?;
    let before = state(&export);
    let secrets_dropped = drop_foreign_secrets(&mut export, &fields);
    apply(&app, &mut export, fields, now)?;
    export.revision += 1;
    export.updated_at = now;
    exports::update(&mut tx, &export).await.map_err(name_taken)?;
    let pending = invalidation::record(&mut tx, Invalidation::Exports).await?;
    let entry = app.entry().named(&export.name).changed(&before, &state(&export));
    app.record_beside(&mut tx, with_secrets(entry, secrets)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    let view = stored(&app, org, id).await?;
    Ok(Json(ExportConfig { secrets_dropped: secrets_dropped.then_some(true), ..view }))
}

async fn delete(
    app: Audited,
    caller: Caller<Admin, Integrations>,
    PathParam(id): PathParam<ExportId>,
) -> ApiResult<Json<Deleted>> {
    let mut tx = app.services.logs.begin().await?;
    let export =
        exports::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    exports::delete(&mut tx, caller.org.id, id).await?;
    let pending = invalidation::record(&mut tx, Invalidation::Exports).await?;
    app.record_beside(&mut tx, app.entry().named(&export.name).deleted(&state(&export))).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Deleted::yes())
}

#[derive(Serialize, JsonSchema)]
struct ExportTest {
    ok: bool,
    /// The status of the destination's response; null if there was none.
    status: Option<u16>,
    latency_ms: i64,
    error: Option<String>,
}

async fn test(
    app: Audited,
    caller: Caller<Admin, Integrations>,
    PathParam(id): PathParam<ExportId>,
) -> ApiResult<Json<ExportTest>> {
    let (export, _) =
        exports::find(&app.services.logs, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    let sent = batch::test(&app.jobs.delivery, &export).await;
    let outcome = json!({"ok": sent.is_success(), "status": sent.status});
    app.write(app.entry().named(&export.name).created(&outcome)).await?;
    Ok(Json(ExportTest {
        ok: sent.is_success(),
        status: sent.status,
        latency_ms: sent.latency_ms,
        error: sent.error,
    }))
}

impl ExportChange {
    /// Whether it sets the secret or the headers.
    fn secrets(&self) -> [(&'static str, bool); 2] {
        [
            ("secret", self.secret.as_ref().is_some_and(Option::is_some)),
            ("headers", self.headers.as_ref().is_some_and(Option::is_some)),
        ]
    }

    /// Checks what does not depend on the stored export.
    fn checked(self, stores_bodies: bool) -> ApiResult<CheckedChange> {
        let Self { name, kind, endpoint, headers, secret, include_sources, query, enabled } = self;
        if let Some(name) = &name {
            check_name(name).map_err(|why| invalid("name", why))?;
        }
        let kind = kind.as_deref().map(ExportKind::parse);
        if kind == Some(None) {
            return Err(invalid("kind", "must be one of otlp, webhook"));
        }
        if let Some(endpoint) = &endpoint {
            check_url(endpoint).map_err(|why| invalid("endpoint", why))?;
        }
        let sources = include_sources.as_deref().map(checked_sources).transpose()?;
        if let Some(query) = &query {
            check_query(query, stores_bodies)?;
        }
        if let Some(Some(headers)) = &headers {
            check_headers(headers).map_err(|why| invalid("headers", why))?;
        }
        if let Some(Some(secret)) = &secret {
            check_secret(secret)?;
        }
        Ok(CheckedChange { name, kind: kind.flatten(), endpoint, headers, secret, sources, query, enabled })
    }
}

/// A change of an export whose fields are valid.
struct CheckedChange {
    name: Option<String>,
    kind: Option<ExportKind>,
    endpoint: Option<String>,
    headers: Option<Option<BTreeMap<String, String>>>,
    secret: Option<Option<String>>,
    sources: Option<Vec<ExportSource>>,
    query: Option<String>,
    enabled: Option<bool>,
}

fn with_secrets(entry: Draft, secrets: [(&'static str, bool); 2]) -> Draft {
    secrets.into_iter().fold(entry, |entry, (field, is_set)| entry.secret_if(is_set, field))
}

/// What the audit log shows of an export.
fn state(export: &Export) -> Value {
    json!({
        "name": export.name, "kind": export.kind.as_str(), "endpoint": export.endpoint,
        "include_sources": export.sources, "query": export.query, "enabled": export.enabled,
    })
}

/// Drops the stored headers and secret if the change sends them to another origin: otherwise a caller who may change the
/// endpoint could read them there. Returns whether there were any that the change does not replace.
fn drop_foreign_secrets(export: &mut Export, change: &CheckedChange) -> bool {
    let origin = |text: &str| url::Url::parse(text).ok().map(|url| url.origin());
    let Some(endpoint) = &change.endpoint else { return false };
    if origin(endpoint) == origin(&export.endpoint) {
        return false;
    }
    let headers = export.headers.take().is_some_and(|_| change.headers.is_none());
    let secret = export.secret.take().is_some_and(|_| change.secret.is_none());
    headers || secret
}

fn apply(app: &App, export: &mut Export, change: CheckedChange, now: Timestamp) -> ApiResult<()> {
    let CheckedChange { name, kind, endpoint, headers, secret, sources, query, enabled } = change;
    export.name = name.unwrap_or_else(|| std::mem::take(&mut export.name));
    export.kind = kind.unwrap_or(export.kind);
    export.endpoint = endpoint.unwrap_or_else(|| std::mem::take(&mut export.endpoint));
    export.sources = sources.unwrap_or_else(|| std::mem::take(&mut export.sources));
    export.query = query.unwrap_or_else(|| std::mem::take(&mut export.query));
    let seal = |column: &str, text: &str| {
        let context = encryption_context(export.org_id, &format!("export/{}", export.id), column);
        app.services.vault.seal(&context, text).map_err(Problem::internal)
    };
    if let Some(headers) = headers {
        let headers = headers.filter(|headers| !headers.is_empty());
        let text =
            headers.map(|headers| serde_json::to_string(&headers).map_err(Problem::internal)).transpose()?;
        export.headers = text.map(|text| seal("headers", &text)).transpose()?;
    }
    if let Some(secret) = secret {
        if secret.is_some() && export.kind == ExportKind::Otlp {
            let why = "requires kind webhook; use headers to authenticate an otlp export";
            return Err(invalid("secret", why));
        }
        export.secret = secret.map(|secret| seal("secret", &secret)).transpose()?;
    }
    if export.kind == ExportKind::Otlp {
        export.secret = None;
    }
    export.enabled = enabled.unwrap_or(export.enabled);
    if export.enabled {
        export.periods.start(now);
    } else {
        export.periods.stop(now);
    }
    Ok(())
}

fn checked_sources(names: &[String]) -> ApiResult<Vec<ExportSource>> {
    let mut sources = Vec::new();
    for name in names {
        let source = ExportSource::parse(name).ok_or_else(|| {
            invalid("include_sources", "must be one of proxy, api, otel, mcp, replay, audit")
        })?;
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    if sources.is_empty() {
        return Err(invalid("include_sources", "must contain at least one of proxy, api, otel, audit"));
    }
    Ok(sources)
}

/// Whether rows have bodies, which words are searched for in.
fn stores_bodies(app: &App, caller: &Identity) -> bool {
    caller.org.settings.log_bodies && app.services.config.log_bodies
}

fn check_query(text: &str, stores_bodies: bool) -> ApiResult<()> {
    let parsed = if stores_bodies { query::parse(text) } else { query::parse_without_words(text) };
    parsed.map(|_| ()).map_err(|error| Problem { code: "invalid_config", ..query_problem(error) })
}

fn check_secret(secret: &str) -> ApiResult<()> {
    if secret.is_empty() || secret.len() > MAX_SECRET_BYTES {
        return Err(invalid("secret", format!("must be 1 to {MAX_SECRET_BYTES} bytes long")));
    }
    decode_secret(secret).map(|_| ()).map_err(|why| invalid("secret", why))
}

fn invalid(field: &str, why: impl std::fmt::Display) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "invalid_config", format!("{field}: {why}"))
}

fn name_taken(error: StoreError) -> Problem {
    match error {
        StoreError::Duplicate => Problem::new(
            StatusCode::CONFLICT,
            "duplicate_name",
            "an export with this name already exists in the organization",
        ),
        error => error.into(),
    }
}

async fn stored(app: &App, org: OrgId, id: ExportId) -> ApiResult<ExportConfig> {
    exports::find(&app.services.logs, org, id).await?.map(Into::into).ok_or_else(Problem::not_found)
}
