//! The items of a JSON array and the members of an object, without a tree.

use std::ops::Range;

use super::{ValueSkipper, skip_space, string_end};

/// The items of an array, as ranges of its text. The text is not validated: the items end where it stops to look like
/// an array.
pub fn array_items(array: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut next = (array.first() == Some(&b'[')).then_some(1);
    std::iter::from_fn(move || {
        let value = value_at(array, next.take()?)?;
        next = after_comma(array, value.end);
        Some(value)
    })
}

/// The names and values of an object, as ranges of its text: names as they are written, without their quotes. The text is
/// not validated: the members end where it stops to look like an object.
pub fn object_members(object: &[u8]) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let mut next = (object.first() == Some(&b'{')).then_some(1);
    std::iter::from_fn(move || {
        let quote = skip_space(object, next.take()?);
        if object.get(quote) != Some(&b'"') {
            return None;
        }
        let name = quote + 1..string_end(object, quote + 1)?.at;
        let colon = skip_space(object, name.end + 1);
        if object.get(colon) != Some(&b':') {
            return None;
        }
        let value = value_at(object, colon + 1)?;
        next = after_comma(object, value.end);
        Some((name, value))
    })
}

/// The value there, after white space.
fn value_at(text: &[u8], at: usize) -> Option<Range<usize>> {
    let start = skip_space(text, at);
    let first = *text.get(start)?;
    if matches!(first, b']' | b'}' | b',' | b':') {
        return None;
    }
    let end = start + 1 + ValueSkipper::new(first).feed(text.get(start + 1..)?)?;
    Some(start..end)
}

/// Where the next item begins, if a comma follows.
fn after_comma(text: &[u8], end: usize) -> Option<usize> {
    let comma = skip_space(text, end);
    (text.get(comma) == Some(&b',')).then_some(comma + 1)
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

    fn members(object: &str) -> Vec<(&str, &str)> {
        object_members(object.as_bytes()).map(|(name, value)| (&object[name], &object[value])).collect()
    }

    #[test]
    fn members_are_found_at_the_first_level() {
        assert_eq!(
            members(r#"{ "a" : {"b":[1,2]} ,"c\"":"x,}", "d":[3],"e": 4 ,"a":null}"#),
            [("a", r#"{"b":[1,2]}"#), (r#"c\""#, r#""x,}""#), ("d", "[3]"), ("e", "4"), ("a", "null")]
        );
        assert_eq!(members("{}"), [("", ""); 0]);
        assert_eq!(members("{ }"), [("", ""); 0]);
    }

    #[test]
    fn what_is_no_object_has_no_members() {
        for text in [
            "",
            "[]",
            "1",
            r#""{}""#,
            "{",
            "{,",
            r#"{"a"#,
            r#"{"a""#,
            r#"{"a":"#,
            r#"{"a":}"#,
            r#"{"a" 1}"#,
            "{a:1}",
        ] {
            assert_eq!(members(text), [("", ""); 0], "{text}");
        }
        assert_eq!(members(r#"{"a":1 "b":2}"#), [("a", "1")]);
        assert_eq!(members(r#"{"a":1,"b":"open"#), [("a", "1")]);
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
