//! One HTTP exchange with an MCP server: a message is posted, and the messages of the answer are read one by one, from a
//! JSON body or from a stream of events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway_core::ids::OrgId;
use gateway_core::llm::failure::AttemptOutcome;
use gateway_core::llm::sse::{EventItem, EventLimits, EventReader};
use gateway_core::mcp::{Incoming, Members, RequestId, parse};
use gateway_core::memory::shallow_tree_bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::BodyExt as _;

use crate::mcp_servers::Server;
use crate::memory::{MemoryAccount, MemoryExhausted, Reservation};
use crate::outbound::clients::Clients;
use crate::outbound::exchange::{
    ERROR_BODY_TIMEOUT, ExchangeError, MAX_ERROR_BODY, error_message, read_prefix, send_guarded,
};
use crate::outbound::pool::UpstreamBody;
use crate::services::Services;

/// The largest message of a server.
pub const MAX_MESSAGE: usize = 8 << 20;
/// The members of a message and of its result or parameters, and the entries of their lists. What is deeper stays text.
const PARSED_DEPTH: usize = 3;
/// How long the work on a large message may wait for a thread, and take.
const WORK_TIMEOUT: Duration = Duration::from_secs(10);
const LIMITS: EventLimits = EventLimits { line: MAX_MESSAGE, event: MAX_MESSAGE };

pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Why a server gave no usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    Unreachable,
    Timeout,
    /// The credential that all callers share is refused.
    Refused,
    /// The caller has to store a credential of its own, or a working one.
    SignIn,
    /// The server no longer knows the session.
    SessionGone,
    Status(u16),
    TooLarge,
    Invalid,
    /// The organization's share of memory or of computing time is in use.
    Overloaded,
}

impl Failure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The server answered, so it is of another era at most.
    pub fn is_client_error(&self) -> bool {
        matches!(self.kind, FailureKind::Status(400..=499) | FailureKind::SessionGone)
    }
}

impl From<ExchangeError> for Failure {
    fn from(error: ExchangeError) -> Self {
        let kind = match error.outcome {
            AttemptOutcome::Timeout => FailureKind::Timeout,
            _ => FailureKind::Unreachable,
        };
        Self { kind, message: error.message }
    }
}

impl From<MemoryExhausted> for Failure {
    fn from(_: MemoryExhausted) -> Self {
        Self::new(
            FailureKind::Overloaded,
            "the organization holds as much of bodies in memory as it may; retry later",
        )
    }
}

/// A server as one caller reaches it.
pub struct Peer<'a> {
    pub services: &'a Arc<Services>,
    pub clients: &'a Clients,
    pub org: OrgId,
    pub server: &'a Server,
    /// The credentials, and headers of the caller that are sent on.
    pub headers: HeaderMap,
    pub memory: &'a Arc<MemoryAccount>,
    /// The server has the transport before Streamable HTTP.
    pub is_sse: bool,
}

/// The headers of the protocol.
#[derive(Debug, Clone, Default)]
pub struct ProtocolHeaders {
    pub version: String,
    pub session: Option<String>,
    pub others: Vec<(HeaderName, HeaderValue)>,
    /// Where messages of this connection go, for servers with the older transport.
    pub endpoint: Option<Uri>,
}

impl ProtocolHeaders {
    fn add_to(&self, headers: &mut HeaderMap) {
        let named = [(PROTOCOL_VERSION, Some(&self.version)), (SESSION_ID, self.session.as_ref())];
        for (name, value) in named {
            let value = value.filter(|value| !value.is_empty());
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(name, value);
            }
        }
        headers.extend(self.others.iter().cloned());
    }
}

/// The text of a request.
pub fn request_text(id: &RequestId, method: &str, params: &Members) -> String {
    let (method, params) = (text(&method), text(params));
    format!(r#"{{"jsonrpc":"2.0","id":{},"method":{method},"params":{params}}}"#, id.json())
}

/// The text of a notification.
pub fn notification_text(method: &str, params: &Members) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":{},"params":{}}}"#, text(&method), text(params))
}

fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".into())
}

