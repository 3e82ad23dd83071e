//! Health and the machine-readable documents.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::json;

use super::caller::AppState;
use super::openapi;
use super::openapi::{Area, Operation, OperationOutput};
use crate::health::{self, Health};

pub fn area() -> Area {
    Area::new("system", "Health and discovery.")
        .get("/healthz", health, "Is the service healthy? 200 when it is, 503 when degraded")
        .get("/openapi.yaml", openapi, "This document")
        .get("/llms.txt", llms, "The API in plain text")
        .at_root()
}

async fn health(State(app): AppState) -> HealthAnswer {
    HealthAnswer(health::check(&app).await)
}

struct HealthAnswer(Health);

impl IntoResponse for HealthAnswer {
    fn into_response(self) -> Response {
        let status = if self.0.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, super::response::Json(self.0)).into_response()
    }
}

impl OperationOutput for HealthAnswer {
    fn describe(operation: &mut Operation<'_>) {
        operation.json_response::<Health>(200);
        operation.json_response::<Health>(503);
    }
}

struct Text {
    kind: &'static str,
    body: &'static str,
}

impl IntoResponse for Text {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, self.kind)], self.body).into_response()
    }
}

struct Yaml(Text);
struct Plain(Text);

macro_rules! text_answer {
    ($name:ident, $kind:literal, $schema:tt) => {
        impl IntoResponse for $name {
            fn into_response(self) -> Response {
                self.0.into_response()
            }
        }
        impl OperationOutput for $name {
            fn describe(operation: &mut Operation<'_>) {
                let schema = json!($schema);
                operation.responses.push((
                    200,
                    json!({"description": "The text", "content": {$kind: {"schema": schema}}}),
                ));
            }
        }
    };
}
text_answer!(Yaml, "application/yaml", {"type": "object"});
text_answer!(Plain, "text/plain", {"type": "string"});

async fn openapi(State(_): AppState) -> Yaml {
    Yaml(Text { kind: "application/yaml", body: openapi::yaml() })
}

async fn llms(State(_): AppState) -> Plain {
    Plain(Text { kind: "text/plain; charset=utf-8", body: openapi::llms_txt() })
}
