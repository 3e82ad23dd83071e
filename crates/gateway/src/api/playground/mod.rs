//! The playground: run a prompt on one model or on several side by side, list earlier runs, and save a run as a version
//! of a prompt.

mod models;
mod prompt;
mod runs;
mod stream;

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use gateway_core::ids::PlayId;
use gateway_core::json::SharedJson;
use gateway_core::time::Timestamp;
use gateway_store::playground::{self, PlaygroundRun};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::caller::{AppState, Caller, Member, Viewer};
use super::extract::{LimitedBody, PathParam, QueryParams, ResponseRoom, optional_object};
use super::openapi::{Area, Operation, OperationOutput};
use super::page::{self, PageParams};
use super::response::{EventStream, Json};
use crate::app::App;
use crate::auth::Identity;
use crate::problem::{ApiResult, Problem};
use prompt::PromptRequest;
use runs::{ModelRun, RunOutcome, RunTarget};

/// Models of one comparison.
const MAX_TARGETS: usize = 10;
/// Every target gets the whole conversation, and every run is stored with it.
const MAX_BODY_BYTES: usize = 1 << 20;

pub fn area() -> Area {
    Area::new("playground", "Run prompts on models, compare the results, and save prompts.")
        .post("/playground/run", run, "Run a prompt on one model; with stream: true as server-sent events")
        .post("/playground/compare", compare, "Run the same prompt on several models")
        .get("/playground/history", history, "List the caller's runs, newest first")
        .get("/playground/history/{playId}", get, "Get a run or a comparison")
        .post(
            "/playground/save-version",
            prompt::save_version,
            "Save a run or a text as the next version of a prompt",
        )
        .get(
            "/playground/providers",
            models::providers,
            "List the providers with their models and whether they are configured",
        )
}

/// `messages`, `prompt` or both; with both, the prompt becomes a system message before the messages.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "PlaygroundRunRequest")]
struct RunRequest {
    provider: String,
    model: String,
    /// OpenAI-compatible, each with `role` and `content`.
    messages: Option<Vec<Map<String, Value>>>,
    #[serde(default, deserialize_with = "optional_object")]
    prompt: Option<PromptRequest>,
    /// Parameters of the request, such as `temperature` or `max_tokens`.
    params: Option<Map<String, Value>>,
    /// Respond with the events `start`, `delta`, `done` and `error`.
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
    /// Estimated by the gateway, because the provider reported no usage.
    estimated: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PlaygroundRun")]
struct RunView {
    id: PlayId,
    /// The comparison that the run is a part of.
    comparison_id: Option<PlayId>,
    provider: String,
    model: String,
    #[schemars(with = "Value")]
    messages: SharedJson,
    #[schemars(with = "Value")]
    params: SharedJson,
    output: String,
    /// Calls of tools that the model asks for, as in chat completions. To go on, send them as an assistant message with
    /// `tool_calls`, followed by a message with the role `tool` for each result.
    tool_calls: Vec<Value>,
    finish_reason: Option<String>,
    /// Null if the usage is unknown.
    #[schemars(with = "Option<Usage>")]
    usage: Value,
    cost_usd: Option<f64>,
    latency_ms: i64,
    log_id: Option<i64>,
    created_at: Timestamp,
}

impl From<PlaygroundRun> for RunView {
    fn from(run: PlaygroundRun) -> Self {
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
            tool_calls,
            finish_reason,
            usage,
            cost_usd,
            latency_ms,
            log_id,
            error: _,
            created_at,
        } = run;
        Self {
            id,
            comparison_id,
            provider,
            model,
            messages,
            params,
            output,
            tool_calls: tool_calls.unwrap_or_default(),
            finish_reason,
            usage,
            cost_usd,
            latency_ms,
            log_id,
            created_at,
        }
    }
}

