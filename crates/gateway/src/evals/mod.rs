//! Evaluates subjects and returns verdicts. Calls models where the evaluator needs a judge or embeddings. Used by eval
//! runs, by evals of live traffic and by replays.

pub mod replay;
pub mod target;

use std::sync::Arc;
use std::time::Duration;

use gateway_core::embed::hash_v1;
use gateway_core::evaluators::{
    ConfigError, Embedding, Evaluator, Judge, Method, NotEvaluated, Subject, Verdict,
};
use gateway_core::ids::OrgId;
use gateway_core::llm::preview::assistant_text;
use gateway_core::logs::LogSource;
use http::StatusCode;
use http::header::RETRY_AFTER;
use serde_json::{Map, Value, json};

use crate::auth::Identity;
use crate::compute::{ComputeError, ComputePool, WaitLimits};
use crate::internal_call::{self, Endpoint, InternalCaller, InternalRequest, ModelResponse};
use crate::problem::{ApiResult, Problem};

/// Of one attempt at one target. It ends before a judgement does, so that a silent target counts as a failure for its
/// circuit breaker, and the next target is tried.
const MODEL_TIMEOUT: Duration = Duration::from_secs(120);
/// How long models may take for one judgement in all, from the first call to the end of the last response: two attempts.
/// Each call may be repeated at the provider, and be followed by others; without a limit on all of them, a provider that
/// never answers holds a place that organizations share for half an hour.
const JUDGEMENT_TIMEOUT: Duration = Duration::from_secs(250);
const _: () = assert!(JUDGEMENT_TIMEOUT.as_secs() > 2 * MODEL_TIMEOUT.as_secs());
/// How much of an error response is quoted.
const MAX_ERROR_CHARS: usize = 300;
/// The provider name of the built-in embedding, which needs no account.
const BUILTIN: &str = "builtin";

/// Why there is no verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoVerdict {
    /// A retry would fail the same way.
    Permanent(String),
    /// A retry may succeed.
    Retry(String),
    /// The organization reached its rate limit. Retry after the delay.
    RateLimited(Duration),
}

/// Of computing.
impl From<ComputeError> for NoVerdict {
    fn from(error: ComputeError) -> Self {
        Self::Retry(error.to_string())
    }
}

impl From<NotEvaluated> for NoVerdict {
    fn from(error: NotEvaluated) -> Self {
        Self::Permanent(error.0)
    }
}

/// What model calls of an evaluation need.
#[derive(Clone, Copy)]
pub struct ModelCaller<'a> {
    pub models: &'a InternalCaller,
    pub identity: &'a Identity,
    /// Stored with the log row of each call.
    pub metadata: &'a Map<String, Value>,
}

impl ModelCaller<'_> {
    async fn call(
        &self,
        provider: &str,
        endpoint: Endpoint,
        body: Map<String, Value>,
    ) -> ApiResult<ModelResponse> {
        let request = InternalRequest {
            provider: provider.to_owned(),
            endpoint,
            body: Value::Object(body).to_string(),
            source: LogSource::Api,
            prompt: None,
            metadata: self.metadata.clone(),
            timeout: Some(MODEL_TIMEOUT),
            is_counted: false,
        };
        self.models.call_model(self.identity, request).await
    }
}

/// Whether the evaluator calls a model.
pub fn calls_models(models: &InternalCaller, evaluator: &Evaluator) -> bool {
    match &evaluator.method {
        Method::Check(_) | Method::Levenshtein(_) => false,
        Method::Embedding(embedding) => embedder(models, embedding).0 != BUILTIN,
        Method::Judge(_) => true,
    }
}

/// Checks that the caller may use the evaluator's model, because later calls run with the organization's identity.
pub fn check(models: &InternalCaller, identity: &Identity, evaluator: &Evaluator) -> ApiResult<()> {
    let (provider, model) = match &evaluator.method {
        Method::Check(_) | Method::Levenshtein(_) => return Ok(()),
        Method::Embedding(embedding) => embedder(models, embedding),
        Method::Judge(judge) => (judge.provider.as_str(), judge.model.as_str()),
    };
    if provider == BUILTIN && matches!(evaluator.method, Method::Embedding(_)) {
        return Ok(());
    }
    internal_call::check_allowed(identity, provider, model).map_err(|mut problem| {
        if problem.message.starts_with("provider: ") {
            problem.message = format!("config.{}", problem.message).into();
        }
        problem
    })
}

