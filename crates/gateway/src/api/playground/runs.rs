//! One call of the playground to one model: its request, and the stored result.

use std::collections::BTreeMap;
use std::sync::Arc;

use gateway_core::ids::PlayId;
use gateway_core::json::{SharedJson, append_member};
use gateway_core::llm::aggregate::merge_tool_calls;
use gateway_core::llm::preview::assistant_text;
use gateway_core::logs::LogSource;
use gateway_store::playground::PlaygroundRun;
use http::StatusCode;
use rust_decimal::prelude::ToPrimitive as _;
use serde_json::{Map, Value, json};

use super::Usage;
use super::prompt::Conversation;
use crate::app::App;
use crate::auth::Identity;
use crate::internal_call::{self, CallSummary, Endpoint, InternalRequest};
use crate::problem::{ApiResult, Problem};

/// A model and the parameters of the request.
pub(super) struct RunTarget {
    pub provider: String,
    pub model: String,
    /// An object.
    pub params: SharedJson,
}

impl RunTarget {
    /// `path` is the prefix of the field names in errors. `own` parameters take precedence.
    pub(super) fn checked(
        path: &str,
        provider: String,
        model: String,
        params: &Map<String, Value>,
        own: Option<&Map<String, Value>>,
    ) -> ApiResult<Self> {
        for (name, text) in [("provider", &provider), ("model", &model)] {
            if text.trim().is_empty() || text.len() > 256 {
                return Err(Problem::field(&format!("{path}{name}"), "must be 1 to 256 characters long"));
            }
        }
        let params: BTreeMap<&str, &Value> = params
            .iter()
            .chain(own.into_iter().flatten())
            .map(|(name, value)| (name.as_str(), value))
            .collect();
        for name in ["model", "messages", "stream", "stream_options"] {
            if params.contains_key(name) {
                return Err(Problem::field(&format!("{path}params"), format!("must not contain {name}")));
            }
        }
        Ok(Self { provider, model, params: SharedJson::new(&params).map_err(Problem::internal)? })
    }
}

/// Checks the target before the call, so that a streamed run can fail with a plain error.
pub(super) fn check(caller: &Identity, target: &RunTarget) -> ApiResult<()> {
    internal_call::check_allowed(caller, &target.provider, &target.model)
}

pub(super) struct ModelRun {
    pub id: PlayId,
    pub comparison: Option<PlayId>,
    pub index: usize,
    pub target: RunTarget,
    pub conversation: Arc<Conversation>,
}

pub(super) enum RunOutcome {
    Completed(Box<PlaygroundRun>),
    /// The error, and the row that is stored if the run is a part of a comparison.
    Failed(Box<Problem>, Box<PlaygroundRun>),
}

/// The rest of a longer output is dropped.
pub(super) const MAX_OUTPUT_BYTES: usize = 4 << 20;
/// More calls of tools in one answer are dropped.
const MAX_TOOL_CALLS: usize = 128;

/// The text and the tool calls of a chat completion.
#[derive(Default)]
pub(super) struct Completion {
    pub output: String,
    pub tool_calls: Vec<Value>,
    /// Size of the chunks of a stream that the tool calls came in.
    pub tool_call_bytes: usize,
    pub finish_reason: Option<String>,
}

impl ModelRun {
    pub(super) fn request(&self) -> InternalRequest {
        let mut body = self.target.params.text().to_owned();
        append_member(&mut body, "model", &json!(self.target.model).to_string());
        append_member(&mut body, "messages", self.conversation.messages.text());
        InternalRequest {
            provider: self.target.provider.clone(),
            endpoint: Endpoint::Chat,
            body,
            source: LogSource::Api,
            prompt: None,
            metadata: Map::from_iter([("playground_run_id".to_owned(), json!(self.id))]),
            timeout: None,
            // The rate limit counts a comparison as one request.
            is_counted: self.index == 0,
        }
    }

    pub(super) async fn execute(&self, app: &Arc<App>, caller: &Identity) -> RunOutcome {
        let call = async {
            let answer = app.models.call_model(caller, self.request()).await?;
            if !answer.status.is_success() {
                return Err(error_response(
                    &self.target.provider,
                    answer.log_id,
                    answer.status,
                    &answer.body,
                ));
            }
            let completion = parse_completion(&answer.body)
                .ok_or_else(|| invalid_response(&self.target.provider, answer.log_id))?;
            Ok((completion, answer.log_id, answer.summary))
        };
        match call.await {
            Ok((completion, log_id, summary)) => {
                RunOutcome::Completed(Box::new(self.completed(app, completion, log_id, &summary)))
            }
            Err(problem) => {
                let failed = self.failed(app, &problem);
                RunOutcome::Failed(Box::new(problem), Box::new(failed))
            }
        }
    }

