//! The messages of callers: checks, the era of each, and what is done with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use futures_util::future::join_all;
use gateway_core::mcp::{
    ClientFacts, Era, HeaderClaims, Incoming, MODERN, Members, RESERVED_SERVER, RequestId, RpcError, codes,
    parse, raw, select,
};
use http::header::{ACCEPT, ALLOW, HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::Mcp;
use super::access::{caller_of, check_call, check_scope, sees_server, visible_servers};
use super::builtin;
use super::catalogues::{CatalogueRequest, Lookup};
use super::lists::List;
use super::reply::{Outcome, accepted, json, with_session};
use super::session::{CallerSession, initialize};
use super::upstream::{METHOD, NAME, PROTOCOL_VERSION, SESSION_ID};
use crate::auth::Identity;
use crate::mcp_servers::Server;
use crate::problem::{ApiResult, Problem};
use crate::proxy::directives::Tags;

/// How long `initialize` waits for the sessions of servers.
const SESSION_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the parsing of a large message may wait for a thread, and take.
const PARSE_TIMEOUT: Duration = Duration::from_secs(10);
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Which servers an endpoint has.
#[derive(Clone)]
pub enum Target {
    All,
    Server(String),
}

/// A request to an endpoint.
pub struct McpRequest {
    pub identity: Identity,
    pub target: Target,
    pub headers: HeaderMap,
    pub path: String,
    pub request_id: String,
    pub body: Bytes,
}

/// What is known of a request once it was checked.
pub struct Context {
    pub identity: Identity,
    pub caller: String,
    pub era: Era,
    pub client: ClientFacts,
    pub headers: HeaderMap,
    pub tags: Tags,
    pub session: Option<CallerSession>,
    target: Target,
    /// The servers that the caller sees here.
    pub servers: Vec<Arc<Server>>,
    /// The built-in server is one of them.
    pub has_builtin: bool,
    /// One server, whose names are untouched.
    pub is_single: bool,
    pub path: String,
    pub request_id: String,
    /// In the `_meta` of the request.
    pub traceparent: Option<String>,
}

impl Context {
    pub fn catalogue_request(&self, server: &Arc<Server>) -> CatalogueRequest {
        CatalogueRequest {
            org: self.identity.org.id,
            memory: Arc::clone(&self.identity.org.memory),
            server: Arc::clone(server),
            caller: self.caller.clone(),
        }
    }

    /// The caller's rights have changed. False if there is nothing left for it here.
    pub fn renew(&mut self, identity: Identity) -> bool {
        let Some(reach) = reach(&identity, &self.target).filter(|_| check_scope(&identity).is_ok()) else {
            return false;
        };
        (self.servers, self.has_builtin) = reach;
        self.identity = identity;
        true
    }

    pub fn server(&self, name: &str) -> Option<&Arc<Server>> {
        self.servers.iter().find(|server| &*server.name == name)
    }
}

impl Mcp {
    /// Checks who calls and from where.
    fn enter(&self, request: McpRequest) -> ApiResult<(Context, Bytes)> {
        let McpRequest { identity, target, headers, path, request_id, body } = request;
        self.check_origin(&headers)?;
        check_scope(&identity)?;
        let tags = Tags::read(&headers)?;
        let (servers, has_builtin) = reach(&identity, &target).ok_or_else(Problem::not_found)?;
        let is_single = matches!(target, Target::Server(_));
        let caller = caller_of(&identity, tags.user.as_deref());
        let client = ClientFacts { info: json!({}), capabilities: json!({}) };
        let era = Era::Legacy(gateway_core::mcp::LATEST_LEGACY);
        let context = Context {
            identity,
            caller,
            era,
            client,
            headers,
            tags,
            session: None,
            target,
            servers,
            has_builtin,
            is_single,
            path,
            request_id,
            traceparent: None,
        };
        Ok((context, body))
    }

    /// A browser says which page calls. Only pages of the service, and those that the operator allows, may.
    fn check_origin(&self, headers: &HeaderMap) -> ApiResult<()> {
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).map(str::to_ascii_lowercase);
        let is_same = origin.split_once("://").is_some_and(|(_, of)| Some(of) == host.as_deref());
        // A name can be made to lead to any address, so a page of that name is not one of the service.
        let is_own = is_same && host.as_deref().is_some_and(is_address);
        let is_public =
            self.services.config.public_url.as_deref().is_some_and(|url| is_origin_of(&origin, url));
        if is_own || is_public || self.services.config.allowed_origins.contains(&origin) {
            return Ok(());
        }
        let message = "pages of this origin may not call MCP; the operator can name it in GATEWAY_PUBLIC_URL or \
                       GATEWAY_ALLOWED_ORIGINS";
        Err(Problem::forbidden(message))
    }

    /// Serves a message.
    pub async fn post(self: &Arc<Self>, request: McpRequest) -> ApiResult<Response> {
        let (mut context, body) = self.enter(request)?;
        let (compute, org) = (&self.services.compute, context.identity.org.id);
        let message = match compute.run_for_body(org, body.len(), PARSE_TIMEOUT, move || parse(&body)).await?
        {
            Ok(message) => message,
            Err(error) => return Ok(json(None, Era::Modern, &Outcome::error(error))),
        };
        let session_id =
            context.headers.get(SESSION_ID).and_then(|id| id.to_str().ok()).map(ToOwned::to_owned);
        if let Some(id) = &session_id {
            context.session = self.open_session(context.identity.org.id, &context.caller, id);
        }
        let has_lost_session = session_id.is_some() && context.session.is_none();
        match message {
            Incoming::Request { id, method, params } => {
                let header =
                    |name: &HeaderName| context.headers.get(name).and_then(|value| value.to_str().ok());
                let claims = HeaderClaims {
                    protocol_version: header(&PROTOCOL_VERSION),
                    method: header(&METHOD),
                    name: header(&NAME),
                };
                context.era = match select(claims, &method, &params) {
                    Ok(era) => era,
                    Err(error) => return Ok(json(Some(&id), Era::Modern, &Outcome::bad_request(error))),
                };
                if has_lost_session && !context.era.is_modern() && method != "initialize" {
                    return Ok(session_not_found(&id));
                }
                context.client = ClientFacts::of(&params);
                context.traceparent = params.members("_meta").and_then(|meta| meta.text("traceparent"));
                self.answer(context, id, method, params).await
            }
            Incoming::Notification { method, params } => {
                if method == "notifications/cancelled" {
                    self.cancel(&context, &params).await;
                }
                Ok(accepted())
            }
            Incoming::Response { id, outcome } => {
                self.pass_answer(&context, &id, outcome).await;
                Ok(accepted())
            }
        }
    }

    async fn answer(
        self: &Arc<Self>,
        context: Context,
        id: RequestId,
        method: String,
        params: Members,
    ) -> ApiResult<Response> {
        let era = context.era;
        let is_legacy = !era.is_modern();
        let result = match method.as_str() {
            "initialize" if is_legacy => {
                let _slot = self.call_slot(&context).await?;
                return Ok(self.initialize(&context, &id).await);
            }
            "server/discover" if era.is_modern() => Ok(self.discover(&context).await),
            "subscriptions/listen" if era.is_modern() => return Ok(self.listen(context, id, &params).await),
            "ping" if is_legacy => Ok(raw(&json!({}))),
            "logging/setLevel" if is_legacy && !context.is_single => Ok(raw(&json!({}))),
            _ => {
                let Some(list) = List::of(&method) else {
                    check_call(&context.identity)?;
                    if builtin::is_meant(&context, &method, &params) {
                        return self.call_builtin(context, id, &method, params).await;
                    }
                    return self.call(context, id, &method, params).await;
                };
                self.list(&context, list, &params).await
            }
        };
        let outcome = match result {
            Ok(result) => Outcome::ok(gateway_core::mcp::result_for(era, &result)),
            Err(error) => Outcome::error(error),
        };
        Ok(json(Some(&id), era, &outcome))
    }

    /// Begins a session with each server that has sessions. Without any the caller needs no session either. A server that
    /// has just failed, or that is not reached in time, gets its session with the first call.
    async fn initialize(self: &Arc<Self>, context: &Context, id: &RequestId) -> Response {
        let lookups = self.look_up_all(context).await;
        let is_stateful =
            |lookup: &Lookup| lookup.catalogue.as_ref().is_some_and(|catalogue| catalogue.is_stateful());
        let opened = lookups.iter().filter(|(_, lookup)| lookup.failure.is_none() && is_stateful(lookup));
        let opened = opened.map(|(server, _)| async move {
            let org = context.identity.org.id;
            let _slot = self.openings.acquire(org, Some(SESSION_TIMEOUT)).await.ok()?;
            let headers =
                self.credentials(org, server, &context.caller, Some(&context.headers)).await.ok()?;
            let memory = &context.identity.org.memory;
            let peer = self.peer(org, server, headers, memory);
            let initialized = initialize(&peer, &context.client, SESSION_TIMEOUT).await.ok()?;
            Some((server.name.to_string(), initialized.session))
        });
        let sessions: BTreeMap<_, _> = join_all(opened).await.into_iter().flatten().collect();
        let org = context.identity.org.id;
        let session =
            if sessions.is_empty() { None } else { self.seal_session(org, &context.caller, sessions) };
        let mut about = Self::about(context, &lookups);
        about.insert("protocolVersion", Value::from(context.era.revision()));
        with_session(json(Some(id), context.era, &Outcome::ok(raw(&about))), session.as_deref())
    }

    /// Ends a session.
    pub async fn delete(self: &Arc<Self>, request: McpRequest) -> ApiResult<Response> {
        let (context, _) = self.enter(request)?;
        let id = context.headers.get(SESSION_ID).and_then(|id| id.to_str().ok());
        let Some(id) = id else { return Ok(method_not_allowed()) };
        let org = context.identity.org.id;
        let session = self.open_session(org, &context.caller, id).ok_or_else(Problem::not_found)?;
        self.forget_session(org, id);
        let context = &context;
        let ended = session.servers.iter().filter_map(|(name, session)| {
            let server = context.server(name)?;
            Some(async move {
                let headers = self.credentials(org, server, &context.caller, None).await.ok()?;
                let memory = &context.identity.org.memory;
                let peer = self.peer(org, server, headers, memory);
                peer.end_session(&session.headers(), END_TIMEOUT).await;
                Some(())
            })
        });
        join_all(ended).await;
        let mut response = accepted();
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }

    /// The stream of list changes for clients of older revisions.
    pub async fn get(self: &Arc<Self>, request: McpRequest) -> ApiResult<Response> {
        let (mut context, _) = self.enter(request)?;
        let header = |name: &HeaderName| context.headers.get(name).and_then(|value| value.to_str().ok());
        let is_asked = header(&ACCEPT).is_some_and(|kinds| kinds.contains("text/event-stream"));
        if !is_asked || header(&PROTOCOL_VERSION) == Some(MODERN) {
            return Ok(method_not_allowed());
        }
        if let Some(id) = header(&SESSION_ID) {
            let session = self.open_session(context.identity.org.id, &context.caller, id);
            context.session = Some(session.ok_or_else(Problem::not_found)?);
        }
        Ok(self.follow(context).await.unwrap_or_else(method_not_allowed))
    }
}

