//! Judges a skill with a language model. An invalid response is repaired once; after that the verdict is a failure.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::logs::LogSource;
use gateway_core::skills::judge::{self, Neighbour, llm};
use gateway_core::skills::rubric::Rubric;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{JudgeRequest, Judged, failed};
use crate::internal_call::{Endpoint, InternalRequest, ModelResponse};
use crate::jobs::JobError;
use crate::jobs::JobServices;
use crate::problem::Problem;

/// The timeout of each call. The provider's own timeout may be shorter.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The first call and one repair.
const MAX_CALLS: usize = 2;

/// Returns the verdict, or a failed one with the reason. Returns an error only if a retry may help.
pub async fn judge(
    job_services: &Arc<JobServices>,
    request: &JudgeRequest<'_>,
    nearest: Option<&Neighbour>,
) -> Result<Judged, JobError> {
    let JudgeRequest { identity, source, files, rubric, .. } = *request;
    let llm::JudgePrompt { system, user } = llm::judge_prompt(source, &files.excerpt, nearest);
    let mut messages =
        vec![json!({"role": "system", "content": system}), json!({"role": "user", "content": user})];
    let mut usage = failed(rubric, "");
    let mut last_error = String::new();
    for _ in 0..MAX_CALLS {
        let call = job_services.models.call_model(identity, chat_request(request, &messages));
        let text = match call.await {
            Ok(response) => response_text(&mut usage, &response)?,
            Err(problem) => Err(permanent_failure(&problem)?),
        };
        let text = match text {
            Ok(text) => text,
            Err(reason) => return Ok(failed_with_usage(usage, rubric, &reason)),
        };
        match llm::parse_answer(&text, rubric) {
            Ok(axes) => {
                let judgement = judge::by_model(source, &files.findings, axes, rubric);
                return Ok(Judged { judgement, ..usage });
            }
            Err(error) => {
                messages.push(json!({"role": "assistant", "content": text}));
                messages.push(json!({"role": "user", "content": llm::repair_prompt(&error)}));
                last_error = error;
            }
        }
    }
    Ok(failed_with_usage(usage, rubric, &format!("the response was invalid twice: {last_error}")))
}

fn chat_request(request: &JudgeRequest<'_>, messages: &[Value]) -> InternalRequest {
    let JudgeRequest { job, rubric, .. } = request;
    let body = json!({"model": rubric.judge_model, "messages": messages});
    let metadata = json!({"judge": "skill", "skill_id": job.skill, "skill_version": job.version});
    let object = |value: Value| if let Value::Object(map) = value { map } else { Map::new() };
    InternalRequest {
        provider: rubric.judge_provider.clone(),
        endpoint: Endpoint::Chat,
        body: body.to_string(),
        source: LogSource::Api,
        prompt: None,
        metadata: object(metadata),
        timeout: Some(CALL_TIMEOUT),
        is_counted: false,
    }
}

/// Adds the usage of a response and returns its text, or why it has none.
fn response_text(usage: &mut Judged, response: &ModelResponse) -> Result<Result<String, String>, JobError> {
    usage.latency_ms += response.summary.latency_ms;
    if let Some(tokens) = response.summary.tokens {
        usage.prompt_tokens += tokens.prompt;
        usage.completion_tokens += tokens.completion;
    }
    if matches!(response.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT) {
        return Err(JobError(format!("the provider returned status {}", response.status.as_u16())));
    }
    if !response.status.is_success() {
        return Ok(Err(format!("the provider returned status {}", response.status.as_u16())));
    }
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let text = body.pointer("/choices/0/message/content").and_then(Value::as_str);
    Ok(text.map(str::to_owned).ok_or_else(|| "the provider's response has no text".to_owned()))
}

/// Returns the reason of a permanent failure, or an error if the call can be retried. A timeout is permanent, because a
/// retry would probably take as long.
fn permanent_failure(problem: &Problem) -> Result<String, JobError> {
    let is_transient = problem.status.is_server_error() && problem.status != StatusCode::GATEWAY_TIMEOUT;
    if is_transient || problem.status == StatusCode::TOO_MANY_REQUESTS {
        return Err(JobError(problem.message.to_string()));
    }
    Ok(problem.message.to_string())
}

fn failed_with_usage(usage: Judged, rubric: &Rubric, reason: &str) -> Judged {
    Judged { judgement: failed(rubric, reason).judgement, ..usage }
}
