//! The playground: try a prompt on one model or on several side by side, look back, and keep what works as a version of a
//! prompt.

mod models;
mod prompt;
mod runs;
mod stream;

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use gateway_core::ids::PlayId;
use gateway_core::time::Timestamp;
use gateway_store::playground::{self, PlaygroundRun};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::caller::{AppState, Caller, Member, Viewer};
use super::extract::{Body, PathParam, QueryParams, optional_object};
use super::openapi::{Area, Operation, OperationOutput};
use super::page::{self, PageParams};
use super::response::{EventStream, Json};
use crate::app::App;
use crate::auth::Identity;
use crate::problem::{ApiResult, Problem};
use prompt::PromptRequest;
use runs::{Target, Tried, Try};

/// How many models one comparison may have.
const MOST_TARGETS: usize = 10;

pub fn area() -> Area {
    Area::new("playground", "Try prompts on models, compare, look back, keep what works.")
        .post("/playground/run", run, "Ask one model; with stream: true as server-sent events")
        .post("/playground/compare", compare, "Ask several models the same, side by side")
        .get("/playground/history", history, "What the caller has tried, newest first")
        .get("/playground/history/{playId}", get, "One run, or one comparison")
        .post(
            "/playground/save-version",
            prompt::save_version,
            "Keep a run or a text as the next version of a prompt",
        )
        .get(
            "/playground/providers",
            models::providers,
            "The providers, whether they can be called, and their models",
        )
}

/// Either `messages` or `prompt`; with both, the prompt goes before the messages as the system's words.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "PlaygroundRunRequest")]
struct RunRequest {
    provider: String,
    model: String,
    /// OpenAI-compatible, each with `role` and `content`.
    messages: Option<Vec<Map<String, Value>>>,
    #[serde(default, deserialize_with = "optional_object")]
    prompt: Option<PromptRequest>,
    /// Sent along, such as `temperature` or `max_tokens`.
    params: Option<Map<String, Value>>,
    /// Events instead of one answer: `start`, `delta`, `done`, `error`.
    stream: Option<bool>,
}

/// The usage of a call.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PlaygroundUsage")]
struct Usage {
    prompt_tokens: i64,
    completion_tokens: i64,
    total_tokens: i64,
    cached_tokens: i64,
    reasoning_tokens: i64,
    /// Counted here, because the provider said nothing.
    estimated: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PlaygroundRun")]
struct RunView {
    id: PlayId,
    /// The comparison that it belongs to.
    comparison_id: Option<PlayId>,
    provider: String,
    model: String,
    messages: Value,
    params: Value,
    output: String,
    finish_reason: Option<String>,
    /// Null when nothing is known of it.
    #[schemars(with = "Option<Usage>")]
    usage: Value,
    cost_usd: Option<f64>,
    latency_ms: i64,
    log_id: Option<i64>,
    created_at: Timestamp,
}

impl From<PlaygroundRun> for RunView {
    fn from(play: PlaygroundRun) -> Self {
        let PlaygroundRun {
            id,
            comparison_id,
            position: _,
            provider,
            model,
            params,
            messages,
            template: _,
            output,
            finish_reason,
            usage,
            cost_usd,
            latency_ms,
            log_id,
            error: _,
            created_at,
        } = play;
        Self {
            id,
            comparison_id,
            provider,
            model,
            messages,
            params,
            output,
            finish_reason,
            usage,
            cost_usd,
            latency_ms,
            log_id,
            created_at,
        }
    }
}

/// A model that gave no answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PlaygroundFailure")]
struct FailureView {
    provider: String,
    model: String,
    error: Value,
    log_id: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "PlaygroundResult")]
enum ResultView {
    Run(Box<RunView>),
    Failure(FailureView),
}

