//! Words that are next to each other in a text of a body.

use crate::search_terms::{MAX_TERM_CHARS, body_texts, is_ideograph};

/// The words of a text in order: those of `search_terms`, with repetitions.
pub(super) fn sequence(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in text.split(|c: char| !c.is_alphanumeric()).filter(|run| !run.is_empty()) {
        for part in run.split_inclusive(is_ideograph) {
            let ideograph = part.chars().next_back().filter(|c| is_ideograph(*c)).map_or(0, char::len_utf8);
            let (before, ideograph) = part.split_at(part.len() - ideograph);
            words.extend([before, ideograph].into_iter().map(normalized).filter(|word| !word.is_empty()));
        }
    }
    words
}

fn normalized(word: &str) -> String {
    word.chars().flat_map(char::to_lowercase).filter(|c| c.is_alphanumeric()).take(MAX_TERM_CHARS).collect()
}

/// Whether one text of the bodies has these words next to each other.
pub(super) fn is_in_bodies(phrase: &[String], request: &[u8], response: &[u8], is_stream: bool) -> bool {
    body_texts(request, response, is_stream)
        .iter()
        .any(|text| sequence(text).windows(phrase.len()).any(|words| words == phrase))
}
