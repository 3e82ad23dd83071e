//! Requests of the gateway itself to models: playground, judges, embeddings and replays. They go through the same stages as a
//! proxied request (target, scopes, stored credential, record) and leave a log row of source `api`, or of source `replay`.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use gateway_core::json::append_member;
use gateway_core::llm::ClientFormat;
use gateway_core::logs::LogSource;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::content_decoding::{ContentCodings, TextBody};
use super::context::RequestContext;
use super::inbound::Inbound;
use super::origin::{CallOrigin, CallSummary};
pub use super::plan::AUTO;
use super::{Proxy, run};
use crate::auth::Identity;
use crate::calls_in_progress::CallInProgress;
use crate::memory::{HeldBuffer, Reservation};
use crate::problem::{ApiResult, Problem};
use crate::targets::Target;

const MAX_RESPONSE_BYTES: usize = 16 << 20;

#[derive(Debug, Clone)]
pub struct InternalRequest {
    pub provider: String,
    pub endpoint: Endpoint,
    /// A JSON object in the endpoint's format, whatever the provider's is: `model` and all other fields except `stream`.
    pub body: String,
    /// The source of the log row.
    pub source: LogSource,
    /// The prompt to insert.
    pub prompt: Option<InsertedPrompt>,
    /// Recorded with the log row.
    pub metadata: Map<String, Value>,
    pub timeout: Option<Duration>,
    /// The request that caused this one has been counted against the rate limit.
    pub is_counted: bool,
}

/// A prompt as a client would name it in its headers.
#[derive(Debug, Clone)]
pub struct InsertedPrompt {
    /// `namespace/slug@version`
    pub reference: String,
    /// A JSON object.
    pub variables: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    Chat,
    Embeddings,
    Responses,
    Messages,
    /// Of this model: the path names it.
    GenerateContent(String),
}

impl Endpoint {
    fn path(&self) -> Cow<'static, str> {
        match self {
            Self::Chat => "/v1/chat/completions".into(),
            Self::Embeddings => "/v1/embeddings".into(),
            Self::Responses => "/v1/responses".into(),
            Self::Messages => "/v1/messages".into(),
            Self::GenerateContent(model) => format!("/v1beta/models/{model}:generateContent").into(),
        }
    }

    fn format(&self) -> ClientFormat {
        match self {
            Self::Chat | Self::Embeddings => ClientFormat::OpenAiChat,
            Self::Responses => ClientFormat::OpenAiResponses,
            Self::Messages => ClientFormat::Anthropic,
            Self::GenerateContent(_) => ClientFormat::Gemini,
        }
    }
}

/// A whole response with a status below 500.
#[derive(Debug)]
pub struct ModelResponse {
    pub log_id: i64,
    pub status: StatusCode,
    pub body: Bytes,
    pub summary: CallSummary,
}

/// A streaming response. `summary` resolves when the body has been read to its end.
pub struct StreamingResponse {
    pub log_id: i64,
    pub status: StatusCode,
    pub is_stream: bool,
    pub body: Body,
    pub summary: oneshot::Receiver<CallSummary>,
}

