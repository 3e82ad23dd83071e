//! The proxy. A request goes through these stages in order: read the directives, learn the model, plan the route (of a
//! named model or of headers), check
//! scopes, reserve budgets, open the log record, apply the prompt, take what limits allow, look into the cache, try the
//! targets, send the response through the pipeline. Plain functions, no middleware.

mod admit;
mod affinity;
mod attempt;
pub mod budget;
mod cache_stage;
pub mod compat;
mod content_decoding;
mod context;
mod cost;
mod credentials;
pub mod directives;
mod facts;
mod failover;
pub mod headers;
mod inbound;
pub mod internal_request;
mod limit_headers;
mod model_list;
mod named_model;
pub mod origin;
mod payload;
mod pipeline;
mod plan;
pub mod prompt_cache;
mod received;
mod recognize;
pub mod record;
mod response_body;
mod response_format;
mod sandbox;
pub mod sdk;
pub mod state;
pub mod target_health;
mod translate;
pub mod upstream;
mod validate;

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use gateway_core::llm::paths::{RequestPath, has_parent_segment};
use http::{HeaderValue, Method, Request, StatusCode};
use hyper::body::Incoming;
use serde_json::json;

use crate::auth::Identity;
use crate::cache::CacheMode;
use crate::calls_in_progress::CallInProgress;
use crate::memory::{Reservation, hold};
use crate::metrics::events::{CacheResult, Stage};
use crate::outbound::clients::Clients;
use crate::problem::{ApiResult, Problem, rate_headers};
use crate::prompts::PromptDirective;
use crate::services::Services;
use affinity::Affinity;
use attempt::Attempt;
use cache_stage::{CacheLookup, CacheRecorder, FillGuard};
use compat::CompatCall;
use context::RequestContext;
use directives::Directives;
use facts::RequestFacts;
use inbound::Inbound;
use named_model::NamedModel;
use origin::CallOrigin;
use payload::Payload;
use plan::Plan;
use record::Record;
use response_body::MeteredBody;
use state::ProxyState;
use upstream::{AttemptError, UpstreamResponse};

/// What one worker thread has for itself: connections to providers, and a lane of the log spool.
pub struct Worker {
    pub lane: usize,
    pub clients: Clients,
}

/// The proxy as one worker thread uses it.
#[derive(Clone, Copy)]
pub struct Proxy<'a> {
    pub services: &'a Arc<Services>,
    pub state: &'a Arc<ProxyState>,
    pub worker: &'a Worker,
}

/// A request of a client.
pub struct ClientRequest<'r> {
    pub request: Request<Incoming>,
    pub request_id: &'r HeaderValue,
    pub call: CallInProgress,
    /// Set if it is one of another gateway's client.
    pub compat: Option<CompatCall>,
}

impl Proxy<'_> {
    /// Forwards a request. `identity` resolves once the request has been counted against the caller's rate limit; the
    /// body is read at the same time, and `memory` grows with what is held of it.
    pub async fn forward<'i>(
        self,
        identity: impl Future<Output = ApiResult<&'i Identity>>,
        memory: Reservation,
        client: ClientRequest<'_>,
    ) -> ApiResult<Response> {
        let Self { services, state, worker } = self;
        let ClientRequest { request, request_id, call, mut compat } = client;
        let (mut head, incoming) = request.into_parts();
        let config = &services.config;
        let mut inbound = Inbound::new(incoming, config.max_body_bytes, config.proxy_timeout, memory);
        let began = Instant::now();
        let identity = inbound.read_while(identity).await?;
        state.metrics.lane(worker.lane).stage(Stage::Limit, began.elapsed());
        let with_rate = |mut problem: Problem| {
            problem.headers.extend(identity.rate.iter().flat_map(rate_headers));
            problem
        };
        if let Some(compat) = &mut compat {
            let rewritten = compat.rewrite(&mut head, inbound, identity, services).await;
            inbound = rewritten.map_err(with_rate)?;
        }
        let origin = compat.as_ref().map(CompatCall::origin).unwrap_or_default().with_call(Some(call));
        let context = RequestContext { services, state, worker, identity, head: &head, request_id };
        let response = run(context, inbound, origin).await;
        let response = match (&compat, response) {
            (None, response) => response,
            (Some(compat), Ok(response)) => compat.complete(response, identity).await,
            (Some(compat), Err(problem)) => Err(compat.complete_problem(problem)),
        };
        response.map_err(with_rate)
    }
}

