//! Makes the request of a log row again with another model, provider or prompt. The result has the form of a log row, so
//! that evals judge it in the same way as the original.

use std::time::Duration;

use gateway_core::logs::{BodyStorage, LogRow, LogSource, MAX_BODY_BYTES};
use gateway_core::replays::{self, ReplayEndpoint, ReplayRequest, ReplayTarget};
use serde_json::{Value, json};

use super::{MODEL_TIMEOUT, ModelCaller, NoVerdict, classify_problem};
use crate::internal_call::{Endpoint, InsertedPrompt, InternalRequest, ModelResponse};
use crate::problem::Problem;
use crate::proxy::budget::is_reserved;

/// While the rest of a budget is reserved for running requests.
const RESERVED_PAUSE: Duration = Duration::from_millis(100);
const MAX_RESERVED_WAITS: u32 = 100;

/// Why a request was not made again.
#[derive(Debug)]
pub enum NotReplayed {
    /// Only this one.
    Item(NoVerdict),
    /// A budget of the organization is used up, so that all others would fail too.
    Budget(String),
}

impl NotReplayed {
    fn permanent(reason: impl Into<String>) -> Self {
        Self::Item(NoVerdict::Permanent(reason.into()))
    }
}

/// Sends the request of a row again. The error of a provider that a client would have got is a result, too.
pub async fn replay_row(
    caller: &ModelCaller<'_>,
    target: &ReplayTarget,
    row: &LogRow,
) -> Result<LogRow, NotReplayed> {
    let mut waits = 0;
    let (provider, response) = loop {
        let request = replays::prepare(row, target).map_err(NotReplayed::permanent)?;
        let provider = request.provider.clone();
        let internal = internal_request(caller, target, row, request);
        match caller.models.call_model(caller.identity, internal).await {
            Ok(response) => break (provider, response),
            // The calls of the same batch reserve what they may cost at most, and give back the rest when they end.
            Err(problem) if is_reserved(&problem) && waits < MAX_RESERVED_WAITS => {
                waits += 1;
                tokio::time::sleep(RESERVED_PAUSE).await;
            }
            Err(problem) => return Err(refused(&problem)),
        }
    };
    if matches!(response.status.as_u16(), 408 | 409 | 425 | 429) {
        let reason = format!("the provider returned status {}", response.status.as_u16());
        return Err(NotReplayed::Item(NoVerdict::Retry(reason)));
    }
    Ok(replayed(row, provider, response))
}

fn internal_request(
    caller: &ModelCaller<'_>,
    target: &ReplayTarget,
    row: &LogRow,
    request: ReplayRequest,
) -> InternalRequest {
    let ReplayRequest { endpoint, provider, model, body, prompt } = request;
    let variables = || json!(target.variables).to_string();
    let mut metadata = caller.metadata.clone();
    metadata.insert("replay_of".into(), json!(row.id));
    InternalRequest {
        provider,
        endpoint: match endpoint {
            ReplayEndpoint::Chat => Endpoint::Chat,
            ReplayEndpoint::Responses => Endpoint::Responses,
            ReplayEndpoint::Messages => Endpoint::Messages,
            ReplayEndpoint::GenerateContent => Endpoint::GenerateContent(model),
        },
        body: Value::Object(body).to_string(),
        source: LogSource::Replay,
        prompt: prompt.map(|prompt| InsertedPrompt {
            reference: format!("{}@{}", prompt.name, prompt.version),
            variables: variables(),
        }),
        metadata,
        timeout: Some(MODEL_TIMEOUT),
        is_counted: false,
    }
}

fn refused(problem: &Problem) -> NotReplayed {
    if problem.code == "budget_exceeded" && !is_reserved(problem) {
        return NotReplayed::Budget(problem.message.to_string());
    }
    NotReplayed::Item(classify_problem(problem))
}

/// The original row with the new answer. A longer one is cut as that of a log row is.
fn replayed(row: &LogRow, provider: String, response: ModelResponse) -> LogRow {
    let ModelResponse { log_id, status, body, summary } = response;
    let is_cut = body.len() > MAX_BODY_BYTES;
    LogRow {
        id: log_id,
        source: LogSource::Replay,
        provider,
        model: summary.model,
        status: status.as_u16(),
        error_code: None,
        stream: false,
        latency_ms: summary.latency_ms,
        ttft_ms: summary.ttft_ms,
        tokens: summary.tokens,
        usage_estimated: summary.usage_estimated,
        cost_usd: summary.cost_usd,
        cache: None,
        response: body[..body.len().min(MAX_BODY_BYTES)].to_vec(),
        response_stored: if is_cut { BodyStorage::Truncated } else { BodyStorage::Full },
        response_is_stream: false,
        ..row.clone()
    }
}
