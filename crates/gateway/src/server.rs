//! The listener, and the way every request takes before it reaches a handler: request id, authentication, then
//! routing. Authentication comes first on every path but the public ones, so that a stranger learns nothing.

use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http::header::{ALLOW, CONNECTION, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use ipnet::IpNet;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tower::ServiceExt as _;
use tracing::Instrument as _;

use crate::api::{self, Api};
use crate::app::App;
use crate::auth::{self, Denied, Identity};
use crate::console::{self, Console};
use crate::problem::{ApiResult, ErrorFormat, Problem, rate_headers};
use crate::proxy::clients::Clients;
use crate::proxy::headers::PROVIDER;
use crate::proxy::{Proxy, Worker};
use crate::services::StartError;
use crate::write_timeout::WriteTimeoutIo;

/// A client that does not finish its request head in this time is given up.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// A caller that takes nothing of its answer for this long is given up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often unused connections to providers are looked for.
const SWEEP: Duration = Duration::from_secs(15);
/// How long requests in flight may take to finish once the service stops.
const DRAIN: Duration = Duration::from_secs(30);
/// How long a connection may still be used for a last request once the service stops: what is on its way when the
/// other side has not noticed yet is answered, not cut off.
const LAST_CALL: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Opens the address of the settings, with a message for people when that fails.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|error| StartError::Listen {
        address: address.to_string(),
        why: match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another process uses this address; stop it, or set GATEWAY_LISTEN to another one".into()
            }
            std::io::ErrorKind::PermissionDenied => {
                "not permitted; ports below 1024 need special rights, set GATEWAY_LISTEN to a higher one"
                    .into()
            }
            _ => error.to_string(),
        },
    })
}

/// Serves until the app is asked to stop, then finishes what is in flight. Connections are spread over worker threads,
/// each with a runtime of its own: a proxied request never changes threads, and a busy management call holds up none.
pub async fn serve(app: Arc<App>, listener: TcpListener) {
    let (api, console) = (Arc::new(Api::new(Arc::clone(&app))), Arc::new(Console::load()));
    let mut workers: Vec<WorkerThread> = (0..app.services.config.workers)
        .filter_map(|lane| WorkerThread::start(lane, &app, &api, &console))
        .collect();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.services.tasks.stopping() => break,
        };
        let Ok((stream, peer)) = accepted else {
            // Out of file descriptors: wait for some to come back instead of spinning.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if let Ok(stream) = stream.into_std() {
            hand_over(&workers, stream, peer).await;
        }
    }
    // Who was connected before the door closed is let in; dropping the listener would reset them.
    if let Ok(listener) = listener.into_std() {
        while let Ok((stream, peer)) = listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                hand_over(&workers, stream, peer).await;
            }
        }
    }
    // All senders go at once, so that the workers finish side by side.
    let ended: Vec<_> = workers.drain(..).map(|worker| worker.ended).collect();
    for worker in ended {
        let _ = worker.await;
    }
}

/// Gives a connection to the worker that has the fewest.
async fn hand_over(workers: &[WorkerThread], stream: std::net::TcpStream, peer: SocketAddr) {
    // Without it a small write waits for the peer's acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let idlest = workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed));
    if let Some(worker) = idlest {
        worker.connections.fetch_add(1, Ordering::Relaxed);
        // A worker that is gone takes its connections with it; there is nobody to tell.
        let _ = worker.sockets.send((stream, peer)).await;
    }
}

struct WorkerThread {
    sockets: mpsc::Sender<(std::net::TcpStream, SocketAddr)>,
    connections: Arc<AtomicUsize>,
    ended: oneshot::Receiver<()>,
}

