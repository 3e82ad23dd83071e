//! Responses that handlers return, each of which describes itself to the OpenAPI document.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use super::openapi::{Operation, OperationOutput};
use crate::problem::Problem;

/// 200 with a JSON body.
pub struct Json<T>(pub T);

/// 201 with a JSON body.
pub struct Created<T>(pub T);

/// 202 with a JSON body.
pub struct Accepted<T>(pub T);

macro_rules! json_responses {
    ($($name:ident = $status:literal),+ $(,)?) => {$(
        impl<T: Serialize> IntoResponse for $name<T> {
            fn into_response(self) -> Response {
                let status = StatusCode::from_u16($status).unwrap_or_default();
                match serde_json::to_vec(&self.0) {
                    Ok(body) => (status, [(CONTENT_TYPE, "application/json")], body).into_response(),
                    Err(error) => Problem::internal(error).into_response(),
                }
            }
        }

        impl<T: JsonSchema> OperationOutput for $name<T> {
            fn describe(operation: &mut Operation<'_>) {
                operation.json_response::<T>($status);
            }
        }
    )+};
}
json_responses!(Json = 200, Created = 201, Accepted = 202);

/// `{"deleted": true}`
#[derive(Serialize, JsonSchema)]
pub struct Deleted {
    pub deleted: bool,
}

impl Deleted {
    pub fn yes() -> Json<Self> {
        Json(Self { deleted: true })
    }
}

/// A response of server-sent events that no proxy buffers.
pub struct EventStream(Body);

impl EventStream {
    pub fn new(events: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self(Body::from_stream(events.map(Ok::<_, std::convert::Infallible>)))
    }
}

impl IntoResponse for EventStream {
    fn into_response(self) -> Response {
        let mut response = Response::new(self.0);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        response
    }
}
