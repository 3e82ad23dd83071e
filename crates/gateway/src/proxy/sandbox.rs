//! The sandbox provider: responses are made inside the gateway; everything else is as with any other provider.

use std::time::Duration;

use gateway_core::llm::sandbox::{self, SandboxBody, SandboxDirectives, SandboxResponse};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::attempt::Attempt;
use super::context::RequestContext;
use super::response_body::BodySource;
use super::upstream::{AttemptError, UpstreamResponse};
use crate::memory::{MemoryExhausted, Reservation, hold};
use crate::outbound::body::OutboundBody;

pub async fn respond(
    context: RequestContext<'_>,
    attempt: &Attempt<'_>,
    body: OutboundBody,
    timeout: Duration,
) -> Result<UpstreamResponse, AttemptError> {
    let head = context.head;
    let request = body.bytes().unwrap_or_default();
    let (method, headers) = (head.method.clone(), head.headers.clone());
    let path = attempt.path(head);
    let path = path.split('?').next().unwrap_or_default().to_owned();
    // A short request may have a long response.
    let expected = sandbox::expected_response_bytes(&path, &directives(&headers), &request);
    let (work, reserved) = (request.len().max(expected), context.identity.org.memory.reserve(expected)?);
    // The memory belongs to the work, which goes on for a while when the client has gone away.
    let responding =
        move || (sandbox::respond(method.as_str(), &path, &directives(&headers), &request), reserved);
    let (compute, org) = (&context.services.compute, context.identity.org.id);
    let (reply, reserved) = compute.run_for_body(org, work, timeout, responding).await?;
    // The caller decides how long the sandbox waits, so the body is not kept meanwhile.
    drop(body);
    let SandboxResponse { status, content_type, retry_after, delay, body } = reply;
    let source = held(body, reserved)?;
    if !delay.is_zero() {
        if delay > timeout {
            tokio::time::sleep(timeout).await;
            return Err(AttemptError::timeout(format!("no response within {} ms", timeout.as_millis())));
        }
        tokio::time::sleep(delay).await;
    }
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if status.is_server_error() {
        let message = format!("status {} as requested", status.as_u16());
        let retry_after = retry_after.map(Duration::from_secs);
        return Err(AttemptError { retry_after, ..AttemptError::status(status.as_u16(), message) });
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    UpstreamResponse::new(response.into_parts().0, source).or_failed(context.now())
}

fn directives(headers: &HeaderMap) -> SandboxDirectives<'_> {
    let named = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    SandboxDirectives::from_headers(named)
}

/// The response, whose memory is reserved until it has been sent.
fn held(body: SandboxBody, mut memory: Reservation) -> Result<BodySource, MemoryExhausted> {
    match body {
        SandboxBody::Json(body) => {
            memory.resize(body.len())?;
            Ok(BodySource::whole(hold(body, memory)))
        }
        SandboxBody::Events(events) => {
            // One reservation for all events: a reservation for each would take many times their length.
            memory.resize(events.iter().map(Vec::len).sum())?;
            let whole = hold(events.concat(), memory);
            let mut end = 0;
            let chunks = events.iter().map(|event| {
                let start = end;
                end += event.len();
                whole.slice(start..end)
            });
            Ok(BodySource::Chunks(chunks.collect()))
        }
    }
}
