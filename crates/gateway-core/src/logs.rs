//! The log row: everything that is known of one request when it has ended. Made in one place, appended to the spool,
//! moved to the store, read back through the API.

use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{AppId, KeyId, OrgId, TeamId};
use crate::llm::ProviderFormat;
use crate::time::Timestamp;

/// Ids are time-ordered and fit in 53 bits, so that JavaScript reads them exactly: 41 bits of milliseconds since
/// `LOG_EPOCH`, then 12 bits that tell nodes and neighbours apart.
pub const LOG_EPOCH: i64 = 1_704_067_200_000;
pub const LOG_ID_LOW_BITS: u32 = 12;

/// The low bits begin with the node, then count within a millisecond.
pub const LOG_ID_NODE_BITS: u32 = 5;
/// No node has this number: the ids of spans that others send are made from the spans, and must meet no other.
pub const OTEL_NODE: i64 = (1 << LOG_ID_NODE_BITS) - 1;
/// Ids for spans in a millisecond.
pub const OTEL_SLOTS: i64 = 1 << (LOG_ID_LOW_BITS - LOG_ID_NODE_BITS);

/// Where in a millisecond the ids of spans begin.
pub fn first_otel_slot() -> i64 {
    OTEL_NODE * OTEL_SLOTS
}

/// The smallest id that a row of this time can have.
pub fn first_log_id(at: Timestamp) -> i64 {
    (at.0 - LOG_EPOCH).max(0) << LOG_ID_LOW_BITS
}

/// The time at which the id was made.
pub fn log_id_time(id: i64) -> Timestamp {
    Timestamp((id >> LOG_ID_LOW_BITS) + LOG_EPOCH)
}

/// Of each body, this much is kept.
pub const MAX_BODY_BYTES: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Level")]
pub enum LogLevel {
    Info,
    Warn,
    Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Source")]
pub enum LogSource {
    Proxy,
    Api,
    Otel,
}

impl LogSource {
    pub const ALL: [Self; 3] = [Self::Proxy, Self::Api, Self::Otel];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Api => "api",
            Self::Otel => "otel",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == name)
    }
}

/// How much of a body was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Stored")]
pub enum BodyStorage {
    Full,
    Truncated,
    Off,
}

/// One call to one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attempt {
    pub provider: String,
    pub model: Option<String>,
    /// The upstream's status; null when none came.
    pub status: Option<u16>,
    /// Offset from the request's start, in milliseconds.
    pub start_ms: i64,
    pub ttft_ms: Option<i64>,
    pub latency_ms: i64,
    pub error: Option<String>,
}

/// Which version of which prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptVersionRef {
    /// `namespace/slug`
    pub name: String,
    pub version: i64,
}

/// A row on its way from the request to the store. Its JSON stands in the spool only, which is written with every
/// request: what is not known is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogRow {
    pub id: i64,
    pub org_id: OrgId,
    pub request_id: String,
    pub created_at: Timestamp,
    pub level: LogLevel,
    pub source: LogSource,
    pub provider: String,
    /// The provider's wire format, which later readers of the bodies need.
    #[serde(rename = "shape", default, skip_serializing_if = "Option::is_none")]
    pub provider_format: Option<ProviderFormat>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    pub method: String,
    pub path: String,
    pub status: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    pub stream: bool,
    pub latency_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    pub usage_estimated: bool,
    /// None: the model has no price, or nothing was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<Decimal>,
    /// Tokens were used, but the model has no price.
    pub unpriced: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    pub attempts: Vec<Attempt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<KeyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_id: Option<AppId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_id: Option<TeamId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// None: the writer finds the session that the request belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    pub metadata: Map<String, Value>,
    /// The prompt that was put into the request. Rows from before there were any do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptVersionRef>,
    /// W3C `traceparent` as it came in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    pub request_stored: BodyStorage,
    pub response_stored: BodyStorage,
    /// Bodies travel beside the row, not inside its JSON.
    #[serde(skip)]
    pub request: Vec<u8>,
    #[serde(skip)]
    pub response: Vec<u8>,
    pub response_is_stream: bool,
}

/// Token counts as the log shows them, derived from the disjoint classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// All input, cached included.
    pub prompt: i64,
    /// All output, reasoning included.
    pub completion: i64,
    pub cached: i64,
    pub cache_write: i64,
    pub reasoning: i64,
    pub audio: i64,
}

impl Tokens {
    pub fn total(&self) -> i64 {
        self.prompt + self.completion
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_time_begin_where_those_of_the_time_before_end() {
        let at = Timestamp(1_794_700_000_123);
        assert_eq!(log_id_time(first_log_id(at)), at);
        assert_eq!(log_id_time(first_log_id(at) + 4095), at);
        assert_eq!(first_log_id(at.plus(1)), first_log_id(at) + 4096);
        assert!(first_log_id(Timestamp(LOG_EPOCH + (1 << 41) - 1)) < 1 << 53);
    }
}
