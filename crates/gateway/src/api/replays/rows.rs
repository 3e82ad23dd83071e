//! The rows of a replay: what the call took before and after, both answers, and the verdicts on them. Answers are read
//! from the log rows, so that they are kept no longer than those.

use std::collections::HashMap;

use axum::extract::State;
use gateway_core::audit::Target;
use gateway_core::llm::preview::{assistant_text, last_user_text};
use gateway_core::logs::LogRow;
use gateway_core::replays::CallFigures;
use gateway_core::totals::usd;
use gateway_store::logs;
use gateway_store::replays::{self, ReplayItem, ReplayScore, Verdict};
use schemars::JsonSchema;
use serde::Serialize;

use super::{ReplayId, stored};
use crate::api::audited::AuditedRead;
use crate::api::caller::{AppState, Caller, Viewer};
use crate::api::extract::{PathParam, QueryParams};
use crate::api::page::{PageParams, encode_cursor};
use crate::api::response::Json;
use crate::app::App;
use crate::auth::Identity;
use crate::compute::WaitLimits;
use crate::problem::ApiResult;

/// Rows of a page. Their bodies are read.
const MAX_PAGE: i64 = 50;
/// Longer texts are cut.
const MAX_TEXT_CHARS: usize = 8_000;
/// A body is held together with its text.
const HELD_PER_BYTE: i64 = 2;

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplayRowList")]
pub(super) struct RowList {
    /// In the order of the replay: newest row first.
    rows: Vec<RowView>,
    next_cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplayRow")]
struct RowView {
    log_id: i64,
    /// The log row of the new call.
    replay_log_id: Option<i64>,
    /// `pending`, `done` or `error`.
    state: String,
    /// Why the row could not be replayed, or the last failed attempt.
    error: Option<String>,
    /// The last message of the user; null if the log row is gone.
    input: Option<String>,
    before: CallView,
    /// Null until the request was made again.
    after: Option<CallView>,
    scores: Vec<ScoreView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplayCall")]
struct CallView {
    provider: String,
    model: Option<String>,
    status: i64,
    cost_usd: Option<f64>,
    latency_ms: i64,
    input_tokens: Option<i64>,
    output_tokens: Option<i64>,
    /// The text of the answer, at most 8000 characters; null if it has none, or its log row is gone.
    answer: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplayScore")]
struct ScoreView {
    eval_id: i64,
    before: Option<VerdictView>,
    after: Option<VerdictView>,
    /// Why a verdict is missing.
    error: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplayVerdict")]
struct VerdictView {
    score: f64,
    passed: bool,
}

pub(super) async fn rows(
    State(app): AppState,
    caller: Caller<Viewer>,
    read: AuditedRead,
    PathParam(ReplayId(id)): PathParam<ReplayId>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<RowList>> {
    let replay = stored(&app, &caller, id).await?;
    let page = params.numeric_page()?;
    let limit = page.limit.min(MAX_PAGE);
    let after = page.before.as_deref().and_then(|before| before.parse().ok()).unwrap_or(-1);
    let mut items = replays::list_items(&app.services.db, &replay, after, limit + 1).await?;
    let has_more = items.len() as u64 > limit.unsigned_abs();
    items.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let span = items.first().zip(items.last()).map(|(first, last)| (first.position, last.position));
    let scores = match span {
        Some(span) => replays::list_scores(&app.services.db, &replay, span).await?,
        None => Vec::new(),
    };
    let mut texts = texts(&app, &caller, &items).await?;
    if texts.values().any(|texts| texts.input.is_some() || texts.answer.is_some()) {
        let target = Target { kind: "replay".into(), id: Some(id.to_string()), name: None };
        read.record(&app, &caller, "log.read_bodies", target);
    }
    let next = items.last().filter(|_| has_more).map(|item| item.position.to_string());
    let rows = items.into_iter().map(|item| view(item, &scores, &mut texts)).collect();
    Ok(Json(RowList { rows, next_cursor: encode_cursor(next.as_deref()) }))
}

/// The texts of a log row.
#[derive(Default)]
struct Texts {
    input: Option<String>,
    answer: Option<String>,
}

/// The texts of the log rows that the caller may read, by id.
async fn texts(app: &App, caller: &Identity, items: &[ReplayItem]) -> ApiResult<HashMap<i64, Texts>> {
    let org = caller.org.id;
    let ids: Vec<i64> =
        items.iter().flat_map(|item| [Some(item.log_id), item.replay_log_id]).flatten().collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let stored = app.query_logs(org).await?;
    let size: i64 = logs::body_sizes(&stored, &ids).await?.values().sum();
    let memory =
        caller.org.memory.reserve(usize::try_from(size.saturating_mul(HELD_PER_BYTE)).unwrap_or(0))?;
    let mut rows = logs::find_many(&stored, org, &ids, true).await?;
    rows.retain(|row| caller.row_access().includes(row.key_id));
    let read = app.services.compute.run(org, WaitLimits::REQUEST, move |_| {
        let _memory = memory;
        rows.iter().map(|row| (row.id, texts_of(row))).collect()
    });
    Ok(read.await?)
}

fn texts_of(row: &LogRow) -> Texts {
    let cut = |text: String| text.chars().take(MAX_TEXT_CHARS).collect();
    let answer = (row.status < 400).then(|| assistant_text(&row.response, row.response_is_stream)).flatten();
    Texts { input: last_user_text(&row.request).map(cut), answer: answer.map(cut) }
}

fn view(item: ReplayItem, scores: &[ReplayScore], texts: &mut HashMap<i64, Texts>) -> RowView {
    let ReplayItem { position, log_id, replay_log_id, state, attempts: _, error, before, after } = item;
    let Texts { input, answer } = texts.remove(&log_id).unwrap_or_default();
    let new = replay_log_id.and_then(|id| texts.remove(&id)).unwrap_or_default();
    let verdict = |verdict: Verdict| VerdictView { score: verdict.score, passed: verdict.passed };
    let scores = scores.iter().filter(|score| score.position == position).map(|score| ScoreView {
        eval_id: score.eval_id,
        before: score.before.map(verdict),
        after: score.after.map(verdict),
        error: score.error.clone(),
    });
    RowView {
        log_id,
        replay_log_id,
        state,
        error,
        input,
        before: call(before, answer),
        after: after.map(|after| call(after, new.answer)),
        scores: scores.collect(),
    }
}

fn call(figures: CallFigures, answer: Option<String>) -> CallView {
    let CallFigures { provider, model, status, cost, latency_ms, input_tokens, output_tokens } = figures;
    let cost_usd = cost.map(usd);
    CallView { provider, model, status, cost_usd, latency_ms, input_tokens, output_tokens, answer }
}
