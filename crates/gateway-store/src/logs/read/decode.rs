//! Decodes the columns of a stored row.

use super::LogEntry;
use crate::StoreError;
use crate::logs::columns::level_name;
use crate::row::Row;
use gateway_core::llm::ProviderFormat;
use gateway_core::logs::{BodyStorage, LogLevel, LogRow, LogSource, PromptVersionRef, Tokens};
use gateway_core::totals::cost_decimal;

pub(in crate::logs) fn read(row: &Row) -> Result<LogEntry, StoreError> {
    let tokens = match row.get::<Option<i64>>("prompt_tokens")? {
        None => None,
        Some(prompt) => Some(Tokens {
            prompt,
            completion: row.get("completion_tokens")?,
            cached: row.get("cached_tokens")?,
            cache_write: row.get("cache_write_tokens")?,
            reasoning: row.get("reasoning_tokens")?,
            audio: row.get("audio_tokens")?,
        }),
    };
    let log = LogRow {
        id: row.get("id")?,
        org_id: row.get("org_id")?,
        request_id: row.get("request_id")?,
        created_at: row.get("created_at")?,
        level: named(row, "level", &[LogLevel::Info, LogLevel::Warn, LogLevel::Error], level_name)?,
        source: named(row, "source", &LogSource::ALL, LogSource::as_str)?,
        provider: row.get("provider")?,
        provider_format: row.get::<Option<String>>("shape")?.as_deref().and_then(ProviderFormat::parse),
        model: row.get("model")?,
        method: row.get("method")?,
        path: row.get("path")?,
        status: u16::try_from(row.get::<i64>("status")?).unwrap_or_default(),
        error_code: row.get("error_code")?,
        stream: row.get("stream")?,
        latency_ms: row.get("latency_ms")?,
        ttft_ms: row.get("ttft_ms")?,
        tokens,
        usage_estimated: row.get("usage_estimated")?,
        cost_usd: row.get::<Option<i64>>("cost")?.map(cost_decimal),
        unpriced: row.get("unpriced")?,
        cache: row.get("cache")?,
        cache_marks: row.get::<Option<i64>>("cache_marks")?.and_then(|marks| u32::try_from(marks).ok()),
        cache_saved_usd: row.get::<Option<i64>>("cache_saved")?.map(cost_decimal),
        queued_ms: row.get::<Option<i64>>("queued_ms")?.and_then(|waited| u64::try_from(waited).ok()),
        limits: row.optional_json("limits")?.unwrap_or_default(),
        attempts: row.json("attempts")?,
        key_id: row.get("key_id")?,
        app_id: row.get("app_id")?,
        team_id: row.get("team_id")?,
        user: row.get("user_id")?,
        session_id: row.get("session_id")?,
        metadata: row.json("metadata")?,
        prompt: row
            .get::<Option<String>>("prompt")?
            .zip(row.get::<Option<i64>>("prompt_version")?)
            .map(|(name, version)| PromptVersionRef { name, version }),
        traceparent: row.get("traceparent")?,
        compat: row.get("compat")?,
        operation: row.get("operation")?,
        tool: row.get("tool")?,
        request_stored: stored(row, "request_stored")?,
        response_stored: stored(row, "response_stored")?,
        request: Vec::new(),
        response: Vec::new(),
        response_is_stream: row.get("response_is_stream")?,
    };
    Ok(LogEntry { row: log, preview: row.get("preview")? })
}

fn stored(row: &Row, column: &'static str) -> Result<BodyStorage, StoreError> {
    named(
        row,
        column,
        &[BodyStorage::Full, BodyStorage::Truncated, BodyStorage::Off],
        crate::logs::columns::stored_name,
    )
}

fn named<T: Copy>(
    row: &Row,
    column: &'static str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, StoreError> {
    let text: String = row.get(column)?;
    let found = all.iter().copied().find(|value| name(*value) == text);
    found.ok_or_else(|| StoreError::Other(format!("column {column} holds the unknown value {text:?}")))
}
