//! Log rows: lists with filters and queries, counts of values, single rows with their bodies, and the live stream.

mod export;
mod facets;
mod search;
mod stream;

pub(super) use search::page_of_rows;
pub(super) use stream::LastEventId;

use axum::extract::State;
use gateway_core::audit::Target;
use gateway_core::ids::OrgId;
use gateway_core::log_view::{LogDetail, LogView};
use gateway_core::logs::{LogLevel, LogSource};
use gateway_core::search_terms::query_terms;
use gateway_core::time::Timestamp;
use gateway_store::logs::{self, LogFilter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::audited::AuditedRead;
use super::caller::{AppState, RowReader};
use super::extract::{PagedQuery, PathParam, integer_path_param};
use super::openapi::Area;
use super::response::Json;
use crate::app::App;
use crate::auth::RowAccess;
use crate::problem::{ApiResult, Problem};

pub fn area() -> Area {
    Area::new("logs", "Log rows: one for every admitted request.")
        .get("/logs", list, "List log rows, newest first; rows are ordered by id")
        .get("/logs/export", export::export, "Export the rows that match as a file")
        .get("/logs/facets", facets::facets, "Count the values of fields among the rows that match")
        .get("/logs/values", facets::values, "List values of a field, to complete a query")
        .get("/logs/fields", facets::fields, "List the fields of the query language")
        .get("/logs/stream", stream::follow, "Stream new log rows as server-sent events")
        .get("/logs/{logId}", get, "Get a log row with its bodies")
}

integer_path_param!(
    /// The id of a log row.
    LogId = "logId"
);

#[derive(Deserialize, JsonSchema)]
pub(super) struct LogParams {
    provider: Option<String>,
    model: Option<String>,
    level: Option<LogLevel>,
    /// A status such as `429`, or a class such as `4xx`.
    status: Option<String>,
    source: Option<LogSource>,
    key_id: Option<String>,
    session_id: Option<String>,
    user: Option<String>,
    /// Start of the time range, inclusive.
    from: Option<Timestamp>,
    /// End of the time range, exclusive.
    to: Option<Timestamp>,
    /// Words that the bodies must contain, in any order. A word is a run of letters and digits; case is ignored.
    q: Option<String>,
    /// Only rows with an id greater than this.
    after_id: Option<i64>,
    /// A query such as `status:error latency:>2s model:gpt-4o* -source:api "exact words"`; all terms must hold, besides
    /// the other parameters. An error has the `position` of the wrong character, from 0, and what is `expected` there.
    query: Option<String>,
    /// `time`, `latency`, `cost` or `tokens`, the highest first; `latency:asc` for the lowest first. Default: `time`.
    sort: Option<String>,
}

impl LogParams {
    pub(super) fn filter(&self, access: RowAccess) -> ApiResult<LogFilter> {
        let words = self.q.as_deref().map(query_terms);
        if words.as_ref().is_some_and(Vec::is_empty) {
            return Err(Problem::field("q", "must contain at least one word"));
        }
        Ok(LogFilter {
            provider: self.provider.clone(),
            model: self.model.clone(),
            level: self.level,
            status: self.status.as_deref().map(status_range).transpose()?,
            source: self.source,
            key_id: access.restrict(self.key_id.as_deref().map(|id| parse_id("key_id", id)).transpose()?),
            session_id: self.session_id.clone(),
            user: self.user.clone(),
            from: self.from,
            to: self.to,
            words: words.unwrap_or_default(),
            after_id: self.after_id,
            own: None,
        })
    }
}

/// Parses an id in a query parameter.
pub(super) fn parse_id<T: std::str::FromStr<Err: std::fmt::Display>>(name: &str, text: &str) -> ApiResult<T> {
    text.parse().map_err(|error| Problem::field(name, error))
}

fn status_range(text: &str) -> ApiResult<(u16, u16)> {
    let class = text.strip_suffix("xx").and_then(|class| class.parse::<u16>().ok());
    let range = match (class, text.parse::<u16>()) {
        (Some(class), _) => Some((class.saturating_mul(100), class.saturating_mul(100).saturating_add(99))),
        (None, Ok(status)) => Some((status, status)),
        (None, Err(_)) => None,
    };
    range
        .filter(|(low, _)| (100..=599).contains(low))
        .ok_or_else(|| Problem::field("status", "must be a status such as 429 or a class such as 4xx"))
}

#[derive(Serialize, JsonSchema)]
pub(super) struct LogList {
    pub(super) logs: Vec<LogView>,
    pub(super) next_cursor: Option<String>,
    /// With `query` or `sort`: not all rows were looked at, only those since `scanned_to`. By time, `next_cursor` goes on
    /// there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partial: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scanned_to: Option<Timestamp>,
}

async fn list(
    State(app): AppState,
    caller: RowReader,
    PagedQuery { page, filter: params }: PagedQuery<LogParams>,
) -> ApiResult<Json<LogList>> {
    let filter = params.filter(caller.row_access())?;
    Ok(Json(page_of_rows(&app, caller.org.id, &params, &filter, &page).await?))
}

/// Waits until the rows of this node that have ended are stored, and their words too if the filter searches for some.
pub(super) async fn wait_for_rows(app: &App, org: OrgId, filter: &LogFilter) {
    wait_until_stored(app, org, !filter.words.is_empty()).await;
}

pub(super) async fn wait_until_stored(app: &App, org: OrgId, has_words: bool) {
    let stored = app.current_logs(org).await;
    if has_words && let Err(error) = logs::index_pending_of(stored, org).await {
        tracing::debug!(%error, "cannot update the search index before a search");
    }
}

async fn get(
    State(app): AppState,
    caller: RowReader,
    read: AuditedRead,
    PathParam(LogId(id)): PathParam<LogId>,
) -> ApiResult<Json<LogDetail>> {
    let stored = app.query_logs(caller.org.id).await?;
    let entry = logs::find(&stored, caller.org.id, id).await?;
    let entry = entry.filter(|entry| caller.row_access().includes(entry.row.key_id));
    let entry = entry.ok_or_else(Problem::not_found)?;
    if !(entry.row.request.is_empty() && entry.row.response.is_empty()) {
        let target = Target { kind: "log".into(), id: Some(id.to_string()), name: None };
        read.record(&app, &caller, "log.read_bodies", target);
    }
    Ok(Json(entry.into()))
}
