//! The path of every request: request id, authentication, rate limit, then the console, the proxy or the management
//! API.

use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use gateway_store::connection_shares::on_behalf_of;
use http::header::{CACHE_CONTROL, CONNECTION, LOCATION, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::sync::oneshot;
use tower::ServiceExt as _;
use tracing::Instrument as _;

use super::client::{REQUEST_ID, client_address, given_request_id, is_unknown_proxy};
use super::compression::{OFFERED, compress, is_compressible};
use super::errors::{auth_failure, denied_problem, render_problem, route_not_found};
use super::guarded_body::GuardedBody;
use super::worker::Handlers;
use crate::app::App;
use crate::audit::AuditContext;
use crate::auth::Identity;
use crate::console::{Encoding, preferred_encoding};
use crate::memory::RequestMemory;
use crate::metrics::events::{Stage, Surface};
use crate::problem::{ApiResult, ErrorFormat, Problem, rate_headers};
use crate::proxy::compat::{self, CompatCall};
use crate::proxy::headers::{self, PROVIDER};
use crate::proxy::{ClientRequest, Proxy, Worker, sdk};
use crate::{api, console};

/// Everything that the requests of one worker thread use.
pub struct Dispatcher {
    pub handlers: Handlers,
    pub worker: Worker,
}

/// A request with the facts that every stage needs.
struct Received {
    request: Request<Incoming>,
    peer: SocketAddr,
    request_id: HeaderValue,
    /// Set below `/compat`.
    compat: Option<CompatCall>,
    /// Below `/sdk`.
    is_sdk: bool,
    /// Why a request below these two is refused, once the caller is known.
    refused: Option<Box<Problem>>,
}

impl Received {
    /// The path was one of clients that are not written for this gateway, so it is never one of its own.
    fn is_client_path(&self) -> bool {
        self.compat.is_some() || self.is_sdk || self.refused.is_some()
    }
}

pub async fn respond(dispatcher: &Dispatcher, peer: SocketAddr, mut request: Request<Incoming>) -> Response {
    let Handlers { app, api, .. } = &dispatcher.handlers;
    let request_id = given_request_id(request.headers()).unwrap_or_else(|| app.services.ids.new_request_id());
    let sdk_format = sdk::format_of(&request);
    let proxy_format = sdk_format.map_or(ErrorFormat::Both, ErrorFormat::Client);
    let entered = match sdk_format {
        Some(_) => sdk::enter(&mut request).map(|()| None),
        None => compat::enter(&app.services.config.compat, &mut request),
    };
    let (compat, refused) = match entered {
        Ok(compat) => (compat, None),
        Err(problem) => (None, Some(Box::new(problem))),
    };
    let is_http1 = request.version() <= Version::HTTP_11;
    let path = request.uri().path();
    let is_own_path = api.has_route(path) || console::is_console_path(path);
    let is_sdk = sdk_format.is_some();
    let is_client_path = compat.is_some() || is_sdk || refused.is_some();
    let is_routed = request.headers().contains_key(PROVIDER) && (is_client_path || !is_own_path);
    let mut is_proxied = is_routed || refused.is_some();
    let is_api_path = api::is_api_path(path) && !is_client_path;
    let api_format = api::error_format_of(path);
    let received = Received { request, peer, request_id: request_id.clone(), compat, is_sdk, refused };
    let events = &app.proxy.metrics.events;
    let routed = {
        // Pinned where it is made: the future of a proxied request is large, and every move would copy it.
        let routing = pin!(route(dispatcher, received, &mut is_proxied));
        catch_panic(&request_id, routing).await
    };
    let mut response = match routed {
        // A response of a provider is forwarded unchanged, whatever its status.
        Ok(response) if is_proxied => response,
        Ok(response) => {
            if let Some(problem) = response.extensions().get::<Problem>() {
                events.error(Surface::Api, problem.code);
            }
            render_problem(response, api_format)
        }
        Err(problem) => {
            events.error(if is_proxied { Surface::Proxy } else { Surface::Api }, problem.code);
            let mut response = problem.render(if is_proxied { proxy_format } else { api_format });
            if is_proxied {
                // Also where the request failed before there was a record.
                response.headers_mut().insert(headers::REQUEST_ID, request_id.clone());
            }
            response
        }
    };
    if !(is_proxied && response.headers().contains_key(REQUEST_ID)) {
        response.headers_mut().insert(REQUEST_ID, request_id);
    }
    if is_api_path {
        // Responses have keys and tokens, and no cache or browser may make anything else of them.
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    if is_http1 && app.services.tasks.is_stopping() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// `is_proxied` becomes true for a request that names no provider, if the organization has a default one.
async fn route(
    dispatcher: &Dispatcher,
    mut received: Received,
    is_proxied: &mut bool,
) -> ApiResult<Response> {
    let Dispatcher { handlers: Handlers { app, api, console, tls: _ }, worker } = dispatcher;
    let access = &app.proxy.access;
    if let Some(problem) = received.refused.take() {
        return Err(refuse(app, &received, *problem).await);
    }
    let request = &received.request;
    let path = request.uri().path();
    if console::is_console_path(path) && !received.is_client_path() {
        return console.respond(request.method(), request.uri(), request.headers());
    }
    let began = Instant::now();
    let is_home = path == "/" && matches!(*request.method(), Method::GET | Method::HEAD);
    let is_public = is_home || api::is_public(path, app.services.config.public_docs);
    let mut identity = if is_public && !received.is_client_path() {
        None
    } else {
        Some(authenticate(app, &received).await?)
    };
    let has_default = |identity: &Identity| identity.org.settings.default_provider.is_some();
    if !*is_proxied && may_have_default_provider(path) && !api.has_route(path) {
        *is_proxied = identity.as_ref().is_some_and(has_default);
    }
    if let Some(identity) = identity.as_mut().filter(|_| *is_proxied) {
        app.proxy.metrics.lane(worker.lane).stage(Stage::Authenticate, began.elapsed());
        let proxy = Proxy { services: &app.services, state: &app.proxy, worker };
        // Before anything waits, because what waits is what uses up the share.
        let call = identity.org.calls.begin()?;
        let memory = identity.org.memory.open();
        let counted = async {
            access.count_request(identity).await?;
            Ok(&*identity)
        };
        let Received { request, request_id, compat, .. } = received;
        let client = ClientRequest { request, request_id: &request_id, call, compat };
        return proxy.forward(counted, memory, client).await;
    }
    if let Some(identity) = &mut identity {
        access.count_request(identity).await?;
    }
    if is_home {
        return Ok(redirect(console::HOME));
    }
    let mut response = if api.has_route(path) {
        manage(&dispatcher.handlers, identity.as_ref(), received).await?
    } else {
        route_not_found(path).into_response()
    };
    if let Some(rate) = identity.as_ref().and_then(|identity| identity.rate.as_ref()) {
        response.headers_mut().extend(rate_headers(rate));
    }
    Ok(response)
}

/// Below these paths are services of the gateway itself, also where it has no route.
fn may_have_default_provider(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    !matches!(first, "" | "api" | "mcp" | "scim" | "s" | "console")
}

/// What the caller of a request that was refused by its path or headers gets: who is not known learns no more than that.
async fn refuse(app: &App, received: &Received, mut problem: Problem) -> Problem {
    if problem.status == StatusCode::UNAUTHORIZED {
        return problem;
    }
    let counted = async {
        let mut identity = authenticate(app, received).await?;
        app.proxy.access.count_request(&mut identity).await?;
        Ok::<_, Problem>(identity.rate)
    };
    match counted.await {
        Ok(rate) => problem.headers.extend(rate.iter().flat_map(rate_headers)),
        Err(denied) => problem = denied,
    }
    problem
}

async fn authenticate(app: &App, received: &Received) -> ApiResult<Identity> {
    let (access, headers) = (&app.proxy.access, received.request.headers());
    let foreign_key = received.compat.as_ref().and_then(CompatCall::foreign_key);
    if foreign_key.is_none()
        && let Some(identity) = access.authenticate_cached(headers)
    {
        return Ok(identity);
    }
    let clock = &app.services.clock;
    let address = address_of(app, received.peer, headers);
    let identified = match foreign_key {
        Some(key) => access.authenticate_foreign(key, address).await,
        None => access.authenticate(headers, address).await,
    };
    identified.map_err(|denied| {
        app.proxy.metrics.events.auth_failure(auth_failure(denied));
        denied_problem(denied, clock.now())
    })
}

/// The address of the client. Warns once about a proxy that is not trusted, because the limits then meet all its
/// clients together.
fn address_of(app: &App, peer: SocketAddr, headers: &HeaderMap) -> IpAddr {
    let trusted = &app.services.config.trusted_proxies;
    if is_unknown_proxy(peer.ip(), headers, trusted) && app.connections.is_first_unknown_proxy() {
        tracing::warn!(
            peer = %peer.ip(),
            "X-Forwarded-For is ignored, because the peer is not in GATEWAY_TRUSTED_PROXIES: all clients behind it share \
             the limits of its address"
        );
    }
    client_address(peer.ip(), headers, trusted)
}

/// Runs a management request on the main runtime, because it may wait for the database.
async fn manage(handlers: &Handlers, identity: Option<&Identity>, received: Received) -> ApiResult<Response> {
    let Received { request, peer, request_id, .. } = received;
    let services = &handlers.app.services;
    let is_read = identity.is_some() && request.method() == Method::GET;
    let account = identity.map_or_else(|| services.memory.anonymous(), |identity| &identity.org.memory);
    let memory = RequestMemory::new(account.open());
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(memory.clone());
    let address = address_of(&handlers.app, peer, request.headers());
    request.extensions_mut().insert(address);
    request.extensions_mut().insert(request_id.clone());
    let ends_with_client = api::ends_with_client(request.uri().path());
    let context = handlers.api.find_route(request.uri().path()).map(|matched| {
        let context = AuditContext::new(request.method(), &matched, request.headers(), identity);
        Arc::new(context.from(request_id.to_str().unwrap_or_default(), address))
    });
    if let Some(context) = &context {
        request.extensions_mut().insert(Arc::clone(context));
    }
    if let Some(identity) = identity {
        request.extensions_mut().insert(identity.clone());
    }
    let encoding = preferred_encoding(request.headers(), &OFFERED).unwrap_or(Encoding::Identity);
    let handled = handlers.api.router.clone().oneshot(request).instrument(span(&request_id));
    let org = identity.map(|identity| identity.org.id);
    // A change continues if its client disconnects: the steps after the commit, such as the invalidation of a revoked
    // key, must not be skipped.
    let (mut sender, receiver) = oneshot::channel();
    let (held, app) = (memory.clone(), Arc::clone(&handlers.app));
    services.tasks.spawn(async move {
        let handled = async {
            match org {
                Some(org) => on_behalf_of(org, handled).await,
                None => handled.await,
            }
        };
        let Ok(response) = if ends_with_client {
            tokio::select! {
                response = handled => response,
                () = sender.closed() => return,
            }
        } else {
            handled.await
        };
        if let Some(context) = context
            && response.status() == StatusCode::FORBIDDEN
        {
            let reason = response.extensions().get::<Problem>().map(|problem| problem.message.as_ref());
            app.audit.push(context.denied(&app.services, reason));
        }
        // Before the compression, for which many large responses may wait. A reader can ask again; what has changed
        // something is answered all the same.
        let length = length_of(&response);
        let room = if is_read {
            held.hold_response(length, encoding != Encoding::Identity && is_compressible(&response))
        } else {
            held.charge_response(length);
            Ok(())
        };
        let response = match room {
            Ok(()) => Ok(compress(&app.services.compute, org, encoding, response).await),
            Err(exhausted) => Err(Problem::from(exhausted)),
        };
        drop(sender.send(response));
        drop(held);
    });
    let response = receiver.await.unwrap_or_else(|_| Err(panicked(&request_id)))?;
    memory.charge_response(length_of(&response));
    let (head, body) = response.into_parts();
    // What the request reserved stays reserved until the response has ended: a stream may still use it.
    Ok(Response::from_parts(head, Body::new(GuardedBody::new(body, memory))))
}

/// 0 for a stream, which counts what it holds by itself.
fn length_of(response: &Response) -> usize {
    usize::try_from(response.body().size_hint().lower()).unwrap_or(0)
}

/// Turns a panic into an error of its own request.
async fn catch_panic(
    request_id: &HeaderValue,
    work: Pin<&mut (impl Future<Output = ApiResult<Response>> + ?Sized)>,
) -> ApiResult<Response> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| Err(panicked(request_id)))
}

fn panicked(request_id: &HeaderValue) -> Problem {
    let _span = span(request_id).entered();
    Problem::internal("a handler panicked")
}

/// Adds the request id to log messages, at every log level.
fn span(request_id: &HeaderValue) -> tracing::Span {
    tracing::error_span!("request", id = %request_id.to_str().unwrap_or_default())
}

fn redirect(location: &'static str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(location));
    response
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_panic_is_logged_with_its_request_id() {
        #[derive(Clone, Default)]
        struct Output(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Output {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let output = Output::default();
        let writer = output.clone();
        let log = tracing_subscriber::fmt().json().with_max_level(tracing::Level::ERROR);
        let log = log.with_writer(move || writer.clone()).finish();
        let result = tracing::subscriber::with_default(log, || {
            let id = HeaderValue::from_static("the-failing-request");
            catch_panic(&id, pin!(async { panic!("on purpose") })).now_or_never().unwrap()
        });
        assert_eq!(result.unwrap_err().status, StatusCode::INTERNAL_SERVER_ERROR);
        let text = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains("panicked") && text.contains("the-failing-request"), "{text}");
    }
}
