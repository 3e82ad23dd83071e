//! The columns of a log row and its values in them.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, Hash};
use std::sync::{Arc, LazyLock};

use gateway_core::llm::ProviderFormat;
use gateway_core::logs::{BodyStorage, LogLevel, LogRow, Tokens};
use gateway_core::totals::{bounded_latency, bounded_tokens, cost_units, saving_units};
use rustc_hash::FxBuildHasher;
use uuid::Uuid;

use super::bulk::Bulk;
use crate::row::{Arg, json};

/// Longer values, such as model or user names, are truncated.
const MAX_TEXT_CHARS: usize = 1024;

/// The columns of a log row, in the order of `values_of`: those that every row has, then those that most rows leave empty.
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
    "attempts",
    "key_id",
    "app_id",
    "user_id",
    "session_id",
    "metadata",
    "request_stored",
    "response_stored",
    "response_is_stream",
    "preview",
    "body_block",
    "body_bytes",
    "cache",
    "cache_marks",
    "cache_saved",
    "queued_ms",
    "limits",
    "team_id",
    "prompt",
    "prompt_version",
    "traceparent",
    "compat",
    "operation",
    "tool",
];
/// How many of them every row has.
const COMMON: usize = 37;

/// Inserts rows with all columns.
pub(super) static ROWS: LazyLock<Bulk> = LazyLock::new(|| {
    insert(
        &COLUMNS,
        concat!(
            "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,",
            "?,?,?,?,?,?,?,?,?,?,?,?)"
        ),
    )
});
/// Inserts rows with the columns that every row has: an empty one costs as much as a number.
pub(super) static COMMON_ROWS: LazyLock<Bulk> = LazyLock::new(|| {
    insert(&COLUMNS[..COMMON], "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
});

fn insert(columns: &[&str], row: &'static str) -> Bulk {
    Bulk::new(&format!("INSERT INTO log_rows ({})", columns.join(", ")), row, "")
}

/// Whether all columns are empty but those that every row has.
pub(super) fn is_common(row: &LogRow) -> bool {
    row.cache.is_none()
        && row.cache_marks.is_none()
        && row.cache_saved_usd.is_none()
        && row.queued_ms.is_none()
        && row.limits.as_json().is_none()
        && row.team_id.is_none()
        && row.prompt.is_none()
        && row.traceparent.is_none()
        && row.compat.is_none()
        && row.operation.is_none()
        && row.tool.is_none()
}

/// Texts that many rows of a batch have, so that most are allocated once. Its size is fixed: a text takes the place of
/// another.
pub(super) struct SharedTexts {
    texts: [Option<Arc<str>>; PLACES],
    ids: [Option<(Uuid, Arc<str>)>; PLACES],
}

const PLACES: usize = 64;

impl Default for SharedTexts {
    fn default() -> Self {
        Self { texts: [const { None }; PLACES], ids: [const { None }; PLACES] }
    }
}

impl SharedTexts {
    fn text(&mut self, text: &str) -> Arg {
        let Some(place) = self.texts.get_mut(place_of(text)) else { return clean(text).into() };
        match place {
            Some(known) if **known == *text => Arg::Shared(Arc::clone(known)),
            _ => Arg::Shared(Arc::clone(place.insert(cleaned(text).into()))),
        }
    }

    fn optional(&mut self, text: Option<&str>) -> Arg {
        text.map_or(Arg::Text(None), |text| self.text(text))
    }

    fn id(&mut self, id: Uuid) -> Arg {
        let Some(place) = self.ids.get_mut(place_of(&id)) else { return id.to_string().into() };
        match place {
            Some((known, text)) if *known == id => Arg::Shared(Arc::clone(text)),
            _ => Arg::Shared(Arc::clone(&place.insert((id, id.to_string().into())).1)),
        }
    }

    fn optional_id(&mut self, id: Option<Uuid>) -> Arg {
        id.map_or(Arg::Text(None), |id| self.id(id))
    }
}

fn place_of(value: &(impl Hash + ?Sized)) -> usize {
    usize::try_from(FxBuildHasher.hash_one(value) % PLACES as u64).unwrap_or_default()
}

/// The values of a row: of all columns, or of those that every row has if the others are empty.
pub(super) fn values_of(
    row: &LogRow,
    session: &str,
    preview: Option<String>,
    block: Option<i64>,
    shared: &mut SharedTexts,
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
    let mut values: Vec<Arg> = vec![
        (*id).into(),
        shared.id(org_id.0),
        clean(request_id).into(),
        (*created_at).into(),
        shared.text(level_name(*level)),
        shared.text(source.as_str()),
        shared.text(provider),
        shared.optional(provider_format.map(ProviderFormat::as_str)),
        shared.optional(model.as_deref()),
        shared.text(method),
        shared.text(path),
        i64::from(*status).into(),
        shared.optional(error_code.as_deref()),
        (*stream).into(),
        bounded_latency(*latency_ms).into(),
        ttft_ms.map(bounded_latency).into(),
        count(|tokens| tokens.prompt).into(),
        count(|tokens| tokens.completion).into(),
        count(|tokens| tokens.cached).into(),
        count(|tokens| tokens.cache_write).into(),
        count(|tokens| tokens.reasoning).into(),
        count(|tokens| tokens.audio).into(),
        (*usage_estimated).into(),
        cost_usd.map(cost_units).into(),
        (*unpriced).into(),
        json(attempts),
        shared.optional_id(key_id.map(|id| id.0)),
        shared.optional_id(app_id.map(|id| id.0)),
        shared.optional(user.as_deref()),
        shared.text(session),
        if metadata.is_empty() { shared.text("{}") } else { json(metadata) },
        shared.text(stored_name(*request_stored)),
        shared.text(stored_name(*response_stored)),
        (*response_is_stream).into(),
        preview.into(),
        block.into(),
        block.map(|_| i64::try_from(request.len() + response.len()).unwrap_or(i64::MAX)).into(),
    ];
    if !is_common(row) {
        let prompt = prompt.as_ref();
        let others: [Arg; COLUMNS.len() - COMMON] = [
            shared.optional(cache.as_deref()),
            cache_marks.map(i64::from).into(),
            cache_saved_usd.map(saving_units).into(),
            queued_ms.map(|waited| i64::try_from(waited).unwrap_or(i64::MAX)).into(),
            limits.as_json().map(str::to_owned).into(),
            shared.optional_id(team_id.map(|id| id.0)),
            shared.optional(prompt.map(|prompt| prompt.name.as_str())),
            prompt.map(|prompt| prompt.version).into(),
            traceparent.as_deref().map(clean).into(),
            shared.optional(compat.as_deref()),
            shared.optional(operation.as_deref()),
            shared.optional(tool.as_deref()),
        ];
        values.extend(others);
    }
    values
}

/// Replaces NUL characters, which PostgreSQL rejects, and truncates long texts.
pub(super) fn clean(text: &str) -> String {
    cleaned(text).into_owned()
}

/// The same without a copy if the text is stored as it is.
pub(super) fn cleaned(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_TEXT_CHARS && !text.contains('\0') {
        return Cow::Borrowed(text);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(arg: Arg) -> Option<String> {
        match arg {
            Arg::Text(text) => text,
            Arg::Shared(text) => Some(text.to_string()),
            other => panic!("{other:?} is not a text"),
        }
    }

    #[test]
    fn shared_texts_are_those_of_the_row() {
        let mut shared = SharedTexts::default();
        let long = "x".repeat(2 * MAX_TEXT_CHARS);
        // More than there are places, twice, so that texts take each other's places and are found again.
        let numbers: Vec<String> = (0..3 * PLACES).map(|number| format!("conversation-{number}")).collect();
        let texts = || numbers.iter().map(String::as_str).chain(["", "a\0b", long.as_str(), "a b"]);
        for text in texts().chain(texts()) {
            for _ in 0..2 {
                assert_eq!(text_of(shared.text(text)), Some(clean(text)));
            }
        }
        for number in (0..300).chain(0..300) {
            let id = Uuid::from_u128(number << 64 | 7);
            assert_eq!(text_of(shared.id(id)), Some(id.to_string()));
        }
        assert_eq!(text_of(shared.optional(None)), None);
        assert_eq!(text_of(shared.optional_id(None)), None);
    }

    #[test]
    fn each_column_is_named_once() {
        let mut names = COLUMNS.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COLUMNS.len());
    }
}
