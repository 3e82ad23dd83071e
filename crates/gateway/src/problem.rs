//! Errors of the HTTP API, and the one place that maps them to HTTP responses. The path of a request decides the format
//! of the error body; proxied requests get the fields of both formats, because SDKs read either.

use std::borrow::Cow;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use gateway_core::limits::LimitStatus;
use gateway_core::llm::ClientFormat;
use gateway_core::llm::errors::error_value;
use gateway_core::time::Timestamp;
use gateway_store::StoreError;
use gateway_store::fair_slots::Overloaded;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use crate::compute::ComputeError;

/// The JSON fields of an error body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorFormat {
    /// `{"code", "message"}`
    Code,
    /// `{"error", "error_code"}`: skills, eval results and exports.
    ErrorCode,
    /// The fields of both, for proxied requests.
    Both,
    /// As the caller's SDK expects it, below `/sdk`.
    Client(ClientFormat),
}

/// An error that is returned to the caller.
#[derive(Clone, Debug)]
pub struct Problem {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: Cow<'static, str>,
    /// Further fields of the error body.
    pub extra: Map<String, Value>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

pub type ApiResult<T> = Result<T, Problem>;

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

    /// A quota of the organization, with its limit.
    pub fn quota_exceeded(
        (quota, limit): (&'static str, u64),
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        let mut problem = Self::new(StatusCode::FORBIDDEN, "quota_exceeded", message);
        problem.extra.insert("quota".into(), quota.into());
        problem.extra.insert("limit".into(), limit.into());
        problem
    }

    /// The message is the same for a missing resource and for one of another organization.
    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "there is no such resource in this organization")
    }

    /// The path exists, but not with this method.
    pub fn method_not_allowed(allowed: Option<HeaderValue>) -> Self {
        let message = "method not allowed for this path; the Allow header lists the allowed methods";
        let mut problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
        problem.headers.extend(allowed.map(|allowed| (ALLOW, allowed)));
        problem
    }

    pub fn conflict(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", message)
    }

    /// Returns a function that maps a violated unique constraint to 409 with this message, for `map_err`.
    pub fn on_duplicate(message: &'static str) -> impl Fn(StoreError) -> Self {
        move |error| match error {
            StoreError::Duplicate => Self::conflict(message),
            error => error.into(),
        }
    }

    /// Well-formed input with invalid content, such as a template with a syntax error or a bad row of an import.
    pub fn unprocessable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "validation_error", message)
    }

    pub fn too_large(limit: usize) -> Self {
        let message = format!("the request body is larger than {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message)
    }

    pub fn request_timeout() -> Self {
        let message = "timed out while reading the request body";
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
    }

    /// The connection failed before the whole request body was received.
    pub fn incomplete_body() -> Self {
        Self::bad_request("the request body is incomplete: the connection failed while reading it")
    }

    pub fn rate_limited(verdict: LimitStatus, now: Timestamp, message: impl Into<Cow<'static, str>>) -> Self {
        let mut problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message);
        problem.headers.push((RETRY_AFTER, verdict.retry_after(now).into()));
        problem.headers.extend(rate_headers(&verdict));
        problem
    }

    pub fn unavailable() -> Self {
        let mut problem = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            "the database is temporarily unavailable; try again shortly",
        );
        problem.headers.push((RETRY_AFTER, HeaderValue::from_static("1")));
        problem
    }

    /// The caller's share of a resource is in use; others are not affected.
    pub fn overloaded(message: impl Into<Cow<'static, str>>) -> Self {
        let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message);
        problem.headers.push((RETRY_AFTER, HeaderValue::from_static("1")));
        problem
    }

    /// Logs the error. The response does not contain it; the request id connects the two.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        tracing::error!(%error, "request failed");
        let message = "internal server error; quote the x-request-id header when you report it";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// The response with its body in the given format.
    pub fn render(self, format: ErrorFormat) -> Response {
        let Self { status, code, message, extra, headers } = self;
        let mut body = match format {
            ErrorFormat::Code => json!({"code": code, "message": message}),
            ErrorFormat::ErrorCode => json!({"error": message, "error_code": code}),
            ErrorFormat::Both => {
                json!({"error": message, "error_code": code, "code": code, "message": message})
            }
            ErrorFormat::Client(format) => error_value(format, status.as_u16(), code, &message),
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

/// The headers that report the caller's remaining requests in the current window.
pub fn rate_headers(verdict: &LimitStatus) -> [(HeaderName, HeaderValue); 3] {
    [
        (HeaderName::from_static("x-ratelimit-limit"), verdict.limit.into()),
        (HeaderName::from_static("x-ratelimit-remaining"), verdict.remaining.into()),
        (HeaderName::from_static("x-ratelimit-reset"), verdict.reset_seconds().into()),
    ]
}

/// Puts the problem into the response's extensions. The outermost layer knows the error format and writes the body.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        response.extensions_mut().insert(self);
        response
    }
}

/// Of queries; others say what is waiting.
impl From<Overloaded> for Problem {
    fn from(Overloaded: Overloaded) -> Self {
        Self::overloaded("too many queries of this organization are in progress; try again shortly")
    }
}

impl From<ComputeError> for Problem {
    fn from(error: ComputeError) -> Self {
        match error {
            ComputeError::Overloaded => {
                Self::overloaded("too much work of this organization is waiting; try again shortly")
            }
            ComputeError::TimedOut => {
                Self::overloaded("the request needs more computing time than is available; send less at once")
            }
            ComputeError::Failed => Self::internal(error),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => {
                tracing::warn!(%error, "the database is unavailable");
                Self::unavailable()
            }
            StoreError::Duplicate => {
                Self::conflict("a resource with the same unique fields already exists in this organization")
            }
            StoreError::MissingReference => {
                Self::conflict("a resource that the request refers to was deleted in the meantime")
            }
            error => Self::internal(error),
        }
    }
}
