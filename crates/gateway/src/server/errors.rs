//! Errors of the server itself, and the rendering of all errors of handlers.

use axum::response::Response;
use gateway_core::time::Timestamp;
use http::header::ALLOW;
use http::{HeaderName, StatusCode};

use crate::api;
use crate::auth::Denied;
use crate::metrics::events::AuthFailure;
use crate::problem::{ErrorFormat, Problem};

/// Renders the body of an error of the management API. Handlers return a response that has the problem as an extension;
/// the router's own 405 has none.
pub fn render_problem(mut response: Response, format: ErrorFormat) -> Response {
    let problem = match response.extensions_mut().remove::<Problem>() {
        Some(problem) => problem,
        None if response.status() == StatusCode::METHOD_NOT_ALLOWED => {
            Problem::method_not_allowed(response.headers().get(ALLOW).cloned())
        }
        None => return response,
    };
    let rate = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]
        .map(|name| (HeaderName::from_static(name), response.headers().get(name).cloned()));
    let mut rendered = problem.render(format);
    for (name, value) in rate {
        if let Some(value) = value {
            rendered.headers_mut().insert(name, value);
        }
    }
    rendered
}

/// The reason as metrics name it.
pub fn auth_failure(denied: Denied) -> AuthFailure {
    match denied {
        Denied::Missing => AuthFailure::Missing,
        Denied::Invalid => AuthFailure::Invalid,
        Denied::TooMany(_) => AuthFailure::Limited,
        Denied::Unavailable => AuthFailure::Unavailable,
    }
}

pub fn denied_problem(denied: Denied, now: Timestamp) -> Problem {
    match denied {
        Denied::Missing => {
            Problem::unauthorized("send X-Gateway-Key: sk-gateway-… or Authorization: Bearer <token>")
        }
        Denied::Invalid => Problem::unauthorized("invalid, expired or revoked credential"),
        Denied::TooMany(status) => Problem::rate_limited(
            status,
            now,
            "too many wrong credentials from this address; see Retry-After",
        ),
        Denied::Unavailable => Problem::unavailable(),
    }
}

/// The error for a path without a route, in a request that names no provider.
pub fn route_not_found(path: &str) -> Problem {
    if api::is_api_path(path) {
        Problem::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "there is no such endpoint; GET /openapi.yaml lists all endpoints",
        )
    } else {
        Problem::bad_request("X-Gateway-Provider: the header is required; set it to the name of a provider")
    }
}
