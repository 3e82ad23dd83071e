//! The proxy. The stages of a request, in order: read the call, learn its model, plan where it may go, admit it, open
//! its record, walk from target to target until one answers, pass the answer on while it is metered. Plain functions, one struct, no layers.

mod admit;
mod body;
mod call;
pub mod clients;
mod headers;
mod hold;
mod local;
mod pool;
pub mod pulse;
pub mod record;
mod route;
pub mod target;
mod tee;
pub mod upstream;

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use serde_json::json;

use crate::app::App;
use crate::auth::Identity;
use crate::problem::{Outcome, Problem};
use body::Inbound;
use call::{Call, Hop};
use clients::Clients;
use record::Record;
use tee::Tee;
use upstream::{Answered, Failed};

/// What one worker thread has for itself: connections to providers, and a lane of the log spool.
pub struct Worker {
    pub lane: usize,
    pub clients: Clients,
}

/// Forwards a request of an authenticated caller to the provider that it names.
pub async fn forward(
    app: &Arc<App>,
    worker: &Worker,
    identity: &Identity,
    request_id: &HeaderValue,
    request: Request<Incoming>,
) -> Outcome<Response> {
    let started = Instant::now();
    let (head, incoming) = request.into_parts();
    let mut call = Call::read(app, identity, &head)?;
    let mut inbound = Inbound::new(incoming, app.config.max_body_bytes);
    if inbound.is_too_large() {
        return Err(Problem::too_large(app.config.max_body_bytes));
    }
    admit::learn_model(identity, &mut call, &head, &mut inbound).await?;
    route::plan(app, identity, &mut call)?;
    admit::check_scopes(identity, &call, &head)?;
    let mut record = Record::open(app, worker.lane, identity, &call, &head, request_id, started);
    route::put_in_order(app, identity, &mut call, record.id());
    let payload = match inbound.settle(must_keep(&call), &mut record).await {
        Ok(payload) => payload,
        Err(problem) => return Err(refusal(&call, record, problem)),
    };
    match route::walk(app, worker, identity, &mut call, &head, payload, &mut record).await {
        Ok(answered) => Ok(pass_on(&call, identity, record, answered)),
        Err(Failed { answer: Some(answered), .. }) => Ok(pass_on(&call, identity, record, *answered)),
        Err(failed) => Err(failure(&call, record, &failed)),
    }
}

/// Is the body needed whole, or perhaps more than once?
fn must_keep(call: &Call) -> bool {
    let needs_whole = |hop: &Hop| {
        hop.target.is_sandbox()
            || hop.model != call.asked_model
            || body::asks_for_usage(call, hop)
            || upstream::signs_body(&hop.target)
    };
    route::has_choice(call) || call.hops.iter().any(needs_whole)
}

/// The provider's answer, with our headers beside its own and the record riding in the body.
fn pass_on(call: &Call, identity: &Identity, mut record: Record, answered: Answered) -> Response {
    let Answered { mut head, source } = answered;
    record.answered(head.status, &head.headers);
    headers::complete(&mut head.headers, call, identity, &record, head.status);
    let tee = Tee::new(source, record, call, &head.headers);
    let mut response = Response::new(Body::new(tee));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response
}

/// The caller's own fault, found out after admission.
fn refusal(call: &Call, mut record: Record, mut problem: Problem) -> Problem {
    record.refused(problem.status, problem.code, &problem.message);
    problem.headers.extend(headers::of_failure(call, &record, None));
    problem
}

/// What the caller learns when the provider did not give an answer that can be passed on.
fn failure(call: &Call, mut record: Record, failed: &Failed) -> Problem {
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