/// A failed run of a comparison.
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
    fn from(mut run: PlaygroundRun) -> Self {
        match run.error.take() {
            None => Self::Run(Box::new(run.into())),
            Some(error) => {
                let PlaygroundRun { provider, model, log_id, .. } = run;
                Self::Failure(FailureView { provider, model, error, log_id })
            }
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PlaygroundComparison")]
struct ComparisonView {
    id: PlayId,
    /// In the order of the targets.
    results: Vec<ResultView>,
}

async fn run(
    State(app): AppState,
    caller: Caller<Member>,
    LimitedBody(request): LimitedBody<MAX_BODY_BYTES, RunRequest>,
) -> ApiResult<RunResponse<RunView>> {
    let RunRequest { provider, model, messages, prompt, params, stream } = request;
    let target = RunTarget::checked("", provider, model, &params.unwrap_or_default(), None)?;
    let conversation = prompt::conversation(&app, &caller, messages, prompt).await?;
    runs::check(&caller, &target)?;
    let run = ModelRun {
        id: app.services.ids.new_id(),
        comparison: None,
        index: 0,
        target,
        conversation: Arc::new(conversation),
    };
    if stream == Some(true) {
        return Ok(RunResponse::Events(stream::start(&app, &caller, vec![run])));
    }
    let result = match run.execute(&app, &caller).await {
        RunOutcome::Completed(result) => *result,
        RunOutcome::Failed(problem, _) => return Err(*problem),
    };
    store(&app, &caller, std::slice::from_ref(&result)).await?;
    Ok(RunResponse::Json(result.into()))
}

#[derive(Deserialize, JsonSchema)]
struct CompareRequest {
    messages: Option<Vec<Map<String, Value>>>,
    #[serde(default, deserialize_with = "optional_object")]
    prompt: Option<PromptRequest>,
    /// 2 to 10 targets.
    #[schemars(length(min = 2, max = 10))]
    targets: Vec<CompareTarget>,
    /// Parameters for all targets; those of a target take precedence.
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
    LimitedBody(request): LimitedBody<MAX_BODY_BYTES, CompareRequest>,
) -> ApiResult<RunResponse<ComparisonView>> {
    let CompareRequest { messages, prompt, targets, params, stream } = request;
    if !(2..=MAX_TARGETS).contains(&targets.len()) {
        return Err(Problem::field("targets", format!("must have 2 to {MAX_TARGETS} targets")));
    }
    let shared = params.unwrap_or_default();
    let targets = targets.into_iter().enumerate().map(|(index, target)| {
        let CompareTarget { provider, model, params } = target;
        RunTarget::checked(&format!("targets[{index}]."), provider, model, &shared, params.as_ref())
    });
    let targets = targets.collect::<ApiResult<Vec<RunTarget>>>()?;
    let conversation = Arc::new(prompt::conversation(&app, &caller, messages, prompt).await?);
    let id: PlayId = app.services.ids.new_id();
    let runs: Vec<ModelRun> = targets
        .into_iter()
        .enumerate()
        .map(|(index, target)| ModelRun {
            id: app.services.ids.new_id(),
            comparison: Some(id),
            index,
            target,
            conversation: Arc::clone(&conversation),
        })
        .collect();
    if stream == Some(true) {
        return Ok(RunResponse::Events(stream::start(&app, &caller, runs)));
    }
    let results: Vec<PlaygroundRun> = join_all(runs.iter().map(|run| async {
        match run.execute(&app, &caller).await {
            RunOutcome::Completed(result) | RunOutcome::Failed(_, result) => *result,
        }
    }))
    .await;
    store(&app, &caller, &results).await?;
    Ok(RunResponse::Json(ComparisonView { id, results: results.into_iter().map(Into::into).collect() }))
}

async fn store(app: &App, caller: &Identity, runs: &[PlaygroundRun]) -> ApiResult<()> {
    let owner = caller.actor();
    let mut tx = app.services.db.begin().await?;
    for run in runs {
        playground::insert(&mut tx, caller.org.id, &owner, run).await?;
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
    room: ResponseRoom,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<History>> {
    let (db, owner, page) = (&app.services.db, caller.actor(), params.page()?);
    let found = playground::list(db, caller.org.id, &owner, &page, |bytes| room.reserve(bytes)).await?;
    let (runs, next_cursor) = page::into_views(found);
    Ok(Json(History { runs, next_cursor }))
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "PlaygroundHistoryEntry")]
enum HistoryEntry {
    Run(Box<RunView>),
    Comparison(ComparisonView),
}

async fn get(
    State(app): AppState,
    caller: Caller<Viewer>,
    room: ResponseRoom,
    PathParam(id): PathParam<PlayId>,
) -> ApiResult<Json<HistoryEntry>> {
    let (db, org, owner) = (&app.services.db, caller.org.id, caller.actor());
    if let Some(run) = playground::find(db, org, &owner, id).await?.filter(|run| run.error.is_none()) {
        return Ok(Json(HistoryEntry::Run(Box::new(run.into()))));
    }
    let runs = playground::list_comparison(db, org, &owner, id, |bytes| room.reserve(bytes)).await?;
    if runs.is_empty() {
        return Err(Problem::not_found());
    }
    let results = runs.into_iter().map(Into::into).collect();
    Ok(Json(HistoryEntry::Comparison(ComparisonView { id, results })))
}

/// A JSON response, or a stream of events.
enum RunResponse<T> {
    Json(T),
    Events(EventStream),
}

impl<T: Serialize> IntoResponse for RunResponse<T> {
    fn into_response(self) -> Response {
        match self {
            Self::Json(view) => Json(view).into_response(),
            Self::Events(events) => events.into_response(),
        }
    }
}

impl<T: JsonSchema> OperationOutput for RunResponse<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.json_response::<T>(200);
        if let Some((_, response)) = operation.responses.last_mut() {
            response["description"] = json!(
                "The result; with stream: true the events `start`, `delta`, `done` and `error`, each with the `index` of its target"
            );
            response["content"]["text/event-stream"] = json!({"schema": {"type": "string"}});
        }
    }
}