impl From<PlaygroundRun> for ResultView {
    fn from(mut play: PlaygroundRun) -> Self {
        match play.error.take() {
            None => Self::Run(Box::new(play.into())),
            Some(error) => {
                let PlaygroundRun { provider, model, log_id, .. } = play;
                Self::Failure(FailureView { provider, model, error, log_id })
            }
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PlaygroundComparison")]
struct ComparisonView {
    id: PlayId,
    /// In the order asked.
    results: Vec<ResultView>,
}

async fn run(
    State(app): AppState,
    caller: Caller<Member>,
    Body(request): Body<RunRequest>,
) -> ApiResult<Answer<RunView>> {
    let RunRequest { provider, model, messages, prompt, params, stream } = request;
    let target = Target::checked("", provider, model, params)?;
    let asked = prompt::conversation(&app, &caller, messages, prompt).await?;
    runs::check(&app, &caller, &target)?;
    let one =
        Try { id: app.services.ids.new_id(), comparison: None, index: 0, target, asked: Arc::new(asked) };
    if stream == Some(true) {
        return Ok(Answer::Events(stream::begin(&app, &caller, vec![one])));
    }
    let play = match one.ask(&app, &caller).await {
        Tried::Answered(play) => *play,
        Tried::Failed(problem, _) => return Err(*problem),
    };
    keep(&app, &caller, std::slice::from_ref(&play)).await?;
    Ok(Answer::Whole(play.into()))
}

#[derive(Deserialize, JsonSchema)]
struct CompareRequest {
    messages: Option<Vec<Map<String, Value>>>,
    #[serde(default, deserialize_with = "optional_object")]
    prompt: Option<PromptRequest>,
    /// 2 to 10.
    #[schemars(length(min = 2, max = 10))]
    targets: Vec<CompareTarget>,
    /// Sent along to every target that does not say otherwise.
    params: Option<Map<String, Value>>,
    stream: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
struct CompareTarget {
    provider: String,
    model: String,
    params: Option<Map<String, Value>>,
}

async fn compare(
    State(app): AppState,
    caller: Caller<Member>,
    Body(request): Body<CompareRequest>,
) -> ApiResult<Answer<ComparisonView>> {
    let CompareRequest { messages, prompt, targets, params, stream } = request;
    if !(2..=MOST_TARGETS).contains(&targets.len()) {
        return Err(Problem::field("targets", format!("must hold 2 to {MOST_TARGETS} targets")));
    }
    let shared = params.unwrap_or_default();
    let targets = targets.into_iter().enumerate().map(|(index, target)| {
        let mut params = shared.clone();
        params.extend(target.params.unwrap_or_default());
        Target::checked(&format!("targets[{index}]."), target.provider, target.model, Some(params))
    });
    let targets = targets.collect::<ApiResult<Vec<Target>>>()?;
    let asked = Arc::new(prompt::conversation(&app, &caller, messages, prompt).await?);
    let id: PlayId = app.services.ids.new_id();
    let tries: Vec<Try> = targets
        .into_iter()
        .enumerate()
        .map(|(index, target)| Try {
            id: app.services.ids.new_id(),
            comparison: Some(id),
            index,
            target,
            asked: Arc::clone(&asked),
        })
        .collect();
    if stream == Some(true) {
        return Ok(Answer::Events(stream::begin(&app, &caller, tries)));
    }
    let plays: Vec<PlaygroundRun> = join_all(tries.iter().map(|one| async {
        match one.ask(&app, &caller).await {
            Tried::Answered(play) | Tried::Failed(_, play) => *play,
        }
    }))
    .await;
    keep(&app, &caller, &plays).await?;
    Ok(Answer::Whole(ComparisonView { id, results: plays.into_iter().map(Into::into).collect() }))
}

async fn keep(app: &App, caller: &Identity, plays: &[PlaygroundRun]) -> ApiResult<()> {
    let owner = caller.actor();
    let mut tx = app.services.db.begin().await?;
    for play in plays {
        playground::insert(&mut tx, caller.org.id, &owner, play).await?;
    }
    tx.commit().await?;
    Ok(())
}

#[derive(Serialize, JsonSchema)]
struct History {
    runs: Vec<RunView>,
    next_cursor: Option<String>,
}

async fn history(
    State(app): AppState,
    caller: Caller<Viewer>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<History>> {
    let found = playground::list(&app.services.db, caller.org.id, &caller.actor(), &params.page()?).await?;
    let (runs, next_cursor) = page::into_views(found);
    Ok(Json(History { runs, next_cursor }))
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "PlaygroundHistoryEntry")]
enum Entry {
    Run(Box<RunView>),
    Comparison(ComparisonView),
}

async fn get(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(id): PathParam<PlayId>,
) -> ApiResult<Json<Entry>> {
    let (org, owner) = (caller.org.id, caller.actor());
    if let Some(play) =
        playground::find(&app.services.db, org, &owner, id).await?.filter(|play| play.error.is_none())
    {
        return Ok(Json(Entry::Run(Box::new(play.into()))));
    }
    let plays = playground::list_comparison(&app.services.db, org, &owner, id).await?;
    if plays.is_empty() {
        return Err(Problem::not_found());
    }
    let results = plays.into_iter().map(Into::into).collect();
    Ok(Json(Entry::Comparison(ComparisonView { id, results })))
}

/// One answer, or events as they come.
enum Answer<T> {
    Whole(T),
    Events(EventStream),
}

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        match self {
            Self::Whole(view) => Json(view).into_response(),
            Self::Events(events) => events.into_response(),
        }
    }
}

impl<T: JsonSchema> OperationOutput for Answer<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.json_response::<T>(200);
        if let Some((_, response)) = operation.responses.last_mut() {
            response["description"] = json!(
                "The answer; with stream: true events `start`, `delta`, `done` and `error`, each with the `index` of its target"
            );
            response["content"]["text/event-stream"] = json!({"schema": {"type": "string"}});
        }
    }
}
