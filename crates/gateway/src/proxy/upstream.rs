//! One call to a provider: time-outs, the egress guard for addresses that a tenant chose, and the signature of providers
//! that want one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway_core::llm::BodyFraming;
use gateway_core::llm::failure::{AttemptOutcome, classify, retry_after};
use gateway_core::llm::providers::Auth;
use gateway_core::llm::sigv4::{self, Credentials, Scope};
use gateway_core::llm::translate::StreamTranslator;
use gateway_core::time::Timestamp;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use secrecy::{ExposeSecret, SecretString};

use super::Worker;
use super::body::{Outbound, RequestBodyError};
use super::call::Call;
use super::clients::{Clients, Refused, SendError, literal_is_allowed};
use super::headers;
use super::pool::Answer;
use super::response_body::Source;
use super::response_format::Collected;
use super::target::{Credential, Target};
use super::validate::body_framing;
use crate::app::App;
use crate::problem::Problem;

const PROBE_TIMEOUT: Duration = Duration::from_secs(15);
/// How much of an error's body is read to tell the caller what was wrong.
const ERROR_BYTES: usize = 16 << 10;
const ERROR_TIME: Duration = Duration::from_secs(5);

/// An answer that can be passed on.
pub struct UpstreamResponse {
    pub head: http::response::Parts,
    pub source: Source,
    /// How the provider framed it.
    pub framing: BodyFraming,
    /// The stream is translated as it passes.
    pub translator: Option<Box<StreamTranslator>>,
    /// It was collected, and the source is what was made of it.
    pub collected: Option<Collected>,
}

impl UpstreamResponse {
    pub fn new(head: http::response::Parts, source: Source) -> Self {
        let framing = body_framing(&head.headers);
        Self { head, source, framing, translator: None, collected: None }
    }

    /// Tells an answer that is a failure, and would be another's success, from one that is none. It can be passed on
    /// all the same.
    pub fn or_failed(self, now: Timestamp) -> Result<Self, AttemptError> {
        let code = self.head.status.as_u16();
        if classify(AttemptOutcome::Status { code }).is_none() {
            return Ok(self);
        }
        let retry_after = asked_wait(&self.head.headers, now);
        let failed = AttemptError::answered(code, format!("it answered {code}"));
        Err(AttemptError { retry_after, answer: Some(Box::new(self)), ..failed })
    }
}

/// No answer, or none that one would choose.
pub struct AttemptError {
    pub message: String,
    pub outcome: AttemptOutcome,
    pub status: Option<u16>,
    /// How long the provider wants to be left alone.
    pub retry_after: Option<Duration>,
    /// What it answered, where that can be passed on.
    pub answer: Option<Box<UpstreamResponse>>,
    /// The call failed because of the caller's own body.
    pub callers_fault: Option<Box<Problem>>,
    /// It took exception to what we ourselves had put into the body.
    pub usage_refused: bool,
}

impl AttemptError {
    pub fn of(outcome: AttemptOutcome, message: impl Into<String>) -> Self {
        let status = match outcome {
            AttemptOutcome::Status { code } => Some(code),
            _ => None,
        };
        Self {
            message: message.into(),
            outcome,
            status,
            retry_after: None,
            answer: None,
            callers_fault: None,
            usage_refused: false,
        }
    }

    pub fn timeout(message: impl Into<String>) -> Self {
        Self::of(AttemptOutcome::Timeout, message)
    }

    pub fn answered(code: u16, message: impl Into<String>) -> Self {
        Self::of(AttemptOutcome::Status { code }, message)
    }

    fn unreachable(message: impl Into<String>) -> Self {
        Self::of(AttemptOutcome::Connect, message)
    }

    pub fn timed_out(&self) -> bool {
        self.outcome == AttemptOutcome::Timeout
    }
}

/// May the body have to be signed with a stored credential?
pub fn signs_body(target: &Target) -> bool {
    target.credentials.iter().any(|credential| signs_with(target, &credential.secret))
}

/// Is this a credential to sign with, rather than one to show?
pub fn signs_with(target: &Target, secret: &SecretString) -> bool {
    matches!(target.auth, Auth::SigV4 { .. }) && Credentials::parse(secret.expose_secret()).is_some()
}

