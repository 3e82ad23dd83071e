//! The tables of all dialects. Names of headers are in lower case.

use super::Answer::{
    Duration, Echo, Fallbacks as CalledFallbacks, Header, HeaderOr, OfProvider, Option as InConfig,
    OptionIndex, Overhead, Requested, Retries as CalledRetries,
};
use super::PathRule::{Default as ByDefault, Provider as Below, Replace};
use super::Rule::{
    Address, Addresses, All, Default as IfUnset, Dropped, Fallbacks, FallbacksInstead, Fields,
    FirstByteTimeout, If, Ignored, Lifetime, MaxAge, Metadata, MetadataFields, Mock, Model, OneOf, Prefers,
    Provider, Refused, Retries, Seconds, To, WithoutFallbacks,
};
use super::{CostPlace, Dialect, ModelStyle, Preference, StreamErrors};
use crate::import::PORTKEY_PROVIDERS;
use crate::route::RouteStrategy;

const CACHE: &str = "x-gateway-cache";
const CACHE_TTL: &str = "x-gateway-cache-ttl";
const CACHE_NAMESPACE: &str = "x-gateway-cache-namespace";
const CACHE_THRESHOLD: &str = "x-gateway-cache-threshold";
const COST: &str = "x-gateway-cost";
const LOG: &str = "x-gateway-log";
const RETRY: &str = "x-gateway-retry";
const SESSION: &str = "x-gateway-session";
const TIMEOUT: &str = "x-gateway-timeout";
const USER: &str = "x-gateway-user";

const LOG_ID: &str = "x-gateway-log-id";
const ANSWERED_CACHE: &str = "x-gateway-cache";

const BEARER: &str = "authorization";
/// Where clients of the providers themselves put their keys.
const ALL_KEYS: [&str; 4] = [BEARER, "x-api-key", "api-key", "x-goog-api-key"];

const GUARDRAILS: super::Rule = Refused("guardrails are not run here; remove the field");
const LIMITS: super::Rule = Refused("limits are set here, not by callers");
const IN_NAMED_MODEL: super::Rule = Refused("define it in the named model: targets with `when`");

