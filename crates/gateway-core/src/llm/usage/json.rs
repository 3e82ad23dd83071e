//! Reading small JSON texts without parsing them: every key with its value, in one pass. Nothing checks that the text is
//! valid, and nothing needs to: what is found here only decides what is parsed afterwards.

use memchr::{memchr, memchr2};

/// A value as `pairs` sees it. The text is raw, with its escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Text(&'a [u8]),
    Object,
    Other,
}

/// Visits every `"key": value` at any depth, in order. Text inside strings is never mistaken for a key.
pub(super) fn pairs<'a>(bytes: &'a [u8], mut visit: impl FnMut(&'a [u8], Value<'a>)) {
    let mut at = 0;
    while let Some(quote) = memchr(b'"', &bytes[at..]) {
        let start = at + quote + 1;
        let Some(end) = text_end(bytes, start) else { return };
        at = end + 1;
        let colon = skip_space(bytes, at);
        if bytes.get(colon) != Some(&b':') {
            continue;
        }
        let key = &bytes[start..end];
        at = skip_space(bytes, colon + 1);
        match bytes.get(at) {
            Some(b'"') => {
                let end = text_end(bytes, at + 1).unwrap_or(bytes.len());
                visit(key, Value::Text(&bytes[at + 1..end]));
                at = bytes.len().min(end + 1);
            }
            Some(b'{') => visit(key, Value::Object),
            _ => visit(key, Value::Other),
        }
    }
}

/// How many characters a raw JSON string stands for.
pub(super) fn characters(text: &[u8]) -> u64 {
    let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count() as u64;
    let mut total = 0;
    let mut rest = text;
    while let Some(slash) = memchr(b'\\', rest) {
        total += count(&rest[..slash]);
        let escape = &rest[slash + 1..];
        // The second half of a surrogate pair belongs to the character that its first half has counted.
        let low_half = matches!(escape, [b'u', b'd' | b'D', b'c'..=b'f' | b'C'..=b'F', ..]);
        total += u64::from(!low_half);
        let length = if escape.first() == Some(&b'u') { 5 } else { 1 };
        rest = &escape[length.min(escape.len())..];
    }
    total + count(rest)
}

fn text_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

/// The place of the first byte from `start` on that is not space.
pub(super) fn skip_space(bytes: &[u8], start: usize) -> usize {
    let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    start + bytes[start..].iter().take_while(|byte| space(byte)).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pairs_are_seen_at_any_depth_and_never_inside_text() {
        let text = br#"{"a" : {"b":"x\"usage\":{} y"},"c":["usage",1],"d":null,"e":""}"#;
        let mut seen = Vec::new();
        pairs(text, |key, value| seen.push((key, value)));
        assert_eq!(
            seen,
            [
                (&b"a"[..], Value::Object),
                (b"b", Value::Text(br#"x\"usage\":{} y"#)),
                (b"c", Value::Other),
                (b"d", Value::Other),
                (b"e", Value::Text(b"")),
            ]
        );
    }

    #[test]
    fn characters_count_escapes_and_letters_of_several_bytes_once() {
        for (raw, expected) in
            [("abc", 3), (r"a\n\u00e9", 3), ("é漢", 2), (r"\ud83d\ude00!", 2), ("", 0), (r"\", 1)]
        {
            assert_eq!(characters(raw.as_bytes()), expected, "{raw}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in r#"[\[\]{}":,\\a0é ]{0,40}"#) {
            let mut seen = 0;
            pairs(text.as_bytes(), |_, value| {
                if let Value::Text(text) = value {
                    seen += characters(text);
                }
            });
            prop_assert!(seen <= text.chars().count() as u64);
        }
    }
}
