//! A scanner of one JSON object that finds a few top-level keys. It takes the body in chunks of any size, so it costs
//! one pass over the bytes, and it keeps only the requested values in memory.
//!
//! It is also a guard: a check on `model` must see the value that the upstream will use. A key that appears twice is
//! therefore rejected, also when it is spelled with escapes (`"mod\u0065l"`) or in another letter case (`"Model"`,
//! which some JSON libraries read as `model`). Bytes that JSON does not have outside of strings make the object
//! malformed.

use std::borrow::Cow;
use std::ops::Range;

use super::nested::{NestedScanner, NestedState};
use super::{StringScanner, is_space, unescape};

/// A longer value is reported as overlong instead of being kept.
pub const VALUE_LIMIT: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanStatus {
    /// The object is not closed yet.
    Open,
    /// The object is closed. Only white space may follow.
    Complete,
    /// The first byte that is not white space is not `{`.
    NotObject,
    Malformed,
    /// A requested key appeared twice.
    Duplicate(&'static str),
}

/// The complete value of a requested key.
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
    Key(StringScanner),
    Colon,
    Value,
    Text(StringScanner),
    Scalar,
    Nested,
    AfterValue,
    Ended,
}

#[derive(Debug, Default)]
struct Slot {
    /// The key appeared, in any letter case.
    seen: bool,
    /// The offsets of the value. `end` is None while the value is incomplete.
    start: Option<usize>,
    end: Option<usize>,
    overlong: bool,
    kept: Vec<u8>,
}

/// Scans one object for `N` keys, which must be ASCII.
#[derive(Debug)]
pub struct ObjectScanner<const N: usize> {
    keys: &'static [&'static str; N],
    slots: [Slot; N],
    /// Values are copied, for callers that do not have the body in one piece.
    keeps_values: bool,
    status: ScanStatus,
    state: State,
    nested: NestedScanner,
    /// The number of bytes in earlier chunks.
    base: usize,
    key: Vec<u8>,
    /// The slot whose value is being scanned.
    current: Option<usize>,
    has_members: bool,
    opening: Option<usize>,
    closing: Option<usize>,
}

