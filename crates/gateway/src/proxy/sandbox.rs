//! The sandbox: a provider inside the gateway, which goes the same way as any other except for the network.

use std::time::Duration;

use gateway_core::llm::sandbox::{self, SandboxDirectives};
use gateway_core::time::Timestamp;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};

use super::body::Outbound;
use super::call::Call;
use super::response_body::Source;
use super::upstream::{AttemptError, UpstreamResponse};

pub async fn respond(
    call: &Call,
    head: &Parts,
    body: Outbound,
    limit: Duration,
    now: Timestamp,
) -> Result<UpstreamResponse, AttemptError> {
    let bytes = body.bytes().unwrap_or_default();
    let named = head.headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let directives = SandboxDirectives::from_headers(named);
    let path = call.path(head);
    let path = path.split('?').next().unwrap_or_default();
    let reply = sandbox::respond(head.method.as_str(), path, &directives, &bytes);
    if !reply.delay.is_zero() {
        if reply.delay > limit {
            tokio::time::sleep(limit).await;
            let message = format!("no answer within {} ms", limit.as_millis());
            return Err(AttemptError::timeout(message));
        }
        tokio::time::sleep(reply.delay).await;
    }
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if status.is_server_error() {
        let message = format!("it answered {} as asked", status.as_u16());
        let retry_after = reply.retry_after.map(Duration::from_secs);
        return Err(AttemptError { retry_after, ..AttemptError::answered(status.as_u16(), message) });
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
    if let Some(seconds) = reply.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    let source = match reply.body {
        sandbox::SandboxBody::Json(body) => Source::whole(body.into()),
        sandbox::SandboxBody::Events(events) => Source::pieces(events.into_iter().map(Into::into).collect()),
    };
    UpstreamResponse::new(response.into_parts().0, source).or_failed(now)
}
