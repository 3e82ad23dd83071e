//! Texts of bodies, and their beginnings.

use std::borrow::Cow;

/// The text of a body; what is not UTF-8 is replaced. `from_utf8_lossy` looks at each byte, also where all are valid, which
/// `from_utf8` finds out in larger steps.
pub fn lossy_text(body: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(body).map_or_else(|_| String::from_utf8_lossy(body), Cow::Borrowed)
}

/// At most this many characters from the start of a text.
pub fn first_chars(text: &str, max: usize) -> &str {
    // No text has more characters than bytes.
    let end = if text.len() <= max { None } else { text.char_indices().nth(max) };
    end.map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        for (text, max, expected) in [
            ("", 0, ""),
            ("abc", 3, "abc"),
            ("abc", 2, "ab"),
            ("äöü", 3, "äöü"),
            ("äöü", 2, "äö"),
            ("日本", 0, ""),
        ] {
            assert_eq!(first_chars(text, max), expected, "{text} {max}");
        }
    }

    #[test]
    fn what_is_not_utf8_is_replaced() {
        assert_eq!(lossy_text("caf\u{e9}".as_bytes()), "café");
        assert_eq!(lossy_text(b"caf\xc3 x"), "caf\u{fffd} x");
    }
}
