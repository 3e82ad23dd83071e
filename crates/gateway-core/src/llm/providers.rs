//! The built-in providers as data, one row each. To add a provider, add a row. Code depends on the wire format and the
//! authentication of a provider, never on its name.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::ProviderFormat;
use super::paths::Operation;

/// The characters that are percent-encoded in a path segment.
const ENCODED_IN_SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'@');

/// The provider inside the gateway. `sandbox` responds to its calls without an upstream.
pub const SANDBOX: &str = "sandbox";

/// Sent with `x-api-key` if the caller sends no version.
pub const ANTHROPIC_VERSION: &str = "2023-06-01";

/// How a stored credential is sent to the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    None,
    /// `Authorization: Bearer`
    Bearer,
    /// `x-api-key`, and `anthropic-version` if the caller sends none.
    XApiKey,
    /// `api-key`
    ApiKey,
    /// `x-goog-api-key`
    GoogApiKey,
    /// AWS Signature Version 4, or `Bearer` if the credential is a Bedrock API key instead of a key pair.
    SigV4 {
        service: &'static str,
    },
    /// `Authorization: Bearer` with a token that expires. It is renewed outside of the gateway.
    OAuthBearer,
}

/// A row of the table. Paths may contain `{model}`, and for vertex `{project}` and `{location}`.
#[derive(Debug, Clone, Copy)]
pub struct Provider {
    pub name: &'static str,
    pub format: ProviderFormat,
    pub auth: Auth,
    /// Without the `/v1` of callers' paths. None: it must be configured (the sandbox has none).
    pub base_url: Option<&'static str>,
    /// The usual environment variables of the operator's credential. The first one that is set is used.
    pub env_keys: &'static [&'static str],
    /// Whether `stream_options.include_usage` may be added to a stream. Other providers send usage anyway or reject the
    /// field.
    pub supports_include_usage: bool,
    /// Whether requests may carry marks for the provider's prompt cache, for models that take them.
    pub takes_cache_marks: bool,
    pub chat_path: &'static str,
    /// The path of a streamed chat call, if it differs.
    pub stream_path: Option<&'static str>,
    pub responses_path: Option<&'static str>,
    pub embeddings_path: Option<&'static str>,
    /// A cheap `GET` that lists models. The test of a credential calls it.
    pub models_path: Option<&'static str>,
    /// `gen_ai.provider.name` of the OpenTelemetry conventions, or the gateway's name if they have none.
    pub otel_name: &'static str,
}

impl Provider {
    /// Whether the provider takes the model from the path and ignores the body's. Azure's deployments count as models.
    pub fn has_model_in_path(&self) -> bool {
        self.chat_path.contains("{model}") || self.auth == Auth::ApiKey
    }

    /// The path of a call that was made for another provider of the same format. None if this provider does not serve
    /// the operation, or if the path depends on the account (a project, a region).
    pub fn path_for(
        &self,
        operation: Operation,
        model: Option<&str>,
        stream: bool,
    ) -> Option<Cow<'static, str>> {
        let path = match (self.format, operation) {
            (ProviderFormat::OpenAi | ProviderFormat::Cohere, Operation::Chat)
            | (ProviderFormat::Anthropic, Operation::Messages)
            | (ProviderFormat::Gemini, Operation::GenerateContent)
            | (ProviderFormat::Bedrock, Operation::Converse) => {
                self.stream_path.filter(|_| stream).unwrap_or(self.chat_path)
            }
            (ProviderFormat::OpenAi, Operation::Responses) => self.responses_path?,
            (_, Operation::Embeddings) => self.embeddings_path?,
            (_, Operation::Models) => self.models_path?,
            (ProviderFormat::OpenAi, Operation::Completions) => {
                return Some(self.chat_path.replace("/chat/completions", "/completions").into());
            }
            _ => return None,
        };
        if !path.contains('{') {
            return Some(path.into());
        }
        let path = path.replace("{model}", &utf8_percent_encode(model?, ENCODED_IN_SEGMENT).to_string());
        (!path.contains('{')).then_some(path.into())
    }

    /// Whether the provider runs on the operator's machine: without an account and over plain HTTP.
    pub fn is_local(&self) -> bool {
        self.base_url.is_some_and(|url| url.starts_with("http://"))
    }
}

/// The built-in provider with this exact name.
pub fn builtin(name: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().find(|provider| provider.name == name)
}

