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

use super::record::Logged;
use super::upstream::{Failure, FailureKind, SESSION_ID};
use crate::memory::{Reservation, hold};
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
    /// What the row has of the result, if that is known already.
    pub logged: Option<Logged>,
    /// Of a result of a server, until it is sent.
    memory: Option<Reservation>,
}

impl Outcome {
    pub fn ok(result: Box<RawValue>) -> Self {
        Self {
            result: Ok(result),
            status: StatusCode::OK,
            is_for_all: false,
            code: None,
            logged: None,
            memory: None,
        }
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
        let is_for_all = status == StatusCode::BAD_REQUEST;
        Self { result: Err(error), status, is_for_all, code: None, logged: None, memory: None }
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
        let result = Err(RpcError::internal(message));
        Self { result, status, is_for_all, code: Some(code), logged: None, memory: None }
    }

    /// The service itself could not answer.
    pub fn problem(problem: &Problem) -> Self {
        let result = Err(RpcError::internal(problem.message.to_string()));
        let (status, code) = (problem.status, Some(problem.code));
        Self { result, status, is_for_all: false, code, logged: None, memory: None }
    }

    /// The caller has to sign in at the server first.
    pub fn sign_in(result: Box<RawValue>) -> Self {
        Self { code: Some("auth_required"), ..Self::ok(result) }
    }

    pub fn logging(self, logged: Logged) -> Self {
        Self { logged: Some(logged), ..self }
    }

    /// Holds the memory of the result until the answer is sent.
    pub fn holding(self, memory: Reservation) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// Nothing is derived from the result any more: only its text and the text of the answer need memory.
    pub fn release_derived(&mut self) {
        if let (Some(memory), Ok(result)) = (&mut self.memory, &self.result) {
            memory.shrink_to(result.get().len().saturating_mul(2));
        }
    }

    /// The status that a caller of the era gets. Older revisions know only errors of the request itself.
    fn status_for(&self, era: Era) -> StatusCode {
        if era.is_modern() || self.is_for_all { self.status } else { StatusCode::OK }
    }
}

/// A message on the way to the caller.
pub enum Output {
    /// A notification, or a question of the server.
    Message(String, Reservation),
    Done(Box<Outcome>),
}

pub fn json(id: Option<&RequestId>, era: Era, outcome: &Outcome) -> Response {
    json_body(Body::from(response_text(id, &outcome.result)), outcome.status_for(era))
}

fn json_body(body: Body, status: StatusCode) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Bytes that are sent, with the memory that was reserved for them.
fn held(text: String, memory: Option<Reservation>) -> Bytes {
    match memory {
        Some(memory) => hold(text, memory),
        None => Bytes::from(text),
    }
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
        Some(Output::Done(mut outcome)) => {
            let text = response_text(Some(&id), &outcome.result);
            json_body(Body::from(held(text, outcome.memory.take())), outcome.status_for(era))
        }
        Some(Output::Message(message, memory)) => {
            let first = stream::once(std::future::ready(held(event_text(&message), Some(memory))));
            let rest = stream::unfold((outputs, id), |(mut outputs, id)| async move {
                let (text, memory) = match outputs.recv().await? {
                    Output::Message(message, memory) => (message, Some(memory)),
                    Output::Done(mut outcome) => {
                        (response_text(Some(&id), &outcome.result), outcome.memory.take())
                    }
                };
                Some((held(event_text(&text), memory), (outputs, id)))
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
    Bytes::from(event_text(message))
}

/// An event with the memory that was reserved for its message.
pub fn held_event(message: &str, memory: Reservation) -> Bytes {
    held(event_text(message), Some(memory))
}

/// Servers may send JSON with line breaks, which would end the line of the data. They are only between tokens, because
/// strings have them escaped.
fn event_text(message: &str) -> String {
    const START: &str = "event: message\ndata: ";
    let mut text = String::with_capacity(START.len() + message.len() + 2);
    text.push_str(START);
    for (index, line) in message.split(['\n', '\r']).enumerate() {
        if index > 0 {
            text.push(' ');
        }
        text.push_str(line);
    }
    text.push_str("\n\n");
    text
}

pub fn with_session(mut response: Response, session: Option<&str>) -> Response {
    if let Some(session) = session.and_then(|session| HeaderValue::from_str(session).ok()) {
        response.headers_mut().insert(SESSION_ID, session);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_with_line_breaks_is_one_line_of_data() {
        let sent = event("{\r\n  \"text\": \"a\\nb\"\n}");
        let expected: &[u8] = b"event: message\ndata: {    \"text\": \"a\\nb\" }\n\n";
        assert_eq!(sent, expected);
    }
}