/// The servers that the caller sees at an endpoint, and whether the built-in one is among them. `None` if there is none of
/// that name.
fn reach(identity: &Identity, target: &Target) -> Option<(Vec<Arc<Server>>, bool)> {
    let mut servers = visible_servers(identity);
    let mut has_builtin = sees_server(identity, RESERVED_SERVER);
    if let Target::Server(name) = target {
        servers.retain(|server| *server.name == **name);
        has_builtin &= name == RESERVED_SERVER;
    }
    let is_there = matches!(target, Target::All) || has_builtin || !servers.is_empty();
    is_there.then_some((servers, has_builtin))
}

/// Whether a host is an IP address or this machine, with or without a port.
fn is_address(host: &str) -> bool {
    let Ok(url) = url::Url::parse(&format!("http://{host}")) else { return false };
    matches!(url.host(), Some(url::Host::Ipv4(_) | url::Host::Ipv6(_))) || url.host_str() == Some("localhost")
}

fn is_origin_of(origin: &str, url: &str) -> bool {
    let parsed = (url::Url::parse(origin), url::Url::parse(url));
    matches!(parsed, (Ok(origin), Ok(url)) if origin.origin() == url.origin())
}

fn session_not_found(id: &RequestId) -> Response {
    let message = "Session not found: begin a new one with initialize";
    let outcome = Outcome::error(RpcError::new(codes::INVALID_REQUEST, message));
    let mut response = json(Some(id), Era::Modern, &outcome);
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

fn method_not_allowed() -> Response {
    let mut response = accepted();
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, DELETE"));
    response
}
