//! One HTTP exchange with a provider or another destination: timeout, egress guard, and errors that name their cause.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::llm::failure::AttemptOutcome;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;

use super::body::{OutboundBody, RequestBodyError, StreamedCopy};
use super::clients::{Clients, SendError, ip_literal_is_allowed};
use super::connector::AddressBlocked;
use super::pool::UpstreamBody;
use crate::problem::Problem;
use crate::services::Services;

/// Limits for reading an error body.
pub const MAX_ERROR_BODY: usize = 16 << 10;
pub const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ERROR_TEXT: usize = 500;

/// Why an exchange has no response.
#[derive(Debug)]
pub struct ExchangeError {
    pub message: String,
    pub outcome: AttemptOutcome,
    /// The caller's body could not be read: the fault is not the destination's.
    pub request_problem: Option<Box<Problem>>,
}

impl ExchangeError {
    fn new(outcome: AttemptOutcome, message: impl Into<String>) -> Self {
        Self { message: message.into(), outcome, request_problem: None }
    }

    pub fn unreachable(message: impl Into<String>) -> Self {
        Self::new(AttemptOutcome::Connect, message)
    }

    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(AttemptOutcome::Timeout, message)
    }
}

/// Sends a request to an address that a tenant chose, such as a webhook or an export. Private addresses are blocked.
pub async fn send_guarded(
    services: &Services,
    clients: &Clients,
    request: Request<Bytes>,
    timeout: Duration,
) -> Result<Response<UpstreamBody>, ExchangeError> {
    exchange(services, clients, true, request.map(OutboundBody::whole), timeout).await
}

/// Sends a request and waits for the response head. `tenant_url`: a tenant chose the address, so the egress guard
/// applies.
pub async fn exchange(
    services: &Services,
    clients: &Clients,
    tenant_url: bool,
    request: Request<OutboundBody>,
    timeout: Duration,
) -> Result<Response<UpstreamBody>, ExchangeError> {
    let rule = services.egress.rule(tenant_url);
    if !ip_literal_is_allowed(request.uri(), rule) {
        return Err(ExchangeError::unreachable("the address is private or local, which is not allowed"));
    }
    let upload = request.body().streamed_copy();
    match tokio::time::timeout(timeout, clients.send(request, rule)).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(explain(&error)),
        Err(_) if upload.is_some_and(|upload| awaits_caller(&upload)) => {
            let problem = Problem::request_timeout();
            let message = problem.message.clone();
            Err(ExchangeError { request_problem: Some(Box::new(problem)), ..ExchangeError::timeout(message) })
        }
        Err(_) => Err(ExchangeError::timeout(format!("no response within {} ms", timeout.as_millis()))),
    }
}

/// Returns true if the destination has been sent all that the caller has uploaded so far.
fn awaits_caller(upload: &Mutex<StreamedCopy>) -> bool {
    upload.lock().unwrap_or_else(PoisonError::into_inner).awaits_caller
}

/// Reads the start of a body: whole chunks until there are `length` bytes, the body ends, or the time is up.
pub async fn read_prefix(body: &mut UpstreamBody, length: usize, timeout: Duration) -> Bytes {
    let mut prefix = Vec::new();
    let read = async {
        while prefix.len() < length
            && let Some(Ok(frame)) = body.frame().await
        {
            if let Ok(data) = frame.into_data() {
                prefix.extend_from_slice(&data);
            }
        }
    };
    let _ = tokio::time::timeout(timeout, read).await;
    prefix.into()
}

/// Describes an error response by its status and the start of its body.
pub fn error_message(status: StatusCode, prefix: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(prefix).chars().take(MAX_ERROR_TEXT).collect();
    let code = status.as_u16();
    match text.trim() {
        "" => format!("status {code}"),
        text => format!("status {code}: {text}"),
    }
}

fn explain(error: &SendError) -> ExchangeError {
    if let SendError::Certificates(_) = error {
        return ExchangeError::unreachable(error.to_string());
    }
    let mut causes = Vec::new();
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(cause) = source {
        causes.push(cause);
        source = cause.source();
    }
    if let Some(RequestBodyError(problem)) = causes.iter().find_map(|cause| cause.downcast_ref()) {
        let request_problem = Some(Box::new(problem.clone()));
        let message = problem.message.clone().into();
        return ExchangeError { message, outcome: AttemptOutcome::Reset, request_problem };
    }
    let root = causes.last().map_or_else(String::new, ToString::to_string);
    if causes.iter().any(|cause| cause.downcast_ref::<AddressBlocked>().is_some()) {
        return ExchangeError::unreachable(
            "the host name resolves to a private or local address, which is not allowed",
        );
    }
    if error.is_connect() {
        let is_timeout = causes
            .iter()
            .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
            .any(|io| io.kind() == std::io::ErrorKind::TimedOut);
        let message = format!("cannot connect: {root}");
        return if is_timeout {
            ExchangeError::timeout(message)
        } else {
            ExchangeError::unreachable(message)
        };
    }
    ExchangeError::new(AttemptOutcome::Reset, format!("connection closed before a response: {root}"))
}
