//! The log row: the record of one finished request. It is appended to the spool, written to the store, and read by the
//! API.

mod encoding;
mod limit_uses;

use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{AppId, KeyId, OrgId, TeamId};
use crate::llm::ProviderFormat;
use crate::time::Timestamp;
pub use limit_uses::{DryRunVerdict, LimitUse, LimitUses};

/// Ids are time-ordered and fit in 53 bits, which JavaScript represents exactly: 41 bits of milliseconds since
/// `LOG_EPOCH`, then 12 bits that distinguish nodes and rows of the same millisecond.
pub const LOG_EPOCH: i64 = 1_704_067_200_000;
pub const LOG_ID_LOW_BITS: u32 = 12;

/// The low bits start with the node number, followed by a counter within the millisecond.
pub const LOG_ID_NODE_BITS: u32 = 5;
/// Reserved for ingested spans, whose ids are derived from the spans and must not collide with those of a node.
pub const OTEL_NODE: i64 = (1 << LOG_ID_NODE_BITS) - 1;
/// The number of ids for ingested spans in a millisecond.
pub const OTEL_SLOTS: i64 = 1 << (LOG_ID_LOW_BITS - LOG_ID_NODE_BITS);

/// The first low-bits value of ingested spans.
pub fn first_otel_slot() -> i64 {
    OTEL_NODE * OTEL_SLOTS
}

/// The smallest possible id of a row created at this time.
pub fn first_log_id(at: Timestamp) -> i64 {
    (at.0 - LOG_EPOCH).max(0) << LOG_ID_LOW_BITS
}

/// The time at which the id was assigned.
pub fn log_id_time(id: i64) -> Timestamp {
    Timestamp((id >> LOG_ID_LOW_BITS) + LOG_EPOCH)
}

/// Longer bodies are truncated before they are stored.
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
    /// A call through the MCP gateway.
    Mcp,
    /// A logged request that a replay made again.
    Replay,
}

impl LogSource {
    pub const ALL: [Self; 5] = [Self::Proxy, Self::Api, Self::Otel, Self::Mcp, Self::Replay];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Api => "api",
            Self::Otel => "otel",
            Self::Mcp => "mcp",
            Self::Replay => "replay",
        }
    }

    /// The gateway makes the call itself, for the organization.
    pub fn is_internal(self) -> bool {
        matches!(self, Self::Api | Self::Replay)
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == name)
    }
}

/// How much of a body was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Stored")]
pub enum BodyStorage {
    Full,
    Truncated,
    Off,
}

/// One call to one target of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attempt {
    pub provider: String,
    pub model: Option<String>,
    /// The upstream's status; null if there was no response.
    pub status: Option<u16>,
    /// Offset from the request's start, in milliseconds.
    pub start_ms: i64,
    pub ttft_ms: Option<i64>,
    pub latency_ms: i64,
    pub error: Option<String>,
}

/// A prompt and its version.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PromptVersionRef {
    /// `namespace/slug`
    pub name: String,
    pub version: i64,
}

/// A log row. The spools of earlier versions hold rows as JSON, which is only read; see `encode` for what is written.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LogRow {
    pub id: i64,
    pub org_id: OrgId,
    pub request_id: String,
    pub created_at: Timestamp,
    pub level: LogLevel,
    pub source: LogSource,
    pub provider: String,
    /// The provider's wire format, which is needed to interpret the bodies.
    #[serde(rename = "shape")]
    pub provider_format: Option<ProviderFormat>,
    pub model: Option<String>,
    pub method: String,
    pub path: String,
    pub status: u16,
    pub error_code: Option<String>,
    pub stream: bool,
    pub latency_ms: i64,
    pub ttft_ms: Option<i64>,
    pub tokens: Option<Tokens>,
    pub usage_estimated: bool,
    /// `None` if the model has no price or no usage was recorded.
    pub cost_usd: Option<Decimal>,
    /// Tokens were used, but the model has no price.
    pub unpriced: bool,
    pub cache: Option<String>,
    /// The prompt-cache marks that the gateway added. `None` if it was not to add any.
    pub cache_marks: Option<u32>,
    /// What the provider's prompt cache saved, which is negative if more was written than read. `None` if it was not
    /// used, or the model has no price.
    pub cache_saved_usd: Option<Decimal>,
    /// Milliseconds that the request waited for its limits. `None` if it was not queued.
    pub queued_ms: Option<u64>,
    /// The limits that applied.
    #[serde(default)]
    pub limits: LimitUses,
    pub attempts: Vec<Attempt>,
    pub key_id: Option<KeyId>,
    pub app_id: Option<AppId>,
    pub team_id: Option<TeamId>,
    pub user: Option<String>,
    /// `None` if the request named no session; the log writer then assigns one.
    pub session_id: Option<String>,
    pub metadata: Map<String, Value>,
    /// The prompt that was inserted into the request. Rows of early versions lack the field.
    pub prompt: Option<PromptVersionRef>,
    /// The W3C `traceparent` of the request.
    pub traceparent: Option<String>,
    /// The dialect of a request below `/compat`.
    pub compat: Option<String>,
    /// The method of an MCP request.
    pub operation: Option<String>,
    /// The tool, prompt or resource of an MCP request, as its server names it.
    pub tool: Option<String>,
    pub request_stored: BodyStorage,
    pub response_stored: BodyStorage,
    /// Bodies are stored next to the row, not in its JSON.
    #[serde(skip)]
    pub request: Vec<u8>,
    #[serde(skip)]
    pub response: Vec<u8>,
    pub response_is_stream: bool,
}

impl LogRow {
    /// A request that succeeded, and of which nothing else is known.
    pub fn new(id: i64, org_id: OrgId, created_at: Timestamp, source: LogSource) -> Self {
        Self {
            id,
            org_id,
            request_id: String::new(),
            created_at,
            level: LogLevel::Info,
            source,
            provider: String::new(),
            provider_format: None,
            model: None,
            method: "POST".into(),
            path: String::new(),
            status: 200,
            error_code: None,
            stream: false,
            latency_ms: 0,
            ttft_ms: None,
            tokens: None,
            usage_estimated: false,
            cost_usd: None,
            unpriced: false,
            cache: None,
            cache_marks: None,
            cache_saved_usd: None,
            queued_ms: None,
            limits: LimitUses::default(),
            attempts: Vec::new(),
            key_id: None,
            app_id: None,
            team_id: None,
            user: None,
            session_id: None,
            metadata: Map::new(),
            prompt: None,
            traceparent: None,
            compat: None,
            operation: None,
            tool: None,
            request_stored: BodyStorage::Off,
            response_stored: BodyStorage::Off,
            request: Vec::new(),
            response: Vec::new(),
            response_is_stream: false,
        }
    }
}

/// Token counts of a log row, derived from the disjoint token classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Tokens {
    /// All input, including cached tokens.
    pub prompt: i64,
    /// All output, including reasoning.
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
    fn the_ids_of_a_millisecond_follow_those_of_the_millisecond_before() {
        let at = Timestamp(1_794_700_000_123);
        assert_eq!(log_id_time(first_log_id(at)), at);
        assert_eq!(log_id_time(first_log_id(at) + 4095), at);
        assert_eq!(first_log_id(at.plus(1)), first_log_id(at) + 4096);
        assert!(first_log_id(Timestamp(LOG_EPOCH + (1 << 41) - 1)) < 1 << 53);
    }
}