pub static DIALECTS: [Dialect; 5] = [
    Dialect {
        name: "litellm",
        prefixes: &["x-litellm-"],
        keys: &["x-litellm-api-key", ALL_KEYS[0], ALL_KEYS[1], ALL_KEYS[2], ALL_KEYS[3]],
        key_otherwise: None,
        headers: &[
            ("x-litellm-num-retries", Retries),
            ("x-litellm-timeout", Seconds(TIMEOUT)),
            ("x-litellm-stream-timeout", FirstByteTimeout),
            ("x-litellm-end-user-id", To(USER)),
            ("x-litellm-customer-id", To(USER)),
            ("x-litellm-tags", Metadata("tags")),
            ("x-litellm-spend-logs-metadata", MetadataFields),
            ("x-litellm-session-id", To(SESSION)),
            ("x-litellm-trace-id", Metadata("trace_id")),
            ("x-litellm-enable-message-redaction", If("true", LOG, "metadata")),
        ],
        fields: &[
            ("fallbacks", FallbacksInstead),
            ("context_window_fallbacks", IN_NAMED_MODEL),
            ("content_policy_fallbacks", IN_NAMED_MODEL),
            ("num_retries", Retries),
            ("timeout", Seconds(TIMEOUT)),
            ("request_timeout", Seconds(TIMEOUT)),
            ("stream_timeout", FirstByteTimeout),
            ("mock_response", Mock),
            ("disable_fallbacks", WithoutFallbacks),
            (
                "cache",
                Fields(&[
                    ("no-cache", If("true", CACHE, "refresh")),
                    ("no-store", If("true", CACHE, "false")),
                    ("use-cache", If("true", CACHE, "exact")),
                    ("ttl", Lifetime(CACHE_TTL)),
                    ("s-maxage", Lifetime(CACHE_TTL)),
                    ("namespace", To(CACHE_NAMESPACE)),
                ]),
            ),
            ("metadata", MetadataFields),
            ("tags", Metadata("tags")),
            ("litellm_session_id", To(SESSION)),
            ("litellm_trace_id", Metadata("trace_id")),
            ("litellm_metadata", MetadataFields),
            ("guardrails", GUARDRAILS),
            ("guardrail_config", GUARDRAILS),
        ],
        models: ModelStyle::ProviderFirst,
        providers: &[
            ("azure", "azure-openai"),
            ("azure_text", "azure-openai"),
            ("azure_ai", "azure-openai"),
            ("text-completion-openai", "openai"),
            ("bedrock_converse", "bedrock"),
            ("codestral", "mistral"),
            ("cohere_chat", "cohere"),
            ("together_ai", "together"),
            ("fireworks_ai", "fireworks"),
            ("nvidia_nim", "nvidia"),
            ("ollama_chat", "ollama"),
            ("hosted_vllm", "vllm"),
            ("lm_studio", "lmstudio"),
        ],
        translates: false,
        suffixes: &[],
        paths: &[
            ("/openai", Below("openai")),
            ("/anthropic", Below("anthropic")),
            ("/gemini", Below("gemini")),
            ("/bedrock", Below("bedrock")),
            ("/chat/completions", Replace("/v1/chat/completions")),
            ("/completions", Replace("/v1/completions")),
            ("/embeddings", Replace("/v1/embeddings")),
            ("/responses", Replace("/v1/responses")),
            ("/models", Replace("/v1/models")),
        ],
        answers: &[
            ("x-litellm-call-id", Header(LOG_ID)),
            ("x-litellm-model-id", Header("x-gateway-model")),
            ("x-litellm-model-group", Requested),
            ("x-litellm-response-cost", Header("x-gateway-cost-usd")),
            ("x-litellm-attempted-retries", CalledRetries),
            ("x-litellm-attempted-fallbacks", CalledFallbacks),
            ("x-litellm-response-duration-ms", Duration),
            ("x-litellm-overhead-duration-ms", Overhead),
            ("llm_provider-", OfProvider),
        ],
        cost: CostPlace::Header,
        stream_errors: StreamErrors::OfFormat,
    },
    Dialect {
        name: "portkey",
        prefixes: &["x-portkey-"],
        keys: &["x-portkey-api-key"],
        key_otherwise: None,
        headers: &[
            ("x-portkey-provider", Provider),
            ("x-portkey-virtual-key", Provider),
            ("x-portkey-config", Model),
            ("x-portkey-custom-host", Address),
            ("x-portkey-request-timeout", To(TIMEOUT)),
            ("x-portkey-retry-count", Retries),
            ("x-portkey-cache", OneOf(CACHE, &[("simple", "exact"), ("semantic", "semantic")])),
            ("x-portkey-cache-namespace", To(CACHE_NAMESPACE)),
            ("x-portkey-cache-force-refresh", If("true", CACHE, "refresh")),
            ("x-portkey-forward-headers", Dropped),
            ("x-portkey-strict-open-ai-compliance", Ignored),
            ("x-portkey-trace-id", To(SESSION)),
            ("x-portkey-metadata", MetadataFields),
            ("x-portkey-guardrails", GUARDRAILS),
            ("x-portkey-package-version", Ignored),
            ("x-portkey-runtime", Ignored),
            ("x-portkey-runtime-version", Ignored),
        ],
        fields: &[],
        models: ModelStyle::ProviderFirst,
        providers: &PORTKEY_PROVIDERS,
        translates: true,
        suffixes: &[],
        paths: &[],
        answers: &[
            ("x-portkey-trace-id", Echo("x-portkey-trace-id", LOG_ID)),
            ("x-portkey-provider", Header("x-gateway-provider")),
            ("x-portkey-cache-status", HeaderOr(ANSWERED_CACHE, "DISABLED")),
            ("x-portkey-retry-attempt-count", CalledRetries),
            ("x-portkey-last-used-option-index", InConfig),
        ],
        cost: CostPlace::Nowhere,
        stream_errors: StreamErrors::OfFormat,
    },
    Dialect {
        name: "helicone",
        prefixes: &["helicone-"],
        keys: &["helicone-auth"],
        key_otherwise: Some(BEARER),
        headers: &[
            ("helicone-target-url", Address),
            ("helicone-openai-api-base", Address),
            ("helicone-target-provider", Provider),
            ("helicone-retry-enabled", IfUnset(Some("true"), RETRY, "5")),
            ("helicone-retry-num", Retries),
            ("helicone-retry-factor", Dropped),
            ("helicone-retry-min-timeout", Dropped),
            ("helicone-retry-max-timeout", Dropped),
            ("helicone-fallbacks", Addresses),
            ("helicone-cache-enabled", If("true", CACHE, "exact")),
            ("helicone-cache-seed", To(CACHE_NAMESPACE)),
            ("cache-control", MaxAge(CACHE_TTL)),
            ("helicone-cache-bucket-max-size", Dropped),
            ("helicone-user-id", To(USER)),
            ("helicone-session-id", To(SESSION)),
            ("helicone-session-path", Metadata("session_path")),
            ("helicone-session-name", Metadata("session_name")),
            ("helicone-property-*", Metadata("*")),
            ("helicone-request-id", Metadata("request_id")),
            ("helicone-prompt-id", Metadata("prompt_id")),
            ("helicone-omit-request", If("true", LOG, "metadata")),
            ("helicone-omit-response", If("true", LOG, "metadata")),
            ("helicone-moderations-enabled", GUARDRAILS),
            ("helicone-llm-security-enabled", GUARDRAILS),
            ("helicone-rate-limit-policy", LIMITS),
            ("helicone-ratelimit-policy", LIMITS),
        ],
        fields: &[("prompt_id", Refused("store the prompt here, and name it in X-Gateway-Prompt"))],
        models: ModelStyle::ProviderLast,
        providers: &PORTKEY_PROVIDERS,
        translates: false,
        suffixes: &[],
        paths: &[("/openai", Below("openai")), ("/anthropic", Below("anthropic"))],
        answers: &[
            ("helicone-id", Echo("helicone-request-id", LOG_ID)),
            ("helicone-cache", Header(ANSWERED_CACHE)),
            ("helicone-fallback-index", OptionIndex),
            ("helicone-status", Header("x-gateway-upstream-status")),
        ],
        cost: CostPlace::Nowhere,
        stream_errors: StreamErrors::OfFormat,
    },
    Dialect {
        name: "openrouter",
        prefixes: &["x-openrouter-"],
        keys: &[BEARER],
        key_otherwise: None,
        headers: &[
            ("x-title", Metadata("app")),
            ("x-openrouter-title", Metadata("app")),
            ("http-referer", Metadata("referer")),
        ],
        fields: &[
            ("models", Fallbacks),
            ("route", Ignored),
            (
                "provider",
                Fields(&[
                    ("order", Prefers(Preference::Order)),
                    ("only", Prefers(Preference::Only)),
                    ("ignore", Prefers(Preference::Ignore)),
                    ("sort", Prefers(Preference::Sort)),
                    ("allow_fallbacks", Prefers(Preference::AllowsFallbacks)),
                    (
                        "max_price",
                        Fields(&[
                            ("prompt", Prefers(Preference::MaxInputPrice)),
                            ("completion", Prefers(Preference::MaxOutputPrice)),
                            ("request", Refused("prices of requests are not known here; remove the field")),
                            ("image", Refused("prices of images are not known here; remove the field")),
                        ]),
                    ),
                    ("require_parameters", Dropped),
                    ("quantizations", Dropped),
                    ("data_collection", Prefers(Preference::NoRetention("deny"))),
                    ("zdr", Prefers(Preference::NoRetention("true"))),
                ]),
            ),
            ("session_id", To(SESSION)),
            ("usage", Fields(&[("include", If("true", COST, "true"))])),
            ("transforms", Dropped),
            ("plugins", Refused("plugins are not run here; remove the field")),
        ],
        models: ModelStyle::ProviderFirst,
        providers: &[
            ("amazon-bedrock", "bedrock"),
            ("azure", "azure-openai"),
            ("google", "gemini"),
            ("google-ai-studio", "gemini"),
            ("google-vertex", "vertex"),
            ("mistralai", "mistral"),
            ("x-ai", "xai"),
        ],
        translates: false,
        suffixes: &[(":nitro", RouteStrategy::Fastest), (":floor", RouteStrategy::Cheapest)],
        paths: &[("/api", Replace(""))],
        answers: &[("x-generation-id", Header(LOG_ID))],
        cost: CostPlace::Usage,
        stream_errors: StreamErrors::ChunkWithProvider,
    },
    Dialect {
        name: "bifrost",
        prefixes: &["x-bf-"],
        keys: &["x-bf-vk", ALL_KEYS[0], ALL_KEYS[1], ALL_KEYS[2], ALL_KEYS[3]],
        key_otherwise: None,
        headers: &[
            // Calls are cached that have a key for it.
            ("x-bf-cache-key", All(&[To(CACHE_NAMESPACE), IfUnset(None, CACHE, "exact")])),
            ("x-bf-cache-ttl", Lifetime(CACHE_TTL)),
            ("x-bf-cache-threshold", To(CACHE_THRESHOLD)),
            ("x-bf-cache-type", OneOf(CACHE, &[("direct", "exact"), ("semantic", "semantic")])),
            ("x-bf-cache-no-store", If("true", CACHE, "false")),
            ("x-bf-session-id", To(SESSION)),
            ("x-bf-user-id", To(USER)),
            ("x-bf-dim-*", Metadata("*")),
            ("x-bf-api-key", Refused("store the key of the provider")),
        ],
        fields: &[("fallbacks", Fallbacks)],
        models: ModelStyle::ProviderFirst,
        providers: &[("azure", "azure-openai")],
        translates: false,
        suffixes: &[],
        paths: &[
            ("/openai", ByDefault("openai")),
            ("/anthropic", ByDefault("anthropic")),
            ("/genai", ByDefault("gemini")),
            ("/bedrock", ByDefault("bedrock")),
        ],
        answers: &[],
        cost: CostPlace::Nowhere,
        stream_errors: StreamErrors::OfFormat,
    },
];
