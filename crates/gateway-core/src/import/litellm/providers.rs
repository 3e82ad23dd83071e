//! LiteLLM's names of providers, and what its addresses and credentials become.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::super::providers::{Endpoint, split_version};
use super::super::report::{Report, join};
use super::super::{Environment, Secret, Status};
use crate::llm::providers::builtin;

const COMPLETIONS: &str =
    "chat calls go to the API of chat completions, LiteLLM sends them to that of completions";

/// A prefix of `litellm_params.model`, the built-in provider, and what differs; empty if nothing does.
static PROVIDERS: [(&str, &str, &str); 30] = [
    ("openai", "openai", ""),
    ("text-completion-openai", "openai", COMPLETIONS),
    ("custom_openai", "openai", ""),
    ("openai_like", "openai", ""),
    ("litellm_proxy", "openai", ""),
    (
        "azure",
        "azure-openai",
        "the v1 API of Azure OpenAI is called, LiteLLM calls the path of the deployment with an api-version",
    ),
    ("azure_text", "azure-openai", COMPLETIONS),
    ("azure_ai", "azure-openai", "the API of Azure OpenAI is called at this address"),
    ("anthropic", "anthropic", ""),
    ("gemini", "gemini", ""),
    ("bedrock", "bedrock", "models are called by the Converse API"),
    ("bedrock_converse", "bedrock", ""),
    ("mistral", "mistral", ""),
    ("codestral", "mistral", ""),
    ("cohere", "cohere", ""),
    ("cohere_chat", "cohere", ""),
    ("groq", "groq", ""),
    ("together_ai", "together", ""),
    ("fireworks_ai", "fireworks", ""),
    ("deepseek", "deepseek", ""),
    ("xai", "xai", ""),
    ("perplexity", "perplexity", ""),
    ("openrouter", "openrouter", ""),
    ("cerebras", "cerebras", ""),
    ("nvidia_nim", "nvidia", ""),
    ("huggingface", "huggingface", ""),
    ("ollama", "ollama", "the OpenAI-compatible API of Ollama is called"),
    ("ollama_chat", "ollama", "the OpenAI-compatible API of Ollama is called"),
    ("hosted_vllm", "vllm", ""),
    ("lm_studio", "lmstudio", ""),
];

/// Prefixes whose models are at an address of their own, with the variable of their key.
static HOSTS: [(&str, &str, &str); 1] = [("codestral", "https://codestral.mistral.ai", "CODESTRAL_API_KEY")];

/// The providers of models that are written without a prefix.
const BARE_MODELS: [(&str, &str); 8] = [
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("text-embedding-", "openai"),
    ("claude-", "anthropic"),
    ("command", "cohere"),
];

/// Parts of Bedrock's model names that choose an API, not a model.
const BEDROCK_ROUTES: [&str; 3] = ["converse/", "invoke/", "converse_like/"];

/// The provider and model of a deployment.
pub struct Route {
    pub kind: &'static str,
    pub model: String,
    /// What differs from LiteLLM; empty if nothing does.
    pub note: &'static str,
    /// The address and the variable of the key if they are not those of the provider.
    pub host: Option<(&'static str, &'static str)>,
}

