//! What becomes of each field of LiteLLM's configuration.

use super::super::report::Fate::{Approximate, Exact, Inner, Manual, Unsupported};
use super::super::report::{Fate, Known};

const DEFAULT: Fate = Exact("becomes a default of the target, which the caller's body overrides");
const LIMIT: Fate = Approximate(
    "becomes a limit of the model: what its deployments allow together, none where one of them has none; calls are \
     shared by rpm, else tpm, where there is no weight",
);
const PRICE: Fate = Exact("becomes the price of the model");
const CALLBACK: Fate =
    Manual("callbacks are not imported; send rows elsewhere with POST /exports or /webhooks");
const OWN_AUTH: Fate =
    Manual("keys, members and roles are set up here: POST /keys, POST /orgs/:orgId/members");
const OPERATOR: Fate = Manual("is a setting of the operator here: see docs/configuration.md");
const BREAKER: Fate = Approximate("circuit breakers have fixed rules here: see docs/routing.md");
const FALLBACKS: Fate = Approximate(
    "the targets of the named models follow in order; unlike LiteLLM, no other target is tried after 400 and 422, nor \
     after 401 and 403 of a credential of the caller",
);
const DEFAULT_FALLBACKS: Fate = Approximate(
    "the targets follow those of models without fallbacks of their own, but not after 400 and 422; a name that \
     model_list does not have is refused here: define a model `*` to serve it",
);
const INFORMATION: Fate = Exact("is information that the gateway does not need");

pub const ROOT: &Known = &[
    ("model_list", Inner),
    ("router_settings", Inner),
    ("litellm_settings", Inner),
    ("general_settings", Inner),
    ("credential_list", Inner),
    ("environment_variables", Inner),
    ("include", Manual("import each included file by itself, or paste it into this one")),
    ("guardrails", Manual("guardrails are shown in the plan and not imported")),
    ("mcp_servers", Manual("MCP servers are not imported")),
    ("vector_store_registry", Unsupported("the gateway has no vector stores")),
    ("finetune_settings", Unsupported("fine-tuning calls go to a provider by X-Gateway-Provider")),
    ("files_settings", Unsupported("calls of files go to a provider by X-Gateway-Provider")),
    ("assistant_settings", Unsupported("calls of assistants go to a provider by X-Gateway-Provider")),
    ("callback_settings", CALLBACK),
];

pub const CREDENTIAL: &Known = &[
    ("credential_name", Exact("deployments refer to it")),
    ("credential_values", Exact("used by the deployments that refer to it")),
    ("credential_info", INFORMATION),
];

pub const ENTRY: &Known = &[
    ("model_name", Exact("is the name of the model")),
    ("litellm_params", Inner),
    ("model_info", Inner),
    ("tpm", LIMIT),
    ("rpm", LIMIT),
];

