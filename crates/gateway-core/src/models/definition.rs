//! The definition of a named model as it is written and stored.

use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::llm::failure::Refusal;
use crate::llm::prompt_cache::PromptCache;
use crate::pricing::Price;

/// What a model name means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ModelDefinition")]
pub struct Definition {
    /// `^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$`, with one trailing `*` allowed. Required to create a model; it never
    /// changes.
    #[serde(default, skip_serializing)]
    pub name: Option<String>,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub strategy: Strategy,
    /// 1 to 10 targets.
    pub targets: Vec<Target>,
    /// Retries at each target, 0 to 5; `X-Gateway-Retry` overrides it.
    #[serde(default)]
    #[schemars(range(min = 0, max = 5))]
    pub retries: Option<u32>,
    /// Timeout of each attempt; `X-Gateway-Timeout` can only shorten it.
    #[serde(default)]
    #[schemars(range(min = 1, max = 86_400_000))]
    pub timeout_ms: Option<u64>,
    /// How long an attempt may take until its response starts.
    #[serde(default)]
    #[schemars(range(min = 1, max = 86_400_000))]
    pub first_byte_timeout_ms: Option<u64>,
    /// The cache of calls that say nothing about it in `X-Gateway-Cache`.
    #[serde(default)]
    pub cache: Option<CacheDefault>,
    /// Marks for the prompt caches of providers, unless a call says otherwise in `X-Gateway-Prompt-Cache`. Default: the
    /// setting of the organization.
    #[serde(default)]
    pub prompt_cache: Option<PromptCache>,
    /// Overrides the known prices of all targets.
    #[serde(default)]
    pub price: Option<ModelPrice>,
    /// Not in the list of models, but usable.
    #[serde(default)]
    pub hidden: bool,
    /// Calls of a disabled model are refused.
    #[serde(default = "enabled")]
    pub enabled: bool,
}

fn enabled() -> bool {
    true
}

/// How targets are chosen and ordered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ModelStrategy")]
pub struct Strategy {
    pub mode: Mode,
    /// Failures after which the next target is tried. Default: those of docs/routing.md.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<Vec<FallbackCause>>,
    /// Mode `conditional`: the first condition that matches chooses the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// Mode `conditional`: the id of the target if no condition matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ModelMode")]
pub enum Mode {
    /// The only target.
    Single,
    /// In the order of the list.
    #[default]
    Order,
    /// At random, in proportion to the weights.
    Weighted,
    Cheapest,
    Fastest,
    /// The target that the conditions choose, and no other.
    Conditional,
}

/// A status such as 429, or a kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "must be a status such as 429, or 5xx, timeout, connect, context or content_filter"
)]
pub enum FallbackCause {
    Status(u16),
    Named(NamedCause),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NamedCause {
    /// Any status from 500 on.
    #[serde(rename = "5xx")]
    ServerError,
    #[serde(rename = "timeout")]
    Timeout,
    /// No connection, a connection that broke, or a response that cannot be read.
    #[serde(rename = "connect")]
    Connect,
    /// The input is too long for the model.
    #[serde(rename = "context")]
    Context,
    /// The provider's filter refused the content.
    #[serde(rename = "content_filter")]
    ContentFilter,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ModelCondition")]
pub struct Condition {
    /// Fields with a value or with operators, such as `{"metadata.plan": {"$eq": "paid"}}`; `$and` and `$or` combine.
    pub query: Map<String, Value>,
    /// The id of the target.
    pub then: String,
}

/// A provider and model, or a group with a strategy of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ModelTarget")]
pub struct Target {
    /// Unique within the model. Default: its place, such as `1` or `2.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The provider's name of the model. A trailing `*` stands for what the `*` of the name matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// 0 to 1000, for mode `weighted`; default 1. A target of weight 0 is only tried after the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub weight: Option<u32>,
    /// Fields set in the request body, in the caller's format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Map<String, Value>>,
    /// Fields set in the request body where the caller has not set them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400_000))]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 5))]
    pub retries: Option<u32>,
    /// Tried only after this failure, before all other targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Refusal>,
    /// Of a group; default: mode `order`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// The targets of a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<Target>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ModelCache")]
pub struct CacheDefault {
    pub mode: CacheDefaultMode,
    /// Seconds; default 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub ttl: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ModelCacheMode")]
pub enum CacheDefaultMode {
    Exact,
    Semantic,
}

/// Prices in USD per million tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    #[schemars(range(min = 0, max = 1_000_000))]
    pub input_per_mtok: f64,
    #[schemars(range(min = 0, max = 1_000_000))]
    pub output_per_mtok: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub cache_read_per_mtok: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub cache_write_per_mtok: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub reasoning_per_mtok: Option<f64>,
}

impl ModelPrice {
    /// The fields with their values.
    pub(super) fn fields(&self) -> [(&'static str, Option<f64>); 5] {
        [
            ("input_per_mtok", Some(self.input_per_mtok)),
            ("output_per_mtok", Some(self.output_per_mtok)),
            ("cache_read_per_mtok", self.cache_read_per_mtok),
            ("cache_write_per_mtok", self.cache_write_per_mtok),
            ("reasoning_per_mtok", self.reasoning_per_mtok),
        ]
    }

    pub(super) fn price(&self) -> Price {
        // Through text, so that 0.1 is 0.1.
        let decimal = |usd: f64| usd.to_string().parse::<Decimal>().ok();
        Price {
            input_per_mtok: decimal(self.input_per_mtok),
            output_per_mtok: decimal(self.output_per_mtok),
            cache_read_per_mtok: self.cache_read_per_mtok.and_then(decimal),
            cache_write_per_mtok: self.cache_write_per_mtok.and_then(decimal),
            reasoning_per_mtok: self.reasoning_per_mtok.and_then(decimal),
            ..Price::default()
        }
    }
}

impl Target {
    /// Its id, which `Definition::checked` has set.
    pub(super) fn id(&self) -> &str {
        self.id.as_deref().unwrap_or_default()
    }

    pub(super) fn is_group(&self) -> bool {
        self.targets.is_some()
    }
}