/// Does work that takes time in proportion to a message of a server: that of a large one where computation that tenants
/// cause belongs.
pub async fn work<T: Send + 'static>(
    services: &Services,
    org: OrgId,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let overloaded = |_| {
        Failure::new(FailureKind::Overloaded, "the server's answer could not be read in time; retry later")
    };
    services.compute.run_for_body(org, bytes, WORK_TIMEOUT, work).await.map_err(overloaded)
}

impl Peer<'_> {
    /// Posts a message and waits for the head of the answer.
    pub async fn post(
        &self,
        message: String,
        protocol: &ProtocolHeaders,
        timeout: Duration,
    ) -> Result<Exchange, Failure> {
        if self.is_sse || protocol.endpoint.is_some() {
            let Some(endpoint) = &protocol.endpoint else { return self.post_by_sse(message, timeout).await };
            return self.send_to(endpoint, message, timeout).await.map(|()| Exchange::empty(self));
        }
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let response = self.send(Method::POST, headers, (message.into(), protocol), timeout).await?;
        Exchange::new(response, protocol.session.is_some(), self).await
    }

    /// Opens the stream that the server has for a session.
    pub async fn get(&self, protocol: &ProtocolHeaders, timeout: Duration) -> Result<Exchange, Failure> {
        let headers = self.headers.clone();
        let response = self.send(Method::GET, headers, (Bytes::new(), protocol), timeout).await?;
        Exchange::new(response, protocol.session.is_some(), self).await
    }

    /// Ends a session of the server, if it has a way to do so.
    pub async fn end_session(&self, protocol: &ProtocolHeaders, timeout: Duration) {
        let _ = self.send(Method::DELETE, self.headers.clone(), (Bytes::new(), protocol), timeout).await;
    }

    pub(super) async fn send(
        &self,
        method: Method,
        mut headers: HeaderMap,
        (body, protocol): (Bytes, &ProtocolHeaders),
        timeout: Duration,
    ) -> Result<http::Response<UpstreamBody>, Failure> {
        let accepted =
            if method == Method::GET { "text/event-stream" } else { "application/json, text/event-stream" };
        headers.insert(ACCEPT, HeaderValue::from_static(accepted));
        protocol.add_to(&mut headers);
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = protocol.endpoint.as_ref().unwrap_or(&self.server.uri).clone();
        *request.headers_mut() = headers;
        Ok(send_guarded(self.services, self.clients, request, timeout).await?)
    }
}

enum Content {
    Json,
    Events(EventReader),
}

/// The answer to a posted message.
pub struct Exchange {
    /// The session that the server assigned.
    pub session: Option<String>,
    /// Where messages of this connection go, for servers with the older transport.
    pub endpoint: Option<Uri>,
    body: Option<UpstreamBody>,
    content: Content,
    /// Messages that were read and not yet taken.
    waiting: VecDeque<Vec<u8>>,
    /// What was read of an incomplete message.
    buffered: usize,
    whole: Vec<u8>,
    held: Reservation,
    has_ended: bool,
    services: Arc<Services>,
    org: OrgId,
}

impl Exchange {
    /// Nothing is answered.
    pub(super) fn empty(peer: &Peer<'_>) -> Self {
        Self {
            session: None,
            endpoint: None,
            body: None,
            content: Content::Json,
            waiting: VecDeque::new(),
            buffered: 0,
            whole: Vec::new(),
            held: peer.memory.open(),
            has_ended: true,
            services: Arc::clone(peer.services),
            org: peer.org,
        }
    }

