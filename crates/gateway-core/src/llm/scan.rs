//! A scanner of one JSON object that finds a few top-level keys without building a tree. It takes the body in
//! pieces of any size, jumps over strings with memchr, and only counts nesting, so its cost is that of
//! reading the bytes once and its memory that of the values asked for.
//!
//! It is also a guard: whoever decides on `model` must see the value that the upstream will see. So a key that
//! comes twice is refused, also when one of them is spelt with escapes (`"mod\u0065l"`) or in other letter
//! case (`"Model"`, which some JSON libraries take for `model`), and bytes that no JSON has outside of
//! strings make the whole object malformed.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;

/// A value longer than this is reported as overlong instead of being kept.
pub const VALUE_LIMIT: usize = 64 * 1024;

/// What is known of the object so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanStatus {
    /// More bytes are needed.
    Open,
    /// The object is closed; only white space may follow.
    Complete,
    /// The first byte that is not white space is no `{`.
    NotObject,
    Malformed,
    /// A named key came twice.
    Duplicate(&'static str),
}

/// A finished value of a named key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScannedValue<'a> {
    Raw(&'a [u8]),
    Overlong,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    FirstKey,
    NextKey,
    Key { escaped: bool },
    Colon,
    Value,
    Text { escaped: bool },
    Scalar,
    Nested,
    NestedText { escaped: bool },
    AfterValue,
    Ended,
}

#[derive(Debug, Default)]
struct Slot {
    /// The key was seen, in whatever letter case.
    seen: bool,
    /// Offsets of the value, while it is open (`end` is None) and after.
    start: Option<usize>,
    end: Option<usize>,
    overlong: bool,
    kept: Vec<u8>,
}

/// Scans one object for `N` keys, which have to be plain ASCII.
#[derive(Debug)]
pub struct ObjectScanner<const N: usize> {
    keys: &'static [&'static str; N],
    slots: [Slot; N],
    /// Whether values are copied, for callers who do not hold the whole body.
    keeps: bool,
    status: ScanStatus,
    state: State,
    /// Bytes in the chunks before this one.
    base: usize,
    key: Vec<u8>,
    key_has_escapes: bool,
    /// The slot whose value is being read.
    current: Option<usize>,
    depth: usize,
    /// One bit for each of the outer 128 levels: set for an object, clear for an array.
    kinds: u128,
    members: bool,
    opening: Option<usize>,
    closing: Option<usize>,
}

