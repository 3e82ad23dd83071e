//! What is made of the bodies of rows before they are stored: previews, words for the search index, and compressed
//! blocks.

use gateway_core::body_blocks::BodyBlock;
use gateway_core::llm::preview::last_user_text;
use gateway_core::logs::LogRow;
use gateway_core::search_terms::TermHasher;
use gateway_core::text::first_chars;
use gateway_core::word_runs::Run;

use super::bodies;

const MAX_PREVIEW_CHARS: usize = 200;

/// What is made of the bodies of the rows of a batch.
pub struct BatchTexts {
    pub(super) rows: Vec<Texts>,
    /// The search index of all rows.
    pub(super) run: Option<Run>,
    /// The bodies of all rows.
    pub(super) blocks: Vec<BodyBlock>,
}

impl BatchTexts {
    pub fn of(rows: &[LogRow]) -> Self {
        let mut hasher = TermHasher::default();
        let texts: Vec<Texts> = rows.iter().map(|row| Texts::of(row, &mut hasher)).collect();
        let indexed = rows.iter().zip(&texts).filter(|(row, _)| has_bodies(row));
        let run = Run::of(indexed.map(|(row, texts)| (row.id, row.org_id, texts.terms.as_slice())));
        Self { run, blocks: bodies::blocks(rows), rows: texts }
    }
}

/// What is derived from the bodies of a row.
#[derive(Default)]
pub(super) struct Texts {
    pub(super) preview: Option<String>,
    /// The hashes of the words.
    pub(super) terms: Vec<u64>,
}

impl Texts {
    fn of(row: &LogRow, hasher: &mut TermHasher) -> Self {
        let terms = hasher.hashes(&row.request, &row.response, row.response_is_stream);
        Self { preview: preview(&row.request), terms }
    }
}

pub(super) fn has_bodies(row: &LogRow) -> bool {
    !row.request.is_empty() || !row.response.is_empty()
}

/// The beginning of the last user message.
pub fn preview(request: &[u8]) -> Option<String> {
    let text = last_user_text(request)?;
    // PostgreSQL stores no NUL.
    Some(first_chars(&text, MAX_PREVIEW_CHARS).replace('\0', " "))
}
