//! Strings of a JSON text: where they end, what their escapes mean, and their content.

use std::ops::Range;

use memchr::{memchr, memchr2};

/// Finds the end of a string that arrives in chunks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StringScanner {
    /// The last byte was a backslash, so the next byte is escaped.
    escape_open: bool,
    has_escapes: bool,
}

impl StringScanner {
    /// Scans bytes behind the opening quote. Returns the offset behind the closing quote, or None while it is missing.
    #[inline]
    pub fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        if self.escape_open && !bytes.is_empty() {
            self.escape_open = false;
            at = 1;
        }
        loop {
            at += memchr2(b'"', b'\\', &bytes[at..])? + 1;
            if bytes[at - 1] == b'"' {
                return Some(at);
            }
            self.has_escapes = true;
            if at == bytes.len() {
                self.escape_open = true;
                return None;
            }
            at += 1;
        }
    }

    pub fn has_escapes(self) -> bool {
        self.has_escapes
    }
}

/// The end of a string in a complete text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StringEnd {
    /// The offset of the closing quote.
    pub at: usize,
    pub has_escapes: bool,
}

/// Finds the closing quote of the string whose content starts at `start`.
#[inline]
pub fn string_end(bytes: &[u8], start: usize) -> Option<StringEnd> {
    let mut scanner = StringScanner::default();
    let length = scanner.feed(bytes.get(start..)?)?;
    Some(StringEnd { at: start + length - 1, has_escapes: scanner.has_escapes })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escape {
    /// An escape of two bytes, by its letter: `n` for `\n`.
    Letter(u8),
    /// `\u` and four digits: a UTF-16 code unit.
    Unit(u16),
    /// Not an escape of JSON.
    Invalid,
    /// The string ends inside the escape.
    Truncated,
}

/// A part of a raw string: one escape, or bytes that stand for themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub range: Range<usize>,
    pub escape: Option<Escape>,
}

/// Splits a raw string, without its quotes, into segments. In valid UTF-8 no segment splits a character.
pub fn segments(raw: &[u8]) -> impl Iterator<Item = Segment> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = &raw[start..];
        let (length, escape) = match rest.first()? {
            b'\\' => {
                let (length, escape) = read_escape(rest);
                (length, Some(escape))
            }
            _ => (memchr(b'\\', rest).unwrap_or(rest.len()), None),
        };
        let range = start..start + length;
        start = range.end;
        Some(Segment { range, escape })
    })
}

fn read_escape(bytes: &[u8]) -> (usize, Escape) {
    let with_rest_of_character = |length: usize| {
        let continuation = bytes[length..].iter().take_while(|byte| **byte & 0xC0 == 0x80).count();
        (length + continuation, Escape::Invalid)
    };
    match bytes.get(1) {
        None => (1, Escape::Truncated),
        Some(b'u') => match bytes.get(2..6) {
            None => (bytes.len(), Escape::Truncated),
            Some(digits) => match code_unit(digits) {
                Some(unit) => (6, Escape::Unit(unit)),
                None => with_rest_of_character(6),
            },
        },
        Some(letter @ (b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')) => {
            (2, Escape::Letter(*letter))
        }
        Some(_) => with_rest_of_character(2),
    }
}

fn code_unit(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0, |unit: u16, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(unit << 4 | u16::try_from(digit).ok()?)
    })
}

/// The content of a raw string. None for an invalid escape, an unpaired surrogate, a control character or broken UTF-8.
pub fn unescape(raw: &[u8]) -> Option<String> {
    let mut content = Vec::with_capacity(raw.len());
    let mut high_surrogate = None;
    for Segment { range, escape } in segments(raw) {
        let unit = match (escape, high_surrogate) {
            (Some(Escape::Unit(unit)), _) => unit,
            (_, Some(_)) | (Some(Escape::Invalid | Escape::Truncated), _) => return None,
            (Some(Escape::Letter(letter)), _) => {
                content.push(match letter {
                    b'b' => 0x08,
                    b'f' => 0x0C,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => other,
                });
                continue;
            }
            (None, _) => {
                let plain = &raw[range];
                // Without a branch for each byte, so that many are compared at once.
                if plain.iter().fold(0, |found, byte| found | u8::from(*byte < 0x20)) > 0 {
                    return None;
                }
                content.extend_from_slice(plain);
                continue;
            }
        };
        let character = match high_surrogate.take() {
            None if is_high_surrogate(unit) => {
                high_surrogate = Some(unit);
                continue;
            }
            None => char::from_u32(u32::from(unit))?,
            Some(high) => char::decode_utf16([high, unit]).next()?.ok()?,
        };
        content.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    if high_surrogate.is_some() { None } else { String::from_utf8(content).ok() }
}

/// The number of characters in the content of a raw string. Invalid escapes count as one character.
pub fn char_count(raw: &[u8]) -> u64 {
    let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count() as u64;
    let length = |Segment { range, escape }| match escape {
        None => count(&raw[range]),
        // A surrogate pair is one character, which its first half has counted.
        Some(_) => u64::from(!is_low_surrogate_escape(&raw[range])),
    };
    segments(raw).map(length).sum()
}

/// The length of the longest prefix of a raw string that can be closed by a quote. It ends inside no escape and between
/// no two halves of a surrogate pair.
pub fn closable_length(raw: &[u8]) -> usize {
    let mut high_surrogate = None;
    for Segment { range, escape } in segments(raw) {
        match escape {
            Some(Escape::Truncated) => return high_surrogate.unwrap_or(range.start),
            Some(Escape::Unit(unit)) if is_high_surrogate(unit) => high_surrogate = Some(range.start),
            _ => high_surrogate = None,
        }
    }
    high_surrogate.unwrap_or(raw.len())
}

fn is_high_surrogate(unit: u16) -> bool {
    (0xD800..0xDC00).contains(&unit)
}

fn is_low_surrogate_escape(escape: &[u8]) -> bool {
    matches!(escape, [b'\\', b'u', b'd' | b'D', b'c'..=b'f' | b'C'..=b'F', ..])
}
