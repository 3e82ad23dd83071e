//! `/openapi.yaml` and `/llms.txt`, both generated from the table of routes.

use std::fmt::Write as _;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use super::{Area, Operation, Route, Schemas};
use crate::api::{areas, error_format_of, is_public};
use crate::problem::ErrorFormat;

/// The document as YAML. It is generated on first use, so that it does not delay the start.
pub fn yaml() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let document = document();
        // JSON is valid YAML, so it is a safe fallback.
        serde_saphyr::to_string(&document).unwrap_or_else(|_| document.to_string())
    })
}

/// The document as a JSON value.
pub fn document() -> Value {
    let mut schemas = Schemas::default();
    let mut paths: Map<String, Value> = Map::new();
    let areas = areas();
    for area in &areas {
        for route in &area.routes {
            let operation = operation(area, route, &mut schemas);
            let item = paths.entry(full_path(route)).or_insert_with(|| json!({}));
            item[route.method] = operation;
        }
    }
    let tags: Vec<_> =
        areas.iter().map(|area| json!({"name": area.tag, "description": area.description})).collect();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Gateway",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "An AI gateway with a management API. Every path under /api/v1 is also available under /api.",
        },
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": named_schemas(schemas),
            "responses": {"Error": error_response("Error"), "CodedError": error_response("CodedError")},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A session token from signup, login or switch-org."},
                "key": {"type": "apiKey", "in": "header", "name": "X-Gateway-Key"},
            },
        },
        "security": [{"token": []}, {"key": []}],
    });
    remove_null_defaults(&mut document);
    document
}

/// Removes defaults of null, which only say that a field is optional: many of these fields do not accept null.
fn remove_null_defaults(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, value| name != "default" || !value.is_null());
            members.values_mut().for_each(remove_null_defaults);
        }
        Value::Array(values) => values.iter_mut().for_each(remove_null_defaults),
        _ => {}
    }
}

/// A summary of the API in plain text, for language models and quick reading.
pub fn llms_txt() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut text = String::from(include_str!("llms.txt"));
        for area in areas() {
            let _ = write!(text, "\n## {}\n\n{}\n\n", area.tag, area.description);
            for route in &area.routes {
                let method = route.method.to_uppercase();
                let _ = writeln!(text, "- {method} {}: {}", full_path(route), route.summary);
            }
        }
        text
    })
}

fn full_path(route: &Route) -> String {
    if route.root { route.path.to_owned() } else { format!("/api/v1{}", route.path) }
}

fn operation(area: &Area, route: &Route, schemas: &mut Schemas) -> Value {
    let operation = Operation::of(route, schemas);
    let path = full_path(route);
    let error = match error_format_of(&path) {
        ErrorFormat::ErrorCode => "CodedError",
        ErrorFormat::Code | ErrorFormat::Both | ErrorFormat::Client(_) => "Error",
    };
    let mut responses: Map<String, Value> =
        operation.responses.into_iter().map(|(status, response)| (status.to_string(), response)).collect();
    responses.insert("default".into(), json!({"$ref": format!("#/components/responses/{error}")}));
    let mut notes: Vec<String> = operation.notes.iter().map(|note| (*note).to_owned()).collect();
    if let Some(role) = operation.role {
        notes.push(format!("Required role: {role} or higher."));
    }
    if let Some(entitlement) = operation.entitlement {
        notes.push(format!("Required entitlement: {entitlement}."));
    }
    let mut value = json!({
        "tags": [area.tag],
        "operationId": route.operation_id,
        "summary": route.summary,
        "responses": responses,
    });
    if !notes.is_empty() {
        value["description"] = notes.join(" ").into();
    }
    if !operation.parameters.is_empty() {
        value["parameters"] = operation.parameters.into();
    }
    if let Some(body) = operation.request_body {
        value["requestBody"] = body;
    }
    if is_public(&path, false) {
        value["security"] = json!([]);
    }
    value
}

/// Types of requests and types of responses have different names, so the two sets do not overlap.
fn named_schemas(schemas: Schemas) -> Map<String, Value> {
    let Schemas { mut input, mut output } = schemas;
    let mut named = input.take_definitions(true);
    named.extend(output.take_definitions(true));
    named.insert("Error".into(), error_schema("code", "message"));
    named.insert("CodedError".into(), error_schema("error_code", "error"));
    named
}

fn error_schema(code: &str, message: &str) -> Value {
    json!({
        "type": "object",
        "required": [code, message],
        "properties": {code: {"type": "string"}, message: {"type": "string"}},
    })
}

fn error_response(schema: &str) -> Value {
    json!({
        "description": "An error",
        "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}},
    })
}
