//! Splits texts into search terms for the full-text search of log rows. This is done here instead of in the database,
//! so that a search works the same in every database and user input never becomes part of a query language.
//!
//! A term is a run of letters and digits in lower case; each ideograph is a term of its own.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::json::{Escape, Segment, StringToken, segments, string_tokens};
use crate::llm::preview::assistant_text;
use rustc_hash::FxBuildHasher;

/// The maximum number of distinct terms of one row.
const MAX_TERMS: usize = 4_000;
/// Longer terms are truncated.
const MAX_TERM_CHARS: usize = 64;
/// A longer text without a space is data, not language.
const MAX_UNBROKEN_BYTES: usize = 512;

/// The distinct terms of a search query.
pub fn query_terms(text: &str) -> Vec<String> {
    let mut terms = Terms::default();
    terms.add_text(text);
    terms.joined.split_whitespace().map(str::to_owned).collect()
}

/// The distinct terms of two bodies, separated by spaces. The response comes first, then the request from its end,
/// where the newest messages of a long conversation are.
pub fn body_terms(request: &[u8], response: &[u8], response_is_stream: bool) -> String {
    let mut terms = Terms::default();
    let streamed = if response_is_stream { assistant_text(response, true) } else { None };
    match streamed {
        Some(text) => terms.add_text(&text),
        None => texts(&String::from_utf8_lossy(response)).iter().for_each(|text| terms.add_text(text)),
    }
    texts(&String::from_utf8_lossy(request)).iter().rev().for_each(|text| terms.add_text(text));
    terms.joined
}

/// Collects distinct terms. Every byte of every logged body passes through here, mostly in terms that were seen before.
/// So a term is lowercased and hashed in place, and only a new one is copied.
#[derive(Default)]
struct Terms {
    joined: String,
    count: usize,
    /// Hashes of the terms. A collision would drop a term, about once in 10^12 rows.
    seen: HashSet<u64, FxBuildHasher>,
}

/// Maps an ASCII letter or digit to lower case, other ASCII to `SEPARATOR`, and everything else to `NON_ASCII`.
const LOWERCASE: [u8; 256] = {
    let mut lowercase = [SEPARATOR; 256];
    let mut byte = u8::MAX;
    while byte > 0 {
        if byte.is_ascii_alphanumeric() {
            lowercase[byte as usize] = byte.to_ascii_lowercase();
        } else if !byte.is_ascii() {
            lowercase[byte as usize] = NON_ASCII;
        }
        byte -= 1;
    }
    lowercase
};
const SEPARATOR: u8 = 0;
const NON_ASCII: u8 = 255;

impl Terms {
    fn add_text(&mut self, text: &str) {
        if text.len() > MAX_UNBROKEN_BYTES && !text.contains(char::is_whitespace) {
            return;
        }
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() && self.count < MAX_TERMS {
            let start = at;
            let (mut term, mut length) = ([0; MAX_TERM_CHARS], 0);
            let mut hash = hash_start();
            let ends_with = loop {
                let Some(byte) = bytes.get(at) else { break SEPARATOR };
                let lowercase = LOWERCASE[usize::from(*byte)];
                if lowercase == SEPARATOR || lowercase == NON_ASCII {
                    break lowercase;
                }
                if let Some(slot) = term.get_mut(length) {
                    *slot = lowercase;
                    hash = hash_byte(hash, lowercase);
                    length += 1;
                }
                at += 1;
            };
            if ends_with == NON_ASCII {
                let rest = &text[start..];
                let run = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
                self.add_run(&rest[..run]);
                // Skips the character after the run, which is not a letter.
                at = start + run + rest[run..].chars().next().map_or(0, char::len_utf8);
            } else {
                at += 1;
                if length > 0 && self.insert(hash) {
                    self.joined.extend(term[..length].iter().map(|byte| char::from(*byte)));
                }
            }
        }
    }

    /// Adds the terms of a run of letters and digits of any script.
    fn add_run(&mut self, run: &str) {
        let mut rest = run;
        while let Some(at) = rest.find(is_ideograph) {
            let (before, from) = rest.split_at(at);
            let (ideograph, after) = from.split_at(from.chars().next().map_or(0, char::len_utf8));
            self.add_term(before);
            self.add_term(ideograph);
            rest = after;
        }
        self.add_term(rest);
    }

    fn add_term(&mut self, term: &str) {
        if term.is_empty() || self.count >= MAX_TERMS {
            return;
        }
        // Lowercasing can produce combining marks, at which a database would split the term.
        let lowercase: String = term
            .chars()
            .flat_map(char::to_lowercase)
            .filter(|c| c.is_alphanumeric())
            .take(MAX_TERM_CHARS)
            .collect();
        if !lowercase.is_empty() && self.insert(lowercase.bytes().fold(hash_start(), hash_byte)) {
            self.joined.push_str(&lowercase);
        }
    }