/// Validates and compiles a definition. A large pattern or schema takes long.
pub async fn compile(
    compute: &ComputePool,
    org: OrgId,
    limits: WaitLimits,
    definition: EvalDefinition,
) -> Result<Result<Evaluator, ConfigError>, ComputeError> {
    let EvalDefinition { kind, evaluator, config } = definition;
    compute.run(org, limits, move |_| Evaluator::parse(&kind, &evaluator, &config)).await
}

/// The parts of an eval that decide how it judges.
pub struct EvalDefinition {
    pub kind: String,
    pub evaluator: String,
    pub config: Value,
}

/// Evaluates one subject. The subject is extracted from a body where it is evaluated, because bodies can be long.
pub async fn judge(
    caller: &ModelCaller<'_>,
    evaluator: &Arc<Evaluator>,
    subject: impl FnOnce(&Evaluator) -> Result<Subject, NoVerdict> + Send + 'static,
) -> Result<Verdict, NoVerdict> {
    let (services, shared) = (&caller.models.services, Arc::clone(evaluator));
    let dims = usize::try_from(services.config.judge.embed_dims).unwrap_or(256);
    let is_builtin = matches!(&evaluator.method, Method::Embedding(embedding)
        if embedder(caller.models, embedding).0 == BUILTIN);
    let evaluated = services.compute.run(caller.identity.org.id, WaitLimits::JOB, move |_| {
        let subject = subject(&shared)?;
        let verdict = match &shared.method {
            Method::Embedding(embedding) if is_builtin => Some(embed_builtin(embedding, &subject, dims)?),
            _ => shared.evaluate(&subject).transpose()?,
        };
        Ok((subject, verdict))
    });
    let (subject, verdict) = evaluated.await.map_err(NoVerdict::from).flatten()?;
    match (&evaluator.method, verdict) {
        (_, Some(verdict)) => Ok(verdict),
        (Method::Check(_) | Method::Levenshtein(_), None) => {
            Err(NoVerdict::Permanent("the evaluator returned no verdict".into()))
        }
        (Method::Embedding(embedding), None) => {
            within(JUDGEMENT_TIMEOUT, Box::pin(judge_by_embedding(caller, embedding, &subject))).await
        }
        (Method::Judge(judge), None) => {
            within(JUDGEMENT_TIMEOUT, Box::pin(judge_by_model(caller, judge, &subject))).await
        }
    }
}

/// A judgement that takes longer is given up, and may be tried again.
async fn within(
    limit: Duration,
    judgement: impl Future<Output = Result<Verdict, NoVerdict>>,
) -> Result<Verdict, NoVerdict> {
    tokio::time::timeout(limit, judgement).await.unwrap_or_else(|_| {
        Err(NoVerdict::Retry(format!("the model took longer than {} s to judge", limit.as_secs())))
    })
}

fn embed_builtin(embedding: &Embedding, subject: &Subject, dims: usize) -> Result<Verdict, NotEvaluated> {
    Ok(match embedding.texts(subject)? {
        Ok(texts) => {
            let [a, b] = texts.map(|text| hash_v1(text, dims));
            embedding.verdict(&a, &b)
        }
        Err(verdict) => verdict,
    })
}

/// The provider and model of an embedding, with defaults from the configuration.
fn embedder<'a>(models: &'a InternalCaller, embedding: &'a Embedding) -> (&'a str, &'a str) {
    let defaults = &models.services.config.judge;
    match (&embedding.provider, &embedding.model) {
        (Some(provider), model) => (provider, model.as_deref().unwrap_or_default()),
        (None, Some(model)) => (&defaults.embed_provider, model),
        (None, None) => (&defaults.embed_provider, &defaults.embed_model),
    }
}

