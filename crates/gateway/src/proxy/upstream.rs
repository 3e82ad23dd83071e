//! One attempt: sends the request to its target and classifies the response.

use std::time::Duration;

use bytes::Bytes;
use gateway_core::llm::BodyFraming;
use gateway_core::llm::failure::{AttemptOutcome, Refusal, classify, retry_after};
use gateway_core::llm::paths::has_parent_segment;
use gateway_core::llm::usage::Usage;
use gateway_core::time::Timestamp;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::time::Instant;

use super::attempt::{Attempt, UsageChunk};
use super::content_decoding::ContentCodings;
use super::context::RequestContext;
use super::response_body::BodySource;
use super::response_format::ResponseContent;
use super::{credentials, headers};
use crate::compute::ComputeError;
use crate::memory::MemoryExhausted;
use crate::outbound::body::OutboundBody;
use crate::outbound::exchange::{
    ERROR_BODY_TIMEOUT, ExchangeError, MAX_ERROR_BODY, error_message, exchange, read_prefix,
};
use crate::outbound::pool::UpstreamBody;
use crate::problem::Problem;
use crate::targets::auth::{SigningError, sign, signs_with};

/// A response that can be forwarded.
pub struct UpstreamResponse {
    pub head: http::response::Parts,
    /// How the provider framed the body, once it is decoded.
    pub framing: BodyFraming,
    pub content: ResponseContent,
}

impl UpstreamResponse {
    pub fn new(head: http::response::Parts, source: BodySource) -> Self {
        let (framing, codings) = match ContentCodings::from_headers(&head.headers) {
            Some(codings) => (body_framing(&head.headers), codings),
            // The body cannot be read.
            None => (BodyFraming::Opaque, ContentCodings::default()),
        };
        Self { head, framing, content: ResponseContent::Streaming { source, codings, translator: None } }
    }

    /// Returns `Err` for statuses that allow a retry or fallback; the response is kept so that it can still be
    /// forwarded.
    pub fn or_failed(self, now: Timestamp) -> Result<Self, AttemptError> {
        let code = self.head.status.as_u16();
        if classify(AttemptOutcome::Status { code }).is_none() {
            return Ok(self);
        }
        let retry_after = requested_wait(&self.head.headers, now);
        let error = AttemptError::status(code, format!("status {code}"));
        Err(AttemptError { retry_after, response: Some(Box::new(self)), ..error })
    }
}

/// The framing of a body by its headers.
fn body_framing(headers: &HeaderMap) -> BodyFraming {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    BodyFraming::from_content_type(content_type.unwrap_or_default())
}

/// A failed attempt.
pub struct AttemptError {
    pub message: String,
    pub outcome: AttemptOutcome,
    pub status: Option<u16>,
    /// The delay that the provider requested (`retry-after`).
    pub retry_after: Option<Duration>,
    /// The provider's response, if it can be forwarded.
    pub response: Option<Box<UpstreamResponse>>,
    /// The failure is caused by the caller's request.
    pub caller_problem: Option<Box<Problem>>,
    /// The provider rejected the usage option that the gateway had added to the body.
    pub usage_refused: bool,
    /// How long the target had sent nothing when the attempt failed. None: since its start.
    pub silence: Option<Duration>,
    /// What the provider reported as used, although its response is of no use.
    pub usage: Option<Box<Usage>>,
}