/// Calls the target of the attempt under way, once.
pub async fn attempt(
    app: &Arc<App>,
    worker: &Worker,
    call: &Call,
    head: &Parts,
    body: Outbound,
    limit: Duration,
) -> Result<UpstreamResponse, AttemptError> {
    let ends_at = tokio::time::Instant::now() + limit;
    let response = send(app, worker, call, head, body, limit).await?;
    let patience = ends_at.saturating_duration_since(tokio::time::Instant::now()).min(ERROR_TIME);
    let (head, mut incoming) = response.into_parts();
    let now = app.services.clock.now();
    if head.status.is_server_error() {
        let retry_after = asked_wait(&head.headers, now);
        return Err(AttemptError { retry_after, ..server_error(head.status, incoming, patience).await });
    }
    if head.status != StatusCode::BAD_REQUEST || !call.hide_usage {
        return UpstreamResponse::new(head, Source::Upstream(incoming)).or_failed(now);
    }
    // A strict provider may not know the field that we added. It says so then.
    let said = excerpt(&mut incoming, ERROR_BYTES, patience).await;
    let usage_refused = memchr::memmem::find(&said, b"stream_options").is_some();
    let pieces = Some(said).filter(|said| !said.is_empty()).into_iter().collect();
    let answered = UpstreamResponse::new(head, Source::Begun(pieces, incoming));
    answered.or_failed(now).map_err(|failed| AttemptError { usage_refused, ..failed })
}

fn asked_wait(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let named = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    retry_after(named, now.0)
}

async fn send(
    app: &App,
    worker: &Worker,
    call: &Call,
    head: &Parts,
    body: Outbound,
    limit: Duration,
) -> Result<Response<Answer>, AttemptError> {
    let target = call.target();
    let base = target.base.as_ref().ok_or_else(|| AttemptError::unreachable("it has no address"))?;
    let path = call.path(head);
    let path = headers::without_own_keys(&path);
    let uri = base.join(&path).map_err(|_| AttemptError::unreachable("the request's path cannot be sent"))?;
    let mut outbound = headers::outbound(app, call, head);
    if let Some(secret) = call.secret().filter(|secret| signs_with(target, secret))
        && !headers::has_callers_credential(app, call, &head.headers)
    {
        sign(app, target, secret, &head.method, &uri, &body, &mut outbound)?;
    }
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.headers_mut() = outbound;
    *request.uri_mut() = uri;
    exchange(app, &worker.clients, target.guarded, request, limit).await
}

/// Sends to an address that a tenant chose and that is no provider: a webhook's or an export's.
pub async fn send_outside(
    app: &App,
    request: Request<Bytes>,
    timeout: Duration,
) -> Result<Response<Answer>, AttemptError> {
    exchange(app, &app.proxy.worker.clients, true, request.map(Outbound::whole), timeout).await
}

/// Sends the request and waits for the head of the answer.
async fn exchange(
    app: &App,
    clients: &Clients,
    tenants: bool,
    request: Request<Outbound>,
    timeout: Duration,
) -> Result<Response<Answer>, AttemptError> {
    let guarded = tenants && !app.services.config.egress_private;
    if guarded && !literal_is_allowed(request.uri()) {
        return Err(AttemptError::unreachable("its address is private or local, which is refused"));
    }
    match tokio::time::timeout(timeout, clients.send(request, guarded)).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(explain(&error)),
        Err(_) => Err(AttemptError::timeout(format!("no answer within {} ms", timeout.as_millis()))),
    }
}

/// One tiny call that shows whether the target can be reached and takes the stored credentials: the status that it
/// answered to the last of them, or why one was not taken. Providers that list their models are asked for the list;
/// others for anything at all.
pub async fn probe(app: &App, target: &Target) -> Result<StatusCode, AttemptError> {
    if target.is_sandbox() {
        return Ok(StatusCode::OK);
    }
    let mut answered = probe_with(app, target, target.credentials.first()).await?;
    for credential in target.credentials.iter().skip(1) {
        answered = probe_with(app, target, Some(credential)).await?;
    }
    Ok(answered)
}