impl Route {
    fn of(&(prefix, kind, note): &(&'static str, &'static str, &'static str), model: &str) -> Self {
        let host = HOSTS.iter().find(|(of, ..)| *of == prefix).map(|(_, base, variable)| (*base, *variable));
        Self { kind, model: plain_model(kind, model), note, host }
    }
}

/// Finds the provider of a model. None: it is not a provider of this gateway.
pub fn route(model: &str, given: Option<&str>, has_base: bool) -> Option<Route> {
    let by_name = |name: &str| PROVIDERS.iter().find(|(prefix, ..)| *prefix == name);
    if let Some(entry) = given.and_then(by_name) {
        let model = match model.split_once('/') {
            Some((prefix, rest)) if given == Some(prefix) => rest,
            _ => model,
        };
        return Some(Route::of(entry, model));
    }
    if let Some((prefix, rest)) = model.split_once('/')
        && let Some(entry) = by_name(prefix)
    {
        return Some(Route::of(entry, rest));
    }
    if given.is_some() {
        return None;
    }
    let bare = BARE_MODELS.iter().find(|(start, _)| model.starts_with(start)).map(|(_, kind)| *kind);
    // An unknown model with an address of its own is one of an OpenAI-compatible server.
    let kind = bare.or((has_base && !model.contains('/')).then_some("openai"))?;
    Some(Route { kind, model: model.to_owned(), note: "", host: None })
}

fn plain_model(kind: &str, model: &str) -> String {
    match kind {
        "bedrock" => {
            let route = BEDROCK_ROUTES.iter().find_map(|route| model.strip_prefix(route));
            route.unwrap_or(model).to_owned()
        }
        // LiteLLM completes the short names of models.
        "fireworks" if !model.starts_with("accounts/") && !model.contains('#') => {
            format!("accounts/fireworks/models/{model}")
        }
        _ => model.to_owned(),
    }
}

/// A value that may be a reference to the environment.
pub fn resolve(report: &mut Report, path: &str, text: &str, env: Environment<'_>) -> Option<String> {
    let Some(variable) = text.strip_prefix("os.environ/") else { return Some(text.to_owned()) };
    let value = env(variable.trim()).filter(|value| !value.trim().is_empty());
    if value.is_none() {
        let shown: String = variable.chars().take(64).collect();
        report.set(
            path,
            Status::Manual,
            format!(
                "the value of the environment variable {shown} is not known here: run `gateway import` where it is set, \
                 or store the value by hand"
            ),
        );
    }
    value
}

/// The endpoint of a deployment: its address, credential and headers.
pub fn endpoint(
    report: &mut Report,
    path: &str,
    params: &Map<String, Value>,
    route: &Route,
    env: Environment<'_>,
) -> Endpoint {
    let kind = route.kind;
    let mut endpoint = Endpoint::of(kind);
    let base = ["api_base", "base_url"].into_iter().find_map(|name| {
        let text = report.text(path, params, name)?;
        let base = resolve(report, &join(path, name), text, env)?;
        if kind == "gemini" && !base.trim().trim_end_matches('/').ends_with("/v1beta") {
            let message = "it is called with /v1beta before the path, LiteLLM calls it without";
            report.set(&join(path, name), Status::Approximate, message);
        }
        Some(base)
    });
    let base = base.or_else(|| route.host.map(|(base, _)| base.to_owned()));
    (endpoint.base_url, endpoint.path_prefix) = match base {
        Some(base) => address(kind, &base),
        None => (bedrock_address(report, path, params, kind, env), None),
    };
    let credential = match kind {
        "bedrock" => aws_credential(report, path, params, env),
        _ => None,
    };
    let credential = credential.or_else(|| {
        let text = report.text(path, params, "api_key")?.to_owned();
        let at = join(path, "api_key");
        let value = resolve(report, &at, &text, env);
        if value.is_some() && !text.starts_with("os.environ/") {
            report.set(
                &at,
                Status::Approximate,
                "the key is in the file in plain text: it is imported and stored encrypted; replace it at the provider",
            );
        }
        Some((text, value))
    });
    if let Some((reference, value)) = credential {
        (endpoint.credential, endpoint.api_key) = (Some(reference), value.map(Secret::new));
    } else {
        let own = route.host.map(|(_, variable)| variable);
        let usual = builtin(kind).map_or(&[][..], |provider| provider.env_keys);
        let variables = own.as_ref().map_or(usual, std::slice::from_ref);
        default_credential(report, path, &mut endpoint, (variables, env));
    }
    for name in ["extra_headers", "headers"] {
        let Some(headers) = params.get(name) else { continue };
        endpoint.headers.extend(sent_headers(report, &join(path, name), headers, env));
    }
    endpoint
}

/// LiteLLM reads the usual variable of a provider if a deployment has no key.
fn default_credential(
    report: &mut Report,
    path: &str,
    endpoint: &mut Endpoint,
    (variables, env): (&[&str], Environment<'_>),
) {
    let Some(first) = variables.first() else { return };
    match variables.iter().find_map(|name| Some((*name, env(name).filter(|value| !value.is_empty())?))) {
        Some((name, value)) => {
            endpoint.credential = Some(format!("os.environ/{name}"));
            endpoint.api_key = Some(Secret::new(value));
        }
        None => report.set(
            &join(path, "model"),
            Status::Manual,
            format!(
                "it has no api_key, so LiteLLM reads {first}: store the key with POST /orgs/:orgId/providers, or run \
                 `gateway import` where it is set"
            ),
        ),
    }
}

/// The base URL and the prefix of paths of an address, as LiteLLM calls it.
fn address(kind: &str, base: &str) -> (Option<String>, Option<String>) {
    let base = base.trim().trim_end_matches('/');
    let is_openai = builtin(kind).is_some_and(|provider| provider.chat_path == "/v1/chat/completions");
    if kind == "ollama" {
        return (Some(base.strip_suffix("/v1").unwrap_or(base).to_owned()), None);
    }
    if is_openai {
        let (base, prefix) = split_version(base);
        return (Some(base), prefix);
    }
    let suffixes: &[&str] = match kind {
        "anthropic" => &["/v1/messages", "/v1"],
        "gemini" => &["/v1beta"],
        "azure-openai" => &["/openai/v1", "/openai"],
        "cohere" => &["/v2/chat", "/v2", "/v1"],
        "perplexity" => &["/chat/completions"],
        _ => &[],
    };
    let plain = suffixes.iter().find_map(|suffix| base.strip_suffix(suffix)).unwrap_or(base);
    (Some(plain.to_owned()), None)
}

fn bedrock_address(
    report: &mut Report,
    path: &str,
    params: &Map<String, Value>,
    kind: &str,
    env: Environment<'_>,
) -> Option<String> {
    if kind != "bedrock" {
        return None;
    }
    let region = report.text(path, params, "aws_region_name")?;
    let region = resolve(report, &join(path, "aws_region_name"), region, env)?;
    let is_region = !region.is_empty() && region.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if is_region {
        return Some(format!("https://bedrock-runtime.{region}.amazonaws.com"));
    }
    report.set(
        &join(path, "aws_region_name"),
        Status::Unsupported,
        "is not the name of a region; us-east-1 is used",
    );
    None
}

/// A key pair as one credential, with the text that identifies it.
fn aws_credential(
    report: &mut Report,
    path: &str,
    params: &Map<String, Value>,
    env: Environment<'_>,
) -> Option<(String, Option<String>)> {
    let mut part = |name: &str| {
        let text = report.text(path, params, name)?.to_owned();
        let value = resolve(report, &join(path, name), &text, env);
        Some((text, value))
    };
    let (access, secret) = (part("aws_access_key_id")?, part("aws_secret_access_key")?);
    let session = part("aws_session_token");
    let reference =
        format!("{}:{}:{}", access.0, secret.0, session.as_ref().map_or("", |(text, _)| text.as_str()));
    let value = match (access.1, secret.1, session) {
        (Some(access), Some(secret), None) => Some(format!("{access}:{secret}")),
        (Some(access), Some(secret), Some((_, Some(session)))) => {
            Some(format!("{access}:{secret}:{session}"))
        }
        _ => None,
    };
    Some((reference, value))
}

/// The headers that a deployment sends with each call.
fn sent_headers(
    report: &mut Report,
    path: &str,
    headers: &Value,
    env: Environment<'_>,
) -> BTreeMap<String, Secret> {
    let mut sent = BTreeMap::new();
    for (name, value) in report.object(path, headers).into_iter().flatten() {
        let at = join(path, name);
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            Value::Null => continue,
            Value::Array(_) | Value::Object(_) => {
                report.set(&at, Status::Unsupported, "the value of a header must be a text; it is ignored");
                continue;
            }
        };
        let is_name =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        let is_value = text.bytes().all(|b| (b' '..=b'~').contains(&b));
        if !is_name || !is_value || sent.len() == MAX_HEADERS {
            report.set(&at, Status::Unsupported, "is not a header that can be sent; it is ignored");
            continue;
        }
        if let Some(text) = resolve(report, &at, &text, env) {
            report.set(&at, Status::Exact, "sent with each call to the provider");
            sent.insert(name.to_ascii_lowercase(), Secret::new(text));
        }
    }
    sent
}

/// What a provider may have.
const MAX_HEADERS: usize = 32;
