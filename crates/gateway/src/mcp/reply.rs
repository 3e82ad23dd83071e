//! Answers to callers as HTTP: one JSON message, or a stream of events that ends with it.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use gateway_core::mcp::{Era, RequestId, RpcError, codes, response_text};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::upstream::{Failure, FailureKind, SESSION_ID};
use crate::problem::Problem;

/// How a request ended.
pub struct Outcome {
    pub result: Result<Box<RawValue>, RpcError>,
    /// The status of the answer, where the caller's revision gives errors one.
    pub status: StatusCode,
    /// Older revisions have the status too.
    is_for_all: bool,
    /// The error code of the log row.
    pub code: Option<&'static str>,
}

impl Outcome {
    pub fn ok(result: Box<RawValue>) -> Self {
        Self { result: Ok(result), status: StatusCode::OK, is_for_all: false, code: None }
    }

    pub fn error(error: RpcError) -> Self {
        let status = match error.code {
            codes::PARSE
            | codes::INVALID_REQUEST
            | codes::HEADER_MISMATCH
            | codes::MISSING_CAPABILITY
            | codes::UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
            codes::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        };
        Self { result: Err(error), status, is_for_all: status == StatusCode::BAD_REQUEST, code: None }
    }

    /// The request itself is wrong, in every revision.
    pub fn bad_request(error: RpcError) -> Self {
        Self { status: StatusCode::BAD_REQUEST, is_for_all: true, ..Self::error(error) }
    }

    /// The server gave no usable answer.
    pub fn failed(server: &str, failure: &Failure) -> Self {
        let status = match failure.kind {
            FailureKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
            FailureKind::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            FailureKind::SessionGone => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_GATEWAY,
        };
        let message = format!("The MCP server '{server}' failed: {}", failure.message);
        // Clients begin a new session when they see this status.
        let is_for_all = failure.kind == FailureKind::SessionGone;
        let code = match failure.kind {
            FailureKind::Overloaded => "overloaded",
            FailureKind::SignIn => "auth_required",
            _ => "provider_error",
        };
        Self { result: Err(RpcError::internal(message)), status, is_for_all, code: Some(code) }
    }

    /// The service itself could not answer.
    pub fn problem(problem: &Problem) -> Self {
        let result = Err(RpcError::internal(problem.message.to_string()));
        Self { result, status: problem.status, is_for_all: false, code: Some(problem.code) }
    }

    /// The caller has to sign in at the server first.
    pub fn sign_in(result: Box<RawValue>) -> Self {
        Self { code: Some("auth_required"), ..Self::ok(result) }
    }

    /// The status that a caller of the era gets. Older revisions know only errors of the request itself.
    fn status_for(&self, era: Era) -> StatusCode {
        if era.is_modern() || self.is_for_all { self.status } else { StatusCode::OK }
    }
}

/// A message on the way to the caller.
pub enum Output {
    /// A notification, or a question of the server.
    Message(String),
    Done(Box<Outcome>),
}

pub fn json(id: Option<&RequestId>, era: Era, outcome: &Outcome) -> Response {
    let mut response = Response::new(Body::from(response_text(id, &outcome.result)));
    *response.status_mut() = outcome.status_for(era);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// 202 without a body: the message needs no answer.
pub fn accepted() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// Waits for the first message of a call. A call that ends without others is answered as JSON.
pub async fn of_call(id: RequestId, era: Era, mut outputs: mpsc::Receiver<Output>) -> Response {
    match outputs.recv().await {
        Some(Output::Done(outcome)) => json(Some(&id), era, &outcome),
        Some(Output::Message(message)) => {
            let first = stream::once(std::future::ready(event(&message)));
            let rest = stream::unfold((outputs, id), |(mut outputs, id)| async move {
                let text = match outputs.recv().await? {
                    Output::Message(message) => message,
                    Output::Done(outcome) => response_text(Some(&id), &outcome.result),
                };
                Some((event(&text), (outputs, id)))
            });
            events(futures_util::StreamExt::chain(first, rest))
        }
        // The call was cancelled.
        None => accepted(),
    }
}

/// A stream of events that no proxy buffers.
pub fn events(events: impl futures_util::Stream<Item = Bytes> + Send + 'static) -> Response {
    let ok = futures_util::StreamExt::map(events, Ok::<_, std::convert::Infallible>);
    let mut response = Response::new(Body::from_stream(ok));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

pub fn event(message: &str) -> Bytes {
    Bytes::from(format!("event: message\ndata: {message}\n\n"))
}

pub fn with_session(mut response: Response, session: Option<&str>) -> Response {
    if let Some(session) = session.and_then(|session| HeaderValue::from_str(session).ok()) {
        response.headers_mut().insert(SESSION_ID, session);
    }
    response
}
