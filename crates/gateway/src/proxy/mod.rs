//! The proxy. The stages of a request, in order: read the call, learn its model, plan where it may go, admit it, hold what
//! it may cost, open its record, put its prompt in, look into the cache, walk from target to target until one answers,
//! pass the answer on while it is metered. Plain functions,
//! one struct, no layers.

mod admit;
pub mod ask;
mod body;
mod budget;
mod cache_stage;
mod call;
pub mod clients;
mod failover;
pub mod headers;
mod plan;
mod pool;
pub mod record;
mod response_body;
mod response_format;
mod sandbox;
pub mod state;
pub mod target;
pub mod target_health;
mod translate;
pub mod upstream;
mod validate;

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use serde_json::json;

use crate::app::App;
use crate::auth::{self, Identity};
use crate::cache::CacheMode;
use crate::problem::{ApiResult, Problem, rate_headers};
use crate::prompts;
use ask::Origin;
use body::{Inbound, Payload};
use cache_stage::{CacheRecorder, FillGuard, Found};
use call::{Adaptation, Call, RouteTarget};
use clients::Clients;
use record::Record;
use response_body::MeteredBody;
use upstream::{AttemptError, UpstreamResponse};

/// What one worker thread has for itself: connections to providers, and a lane of the log spool.
pub struct Worker {
    pub lane: usize,
    pub clients: Clients,
}

/// Forwards a request of an authenticated caller to the provider that it names, once it is counted.
pub async fn forward(
    app: &Arc<App>,
    worker: &Worker,
    identity: &mut Identity,
    request_id: &HeaderValue,
    request: Request<Incoming>,
) -> ApiResult<Response> {
    let (head, incoming) = request.into_parts();
    let mut inbound = Inbound::new(incoming, app.services.config.max_body_bytes);
    inbound.read_while(auth::count(app, identity)).await?;
    let response = run(app, worker, identity, request_id, &head, inbound, Origin::default()).await;
    response.map_err(|mut problem| {
        problem.headers.extend(identity.rate.iter().flat_map(rate_headers));
        problem
    })
}

/// The stages, for whoever asks.
async fn run(
    app: &Arc<App>,
    worker: &Worker,
    identity: &Identity,
    request_id: &HeaderValue,
    head: &Parts,
    mut inbound: Inbound,
    origin: Origin,
) -> ApiResult<Response> {
    let started = Instant::now();
    let mut call = Call::read(app, identity, head)?;
    if inbound.is_too_large() {
        return Err(Problem::too_large(app.services.config.max_body_bytes));
    }
    admit::learn_model(identity, &mut call, head, &mut inbound).await?;
    call.settle_stream();
    plan::plan(app, identity, &mut call)?;
    admit::check_scopes(identity, &call, head)?;
    let held = budget::reserve(app, identity, &call, &inbound).await?;
    let mut record = Record::open(app, worker.lane, identity, &call, head, request_id, started);
    record.came_from(origin);
    record.set_reservation(held);
    plan::put_in_order(app, identity, &mut call, record.id());
    let settled = settle(app, identity, &call, head, inbound, &mut record).await;
    let payload = match settled {
        Ok(payload) => payload,
        Err(problem) => return Err(refusal(&call, record, problem)),
    };
    let keeping = match (&call.caching, payload.kept()) {
        (Some(caching), Some(body)) => {
            record.missed(caching.mode == CacheMode::Refresh);
            let ends_at = record.ends_at(call.timeout);
            match cache_stage::lookup(app, identity, &call, head, body, ends_at).await {
                Found::Hit(hit) => match cache_stage::pieces(&call, &hit.entry) {
                    Some(pieces) => {
                        return Ok(cache_stage::respond_from_cache(
                            app, &call, identity, record, &hit, pieces,
                        ));
                    }
                    None => None,
                },
                Found::Lead(keeping) => {
                    record.named_entry(keeping.key());
                    Some(keeping)
                }
                Found::Nothing => None,
            }
        }
        _ => None,
    };
    match failover::try_targets(app, worker, identity, &mut call, head, payload, &mut record).await {
        Ok(answered) => Ok(pass_on(&call, identity, record, answered, keeping)),
        Err(AttemptError { answer: Some(answered), .. }) => {
            cache_stage::failed(keeping);
            let ends_at = record.ends_at(call.timeout).into();
            let answered = response_format::refusal(&call, *answered, ends_at).await;
            Ok(pass_on(&call, identity, record, answered, None))
        }
        Err(failed) => {
            cache_stage::failed(keeping);
            Err(failure(&call, record, &failed))
        }
    }
}

