//! One call to a provider: time-outs, the egress guard for addresses that a tenant chose, and the signature of providers
//! that want one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use gateway_core::llm::providers::Auth;
use gateway_core::llm::sigv4::{self, Credentials, Scope};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use secrecy::ExposeSecret;

use super::Worker;
use super::body::{Outbound, Unsendable};
use super::call::Call;
use super::clients::{Clients, Refused, SendError, literal_is_allowed};
use super::headers;
use super::pool::Answer;
use super::target::Target;
use super::tee::Source;
use crate::app::App;
use crate::problem::Problem;

const PROBE_TIMEOUT: Duration = Duration::from_secs(15);
/// How much of an error's body is read to tell the caller what was wrong.
const ERROR_BYTES: usize = 16 << 10;
const ERROR_TIME: Duration = Duration::from_secs(5);

/// An answer that can be passed on.
pub struct Answered {
    pub head: http::response::Parts,
    pub source: Source,
}

/// No answer that can be passed on.
#[derive(Debug)]
pub struct Failed {
    pub message: String,
    pub status: Option<u16>,
    pub timed_out: bool,
    /// The call failed because of the caller's own body.
    pub callers_fault: Option<Box<Problem>>,
}

impl Failed {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: None, timed_out: false, callers_fault: None }
    }

    pub fn timeout(message: impl Into<String>) -> Self {
        Self { timed_out: true, ..Self::new(message) }
    }

    pub fn answered(status: u16, message: impl Into<String>) -> Self {
        Self { status: Some(status), ..Self::new(message) }
    }
}

/// Does the body have to be signed with the stored credential?
pub fn signs_body(target: &Target) -> bool {
    matches!(target.auth, Auth::SigV4 { .. })
        && target
            .credential
            .as_ref()
            .is_some_and(|secret| Credentials::parse(secret.expose_secret()).is_some())
}

/// Calls the target once; again only where it refused what we ourselves had put into the body.
pub async fn attempt(
    app: &Arc<App>,
    worker: &Worker,
    call: &Call,
    head: &Parts,
    mut body: Outbound,
) -> Result<Answered, Failed> {
    let original = body.take_original();
    let response = send(app, worker, call, head, body).await?;
    let (head_in, mut incoming) = response.into_parts();
    if head_in.status.is_server_error() {
        return Err(server_error(head_in.status, incoming).await);
    }
    let refused = head_in.status == StatusCode::BAD_REQUEST && call.hide_usage;
    let Some(original) = original.filter(|_| refused) else {
        return Ok(Answered { head: head_in, source: Source::Upstream(incoming) });
    };
    // A strict provider may not know the field that we added. If it says so, the caller's own body is sent.
    let said = excerpt(&mut incoming, ERROR_BYTES).await;
    if memchr::memmem::find(&said, b"stream_options").is_none() {
        let first = Some(said).filter(|said| !said.is_empty());
        return Ok(Answered { head: head_in, source: Source::Begun(first, incoming) });
    }
    let response = send(app, worker, call, head, Outbound::whole(original)).await?;
    let (head_in, incoming) = response.into_parts();
    if head_in.status.is_success() {
        // One refusal is enough: the next stream need not be sent twice.
        call.target.refuses_usage.store(true, Ordering::Relaxed);
    }
    if head_in.status.is_server_error() {
        return Err(server_error(head_in.status, incoming).await);
    }
    Ok(Answered { head: head_in, source: Source::Upstream(incoming) })
}

async fn send(
    app: &App,
    worker: &Worker,
    call: &Call,
    head: &Parts,
    body: Outbound,
) -> Result<Response<Answer>, Failed> {
    let base = call.target.base.as_ref().ok_or_else(|| Failed::new("it has no address"))?;
    let path = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let path = headers::without_own_keys(path);
    let uri = base.join(&path).map_err(|_| Failed::new("the request's path cannot be sent"))?;
    let mut outbound = headers::outbound(app, call, head);
    if signs_body(&call.target) && !headers::has_callers_credential(app, call, &head.headers) {
        sign(app, &call.target, &head.method, &uri, &body, &mut outbound)?;
    }
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.headers_mut() = outbound;
    *request.uri_mut() = uri;
    exchange(app, &worker.clients, &call.target, request, call.timeout).await
}

