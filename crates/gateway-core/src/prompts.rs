//! Prompt templates: text with variables written as `{{name}}`. Syntax errors carry their position. Inserted values are
//! never parsed as template text.

mod reference;

use std::collections::{HashMap, HashSet};

pub use reference::{MAX_LABELS, PromptReference, VersionSelector, check_label, parse_version};

/// The maximum size of a template in bytes.
pub const MAX_CONTENT: usize = 128 << 10;
/// The maximum size of a rendered text in bytes: a short template can repeat a long variable many times.
pub const MAX_RENDERED: usize = 4 << 20;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// A parsed template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
    /// Without duplicates.
    variables: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Variable(String),
}

/// An invalid tag. Line and column count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {why}")]
pub struct SyntaxError {
    pub line: usize,
    pub column: usize,
    pub why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    #[error("no value was given for {}", .0.join(", "))]
    Missing(Vec<String>),
    #[error("the rendered text would have {0} bytes; the maximum is {MAX_RENDERED}")]
    TooLong(usize),
}

impl Template {
    pub fn parse(content: &str) -> Result<Self, SyntaxError> {
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = content;
        while let Some(at) = rest.find(OPEN) {
            let before = &rest[..at];
            let tag = &rest[at + OPEN.len()..];
            if let Some(escaped) = before.strip_suffix('\\') {
                text.push_str(escaped);
                text.push_str(OPEN);
                rest = tag;
                continue;
            }
            text.push_str(before);
            let (name, after) = variable(tag).map_err(|why| {
                let (line, column) = line_and_column(content, content.len() - rest.len() + at);
                SyntaxError { line, column, why }
            })?;
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(Piece::Variable(name.to_owned()));
            rest = after;
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        let mut seen = HashSet::new();
        let names = pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(name) if seen.insert(name.as_str()) => Some(name.clone()),
            _ => None,
        });
        Ok(Self { variables: names.collect(), pieces })
    }

    /// About how many bytes it takes in memory.
    pub fn size(&self) -> usize {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) | Piece::Variable(text) => text.len(),
        };
        let pieces: usize = self.pieces.iter().map(|piece| size_of::<Piece>() + text(piece)).sum();
        let names: usize = self.variables.iter().map(|name| size_of::<String>() + name.len()).sum();
        pieces + names
    }

    /// The names of the variables without duplicates, in order of first occurrence.
    pub fn variables(&self) -> &[String] {
        &self.variables
    }

    /// How many texts and variables it consists of.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The length of the rendered text, in which a variable without a value is empty.
    pub fn rendered_length(&self, values: &HashMap<String, String>) -> usize {
        self.texts(values).fold(0_usize, |sum, text| sum.saturating_add(text.len()))
    }

    fn texts<'t>(&'t self, values: &'t HashMap<String, String>) -> impl Iterator<Item = &'t str> {
        self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.as_str(),
            Piece::Variable(name) => values.get(name).map_or("", String::as_str),
        })
    }

    /// Replaces every variable. Values without a variable are ignored; see `unused`.
    pub fn render(&self, values: &HashMap<String, String>) -> Result<String, RenderError> {
        let missing: Vec<String> =
            self.variables.iter().filter(|name| !values.contains_key(*name)).cloned().collect();
        if !missing.is_empty() {
            return Err(RenderError::Missing(missing));
        }
        let length = self.rendered_length(values);
        if length > MAX_RENDERED {
            return Err(RenderError::TooLong(length));
        }
        Ok(self.texts(values).collect())
    }

    /// The names of values without a variable.
    pub fn unused(&self, values: &HashMap<String, String>) -> Vec<String> {
        let known: HashSet<&String> = self.variables.iter().collect();
        let mut unused: Vec<String> = values.keys().filter(|name| !known.contains(name)).cloned().collect();
        unused.sort_unstable();
        unused
    }
}

/// Namespaces and slugs: `^[a-z0-9][a-z0-9._-]{0,63}$`.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let valid = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| alphanumeric(byte) || matches!(byte, b'.' | b'_' | b'-'))
        && name.bytes().next().is_some_and(alphanumeric);
    if valid {
        Ok(())
    } else {
        Err(
            "must be 1 to 64 lowercase letters, digits, dots, underscores or hyphens, and begin with a letter or digit",
        )
    }
}

/// Parses a tag after its opening braces. Returns the name and the text after the closing braces.
fn variable(tag: &str) -> Result<(&str, &str), &'static str> {
    const EXPECTED: &str = "expected a variable such as {{name}}; write \\{{ for plain braces";
    let Some(end) = tag.find(CLOSE) else { return Err("the tag is not closed with }}") };
    let name = tag[..end].trim_matches(|c: char| c.is_ascii_whitespace());
    let mut letters = name.bytes();
    let valid_start = letters.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let valid_rest = letters.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    if valid_start && valid_rest { Ok((name, &tag[end + CLOSE.len()..])) } else { Err(EXPECTED) }
}

