//! Errors as callers see them, and the one place that turns them into HTTP. There are two families of bodies, told
//! apart by the path; a proxied request gets both at once, because SDKs of both kinds read it.

use std::borrow::Cow;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use gateway_core::limits::Verdict;
use gateway_core::time::Timestamp;
use gateway_store::StoreError;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `{"code", "message"}`
    Plain,
    /// `{"error", "error_code"}`: skills, eval results and exports.
    Coded,
    /// All four.
    Proxy,
}

/// An error on its way to the caller.
#[derive(Clone, Debug)]
pub struct Problem {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: Cow<'static, str>,
    pub extra: Map<String, Value>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

pub type Outcome<T> = Result<T, Problem>;

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, code, message: message.into(), extra: Map::new(), headers: Vec::new() }
    }

    pub fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// A field or parameter that is missing, malformed or out of range.
    pub fn field(name: &str, why: impl std::fmt::Display) -> Self {
        Self::bad_request(format!("{name}: {why}"))
    }

    pub fn unauthorized(message: &'static str) -> Self {
        let mut problem = Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message);
        problem.headers.push((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        problem
    }

    pub fn forbidden(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// The same words whether the thing is absent or another organization's.
    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "there is no such resource in this organization")
    }

    /// The path is ours, but not with this method.
    pub fn method_not_allowed(allowed: Option<HeaderValue>) -> Self {
        let message = "this path does not take that method; see the Allow header";
        let mut problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
        problem.headers.extend(allowed.map(|allowed| (ALLOW, allowed)));
        problem
    }

    pub fn conflict(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", message)
    }

    /// Well-formed, but it makes no sense: the syntax of a template, a row of a table.
    pub fn meaningless(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "validation_error", message)
    }

    pub fn too_large(limit: usize) -> Self {
        let message = format!("the request body is larger than {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message)
    }

    pub fn rate_limited(verdict: Verdict, now: Timestamp, message: impl Into<Cow<'static, str>>) -> Self {
        let mut problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message);
        problem.headers.push((RETRY_AFTER, verdict.retry_after(now).into()));
        problem.headers.extend(rate_headers(&verdict));
        problem
    }

    pub fn unavailable() -> Self {
        let mut problem = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            "the service cannot reach its database at the moment; try again shortly",
        );
        problem.headers.push((RETRY_AFTER, HeaderValue::from_static("1")));
        problem
    }

    /// Something failed inside. The caller learns only that; the log, found by the request id, has the rest.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        tracing::error!(%error, "request failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "something went wrong on our side")
    }

    /// The response with its body, in the words of the family.
    pub fn render(self, family: Family) -> Response {
        let Self { status, code, message, extra, headers } = self;
        let mut body = match family {
            Family::Plain => json!({"code": code, "message": message}),
            Family::Coded => json!({"error": message, "error_code": code}),
            Family::Proxy => json!({"error": message, "error_code": code, "code": code, "message": message}),
        };
        if let Some(body) = body.as_object_mut() {
            body.extend(extra);
        }
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in headers {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// The headers that tell a caller where it stands in its window.
pub fn rate_headers(verdict: &Verdict) -> [(HeaderName, HeaderValue); 3] {
    [
        (HeaderName::from_static("x-ratelimit-limit"), verdict.limit.into()),
        (HeaderName::from_static("x-ratelimit-remaining"), verdict.remaining.into()),
        (HeaderName::from_static("x-ratelimit-reset"), verdict.reset_seconds().into()),
    ]
}

/// Handlers return problems; they travel to the outermost layer, which knows the family and writes the body.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => {
                tracing::warn!(%error, "the database is away");
                Self::unavailable()
            }
            StoreError::Duplicate => Self::conflict("it already exists"),
            StoreError::Dangling => Self::conflict("it refers to something that was just removed"),
            error => Self::internal(error),
        }
    }
}
