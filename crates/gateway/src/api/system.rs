//! Health and the machine-readable API descriptions.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::json;

use super::caller::AppState;
use super::openapi;
use super::openapi::{Area, Operation, OperationOutput};
use crate::health::Health;

pub fn area() -> Area {
    Area::new("system", "Health and discovery.")
        .get("/healthz", health, "Check the health of the service: 200 when healthy, 503 when degraded")
        .get("/openapi.yaml", openapi, "Get this document")
        .get("/llms.txt", llms, "Get a summary of the API in plain text")
        .at_root()
}

async fn health(State(app): AppState) -> HealthResponse {
    HealthResponse(app.health.check(&app.services, &app.proxy).await)
}

struct HealthResponse(Health);

impl IntoResponse for HealthResponse {
    fn into_response(self) -> Response {
        let status = if self.0.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, super::response::Json(self.0)).into_response()
    }
}

impl OperationOutput for HealthResponse {
    fn describe(operation: &mut Operation<'_>) {
        operation.json_response::<Health>(200);
        operation.json_response::<Health>(503);
    }
}

struct YamlDocument(&'static str);
struct PlainText(&'static str);

macro_rules! text_responses {
    ($name:ident, $media_type:literal, $content_type:literal, $schema:tt) => {
        impl IntoResponse for $name {
            fn into_response(self) -> Response {
                ([(CONTENT_TYPE, $content_type)], self.0).into_response()
            }
        }

        impl OperationOutput for $name {
            fn describe(operation: &mut Operation<'_>) {
                let schema = json!($schema);
                operation.responses.push((
                    200,
                    json!({"description": "The document", "content": {$media_type: {"schema": schema}}}),
                ));
            }
        }
    };
}
text_responses!(YamlDocument, "application/yaml", "application/yaml", {"type": "object"});
text_responses!(PlainText, "text/plain", "text/plain; charset=utf-8", {"type": "string"});

async fn openapi(State(_): AppState) -> YamlDocument {
    YamlDocument(openapi::yaml())
}

async fn llms(State(_): AppState) -> PlainText {
    PlainText(openapi::llms_txt())
}