pub fn all() -> &'static [Provider] {
    &PROVIDERS
}

/// An OpenAI-compatible provider with a Bearer key. Most rows list only their differences from it.
const OPENAI_LIKE: Provider = Provider {
    name: "",
    format: ProviderFormat::OpenAi,
    auth: Auth::Bearer,
    base_url: None,
    env_keys: &[],
    supports_include_usage: true,
    takes_cache_marks: false,
    chat_path: "/v1/chat/completions",
    stream_path: None,
    responses_path: None,
    embeddings_path: None,
    models_path: Some("/v1/models"),
    otel_name: "",
};

const RESPONSES: Option<&str> = Some("/v1/responses");
const EMBEDDINGS: Option<&str> = Some("/v1/embeddings");

static PROVIDERS: [Provider; 22] = [
    Provider {
        name: "openai",
        base_url: Some("https://api.openai.com"),
        env_keys: &["OPENAI_API_KEY"],
        takes_cache_marks: true,
        responses_path: RESPONSES,
        embeddings_path: EMBEDDINGS,
        otel_name: "openai",
        ..OPENAI_LIKE
    },
    Provider {
        name: "anthropic",
        format: ProviderFormat::Anthropic,
        auth: Auth::XApiKey,
        base_url: Some("https://api.anthropic.com"),
        env_keys: &["ANTHROPIC_API_KEY"],
        supports_include_usage: false,
        takes_cache_marks: true,
        chat_path: "/v1/messages",
        otel_name: "anthropic",
        ..OPENAI_LIKE
    },
    Provider {
        name: "gemini",
        format: ProviderFormat::Gemini,
        auth: Auth::GoogApiKey,
        base_url: Some("https://generativelanguage.googleapis.com"),
        env_keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        supports_include_usage: false,
        chat_path: "/v1beta/models/{model}:generateContent",
        stream_path: Some("/v1beta/models/{model}:streamGenerateContent?alt=sse"),
        embeddings_path: Some("/v1beta/models/{model}:embedContent"),
        models_path: Some("/v1beta/models"),
        otel_name: "gcp.gemini",
        ..OPENAI_LIKE
    },
    Provider {
        name: "azure-openai",
        auth: Auth::ApiKey,
        env_keys: &["AZURE_OPENAI_API_KEY"],
        takes_cache_marks: true,
        chat_path: "/openai/v1/chat/completions",
        responses_path: Some("/openai/v1/responses"),
        embeddings_path: Some("/openai/v1/embeddings"),
        models_path: Some("/openai/v1/models"),
        otel_name: "azure.ai.openai",
        ..OPENAI_LIKE
    },
    Provider {
        name: "bedrock",
        format: ProviderFormat::Bedrock,
        auth: Auth::SigV4 { service: "bedrock" },
        base_url: Some("https://bedrock-runtime.us-east-1.amazonaws.com"),
        env_keys: &["AWS_BEARER_TOKEN_BEDROCK"],
        supports_include_usage: false,
        takes_cache_marks: true,
        chat_path: "/model/{model}/converse",
        stream_path: Some("/model/{model}/converse-stream"),
        models_path: None,
        otel_name: "aws.bedrock",
        ..OPENAI_LIKE
    },
    Provider {
        name: "vertex",
        format: ProviderFormat::Gemini,
        auth: Auth::OAuthBearer,
        base_url: Some("https://aiplatform.googleapis.com"),
        env_keys: &["VERTEX_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN"],
        supports_include_usage: false,
        takes_cache_marks: true,
        chat_path: "/v1/projects/{project}/locations/{location}/publishers/google/models/{model}:generateContent",
        stream_path: Some(
            "/v1/projects/{project}/locations/{location}/publishers/google/models/{model}:streamGenerateContent?alt=sse",
        ),
        models_path: None,
        otel_name: "gcp.vertex_ai",
        ..OPENAI_LIKE
    },
    Provider {
        name: "mistral",
        base_url: Some("https://api.mistral.ai"),
        env_keys: &["MISTRAL_API_KEY"],
        // Rejects the field with 422 and always reports usage in the last chunk.
        supports_include_usage: false,
        embeddings_path: EMBEDDINGS,
        otel_name: "mistral_ai",
        ..OPENAI_LIKE
    },
    Provider {
        name: "cohere",
        format: ProviderFormat::Cohere,
        base_url: Some("https://api.cohere.com"),
        env_keys: &["COHERE_API_KEY", "CO_API_KEY"],
        supports_include_usage: false,
        chat_path: "/v2/chat",
        embeddings_path: Some("/v2/embed"),
        otel_name: "cohere",
        ..OPENAI_LIKE
    },
    Provider {
        name: "groq",
        base_url: Some("https://api.groq.com/openai"),
        env_keys: &["GROQ_API_KEY"],
        responses_path: RESPONSES,
        otel_name: "groq",
        ..OPENAI_LIKE
    },
    Provider {
        name: "together",
        base_url: Some("https://api.together.xyz"),
        env_keys: &["TOGETHER_API_KEY"],
        embeddings_path: EMBEDDINGS,
        otel_name: "together",
        ..OPENAI_LIKE
    },
    Provider {
        name: "fireworks",
        base_url: Some("https://api.fireworks.ai/inference"),
        env_keys: &["FIREWORKS_API_KEY"],
        responses_path: RESPONSES,
        embeddings_path: EMBEDDINGS,
        otel_name: "fireworks",
        ..OPENAI_LIKE
    },
    Provider {
        name: "deepseek",
        base_url: Some("https://api.deepseek.com"),
        env_keys: &["DEEPSEEK_API_KEY"],
        otel_name: "deepseek",
        ..OPENAI_LIKE
    },
    Provider {
        name: "xai",
        base_url: Some("https://api.x.ai"),
        env_keys: &["XAI_API_KEY"],
        responses_path: RESPONSES,
        otel_name: "x_ai",
        ..OPENAI_LIKE
    },
    Provider {
        name: "perplexity",
        base_url: Some("https://api.perplexity.ai"),
        env_keys: &["PERPLEXITY_API_KEY", "PPLX_API_KEY"],
        // Every chunk reports usage. The paths have no version.
        supports_include_usage: false,
        chat_path: "/chat/completions",
        models_path: None,
        otel_name: "perplexity",
        ..OPENAI_LIKE
    },
    Provider {
        name: "openrouter",
        base_url: Some("https://openrouter.ai/api"),
        env_keys: &["OPENROUTER_API_KEY"],
        responses_path: RESPONSES,
        embeddings_path: EMBEDDINGS,
        otel_name: "openrouter",
        ..OPENAI_LIKE
    },
    Provider {
        name: "cerebras",
        base_url: Some("https://api.cerebras.ai"),
        env_keys: &["CEREBRAS_API_KEY"],
        otel_name: "cerebras",
        ..OPENAI_LIKE
    },
    Provider {
        name: "nvidia",
        base_url: Some("https://integrate.api.nvidia.com"),
        env_keys: &["NVIDIA_API_KEY"],
        embeddings_path: EMBEDDINGS,
        otel_name: "nvidia",
        ..OPENAI_LIKE
    },
    Provider {
        name: "huggingface",
        base_url: Some("https://router.huggingface.co"),
        env_keys: &["HF_TOKEN", "HUGGINGFACE_API_KEY"],
        responses_path: RESPONSES,
        otel_name: "huggingface",
        ..OPENAI_LIKE
    },
    Provider {
        name: "ollama",
        auth: Auth::None,
        base_url: Some("http://localhost:11434"),
        responses_path: RESPONSES,
        embeddings_path: EMBEDDINGS,
        otel_name: "ollama",
        ..OPENAI_LIKE
    },
    Provider {
        name: "vllm",
        base_url: Some("http://localhost:8000"),
        env_keys: &["VLLM_API_KEY"],
        responses_path: RESPONSES,
        embeddings_path: EMBEDDINGS,
        otel_name: "vllm",
        ..OPENAI_LIKE
    },
    Provider {
        name: "lmstudio",
        auth: Auth::None,
        base_url: Some("http://localhost:1234"),
        responses_path: RESPONSES,
        embeddings_path: EMBEDDINGS,
        otel_name: "lmstudio",
        ..OPENAI_LIKE
    },
    Provider {
        name: SANDBOX,
        auth: Auth::None,
        responses_path: RESPONSES,
        embeddings_path: EMBEDDINGS,
        otel_name: SANDBOX,
        ..OPENAI_LIKE
    },
];

#[cfg(test)]
mod tests;