pub const PARAMS: &Known = &[
    ("model", Exact("becomes a target: its provider and model")),
    ("custom_llm_provider", Exact("is the provider of the target")),
    ("api_base", Exact("becomes the base URL of the provider")),
    ("base_url", Exact("becomes the base URL of the provider")),
    ("api_key", Exact("becomes the credential of the provider")),
    ("litellm_credential_name", Exact("the named credential is used")),
    ("api_version", Approximate("the v1 API of Azure OpenAI is called, which has no api-version")),
    ("organization", Manual("send it with the header OpenAI-Organization of the provider")),
    ("aws_access_key_id", Exact("becomes a part of the credential")),
    ("aws_secret_access_key", Exact("becomes a part of the credential")),
    ("aws_session_token", Exact("becomes a part of the credential")),
    ("aws_region_name", Exact("becomes the base URL of the provider")),
    ("aws_bedrock_runtime_endpoint", Manual("set it as the base URL of the provider")),
    ("aws_profile_name", Manual("profiles are not read; store a key pair or a Bedrock API key")),
    ("aws_role_name", Manual("roles are not assumed; store a key pair or a Bedrock API key")),
    ("aws_session_name", Manual("roles are not assumed; store a key pair or a Bedrock API key")),
    ("aws_web_identity_token", Manual("roles are not assumed; store a key pair or a Bedrock API key")),
    ("weight", Exact("becomes the weight of the target")),
    ("order", Exact("targets with a lower order come first")),
    ("rpm", LIMIT),
    ("tpm", LIMIT),
    ("max_parallel_requests", LIMIT),
    ("timeout", Exact("becomes timeout_ms of the target")),
    ("request_timeout", Exact("becomes timeout_ms of the target")),
    ("stream_timeout", Approximate("becomes first_byte_timeout_ms of the model, for all its targets")),
    ("max_retries", Exact("LiteLLM's router does not use it either")),
    ("num_retries", Exact("becomes retries of the target")),
    ("extra_headers", Inner),
    ("headers", Inner),
    ("extra_body", Inner),
    (
        "drop_params",
        Approximate("parameters that the target does not have are dropped where a call is translated"),
    ),
    (
        "additional_drop_params",
        Unsupported("parameters are dropped only where the target does not have them"),
    ),
    ("tags", Manual("use a condition on metadata: see docs/models.md")),
    (
        "cache_control_injection_points",
        Approximate("becomes prompt_cache of the model, which marks the system prompt and the final message"),
    ),
    ("mock_response", Manual("use a target of the provider sandbox")),
    ("max_budget", Manual("a budget of a deployment is not imported; see docs/budgets.md")),
    ("budget_duration", Manual("a budget of a deployment is not imported; see docs/budgets.md")),
    ("input_cost_per_token", PRICE),
    ("output_cost_per_token", PRICE),
    ("cache_read_input_token_cost", PRICE),
    ("cache_creation_input_token_cost", PRICE),
    ("output_cost_per_reasoning_token", PRICE),
    ("input_cost_per_second", Unsupported("prices are per token")),
    ("output_cost_per_second", Unsupported("prices are per token")),
    ("temperature", DEFAULT),
    ("top_p", DEFAULT),
    ("max_tokens", DEFAULT),
    ("max_completion_tokens", DEFAULT),
    ("n", DEFAULT),
    ("stop", DEFAULT),
    ("seed", DEFAULT),
    ("presence_penalty", DEFAULT),
    ("frequency_penalty", DEFAULT),
    ("logit_bias", DEFAULT),
    ("response_format", DEFAULT),
    ("reasoning_effort", DEFAULT),
    ("thinking", DEFAULT),
    ("tools", DEFAULT),
    ("tool_choice", DEFAULT),
    ("parallel_tool_calls", DEFAULT),
    ("service_tier", DEFAULT),
    ("user", DEFAULT),
    ("dimensions", DEFAULT),
    ("encoding_format", DEFAULT),
];

pub const INFO: &Known = &[
    ("id", Approximate("targets are called by their place")),
    ("mode", INFORMATION),
    ("base_model", INFORMATION),
    ("db_model", INFORMATION),
    ("max_tokens", INFORMATION),
    ("max_input_tokens", INFORMATION),
    ("max_output_tokens", INFORMATION),
    ("litellm_provider", INFORMATION),
    ("supports_vision", INFORMATION),
    ("supports_function_calling", INFORMATION),
    ("supports_tool_choice", INFORMATION),
    ("supports_prompt_caching", INFORMATION),
    ("supports_response_schema", INFORMATION),
    ("supports_reasoning", INFORMATION),
    ("description", Exact("becomes the description of the model")),
    ("input_cost_per_token", PRICE),
    ("output_cost_per_token", PRICE),
    ("cache_read_input_token_cost", PRICE),
    ("cache_creation_input_token_cost", PRICE),
    ("output_cost_per_reasoning_token", PRICE),
    ("access_groups", Manual("use the scopes of keys: model:<name>")),
    ("team_id", Manual("use the scopes of keys: model:<name>")),
    ("health_check_model", Unsupported("circuit breakers follow the calls themselves")),
];

