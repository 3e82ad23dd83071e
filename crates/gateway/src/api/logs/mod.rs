//! Log rows: listed by what they have in common, shown with their bodies, followed as they come.

mod stream;

use axum::extract::State;
use gateway_core::log_view::{LogDetail, LogView};
use gateway_core::logs::{LogLevel, LogSource};
use gateway_core::search_terms::query_terms;
use gateway_core::time::Timestamp;
use gateway_store::logs::{self, LogFilter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::caller::{AppState, Caller, Viewer};
use super::extract::{FromPath, PagedQuery, PathParam};
use super::openapi::Area;
use super::page;
use super::response::Json;
use crate::problem::{ApiResult, Problem};

pub fn area() -> Area {
    Area::new("logs", "Log rows: one for every request that was admitted.")
        .get("/logs", list, "Rows, newest first; a row's place in time is its id")
        .get("/logs/stream", stream::follow, "Rows as they come, as server-sent events")
        .get("/logs/{logId}", get, "One row with its bodies")
}

/// The id of a log row in a path.
pub(super) struct LogId(pub i64);

impl FromPath for LogId {
    const NAME: &'static str = "logId";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| "not a valid id: expected a whole number".into())
    }

    fn schema() -> serde_json::Value {
        json!({"type": "integer", "format": "int64"})
    }
}

#[derive(Deserialize, JsonSchema)]
struct LogParams {
    provider: Option<String>,
    model: Option<String>,
    level: Option<LogLevel>,
    /// A status such as `429`, or a class such as `4xx`.
    status: Option<String>,
    source: Option<LogSource>,
    key_id: Option<String>,
    session_id: Option<String>,
    user: Option<String>,
    /// From this time on.
    from: Option<Timestamp>,
    /// Up to this time, not including it.
    to: Option<Timestamp>,
    /// Words that all stand in the bodies, in any order. A word is a run of letters and digits; case does not matter.
    q: Option<String>,
    /// Only rows with a greater id.
    after_id: Option<i64>,
}

impl LogParams {
    fn filter(&self) -> ApiResult<LogFilter> {
        let words = self.q.as_deref().map(query_terms);
        if words.as_ref().is_some_and(Vec::is_empty) {
            return Err(Problem::field("q", "holds no word to search for"));
        }
        Ok(LogFilter {
            provider: self.provider.clone(),
            model: self.model.clone(),
            level: self.level,
            status: self.status.as_deref().map(status_range).transpose()?,
            source: self.source,
            key_id: self.key_id.as_deref().map(|id| parse_id("key_id", id)).transpose()?,
            session_id: self.session_id.clone(),
            user: self.user.clone(),
            from: self.from,
            to: self.to,
            words: words.unwrap_or_default(),
            after_id: self.after_id,
        })
    }
}

/// An id in a parameter.
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
        .ok_or_else(|| Problem::field("status", "must be a status such as 429, or a class such as 4xx"))
}

#[derive(Serialize, JsonSchema)]
struct LogList {
    logs: Vec<LogView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: Caller<Viewer>,
    PagedQuery { page, filter: params }: PagedQuery<LogParams>,
) -> ApiResult<Json<LogList>> {
    let page = page.numeric_page()?;
    let found = logs::list(&app.services.logs, caller.org.id, &params.filter()?, &page).await?;
    let next_cursor = page::encode_cursor(found.next.as_deref());
    Ok(Json(LogList { logs: found.rows.into_iter().map(Into::into).collect(), next_cursor }))
}

async fn get(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(LogId(id)): PathParam<LogId>,
) -> ApiResult<Json<LogDetail>> {
    let entry = logs::find(&app.services.logs, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    Ok(Json(entry.into()))
}
