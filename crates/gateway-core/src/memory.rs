//! Estimates of the memory that a JSON text takes once it is parsed.

/// A value takes about this much for each byte of JSON syntax that begins it or separates it from another.
const BYTES_PER_MARK: usize = 64;

/// Estimates the memory of a JSON text that is parsed into a tree. Long strings take little more than their length,
/// many small values a multiple of it.
pub fn tree_bytes(json: &[u8]) -> usize {
    // Counted in bytes and without branches, so that the compiler compares many at once.
    let marks_of = |bytes: &[u8]| usize::from(bytes.iter().map(|byte| mark(*byte)).sum::<u8>());
    let marks: usize = json.chunks(u8::MAX.into()).map(marks_of).sum();
    json.len().saturating_add(marks.saturating_mul(BYTES_PER_MARK))
}

/// 1 for a mark, 0 for any other byte.
fn mark(byte: u8) -> u8 {
    u8::from(byte == b',') | u8::from(byte == b':') | u8::from(byte == b'[') | u8::from(byte == b'{')
}

/// The same for a text of which only values down to a depth are taken apart: what is deeper stays text. An object with
/// numbers has depth 1, a list of such objects makes it 2.
pub fn shallow_tree_bytes(json: &[u8], depth: usize) -> usize {
    let (mut marks, mut level, mut in_string, mut is_escaped) = (0_usize, 0_usize, false, false);
    for byte in json {
        if in_string {
            in_string = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                marks += usize::from(level < depth);
                level += 1;
            }
            b']' | b'}' => level = level.saturating_sub(1),
            b',' | b':' => marks += usize::from(level <= depth),
            _ => {}
        }
    }
    json.len().saturating_add(marks.saturating_mul(BYTES_PER_MARK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_stay_text_count_only_their_length() {
        let numbers = format!(r#"{{"result":{{"values":[{}1]}}}}"#, "1,".repeat(10_000));
        let length = numbers.len();
        assert!(shallow_tree_bytes(numbers.as_bytes(), 2) < length + 1_000);
        assert!(shallow_tree_bytes(numbers.as_bytes(), 3) > length + 10_000 * BYTES_PER_MARK);
        assert_eq!(shallow_tree_bytes(numbers.as_bytes(), 9), tree_bytes(numbers.as_bytes()));
        let text = br#"{"a":"[[{,:\",","b":1}"#;
        assert_eq!(shallow_tree_bytes(text, 1), text.len() + 4 * BYTES_PER_MARK);
    }

    #[test]
    fn the_estimate_covers_the_tree() {
        assert_eq!(tree_bytes(b"[{:,"), 4 + 4 * BYTES_PER_MARK);
        let all_marks = ",".repeat(1_000);
        assert_eq!(tree_bytes(all_marks.as_bytes()), 1_000 + 1_000 * BYTES_PER_MARK);
        let flat = "x".repeat(10_000);
        assert!(tree_bytes(flat.as_bytes()) < 11_000);
        let messages = r#"{"role":"user","content":""},"#.repeat(100);
        // About 300 bytes for each of them.
        assert!(tree_bytes(messages.as_bytes()) >= 30_000);
    }
}
