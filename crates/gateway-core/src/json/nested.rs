//! Skipping one object or array of a JSON text that arrives in chunks, with checks. Unlike `ValueSkipper` it rejects
//! brackets that do not match and bytes that JSON does not have outside of strings.

use super::StringScanner;

/// Brackets up to this depth are checked for their kind; deeper ones are only counted.
const CHECKED_DEPTH: usize = 128;

#[derive(Debug, Default)]
pub(super) struct NestedScanner {
    depth: usize,
    /// One bit for each checked level: set for an object, clear for an array.
    kinds: u128,
    /// The string in which the last chunk ended.
    text: Option<StringScanner>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum NestedState {
    Open,
    /// The value ends at this offset of the chunk.
    Closed(usize),
    Malformed,
}

impl NestedScanner {
    /// Scans the next bytes. The first byte of the value is its bracket.
    #[inline]
    pub(super) fn feed(&mut self, bytes: &[u8]) -> NestedState {
        let mut at = 0;
        if let Some(text) = &mut self.text {
            let Some(end) = text.feed(bytes) else { return NestedState::Open };
            self.text = None;
            at = end;
        }
        while at < bytes.len() {
            // Numbers, commas and white space come in runs, which a table reads fastest.
            if PLAIN[usize::from(bytes[at])] {
                at += 1;
                continue;
            }
            let byte = bytes[at];
            at += 1;
            match byte {
                b'"' => {
                    let mut text = StringScanner::default();
                    let Some(length) = text.feed(&bytes[at..]) else {
                        self.text = Some(text);
                        return NestedState::Open;
                    };
                    at += length;
                }
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth <= CHECKED_DEPTH {
                        self.kinds = self.kinds << 1 | u128::from(byte == b'{');
                    }
                }
                b'}' | b']' => {
                    if self.depth <= CHECKED_DEPTH {
                        if (self.kinds & 1 == 1) != (byte == b'}') {
                            return NestedState::Malformed;
                        }
                        self.kinds >>= 1;
                    }
                    self.depth -= 1;
                    if self.depth == 0 {
                        return NestedState::Closed(at);
                    }
                }
                _ => return NestedState::Malformed,
            }
        }
        NestedState::Open
    }
}

/// The bytes that may stand between strings and brackets. Parsers may disagree on any other byte, such as a comment.
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