async fn probe_with(
    app: &App,
    target: &Target,
    credential: Option<&Credential>,
) -> Result<StatusCode, AttemptError> {
    let base = target.base.as_ref().ok_or_else(|| AttemptError::unreachable("it has no address"))?;
    let path = target.kind.models_path.filter(|path| !path.contains('{')).unwrap_or("/");
    let uri = base.join(path).map_err(|_| AttemptError::unreachable("its address cannot be used"))?;
    let secret = credential.map(|credential| &credential.secret);
    let mut headers = HeaderMap::new();
    headers.extend(target.headers.iter().cloned());
    headers::add_stored_credential(target, secret, &mut headers);
    if let Some(secret) = secret.filter(|secret| signs_with(target, secret)) {
        sign(app, target, secret, &http::Method::GET, &uri, &Outbound::default(), &mut headers)?;
    }
    let mut request = Request::new(Outbound::default());
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    let response = exchange(app, &app.proxy.worker.clients, target.guarded, request, PROBE_TIMEOUT).await?;
    let (head, body) = response.into_parts();
    if matches!(head.status.as_u16(), 401 | 403 | 429 | 500..) {
        return Err(server_error(head.status, body, ERROR_TIME).await);
    }
    Ok(head.status)
}

fn sign(
    app: &App,
    target: &Target,
    secret: &SecretString,
    method: &http::Method,
    uri: &Uri,
    body: &Outbound,
    headers: &mut HeaderMap,
) -> Result<(), AttemptError> {
    let unsigned = || AttemptError::unreachable("the request could not be signed");
    let Auth::SigV4 { service } = target.auth else { return Ok(()) };
    let credentials = Credentials::parse(secret.expose_secret()).ok_or_else(unsigned)?;
    let host = uri.authority().map(http::uri::Authority::as_str).ok_or_else(unsigned)?;
    let region = sigv4::region_of_host(host).unwrap_or("us-east-1");
    let bytes = body.bytes().ok_or_else(unsigned)?;
    let content_type = headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut signed: Vec<(&str, &str)> = vec![("host", host)];
    signed.extend(content_type.map(|value| ("content-type", value)));
    let request = sigv4::Request {
        method: method.as_str(),
        path: uri.path(),
        query: uri.query().unwrap_or_default(),
        headers: &signed,
        body_sha256: &sigv4::hex_sha256(&bytes),
    };
    let now = gateway_core::time::jiff_timestamp(app.services.clock.now());
    for (name, value) in sigv4::sign(&request, &credentials, Scope { region, service }, now) {
        let name = http::HeaderName::try_from(name).map_err(|_| unsigned())?;
        headers.insert(name, value.parse().map_err(|_| unsigned())?);
    }
    Ok(())
}

async fn server_error(status: StatusCode, mut body: Answer, patience: Duration) -> AttemptError {
    let said = excerpt(&mut body, ERROR_BYTES, patience).await;
    let text: String = String::from_utf8_lossy(&said).chars().take(500).collect();
    let message = match text.trim() {
        "" => format!("it answered {}", status.as_u16()),
        text => format!("it answered {}: {text}", status.as_u16()),
    };
    AttemptError::answered(status.as_u16(), message)
}

/// The beginning of a body, without waiting long for it: the pieces until there is enough, each of them whole.
pub async fn excerpt(body: &mut Answer, enough: usize, patience: Duration) -> Bytes {
    let mut seen = Vec::new();
    let read = async {
        while seen.len() < enough
            && let Some(Ok(frame)) = body.frame().await
        {
            if let Ok(data) = frame.into_data() {
                seen.extend_from_slice(&data);
            }
        }
    };
    let _ = tokio::time::timeout(patience, read).await;
    seen.into()
}

fn explain(error: &SendError) -> AttemptError {
    if let SendError::Certificates(_) = error {
        return AttemptError::unreachable(error.to_string());
    }
    let mut causes = Vec::new();
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(cause) = source {
        causes.push(cause);
        source = cause.source();
    }
    if let Some(RequestBodyError(problem)) = causes.iter().find_map(|cause| cause.downcast_ref()) {
        let fault = Some(Box::new(problem.clone()));
        return AttemptError {
            callers_fault: fault,
            ..AttemptError::of(AttemptOutcome::Reset, problem.message.clone())
        };
    }
    let root = causes.last().map_or_else(String::new, ToString::to_string);
    if causes.iter().any(|cause| cause.downcast_ref::<Refused>().is_some()) {
        return AttemptError::unreachable("its name leads to a private or local address, which is refused");
    }
    if error.is_connect() {
        let timed_out = causes
            .iter()
            .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
            .any(|io| io.kind() == std::io::ErrorKind::TimedOut);
        let message = format!("cannot connect: {root}");
        return if timed_out { AttemptError::timeout(message) } else { AttemptError::unreachable(message) };
    }
    AttemptError::of(AttemptOutcome::Reset, format!("the connection broke before an answer came: {root}"))
}
