//! One call of the playground to one model: what is asked, and what is made of the answer.

use std::sync::Arc;

use gateway_core::ids::PlayId;
use gateway_core::llm::preview::assistant_text;
use gateway_store::playground::PlaygroundRun;
use http::StatusCode;
use rust_decimal::prelude::ToPrimitive as _;
use serde_json::{Map, Value, json};

use super::Usage;
use super::prompt::Asked;
use crate::app::App;
use crate::auth::Identity;
use crate::problem::{ApiResult, Problem};
use crate::proxy::ask::{self, About, Question, Told};

/// A model, and the parameters that it is sent.
pub(super) struct Target {
    pub provider: String,
    pub model: String,
    pub params: Map<String, Value>,
}

impl Target {
    /// `at` is where the fields stand, for errors.
    pub(super) fn checked(
        at: &str,
        provider: String,
        model: String,
        params: Option<Map<String, Value>>,
    ) -> ApiResult<Self> {
        for (name, text) in [("provider", &provider), ("model", &model)] {
            if text.trim().is_empty() || text.len() > 256 {
                return Err(Problem::field(&format!("{at}{name}"), "must be 1 to 256 characters long"));
            }
        }
        let params = params.unwrap_or_default();
        for name in ["model", "messages", "stream", "stream_options"] {
            if params.contains_key(name) {
                return Err(Problem::field(&format!("{at}params"), format!("{name} is not a parameter")));
            }
        }
        Ok(Self { provider, model, params })
    }
}

/// Refused before anything is asked, as a plain error.
pub(super) fn check(app: &App, caller: &Identity, target: &Target) -> ApiResult<()> {
    ask::check(app, caller, &target.provider, &target.model)
}

pub(super) struct Try {
    pub id: PlayId,
    pub comparison: Option<PlayId>,
    pub index: usize,
    pub target: Target,
    pub asked: Arc<Asked>,
}

pub(super) enum Tried {
    Answered(Box<PlaygroundRun>),
    /// Kept with a comparison, so that it can be looked at later.
    Failed(Box<Problem>, Box<PlaygroundRun>),
}

/// What a model said.
#[derive(Default)]
pub(super) struct Said {
    pub output: String,
    pub finish_reason: Option<String>,
}

impl Try {
    pub(super) fn question(&self) -> Question {
        let mut body = self.target.params.clone();
        body.insert("model".into(), self.target.model.as_str().into());
        body.insert("messages".into(), Value::Array(self.asked.messages.clone()));
        Question {
            provider: self.target.provider.clone(),
            about: About::Chat,
            body,
            metadata: Map::from_iter([("playground_run_id".to_owned(), json!(self.id))]),
            timeout: None,
            // The first stands for the request that brought it.
            is_counted: self.index == 0,
        }
    }

    pub(super) async fn ask(&self, app: &Arc<App>, caller: &Identity) -> Tried {
        let asked = async {
            let answer = ask::ask(app, caller, self.question()).await?;
            if !answer.status.is_success() {
                return Err(refused(&self.target.provider, answer.log_id, answer.status, &answer.body));
            }
            let said = whole(&answer.body).ok_or_else(|| unreadable(&self.target.provider, answer.log_id))?;
            Ok((said, answer.log_id, answer.told))
        };
        match asked.await {
            Ok((said, log_id, told)) => Tried::Answered(Box::new(self.answered(app, said, log_id, &told))),
            Err(problem) => {
                let play = self.failed(app, &problem);
                Tried::Failed(Box::new(problem), Box::new(play))
            }
        }
    }

    pub(super) fn answered(&self, app: &App, said: Said, log_id: i64, told: &Told) -> PlaygroundRun {
        let usage = told.tokens.map(|tokens| Usage {
            prompt_tokens: tokens.prompt,
            completion_tokens: tokens.completion,
            total_tokens: tokens.total(),
            cached_tokens: tokens.cached,
            reasoning_tokens: tokens.reasoning,
            estimated: told.usage_estimated,
        });
        PlaygroundRun {
            output: said.output,
            finish_reason: said.finish_reason,
            usage: usage.and_then(|usage| serde_json::to_value(usage).ok()).unwrap_or_default(),
            cost_usd: told.cost_usd.and_then(|cost| cost.to_f64()),
            latency_ms: told.latency_ms,
            log_id: Some(log_id),
            ..self.empty(app)
        }
    }

    pub(super) fn failed(&self, app: &App, problem: &Problem) -> PlaygroundRun {
        let mut error = json!({"code": problem.code, "message": problem.message});
        if let Some(status) = problem.extra.get("upstream_status") {
            error["upstream_status"] = status.clone();
        }
        PlaygroundRun { log_id: ask::log_id_of(problem), error: Some(error), ..self.empty(app) }
    }

    fn empty(&self, app: &App) -> PlaygroundRun {
        PlaygroundRun {
            id: self.id,
            comparison_id: self.comparison,
            position: i64::try_from(self.index).unwrap_or_default(),
            provider: self.target.provider.clone(),
            model: self.target.model.clone(),
            params: Value::Object(self.target.params.clone()),
            messages: Value::Array(self.asked.messages.clone()),
            template: self.asked.template.clone(),
            output: String::new(),
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

/// Reads a chat completion; None when it is none.
pub(super) fn whole(body: &[u8]) -> Option<Said> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let choice = value.pointer("/choices/0")?;
    let finish_reason = choice.get("finish_reason").and_then(Value::as_str).map(ToOwned::to_owned);
    Some(Said { output: assistant_text(body, false).unwrap_or_default(), finish_reason })
}

/// The provider refused: with a status that would be the caller's own anywhere else.
pub(super) fn refused(provider: &str, log_id: i64, status: StatusCode, body: &[u8]) -> Problem {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let said = value.pointer("/error/message").and_then(Value::as_str).map_or_else(
        || String::from_utf8_lossy(body).chars().take(500).collect(),
        |text| text.chars().take(500).collect::<String>(),
    );
    let message = format!("{provider}: it answered {}: {said}", status.as_u16());
    with_row(provider, log_id, Some(status), message)
}

pub(super) fn unreadable(provider: &str, log_id: i64) -> Problem {
    with_row(provider, log_id, None, format!("{provider}: its answer is no chat completion"))
}

fn with_row(provider: &str, log_id: i64, status: Option<StatusCode>, message: String) -> Problem {
    let mut problem = Problem::new(StatusCode::BAD_GATEWAY, "provider_error", message);
    problem.extra.insert("provider".into(), provider.into());
    problem.extra.insert("upstream_status".into(), json!(status.map(|status| status.as_u16())));
    problem.headers.push((http::HeaderName::from_static("x-gateway-log-id"), log_id.into()));
    problem
}