impl<const N: usize> ObjectScanner<N> {
    /// A scanner for a body in chunks. It keeps copies of the values.
    pub fn new(keys: &'static [&'static str; N]) -> Self {
        Self::with(keys, true)
    }

    fn with(keys: &'static [&'static str; N], keeps_values: bool) -> Self {
        Self {
            keys,
            slots: std::array::from_fn(|_| Slot::default()),
            keeps_values,
            status: ScanStatus::Open,
            state: State::Start,
            nested: NestedScanner::default(),
            base: 0,
            key: Vec::new(),
            current: None,
            has_members: false,
            opening: None,
            closing: None,
        }
    }

    pub fn status(&self) -> ScanStatus {
        self.status
    }

    /// The offset of the object's `{` in the body.
    pub fn opening(&self) -> Option<usize> {
        self.opening
    }

    /// The offset of the object's `}` in the body.
    pub fn closing(&self) -> Option<usize> {
        self.closing
    }

    /// Whether the object has any member yet. A field that is spliced in needs a comma then.
    pub fn has_members(&self) -> bool {
        self.has_members
    }

    /// The range of a key's complete value in the body.
    pub fn range(&self, key: &str) -> Option<Range<usize>> {
        let slot = self.slot(key)?;
        Some(slot.start?..slot.end?)
    }

    /// The complete value of a key.
    pub fn get(&self, key: &str) -> Option<ScannedValue<'_>> {
        let slot = self.slot(key)?;
        slot.end?;
        Some(if slot.overlong { ScannedValue::Overlong } else { ScannedValue::Raw(&slot.kept) })
    }

    fn slot(&self, key: &str) -> Option<&Slot> {
        let at = self.keys.iter().position(|name| *name == key)?;
        self.slots.get(at)
    }

    /// Scans the next chunk of the body.
    pub fn feed(&mut self, chunk: &[u8]) -> ScanStatus {
        let mut at = 0;
        // The start of an incomplete key or value in this chunk.
        let mut from = 0;
        while at < chunk.len() && matches!(self.status, ScanStatus::Open | ScanStatus::Complete) {
            let rest = &chunk[at..];
            match self.state {
                State::Key(mut text) => {
                    if let Some(length) = text.feed(rest) {
                        at += length;
                        self.state = State::Colon;
                        self.end_key(&chunk[from..at - 1], text.has_escapes());
                    } else {
                        at = chunk.len();
                        self.state = State::Key(text);
                    }
                }
                State::Text(mut text) => {
                    if let Some(length) = text.feed(rest) {
                        at += length;
                        self.end_value(&chunk[from..at], at);
                    } else {
                        at = chunk.len();
                        self.state = State::Text(text);
                    }
                }
                State::Scalar => match rest.iter().position(|byte| !is_scalar(*byte)) {
                    Some(length) => {
                        at += length;
                        self.end_value(&chunk[from..at], at);
                    }
                    None => at = chunk.len(),
                },
                State::Nested => match self.nested.feed(rest) {
                    NestedState::Closed(length) => {
                        at += length;
                        self.end_value(&chunk[from..at], at);
                    }
                    NestedState::Open => at = chunk.len(),
                    NestedState::Malformed => self.status = ScanStatus::Malformed,
                },
                State::Value if !is_space(chunk[at]) => {
                    from = at;
                    self.start_value(chunk[at], at);
                    // A bracket and the first byte of a scalar are scanned with the rest of the value.
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

    /// Scans a byte between keys and values.
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
                self.state = State::Key(StringScanner::default());
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

    fn start_value(&mut self, byte: u8, at: usize) {
        self.has_members = true;
        if let Some(slot) = self.current.and_then(|slot| self.slots.get_mut(slot)) {
            slot.start = Some(self.base + at);
        }
        match byte {
            b'"' => self.state = State::Text(StringScanner::default()),
            b'{' | b'[' => {
                self.nested = NestedScanner::default();
                self.state = State::Nested;
            }
            _ if is_scalar(byte) => self.state = State::Scalar,
            _ => self.status = ScanStatus::Malformed,
        }
    }

    fn end_key(&mut self, last: &[u8], has_escapes: bool) {
        let raw = if self.key.is_empty() {
            last
        } else {
            append(&mut self.key, last, key_limit(self.keys));
            &self.key
        };
        let key = if has_escapes && raw.len() <= key_limit(self.keys) {
            // A key with a broken escape is empty, which no requested key is.
            Cow::Owned(unescape(raw).unwrap_or_default().into_bytes())
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

    fn end_value(&mut self, last: &[u8], at: usize) {
        self.state = State::AfterValue;
        let Some(slot) = self.current.take().and_then(|slot| self.slots.get_mut(slot)) else { return };
        if self.keeps_values {
            slot.keep(last);
        }
        slot.end = Some(self.base + at);
    }

    /// Keeps the part of an incomplete key or value that this chunk contains.
    fn keep_rest(&mut self, chunk: &[u8], from: usize) {
        match self.state {
            State::Key(_) => append(&mut self.key, &chunk[from..], key_limit(self.keys)),
            State::Text(_) | State::Scalar | State::Nested if self.keeps_values => {
                if let Some(slot) = self.current.and_then(|slot| self.slots.get_mut(slot)) {
                    slot.keep(&chunk[from..]);
                }
            }
            _ => {}
        }
    }
}

/// A scan of a body in one piece. Nothing is copied: values are slices of the body.
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

/// The longest spelling of any key: an escaped ASCII letter takes six bytes.
fn key_limit(keys: &[&str]) -> usize {
    keys.iter().map(|name| name.len()).max().unwrap_or(0) * 6
}

/// Keeps one byte more than the limit, so that a longer key does not equal its own prefix.
fn append(key: &mut Vec<u8>, more: &[u8], limit: usize) {
    let room = (limit + 1).saturating_sub(key.len());
    key.extend_from_slice(&more[..more.len().min(room)]);
}

fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

#[cfg(test)]
mod tests;
