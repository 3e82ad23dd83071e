//! The meaning of a query: whether a row with its bodies matches.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{Condition, Field, FieldCondition, Query, Test, TextCondition, phrase};
use crate::logs::{LogLevel, LogRow, log_id_time};
use crate::search_terms::body_terms;
use crate::totals::{cost_units, is_error};

impl Query {
    /// Whether the row matches. Names must be resolved (`resolve`), and the row must have its bodies if the query has
    /// words.
    pub fn matches(&self, row: &LogRow) -> bool {
        let words = OnceCell::new();
        let words = || words.get_or_init(|| words_of(row));
        self.terms.iter().all(|term| {
            let holds = match &term.condition {
                Condition::Field(condition) => condition.matches(row),
                Condition::Text(condition) => {
                    condition.words.iter().all(|word| words().contains(word)) && condition.is_in_order(row)
                }
            };
            holds != term.is_negated
        })
    }
}

fn words_of(row: &LogRow) -> HashSet<String> {
    let terms = body_terms(&row.request, &row.response, row.response_is_stream);
    terms.split(' ').map(str::to_owned).collect()
}

impl TextCondition {
    /// Whether the bodies have the words in their order, if it matters. That they have the words is known.
    pub fn is_in_order(&self, row: &LogRow) -> bool {
        self.phrase().is_none_or(|words| {
            phrase::is_in_bodies(words, &row.request, &row.response, row.response_is_stream)
        })
    }
}

impl FieldCondition {
    fn matches(&self, row: &LogRow) -> bool {
        let Self { field, key, tests } = self;
        if field.kind().is_text() {
            let Some(value) = text_of(*field, key.as_deref(), row) else { return false };
            return tests.iter().any(|test| matches!(test, Test::Text(pattern) if pattern.matches(&value)));
        }
        let value = number_of(*field, row);
        tests.iter().any(|test| match test {
            Test::Text(_) => false,
            Test::Failed(failed) => is_error(row) == *failed,
            Test::Number(comparison, limit) => value.is_some_and(|value| comparison.holds(value, *limit)),
            Test::Between(from, to) => value.is_some_and(|value| (*from..=*to).contains(&value)),
        })
    }
}

fn text_of<'a>(field: Field, key: Option<&str>, row: &'a LogRow) -> Option<Cow<'a, str>> {
    let id = |id: Option<String>| id.map(Cow::Owned);
    let text = |text: Option<&'a str>| text.map(Cow::Borrowed);
    match field {
        Field::Error => text(row.error_code.as_deref()),
        Field::Level => text(Some(match row.level {
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        })),
        Field::Source => text(Some(row.source.as_str())),
        Field::Provider => text(Some(&row.provider)),
        Field::Model => text(row.model.as_deref()),
        Field::Key => id(row.key_id.map(|id| id.to_string())),
        Field::App => id(row.app_id.map(|id| id.to_string())),
        Field::Team => id(row.team_id.map(|id| id.to_string())),
        Field::User => text(row.user.as_deref()),
        Field::Session => text(row.session_id.as_deref()),
        Field::Prompt => text(row.prompt.as_ref().map(|prompt| prompt.name.as_str())),
        Field::Cache => row.cache.as_ref().map(|cache| Cow::Owned(cache.to_ascii_lowercase())),
        Field::Method => text(Some(&row.method)),
        Field::Path => text(Some(&row.path)),
        Field::Compat => text(row.compat.as_deref()),
        Field::Tool => text(row.tool.as_deref()),
        Field::Request => text(Some(&row.request_id)),
        Field::Metadata => metadata_text(&row.metadata, key?).map(Cow::Owned),
        Field::Status
        | Field::PromptVersion
        | Field::Latency
        | Field::Ttft
        | Field::Cost
        | Field::Tokens
        | Field::InputTokens
        | Field::OutputTokens
        | Field::CachedTokens
        | Field::ReasoningTokens
        | Field::Attempts
        | Field::Stream
        | Field::Id
        | Field::Time => None,
    }
}

/// Strings as they are, other values as JSON. PostgreSQL cannot read metadata with a NUL character, so it counts as
/// empty on every database.
fn metadata_text(metadata: &Map<String, Value>, key: &str) -> Option<String> {
    if serde_json::to_string(metadata).is_ok_and(|json| json.contains("\\u0000")) {
        return None;
    }
    match metadata.get(key)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        value => Some(value.to_string()),
    }
}

fn number_of(field: Field, row: &LogRow) -> Option<i64> {
    let tokens = row.tokens.as_ref();
    match field {
        Field::Status => Some(i64::from(row.status)),
        Field::PromptVersion => row.prompt.as_ref().map(|prompt| prompt.version),
        Field::Latency => Some(row.latency_ms),
        Field::Ttft => row.ttft_ms,
        Field::Cost => row.cost_usd.map(cost_units),
        Field::Tokens => tokens.map(|tokens| tokens.prompt.saturating_add(tokens.completion)),
        Field::InputTokens => tokens.map(|tokens| tokens.prompt),
        Field::OutputTokens => tokens.map(|tokens| tokens.completion),
        Field::CachedTokens => tokens.map(|tokens| tokens.cached),
        Field::ReasoningTokens => tokens.map(|tokens| tokens.reasoning),
        Field::Attempts => i64::try_from(row.attempts.len()).ok(),
        Field::Stream => Some(i64::from(row.stream)),
        Field::Id => Some(row.id),
        Field::Time => Some(log_id_time(row.id).0),
        _ => None,
    }
}
