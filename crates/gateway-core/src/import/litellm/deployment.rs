//! One entry of `model_list`: a deployment, which becomes a target.

use serde_json::{Map, Value};

use super::super::providers::{Endpoint, Endpoints};
use super::super::report::{Report, join};
use super::super::{Environment, Status};
use super::fields::{ENTRY, INFO, PARAMS, is_default};
use super::providers::{endpoint, resolve, route};
use crate::models::{ModelPrice, Target};

/// The places of the limits among the weights.
pub const RPM: usize = 1;
pub const TPM: usize = 2;

/// A deployment of a model.
pub struct Deployment {
    pub model_name: String,
    /// Its path in the source.
    pub path: String,
    /// The place of its endpoint. The name of the provider is set when all endpoints are known.
    pub endpoint: usize,
    pub target: Target,
    pub order: Option<f64>,
    /// In the order in which LiteLLM looks at them.
    pub weights: [Option<f64>; 3],
    /// How many calls it takes at the same time.
    pub concurrent: Option<f64>,
    pub first_byte_timeout_ms: Option<u64>,
    pub price: Option<ModelPrice>,
    pub description: Option<String>,
    /// Its prompts are marked for the provider's cache.
    pub has_cache_marks: bool,
}

/// What deployments share.
pub struct Shared<'a> {
    pub env: Environment<'a>,
    /// `credential_list` by name.
    pub credentials: &'a Map<String, Value>,
    pub endpoints: &'a mut Endpoints,
}

/// Reads an entry. The finding about one that is left out stands for all its fields.
pub fn read(report: &mut Report, path: &str, entry: &Value, shared: &mut Shared<'_>) -> Option<Deployment> {
    let found = read_entry(report, path, entry, shared);
    if found.is_none() {
        report.set(
            path,
            Status::Unsupported,
            "the deployment is left out: see the findings about its fields",
        );
    }
    found
}

fn read_entry(report: &mut Report, path: &str, entry: &Value, shared: &mut Shared<'_>) -> Option<Deployment> {
    let entry = report.object(path, entry)?;
    report.fields(path, entry, ENTRY);
    let at = join(path, "litellm_params");
    let params = entry.get("litellm_params").and_then(|params| report.object(&at, params));
    if let Some(params) = params {
        report.fields(&at, params, PARAMS);
    }
    let info_at = join(path, "model_info");
    let empty = Map::new();
    let info = entry.get("model_info").and_then(|info| report.object(&info_at, info)).unwrap_or(&empty);
    report.fields(&info_at, info, INFO);
    let Some(model_name) = report.text(path, entry, "model_name") else {
        report.set(&join(path, "model_name"), Status::Unsupported, "is required");
        return None;
    };
    let params = with_credential(report, &at, params.unwrap_or(&empty), shared.credentials);
    let Some(model) = report.text(&at, &params, "model") else {
        report.set(&join(&at, "model"), Status::Unsupported, "is required");
        return None;
    };
    let model_at = join(&at, "model");
    let model = resolve(report, &model_at, model, shared.env)?;
    let given = report.text(&at, &params, "custom_llm_provider");
    let is_given =
        |name: &&str| params.get(*name).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    let has_base = ["api_base", "base_url"].iter().any(is_given);
    let Some(found) = route(&model, given, has_base) else {
        report.set(&model_at, Status::Unsupported, no_route(&model));
        return None;
    };
    if !found.note.is_empty() {
        report.set(&model_at, Status::Approximate, found.note);
    }
    let endpoint = endpoint(report, &at, &params, &found, shared.env);
    if has_base && endpoint.base_url.is_none() {
        report.set(&model_at, Status::Manual, "its address is not known, so the deployment is left out");
        return None;
    }
    check_address(report, &at, &endpoint)?;
    let mut numbers = |name: &str| {
        let inner = report.number(&at, &params, name);
        inner.or_else(|| report.number(path, entry, name))
    };
    let weights = [numbers("weight"), numbers("rpm"), numbers("tpm")];
    let concurrent = numbers("max_parallel_requests");
    let timeouts = ["timeout", "request_timeout"];
    let body = params.get("extra_body").and_then(|body| report.object(&join(&at, "extra_body"), body));
    let target = Target {
        model: Some(found.model),
        timeout_ms: timeouts.iter().find_map(|name| report.seconds(&at, &params, name)),
        retries: report.retries(&at, &params, "num_retries"),
        params: body
            .map(|body| set_fields(report, &join(&at, "extra_body"), body))
            .filter(|set| !set.is_empty()),
        defaults: Some(defaults(&params)).filter(|defaults| !defaults.is_empty()),
        ..Target::default()
    };
    Some(Deployment {
        model_name: model_name.to_owned(),
        path: path.to_owned(),
        endpoint: shared.endpoints.place(endpoint),
        target,
        order: report.number(&at, &params, "order"),
        weights,
        concurrent,
        first_byte_timeout_ms: report.seconds(&at, &params, "stream_timeout"),
        price: price(report, (&at, &params), (&info_at, info)),
        description: report
            .text(&info_at, info, "description")
            .map(|text| text.chars().take(1_000).collect()),
        has_cache_marks: params
            .get("cache_control_injection_points")
            .and_then(Value::as_array)
            .is_some_and(|points| !points.is_empty()),
    })
}