impl WorkerThread {
    fn start(lane: usize, app: &Arc<App>, api: &Arc<Api>, console: &Arc<Console>) -> Option<Self> {
        let (sockets, incoming) = mpsc::channel(1024);
        let (end, ended) = oneshot::channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let (app, api, console) = (Arc::clone(app), Arc::clone(api), Arc::clone(console));
        let open = Arc::clone(&connections);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let run = move || match runtime {
            Ok(runtime) => {
                runtime.block_on(work(lane, app, api, console, incoming, open));
                // What was cut off leaves its row when the runtime goes; only then is the worker at its end.
                drop(runtime);
                let _ = end.send(());
            }
            Err(error) => tracing::error!(%error, "a worker could not start"),
        };
        match std::thread::Builder::new().name(format!("worker-{lane}")).spawn(run) {
            Ok(_) => Some(Self { sockets, connections, ended }),
            Err(error) => {
                tracing::error!(%error, "a worker could not start");
                None
            }
        }
    }
}

/// The life of a worker: connections come in, requests are answered, and at the end what is in flight is finished.
#[expect(
    clippy::disallowed_methods,
    reason = "connections live on this thread's runtime and are drained below"
)]
async fn work(
    lane: usize,
    app: Arc<App>,
    api: Arc<Api>,
    console: Arc<Console>,
    mut incoming: mpsc::Receiver<(std::net::TcpStream, SocketAddr)>,
    open: Arc<AtomicUsize>,
) {
    let graceful = GracefulShutdown::new();
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(64 << 10)
        .keep_alive_interval(HEADER_TIMEOUT)
        .keep_alive_timeout(HEADER_TIMEOUT);
    let write_timeout = app.services.config.proxy_timeout.min(WRITE_TIMEOUT);
    let context = Arc::new(Context { app, api, console, worker: Worker { lane, clients: Clients::new() } });
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        let arrived = tokio::select! {
            arrived = incoming.recv() => arrived,
            _ = sweep.tick() => {
                context.worker.clients.sweep();
                continue;
            }
        };
        let Some((stream, peer)) = arrived else { break };
        let Ok(stream) = tokio::net::TcpStream::from_std(stream) else {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        };
        let stopping = Arc::clone(&context.app);
        let (context, still_open) = (Arc::clone(&context), Arc::clone(&open));
        let service = service_fn(move |request| {
            let context = Arc::clone(&context);
            // Boxed: hyper would move the future about, and keep its room while a stream runs for minutes.
            Box::pin(async move { Ok::<_, std::convert::Infallible>(respond(&context, peer, request).await) })
        });
        let (builder, watcher) = (builder.clone(), graceful.watcher());
        tokio::spawn(async move {
            // A peer that says nothing at all is given up like one that does not finish its head.
            let speaks = tokio::select! {
                heard = tokio::time::timeout(HEADER_TIMEOUT, stream.readable()) => matches!(heard, Ok(Ok(()))),
                () = after_last_call(&stopping) => false,
            };
            if speaks {
                let connection = builder
                    .serve_connection(WriteTimeoutIo::new(stream, write_timeout), service)
                    .into_owned();
                // A connection that breaks is the peer's business; requests on it were accounted for by themselves.
                let _ = watcher.watch(connection).await;
            }
            still_open.fetch_sub(1, Ordering::Relaxed);
        });
    }
    let last_call = Instant::now() + LAST_CALL;
    while open.load(Ordering::Relaxed) > 0 && Instant::now() < last_call {
        tokio::time::sleep(LOOK).await;
    }
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not finish in time and were cut off");
    }
}

async fn after_last_call(app: &App) {
    app.services.tasks.stopping().await;
    tokio::time::sleep(LAST_CALL).await;
}

/// What a request can reach.
struct Context {
    app: Arc<App>,
    api: Arc<Api>,
    console: Arc<Console>,
    worker: Worker,
}

