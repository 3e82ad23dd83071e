//! Sessions: requests that the caller grouped by a session id, or that followed each other closely.

use axum::extract::State;
use gateway_core::log_view::LogView;
use gateway_core::logs::LogRow;
use gateway_core::time::Timestamp;
use gateway_core::totals::{is_cache_hit, is_error};
use gateway_store::logs::{self, LogFilter, LogSearch, Session, SessionFilter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::caller::{AppState, Caller, Viewer};
use super::extract::{PagedQuery, PathParam, text_path_param};
use super::openapi::Area;
use super::page;
use super::query;
use super::response::Json;
use crate::app::App;
use crate::auth::Identity;
use crate::problem::{ApiResult, Problem};

/// Requests of one session in one response.
const MAX_REQUESTS: i64 = 1_000;

pub fn area() -> Area {
    Area::new("sessions", "Sessions: groups of related requests.")
        .get("/sessions", list, "List sessions, newest first")
        .get("/sessions/{sessionId}", get, "Get a session with its requests, oldest first")
        .get("/sessions/{sessionId}/timeline", timeline, "Get the events of a session in order")
}

text_path_param!(
    /// The id of a session, which may be any text.
    SessionId = "sessionId"
);

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Session")]
struct SessionView {
    id: String,
    user: Option<String>,
    started_at: Timestamp,
    last_seen_at: Timestamp,
    requests: i64,
    total_tokens: i64,
    /// Null if tokens were used, but no model had a price.
    cost_usd: Option<f64>,
    providers: Vec<String>,
    models: Vec<String>,
    errors: i64,
}

impl From<Session> for SessionView {
    fn from(session: Session) -> Self {
        Self {
            cost_usd: session.cost_usd(),
            id: session.id,
            user: session.user,
            started_at: session.started_at,
            last_seen_at: session.last_seen_at,
            requests: session.requests,
            total_tokens: session.tokens,
            providers: session.providers,
            models: session.models,
            errors: session.errors,
        }
    }
}

#[derive(Deserialize, JsonSchema)]
struct SessionParams {
    user: Option<String>,
    /// Only sessions with requests to this provider.
    provider: Option<String>,
    /// Only sessions with requests at or after this time.
    from: Option<Timestamp>,
    /// Only sessions that started before this time.
    to: Option<Timestamp>,
    /// Only sessions with a request that matches this query, as in `GET /logs`.
    query: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct SessionList {
    sessions: Vec<SessionView>,
    next_cursor: Option<String>,
    /// With `query`: not all sessions were looked at, only those that began since `scanned_to`. `next_cursor` goes on
    /// there.
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scanned_to: Option<Timestamp>,
}

async fn list(
    State(app): AppState,
    caller: Caller<Viewer>,
    PagedQuery { page, filter: params }: PagedQuery<SessionParams>,
) -> ApiResult<Json<SessionList>> {
    let page = page.numeric_page()?;
    let SessionParams { user, provider, from, to, query } = params;
    let query = query::parse(&app, caller.org.id, query.as_deref()).await?;
    let filter = SessionFilter { user, provider, from, to, made_by: caller.row_access().restrict(None) };
    let stored = app.query_logs(caller.org.id).await?;
    let (found, partial, scanned_to) = match query {
        None => (logs::list_sessions(&stored, caller.org.id, &filter, &page).await?, None, None),
        Some(query) => {
            let search = LogSearch { query, ..LogSearch::default() };
            let (found, scanned_to) =
                logs::list_sessions_matching(&stored, caller.org.id, &search, &filter, &page).await?;
            (found, Some(scanned_to.is_some()), scanned_to)
        }
    };
    let (sessions, next_cursor) = page::into_views(found);
    Ok(Json(SessionList { sessions, next_cursor, partial, scanned_to }))
}

#[derive(Serialize, JsonSchema)]
struct SessionDetail {
    id: String,
    user: Option<String>,
    started_at: Timestamp,
    last_seen_at: Timestamp,
    /// The number of requests; `requests` contains at most the first 1000.
    request_count: i64,
    total_tokens: i64,
    cost_usd: Option<f64>,
    providers: Vec<String>,
    models: Vec<String>,
    errors: i64,
    requests: Vec<LogView>,
}

async fn get(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(SessionId(id)): PathParam<SessionId>,
) -> ApiResult<Json<SessionDetail>> {
    let (session, rows) = with_rows(&app, &caller, &id).await?;
    let SessionView {
        id,
        user,
        started_at,
        last_seen_at,
        requests,
        total_tokens,
        cost_usd,
        providers,
        models,
        errors,
    } = session.into();
    Ok(Json(SessionDetail {
        id,
        user,
        started_at,
        last_seen_at,
        request_count: requests,
        total_tokens,
        cost_usd,
        providers,
        models,
        errors,
        requests: rows.into_iter().map(Into::into).collect(),
    }))
}

async fn with_rows(app: &App, caller: &Identity, id: &str) -> ApiResult<(Session, Vec<logs::LogEntry>)> {
    let (org, made_by) = (caller.org.id, caller.row_access().restrict(None));
    let stored = app.query_logs(org).await?;
    let session = logs::find_session(&stored, org, id, made_by).await?.ok_or_else(Problem::not_found)?;
    let filter = LogFilter { session_id: Some(id.to_owned()), ..LogFilter::default() };
    let rows = logs::list_after(&stored, org, &filter, MAX_REQUESTS).await?;
    Ok((session, rows))
}

#[derive(Serialize, JsonSchema)]
struct Timeline {
    session_id: String,
    events: Vec<Event>,
}

#[derive(Serialize, JsonSchema, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
enum EventType {
    Request,
    Fallback,
    CacheHit,
    Error,
    Response,
}

/// An event of a session. Fields without a value are omitted.
#[derive(Serialize, JsonSchema)]
struct Event {
    at: Timestamp,
    r#type: EventType,
    log_id: i64,
    provider: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// For an error, its code. For a fallback, the failure of the previous target.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_tokens: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_usd: Option<f64>,
}

async fn timeline(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(SessionId(id)): PathParam<SessionId>,
) -> ApiResult<Json<Timeline>> {
    let (session, rows) = with_rows(&app, &caller, &id).await?;
    let mut events: Vec<Event> = rows.iter().flat_map(|entry| events_of(&entry.row)).collect();
    events.sort_by_key(|event| (event.at, event.log_id, event.r#type));
    Ok(Json(Timeline { session_id: session.id, events }))
}

fn events_of(row: &LogRow) -> Vec<Event> {
    let view = LogView::new(row, None);
    let event = |r#type: EventType, after_ms: i64| Event {
        at: row.created_at.plus(after_ms),
        r#type,
        log_id: row.id,
        provider: row.provider.clone(),
        model: row.model.clone(),
        status: None,
        error: None,
        latency_ms: None,
        total_tokens: None,
        cost_usd: None,
    };
    let first = row.attempts.first();
    let mut events = vec![Event {
        provider: first.map_or(&row.provider, |attempt| &attempt.provider).clone(),
        model: first.map_or(&row.model, |attempt| &attempt.model).clone(),
        ..event(EventType::Request, 0)
    }];
    for pair in row.attempts.windows(2) {
        let [previous, next] = pair else { continue };
        // A retry at the same target is not a fallback.
        if (&previous.provider, &previous.model) != (&next.provider, &next.model) {
            events.push(Event {
                provider: next.provider.clone(),
                model: next.model.clone(),
                status: previous.status,
                error: previous.error.clone(),
                ..event(EventType::Fallback, next.start_ms)
            });
        }
    }
    if is_cache_hit(row) {
        events.push(event(EventType::CacheHit, row.latency_ms));
    }
    let end = if is_error(row) { EventType::Error } else { EventType::Response };
    events.push(Event {
        status: Some(row.status),
        error: row.error_code.clone(),
        latency_ms: Some(row.latency_ms),
        total_tokens: view.total_tokens,
        cost_usd: view.cost_usd,
        ..event(end, row.latency_ms)
    });
    events
}