fn no_route(model: &str) -> &'static str {
    if model.starts_with("vertex_ai") {
        "the gateway calls Vertex AI only by the full path of a project, so it cannot be a target; use gemini/… instead"
    } else if model == "*" {
        "name the provider of the models, such as openai/*"
    } else {
        "the gateway has no such provider; if it is OpenAI-compatible, write openai/<model> and its api_base"
    }
}

/// The parameters with those of a named credential where they are absent.
fn with_credential(
    report: &mut Report,
    path: &str,
    params: &Map<String, Value>,
    credentials: &Map<String, Value>,
) -> Map<String, Value> {
    let mut params = params.clone();
    let Some(name) = report.text(path, &params, "litellm_credential_name").map(str::to_owned) else {
        return params;
    };
    match credentials.get(&name).and_then(Value::as_object) {
        Some(values) => {
            for (field, value) in values {
                params.entry(field.clone()).or_insert_with(|| value.clone());
            }
        }
        None => report.set(
            &join(path, "litellm_credential_name"),
            Status::Manual,
            "credential_list has no such credential; store it with POST /orgs/:orgId/providers",
        ),
    }
    params
}

/// Addresses that cannot be stored are refused here, with the field's name.
fn check_address(report: &mut Report, path: &str, endpoint: &Endpoint) -> Option<()> {
    let has_default =
        crate::llm::providers::builtin(endpoint.kind).is_some_and(|kind| kind.base_url.is_some());
    match &endpoint.base_url {
        None if has_default => Some(()),
        None => {
            report.set(
                &join(path, "model"),
                Status::Manual,
                "the address of its provider is not known, so the deployment is left out: add its api_base",
            );
            None
        }
        Some(url) if is_address(url) => Some(()),
        Some(_) => {
            report.set(
                &join(path, "api_base"),
                Status::Unsupported,
                "must be a URL such as https://api.example.com, without query; the deployment is left out",
            );
            None
        }
    }
}

/// `http` or `https`, a host, and a plain path.
pub fn is_address(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let plain =
        |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#' | '@' | '\\' | '{' | '}' | '<' | '>' | '"');
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && rest.chars().all(plain))
        && url.len() <= 2_000
}

/// Parameters of the deployment that stand in for those that a caller leaves out.
fn defaults(params: &Map<String, Value>) -> Map<String, Value> {
    let defaults = params.iter().filter(|(name, value)| is_default(name) && !value.is_null());
    defaults.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Fields of `extra_body`, which LiteLLM sets in every body.
fn set_fields(report: &mut Report, path: &str, body: &Map<String, Value>) -> Map<String, Value> {
    let mut set = Map::new();
    for (name, value) in body {
        let at = join(path, name);
        if matches!(name.as_str(), "model" | "stream") || set.len() == MAX_FIELDS {
            report.set(&at, Status::Unsupported, "cannot be set by a target; it is ignored");
        } else {
            report.set(&at, Status::Exact, "becomes a parameter of the target");
            set.insert(name.clone(), value.clone());
        }
    }
    set
}

/// What a target may set.
const MAX_FIELDS: usize = 50;
const TOKENS_PER_PRICE: f64 = 1e6;

/// The price of a deployment. That of `model_info` wins, as in LiteLLM.
fn price(
    report: &mut Report,
    params: (&str, &Map<String, Value>),
    info: (&str, &Map<String, Value>),
) -> Option<ModelPrice> {
    let mut per_mtok = |name: &str| {
        let inner = report.number(info.0, info.1, name);
        let usd = inner.or_else(|| report.number(params.0, params.1, name))?;
        // Twelve digits are more than any price has, and remove the error of the multiplication.
        Some((usd * TOKENS_PER_PRICE * 1e6).round() / 1e6)
    };
    let (input, output) = (per_mtok("input_cost_per_token"), per_mtok("output_cost_per_token"));
    if input.is_none() && output.is_none() {
        return None;
    }
    Some(ModelPrice {
        input_per_mtok: input.unwrap_or(0.0),
        output_per_mtok: output.unwrap_or(0.0),
        cache_read_per_mtok: per_mtok("cache_read_input_token_cost"),
        cache_write_per_mtok: per_mtok("cache_creation_input_token_cost"),
        reasoning_per_mtok: per_mtok("output_cost_per_reasoning_token"),
    })
}