pub const ROUTER: &Known = &[
    ("routing_strategy", Exact("becomes the strategy of models with several targets")),
    ("routing_strategy_args", Unsupported("strategies have no arguments")),
    ("num_retries", Exact("becomes retries of the models")),
    ("max_retries", Exact("LiteLLM's router does not use it either")),
    ("retry_policy", Approximate("counts by error are not imported; num_retries holds for all of them")),
    (
        "model_group_retry_policy",
        Approximate("counts by error are not imported; num_retries holds for all of them"),
    ),
    ("retry_after", Approximate("retries wait as docs/routing.md says")),
    ("timeout", Exact("becomes timeout_ms of the models")),
    ("stream_timeout", Exact("becomes first_byte_timeout_ms of the models")),
    ("fallbacks", FALLBACKS),
    ("default_fallbacks", DEFAULT_FALLBACKS),
    ("max_fallbacks", Approximate("all targets are tried, at most 10")),
    ("context_window_fallbacks", Exact("become targets with `when: context`")),
    ("content_policy_fallbacks", Exact("become targets with `when: content_filter`")),
    ("model_group_alias", Exact("each alias becomes a named model of its own")),
    ("allowed_fails", BREAKER),
    ("allowed_fails_policy", BREAKER),
    ("cooldown_time", BREAKER),
    ("disable_cooldowns", BREAKER),
    (
        "enable_pre_call_checks",
        Approximate("a target is chosen without a check of the input's length; use `when: context`"),
    ),
    ("enable_tag_filtering", Manual("use a condition on metadata: see docs/models.md")),
    ("tag_routing", Manual("use a condition on metadata: see docs/models.md")),
    ("provider_budget_config", Manual("a budget of a provider is not imported; see docs/budgets.md")),
    ("redis_url", OPERATOR),
    ("redis_host", OPERATOR),
    ("redis_port", OPERATOR),
    ("redis_password", OPERATOR),
    ("set_verbose", OPERATOR),
    ("debug_level", OPERATOR),
    ("cache_responses", Manual("set `cache` of the named models")),
    ("optional_pre_call_checks", Unsupported("the gateway has no such checks")),
];

pub const SETTINGS: &Known = &[
    ("num_retries", Exact("becomes retries of the models")),
    ("request_timeout", Exact("becomes timeout_ms of the models")),
    ("fallbacks", FALLBACKS),
    ("default_fallbacks", DEFAULT_FALLBACKS),
    ("context_window_fallbacks", Exact("become targets with `when: context`")),
    ("content_policy_fallbacks", Exact("become targets with `when: content_filter`")),
    ("model_group_alias_map", Exact("each alias becomes a named model of its own")),
    ("allowed_fails", BREAKER),
    ("cooldown_time", BREAKER),
    ("cache", Approximate("becomes `cache` of all models: answers are kept in this gateway, by its rules")),
    ("cache_params", Inner),
    (
        "drop_params",
        Approximate("parameters that the target does not have are dropped where a call is translated"),
    ),
    ("modify_params", Approximate("calls are translated by the rules of docs/translation.md")),
    ("success_callback", CALLBACK),
    ("failure_callback", CALLBACK),
    ("callbacks", CALLBACK),
    ("service_callbacks", CALLBACK),
    ("service_callback", CALLBACK),
    ("langfuse_default_tags", CALLBACK),
    ("s3_callback_params", CALLBACK),
    ("guardrails", Manual("guardrails are shown in the plan and not imported")),
    ("default_team_settings", CALLBACK),
    ("max_budget", Manual("create a budget of the organization: POST /orgs/:orgId/budgets")),
    ("budget_duration", Manual("create a budget of the organization: POST /orgs/:orgId/budgets")),
    ("max_end_user_budget", Approximate("becomes a monthly budget of each user; LiteLLM's has no period")),
    ("max_internal_user_budget", Manual("budgets of members are not imported")),
    ("internal_user_budget_duration", Manual("budgets of members are not imported")),
    ("default_internal_user_params", OWN_AUTH),
    ("upperbound_key_generate_params", OWN_AUTH),
    ("default_key_generate_params", OWN_AUTH),
    ("turn_off_message_logging", Exact("if true, `log_bodies` of the organization becomes false")),
    ("redact_user_api_key_info", Manual("set `log_bodies` of the organization to false")),
    ("set_verbose", OPERATOR),
    ("json_logs", OPERATOR),
    ("telemetry", Exact("the gateway sends none")),
    ("ssl_verify", OPERATOR),
    ("public_model_groups", Unsupported("there is no public page of models")),
    ("enable_json_schema_validation", Unsupported("answers are not validated")),
    (
        "forward_client_headers_to_llm_api",
        Approximate("headers of the caller pass to the provider as docs/proxy.md says"),
    ),
];

