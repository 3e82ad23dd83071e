//! A language model as judge: one question, one repair, and an honest failure.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::skills::SkillSource;
use gateway_core::skills::judge::{self, Neighbour, llm};
use gateway_core::skills::rubric::Rubric;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{JudgeSkill, Judged, failed};
use crate::auth::Identity;
use crate::internal_call::{Endpoint, InternalRequest, ModelResponse};
use crate::jobs::JobError;
use crate::jobs::JobServices;
use crate::problem::Problem;

/// For each of the two questions; the server's own limit may be shorter.
const TIME: Duration = Duration::from_secs(60);

/// Judges, or says why not. Fails only where trying again may help.
pub async fn judge(
    job_services: &Arc<JobServices>,
    identity: &Identity,
    job: &JudgeSkill,
    source: &SkillSource,
    nearest: Option<&Neighbour>,
    rubric: &Rubric,
) -> Result<Judged, JobError> {
    let llm::JudgePrompt { system, user } = llm::judge_prompt(source, nearest);
    let mut messages =
        vec![json!({"role": "system", "content": system}), json!({"role": "user", "content": user})];
    let mut spent = failed(rubric, "");
    let mut why = String::new();
    for _ in 0..2 {
        let said = match job_services.models.call_model(identity, question(job, rubric, &messages)).await {
            Ok(answer) => said(&mut spent, &answer)?,
            Err(problem) => Err(reason(&problem)?),
        };
        let text = match said {
            Ok(text) => text,
            Err(why) => return Ok(with_reason(spent, rubric, &why)),
        };
        match llm::parse_answer(&text, rubric) {
            Ok(axes) => return Ok(Judged { judgement: judge::by_model(source, axes, rubric), ..spent }),
            Err(wrong) => {
                messages.push(json!({"role": "assistant", "content": text}));
                messages.push(json!({"role": "user", "content": llm::repair_prompt(&wrong)}));
                why = wrong;
            }
        }
    }
    Ok(with_reason(spent, rubric, &format!("its answer could not be used, twice: {why}")))
}

fn question(job: &JudgeSkill, rubric: &Rubric, messages: &[Value]) -> InternalRequest {
    let body = json!({"model": rubric.judge_model, "messages": messages});
    let metadata = json!({"judge": "skill", "skill_id": job.skill, "skill_version": job.version});
    let object = |value: Value| if let Value::Object(map) = value { map } else { Map::new() };
    InternalRequest {
        provider: rubric.judge_provider.clone(),
        endpoint: Endpoint::Chat,
        body: object(body),
        metadata: object(metadata),
        timeout: Some(TIME),
        is_counted: false,
    }
}

/// The text of an answer, or why there is none; what it cost is added up.
fn said(spent: &mut Judged, answer: &ModelResponse) -> Result<Result<String, String>, JobError> {
    spent.latency_ms += answer.summary.latency_ms;
    if let Some(tokens) = answer.summary.tokens {
        spent.prompt_tokens += tokens.prompt;
        spent.completion_tokens += tokens.completion;
    }
    if matches!(answer.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT) {
        return Err(JobError(format!("the provider answered {}", answer.status.as_u16())));
    }
    if !answer.status.is_success() {
        return Ok(Err(format!("the provider answered {}", answer.status.as_u16())));
    }
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let text = body.pointer("/choices/0/message/content").and_then(Value::as_str);
    Ok(text.map(str::to_owned).ok_or_else(|| "the provider's answer holds no text".to_owned()))
}

/// Why a question failed. A provider that is down or busy now may not be so in a moment; one that took too long had its
/// time.
fn reason(problem: &Problem) -> Result<String, JobError> {
    let again = problem.status.is_server_error() && problem.status != StatusCode::GATEWAY_TIMEOUT;
    if again || problem.status == StatusCode::TOO_MANY_REQUESTS {
        return Err(JobError(problem.message.to_string()));
    }
    Ok(problem.message.to_string())
}

fn with_reason(spent: Judged, rubric: &Rubric, why: &str) -> Judged {
    Judged { judgement: failed(rubric, why).judgement, ..spent }
}
