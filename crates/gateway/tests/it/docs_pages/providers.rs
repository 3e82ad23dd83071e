//! A page for each built-in provider, from the table of providers.

use std::fmt::Write as _;

use gateway_core::llm::ProviderFormat;
use gateway_core::llm::providers::{Auth, Provider, all};

use super::{NOTICE, Pages};

/// Name, title and what is special about a provider.
const NOTES: [(&str, &str, &str); 22] = [
    (
        "openai",
        "OpenAI",
        "Models without chat completions (`gpt-5-pro`, codex) are called through the responses API, whatever your format is.",
    ),
    (
        "anthropic",
        "Anthropic",
        "`max_tokens` is required there. If a request in another format has none, the model's own limit is sent. `anthropic-version` is added if you send none.",
    ),
    ("gemini", "Google Gemini", "The model is part of the path. A credential may also be sent as `?key=`."),
    (
        "azure-openai",
        "Azure OpenAI",
        "The base URL is the address of your resource, such as `https://my-resource.openai.azure.com`, and is required. The name of a deployment is the model.",
    ),
    (
        "bedrock",
        "Amazon Bedrock",
        "A credential of the form `ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN]` signs requests (Signature Version 4); any other is sent as a Bedrock API key. The region is that of the base URL, such as `https://bedrock-runtime.eu-central-1.amazonaws.com`. The operator may also set `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`.",
    ),
    (
        "vertex",
        "Google Vertex AI",
        "The credential is an access token, which expires and is renewed outside of the gateway. Paths contain your project and location, so Vertex is called in its own format only and is no fallback for others.",
    ),
    ("mistral", "Mistral", ""),
    ("cohere", "Cohere", "Version 2 of its API."),
    ("groq", "Groq", ""),
    ("together", "Together AI", ""),
    ("fireworks", "Fireworks AI", ""),
    ("deepseek", "DeepSeek", ""),
    ("xai", "xAI", ""),
    ("perplexity", "Perplexity", "Its paths have no version: `/chat/completions`."),
    (
        "openrouter",
        "OpenRouter",
        "To use the gateway with clients made for OpenRouter, see [Switching](../switching/openrouter.md#clients).",
    ),
    ("cerebras", "Cerebras", ""),
    ("nvidia", "NVIDIA NIM", ""),
    ("huggingface", "Hugging Face", ""),
    (
        "ollama",
        "Ollama",
        "A server on the gateway's machine. Another address is stored as `base_url`; private addresses need `GATEWAY_EGRESS_PRIVATE=allow`, or the operator's setting `GATEWAY_PROVIDER_OLLAMA_BASE_URL`.",
    ),
    (
        "vllm",
        "vLLM",
        "A server on the gateway's machine. Another address is stored as `base_url`; private addresses need `GATEWAY_EGRESS_PRIVATE=allow`, or the operator's setting `GATEWAY_PROVIDER_VLLM_BASE_URL`. A key is needed only if the server was started with one.",
    ),
    (
        "lmstudio",
        "LM Studio",
        "A server on the gateway's machine. Another address is stored as `base_url`; private addresses need `GATEWAY_EGRESS_PRIVATE=allow`, or the operator's setting `GATEWAY_PROVIDER_LMSTUDIO_BASE_URL`.",
    ),
    (
        "sandbox",
        "Sandbox",
        "A provider inside the gateway, for first steps and tests. It answers `The sandbox read: …` and simulates failures: `X-Sandbox-Status`, `X-Sandbox-Delay-Ms`, `X-Sandbox-Chunks` and `X-Sandbox-Reply` ([proxy](../proxy.md#errors)).",
    ),
];

const INDEX: &str = include_str!("providers.md");

pub fn pages() -> Pages {
    let mut list = String::new();
    let mut pages = Pages::new();
    for provider in all() {
        let (_, title, notes) = NOTES
            .into_iter()
            .find(|(name, ..)| *name == provider.name)
            .unwrap_or_else(|| panic!("{} needs a title in docs_pages/providers.rs", provider.name));
        let _ = writeln!(
            list,
            "| [{title}]({}.md) | `{}` | {} | {} |",
            provider.name,
            provider.name,
            format_name(provider.format),
            provider.base_url.map_or_else(|| "—".to_owned(), |url| format!("`{url}`"))
        );
        pages.insert(format!("{}.md", provider.name), page(provider, title, notes));
    }
    pages.insert("index.md".to_owned(), format!("{NOTICE}\n\n{}", INDEX.replace("{list}", list.trim_end())));
    pages
}

