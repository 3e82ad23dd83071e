//! The text terms of a query in a window: ids that the search index finds, and phrases that are compared in the bodies.

use std::collections::HashSet;

use gateway_core::query::{Query, TextCondition};
use sqlx::AssertSqlSafe;

use super::Scope;
use super::windows::Window;
use crate::StoreError;
use crate::db::Dialect;
use crate::logs::bulk::id_list;
use crate::logs::fulltext;
use crate::logs::read::find_many;
use crate::logs::words::{IdRange, WordSearch};
use crate::row::args;

/// Bodies that are read at once.
pub(super) const BODIES: usize = 100;
/// Reading the bodies of a row counts as this many rows.
const BODY_ROWS: usize = 20;

/// The text terms of a query.
pub(super) struct TextTerms {
    required: Vec<TextCondition>,
    excluded: Vec<TextCondition>,
}

impl TextTerms {
    pub fn of(query: &Query) -> Self {
        let of = |wanted: bool| {
            query.texts().filter(|(negated, _)| *negated == wanted).map(|(_, text)| text.clone()).collect()
        };
        Self { required: of(false), excluded: of(true) }
    }

    /// The distinct words that a row must have.
    pub fn required_words(&self) -> Vec<String> {
        let mut words: Vec<String> = self.required.iter().flat_map(TextCondition::words).cloned().collect();
        words.sort_unstable();
        words.dedup();
        words
    }
}

/// Restricts a window to the rows that have the required words and phrases and none of the excluded ones. Returns how
/// many rows that took, besides those of the window.
pub(super) async fn restrict(
    scope: Scope<'_>,
    texts: &TextTerms,
    window: &mut Window,
) -> Result<usize, StoreError> {
    let mut looked_at = 0;
    if !texts.required.is_empty() {
        let mut ids: Vec<i64> = match &window.only {
            Some(list) => list.split(',').filter_map(|id| id.parse().ok()).collect(),
            None => with_words(scope, &texts.required_words(), window).await?,
        };
        for text in texts.required.iter().filter(|text| text.phrase().is_some()) {
            looked_at += BODY_ROWS * ids.len();
            ids = with_phrase(scope, text, &ids).await?;
        }
        window.only = Some(id_list(ids));
    }
    let mut excluded: HashSet<i64> = HashSet::new();
    for text in &texts.excluded {
        let mut ids = with_words(scope, text.words(), window).await?;
        if text.phrase().is_some() {
            looked_at += BODY_ROWS * ids.len();
            ids = with_phrase(scope, text, &ids).await?;
        }
        excluded.extend(ids);
    }
    if !excluded.is_empty() {
        window.without = Some(id_list(excluded));
    }
    Ok(looked_at)
}

/// The ids in a window whose rows have all these words.
async fn with_words(scope: Scope<'_>, words: &[String], window: &Window) -> Result<Vec<i64>, StoreError> {
    let Scope { logs, org, .. } = scope;
    let range = IdRange { after: window.first.saturating_sub(1), before: window.end };
    let mut search = WordSearch::new(logs, org, words, range, false).await?;
    let mut ids = Vec::new();
    loop {
        let found = search.next(logs).await?;
        if found.is_empty() {
            break;
        }
        ids.extend(found);
    }
    if fulltext::is_used(logs).await? {
        let sql = match logs.dialect() {
            Dialect::Sqlite => {
                "SELECT rowid AS id FROM log_words WHERE log_words MATCH $1 AND rowid >= $2 AND rowid < $3"
            }
            Dialect::Postgres => {
                "SELECT id FROM log_words WHERE words @@ CAST($1 AS TSQUERY) AND id >= $2 AND id < $3"
            }
        };
        let expression = fulltext::search(logs.dialect(), org, words);
        for row in logs.all(AssertSqlSafe(sql), args![expression, window.first, window.end]).await? {
            ids.push(row.get("id")?);
        }
    }
    Ok(ids)
}

/// Those of the ids whose bodies have the words of a phrase next to each other.
async fn with_phrase(scope: Scope<'_>, text: &TextCondition, ids: &[i64]) -> Result<Vec<i64>, StoreError> {
    let mut found = Vec::new();
    for part in ids.chunks(BODIES) {
        let rows = find_many(scope.logs, scope.org, part, true).await?;
        found.extend(rows.iter().filter(|row| text.is_in_order(row)).map(|row| row.id));
    }
    Ok(found)
}
