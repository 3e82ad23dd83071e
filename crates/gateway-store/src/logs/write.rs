//! Writes a batch of log rows: rows, bodies, full-text index, sessions and roll-ups in one transaction. Writing is
//! idempotent by id: rows that are already stored are skipped everywhere.

use std::collections::HashSet;
use std::sync::LazyLock;

use gateway_core::llm::preview::last_user_text;
use gateway_core::logs::{BodyStorage, LogLevel, LogRow, Tokens};
use gateway_core::totals::{bounded_latency, bounded_tokens, cost_units};
use sqlx::AssertSqlSafe;

use super::bulk::{Bulk, id_list, in_ids};
use super::{batches, fulltext, otel_ids, partitions, purge, rollup, sessions};
use crate::db::Dialect;
use crate::row::{Arg, args, json};
use crate::{Db, StoreError, Tx, exports};

/// The key of the advisory lock for writers on PostgreSQL. Batches of different nodes update the same roll-ups, so they
/// run one at a time; that excludes deadlocks and rows that are counted twice.
const LOCK: i64 = 0x6761_7465_7761_7903;

const MAX_PREVIEW_CHARS: usize = 200;
/// Longer values, such as model or user names, are truncated.
const MAX_TEXT_CHARS: usize = 1024;
/// Batches up to this size are indexed at once. Larger ones occur only under load; `index_pending` indexes them later.
pub const MAX_INLINE_INDEXED: usize = 128;

/// Stores the rows that are not stored yet; returns their ids.
pub async fn write_batch(logs: &Db, rows: &[LogRow]) -> Result<Vec<i64>, StoreError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    partitions::ensure(logs, rows.iter().flat_map(otel_ids::possible_ids)).await?;
    let mut tx = logs.begin().await?;
    lock_writers(&mut tx).await?;
    let rows = otel_ids::assign_ids(&mut tx, rows).await?;
    let new = new_rows(&mut tx, &rows).await?;
    if new.is_empty() {
        return Ok(Vec::new());
    }
    let sessions = sessions::join(&mut tx, &new).await?;
    ROWS.run(&mut tx, new.iter().zip(&sessions).map(|(row, session)| values(row, session))).await?;
    let bodies: Vec<&LogRow> =
        new.iter().copied().filter(|row| !row.request.is_empty() || !row.response.is_empty()).collect();
    BODIES
        .run(&mut tx, bodies.iter().map(|row| args![row.id, row.request.clone(), row.response.clone()]))
        .await?;
    if new.len() <= MAX_INLINE_INDEXED {
        fulltext::insert(&mut tx, &bodies).await?;
    } else {
        fulltext::defer(&mut tx, bodies.iter().map(|row| row.id)).await?;
    }
    rollup::add(&mut tx, &new).await?;
    batches::add(&mut tx, &new).await?;
    exports::enqueue(&mut tx, &new).await?;
    tx.commit().await?;
    Ok(new.iter().map(|row| row.id).collect())
}

/// Waits for other writers of usage and rows, and excludes them until the transaction ends.
pub(super) async fn lock_writers(tx: &mut Tx) -> Result<(), StoreError> {
    if tx.dialect() == Dialect::Postgres {
        tx.exec("SELECT pg_advisory_xact_lock($1)", args![LOCK]).await?;
    }
    Ok(())
}

/// The rows that are not stored yet, without duplicates and rows of deleted organizations, ordered by id.
async fn new_rows<'a>(tx: &mut Tx, rows: &'a [LogRow]) -> Result<Vec<&'a LogRow>, StoreError> {
    let sql = format!("SELECT id FROM log_rows WHERE {}", in_ids(tx.dialect(), "id", 1));
    let found = tx.all(AssertSqlSafe(sql), args![id_list(rows.iter().map(|row| row.id))]).await?;
    let mut known = found.iter().map(|row| row.get("id")).collect::<Result<HashSet<i64>, _>>()?;
    let deleted = purge::deleted_orgs(tx, rows).await?;
    let is_new = |row: &&LogRow| !deleted.contains(&row.org_id) && known.insert(row.id);
    let mut new: Vec<&LogRow> = rows.iter().filter(is_new).collect();
    new.sort_unstable_by_key(|row| row.id);
    Ok(new)
}

/// The columns of a log row, in the order of `values`.
pub(super) const COLUMNS: [&str; 40] = [
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
    "request_stored",
    "response_stored",
    "response_is_stream",
    "preview",
];

static ROWS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        &format!("INSERT INTO log_rows ({})", COLUMNS.join(", ")),
        "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        "",
    )
});

static BODIES: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::new("INSERT INTO log_bodies (id, request, response)", "(?,?,?)", ""));

fn values(row: &LogRow, session: &str) -> Vec<Arg> {
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
        attempts,
        key_id,
        app_id,
        team_id,
        user,
        session_id: _,
        metadata,
        prompt,
        traceparent,
        request_stored,
        response_stored,
        request,
        response: _,
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
        stored_name(*request_stored),
        stored_name(*response_stored),
        *response_is_stream,
        preview(request),
    ]
}

/// The beginning of the last user message.
pub fn preview(request: &[u8]) -> Option<String> {
    let text = last_user_text(request)?;
    Some(text.chars().take(MAX_PREVIEW_CHARS).map(|c| if c == '\0' { ' ' } else { c }).collect())
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