/// The body as it can be sent, with the prompt that the caller asked for in it. Logged is what the caller sent.
async fn settle(
    app: &Arc<App>,
    identity: &Identity,
    call: &Call,
    head: &Parts,
    inbound: Inbound,
    record: &mut Record,
) -> ApiResult<Payload> {
    let asked = prompts::asked(&head.headers)?;
    let payload = inbound.settle(asked.is_some() || must_keep(call), record).await?;
    let (Some(asked), Some(body)) = (asked, payload.kept()) else { return Ok(payload) };
    let (prompted, used) = prompts::apply(app, identity.org.id, &asked, call.operation, body).await?;
    record.used_prompt(used, prompted.len().saturating_sub(body.len()));
    Ok(Payload::Kept(prompted))
}

/// Is the body needed whole, or perhaps more than once?
fn must_keep(call: &Call) -> bool {
    let needs_whole = |hop: &RouteTarget| {
        hop.target.is_sandbox()
            || hop.model != call.asked_model
            || hop.adaptation == Adaptation::Translate
            || body::asks_for_usage(call, hop)
            || upstream::signs_body(&hop.target)
    };
    plan::has_choice(call)
        || call.caching.is_some()
        || call.sets_stream()
        || call.targets.iter().any(needs_whole)
}

/// The provider's answer, with our headers beside its own and the record riding in the body.
fn pass_on(
    call: &Call,
    identity: &Identity,
    mut record: Record,
    mut answered: UpstreamResponse,
    keeping: Option<Box<FillGuard>>,
) -> Response {
    let keeper = keeping.and_then(|keeping| CacheRecorder::new(keeping, call, &answered));
    let status = answered.head.status;
    record.answered(status, answered.framing);
    headers::complete(&mut answered.head.headers, call, identity, &record, status);
    let headers = std::mem::take(&mut answered.head.headers);
    let mut response = Response::new(Body::new(MeteredBody::new(answered, &headers, record, call, keeper)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The caller's own fault, found out after admission.
fn refusal(call: &Call, mut record: Record, mut problem: Problem) -> Problem {
    record.refused(problem.status, problem.code, &problem.message);
    problem.headers.extend(headers::of_failure(call, &record, None));
    problem
}

/// What the caller learns when the provider did not give an answer that can be passed on.
fn failure(call: &Call, mut record: Record, failed: &AttemptError) -> Problem {
    if let Some(problem) = &failed.callers_fault {
        return refusal(call, record, Problem::clone(problem));
    }
    let (status, code) = if failed.timed_out() {
        (StatusCode::GATEWAY_TIMEOUT, "provider_timeout")
    } else {
        (StatusCode::BAD_GATEWAY, "provider_error")
    };
    let upstream_status = failed.status;
    let message = format!("{}: {}", call.target().name, failed.message);
    let mut problem = Problem::new(status, code, message);
    problem.extra.insert("provider".into(), call.target().name.as_str().into());
    problem.extra.insert("upstream_status".into(), json!(upstream_status));
    record.failed(status, code, failed);
    problem.extra.insert("attempts".into(), json!(record.attempts()));
    problem.headers = headers::of_failure(call, &record, upstream_status);
    problem
}
