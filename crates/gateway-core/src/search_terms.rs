//! The words of a text, for searching log rows. Cut here and not by a database, so that a search means the same on
//! every one, and so that nothing that a caller types is ever part of a query language.
//!
//! A word is a run of letters and digits, folded to lower case; an ideograph is a word of its own.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::hash::Fast;
use crate::json::{Escape, Segment, StringToken, segments, string_tokens};
use crate::llm::preview::assistant_text;

/// How many different words of one row can be found again.
const MOST: usize = 4_000;
/// Longer words are known by their beginning.
const LONGEST: usize = 64;
/// A text this long without a space is data, not language.
const LONGEST_RUN: usize = 512;

/// The different words of a search.
pub fn query_terms(text: &str) -> Vec<String> {
    let mut found = Found::default();
    found.take(text);
    found.words.split_whitespace().map(str::to_owned).collect()
}

/// The different words of two bodies, one blank between them: of the answer first, then of the request from its end,
/// because the newest turns of a long conversation stand there.
pub fn body_terms(request: &[u8], response: &[u8], response_is_stream: bool) -> String {
    let mut found = Found::default();
    let streamed = if response_is_stream { assistant_text(response, true) } else { None };
    match streamed {
        Some(text) => found.take(&text),
        None => texts(&String::from_utf8_lossy(response)).iter().for_each(|text| found.take(text)),
    }
    texts(&String::from_utf8_lossy(request)).iter().rev().for_each(|text| found.take(text));
    found.words
}

/// Words as they are found. Every byte of every body that is logged passes here, most of them in words seen before, so a
/// word is folded and hashed where it stands, and only a new one is copied.
#[derive(Default)]
struct Found {
    words: String,
    count: usize,
    /// Hashes of the words. Two words with one hash would be taken for one, once in a million million rows.
    seen: HashSet<u64, Fast>,
}

/// What an ASCII byte is in a word: itself in lower case. Other ASCII ends a word, all else needs a closer look.
const FOLDED: [u8; 256] = {
    let mut folded = [END; 256];
    let mut byte = u8::MAX;
    while byte > 0 {
        if byte.is_ascii_alphanumeric() {
            folded[byte as usize] = byte.to_ascii_lowercase();
        } else if !byte.is_ascii() {
            folded[byte as usize] = BEYOND;
        }
        byte -= 1;
    }
    folded
};
const END: u8 = 0;
const BEYOND: u8 = 255;

impl Found {
    fn take(&mut self, text: &str) {
        if text.len() > LONGEST_RUN && !text.contains(char::is_whitespace) {
            return;
        }
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() && self.count < MOST {
            let start = at;
            let (mut word, mut length) = ([0; LONGEST], 0);
            let mut hash = hash_start();
            let ends_with = loop {
                let Some(byte) = bytes.get(at) else { break END };
                let folded = FOLDED[usize::from(*byte)];
                if folded == END || folded == BEYOND {
                    break folded;
                }
                if let Some(place) = word.get_mut(length) {
                    *place = folded;
                    hash = hash_byte(hash, folded);
                    length += 1;
                }
                at += 1;
            };
            if ends_with == BEYOND {
                let rest = &text[start..];
                let run = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
                self.take_run(&rest[..run]);
                // Where the run is empty, what stands there is no letter; it is passed over.
                at = start + run + rest[run..].chars().next().map_or(0, char::len_utf8);
            } else {
                at += 1;
                if length > 0 && self.is_new(hash) {
                    self.words.extend(word[..length].iter().map(|byte| char::from(*byte)));
                }
            }
        }
    }

    /// A run of letters and digits of any script.
    fn take_run(&mut self, run: &str) {
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

    fn keep(&mut self, word: &str) {
        if word.is_empty() || self.count >= MOST {
            return;
        }
        // Folding may bring in marks that are no letters; they would end a word in a database.
        let folded: String =
            word.chars().flat_map(char::to_lowercase).filter(|c| c.is_alphanumeric()).take(LONGEST).collect();
        if !folded.is_empty() && self.is_new(folded.bytes().fold(hash_start(), hash_byte)) {
            self.words.push_str(&folded);
        }
    }

    /// Remembers a word; a new one gets its place behind the others.
    fn is_new(&mut self, hash: u64) -> bool {
        let new = self.seen.insert(hash);
        if new {
            self.count += 1;
            if self.count > 1 {
                self.words.push(' ');
            }
        }
        new
    }
}

/// FNV-1a: a word is hashed byte by byte while it is folded.
fn hash_start() -> u64 {
    0xcbf2_9ce4_8422_2325
}

fn hash_byte(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
}

fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c), 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF)
}

/// The texts in a body: the string values of JSON, whole or cut off; anything else as it is.
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
    fn words_are_folded_and_told_once() {
        assert_eq!(query_terms("Hello, WORLD! hello x2 (naïve)"), ["hello", "world", "x2", "naïve"]);
        assert_eq!(query_terms("\"*' OR -:()"), ["or"]);
        assert_eq!(query_terms("日本 go"), ["日", "本", "go"]);
        assert!(query_terms("*** -- \"").is_empty());
    }

    #[test]
    fn values_are_words_and_names_are_not() {
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
    fn a_cut_off_body_gives_the_words_that_it_holds() {
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
    fn escapes_are_read_and_words_of_every_script_are_cut_alike() {
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
    fn data_is_no_language() {
        let image = format!(r#"{{"url":"data:image/png;base64,{}"}}"#, "aGVsbG8+".repeat(100));
        assert!(body_terms(image.as_bytes(), b"", false).is_empty());
    }

    proptest! {
        #[test]
        fn no_body_breaks_the_cutter(request: Vec<u8>, text in ".*") {
            body_terms(&request, text.as_bytes(), true);
            let words = query_terms(&text);
            prop_assert!(words.iter().all(|word| word.chars().all(char::is_alphanumeric)));
            let mut slowly: Vec<String> = Vec::new();
            for run in text.split(|c: char| !c.is_alphanumeric()).filter(|_| !text.contains(is_ideograph)) {
                let folded: String = run.to_lowercase().chars().filter(|c| c.is_alphanumeric()).take(LONGEST).collect();
                if !folded.is_empty() && !slowly.contains(&folded) {
                    slowly.push(folded);
                }
            }
            prop_assert!(text.contains(is_ideograph) || text.contains('Σ') || words == slowly, "{words:?} {slowly:?}");
        }
    }
}