    /// Records the hash of a term and returns whether it is new. A separator is added before a new term.
    fn insert(&mut self, hash: u64) -> bool {
        let new = self.seen.insert(hash);
        if new {
            self.count += 1;
            if self.count > 1 {
                self.joined.push(' ');
            }
        }
        new
    }
}

/// FNV-1a, which can hash a term byte by byte while it is lowercased.
fn hash_start() -> u64 {
    0xcbf2_9ce4_8422_2325
}

fn hash_byte(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
}

fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c), 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF)
}

/// The texts of a body: the string values of complete or truncated JSON, or the whole body if it is not JSON.
fn texts(body: &str) -> Vec<Cow<'_, str>> {
    if !body.trim_start().starts_with(['{', '[']) {
        return vec![Cow::Borrowed(body)];
    }
    let value = |token: StringToken| {
        let text = body.get(token.range)?;
        Some(if token.has_escapes { Cow::Owned(unescaped(text)) } else { Cow::Borrowed(text) })
    };
    string_tokens(body.as_bytes()).filter(|token| !token.is_key).filter_map(value).collect()
}

/// Replaces the escapes of a raw JSON string. Only `\u` escapes can be part of a word; the others become blanks.
fn unescaped(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut units: Vec<u16> = Vec::new();
    for Segment { range, escape } in segments(raw.as_bytes()) {
        if let Some(Escape::Unit(unit)) = escape {
            units.push(unit);
            continue;
        }
        text.extend(char::decode_utf16(units.drain(..)).map(|c| c.unwrap_or(' ')));
        match escape {
            None => text.push_str(&raw[range]),
            Some(_) => text.push(' '),
        }
    }
    text.extend(char::decode_utf16(units).map(|c| c.unwrap_or(' ')));
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terms_are_lowercase_and_distinct() {
        assert_eq!(query_terms("Hello, WORLD! hello x2 (naïve)"), ["hello", "world", "x2", "naïve"]);
        assert_eq!(query_terms("\"*' OR -:()"), ["or"]);
        assert_eq!(query_terms("日本 go"), ["日", "本", "go"]);
        assert!(query_terms("*** -- \"").is_empty());
    }

    #[test]
    fn values_become_terms_and_keys_do_not() {
        let request =
            br#"{"model":"gpt","messages":[{"role":"user","content":"first\nline \u00e9t\u00e9"}]}"#;
        let words = body_terms(request, br#"{"text":"an answer"}"#, false);
        for word in ["gpt", "user", "first", "line", "été", "an", "answer"] {
            assert!(words.split(' ').any(|found| found == word), "{word} in {words:?}");
        }
        for name in ["messages", "content", "nline"] {
            assert!(!words.split(' ').any(|found| found == name), "{name}");
        }
    }

    #[test]
    fn a_truncated_body_gives_the_terms_that_it_contains() {
        let words = body_terms(br#"{"content":"alpha \"beta\" gam\u00"#, b"plain text", false);
        for word in ["alpha", "beta", "gam", "plain", "text"] {
            assert!(words.split(' ').any(|found| found == word), "{word} in {words:?}");
        }
    }

    #[test]
    fn a_stream_gives_its_joined_text() {
        let stream = b"data: {\"choices\":[{\"delta\":{\"content\":\"won\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"derful\"}}]}\n\n";
        assert_eq!(body_terms(b"", stream, true), "wonderful");
    }

    #[test]
    fn escapes_are_decoded_and_every_script_is_split_the_same_way() {
        let body =
            r#"{"a":"caf\u00e9\tGR\u00d6SSE \ud83d\ude00smile\/x \ud800y “Übung”über 日本go","b":"cut\u00"}"#;
        assert_eq!(
            body_terms(body.as_bytes(), b"", false),
            "cut café größe smile x y übung über 日 本 go".replace("größe", "grösse")
        );
        let long = "a".repeat(100);
        assert_eq!(query_terms(&format!("{long} é{long}")), ["a".repeat(64), format!("é{}", "a".repeat(63))]);
    }

    #[test]
    fn encoded_data_gives_no_terms() {
        let image = format!(r#"{{"url":"data:image/png;base64,{}"}}"#, "aGVsbG8+".repeat(100));
        assert!(body_terms(image.as_bytes(), b"", false).is_empty());
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(request: Vec<u8>, text in ".*") {
            body_terms(&request, text.as_bytes(), true);
            let words = query_terms(&text);
            prop_assert!(words.iter().all(|word| word.chars().all(char::is_alphanumeric)));
            let mut slowly: Vec<String> = Vec::new();
            for run in text.split(|c: char| !c.is_alphanumeric()).filter(|_| !text.contains(is_ideograph)) {
                let folded: String = run.to_lowercase().chars().filter(|c| c.is_alphanumeric()).take(MAX_TERM_CHARS).collect();
                if !folded.is_empty() && !slowly.contains(&folded) {
                    slowly.push(folded);
                }
            }
            prop_assert!(text.contains(is_ideograph) || text.contains('Σ') || words == slowly, "{words:?} {slowly:?}");
        }
    }
}
