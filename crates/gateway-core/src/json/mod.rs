//! Scanning of JSON texts without building a tree. Requests and responses pass through these scanners on their way, so
//! they search with memchr, take input in chunks where needed, and keep a bounded amount of memory.

mod items;
mod members;
mod nested;
mod number;
mod object;
mod shared;
mod skip;
mod strings;
mod truncated;

#[cfg(test)]
mod tests;

pub use items::{array_items, object_members};
pub use members::{MemberValue, StringToken, for_each_member, string_tokens};
pub use number::Number;
pub use object::{ObjectScan, ObjectScanner, ScanStatus, ScannedValue, VALUE_LIMIT};
pub use shared::{SharedJson, append_member};
pub use skip::ValueSkipper;
pub use strings::{
    Escape, Segment, StringEnd, StringScanner, char_count, closable_length, segments, string_end, unescape,
};
pub use truncated::complete_truncated;

/// White space as JSON defines it.
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The offset of the first byte at or after `start` that is not white space.
pub fn skip_space(bytes: &[u8], start: usize) -> usize {
    let rest = bytes.get(start..).unwrap_or_default();
    start + rest.iter().take_while(|byte| is_space(**byte)).count()
}
