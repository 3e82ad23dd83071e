//! Skipping one value of a JSON text that arrives in chunks.

use memchr::memchr3;

use super::{StringScanner, is_space};

/// Finds the end of one value. It counts only the brackets of the value's own kind, which is enough in valid JSON and
/// skips long arrays of numbers at the speed of a byte search.
#[derive(Debug, Clone, Copy)]
pub enum ValueSkipper {
    Text(StringScanner),
    Nested { open: u8, close: u8, depth: usize, text: Option<StringScanner> },
    Scalar,
}

impl ValueSkipper {
    /// A skipper for the value that starts with this byte.
    pub fn new(first: u8) -> Self {
        match first {
            b'"' => Self::Text(StringScanner::default()),
            b'{' => Self::Nested { open: b'{', close: b'}', depth: 1, text: None },
            b'[' => Self::Nested { open: b'[', close: b']', depth: 1, text: None },
            _ => Self::Scalar,
        }
    }

    /// Scans bytes behind the first one. Returns the offset at which the value ends, or None if it continues.
    pub fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Text(text) => text.feed(bytes),
            Self::Nested { open, close, depth, text } => {
                let mut at = 0;
                loop {
                    if let Some(scanner) = text {
                        at += scanner.feed(&bytes[at..])?;
                        *text = None;
                    }
                    at += memchr3(*open, *close, b'"', &bytes[at..])? + 1;
                    match bytes[at - 1] {
                        b'"' => *text = Some(StringScanner::default()),
                        byte if byte == *open => *depth += 1,
                        _ => {
                            *depth -= 1;
                            if *depth == 0 {
                                return Some(at);
                            }
                        }
                    }
                }
            }
            Self::Scalar => {
                bytes.iter().position(|byte| matches!(byte, b',' | b'}' | b']') || is_space(*byte))
            }
        }
    }
}