    pub(super) async fn new(
        response: http::Response<UpstreamBody>,
        has_session: bool,
        peer: &Peer<'_>,
    ) -> Result<Self, Failure> {
        let (head, mut body) = response.into_parts();
        let text_of = |name: &HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
        let is_stream = text_of(&CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/event-stream"));
        let session = text_of(&SESSION_ID).map(ToOwned::to_owned);
        let mut waiting = VecDeque::new();
        let mut has_ended = matches!(head.status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT);
        if !head.status.is_success() {
            let prefix = read_prefix(&mut body, MAX_ERROR_BODY, ERROR_BODY_TIMEOUT).await;
            // Servers send the errors of JSON-RPC with statuses that fit them.
            let is_answer = matches!(parse(&prefix), Ok(Incoming::Response { .. }));
            let failure = status_failure(head.status, &prefix, has_session, peer.server);
            if !is_answer || !matches!(failure.kind, FailureKind::Status(_)) {
                return Err(failure);
            }
            waiting.push_back(prefix.to_vec());
            has_ended = true;
        }
        let content = if is_stream { Content::Events(EventReader::new(LIMITS)) } else { Content::Json };
        let (held, whole) = (peer.memory.open(), Vec::new());
        let (services, org) = (Arc::clone(peer.services), peer.org);
        Ok(Self {
            session,
            endpoint: None,
            body: Some(body),
            content,
            waiting,
            buffered: 0,
            whole,
            held,
            has_ended,
            services,
            org,
        })
    }

    /// The next message. `None` at the end of the answer.
    pub async fn next(&mut self) -> Result<Option<Incoming>, Failure> {
        let invalid =
            || Failure::new(FailureKind::Invalid, "the server sent something that is no JSON-RPC message");
        let Some(message) = self.next_text().await? else { return Ok(None) };
        let parsed = work(&self.services, self.org, message.len(), move || parse(&message)).await?;
        parsed.map(Some).map_err(|_| invalid())
    }

    /// The text of the next message, with memory for what it is parsed into.
    pub(super) async fn next_text(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                // Of the members that the message is parsed into. The next read releases it.
                let bytes = message.len();
                let measuring = move || {
                    let parsed = shallow_tree_bytes(&message, PARSED_DEPTH).saturating_mul(2);
                    (message, parsed)
                };
                let (message, parsed) = work(&self.services, self.org, bytes, measuring).await?;
                self.held.resize(self.buffered.saturating_add(parsed))?;
                return Ok(Some(message));
            }
            if self.has_ended {
                return Ok(None);
            }
            self.read().await?;
        }
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self.content, Content::Events(_))
    }

    /// Ends the exchange. The memory that it holds covers the last message.
    pub fn into_memory(self) -> Reservation {
        self.held
    }

    async fn read(&mut self) -> Result<(), Failure> {
        let Some(body) = &mut self.body else {
            self.has_ended = true;
            return Ok(());
        };
        let frame = body.frame().await.transpose();
        let broken = |_| Failure::new(FailureKind::Unreachable, "the server's answer ended early");
        let Some(frame) = frame.map_err(broken)? else {
            self.has_ended = true;
            match &mut self.content {
                Content::Json if !self.whole.is_empty() => {
                    self.waiting.push_back(std::mem::take(&mut self.whole));
                }
                Content::Json => {}
                Content::Events(reader) => {
                    let waiting = &mut self.waiting;
                    reader.finish(|item| {
                        take(item, waiting);
                    });
                }
            }
            return Ok(());
        };
        let Ok(data) = frame.into_data() else { return Ok(()) };
        self.buffered += data.len();
        self.held.resize(self.buffered)?;
        let mut is_overlong = false;
        match &mut self.content {
            Content::Json => {
                is_overlong = self.whole.len() + data.len() > MAX_MESSAGE;
                if !is_overlong {
                    self.whole.extend_from_slice(&data);
                }
            }
            Content::Events(reader) => {
                let waiting = &mut self.waiting;
                reader.feed(&data, |item| is_overlong |= take(item, waiting));
                if !waiting.is_empty() {
                    self.buffered = waiting.iter().map(Vec::len).sum();
                }
            }
        }
        if is_overlong {
            let message = format!("the server's answer is larger than {MAX_MESSAGE} bytes");
            return Err(Failure::new(FailureKind::TooLarge, message));
        }
        Ok(())
    }
}

/// Adds the message of an event. True if it is too large.
fn take(item: EventItem<'_>, waiting: &mut VecDeque<Vec<u8>>) -> bool {
    match item {
        EventItem::Event(event) => {
            if !event.data.is_empty() {
                waiting.push_back(event.data.to_vec());
            }
            false
        }
        EventItem::Overlong => true,
    }
}

fn status_failure(status: StatusCode, prefix: &[u8], has_session: bool, server: &Server) -> Failure {
    let message = error_message(status, prefix);
    let kind = match status {
        StatusCode::NOT_FOUND if has_session => FailureKind::SessionGone,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if server.is_per_user() => FailureKind::SignIn,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => FailureKind::Refused,
        status => FailureKind::Status(status.as_u16()),
    };
    Failure { kind, message }
}
