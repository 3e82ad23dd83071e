//! The columns of a log row and its values in them.

use std::sync::LazyLock;

use gateway_core::logs::{BodyStorage, LogLevel, LogRow, Tokens};
use gateway_core::totals::{bounded_latency, bounded_tokens, cost_units, saving_units};

use super::bulk::Bulk;
use crate::row::{Arg, args, json};

/// Longer values, such as model or user names, are truncated.
const MAX_TEXT_CHARS: usize = 1024;

/// The columns of a log row, in the order of `values_of`.
pub(super) const COLUMNS: [&str; 49] = [
    "id",
    "org_id",
    "request_id",
    "created_at",
    "level",
    "source",
    "provider",
    "shape",
    "model",
    "method",
    "path",
    "status",
    "error_code",
    "stream",
    "latency_ms",
    "ttft_ms",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "audio_tokens",
    "usage_estimated",
    "cost",
    "unpriced",
    "cache",
    "cache_marks",
    "cache_saved",
    "queued_ms",
    "limits",
    "attempts",
    "key_id",
    "app_id",
    "team_id",
    "user_id",
    "session_id",
    "metadata",
    "prompt",
    "prompt_version",
    "traceparent",
    "compat",
    "operation",
    "tool",
    "request_stored",
    "response_stored",
    "response_is_stream",
    "preview",
    "body_block",
    "body_bytes",
];

pub(super) static ROWS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        &format!("INSERT INTO log_rows ({})", COLUMNS.join(", ")),
        "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        "",
    )
});

pub(super) fn values_of(
    row: &LogRow,
    session: &str,
    preview: Option<String>,
    block: Option<i64>,
) -> Vec<Arg> {
    let LogRow {
        id,
        org_id,
        request_id,
        created_at,
        level,
        source,
        provider,
        provider_format,
        model,
        method,
        path,
        status,
        error_code,
        stream,
        latency_ms,
        ttft_ms,
        tokens,
        usage_estimated,
        cost_usd,
        unpriced,
        cache,
        cache_marks,
        cache_saved_usd,
        queued_ms,
        limits,
        attempts,
        key_id,
        app_id,
        team_id,
        user,
        session_id: _,
        metadata,
        prompt,
        traceparent,
        compat,
        operation,
        tool,
        request_stored,
        response_stored,
        request,
        response,
        response_is_stream,
    } = row;
    let count = |of: fn(&Tokens) -> i64| tokens.as_ref().map(|tokens| bounded_tokens(of(tokens)));
    args![
        *id,
        *org_id,
        clean(request_id),
        *created_at,
        level_name(*level),
        source.as_str(),
        clean(provider),
        provider_format.map(gateway_core::llm::ProviderFormat::as_str),
        model.as_deref().map(clean),
        clean(method),
        clean(path),
        i64::from(*status),
        error_code.as_deref().map(clean),
        *stream,
        bounded_latency(*latency_ms),
        ttft_ms.map(bounded_latency),
        count(|tokens| tokens.prompt),
        count(|tokens| tokens.completion),
        count(|tokens| tokens.cached),
        count(|tokens| tokens.cache_write),
        count(|tokens| tokens.reasoning),
        count(|tokens| tokens.audio),
        *usage_estimated,
        cost_usd.map(cost_units),
        *unpriced,
        cache.as_deref().map(clean),
        cache_marks.map(i64::from),
        cache_saved_usd.map(saving_units),
        queued_ms.map(|waited| i64::try_from(waited).unwrap_or(i64::MAX)),
        limits.as_json().map(str::to_owned),
        json(attempts),
        *key_id,
        *app_id,
        *team_id,
        user.as_deref().map(clean),
        session,
        json(metadata),
        prompt.as_ref().map(|prompt| clean(&prompt.name)),
        prompt.as_ref().map(|prompt| prompt.version),
        traceparent.as_deref().map(clean),
        compat.as_deref().map(clean),
        operation.as_deref().map(clean),
        tool.as_deref().map(clean),
        stored_name(*request_stored),
        stored_name(*response_stored),
        *response_is_stream,
        preview,
        block,
        block.map(|_| i64::try_from(request.len() + response.len()).unwrap_or(i64::MAX)),
    ]
}

/// Replaces NUL characters, which PostgreSQL rejects, and truncates long texts.
pub(super) fn clean(text: &str) -> String {
    if text.len() <= MAX_TEXT_CHARS && !text.contains('\0') {
        return text.to_owned();
    }
    text.chars().take(MAX_TEXT_CHARS).map(|c| if c == '\0' { ' ' } else { c }).collect()
}

pub(super) fn level_name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    }
}

pub(super) fn stored_name(stored: BodyStorage) -> &'static str {
    match stored {
        BodyStorage::Full => "full",
        BodyStorage::Truncated => "truncated",
        BodyStorage::Off => "off",
    }
}
