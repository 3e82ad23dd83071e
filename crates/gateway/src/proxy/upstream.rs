//! One call to a provider: pooled connections, time-outs, the egress guard for addresses that a tenant chose, and
//! the signature of providers that want one.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::egress::is_public;
use gateway_core::llm::providers::Auth;
use gateway_core::llm::sigv4::{self, Credentials, Scope};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use secrecy::ExposeSecret;

use super::Worker;
use super::body::{Outbound, Unsendable};
use super::call::Call;
use super::headers;
use super::target::Target;
use super::tee::Source;
use crate::app::App;
use crate::problem::Problem;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);
const POOL_IDLE: Duration = Duration::from_secs(60);
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
) -> Result<Response<Incoming>, Failed> {
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
    exchange(app, &worker.clients, call.target.guarded, request, call.timeout).await
}

/// Sends to an address that a tenant chose and that is no provider: a webhook's or an export's.
pub async fn send_outside(
    app: &App,
    request: Request<Bytes>,
    timeout: Duration,
) -> Result<Response<Incoming>, Failed> {
    exchange(app, &app.clients, true, request.map(Outbound::whole), timeout).await
}

/// Sends the request and waits for the head of the answer.
async fn exchange(
    app: &App,
    clients: &Clients,
    tenants: bool,
    request: Request<Outbound>,
    timeout: Duration,
) -> Result<Response<Incoming>, Failed> {
    let guarded = tenants && !app.config.egress_private;
    if guarded && !literal_is_allowed(request.uri()) {
        return Err(Failed::new("its address is private or local, which is refused"));
    }
    let sending = clients.send(request, guarded)?;
    match tokio::time::timeout(timeout, sending).await {
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
    let response = exchange(app, &app.clients, target.guarded, request, PROBE_TIMEOUT).await?;
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

async fn server_error(status: StatusCode, mut body: Incoming) -> Failed {
    let said = excerpt(&mut body, ERROR_BYTES).await;
    let text: String = String::from_utf8_lossy(&said).chars().take(500).collect();
    let message = match text.trim() {
        "" => format!("it answered {}", status.as_u16()),
        text => format!("it answered {}: {text}", status.as_u16()),
    };
    Failed::answered(status.as_u16(), message)
}

/// The beginning of a body, without waiting long for it: the pieces until there is enough, each of them whole.
pub async fn excerpt(body: &mut Incoming, enough: usize) -> Bytes {
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

fn explain(error: &ClientError) -> Failed {
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

/// Connections to providers, kept by the worker that uses them. Those to addresses of tenants' choosing are apart.
pub struct Clients {
    open: Pair,
    guarded: Pair,
}

struct Pair {
    guarded: bool,
    plain: Client<Http, Outbound>,
    /// Made when first needed: reading the system's certificates takes time.
    tls: OnceLock<Client<HttpsConnector<Http>, Outbound>>,
}

type Http = HttpConnector<Resolver>;

impl Clients {
    pub fn new() -> Self {
        let pair = |guarded| Pair { guarded, plain: client(connector(guarded)), tls: OnceLock::new() };
        Self { open: pair(false), guarded: pair(true) }
    }

    fn send(
        &self,
        request: Request<Outbound>,
        guarded: bool,
    ) -> Result<hyper_util::client::legacy::ResponseFuture, Failed> {
        let pair = if guarded { &self.guarded } else { &self.open };
        if request.uri().scheme() == Some(&http::uri::Scheme::HTTPS) {
            let client = if let Some(client) = pair.tls.get() {
                client
            } else {
                let made = client(secure(pair.guarded)?);
                pair.tls.get_or_init(|| made)
            };
            Ok(client.request(request))
        } else {
            Ok(pair.plain.request(request))
        }
    }
}

impl Default for Clients {
    fn default() -> Self {
        Self::new()
    }
}

fn client<C>(connector: C) -> Client<C, Outbound>
where
    C: hyper_util::client::legacy::connect::Connect + Clone,
{
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(1024)
        .build(connector)
}

fn connector(guarded: bool) -> Http {
    let mut http = HttpConnector::new_with_resolver(Resolver { guarded });
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    http.set_keepalive(Some(Duration::from_secs(60)));
    http
}

fn secure(guarded: bool) -> Result<HttpsConnector<Http>, Failed> {
    static CONFIG: OnceLock<rustls::ClientConfig> = OnceLock::new();
    let config = if let Some(config) = CONFIG.get() {
        config
    } else {
        let made = rustls::ClientConfig::builder()
            .with_native_roots()
            .map_err(|error| Failed::new(format!("the system's certificates cannot be read: {error}")))?
            .with_no_client_auth();
        CONFIG.get_or_init(|| made)
    };
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(config.clone())
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(connector(guarded)))
}

/// The connector does not ask the resolver about addresses that are written out, so they are looked at here.
fn literal_is_allowed(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.parse::<IpAddr>().map_or(true, is_public)
}

/// A name that leads only to addresses that tenants may not reach.
#[derive(Debug, thiserror::Error)]
#[error("the address is private or local")]
struct Refused;

/// The system's resolver; a guarded one drops what is not public.
#[derive(Clone)]
struct Resolver {
    guarded: bool,
}

impl tower::Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let guarded = self.guarded;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed: Vec<SocketAddr> =
                found.into_iter().filter(|address| !guarded || is_public(address.ip())).collect();
            if guarded && allowed.is_empty() { Err(Refused.into()) } else { Ok(allowed.into_iter()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_out_private_addresses_are_refused() {
        for uri in [
            "http://127.0.0.1/",
            "http://[::1]:8080/x",
            "http://169.254.169.254/",
            "http://[::ffff:10.0.0.1]/",
        ] {
            assert!(!literal_is_allowed(&uri.parse().unwrap()), "{uri}");
        }
        for uri in ["http://8.8.8.8/", "https://api.example.com/"] {
            assert!(literal_is_allowed(&uri.parse().unwrap()), "{uri}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_to_a_private_address_is_refused() {
        let resolve = |guarded| async move {
            let name: Name = "localhost".parse().unwrap();
            tower::Service::call(&mut Resolver { guarded }, name).await
        };
        assert!(resolve(true).await.is_err_and(|error| error.is::<Refused>()));
        assert!(resolve(false).await.is_ok_and(|mut found| found.next().is_some()));
    }
}
