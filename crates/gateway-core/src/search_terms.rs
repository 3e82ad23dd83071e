//! Splits texts into search terms for the full-text search of log rows. This is done here instead of in the database,
//! so that a search works the same in every database and user input never becomes part of a query language.
//!
//! A term is a run of letters and digits in lower case; each ideograph is a term of its own.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};

use crate::json::{Escape, Segment, StringToken, segments, string_tokens};
use crate::llm::preview::assistant_text;
use crate::text::lossy_text;
use crate::word_runs::mix;

/// The maximum number of distinct terms of one row.
const MAX_TERMS: usize = 4_000;
/// Longer terms are truncated.
pub(crate) const MAX_TERM_CHARS: usize = 64;
/// A longer text without a space is data, not language.
const MAX_UNBROKEN_BYTES: usize = 512;

/// The distinct terms of a search query.
pub fn query_terms(text: &str) -> Vec<String> {
    let mut terms = Terms::with_texts();
    terms.add_text(text);
    terms.texts.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// The distinct terms of two bodies, separated by spaces. The response comes first, then the request from its end,
/// where the newest messages of a long conversation are.
pub fn body_terms(request: &[u8], response: &[u8], response_is_stream: bool) -> String {
    let mut terms = Terms::with_texts();
    terms.add_bodies(request, response, response_is_stream);
    terms.texts.unwrap_or_default()
}

/// The texts of two bodies that terms are made of.
pub(crate) fn body_texts(request: &[u8], response: &[u8], response_is_stream: bool) -> Vec<String> {
    let streamed = if response_is_stream { assistant_text(response, true) } else { None };
    let (request, response) = (lossy_text(request), lossy_text(response));
    let answer = match streamed {
        Some(text) => vec![Cow::Owned(text)],
        None => texts(&response),
    };
    answer.into_iter().chain(texts(&request)).map(Cow::into_owned).collect()
}

/// Makes the hashes of the terms of bodies. Used for many bodies one after the other, it allocates little.
#[derive(Default)]
pub struct TermHasher(Terms);

impl TermHasher {
    /// The hashes of the distinct terms of two bodies: those of `body_terms`.
    pub fn hashes(&mut self, request: &[u8], response: &[u8], response_is_stream: bool) -> Vec<u64> {
        self.0.seen.clear();
        self.0.add_bodies(request, response, response_is_stream);
        self.0.seen.added.clone()
    }
}

/// The hash of a term in lower case. It is stored in the search index, so it must not change.
pub fn term_hash(term: &str) -> u64 {
    let (chunks, rest) = term.as_bytes().as_chunks::<8>();
    let mut hash = HASH_START ^ term.len() as u64;
    for chunk in chunks {
        hash = add_chunk(hash, u64::from_le_bytes(*chunk));
    }
    // 0 is an empty place in the table of hashes.
    if rest.is_empty() { hash.max(1) } else { add_chunk(hash, last_chunk(rest)).max(1) }
}

const HASH_START: u64 = 0x517c_c1b7_2722_0a95;

/// A rotation and a multiplication by an odd number, as in FxHash, which treats eight bytes at once. Both are
/// invertible, so that words of up to eight bytes have different hashes.
fn add_chunk(hash: u64, chunk: u64) -> u64 {
    (hash.rotate_left(23) ^ chunk).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Fewer than eight bytes, filled up with zeros.
fn last_chunk(rest: &[u8]) -> u64 {
    rest.iter().rev().fold(0, |chunk, byte| chunk << 8 | u64::from(*byte))
}

/// Collects distinct terms. Every byte of every logged body passes through here, mostly in terms that were seen before.
/// So a term is lowercased and hashed in place, and copied only where its text is needed.
#[derive(Default)]
struct Terms {
    seen: HashSet,
    /// The texts of the terms, separated by spaces.
    texts: Option<String>,
    /// The term that is added.
    lowercase: String,
}

/// Makes eight ASCII letters lower case and leaves digits as they are.
const LOWERCASE: u64 = 0x2020_2020_2020_2020;
/// Bytes that are looked at together.
const CHUNK: usize = size_of::<u64>();
/// The highest bit of each byte, which no ASCII character has.
const HIGHEST: u64 = 0x8080_8080_8080_8080;

/// The bytes from there on, filled up with zeros at the end.
fn chunk_at(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.first_chunk().map_or_else(|| last_chunk(rest), |chunk| u64::from_le_bytes(*chunk))
}

/// How many ASCII letters and digits the chunk begins with. All bytes are compared at once and without a branch, because
/// the length of the next word cannot be predicted.
fn ascii_run(chunk: u64) -> usize {
    let ascii = chunk & !HIGHEST;
    // The highest bit of each byte: whether it is at least the given character.
    let at_least = |bytes: u64, character: u8| bytes + u64::from(0x80 - character) * 0x0101_0101_0101_0101;
    let letters = ascii | LOWERCASE;
    let is_letter = at_least(letters, b'a') & !at_least(letters, b'z' + 1);
    let is_digit = at_least(ascii, b'0') & !at_least(ascii, b'9' + 1);
    let others = !(is_letter | is_digit) | chunk;
    (others & HIGHEST).trailing_zeros() as usize / 8
}

/// The first bytes of a chunk in lower case, and zeros after them. At least one, fewer than all.
fn lowercase_start(chunk: u64, length: usize) -> u64 {
    (chunk | LOWERCASE) & (u64::MAX >> (8 * (CHUNK - length)))
}

/// The hash of a term of ASCII letters and digits that the chunk begins with, which is longer than the term.
fn short_hash(chunk: u64, length: usize) -> u64 {
    add_chunk(HASH_START ^ length as u64, lowercase_start(chunk, length))
}

impl Terms {
    fn with_texts() -> Self {
        Self { texts: Some(String::new()), ..Self::default() }
    }

    fn add_bodies(&mut self, request: &[u8], response: &[u8], response_is_stream: bool) {
        let streamed = if response_is_stream { assistant_text(response, true) } else { None };
        match streamed {
            Some(text) => self.add_text(&text),
            None => texts(&lossy_text(response)).iter().for_each(|text| self.add_text(text)),
        }
        texts(&lossy_text(request)).iter().rev().for_each(|text| self.add_text(text));
    }

    fn add_text(&mut self, text: &str) {
        if text.len() > MAX_UNBROKEN_BYTES && !text.contains(char::is_whitespace) {
            return;
        }
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() && self.seen.added.len() < MAX_TERMS {
            let start = at;
            let first = chunk_at(bytes, start);
            let mut run = ascii_run(first);
            at += run;
            while run == CHUNK {
                run = ascii_run(chunk_at(bytes, at));
                at += run;
            }
            if bytes.get(at).is_some_and(|byte| !byte.is_ascii()) {
                let rest = &text[start..];
                let run = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
                self.add_run(&rest[..run]);
                // Skips the character after the run, which is not a letter.
                at = start + run + rest[run..].chars().next().map_or(0, char::len_utf8);
            } else {
                match at - start {
                    0 => {}
                    length @ 1..CHUNK => self.add_hashed(short_hash(first, length), &text[start..at]),
                    _ => self.add_ascii(&text[start..at]),
                }
                at += 1;
            }
        }
    }

    /// Adds a term of ASCII letters and digits.
    fn add_ascii(&mut self, term: &str) {
        let term = term.get(..MAX_TERM_CHARS).unwrap_or(term);
        let (chunks, rest) = term.as_bytes().as_chunks::<8>();
        let mut hash = HASH_START ^ term.len() as u64;
        for chunk in chunks {
            hash = add_chunk(hash, u64::from_le_bytes(*chunk) | LOWERCASE);
        }
        if !rest.is_empty() {
            hash = add_chunk(hash, lowercase_start(last_chunk(rest), rest.len()));
        }
        self.add_hashed(hash, term);
    }

    /// Adds a term of ASCII letters and digits by the hash of its lower case.
    fn add_hashed(&mut self, hash: u64, term: &str) {
        if self.seen.insert(hash)
            && let Some(texts) = &mut self.texts
        {
            if !texts.is_empty() {
                texts.push(' ');
            }
            texts.extend(term.bytes().map(|byte| char::from(byte.to_ascii_lowercase())));
        }
    }

    /// Adds the terms of a run of letters and digits of any script.
    fn add_run(&mut self, run: &str) {
        let mut rest = run;
        while let Some(at) = rest.find(is_ideograph) {
            let (before, from) = rest.split_at(at);
            let (ideograph, after) = from.split_at(from.chars().next().map_or(0, char::len_utf8));
            self.add_term(before);
            self.add_lowercase(ideograph);
            rest = after;
        }
        self.add_term(rest);
    }

    fn add_term(&mut self, term: &str) {
        if term.is_empty() {
            return;
        }
        let mut lowercase = std::mem::take(&mut self.lowercase);
        lowercase.clear();
        // Lowercasing can produce combining marks, at which a database would split the term.
        let characters = term.chars().flat_map(char::to_lowercase).filter(|c| c.is_alphanumeric());
        lowercase.extend(characters.take(MAX_TERM_CHARS));
        self.add_lowercase(&lowercase);
        self.lowercase = lowercase;
    }

    fn add_lowercase(&mut self, term: &str) {
        if !term.is_empty()
            && self.seen.added.len() < MAX_TERMS
            && self.seen.insert(term_hash(term))
            && let Some(texts) = &mut self.texts
        {
            if !texts.is_empty() {
                texts.push(' ');
            }
            texts.push_str(term);
        }
    }
}

/// Hashes of terms, without duplicates. A collision would drop a term, about once in 10^12 rows. The table has linear
/// probing and is at most half full; 0 is an empty place.
struct HashSet {
    places: Vec<u64>,
    /// In the order in which they were added.
    added: Vec<u64>,
    /// Random, so that nobody can choose terms that all have the same place.
    seed: u64,
}

impl Default for HashSet {
    fn default() -> Self {
        Self { places: Vec::new(), added: Vec::new(), seed: RandomState::new().hash_one(0) }
    }
}

impl HashSet {
    const MIN_PLACES: usize = 1 << 10;

    /// Returns whether the hash is new.
    fn insert(&mut self, hash: u64) -> bool {
        if self.places.len() < 2 * (self.added.len() + 1) {
            self.grow();
        }
        let hash = hash.max(1);
        if !Self::put(&mut self.places, hash, self.seed) {
            return false;
        }
        self.added.push(hash);
        true
    }

    fn put(places: &mut [u64], hash: u64, seed: u64) -> bool {
        let mask = places.len() - 1;
        let mut at = usize::try_from(mix(hash ^ seed) >> 40).unwrap_or_default() & mask;
        loop {
            match places.get_mut(at) {
                Some(place) if *place == 0 => {
                    *place = hash;
                    return true;
                }
                Some(place) if *place == hash => return false,
                _ => at = (at + 1) & mask,
            }
        }
    }

    fn grow(&mut self) {
        let size = (2 * self.places.len()).max(Self::MIN_PLACES);
        self.places = vec![0; size];
        for hash in &self.added {
            Self::put(&mut self.places, *hash, self.seed);
        }
    }

    fn clear(&mut self) {
        self.added.clear();
        self.places.fill(0);
    }
}

pub(crate) fn is_ideograph(c: char) -> bool {
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
mod tests;
