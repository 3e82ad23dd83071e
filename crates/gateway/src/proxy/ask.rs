//! The one way in which the gateway itself calls models: playground, judges and embeddings. A question goes through
//! the same stages as a proxied request (target, scopes, limits, stored credential, record) and leaves a log row of
//! source `api`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use gateway_core::llm::ClientFormat;
use gateway_core::logs::{LogRow, LogSource, Tokens};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use rust_decimal::Decimal;
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::body::Inbound;
use super::target::{self, Target};
use crate::app::App;
use crate::auth::{self, Identity, Who};
use crate::problem::{ApiResult, Problem};

/// An answer longer than this is not taken in whole.
const ANSWER_BYTES: usize = 16 << 20;

/// What is asked of a model.
#[derive(Debug, Clone)]
pub struct Question {
    pub provider: String,
    pub about: About,
    /// In the format of OpenAI, whatever the provider speaks: `model` and all but `stream`.
    pub body: Map<String, Value>,
    /// Recorded with the log row.
    pub metadata: Map<String, Value>,
    pub timeout: Option<Duration>,
    /// The request behind this question was counted against the rate limit when it came in.
    pub is_counted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    Chat,
    Embeddings,
}

/// A whole answer, whatever its status below 500.
#[derive(Debug)]
pub struct Answer {
    pub log_id: i64,
    pub status: StatusCode,
    pub body: Bytes,
    pub told: Told,
}

/// An answer that comes in pieces. `told` resolves when the last one has been taken.
pub struct Streaming {
    pub log_id: i64,
    pub status: StatusCode,
    pub is_stream: bool,
    pub body: Body,
    pub told: oneshot::Receiver<Told>,
}

/// What the log row says of the answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    pub model: Option<String>,
    pub tokens: Option<Tokens>,
    pub usage_estimated: bool,
    pub cost_usd: Option<Decimal>,
    pub latency_ms: i64,
    pub ttft_ms: Option<i64>,
}

/// Who made the request, and who wants to know how it went.
pub struct Origin {
    pub(super) source: LogSource,
    report: Option<oneshot::Sender<Told>>,
}

impl Default for Origin {
    fn default() -> Self {
        Self { source: LogSource::Proxy, report: None }
    }
}

impl Origin {
    /// The row is made.
    pub(super) fn tell(&mut self, row: &LogRow) {
        let Some(report) = self.report.take() else { return };
        let told = Told {
            model: row.model.clone(),
            tokens: row.tokens,
            usage_estimated: row.usage_estimated,
            cost_usd: row.cost_usd,
            latency_ms: row.latency_ms,
            ttft_ms: row.ttft_ms,
        };
        // An error means that nobody waits any more.
        let _ = report.send(told);
    }
}

/// Asks and waits for the whole answer. A provider's refusal (4xx) is an answer; a failure is a problem.
pub async fn ask(app: &Arc<App>, identity: &Identity, question: Question) -> ApiResult<Answer> {
    let Streaming { log_id, status, is_stream: _, body, told } = send(app, identity, question, false).await?;
    let collected = Limited::new(body, ANSWER_BYTES).collect().await;
    let body = collected
        .map_err(|error| {
            Problem::new(StatusCode::BAD_GATEWAY, "provider_error", format!("the answer broke off: {error}"))
        })?
        .to_bytes();
    Ok(Answer { log_id, status, body, told: told.await.unwrap_or_default() })
}

/// Asks for a stream of events.
pub async fn ask_streaming(app: &Arc<App>, identity: &Identity, question: Question) -> ApiResult<Streaming> {
    send(app, identity, question, true).await
}

/// May this caller ask that? What is to be asked later, by somebody else, is checked now.
pub fn check(app: &App, identity: &Identity, provider: &str, model: &str) -> ApiResult<()> {
    let target = find(app, identity, provider)?;
    let Who::Key(key) = &identity.who else { return Ok(()) };
    if key.scopes.allow(&target.name, Some(model)) {
        return Ok(());
    }
    let message = format!("the key's scopes do not allow the model '{model}' of {provider}");
    Err(Problem::new(StatusCode::FORBIDDEN, "scope_denied", message))
}

/// The log id that a failed question left behind.
pub fn log_id_of(problem: &Problem) -> Option<i64> {
    let found = problem.headers.iter().find(|(name, _)| name == "x-gateway-log-id");
    found.and_then(|(_, value)| value.to_str().ok()?.parse().ok())
}

async fn send(
    app: &Arc<App>,
    identity: &Identity,
    mut question: Question,
    stream: bool,
) -> ApiResult<Streaming> {
    let mut identity = identity.clone();
    if !question.is_counted {
        auth::count(app, &mut identity).await?;
    }
    find(app, &identity, &question.provider)?;
    if stream {
        question.body.insert("stream".into(), true.into());
    }
    let body = Bytes::from(Value::Object(std::mem::take(&mut question.body)).to_string());
    let head = head(&question)?;
    let (report, told) = oneshot::channel();
    let origin = Origin { source: LogSource::Api, report: Some(report) };
    let inbound = Inbound::whole(body, app.services.config.max_body_bytes);
    let request_id = app.services.ids.new_request_id();
    let response = super::run(app, &app.proxy.worker, &identity, &request_id, &head, inbound, origin)
        .await
        .map_err(as_field)?;
    let (head, body) = response.into_parts();
    let log_id = head.headers.get("x-gateway-log-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let content_type = head.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    Ok(Streaming {
        log_id: log_id.unwrap_or_default(),
        status: head.status,
        is_stream: content_type.starts_with(b"text/event-stream"),
        body,
        told,
    })
}

/// The head of the request, as a caller of the proxy would have sent it. It says what it speaks, so that it is
/// translated for a provider that speaks something else.
fn head(question: &Question) -> ApiResult<Parts> {
    let path = match question.about {
        About::Chat => "/v1/chat/completions",
        About::Embeddings => "/v1/embeddings",
    };
    let header = |value: String| {
        HeaderValue::try_from(value).map_err(|_| Problem::field("provider", "must be plain ASCII text"))
    };
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(path);
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("x-gateway-provider", header(question.provider.clone())?);
    headers.insert("x-gateway-format", HeaderValue::from_static(ClientFormat::OpenAiChat.as_str()));
    headers.insert("x-gateway-credential", HeaderValue::from_static("stored"));
    if !question.metadata.is_empty()
        && let Ok(value) =
            HeaderValue::from_bytes(Value::Object(question.metadata.clone()).to_string().as_bytes())
    {
        headers.insert("x-gateway-metadata", value);
    }
    if let Some(timeout) = question.timeout {
        headers.insert("x-gateway-timeout", header(timeout.as_millis().max(1).to_string())?);
    }
    Ok(request.into_parts().0)
}

fn find(app: &App, identity: &Identity, provider: &str) -> ApiResult<Arc<Target>> {
    let target = target::resolve(app, identity, "provider", provider)?;
    if target.kind.chat_path.contains("{project}") {
        let why = format!("{provider} cannot be asked from here: its paths name a project and a location");
        return Err(Problem::field("provider", why));
    }
    Ok(target)
}

/// Here the provider stands in a field, not in a header.
fn as_field(mut problem: Problem) -> Problem {
    if let Some(rest) = problem.message.strip_prefix("x-gateway-provider: ") {
        problem.message = format!("provider: {rest}").into();
    }
    problem
}
