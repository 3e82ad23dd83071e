//! What becomes of each field of Portkey's configs.

use super::super::report::Fate::{Approximate, Exact, Inner, Manual, Unsupported};
use super::super::report::{Fate, Known};

const GUARDRAIL: Fate = Manual("guardrails are shown in the plan and not imported");
const LIMIT: Fate = Approximate(
    "becomes a limit of the models that configs call through it; calls of others through it are not counted",
);
const INFORMATION: Fate = Exact("is information that the gateway does not need");

pub const ROOT: &Known = &[("configs", Inner), ("virtual_keys", Inner)];
pub const SAVED: &Known = &[
    ("slug", Exact("is the name of the model")),
    ("name", Exact("becomes the description of the model")),
    ("config", Inner),
    ("id", INFORMATION),
    ("status", INFORMATION),
    ("is_default", Manual("set `default_provider` of the organization")),
    ("organisation_id", INFORMATION),
    ("workspace_id", INFORMATION),
    ("owner_id", INFORMATION),
    ("version_id", INFORMATION),
    ("object", INFORMATION),
    ("created_at", INFORMATION),
    ("updated_at", INFORMATION),
    ("last_updated_at", INFORMATION),
];
pub const VIRTUAL_KEY: &Known = &[
    ("slug", Exact("is the name of the provider")),
    ("name", INFORMATION),
    ("provider", Exact("is the kind of the provider")),
    ("ai_provider_name", Exact("is the kind of the provider")),
    ("key", Exact("becomes the credential of the provider")),
    ("note", INFORMATION),
    ("id", INFORMATION),
    ("object", INFORMATION),
    ("status", INFORMATION),
    ("created_at", INFORMATION),
    ("model_config", Manual("deployments and regions are set by hand in the provider")),
    ("rate_limits", LIMIT),
    ("usage_limits", Manual("create a budget: POST /orgs/:orgId/budgets")),
    ("expires_at", Manual("credentials of providers do not expire here")),
];
/// Of a config and of each of its targets.
pub const CONFIG: &Known = &[
    ("strategy", Inner),
    ("targets", Inner),
    ("provider", Exact("is the provider of the target")),
    ("virtual_key", Exact("is the provider of the target")),
    ("api_key", Exact("becomes the credential of a provider")),
    ("name", Exact("is the id of the target")),
    ("weight", Exact("becomes the weight of the target")),
    ("override_params", Inner),
    ("model", Exact("is the model of the target")),
    ("retry", Inner),
    ("cache", Inner),
    ("request_timeout", Exact("becomes timeout_ms")),
    ("custom_host", Exact("becomes the base URL of a provider")),
    ("forward_headers", Manual("headers of the caller pass to the provider as docs/proxy.md says")),
    ("input_guardrails", GUARDRAIL),
    ("output_guardrails", GUARDRAIL),
    ("input_mutators", GUARDRAIL),
    ("output_mutators", GUARDRAIL),
    ("default_input_guardrails", GUARDRAIL),
    ("default_output_guardrails", GUARDRAIL),
    ("before_request_hooks", GUARDRAIL),
    ("after_request_hooks", GUARDRAIL),
    ("strict_open_ai_compliance", Approximate("answers are translated to the format of the caller")),
    ("resource_name", Manual("set the base URL of the provider")),
    ("deployment_id", Manual("name the deployment as the model of the target")),
    ("api_version", Approximate("the v1 API of Azure OpenAI is called, which has no api-version")),
    ("aws_region", Manual("set the base URL of the provider to that of the region")),
    ("vertex_project_id", Unsupported("Vertex AI cannot be a target of a named model; use gemini")),
    ("vertex_region", Unsupported("Vertex AI cannot be a target of a named model; use gemini")),
];
pub const STRATEGY: &Known = &[
    ("mode", Exact("is the mode of the strategy")),
    ("on_status_codes", Exact("becomes `on` of the strategy")),
    ("conditions", Inner),
    ("default", Exact("is the target if no condition matches")),
];
pub const CONDITION: &Known = &[
    ("query", Exact("becomes the query of the condition")),
    ("then", Exact("is the target of the condition")),
];
pub const RETRY: &Known = &[
    ("attempts", Exact("becomes retries")),
    ("on_status_codes", Approximate("failures are retried as docs/routing.md says")),
    ("use_retry_after_header", Exact("Retry-After of a provider is followed")),
    ("use_retry_after_headers", Exact("Retry-After of a provider is followed")),
];
pub const CACHE: &Known =
    &[("mode", Exact("becomes the mode of the cache")), ("max_age", Exact("becomes the ttl of the cache"))];
