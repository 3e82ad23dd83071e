//! The items of a JSON array, without a tree.

use std::ops::Range;

use super::{ValueSkipper, skip_space};

/// The items of an array, as ranges of its text. The text is not validated: the items end where it stops to look like
/// an array.
pub fn array_items(array: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut next = (array.first() == Some(&b'[')).then_some(1);
    std::iter::from_fn(move || {
        let start = skip_space(array, next.take()?);
        let first = *array.get(start)?;
        if matches!(first, b']' | b'}' | b',' | b':') {
            return None;
        }
        let end = start + 1 + ValueSkipper::new(first).feed(array.get(start + 1..)?)?;
        let after = skip_space(array, end);
        next = (array.get(after) == Some(&b',')).then_some(after + 1);
        Some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(array: &str) -> Vec<&str> {
        array_items(array.as_bytes()).map(|range| &array[range]).collect()
    }

    #[test]
    fn items_are_found_at_the_first_level() {
        assert_eq!(
            items(r#"[ {"a":[1,2]} , "x,]" ,[3], 4 ,null]"#),
            [r#"{"a":[1,2]}"#, r#""x,]""#, "[3]", "4", "null"]
        );
        assert_eq!(items("[]"), [""; 0]);
        assert_eq!(items("[ ]"), [""; 0]);
    }

    #[test]
    fn what_is_no_array_has_no_items() {
        for text in ["", "{}", "1", r#""[1]""#, "[", "[,", "[:1]"] {
            assert_eq!(items(text), [""; 0], "{text}");
        }
        assert_eq!(items("[1 2]"), ["1"]);
        assert_eq!(items(r#"[1,"open"#), ["1"]);
    }
}
