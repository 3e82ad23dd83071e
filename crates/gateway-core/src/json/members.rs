//! Members and strings of a small JSON text, in one pass and without validation. The findings only decide what is
//! parsed afterwards, so a malformed text needs no error here.

use std::ops::Range;

use memchr::memchr;

use super::{skip_space, string_end};

/// The value of a member. The text is raw: its escapes are still in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberValue<'a> {
    Text(&'a [u8]),
    Object,
    Other,
}

/// Visits every `"key": value` at any depth, in order. The content of strings is never taken for a key.
pub fn for_each_member<'a>(bytes: &'a [u8], mut visit: impl FnMut(&'a [u8], MemberValue<'a>)) {
    let mut at = 0;
    while let Some(quote) = next_quote(bytes, at) {
        let start = quote + 1;
        let Some(end) = string_end(bytes, start) else { return };
        at = end.at + 1;
        let colon = skip_space(bytes, at);
        if bytes.get(colon) != Some(&b':') {
            continue;
        }
        let key = &bytes[start..end.at];
        at = skip_space(bytes, colon + 1);
        match bytes.get(at) {
            Some(b'"') => {
                let end = string_end(bytes, at + 1).map_or(bytes.len(), |end| end.at);
                visit(key, MemberValue::Text(&bytes[at + 1..end]));
                at = bytes.len().min(end + 1);
            }
            Some(b'{') => visit(key, MemberValue::Object),
            _ => visit(key, MemberValue::Other),
        }
    }
}

/// The offset of the next quote. It is mostly one or two bytes away, where a loop is faster than memchr.
#[inline]
fn next_quote(bytes: &[u8], start: usize) -> Option<usize> {
    let rest = &bytes[start..];
    let near = rest.iter().take(4).position(|byte| *byte == b'"');
    near.or_else(|| memchr(b'"', rest)).map(|offset| start + offset)
}

/// A string of a JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StringToken {
    /// The raw content, without the quotes.
    pub range: Range<usize>,
    pub has_escapes: bool,
    /// A colon follows.
    pub is_key: bool,
}

/// The strings of a JSON text, in order. A string that is cut off extends to the end of the text.
pub fn string_tokens(bytes: &[u8]) -> impl Iterator<Item = StringToken> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + memchr(b'"', &bytes[at..])? + 1;
        let Some(end) = string_end(bytes, start) else {
            at = bytes.len();
            let has_escapes = memchr(b'\\', &bytes[start..]).is_some();
            return Some(StringToken { range: start..bytes.len(), has_escapes, is_key: false });
        };
        at = end.at + 1;
        let is_key = bytes.get(skip_space(bytes, at)) == Some(&b':');
        Some(StringToken { range: start..end.at, has_escapes: end.has_escapes, is_key })
    })
}