async fn respond(context: &Context, peer: SocketAddr, request: Request<Incoming>) -> Response {
    let given = callers_request_id(request.headers());
    let request_id = given.unwrap_or_else(|| context.app.services.ids.new_request_id());
    let is_http1 = request.version() <= Version::HTTP_11;
    let path = request.uri().path();
    let is_ours = context.api.has_route(path) || console::is_console_path(path);
    let is_proxied = request.headers().contains_key(PROVIDER) && !is_ours;
    let family = if is_proxied { ErrorFormat::Both } else { api::error_format_of(path) };
    // On the heap, since the future of a proxied request is large and would be moved with every one around it.
    let routed = Box::pin(route(context, peer, is_proxied, &request_id, request));
    let mut response = match caught(&request_id, routed).await {
        Ok(response) => finish(response, family),
        Err(problem) => problem.render(family),
    };
    if !(is_proxied && response.headers().contains_key(REQUEST_ID)) {
        response.headers_mut().insert(REQUEST_ID, request_id);
    }
    if is_http1 && context.app.services.tasks.is_stopping() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A panic takes down its own request and nothing else.
async fn caught(
    request_id: &HeaderValue,
    work: impl Future<Output = ApiResult<Response>>,
) -> ApiResult<Response> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| Err(panicked(request_id)))
}

fn panicked(request_id: &HeaderValue) -> Problem {
    let _span = span(request_id).entered();
    Problem::internal("a handler panicked")
}

/// What is logged inside names the request, however little is logged.
fn span(request_id: &HeaderValue) -> tracing::Span {
    tracing::error_span!("request", id = %request_id.to_str().unwrap_or_default())
}

/// Authentication, then routing. The files of the console have nothing to hide.
async fn route(
    context: &Context,
    peer: SocketAddr,
    is_proxied: bool,
    request_id: &HeaderValue,
    request: Request<Incoming>,
) -> ApiResult<Response> {
    let Context { app, api, console, worker } = context;
    let path = request.uri().path();
    if console::is_console_path(path) {
        return console.respond(request.method(), request.uri(), request.headers());
    }
    let home = path == "/" && matches!(*request.method(), http::Method::GET | http::Method::HEAD);
    let mut identity = if home || api::is_public(path, app.services.config.public_docs) {
        None
    } else {
        Some(auth::authenticate(app, request.headers()).await.map_err(refuse)?)
    };
    if let Some(identity) = identity.as_mut().filter(|_| is_proxied) {
        let proxy = Proxy { services: &app.services, state: &app.proxy, worker };
        let counted = async {
            auth::count(app, identity).await?;
            Ok(&*identity)
        };
        return proxy.forward(counted, request_id, request).await;
    }
    if let Some(identity) = &mut identity {
        auth::count(app, identity).await?;
    }
    if home {
        return Ok(redirect(console::HOME));
    }
    let mut response = if api.has_route(path) {
        manage(app, api, peer, identity.as_ref(), request_id, request).await?
    } else {
        unclaimed(&request).into_response()
    };
    if let Some(rate) = identity.as_ref().and_then(|identity| identity.rate.as_ref()) {
        response.headers_mut().extend(rate_headers(rate));
    }
    Ok(response)
}

/// Management runs on the main runtime: it may wait for the database, and is not cut short when its caller hangs up.
async fn manage(
    app: &Arc<App>,
    api: &Api,
    peer: SocketAddr,
    identity: Option<&Identity>,
    request_id: &HeaderValue,
    request: Request<Incoming>,
) -> ApiResult<Response> {
    let mut request = request.map(Body::new);
    let address = client_address(peer.ip(), request.headers(), &app.services.config.trusted_proxies);
    request.extensions_mut().insert(address);
    if let Some(identity) = identity {
        request.extensions_mut().insert(identity.clone());
    }
    let handled = api.router.clone().oneshot(request).instrument(span(request_id));
    // A change goes on when its caller hangs up: what follows the commit, such as forgetting a revoked key, must not
    // be skipped.
    let (sender, receiver) = oneshot::channel();
    app.services.tasks.spawn(async move { drop(sender.send(handled.await)) });
    match receiver.await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(never)) => match never {},
        Err(_) => Err(panicked(request_id)),
    }
}

/// Puts the bodies of errors in, which handlers leave to this place.
fn finish(mut response: Response, family: ErrorFormat) -> Response {
    let problem = match response.extensions_mut().remove::<Problem>() {
        Some(problem) => problem,
        None if response.status() == StatusCode::METHOD_NOT_ALLOWED => {
            Problem::method_not_allowed(response.headers().get(ALLOW).cloned())
        }
        None => return response,
    };
    let rate = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]
        .map(|name| (HeaderName::from_static(name), response.headers().get(name).cloned()));
    let mut rendered = problem.render(family);
    for (name, value) in rate {
        if let Some(value) = value {
            rendered.headers_mut().insert(name, value);
        }
    }
    rendered
}