impl<const N: usize> ObjectScanner<N> {
    /// A scanner to be fed in pieces: it keeps copies of the values.
    pub fn new(keys: &'static [&'static str; N]) -> Self {
        Self::with(keys, true)
    }

    fn with(keys: &'static [&'static str; N], keeps: bool) -> Self {
        Self {
            keys,
            slots: std::array::from_fn(|_| Slot::default()),
            keeps,
            status: ScanStatus::Open,
            state: State::Start,
            base: 0,
            key: Vec::new(),
            key_has_escapes: false,
            current: None,
            depth: 0,
            kinds: 0,
            members: false,
            opening: None,
            closing: None,
        }
    }

    pub fn status(&self) -> ScanStatus {
        self.status
    }

    /// Where the object's `{` is, in bytes from the start of the body.
    pub fn opening(&self) -> Option<usize> {
        self.opening
    }

    /// Where the object's `}` is.
    pub fn closing(&self) -> Option<usize> {
        self.closing
    }

    /// Whether the object has any member yet: decides on the comma when a field is spliced in.
    pub fn has_members(&self) -> bool {
        self.members
    }

    /// Where the finished value of a key lies in the body.
    pub fn range(&self, key: &str) -> Option<Range<usize>> {
        let slot = self.slot(key)?;
        Some(slot.start?..slot.end?)
    }

    /// The finished value of a key.
    pub fn get(&self, key: &str) -> Option<ScannedValue<'_>> {
        let slot = self.slot(key)?;
        slot.end?;
        Some(if slot.overlong { ScannedValue::Overlong } else { ScannedValue::Raw(&slot.kept) })
    }

    fn slot(&self, key: &str) -> Option<&Slot> {
        let at = self.keys.iter().position(|name| *name == key)?;
        self.slots.get(at)
    }

    /// Takes the next piece of the body.
    pub fn feed(&mut self, chunk: &[u8]) -> ScanStatus {
        let mut at = 0;
        // Where in this chunk the bytes of an unfinished key or value begin.
        let mut from = 0;
        while at < chunk.len() && matches!(self.status, ScanStatus::Open | ScanStatus::Complete) {
            match self.state {
                State::Key { mut escaped } => {
                    let (next, closed) = end_of_text(chunk, at, &mut escaped, &mut self.key_has_escapes);
                    self.state = if closed { State::Colon } else { State::Key { escaped } };
                    at = next;
                    if closed {
                        self.key_ended(&chunk[from..next - 1]);
                    }
                }
                State::Text { mut escaped } => {
                    let (next, closed) = end_of_text(chunk, at, &mut escaped, &mut false);
                    self.state = State::Text { escaped };
                    at = next;
                    if closed {
                        self.value_ended(&chunk[from..at], at);
                    }
                }
                State::Scalar => {
                    while at < chunk.len() && is_scalar(chunk[at]) {
                        at += 1;
                    }
                    if at < chunk.len() {
                        self.value_ended(&chunk[from..at], at);
                    }
                }
                State::Nested | State::NestedText { .. } => {
                    at = self.skip_nested(chunk, at);
                    if self.depth == 0 && self.state == State::Nested && self.status == ScanStatus::Open {
                        self.value_ended(&chunk[from..at], at);
                    }
                }
                State::Value if !is_space(chunk[at]) => {
                    from = at;
                    self.value_begins(chunk[at], at);
                    // The brackets of a nested value and the first byte of a scalar are read where they are.
                    at += usize::from(chunk[at] == b'"');
                }
                _ => {
                    self.step(chunk[at], at);
                    at += 1;
                    from = at;
                }
            }
        }
        self.keep_rest(chunk, from);
        self.base += chunk.len();
        self.status
    }

    /// Takes a byte between keys and values.
    fn step(&mut self, byte: u8, at: usize) {
        match (self.state, byte) {
            _ if is_space(byte) => {}
            (State::Start, b'{') => {
                self.opening = Some(self.base + at);
                self.state = State::FirstKey;
            }
            (State::Start, _) => self.status = ScanStatus::NotObject,
            (State::FirstKey | State::NextKey, b'"') => {
                self.key.clear();
                self.key_has_escapes = false;
                self.state = State::Key { escaped: false };
            }
            (State::Colon, b':') => self.state = State::Value,
            (State::AfterValue, b',') => self.state = State::NextKey,
            (State::FirstKey | State::AfterValue, b'}') => {
                self.closing = Some(self.base + at);
                self.state = State::Ended;
                self.status = ScanStatus::Complete;
            }
            _ => self.status = ScanStatus::Malformed,
        }
    }

    fn value_begins(&mut self, byte: u8, at: usize) {
        self.members = true;
        if let Some(slot) = self.current.and_then(|slot| self.slots.get_mut(slot)) {
            slot.start = Some(self.base + at);
        }
        match byte {
            b'"' => self.state = State::Text { escaped: false },
            b'{' | b'[' => self.state = State::Nested,
            _ if is_scalar(byte) => self.state = State::Scalar,
            _ => self.status = ScanStatus::Malformed,
        }
    }

    /// Goes on inside a nested value, up to its end or the chunk's.
    fn skip_nested(&mut self, chunk: &[u8], mut at: usize) -> usize {
        if let State::NestedText { mut escaped } = self.state {
            let (next, closed) = end_of_text(chunk, at, &mut escaped, &mut false);
            self.state = if closed { State::Nested } else { State::NestedText { escaped } };
            at = next;
        }
        while at < chunk.len() {
            // Numbers, commas and white space come in runs, which a table reads fastest.
            if PLAIN[usize::from(chunk[at])] {
                at += 1;
                continue;
            }
            match chunk[at] {
                b'"' => {
                    let mut escaped = false;
                    let (next, closed) = end_of_text(chunk, at + 1, &mut escaped, &mut false);
                    at = next;
                    if !closed {
                        self.state = State::NestedText { escaped };
                        return at;
                    }
                }
                byte @ (b'{' | b'[') => {
                    self.depth += 1;
                    if self.depth <= 128 {
                        self.kinds = self.kinds << 1 | u128::from(byte == b'{');
                    }
                    at += 1;
                }
                byte @ (b'}' | b']') => {
                    if self.depth <= 128 {
                        if (self.kinds & 1 == 1) != (byte == b'}') {
                            self.status = ScanStatus::Malformed;
                            return at;
                        }
                        self.kinds >>= 1;
                    }
                    self.depth -= 1;
                    at += 1;
                    if self.depth == 0 {
                        return at;
                    }
                }
                _ => {
                    self.status = ScanStatus::Malformed;
                    return at;
                }
            }
        }
        at
    }

    fn key_ended(&mut self, last: &[u8]) {
        let raw = if self.key.is_empty() {
            last
        } else {
            append(&mut self.key, last, key_limit(self.keys));
            &self.key
        };
        let key = if self.key_has_escapes && raw.len() <= key_limit(self.keys) {
            Cow::Owned(unescape(raw))
        } else {
            Cow::Borrowed(raw)
        };
        self.current = None;
        for (index, (name, slot)) in self.keys.iter().zip(&mut self.slots).enumerate() {
            if !name.as_bytes().eq_ignore_ascii_case(&key) {
                continue;
            }
            if slot.seen {
                self.status = ScanStatus::Duplicate(name);
                return;
            }
            slot.seen = true;
            if name.as_bytes() == &*key {
                self.current = Some(index);
            }
        }
    }

    fn value_ended(&mut self, last: &[u8], at: usize) {
        self.state = State::AfterValue;
        let Some(slot) = self.current.take().and_then(|slot| self.slots.get_mut(slot)) else { return };
        if self.keeps {
            slot.keep(last);
        }
        slot.end = Some(self.base + at);
    }

    /// Saves the part of an unfinished key or value that this chunk held.
    fn keep_rest(&mut self, chunk: &[u8], from: usize) {
        match self.state {
            State::Key { .. } => append(&mut self.key, &chunk[from..], key_limit(self.keys)),
            State::Text { .. } | State::Scalar | State::Nested | State::NestedText { .. } if self.keeps => {
                if let Some(slot) = self.current.and_then(|slot| self.slots.get_mut(slot)) {
                    slot.keep(&chunk[from..]);
                }
            }
            _ => {}
        }
    }
}