pub const CACHE_PARAMS: &Known = &[
    ("type", Approximate("exact or semantic; answers are kept in this gateway, by its rules")),
    ("ttl", Exact("becomes the ttl of the cache")),
    ("namespace", Exact("becomes the namespace of the cache")),
    ("mode", Approximate("the cache is used by default")),
    ("supported_call_types", Approximate("all calls that can be kept use the cache")),
    ("similarity_threshold", Approximate("the threshold is the gateway's own: see docs/caching.md")),
    ("host", OPERATOR),
    ("port", OPERATOR),
    ("password", OPERATOR),
    ("url", OPERATOR),
];

pub const GENERAL: &Known = &[
    ("master_key", Manual("is not imported; sign up here and create keys")),
    ("database_url", Manual("import the keys with `gateway import litellm-keys`")),
    (
        "store_model_in_db",
        Manual("models in LiteLLM's database are not in this file; add them to model_list"),
    ),
    ("completion_model", Manual("set `default_provider` of the organization")),
    ("custom_auth", Unsupported("code of your own is not run")),
    ("custom_key_generate", Unsupported("code of your own is not run")),
    ("custom_sso", Unsupported("code of your own is not run")),
    (
        "pass_through_endpoints",
        Unsupported("create a custom provider, and call its paths by X-Gateway-Provider"),
    ),
    ("enable_jwt_auth", OWN_AUTH),
    ("litellm_jwtauth", OWN_AUTH),
    ("allowed_ips", OPERATOR),
    ("alerting", Manual("use POST /webhooks")),
    ("alerting_threshold", Manual("use POST /webhooks")),
    ("alert_types", Manual("use POST /webhooks")),
    ("alert_to_webhook_url", Manual("use POST /webhooks")),
    (
        "max_parallel_requests",
        Manual("create limits of the models with `concurrent`: POST /orgs/:orgId/limits"),
    ),
    ("global_max_parallel_requests", Exact("becomes a limit of concurrent calls of the organization")),
    (
        "token_rate_limit_type",
        Manual(
            "holds for limits of keys and teams: their import reads it too, as docs/switching/litellm.md says",
        ),
    ),
    ("max_request_size_mb", OPERATOR),
    ("max_response_size_mb", OPERATOR),
    ("proxy_batch_write_at", OPERATOR),
    ("database_connection_pool_limit", OPERATOR),
    ("disable_spend_logs", OPERATOR),
    ("health_check_interval", Unsupported("circuit breakers follow the calls themselves")),
    ("background_health_checks", Unsupported("circuit breakers follow the calls themselves")),
    ("key_management_system", OPERATOR),
    ("key_management_settings", OPERATOR),
];

/// The defaults of a target among the parameters of a deployment.
pub fn is_default(name: &str) -> bool {
    PARAMS.iter().any(|(known, fate)| *known == name && matches!(fate, Exact(text) if is_default_text(text)))
}

fn is_default_text(text: &str) -> bool {
    matches!(DEFAULT, Exact(default) if default == text)
}
