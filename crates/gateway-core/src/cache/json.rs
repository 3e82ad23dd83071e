//! Canonical JSON: texts with the same meaning become the same bytes. Keys are sorted, and whitespace and unneeded
//! escapes are removed. Numbers are normalized as decimals, so `1.0` equals `1` but big integers stay distinct, unlike
//! in a float.
//!
//! A first pass writes all values one after the other and notes where the members of each object are; a second pass
//! copies them in the order of the keys. So every value is copied twice, however deeply it is nested.

use std::borrow::Cow;
use std::ops::Range;

use crate::json::{Number, skip_space, string_end, unescape};

/// Limits recursion, and thereby the stack. Real requests are never nested this deeply.
const MAX_DEPTH: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// Parsers disagree about which of the values counts, so the text has no canonical form.
    #[error("the body has a duplicate key")]
    DuplicateKey,
    #[error("the body is nested too deeply")]
    TooDeep,
    #[error("the body is not JSON")]
    NotJson,
}

/// The canonical form of a JSON text, without the top-level keys in `without`.
pub fn canonical_json(text: &[u8], without: &[&str]) -> Result<Vec<u8>, CanonicalError> {
    let text = std::str::from_utf8(text).map_err(|_| CanonicalError::NotJson)?;
    let mut reader = Reader {
        text,
        at: 0,
        values: Vec::with_capacity(text.len()),
        objects: Vec::new(),
        members: Vec::new(),
        open: Vec::new(),
    };
    reader.value(0)?;
    reader.space();
    if reader.at != text.len() {
        return Err(CanonicalError::NotJson);
    }
    let is_object = reader.objects.first().is_some_and(|object| object.is_root);
    let Reader { values, objects, members, .. } = reader;
    // Without objects the values are in order already.
    if objects.is_empty() {
        return Ok(values);
    }
    let mut writer =
        Writer { values: &values, objects: &objects, members: &members, out: Vec::with_capacity(text.len()) };
    let all = Part { values: 0..values.len(), objects: 0..objects.len() };
    writer.part(&all, if is_object { without } else { &[] });
    Ok(writer.out)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// The values in the order of the text. Of an object it has only the values of the members.
    values: Vec<u8>,
    /// In the order in which they start.
    objects: Vec<Object>,
    /// The members of closed objects, those of one object together and in order.
    members: Vec<Member<'a>>,
    /// The members of objects that are not closed yet.
    open: Vec<Member<'a>>,
}

/// A part of the values, with the objects that start in it.
struct Part {
    values: Range<usize>,
    objects: Range<usize>,
}

struct Object {
    values: Range<usize>,
    members: Range<usize>,
    /// The next object that is not inside of this one.
    next: usize,
    is_root: bool,
}