/// A scan of a body that is in one piece: nothing is copied, values are found in the body itself.
#[derive(Debug)]
pub struct ObjectScan<'a, const N: usize> {
    scanner: ObjectScanner<N>,
    body: &'a [u8],
}

impl<'a, const N: usize> ObjectScan<'a, N> {
    pub fn new(keys: &'static [&'static str; N], body: &'a [u8]) -> Self {
        let mut scanner = ObjectScanner::with(keys, false);
        scanner.feed(body);
        Self { scanner, body }
    }

    pub fn get(&self, key: &str) -> Option<ScannedValue<'a>> {
        let range = self.scanner.range(key)?;
        if range.len() > VALUE_LIMIT {
            return Some(ScannedValue::Overlong);
        }
        self.body.get(range).map(ScannedValue::Raw)
    }

    pub fn status(&self) -> ScanStatus {
        self.scanner.status()
    }

    pub fn closing(&self) -> Option<usize> {
        self.scanner.closing()
    }

    pub fn has_members(&self) -> bool {
        self.scanner.has_members()
    }

    pub fn range(&self, key: &str) -> Option<Range<usize>> {
        self.scanner.range(key)
    }
}

impl Slot {
    fn keep(&mut self, more: &[u8]) {
        if self.overlong || self.kept.len() + more.len() > VALUE_LIMIT {
            self.overlong = true;
            self.kept = Vec::new();
        } else {
            self.kept.extend_from_slice(more);
        }
    }
}

/// No spelling of a key is longer than this: an ASCII letter takes six bytes at most. One byte more is kept,
/// so that a longer key cannot pass for its own beginning.
fn key_limit(keys: &[&str]) -> usize {
    keys.iter().map(|name| name.len()).max().unwrap_or(0) * 6
}

fn append(key: &mut Vec<u8>, more: &[u8], limit: usize) {
    let room = (limit + 1).saturating_sub(key.len());
    key.extend_from_slice(&more[..more.len().min(room)]);
}

/// Finds the quote that ends a string: the offset behind it and true, or the chunk's end and false.
#[inline]
fn end_of_text(chunk: &[u8], mut at: usize, escaped: &mut bool, any_escape: &mut bool) -> (usize, bool) {
    loop {
        if *escaped {
            if at >= chunk.len() {
                return (at, false);
            }
            *escaped = false;
            at += 1;
        }
        match memchr2(b'"', b'\\', &chunk[at..]) {
            None => return (chunk.len(), false),
            Some(found) => {
                at += found + 1;
                if chunk[at - 1] == b'"' {
                    return (at, true);
                }
                *escaped = true;
                *any_escape = true;
            }
        }
    }
}

/// The text behind a string's escapes, or nothing (which no key equals) when they are broken.
fn unescape(raw: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(raw.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(raw);
    quoted.push(b'"');
    serde_json::from_slice::<String>(&quoted).map(String::into_bytes).unwrap_or_default()
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

/// What may stand between the strings and brackets of a nested value. Anything else, such as a comment, is
/// something that other parsers might read differently.
static PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "the loop ends at 256")]
        let value = byte as u8;
        table[byte] = value.is_ascii_alphanumeric()
            || matches!(value, b'-' | b'+' | b'.' | b',' | b':' | b' ' | b'\t' | b'\n' | b'\r');
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests;