/// Sends the request and waits for the head of the answer.
async fn exchange(
    app: &App,
    clients: &Clients,
    target: &Target,
    request: Request<Outbound>,
    timeout: Duration,
) -> Result<Response<Answer>, Failed> {
    let guarded = target.guarded && !app.config.egress_private;
    if guarded && !literal_is_allowed(request.uri()) {
        return Err(Failed::new("its address is private or local, which is refused"));
    }
    match tokio::time::timeout(timeout, clients.send(request, guarded)).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(explain(&error)),
        Err(_) => Err(Failed::timeout(format!("no answer within {} ms", timeout.as_millis()))),
    }
}

/// One tiny call that shows whether the target can be reached and takes the stored credential: the status that it
/// answered. Providers that list their models are asked for the list; others for anything at all.
pub async fn probe(app: &App, target: &Target) -> Result<StatusCode, Failed> {
    if target.is_sandbox() {
        return Ok(StatusCode::OK);
    }
    let base = target.base.as_ref().ok_or_else(|| Failed::new("it has no address"))?;
    let path = target.kind.models_path.filter(|path| !path.contains('{')).unwrap_or("/");
    let uri = base.join(path).map_err(|_| Failed::new("its address cannot be used"))?;
    let mut headers = HeaderMap::new();
    headers.extend(target.headers.iter().cloned());
    headers::add_stored_credential(target, &mut headers);
    if signs_body(target) {
        sign(app, target, &http::Method::GET, &uri, &Outbound::default(), &mut headers)?;
    }
    let mut request = Request::new(Outbound::default());
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    let response = exchange(app, &app.clients, target, request, PROBE_TIMEOUT).await?;
    let (head, body) = response.into_parts();
    if matches!(head.status.as_u16(), 401 | 403 | 429 | 500..) {
        return Err(server_error(head.status, body).await);
    }
    Ok(head.status)
}

fn sign(
    app: &App,
    target: &Target,
    method: &http::Method,
    uri: &Uri,
    body: &Outbound,
    headers: &mut HeaderMap,
) -> Result<(), Failed> {
    let unsigned = || Failed::new("the request could not be signed");
    let Auth::SigV4 { service } = target.auth else { return Ok(()) };
    let secret = target.credential.as_ref().ok_or_else(unsigned)?;
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
    let now = gateway_core::time::jiff_timestamp(app.clock.now());
    for (name, value) in sigv4::sign(&request, &credentials, Scope { region, service }, now) {
        let name = http::HeaderName::try_from(name).map_err(|_| unsigned())?;
        headers.insert(name, value.parse().map_err(|_| unsigned())?);
    }
    Ok(())
}

async fn server_error(status: StatusCode, mut body: Answer) -> Failed {
    let said = excerpt(&mut body, ERROR_BYTES).await;
    let text: String = String::from_utf8_lossy(&said).chars().take(500).collect();
    let message = match text.trim() {
        "" => format!("it answered {}", status.as_u16()),
        text => format!("it answered {}: {text}", status.as_u16()),
    };
    Failed::answered(status.as_u16(), message)
}

/// The beginning of a body, without waiting long for it: the pieces until there is enough, each of them whole.
async fn excerpt(body: &mut Answer, enough: usize) -> Bytes {
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
    let _ = tokio::time::timeout(ERROR_TIME, read).await;
    seen.into()
}

fn explain(error: &SendError) -> Failed {
    if let SendError::Certificates(_) = error {
        return Failed::new(error.to_string());
    }
    let mut causes = Vec::new();
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(cause) = source {
        causes.push(cause);
        source = cause.source();
    }
    if let Some(Unsendable(problem)) = causes.iter().find_map(|cause| cause.downcast_ref()) {
        let fault = Some(Box::new(problem.clone()));
        return Failed { callers_fault: fault, ..Failed::new(problem.message.clone()) };
    }
    let root = causes.last().map_or_else(String::new, ToString::to_string);
    if causes.iter().any(|cause| cause.downcast_ref::<Refused>().is_some()) {
        return Failed::new("its name leads to a private or local address, which is refused");
    }
    if error.is_connect() {
        let timed_out = causes
            .iter()
            .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
            .any(|io| io.kind() == std::io::ErrorKind::TimedOut);
        let message = format!("cannot connect: {root}");
        return if timed_out { Failed::timeout(message) } else { Failed::new(message) };
    }
    Failed::new(format!("the connection broke before an answer came: {root}"))
}