/// All stages of a request.
async fn run(context: RequestContext<'_>, mut inbound: Inbound, origin: CallOrigin) -> ApiResult<Response> {
    let started = Instant::now();
    if matches!(context.head.method, Method::TRACE | Method::CONNECT) {
        return Err(refused_method());
    }
    if has_parent_segment(context.head.uri.path()) {
        return Err(parent_segment());
    }
    let path = RequestPath::parse(context.head.uri.path());
    let mut directives = Directives::read(context, &path)?;
    if let Some(listed) = model_list::respond(context, &directives) {
        return listed;
    }
    let mut facts = RequestFacts::from_path(context, &path)?;
    if inbound.is_too_large() {
        return Err(Problem::too_large(context.services.config.max_body_bytes));
    }
    facts.read_body(context, &mut inbound).await?;
    directives.affinity = Affinity::find(context, &directives, &mut inbound).await?;
    let named = NamedModel::find(context, &mut directives, &facts, &mut inbound).await?;
    let mut plan = match named {
        Some(named) => Plan::of_model(context, &directives, facts, named)?,
        None => Plan::new(context, &directives, facts)?,
    };
    admit::check_scopes(context, &plan)?;
    admit::check_objects(context, &plan, &path)?;
    let (reservation, refused) = match budget::reserve(context, &plan, &inbound).await {
        Ok(reservation) => (reservation, None),
        // The gateway's own calls wait and try again, which would leave a row each time.
        Err(problem) if origin.source.is_internal() && budget::is_reserved(&problem) => return Err(problem),
        Err(problem) => (None, Some(problem)),
    };
    let mut record = Record::open(context, &plan, origin, reservation, started);
    if let Some(problem) = refused {
        // The row has the body as far as it has arrived.
        drop(inbound.into_payload(false, &mut record).await);
        return Err(rejected(&Attempt::new(&plan, 0), record, problem));
    }
    plan.sort_targets(context, record.id());
    let payload = match prepare_payload(context, &mut plan, inbound, &mut record).await {
        Ok(payload) => payload,
        Err(problem) => return Err(rejected(&Attempt::new(&plan, 0), record, problem)),
    };
    if let Some(limits) = &context.identity.org.limits
        && let Err(problem) = admit::limits::take(context, limits, &plan, &payload, &mut record).await
    {
        return Err(rejected(&Attempt::new(&plan, 0), record, problem));
    }
    let mut fill_guard = None;
    if let (Some(cache), Some(body)) = (&directives.cache, payload.buffered()) {
        record.set_cache_miss(cache.mode == CacheMode::Refresh);
        let deadline = record.deadline(directives.timeout);
        let events = &context.state.metrics.events;
        match cache_stage::lookup(context, &plan, body, deadline).await {
            CacheLookup::Hit(hit) => {
                let chunks = match cache_stage::response_chunks(context, &plan, &hit.entry) {
                    Ok(chunks) => chunks,
                    Err(overloaded) => {
                        return Err(rejected(&Attempt::new(&plan, 0), record, overloaded.into()));
                    }
                };
                events.cache(if chunks.is_some() { hit.kind.into() } else { CacheResult::Bypass });
                if let Some(chunks) = chunks {
                    return Ok(cache_stage::respond_from_cache(context, &plan, record, &hit, chunks));
                }
            }
            CacheLookup::Miss(guard) => {
                let is_refresh = cache.mode == CacheMode::Refresh;
                events.cache(if is_refresh { CacheResult::Refresh } else { CacheResult::Miss });
                record.set_cache_key(guard.key());
                fill_guard = Some(guard);
            }
            CacheLookup::Bypass => events.cache(CacheResult::Bypass),
        }
    }
    if let Some(body) = payload.buffered() {
        plan.bind_to_account(body);
    }
    let (attempt, mut result) = failover::try_targets(context, &plan, payload, &mut record).await;
    if directives.wants_cost
        && let Ok(response) = result
    {
        let deadline = record.deadline(attempt.target.timeout).into();
        result = response_format::buffer_plain(response, deadline, &context.identity.org.memory).await;
    }
    let error = match result {
        Ok(response) => return Ok(respond(context, &attempt, record, response, fill_guard)),
        Err(error) => error,
    };
    if let Some(guard) = fill_guard {
        guard.abandon();
    }
    match error.response {
        Some(response) => {
            let deadline = record.deadline(attempt.target.timeout).into();
            let memory = &context.identity.org.memory;
            let response = response_format::convert_error(&attempt, *response, deadline, memory).await;
            Ok(respond(context, &attempt, record, response, None))
        }
        None => Err(failed(&attempt, record, &error)),
    }
}