fn line_and_column(content: &str, at: usize) -> (usize, usize) {
    let before = &content[..at];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn rendered(content: &str, pairs: &[(&str, &str)]) -> Result<String, RenderError> {
        Template::parse(content).unwrap().render(&values(pairs))
    }

    #[test]
    fn variables_are_replaced_by_what_is_given() {
        for (content, expected) in [
            ("Hello {{name}}!", "Hello Ada!"),
            ("{{ name }}{{name}}{{\n\tname }}", "AdaAdaAda"),
            ("no variables", "no variables"),
            ("", ""),
            ("{ {name} } }} {", "{ {name} } }} {"),
            ("{{_a.b-c9}}", "x"),
            ("ü{{name}}ü", "üAdaü"),
            (r#"{"a": {"b": 1}}"#, r#"{"a": {"b": 1}}"#),
        ] {
            assert_eq!(
                rendered(content, &[("name", "Ada"), ("_a.b-c9", "x")]).as_deref(),
                Ok(expected),
                "{content}"
            );
        }
    }

    #[test]
    fn an_escaped_tag_is_plain_text() {
        assert_eq!(rendered(r"\{{x}}", &[]).as_deref(), Ok("{{x}}"));
        assert_eq!(rendered(r"a \{{ b {{x}} \{{y", &[("x", "1")]).as_deref(), Ok("a {{ b 1 {{y"));
        assert_eq!(rendered(r"\\{{x}}", &[]).as_deref(), Ok(r"\{{x}}"));
        assert_eq!(Template::parse(r"\{{x}} {{y}}").unwrap().variables(), ["y"]);
    }

    #[test]
    fn values_are_not_rendered_or_escaped() {
        let pairs = [("a", "{{b}}"), ("b", "<&\"\\{{")];
        assert_eq!(rendered("{{a}} {{b}}", &pairs).as_deref(), Ok("{{b}} <&\"\\{{"));
    }

    #[test]
    fn variables_are_listed_once_in_their_order() {
        let template = Template::parse("{{b}} {{a}} {{b}}").unwrap();
        assert_eq!(template.variables(), ["b", "a"]);
        assert_eq!(template.unused(&values(&[("z", ""), ("a", ""), ("c", "")])), ["c", "z"]);
    }

    #[test]
    fn all_missing_variables_are_named() {
        let missing = rendered("{{b}} {{a}} {{c}} {{b}}", &[("a", "")]).unwrap_err();
        assert_eq!(missing, RenderError::Missing(vec!["b".into(), "c".into()]));
        assert!(missing.to_string().contains("b, c"));
    }

    #[test]
    fn a_mistake_is_named_with_its_place() {
        for (content, line, column) in [
            ("{{", 1, 1),
            ("{{}}", 1, 1),
            ("{{ }}", 1, 1),
            ("ok {{name}} {{name", 1, 13),
            ("a\nüü {{1x}}", 2, 4),
            ("a\r\n\r\n  {{a b}}", 3, 3),
            ("{{{name}}}", 1, 1),
            ("{{na me}}", 1, 1),
            ("{{#if x}}", 1, 1),
            ("{{ü}}", 1, 1),
            (r"\{{x}} {{", 1, 8),
        ] {
            let error = Template::parse(content).unwrap_err();
            assert_eq!((error.line, error.column), (line, column), "{content}: {error}");
        }
    }

    #[test]
    fn a_rendered_text_has_a_greatest_length() {
        assert_eq!((MAX_CONTENT, MAX_RENDERED), (131_072, 4_194_304));
        let long = "x".repeat(MAX_RENDERED / 2);
        assert!(rendered("{{a}}{{a}}", &[("a", &long)]).is_ok());
        assert!(matches!(rendered("{{a}}{{a}}!", &[("a", &long)]), Err(RenderError::TooLong(_))));
    }

    #[test]
    fn names_are_checked() {
        for good in ["a", "0", "a.b_c-d", &"a".repeat(64)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "-a", ".a", "a/b", "a b", "ü", "a@1", &"a".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(content in "(\\{|\\}|\\\\|[a-z]|ü|\n| ){0,40}") {
            if let Ok(template) = Template::parse(&content) {
                let all: HashMap<String, String> =
                    template.variables().iter().map(|name| (name.clone(), "v".to_owned())).collect();
                let length = template.rendered_length(&all);
                prop_assert_eq!(template.render(&all).map(|text| text.len()), Ok(length));
            }
        }

        #[test]
        fn a_text_without_braces_renders_as_itself(content in "[^{]{0,60}") {
            prop_assert_eq!(rendered(&content, &[]).unwrap(), content);
        }
    }
}
