//! The JSON form of a log row for the API and for exports.

pub mod export;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::ids::{AppId, KeyId, TeamId};
use crate::logs::{Attempt, BodyStorage, LimitUse, LogLevel, LogRow, LogSource};
use crate::time::Timestamp;
use crate::totals::{cost_units, usd};

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LogRow")]
pub struct LogView {
    pub id: i64,
    request_id: String,
    pub created_at: Timestamp,
    level: LogLevel,
    source: LogSource,
    pub provider: String,
    pub model: Option<String>,
    method: String,
    path: String,
    pub status: u16,
    pub error_code: Option<String>,
    stream: bool,
    pub latency_ms: i64,
    /// Time to the first byte of the response.
    ttft_ms: Option<i64>,
    /// All input tokens, including cached ones; null if no usage was recorded.
    prompt_tokens: Option<i64>,
    /// All output tokens, including reasoning.
    completion_tokens: Option<i64>,
    cached_tokens: Option<i64>,
    reasoning_tokens: Option<i64>,
    pub total_tokens: Option<i64>,
    /// The provider reported no usage; the gateway estimated the tokens.
    usage_estimated: bool,
    /// Null if the model has no price or no usage was recorded.
    pub cost_usd: Option<f64>,
    pub cache: Option<String>,
    /// The prompt-cache marks that the gateway added to the request; null if it was not to add any.
    cache_marks: Option<u32>,
    /// Milliseconds that the request waited for its limits; absent if it was not queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    queued_ms: Option<u64>,
    /// The limits that applied; absent if there were none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    limits: Vec<LimitUse<'static>>,
    pub attempts: Vec<Attempt>,
    key_id: Option<KeyId>,
    app_id: Option<AppId>,
    team_id: Option<TeamId>,
    user: Option<String>,
    /// Null only in the live stream, for requests without a session: it is assigned when the row is stored.
    session_id: Option<String>,
    metadata: Map<String, Value>,
    /// The prompt that was inserted into the request, as `namespace/slug`.
    prompt: Option<String>,
    prompt_version: Option<i64>,
    /// The dialect of a request below `/compat`; absent for all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    compat: Option<String>,
    /// The method of an MCP request; absent for all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    /// The tool, prompt or resource of an MCP request; absent for all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    request_stored: BodyStorage,
    response_stored: BodyStorage,
    /// The first 200 characters of the last user text.
    preview: Option<String>,
}

impl LogView {
    pub fn new(row: &LogRow, preview: Option<String>) -> Self {
        let tokens = row.tokens;
        Self {
            id: row.id,
            request_id: row.request_id.clone(),
            created_at: row.created_at,
            level: row.level,
            source: row.source,
            provider: row.provider.clone(),
            model: row.model.clone(),
            method: row.method.clone(),
            path: row.path.clone(),
            status: row.status,
            error_code: row.error_code.clone(),
            stream: row.stream,
            latency_ms: row.latency_ms,
            ttft_ms: row.ttft_ms,
            prompt_tokens: tokens.map(|tokens| tokens.prompt),
            completion_tokens: tokens.map(|tokens| tokens.completion),
            cached_tokens: tokens.map(|tokens| tokens.cached),
            reasoning_tokens: tokens.map(|tokens| tokens.reasoning),
            total_tokens: tokens.map(|tokens| tokens.total()),
            usage_estimated: row.usage_estimated,
            cost_usd: row.cost_usd.map(|cost| usd(cost_units(cost))),
            cache: row.cache.clone(),
            cache_marks: row.cache_marks,
            queued_ms: row.queued_ms,
            limits: row.limits.list(),
            attempts: row.attempts.clone(),
            key_id: row.key_id,
            app_id: row.app_id,
            team_id: row.team_id,
            user: row.user.clone(),
            session_id: row.session_id.clone(),
            metadata: row.metadata.clone(),
            prompt: row.prompt.as_ref().map(|prompt| prompt.name.clone()),
            prompt_version: row.prompt.as_ref().map(|prompt| prompt.version),
            compat: row.compat.clone(),
            operation: row.operation.clone(),
            tool: row.tool.clone(),
            request_stored: row.request_stored,
            response_stored: row.response_stored,
            preview,
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub struct LogDetail {
    #[serde(flatten)]
    row: LogView,
    request: StoredBody,
    response: StoredBody,
}

impl LogDetail {
    pub fn new(row: &LogRow, preview: Option<String>) -> Self {
        Self {
            request: StoredBody::read(&row.request),
            response: StoredBody::read(&row.response),
            row: LogView::new(row, preview),
        }
    }
}

/// A stored body: JSON byte for byte, else a string, `{"base64": "…"}` if it is not text, or null if nothing was
/// stored.
#[derive(Serialize)]
#[serde(untagged)]
enum StoredBody {
    Nothing,
    Json(Box<RawValue>),
    Text(String),
    Bytes { base64: String },
}

impl StoredBody {
    fn read(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::Nothing;
        }
        if let Ok(json) = serde_json::from_slice(bytes) {
            return Self::Json(json);
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            // The error is a character that truncation cut off; the rest is text.
            Err(error) if error.error_len().is_none() => {
                Self::Text(String::from_utf8_lossy(bytes).into_owned())
            }
            Err(_) => Self::Bytes { base64: BASE64.encode(bytes) },
        }
    }
}

impl JsonSchema for StoredBody {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StoredBody".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let description = "The body as JSON, byte for byte; as a string if it is not JSON; as {\"base64\": …} if it is \
                           not text; null if nothing was stored.";
        schemars::Schema::from(json!({ "description": description }).as_object().cloned().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> String {
        serde_json::to_string(&StoredBody::read(bytes)).unwrap()
    }

    #[test]
    fn a_stored_body_is_shown_as_json_text_or_base64() {
        assert_eq!(shown(b""), "null");
        assert_eq!(
            shown(br#"{"n": 1.50, "big": 123456789012345678901234567890}"#),
            r#"{"n": 1.50, "big": 123456789012345678901234567890}"#
        );
        assert_eq!(shown(br#"{"cut": "of"#), r#""{\"cut\": \"of""#);
        assert_eq!(shown("data: gr\u{fc}n\n\n".as_bytes()), "\"data: gr\u{fc}n\\n\\n\"");
        assert_eq!(shown(&"grün".as_bytes()[..3]), "\"gr\u{fffd}\"");
        assert_eq!(shown(&[0xff, 0x00, 0x41]), r#"{"base64":"/wBB"}"#);
    }
}