fn refuse(denied: Denied) -> Problem {
    match denied {
        Denied::Missing => {
            Problem::unauthorized("send X-Gateway-Key: sk-gateway-… or Authorization: Bearer <token>")
        }
        Denied::Invalid => Problem::unauthorized("the key or token is not valid, or not any more"),
        Denied::Unavailable => Problem::unavailable(),
    }
}

/// A path that no route claims, on a request that names no provider.
fn unclaimed(request: &Request<Incoming>) -> Problem {
    let path = request.uri().path();
    if path == "/api" || path.starts_with("/api/") {
        Problem::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "there is no such endpoint; GET /openapi.yaml lists them",
        )
    } else {
        Problem::bad_request("X-Gateway-Provider: name the provider that this request is for")
    }
}

fn redirect(to: &'static str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
    response
}

/// The caller's own request id, when it is a sane one.
fn callers_request_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let sane = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=128).contains(&bytes.len())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':'))
    };
    headers.get(REQUEST_ID).filter(sane).cloned()
}

/// The peer, or what a trusted proxy says of it: the last address in X-Forwarded-For that is no proxy of ours.
fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_ours = |address: &IpAddr| trusted.iter().any(|network| network.contains(address));
    if !is_ours(&peer) {
        return peer;
    }
    let forwarded = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let hops: Vec<&str> = forwarded.flat_map(|value| value.split(',')).map(str::trim).collect();
    let mut client = peer;
    for hop in hops.iter().rev() {
        let Ok(address) = hop.parse::<IpAddr>() else { break };
        client = address;
        if !is_ours(&address) {
            break;
        }
    }
    client
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_logged_with_its_request_id() {
        #[derive(Clone, Default)]
        struct Seen(Arc<std::sync::Mutex<Vec<u8>>>);
        impl std::io::Write for Seen {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let seen = Seen::default();
        let writer = seen.clone();
        let log = tracing_subscriber::fmt().json().with_max_level(tracing::Level::ERROR);
        let log = log.with_writer(move || writer.clone()).finish();
        let outcome = tracing::subscriber::with_default(log, || {
            let id = HeaderValue::from_static("the-one-that-fell");
            caught(&id, async { panic!("on purpose") }).now_or_never().unwrap()
        });
        assert_eq!(outcome.unwrap_err().status, StatusCode::INTERNAL_SERVER_ERROR);
        let text = String::from_utf8(seen.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains("panicked") && text.contains("the-one-that-fell"), "{text}");
    }

    fn forwarded(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            HeaderName::from_static("x-forwarded-for"),
            HeaderValue::from_str(value).unwrap(),
        )])
    }

    #[test]
    fn only_a_trusted_proxy_is_believed_about_the_client() {
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let client = |peer: &str, value: &str| {
            client_address(peer.parse().unwrap(), &forwarded(value), &trusted).to_string()
        };
        assert_eq!(client("192.0.2.9", "198.51.100.1"), "192.0.2.9");
        assert_eq!(client("10.0.0.1", "198.51.100.1"), "198.51.100.1");
        assert_eq!(client("10.0.0.1", "203.0.113.7, 198.51.100.1, 10.0.0.2"), "198.51.100.1");
        assert_eq!(client("10.0.0.1", "junk"), "10.0.0.1");
        assert_eq!(client("10.0.0.1", "198.51.100.1, junk"), "10.0.0.1");
    }

    #[test]
    fn a_request_id_is_kept_only_when_it_is_sane() {
        let with = |value: &str| {
            callers_request_id(&HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_str(value).unwrap())]))
        };
        assert_eq!(with("abc-1").unwrap(), "abc-1");
        assert_eq!(with("a b"), None);
        assert_eq!(with(&"x".repeat(200)), None);
    }
}