fn page(provider: &Provider, title: &str, notes: &str) -> String {
    let name = provider.name;
    let mut text = format!("{NOTICE}\n\n# {title}\n\nName it with `X-Gateway-Provider: {name}`");
    let _ = write!(text, ", or write the model as `{name}/MODEL` with `auto` and below `/sdk`.\n\n");
    if !notes.is_empty() {
        let _ = write!(text, "{notes}\n\n");
    }
    text += "| what | value |\n|---|---|\n";
    let mut row = |what: &str, value: String| {
        let _ = writeln!(text, "| {what} | {value} |");
    };
    row("format", format_name(provider.format).to_owned());
    row(
        "base URL",
        provider.base_url.map_or_else(|| base_url_of_none(name).to_owned(), |url| format!("`{url}`")),
    );
    row("credential is sent as", credential(provider.auth).to_owned());
    row("operator's credential", operator(provider));
    row("chat", format!("`{}`", provider.chat_path));
    row("streamed chat", format!("`{}`", provider.stream_path.unwrap_or(provider.chat_path)));
    row("responses API", path_or_no(provider.responses_path));
    row("embeddings", path_or_no(provider.embeddings_path));
    row("list of models, test of a credential", path_or_no(provider.models_path));
    row("marks for its prompt cache", if provider.takes_cache_marks { "yes" } else { "no" }.to_owned());
    row("usage in streams", usage(provider).to_owned());
    row("OpenTelemetry name", format!("`{}`", provider.otel_name));
    if let Some(example) = example(provider) {
        let _ = write!(
            text,
            "\n## Store a credential\n\nSend this to `POST /api/v1/orgs/{{orgId}}/providers`, as [shown here](index.md#store-a-credential), or use the page Providers of the console:\n\n```json\n{example}\n```\n"
        );
    }
    text += "\n## What is translated\n\nWith `X-Gateway-Format`, with `auto`, for a fallback and below `/sdk`. In all other cases bytes are forwarded unchanged.\n\n| your request | what happens |\n|---|---|\n";
    for (request, what) in translations(provider) {
        let _ = writeln!(text, "| {request} | {what} |");
    }
    text += "\nEvery other path is forwarded unchanged. [Translation](../translation.md) lists what is dropped and what is rejected.\n";
    text
}

fn format_name(format: ProviderFormat) -> &'static str {
    match format {
        ProviderFormat::OpenAi => "OpenAI",
        ProviderFormat::Anthropic => "Anthropic messages",
        ProviderFormat::Gemini => "Gemini",
        ProviderFormat::Bedrock => "Bedrock Converse",
        ProviderFormat::Cohere => "Cohere v2",
    }
}

fn base_url_of_none(name: &str) -> &'static str {
    if name == "sandbox" { "none: inside the gateway" } else { "none: must be stored or configured" }
}

fn credential(auth: Auth) -> &'static str {
    match auth {
        Auth::None => "no credential needed; a stored one is sent as `Authorization: Bearer`",
        Auth::Bearer => "`Authorization: Bearer`",
        Auth::XApiKey => "`x-api-key`",
        Auth::ApiKey => "`api-key`",
        Auth::GoogApiKey => "`x-goog-api-key`",
        Auth::SigV4 { .. } => "a signature (AWS Signature Version 4), or `Authorization: Bearer`",
        Auth::OAuthBearer => "`Authorization: Bearer` with an access token",
    }
}

fn operator(provider: &Provider) -> String {
    if provider.name == "sandbox" {
        return "none".to_owned();
    }
    let own = format!("GATEWAY_PROVIDER_{}_API_KEY", provider.name.to_uppercase().replace('-', "_"));
    let names = [own].into_iter().chain(provider.env_keys.iter().map(|name| (*name).to_owned()));
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn path_or_no(path: Option<&str>) -> String {
    path.map_or_else(|| "no".to_owned(), |path| format!("`{path}`"))
}

fn usage(provider: &Provider) -> &'static str {
    if provider.supports_include_usage {
        "requested with `stream_options.include_usage`; its chunk is filtered out unless you asked for it"
    } else {
        "reported by the provider anyway"
    }
}

fn example(provider: &Provider) -> Option<String> {
    let name = provider.name;
    let rest = match provider.auth {
        Auth::ApiKey => r#""base_url": "https://my-resource.openai.azure.com", "api_key": "…""#,
        Auth::SigV4 { .. } => {
            r#""base_url": "https://bedrock-runtime.eu-central-1.amazonaws.com", "api_key": "ACCESS_KEY_ID:SECRET_ACCESS_KEY""#
        }
        Auth::OAuthBearer => r#""api_key": "ACCESS_TOKEN""#,
        Auth::None if name == "sandbox" => return None,
        Auth::None => r#""base_url": "https://models.example.com""#,
        Auth::Bearer if provider.is_local() => r#""base_url": "https://models.example.com", "api_key": "…""#,
        Auth::Bearer | Auth::XApiKey | Auth::GoogApiKey => r#""api_key": "…""#,
    };
    Some(format!(r#"{{"name": "{name}", {rest}}}"#))
}

fn translations(provider: &Provider) -> [(&'static str, String); 5] {
    const UNCHANGED: &str = "forwarded unchanged";
    let is_own_only = provider.auth == Auth::OAuthBearer;
    let target = format_name(provider.format);
    let translated = if is_own_only { "not available".to_owned() } else { format!("translated to {target}") };
    let when = |is_own: bool| if is_own { UNCHANGED.to_owned() } else { translated.clone() };
    let is_openai = provider.format == ProviderFormat::OpenAi;
    let responses = match (is_openai, provider.responses_path) {
        (true, Some(_)) => UNCHANGED.to_owned(),
        (true, None) => "translated to OpenAI chat completions".to_owned(),
        (false, _) => translated.clone(),
    };
    let embeddings = match (is_openai, provider.embeddings_path) {
        _ if provider.format == ProviderFormat::Bedrock => {
            "translated for Titan and Cohere models".to_owned()
        }
        (_, None) => "the provider has none".to_owned(),
        (true, Some(_)) => UNCHANGED.to_owned(),
        (false, Some(_)) => translated.clone(),
    };
    [
        ("OpenAI chat completions, `/v1/chat/completions`", when(is_openai)),
        ("OpenAI responses, `/v1/responses`", responses),
        ("Anthropic messages, `/v1/messages`", when(provider.format == ProviderFormat::Anthropic)),
        (
            "Gemini, `/v1beta/models/{model}:generateContent`",
            when(provider.format == ProviderFormat::Gemini && !is_own_only),
        ),
        ("OpenAI embeddings, `/v1/embeddings`", embeddings),
    ]
}