    pub(super) fn completed(
        &self,
        app: &App,
        completion: Completion,
        log_id: i64,
        summary: &CallSummary,
    ) -> PlaygroundRun {
        let usage = summary.tokens.map(|tokens| Usage {
            prompt_tokens: tokens.prompt,
            completion_tokens: tokens.completion,
            total_tokens: tokens.total(),
            cached_tokens: tokens.cached,
            reasoning_tokens: tokens.reasoning,
            estimated: summary.usage_estimated,
        });
        PlaygroundRun {
            output: completion.output,
            tool_calls: Some(completion.tool_calls).filter(|calls| !calls.is_empty()),
            finish_reason: completion.finish_reason,
            usage: usage.and_then(|usage| serde_json::to_value(usage).ok()).unwrap_or_default(),
            cost_usd: summary.cost_usd.and_then(|cost| cost.to_f64()),
            latency_ms: summary.latency_ms,
            log_id: Some(log_id),
            ..self.without_result(app)
        }
    }

    pub(super) fn failed(&self, app: &App, problem: &Problem) -> PlaygroundRun {
        let mut error = json!({"code": problem.code, "message": problem.message});
        if let Some(status) = problem.extra.get("upstream_status") {
            error["upstream_status"] = status.clone();
        }
        PlaygroundRun {
            log_id: internal_call::log_id_of(problem),
            error: Some(error),
            ..self.without_result(app)
        }
    }

    fn without_result(&self, app: &App) -> PlaygroundRun {
        PlaygroundRun {
            id: self.id,
            comparison_id: self.comparison,
            position: i64::try_from(self.index).unwrap_or_default(),
            provider: self.target.provider.clone(),
            model: self.target.model.clone(),
            params: self.target.params.clone(),
            messages: self.conversation.messages.clone(),
            template: self.conversation.template.clone(),
            output: String::new(),
            tool_calls: None,
            finish_reason: None,
            usage: Value::Null,
            cost_usd: None,
            latency_ms: 0,
            log_id: None,
            error: None,
            created_at: app.services.clock.now(),
        }
    }
}

/// Parses a chat completion.
pub(super) fn parse_completion(body: &[u8]) -> Option<Completion> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let choice = value.pointer("/choices/0")?;
    let finish_reason = choice.get("finish_reason").and_then(Value::as_str).map(ToOwned::to_owned);
    let calls = choice.pointer("/message/tool_calls").and_then(Value::as_array);
    Some(Completion {
        output: assistant_text(body, false).unwrap_or_default(),
        tool_calls: calls.into_iter().flatten().take(MAX_TOOL_CALLS).cloned().collect(),
        finish_reason,
        ..Completion::default()
    })
}

impl Completion {
    /// Adds the pieces of calls in a chunk of this many bytes.
    pub(super) fn add_tool_calls(&mut self, calls: Vec<Value>, bytes: usize) {
        if calls.is_empty() || self.tool_call_bytes > MAX_OUTPUT_BYTES {
            return;
        }
        self.tool_call_bytes += bytes;
        merge_tool_calls(&mut self.tool_calls, calls);
        self.tool_calls.truncate(MAX_TOOL_CALLS);
    }

    /// Removes from the calls what only the chunks of a stream have.
    pub(super) fn finish(&mut self) {
        for call in self.tool_calls.iter_mut().filter_map(Value::as_object_mut) {
            call.remove("index");
        }
    }
}

/// The error for a provider's error response.
pub(super) fn error_response(provider: &str, log_id: i64, status: StatusCode, body: &[u8]) -> Problem {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let detail = value.pointer("/error/message").and_then(Value::as_str).map_or_else(
        || String::from_utf8_lossy(body).chars().take(500).collect(),
        |text| text.chars().take(500).collect::<String>(),
    );
    let message = format!("{provider}: responded with status {}: {detail}", status.as_u16());
    provider_error(provider, log_id, Some(status), message)
}

/// The error for a response that is not a chat completion.
pub(super) fn invalid_response(provider: &str, log_id: i64) -> Problem {
    provider_error(provider, log_id, None, format!("{provider}: the response is not a chat completion"))
}

fn provider_error(provider: &str, log_id: i64, status: Option<StatusCode>, message: String) -> Problem {
    let mut problem = Problem::new(StatusCode::BAD_GATEWAY, "provider_error", message);
    problem.extra.insert("provider".into(), provider.into());
    problem.extra.insert("upstream_status".into(), json!(status.map(|status| status.as_u16())));
    problem.headers.push((http::HeaderName::from_static("x-gateway-log-id"), log_id.into()));
    problem
}