async fn judge_by_embedding(
    caller: &ModelCaller<'_>,
    embedding: &Embedding,
    subject: &Subject,
) -> Result<Verdict, NoVerdict> {
    let texts = match embedding.texts(subject)? {
        Ok(texts) => texts,
        Err(verdict) => return Ok(verdict),
    };
    let (provider, model) = embedder(caller.models, embedding);
    let body = object(json!({"model": model, "input": texts}));
    let response = require_success(caller.call(provider, Endpoint::Embeddings, body).await)?;
    let parsed = caller.models.services.compute.run(caller.identity.org.id, WaitLimits::JOB, move |_| {
        let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        [0, 1].map(|index| -> Option<Vec<f32>> {
            serde_json::from_value(body.pointer(&format!("/data/{index}/embedding"))?.clone()).ok()
        })
    });
    match parsed.await? {
        [Some(a), Some(b)] if a.len() == b.len() => Ok(embedding.verdict(&a, &b)),
        _ => Err(NoVerdict::Retry(format!("the response of {provider} does not have two embeddings"))),
    }
}

async fn judge_by_model(
    caller: &ModelCaller<'_>,
    judge: &Judge,
    subject: &Subject,
) -> Result<Verdict, NoVerdict> {
    let messages = match judge.messages(subject)? {
        Ok(messages) => messages,
        Err(verdict) => return Ok(verdict),
    };
    let call = async |messages: &[Value], with_format: bool| {
        let mut body = object(json!({"model": judge.model, "messages": messages}));
        if with_format {
            body.insert("response_format".into(), Judge::response_format());
        }
        caller.call(&judge.provider, Endpoint::Chat, body).await
    };
    let mut response = call(&messages, true).await;
    let mut with_format = true;
    if response.as_ref().is_ok_and(|response| response.status == StatusCode::BAD_REQUEST) {
        // Not every provider supports `response_format`.
        with_format = false;
        response = call(&messages, false).await;
    }
    let text = response_text(&require_success(response)?);
    let error = match judge.parse_verdict(&text) {
        Ok(verdict) => return Ok(verdict),
        Err(error) => error,
    };
    let retry_messages = judge.retry_messages(messages, &text, &error);
    let response = require_success(call(&retry_messages, with_format).await)?;
    let invalid =
        |error: String| NoVerdict::Retry(format!("the judge's response was invalid twice: {error}"));
    judge.parse_verdict(&response_text(&response)).map_err(invalid)
}

fn response_text(response: &ModelResponse) -> String {
    assistant_text(&response.body, false).unwrap_or_default()
}

/// Returns a successful response, or classifies the failure.
fn require_success(response: ApiResult<ModelResponse>) -> Result<ModelResponse, NoVerdict> {
    match response {
        Ok(response) if response.status.is_success() => Ok(response),
        Ok(response) => {
            let body: String =
                String::from_utf8_lossy(&response.body).chars().take(MAX_ERROR_CHARS).collect();
            let reason = format!("the provider returned status {}: {body}", response.status.as_u16());
            let is_transient = matches!(response.status.as_u16(), 408 | 409 | 425 | 429);
            Err(if is_transient { NoVerdict::Retry(reason) } else { NoVerdict::Permanent(reason) })
        }
        Err(problem) => Err(classify_problem(&problem)),
    }
}

fn classify_problem(problem: &Problem) -> NoVerdict {
    let reason = format!("{}: {}", problem.code, problem.message);
    match problem.status {
        StatusCode::TOO_MANY_REQUESTS => {
            let seconds = problem.headers.iter().find(|(name, _)| name == RETRY_AFTER);
            let seconds = seconds.and_then(|(_, value)| value.to_str().ok()?.parse().ok()).unwrap_or(1);
            NoVerdict::RateLimited(Duration::from_secs(seconds))
        }
        _ if crate::proxy::budget::is_reserved(problem) => NoVerdict::RateLimited(Duration::from_secs(1)),
        status if status.is_server_error() => NoVerdict::Retry(reason),
        _ => NoVerdict::Permanent(reason),
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_judge_that_never_answers_is_given_up() {
        let silent = std::future::pending();
        let given_up = within(Duration::from_millis(10), silent).await;
        assert_eq!(given_up, Err(NoVerdict::Retry("the model took longer than 0 s to judge".into())));
        let refused = Err(NoVerdict::Permanent("no".into()));
        let answered = std::future::ready(refused.clone());
        assert_eq!(within(Duration::from_secs(20), answered).await, refused);
    }
}