impl Proxy<'_> {
    /// Sends a request and waits for the whole response. An error of the provider with a status below 500 is a
    /// response; other failures are problems.
    pub async fn call_model(
        self,
        identity: &Identity,
        request: InternalRequest,
        call: Option<CallInProgress>,
    ) -> ApiResult<ModelResponse> {
        let StreamingResponse { log_id, status, is_stream: _, body, summary } =
            self.send_internal(identity, request, call, false).await?;
        let body = read_response(body, identity.org.memory.open()).await?;
        Ok(ModelResponse { log_id, status, body, summary: summary.await.unwrap_or_default() })
    }

    /// Sends a request; `stream` asks for a stream of events.
    pub async fn send_internal(
        self,
        identity: &Identity,
        mut request: InternalRequest,
        call: Option<CallInProgress>,
        stream: bool,
    ) -> ApiResult<StreamingResponse> {
        let Self { services, state, worker } = self;
        // The model decides on the provider, and the plan of the request checks it.
        if request.provider != AUTO {
            resolve_provider(identity, &request.provider)?;
        }
        if stream {
            append_member(&mut request.body, "stream", "true");
        }
        let body = Bytes::from(std::mem::take(&mut request.body));
        let head = head(&request)?;
        let (origin, summary) = CallOrigin::internal(request.source);
        let origin = origin.with_call(call);
        let inbound = Inbound::whole(body, services.config.max_body_bytes, identity.org.memory.open())?;
        let request_id = services.ids.new_request_id();
        let context =
            RequestContext { services, state, worker, identity, head: &head, request_id: &request_id };
        let response = run(context, inbound, origin).await.map_err(name_field)?;
        let (head, body) = response.into_parts();
        let log_id = head.headers.get("x-gateway-log-id").and_then(|id| id.to_str().ok()?.parse().ok());
        let content_type = head.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        Ok(StreamingResponse {
            log_id: log_id.unwrap_or_default(),
            status: head.status,
            is_stream: content_type.starts_with(b"text/event-stream"),
            body: TextBody::of(
                ContentCodings::from_headers(&head.headers).unwrap_or_default(),
                body,
                MAX_RESPONSE_BYTES as u64,
            ),
            summary,
        })
    }
}

async fn read_response(body: Body, memory: Reservation) -> ApiResult<Bytes> {
    let mut body = Limited::new(body, MAX_RESPONSE_BYTES);
    let mut whole = HeldBuffer::new(memory);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let message = format!("the response ended early: {error}");
            Problem::new(StatusCode::BAD_GATEWAY, "provider_error", message)
        })?;
        if let Ok(data) = frame.into_data() {
            whole.append(&data)?;
        }
    }
    Ok(whole.finish())
}

/// The provider of an internal request.
pub fn resolve_provider(identity: &Identity, provider: &str) -> ApiResult<Arc<Target>> {
    let target = identity.org.providers.resolve("provider", provider)?;
    if target.kind.chat_path.contains("{project}") {
        let why =
            format!("{provider} cannot be called from here: its paths contain a project and a location");
        return Err(Problem::field("provider", why));
    }
    Ok(target)
}

/// The head that a client of the proxy would have sent. It declares its format, so that the request is translated.
fn head(request: &InternalRequest) -> ApiResult<Parts> {
    let value = |text: String| {
        HeaderValue::try_from(text).map_err(|_| Problem::field("provider", "must be plain ASCII text"))
    };
    let mut head = Request::new(());
    *head.method_mut() = Method::POST;
    *head.uri_mut() = Uri::try_from(&*request.endpoint.path())
        .map_err(|_| Problem::field("model", "cannot be a part of a path"))?;
    let headers = head.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("x-gateway-provider", value(request.provider.clone())?);
    headers.insert("x-gateway-format", HeaderValue::from_static(request.endpoint.format().as_str()));
    headers.insert("x-gateway-credential", HeaderValue::from_static("stored"));
    if request.source == LogSource::Replay {
        // The answer of a cache says nothing about the model, and is not compared with one.
        headers.insert("x-gateway-cache", HeaderValue::from_static("false"));
    }
    if !request.metadata.is_empty()
        && let Ok(metadata) =
            HeaderValue::from_bytes(Value::Object(request.metadata.clone()).to_string().as_bytes())
    {
        headers.insert("x-gateway-metadata", metadata);
    }
    if let Some(InsertedPrompt { reference, variables }) = &request.prompt {
        headers.insert("x-gateway-prompt", value(reference.clone())?);
        let variables = HeaderValue::from_bytes(variables.as_bytes());
        let variables = variables.map_err(|_| Problem::field("variables", "cannot be sent in a header"))?;
        headers.insert("x-gateway-prompt-variables", variables);
    }
    if let Some(timeout) = request.timeout {
        headers.insert("x-gateway-timeout", value(timeout.as_millis().max(1).to_string())?);
    }
    Ok(head.into_parts().0)
}

/// Callers of internal requests name the provider in a field, not in a header.
fn name_field(mut problem: Problem) -> Problem {
    if let Some(rest) = problem.message.strip_prefix("x-gateway-provider: ") {
        problem.message = format!("provider: {rest}").into();
    }
    problem
}