/// A provider that echoes a TRACE would show the stored credential to the caller; CONNECT asks for a tunnel.
fn refused_method() -> Problem {
    let message = "TRACE and CONNECT are not forwarded to providers";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

/// A provider that resolves `..` would leave the base URL that its credential is meant for.
fn parent_segment() -> Problem {
    Problem::bad_request("the path must not have '..' segments, plain or encoded")
}

/// Prepares the body for sending, with the prompt that the caller selected. The log row has the caller's body.
async fn prepare_payload(
    context: RequestContext<'_>,
    plan: &mut Plan<'_>,
    inbound: Inbound,
    record: &mut Record,
) -> ApiResult<Payload> {
    let prompt = PromptDirective::from_headers(&context.head.headers)?;
    let whole = prompt.is_some() || plan.needs_whole_body() || admit::limits::need_body(context, plan);
    let payload = inbound.into_payload(whole, record).await?;
    let (Some(prompt), Some(body)) = (prompt, payload.buffered()) else { return Ok(payload) };
    let RequestContext { state, identity, .. } = context;
    let operation = plan.directives.operation;
    let (prompted, used) = state.prompts.apply(identity.org.id, &prompt, operation, body).await?;
    record.set_prompt(used, prompted.len().saturating_sub(body.len()));
    plan.facts.model_at = None;
    let memory = identity.org.memory.reserve(prompted.len())?;
    Ok(Payload::Buffered(hold(prompted, memory)))
}

/// Sends a response to the caller, through the pipeline.
fn respond(
    context: RequestContext<'_>,
    attempt: &Attempt<'_>,
    mut record: Record,
    mut response: UpstreamResponse,
    fill_guard: Option<Box<FillGuard>>,
) -> Response {
    let memory = context.identity.org.memory.open();
    let cache = fill_guard.and_then(|guard| CacheRecorder::new(guard, attempt, &response, memory));
    let status = response.head.status;
    record.start_response(status, response.framing);
    let noted = compat::note_call(context, attempt, &record);
    headers::complete(&mut response.head.headers, attempt, context.identity, &record, status);
    limit_headers::add(&mut response.head.headers, record.limit_headers(attempt.plan.directives));
    cost::add_header(context, attempt, &record, &mut response);
    let headers = response.head.headers;
    let body = MeteredBody::new(attempt, &headers, response.content, record, cache);
    let mut response = Response::new(Body::new(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if let Some(noted) = noted {
        response.extensions_mut().insert(noted);
    }
    response
}

/// A problem with the caller's request that was found after admission.
fn rejected(attempt: &Attempt<'_>, mut record: Record, mut problem: Problem) -> Problem {
    record.reject(problem.status, problem.code, &problem.message);
    problem.headers.extend(headers::of_failure(attempt, &record, None));
    problem.headers.extend(record.limit_headers(attempt.plan.directives));
    problem
}

/// The problem that the caller gets if no attempt had a response that can be forwarded.
fn failed(attempt: &Attempt<'_>, mut record: Record, error: &AttemptError) -> Problem {
    if let Some(problem) = &error.caller_problem {
        return rejected(attempt, record, Problem::clone(problem));
    }
    let (status, code) = if error.is_timeout() {
        (StatusCode::GATEWAY_TIMEOUT, "provider_timeout")
    } else {
        (StatusCode::BAD_GATEWAY, "provider_error")
    };
    let provider = attempt.provider().name.as_str();
    let mut problem = Problem::new(status, code, format!("{provider}: {}", error.message));
    problem.extra.insert("provider".into(), provider.into());
    problem.extra.insert("upstream_status".into(), json!(error.status));
    record.fail(status, code, error);
    problem.extra.insert("attempts".into(), json!(record.attempts()));
    problem.headers = headers::of_failure(attempt, &record, error.status);
    problem.headers.extend(record.limit_headers(attempt.plan.directives));
    problem
}
