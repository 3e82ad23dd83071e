//! The sandbox provider: responses are made inside the gateway; everything else is as with any other provider.

use std::time::Duration;

use gateway_core::llm::sandbox::{self, SandboxBody, SandboxDirectives};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use super::attempt::Attempt;
use super::context::RequestContext;
use super::response_body::BodySource;
use super::upstream::{AttemptError, UpstreamResponse};
use crate::outbound::body::OutboundBody;

pub async fn respond(
    context: RequestContext<'_>,
    attempt: &Attempt<'_>,
    body: OutboundBody,
    timeout: Duration,
) -> Result<UpstreamResponse, AttemptError> {
    let head = context.head;
    let request = body.bytes().unwrap_or_default();
    let (size, method, headers) = (request.len(), head.method.clone(), head.headers.clone());
    let path = attempt.path(head);
    let path = path.split('?').next().unwrap_or_default().to_owned();
    let responding = move || {
        let named = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        sandbox::respond(method.as_str(), &path, &SandboxDirectives::from_headers(named), &request)
    };
    let (compute, org) = (&context.services.compute, context.identity.org.id);
    let reply = compute.run_for_body(org, size, timeout, responding).await?;
    // The caller decides how long the sandbox waits, so the body is not kept meanwhile.
    drop(body);
    if !reply.delay.is_zero() {
        if reply.delay > timeout {
            tokio::time::sleep(timeout).await;
            return Err(AttemptError::timeout(format!("no response within {} ms", timeout.as_millis())));
        }
        tokio::time::sleep(reply.delay).await;
    }
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if status.is_server_error() {
        let message = format!("status {} as requested", status.as_u16());
        let retry_after = reply.retry_after.map(Duration::from_secs);
        return Err(AttemptError { retry_after, ..AttemptError::status(status.as_u16(), message) });
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
    if let Some(seconds) = reply.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    let source = match reply.body {
        SandboxBody::Json(body) => BodySource::whole(body.into()),
        SandboxBody::Events(events) => BodySource::Chunks(events.into_iter().map(Into::into).collect()),
    };
    UpstreamResponse::new(response.into_parts().0, source).or_failed(context.now())
}