struct Member<'a> {
    key: Cow<'a, str>,
    value: Part,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        self.at = skip_space(self.text.as_bytes(), self.at);
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<(), CanonicalError> {
        self.space();
        if self.take(byte) { Ok(()) } else { Err(CanonicalError::NotJson) }
    }

    fn value(&mut self, depth: usize) -> Result<(), CanonicalError> {
        if depth > MAX_DEPTH {
            return Err(CanonicalError::TooDeep);
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => {
                match self.string()? {
                    // A string without escapes needs none in the output.
                    Cow::Borrowed(text) => quote_plain(&mut self.values, text),
                    Cow::Owned(text) => quote(&mut self.values, &text),
                }
                Ok(())
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.literal(),
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), CanonicalError> {
        self.at += 1;
        self.values.push(b'[');
        self.space();
        if !self.take(b']') {
            loop {
                self.value(depth + 1)?;
                self.space();
                if self.take(b']') {
                    break;
                }
                self.expect(b',')?;
                self.values.push(b',');
            }
        }
        self.values.push(b']');
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Result<(), CanonicalError> {
        self.at += 1;
        let (index, first, begin) = (self.objects.len(), self.open.len(), self.values.len());
        self.objects.push(Object { values: begin..begin, members: 0..0, next: 0, is_root: depth == 0 });
        self.space();
        if !self.take(b'}') {
            loop {
                self.space();
                if self.peek() != Some(b'"') {
                    return Err(CanonicalError::NotJson);
                }
                let key = self.string()?;
                self.expect(b':')?;
                let (value, objects) = (self.values.len(), self.objects.len());
                self.value(depth + 1)?;
                let value = Part { values: value..self.values.len(), objects: objects..self.objects.len() };
                self.open.push(Member { key, value });
                self.space();
                if self.take(b'}') {
                    break;
                }
                self.expect(b',')?;
            }
        }
        let members = &mut self.open[first..];
        members.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        if members.windows(2).any(|pair| pair[0].key == pair[1].key) {
            return Err(CanonicalError::DuplicateKey);
        }
        let start = self.members.len();
        self.members.extend(self.open.drain(first..));
        let next = self.objects.len();
        if let Some(object) = self.objects.get_mut(index) {
            object.values = begin..self.values.len();
            object.members = start..self.members.len();
            object.next = next;
        }
        Ok(())
    }

    /// Reads a string and returns its content.
    fn string(&mut self) -> Result<Cow<'a, str>, CanonicalError> {
        let start = self.at + 1;
        let bytes = self.text.as_bytes();
        let end = string_end(bytes, start).ok_or(CanonicalError::NotJson)?;
        self.at = end.at + 1;
        let raw = &self.text[start..end.at];
        if end.has_escapes {
            return unescape(raw.as_bytes()).map(Cow::Owned).ok_or(CanonicalError::NotJson);
        }
        // Without an early exit the loop is vectorized, and a control character is rare.
        if raw.bytes().fold(0, |found, byte| found | u8::from(byte < 0x20)) != 0 {
            return Err(CanonicalError::NotJson);
        }
        Ok(Cow::Borrowed(raw))
    }

    fn literal(&mut self) -> Result<(), CanonicalError> {
        let rest = &self.text[self.at..];
        let found = ["true", "false", "null"].into_iter().find(|literal| rest.starts_with(literal));
        let literal = found.ok_or(CanonicalError::NotJson)?;
        self.at += literal.len();
        self.values.extend_from_slice(literal.as_bytes());
        Ok(())
    }

    /// Writes a number as its significant digits and a power of ten.
    fn number(&mut self) -> Result<(), CanonicalError> {
        let (number, length) = Number::read(&self.text[self.at..]).ok_or(CanonicalError::NotJson)?;
        self.at += length;
        let Number { is_negative, integer, fraction, exponent, exponent_is_negative } = number;
        let power: i64 =
            if exponent.is_empty() { 0 } else { exponent.parse().map_err(|_| CanonicalError::NotJson)? };
        let power = if exponent_is_negative { -power } else { power };
        let digits = [integer, fraction].concat();
        let significant = digits.trim_start_matches('0').trim_end_matches('0');
        if significant.is_empty() {
            self.values.push(b'0');
            return Ok(());
        }
        let zeros = digits.len() - digits.trim_end_matches('0').len();
        let shift = i64::try_from(zeros).ok().zip(i64::try_from(fraction.len()).ok());
        let power = shift
            .and_then(|(zeros, fraction)| power.checked_add(zeros)?.checked_sub(fraction))
            .ok_or(CanonicalError::NotJson)?;
        if is_negative {
            self.values.push(b'-');
        }
        self.values.extend_from_slice(significant.as_bytes());
        if power != 0 {
            self.values.extend_from_slice(format!("e{power}").as_bytes());
        }
        Ok(())
    }
}

struct Writer<'r, 'a> {
    values: &'r [u8],
    objects: &'r [Object],
    members: &'r [Member<'a>],
    out: Vec<u8>,
}

impl Writer<'_, '_> {
    /// Writes a part with its objects in order. `without` are keys of its first object.
    fn part(&mut self, part: &Part, without: &[&str]) {
        let (objects, members) = (self.objects, self.members);
        let (mut at, mut index, mut without) = (part.values.start, part.objects.start, without);
        while index < part.objects.end {
            let object = &objects[index];
            self.out.extend_from_slice(&self.values[at..object.values.start]);
            self.out.push(b'{');
            let all = members[object.members.clone()].iter();
            for (position, member) in all.filter(|member| !without.contains(&&*member.key)).enumerate() {
                if position > 0 {
                    self.out.push(b',');
                }
                quote(&mut self.out, &member.key);
                self.out.push(b':');
                self.part(&member.value, &[]);
            }
            self.out.push(b'}');
            (at, index, without) = (object.values.end, object.next, &[]);
        }
        self.out.extend_from_slice(&self.values[at..part.values.end]);
    }
}

/// Quotes a text with as few escapes as JSON allows.
fn quote(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = first_escaped(rest) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            byte => out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex_digit(byte >> 4), hex_digit(byte)]),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn hex_digit(number: u8) -> u8 {
    b"0123456789abcdef"[usize::from(number & 15)]
}

/// Where the first byte is that needs an escape. Most of a long text needs none, so many bytes are compared at once.
fn first_escaped(text: &[u8]) -> Option<usize> {
    const CHUNK: usize = 32;
    let escaped = |byte: &u8| u8::from(*byte == b'"') | u8::from(*byte == b'\\') | u8::from(*byte < 0x20);
    let has_escaped = |chunk: &[u8; CHUNK]| chunk.iter().fold(0, |found, byte| found | escaped(byte)) > 0;
    let (chunks, _) = text.as_chunks::<CHUNK>();
    let start = chunks.iter().position(has_escaped).unwrap_or(chunks.len()) * CHUNK;
    text[start..].iter().position(|byte| escaped(byte) > 0).map(|at| start + at)
}

fn quote_plain(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests;