impl AttemptError {
    pub fn new(outcome: AttemptOutcome, message: impl Into<String>) -> Self {
        let status = match outcome {
            AttemptOutcome::Status { code } => Some(code),
            _ => None,
        };
        Self {
            message: message.into(),
            outcome,
            status,
            retry_after: None,
            response: None,
            caller_problem: None,
            usage_refused: false,
            silence: None,
            usage: None,
        }
    }

    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(AttemptOutcome::Timeout, message)
    }

    pub fn status(code: u16, message: impl Into<String>) -> Self {
        Self::new(AttemptOutcome::Status { code }, message)
    }

    /// Why the provider refused the input, if it did.
    pub fn refusal(&self) -> Option<Refusal> {
        match self.outcome {
            AttemptOutcome::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    pub fn is_timeout(&self) -> bool {
        self.outcome == AttemptOutcome::Timeout
    }

    fn overloaded(problem: Problem) -> Self {
        let message = problem.message.clone();
        let caller_problem = Some(Box::new(problem));
        Self { caller_problem, ..Self::new(AttemptOutcome::InvalidResponse, message) }
    }
}

impl From<ExchangeError> for AttemptError {
    fn from(error: ExchangeError) -> Self {
        let ExchangeError { message, outcome, request_problem } = error;
        Self { caller_problem: request_problem, ..Self::new(outcome, message) }
    }
}

/// The response cannot be held. Another attempt could not be either.
impl From<MemoryExhausted> for AttemptError {
    fn from(error: MemoryExhausted) -> Self {
        Self::overloaded(error.into())
    }
}

/// The sandbox cannot read the request, or the response cannot be converted. Another attempt could not either.
impl From<ComputeError> for AttemptError {
    fn from(error: ComputeError) -> Self {
        Self::overloaded(error.into())
    }
}

impl From<SigningError> for AttemptError {
    fn from(error: SigningError) -> Self {
        ExchangeError::unreachable(error.to_string()).into()
    }
}

/// Sends the request to the target of the attempt, once.
pub async fn send_attempt(
    context: RequestContext<'_>,
    attempt: &Attempt<'_>,
    body: OutboundBody,
    timeout: Duration,
) -> Result<UpstreamResponse, AttemptError> {
    let deadline = Instant::now() + timeout;
    let response = send(context, attempt, body, timeout).await?;
    let error_timeout = deadline.saturating_duration_since(Instant::now()).min(ERROR_BODY_TIMEOUT);
    let (head, mut body) = response.into_parts();
    let now = context.now();
    if head.status.is_server_error() {
        let retry_after = requested_wait(&head.headers, now);
        let prefix = read_prefix(&mut body, MAX_ERROR_BODY, error_timeout).await;
        let message = error_message(head.status, &decoded_prefix(&head.headers, &prefix));
        return Err(AttemptError { retry_after, ..AttemptError::status(head.status.as_u16(), message) });
    }
    let may_refuse_usage = head.status == StatusCode::BAD_REQUEST && attempt.usage_chunk == UsageChunk::Ours;
    let may_refuse_input = attempt.plan.watches_refusals() && head.status.is_client_error();
    if !may_refuse_usage && !may_refuse_input {
        return UpstreamResponse::new(head, BodySource::Upstream(body)).or_failed(now);
    }
    // A strict provider may not know the field that the gateway added. Its error names the field then.
    let prefix = read_prefix(&mut body, MAX_ERROR_BODY, error_timeout).await;
    let text = decoded_prefix(&head.headers, &prefix);
    let usage_refused = may_refuse_usage && memchr::memmem::find(&text, b"stream_options").is_some();
    let refusal = Refusal::of_error(&text).filter(|_| may_refuse_input && !usage_refused);
    let chunks = Some(prefix).filter(|prefix| !prefix.is_empty()).into_iter().collect();
    let response = UpstreamResponse::new(head, BodySource::Prefixed(chunks, body));
    response.or_failed(now).map_err(|error| {
        let outcome = refusal.map_or(error.outcome, AttemptOutcome::Refused);
        AttemptError { outcome, usage_refused, ..error }
    })
}

async fn send(
    context: RequestContext<'_>,
    attempt: &Attempt<'_>,
    body: OutboundBody,
    timeout: Duration,
) -> Result<Response<UpstreamBody>, AttemptError> {
    let RequestContext { services, worker, head, .. } = context;
    let target = attempt.provider();
    let base = target.base.as_ref().ok_or_else(|| ExchangeError::unreachable("no address is configured"))?;
    let path = attempt.path(head);
    let path = credentials::outbound_path(attempt, &path);
    if attempt.has_model_in_path() && has_parent_segment(path.split('?').next().unwrap_or_default()) {
        let problem = super::parent_segment();
        let message = problem.message.clone();
        let error = AttemptError::new(AttemptOutcome::Untranslatable, message);
        return Err(AttemptError { caller_problem: Some(Box::new(problem)), ..error });
    }
    let uri = base.join(&path).map_err(|_| ExchangeError::unreachable("the request path is invalid"))?;
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.headers_mut() = headers::outbound(context, attempt);
    *request.uri_mut() = uri;
    if let Some(secret) = attempt.secret().filter(|secret| signs_with(target, secret))
        && !credentials::has_callers_credential(context, attempt)
    {
        sign(target, secret, &mut request, context.now())?;
    }
    Ok(exchange(services, &worker.clients, target.guarded, request, timeout).await?)
}

/// The text of the start of an error body.
fn decoded_prefix(headers: &HeaderMap, prefix: &Bytes) -> Bytes {
    let codings = ContentCodings::from_headers(headers).unwrap_or_default();
    codings.decode_prefix(prefix, MAX_ERROR_BODY as u64)
}

fn requested_wait(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let named = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    retry_after(named, now.0)
}
