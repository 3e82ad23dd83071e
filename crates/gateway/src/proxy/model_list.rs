//! The list of models: `GET /v1/models` with `X-Gateway-Provider: auto`, in the list format of the caller. It has the
//! named models, and below `/sdk` also the models of all providers that are ready, as `provider/model`. The gateway
//! answers it itself.

use std::borrow::Cow;

use axum::body::Body;
use axum::response::Response;
use gateway_core::llm::ClientFormat;
use gateway_core::llm::paths::Operation;
use gateway_core::models::ModelTarget;
use gateway_core::pricing::Price;
use gateway_core::time::Timestamp;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;
use rust_decimal::prelude::ToPrimitive as _;
use serde_json::{Value, json};

use super::context::RequestContext;
use super::directives::Directives;
use super::headers;
use super::plan::AUTO;
use super::sdk::SdkRequest;
use crate::auth::Principal;
use crate::models::ListedModel;
use crate::problem::{ApiResult, Problem};

/// The modes of models in the list. Others cannot be called in the formats of SDKs.
const MODES: [&str; 4] = ["chat", "responses", "completion", "embedding"];

/// A model of the list.
struct Entry<'a> {
    name: Cow<'a, str>,
    created_at: Timestamp,
    owner: &'a str,
    description: &'a str,
    context_length: Option<u64>,
    price: Option<&'a Price>,
}

/// The response to a request for the list, or for one model of it. None for any other request.
pub fn respond(context: RequestContext<'_>, directives: &Directives) -> Option<ApiResult<Response>> {
    let is_read = matches!(context.head.method, Method::GET | Method::HEAD);
    if directives.provider != AUTO || directives.operation != Operation::Models || !is_read {
        return None;
    }
    let path = context.head.uri.path();
    let (_, last) = path.trim_end_matches('/').rsplit_once('/').unwrap_or_default();
    let format = list_format(context, directives);
    let listed = context.identity.org.models.listed();
    let named = listed.iter().filter(|model| is_allowed(context, model)).map(|model| named(context, model));
    let is_sdk = context.head.extensions.get::<SdkRequest>().is_some();
    let entries = named.chain(if is_sdk { of_providers(context) } else { Vec::new() });
    if last == "models" {
        let views: Vec<Value> = entries.map(|entry| view(format, &entry)).collect();
        return Some(Ok(json_response(context, &list(format, &views))));
    }
    let name = percent_decode_str(last).decode_utf8_lossy();
    let found = entries.into_iter().find(|entry| entry.name == name);
    Some(match found {
        Some(entry) => Ok(json_response(context, &view(format, &entry))),
        None => Err(Problem::new(StatusCode::NOT_FOUND, "not_found", "there is no such model in the list")),
    })
}

/// By header or path; clients of Anthropic's and Google's show by headers that all of them send.
fn list_format(context: RequestContext<'_>, directives: &Directives) -> ClientFormat {
    let headers = &context.head.headers;
    if directives.is_format_known() {
        directives.client_format
    } else if headers.contains_key("anthropic-version") {
        ClientFormat::Anthropic
    } else if context.head.uri.path().starts_with("/v1beta/") || headers.contains_key("x-goog-api-client") {
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

fn named<'a>(context: RequestContext<'a>, listed: &'a ListedModel<'a>) -> Entry<'a> {
    let ListedModel { name, created_at, model } = listed;
    let ordinary = || model.targets().iter().filter(|target| target.when.is_none());
    let price_of = |target: &ModelTarget| -> Option<&'a Price> {
        let provider = context.find_provider(&target.provider)?;
        context.state.prices.find(provider.kind.name, &target.model(None))
    };
    Entry {
        name: Cow::Borrowed(name),
        created_at: *created_at,
        owner: "gateway",
        description: &model.description,
        // Whichever target serves the call, an input of this length fits.
        context_length: ordinary().filter_map(|target| price_of(target)?.max_input_tokens).min(),
        price: model.price.as_deref().or_else(|| price_of(ordinary().next()?)),
    }
}

/// The models of all providers that need nothing of the caller, within the scopes of the key.
fn of_providers(context: RequestContext<'_>) -> Vec<Entry<'_>> {
    let prices = &context.state.prices;
    let is_allowed = |provider: &str, model: &str| {
        let Principal::Key(key) = &context.identity.principal else { return true };
        key.scopes.allow(provider, Some(model))
    };
    let ready = context.identity.org.providers.all().into_iter();
    let ready = ready.filter(|target| target.is_ready() && !target.is_unreadable);
    ready
        .flat_map(|target| {
            let models = target.known_models(prices, &MODES).into_iter();
            models.filter(move |model| is_allowed(&target.name, model)).map(move |model| (target, model))
        })
        .map(|(target, model)| {
            let price = prices.find(target.kind.name, model);
            Entry {
                name: format!("{}/{model}", target.name).into(),
                created_at: prices.as_of(),
                owner: &target.name,
                description: "",
                context_length: price.and_then(|price| price.max_input_tokens),
                price,
            }
        })
        .collect()
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

fn view(format: ClientFormat, entry: &Entry<'_>) -> Value {
    let Entry { name, created_at, owner, description, context_length, price } = entry;
    let pricing = price.map(|price| {
        json!({
            "input_per_mtok": price.input_per_mtok.and_then(|usd| usd.to_f64()),
            "output_per_mtok": price.output_per_mtok.and_then(|usd| usd.to_f64()),
            "cache_read_per_mtok": price.cache_read_per_mtok.and_then(|usd| usd.to_f64()),
            "cache_write_per_mtok": price.cache_write_per_mtok.and_then(|usd| usd.to_f64()),
        })
    });
    let common = json!({"description": description, "context_length": context_length, "pricing": pricing});
    let mut view = match format {
        ClientFormat::Gemini => json!({
            "name": format!("models/{name}"), "displayName": name, "inputTokenLimit": context_length,
            "supportedGenerationMethods": ["generateContent", "streamGenerateContent"],
        }),
        ClientFormat::Anthropic => {
            json!({"type": "model", "id": name, "display_name": name, "created_at": created_at})
        }
        _ => json!({
            "id": name, "object": "model", "created": created_at.0 / 1_000, "owned_by": owner, "name": name,
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
