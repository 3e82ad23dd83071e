//! Judging: from a subject to a verdict, with whatever has to be asked of models in between. Used by runs and by the
//! sampling of live traffic.

pub mod target;

use std::time::Duration;

use gateway_core::embed::hash_v1;
use gateway_core::evaluators::{Embedding, Evaluator, Judge, Method, NotEvaluated, Subject, Verdict};
use gateway_core::llm::preview::assistant_text;
use http::StatusCode;
use http::header::RETRY_AFTER;
use serde_json::{Map, Value, json};

use crate::auth::Identity;
use crate::internal_call::{self, Endpoint, InternalCaller, InternalRequest, ModelResponse};
use crate::problem::{ApiResult, Problem};

/// How long a model may take to judge one answer.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The embedding that needs no account.
const BUILTIN: &str = "builtin";

/// Why there is no verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoVerdict {
    /// It will not be otherwise another time.
    Never(String),
    /// It may work another time.
    Again(String),
    /// The organization has used up its requests for now.
    Wait(Duration),
}

impl From<NotEvaluated> for NoVerdict {
    fn from(unjudged: NotEvaluated) -> Self {
        Self::Never(unjudged.0)
    }
}

/// Does a verdict need a model's answer?
pub fn asks_models(models: &InternalCaller, evaluator: &Evaluator) -> bool {
    match &evaluator.method {
        Method::Check(_) | Method::Levenshtein(_) => false,
        Method::Embedding(embedding) => embedder(models, embedding).0 != BUILTIN,
        Method::Judge(_) => true,
    }
}

/// May this caller have models asked as the evaluator does? Later it is done in the organization's name.
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

/// The verdict on one subject.
pub async fn judge(
    models: &InternalCaller,
    identity: &Identity,
    evaluator: &Evaluator,
    subject: &Subject,
    metadata: &Map<String, Value>,
) -> Result<Verdict, NoVerdict> {
    if let Some(verdict) = evaluator.evaluate(subject) {
        return Ok(verdict?);
    }
    match &evaluator.method {
        Method::Check(_) | Method::Levenshtein(_) => Err(NoVerdict::Never("there is no verdict".into())),
        Method::Embedding(embedding) => embed(models, identity, embedding, subject, metadata).await,
        Method::Judge(judge) => ask_judge(models, identity, judge, subject, metadata).await,
    }
}

/// Provider and model of an embedding: its own, or those of the settings.
fn embedder<'a>(models: &'a InternalCaller, embedding: &'a Embedding) -> (&'a str, &'a str) {
    let settings = &models.services.config.judge;
    match (&embedding.provider, &embedding.model) {
        (Some(provider), model) => (provider, model.as_deref().unwrap_or_default()),
        (None, Some(model)) => (&settings.embed_provider, model),
        (None, None) => (&settings.embed_provider, &settings.embed_model),
    }
}

async fn embed(
    models: &InternalCaller,
    identity: &Identity,
    embedding: &Embedding,
    subject: &Subject,
    metadata: &Map<String, Value>,
) -> Result<Verdict, NoVerdict> {
    let texts = match embedding.texts(subject)? {
        Ok(texts) => texts,
        Err(verdict) => return Ok(verdict),
    };
    let (provider, model) = embedder(models, embedding);
    if provider == BUILTIN {
        let dims = usize::try_from(models.services.config.judge.embed_dims).unwrap_or(256);
        let [a, b] = texts.map(|text| hash_v1(text, dims));
        return Ok(embedding.verdict(&a, &b));
    }
    let question = InternalRequest {
        provider: provider.to_owned(),
        endpoint: Endpoint::Embeddings,
        body: object(json!({"model": model, "input": texts})),
        metadata: metadata.clone(),
        timeout: Some(TIMEOUT),
        is_counted: false,
    };
    let answer = answered(models.call_model(identity, question).await)?;
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let vector = |at: usize| -> Option<Vec<f32>> {
        serde_json::from_value(body.pointer(&format!("/data/{at}/embedding"))?.clone()).ok()
    };
    match (vector(0), vector(1)) {
        (Some(a), Some(b)) if a.len() == b.len() => Ok(embedding.verdict(&a, &b)),
        _ => Err(NoVerdict::Again(format!("{provider} answered without two embeddings"))),
    }
}

async fn ask_judge(
    models: &InternalCaller,
    identity: &Identity,
    judge: &Judge,
    subject: &Subject,
    metadata: &Map<String, Value>,
) -> Result<Verdict, NoVerdict> {
    let messages = match judge.messages(subject)? {
        Ok(messages) => messages,
        Err(verdict) => return Ok(verdict),
    };
    let ask = async |messages: &[Value], format: bool| {
        let mut body = object(json!({"model": judge.model, "messages": messages}));
        if format {
            body.insert("response_format".into(), Judge::response_format());
        }
        let question = InternalRequest {
            provider: judge.provider.clone(),
            endpoint: Endpoint::Chat,
            body,
            metadata: metadata.clone(),
            timeout: Some(TIMEOUT),
            is_counted: false,
        };
        models.call_model(identity, question).await
    };
    let mut answer = ask(&messages, true).await;
    let mut format = true;
    if answer.as_ref().is_ok_and(|answer| answer.status == StatusCode::BAD_REQUEST) {
        // Not every provider knows how to hold a model to a format.
        format = false;
        answer = ask(&messages, false).await;
    }
    let said = said(&answered(answer)?);
    let why = match judge.parse_verdict(&said) {
        Ok(verdict) => return Ok(verdict),
        Err(why) => why,
    };
    let mended = judge.retry_messages(messages, &said, &why);
    let answer = answered(ask(&mended, format).await)?;
    let unreadable =
        |why: String| NoVerdict::Again(format!("the judge's answer cannot be read, twice: {why}"));
    judge.parse_verdict(&self::said(&answer)).map_err(unreadable)
}

fn said(answer: &ModelResponse) -> String {
    assistant_text(&answer.body, false).unwrap_or_default()
}

/// An answer that can be used, or what its absence means.
fn answered(answer: ApiResult<ModelResponse>) -> Result<ModelResponse, NoVerdict> {
    match answer {
        Ok(answer) if answer.status.is_success() => Ok(answer),
        Ok(answer) => {
            let said: String = String::from_utf8_lossy(&answer.body).chars().take(300).collect();
            let why = format!("the model was refused with {}: {said}", answer.status.as_u16());
            let passes = matches!(answer.status.as_u16(), 408 | 409 | 425 | 429);
            Err(if passes { NoVerdict::Again(why) } else { NoVerdict::Never(why) })
        }
        Err(problem) => Err(no_answer(&problem)),
    }
}

fn no_answer(problem: &Problem) -> NoVerdict {
    let why = format!("{}: {}", problem.code, problem.message);
    match problem.status {
        StatusCode::TOO_MANY_REQUESTS => {
            let seconds = problem.headers.iter().find(|(name, _)| name == RETRY_AFTER);
            let seconds = seconds.and_then(|(_, value)| value.to_str().ok()?.parse().ok()).unwrap_or(1);
            NoVerdict::Wait(Duration::from_secs(seconds))
        }
        status if status.is_server_error() => NoVerdict::Again(why),
        _ => NoVerdict::Never(why),
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
