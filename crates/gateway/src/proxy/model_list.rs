//! The list of named models: `GET /v1/models` with `X-Gateway-Provider: auto`, in the list format of the caller. The
//! gateway answers it itself.

use axum::body::Body;
use axum::response::Response;
use gateway_core::llm::ClientFormat;
use gateway_core::llm::paths::Operation;
use gateway_core::models::ModelTarget;
use gateway_core::pricing::Price;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;
use rust_decimal::prelude::ToPrimitive as _;
use serde_json::{Value, json};

use super::context::RequestContext;
use super::directives::Directives;
use super::headers;
use super::plan::AUTO;
use crate::auth::Principal;
use crate::models::ListedModel;
use crate::problem::{ApiResult, Problem};

/// The response to a request for the list, or for one model of it. None for any other request.
pub fn respond(context: RequestContext<'_>, directives: &Directives) -> Option<ApiResult<Response>> {
    let is_read = matches!(context.head.method, Method::GET | Method::HEAD);
    if directives.provider != AUTO || directives.operation != Operation::Models || !is_read {
        return None;
    }
    let path = context.head.uri.path();
    let (_, last) = path.trim_end_matches('/').rsplit_once('/').unwrap_or_default();
    let format = list_format(context, directives);
    let models = context.identity.org.models.listed();
    let allowed = models.iter().filter(|model| is_allowed(context, model));
    if last == "models" {
        let views: Vec<Value> = allowed.map(|model| view(context, format, model)).collect();
        return Some(Ok(json_response(context, &list(format, &views))));
    }
    let name = percent_decode_str(last).decode_utf8_lossy();
    let found = allowed.into_iter().find(|model| model.name == name);
    Some(match found {
        Some(model) => Ok(json_response(context, &view(context, format, model))),
        None => Err(Problem::new(StatusCode::NOT_FOUND, "not_found", "there is no such named model")),
    })
}

/// By header or path; a client of Anthropic's shows by its version header.
fn list_format(context: RequestContext<'_>, directives: &Directives) -> ClientFormat {
    if directives.is_format_known() {
        directives.client_format
    } else if context.head.headers.contains_key("anthropic-version") {
        ClientFormat::Anthropic
    } else if context.head.uri.path().starts_with("/v1beta/") {
        ClientFormat::Gemini
    } else {
        ClientFormat::OpenAiChat
    }
}

fn is_allowed(context: RequestContext<'_>, listed: &ListedModel<'_>) -> bool {
    let Principal::Key(key) = &context.identity.principal else { return true };
    let providers = listed.model.targets().iter().map(|target| target.provider.as_str());
    key.scopes.allow_named(listed.name, providers)
}

fn list(format: ClientFormat, views: &[Value]) -> Value {
    match format {
        ClientFormat::Gemini => json!({"models": views}),
        ClientFormat::Anthropic => {
            let id = |view: Option<&Value>| view.map_or(Value::Null, |view| view["id"].clone());
            let (first_id, last_id) = (id(views.first()), id(views.last()));
            json!({"data": views, "has_more": false, "first_id": first_id, "last_id": last_id})
        }
        _ => json!({"object": "list", "data": views}),
    }
}

fn view(context: RequestContext<'_>, format: ClientFormat, listed: &ListedModel<'_>) -> Value {
    let ListedModel { name, created_at, model } = listed;
    let ordinary = || model.targets().iter().filter(|target| target.when.is_none());
    let price_of = |target: &ModelTarget| -> Option<&Price> {
        let provider = context.find_provider(&target.provider)?;
        context.state.prices.find(provider.kind.name, &target.model(None))
    };
    let price = model.price.as_deref().or_else(|| price_of(ordinary().next()?));
    // Whichever target serves the call, an input of this length fits.
    let context_length = ordinary().filter_map(|target| price_of(target)?.max_input_tokens).min();
    let pricing = price.map(|price| {
        json!({
            "input_per_mtok": price.input_per_mtok.and_then(|usd| usd.to_f64()),
            "output_per_mtok": price.output_per_mtok.and_then(|usd| usd.to_f64()),
            "cache_read_per_mtok": price.cache_read_per_mtok.and_then(|usd| usd.to_f64()),
            "cache_write_per_mtok": price.cache_write_per_mtok.and_then(|usd| usd.to_f64()),
        })
    });
    let common =
        json!({"description": model.description, "context_length": context_length, "pricing": pricing});
    let mut view = match format {
        ClientFormat::Gemini => json!({
            "name": format!("models/{name}"), "displayName": name, "inputTokenLimit": context_length,
            "supportedGenerationMethods": ["generateContent", "streamGenerateContent"],
        }),
        ClientFormat::Anthropic => {
            json!({"type": "model", "id": name, "display_name": name, "created_at": created_at})
        }
        _ => json!({
            "id": name, "object": "model", "created": created_at.0 / 1_000, "owned_by": "gateway", "name": name,
        }),
    };
    if let (Some(view), Value::Object(common)) = (view.as_object_mut(), common) {
        view.extend(common);
    }
    view
}

fn json_response(context: RequestContext<'_>, body: &Value) -> Response {
    let is_head = context.head.method == Method::HEAD;
    let body = if is_head { Body::empty() } else { Body::from(body.to_string()) };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers::add_own(response.headers_mut(), context);
    response
}
