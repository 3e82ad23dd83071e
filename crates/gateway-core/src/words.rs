//! The words of a text, for searching log rows. Cut here and not by a database, so that a search means the same on
//! every one, and so that nothing that a caller types is ever part of a query language.
//!
//! A word is a run of letters and digits, folded to lower case; an ideograph is a word of its own.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::llm::preview::assistant_text;

/// How many different words of one row can be found again.
const MOST: usize = 4_000;
/// Longer words are known by their beginning.
const LONGEST: usize = 64;
/// A text this long without a space is data, not language.
const LONGEST_RUN: usize = 512;

/// The different words of a search.
pub fn of_query(text: &str) -> Vec<String> {
    let mut found = Found::default();
    found.take(text);
    found.words
}

/// The different words of two bodies: of the answer first, then of the request from its end, because the newest turns of
/// a long conversation stand there.
pub fn of_bodies(request: &[u8], response: &[u8], response_is_stream: bool) -> Vec<String> {
    let mut found = Found::default();
    let streamed = if response_is_stream { assistant_text(response, true) } else { None };
    match streamed {
        Some(text) => found.take(&text),
        None => texts(&String::from_utf8_lossy(response)).iter().for_each(|text| found.take(text)),
    }
    texts(&String::from_utf8_lossy(request)).iter().rev().for_each(|text| found.take(text));
    found.words
}

#[derive(Default)]
struct Found {
    words: Vec<String>,
    seen: HashSet<String>,
}

impl Found {
    fn take(&mut self, text: &str) {
        if text.len() > LONGEST_RUN && !text.contains(char::is_whitespace) {
            return;
        }
        for run in text.split(|c: char| !c.is_alphanumeric()) {
            let mut rest = run;
            while let Some(at) = rest.find(is_ideograph) {
                let (before, from) = rest.split_at(at);
                let (one, after) = from.split_at(from.chars().next().map_or(0, char::len_utf8));
                self.keep(before);
                self.keep(one);
                rest = after;
            }
            self.keep(rest);
        }
    }

    fn keep(&mut self, word: &str) {
        if word.is_empty() || self.words.len() >= MOST {
            return;
        }
        // Folding may bring in marks that are no letters; they would end a word in a database.
        let folded: String =
            word.chars().flat_map(char::to_lowercase).filter(|c| c.is_alphanumeric()).take(LONGEST).collect();
        if !folded.is_empty() && self.seen.insert(folded.clone()) {
            self.words.push(folded);
        }
    }
}

fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c), 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF)
}

/// The texts in a body: the string values of JSON, whole or cut off; anything else as it is.
fn texts(body: &str) -> Vec<Cow<'_, str>> {
    if !body.trim_start().starts_with(['{', '[']) {
        return vec![Cow::Borrowed(body)];
    }
    let mut texts = Vec::new();
    let mut rest = body;
    while let Some(start) = rest.find('"') {
        let inside = &rest[start + 1..];
        let (end, escaped) = string_end(inside);
        let text = &inside[..end];
        rest = inside.get(end + 1..).unwrap_or("");
        let is_name = rest.trim_start().starts_with(':');
        if !is_name {
            texts.push(if escaped { Cow::Owned(unescaped(text)) } else { Cow::Borrowed(text) });
        }
    }
    texts
}

/// Where a JSON string ends, and whether it has escapes.
fn string_end(text: &str) -> (usize, bool) {
    let bytes = text.as_bytes();
    let (mut at, mut escaped) = (0, false);
    while let Some(step) = memchr::memchr2(b'"', b'\\', &bytes[at..]) {
        at += step;
        if bytes[at] == b'"' {
            return (at, escaped);
        }
        escaped = true;
        // Both bytes are ASCII or the next is the start of a character that is passed over whole below.
        at = (at + 2).min(bytes.len());
        while !text.is_char_boundary(at) {
            at += 1;
        }
    }
    (bytes.len(), escaped)
}

fn unescaped(text: &str) -> String {
    // A string that was cut off inside an escape still has the text before it.
    let whole = |text: &str| serde_json::from_str::<String>(&format!("\"{text}\"")).ok();
    whole(text)
        .or_else(|| whole(text.rfind('\\').map_or(text, |at| &text[..at])))
        .unwrap_or_else(|| text.replace('\\', " "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_folded_and_told_once() {
        assert_eq!(of_query("Hello, WORLD! hello x2 (naïve)"), ["hello", "world", "x2", "naïve"]);
        assert_eq!(of_query("\"*' OR -:()"), ["or"]);
        assert_eq!(of_query("日本 go"), ["日", "本", "go"]);
        assert!(of_query("*** -- \"").is_empty());
    }

    #[test]
    fn values_are_words_and_names_are_not() {
        let request =
            br#"{"model":"gpt","messages":[{"role":"user","content":"first\nline \u00e9t\u00e9"}]}"#;
        let words = of_bodies(request, br#"{"text":"an answer"}"#, false);
        for word in ["gpt", "user", "first", "line", "été", "an", "answer"] {
            assert!(words.iter().any(|found| found == word), "{word} in {words:?}");
        }
        for name in ["messages", "content", "nline"] {
            assert!(!words.iter().any(|found| found == name), "{name}");
        }
    }

    #[test]
    fn a_cut_off_body_gives_the_words_that_it_holds() {
        let words = of_bodies(br#"{"content":"alpha \"beta\" gam\u00"#, b"plain text", false);
        for word in ["alpha", "beta", "gam", "plain", "text"] {
            assert!(words.iter().any(|found| found == word), "{word} in {words:?}");
        }
    }

    #[test]
    fn a_stream_gives_its_joined_text() {
        let stream = b"data: {\"choices\":[{\"delta\":{\"content\":\"won\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"derful\"}}]}\n\n";
        assert!(of_bodies(b"", stream, true).contains(&"wonderful".to_owned()));
    }

    #[test]
    fn data_is_no_language() {
        let image = format!(r#"{{"url":"data:image/png;base64,{}"}}"#, "aGVsbG8+".repeat(100));
        assert!(of_bodies(image.as_bytes(), b"", false).is_empty());
    }

    proptest! {
        #[test]
        fn no_body_breaks_the_cutter(request: Vec<u8>, text in ".*") {
            of_bodies(&request, text.as_bytes(), true);
            let words = of_query(&text);
            prop_assert!(words.iter().all(|word| word.chars().all(char::is_alphanumeric)));
        }
    }
}
