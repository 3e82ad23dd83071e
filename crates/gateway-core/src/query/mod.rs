//! The query language of log rows, usage and sessions: `status:error latency:>2s model:gpt-4o* -source:api "exact words"`.
//! All terms must hold. A term is a field with values, of which one must match, or words of the bodies; `-` negates it.
//!
//! A missing value matches nothing, so its negation matches. `Query::matches` is the meaning of the language: what the
//! database returns must be the rows for which it is true.

mod encode;
mod evaluate;
mod fields;
mod lexer;
mod parse;
mod pattern;
mod phrase;
#[cfg(test)]
mod tests;
mod values;

use std::collections::HashMap;
use std::hash::BuildHasher;

pub use self::fields::{FIELDS, Field, FieldInfo, Kind, MAX_KEY_CHARS};
pub use self::lexer::QueryError;
pub use self::parse::{parse, parse_without_words};
pub use self::pattern::Pattern;
use crate::search_terms::query_terms;

/// Bounds of a query, so that parsing and matching it take little time whatever it contains.
pub const MAX_CHARS: usize = 2_048;
pub const MAX_TERMS: usize = 50;
/// Values of all terms together.
pub const MAX_VALUES: usize = 200;
/// Words of all text terms together.
pub const MAX_WORDS: usize = 32;
/// Stars in one value.
pub const MAX_STARS: usize = 8;

/// A parsed query. Without terms it matches every row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    pub terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    pub is_negated: bool,
    pub condition: Condition,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    Text(TextCondition),
    Field(FieldCondition),
}

/// Words that the bodies must contain: in any order, or next to each other if they were in quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextCondition {
    text: String,
    is_quoted: bool,
    /// The distinct words.
    words: Vec<String>,
    /// The words in order, if the order matters.
    phrase: Option<Vec<String>>,
}

impl TextCondition {
    /// `None` if the text has no letter or digit.
    pub fn new(text: &str, is_quoted: bool) -> Option<Self> {
        let words = query_terms(text);
        let phrase = Some(phrase::sequence(text)).filter(|words| is_quoted && words.len() > 1);
        if words.is_empty() {
            return None;
        }
        Some(Self { text: text.to_owned(), is_quoted, words, phrase })
    }

    pub fn words(&self) -> &[String] {
        &self.words
    }

    pub fn phrase(&self) -> Option<&[String]> {
        self.phrase.as_deref()
    }
}

/// A field and the tests of which one must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldCondition {
    pub field: Field,
    /// The key of `metadata.key`.
    pub key: Option<String>,
    pub tests: Vec<Test>,
}

/// Values are texts or whole numbers: milliseconds, tokens, units of 1e-12 USD, milliseconds since 1970 for times, and
/// 0 or 1 for booleans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    Text(Pattern),
    Number(Comparison, i64),
    /// Both ends are included.
    Between(i64, i64),
    /// `status:error`: the status is 400 or above, or the response was interrupted. `status:ok`: the opposite.
    Failed(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub const ALL: [Self; 5] =
        [Self::LessOrEqual, Self::GreaterOrEqual, Self::Less, Self::Greater, Self::Equal];

    pub fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    pub fn holds(self, value: i64, limit: i64) -> bool {
        match self {
            Self::Equal => value == limit,
            Self::Less => value < limit,
            Self::LessOrEqual => value <= limit,
            Self::Greater => value > limit,
            Self::GreaterOrEqual => value >= limit,
        }
    }
}

impl Query {
    /// Adds a term that a field has one of these values.
    pub fn require(&mut self, field: Field, tests: Vec<Test>) {
        let condition = Condition::Field(FieldCondition { field, key: None, tests });
        self.terms.push(Term { is_negated: false, condition });
    }

    /// Adds a term that the bodies contain all these words.
    pub fn require_words(&mut self, text: &str) {
        let condition = TextCondition::new(text, false).map(Condition::Text);
        self.terms.extend(condition.map(|condition| Term { is_negated: false, condition }));
    }

    pub fn fields(&self) -> impl Iterator<Item = (bool, &FieldCondition)> {
        self.terms.iter().filter_map(|term| match &term.condition {
            Condition::Field(condition) => Some((term.is_negated, condition)),
            Condition::Text(_) => None,
        })
    }

    pub fn texts(&self) -> impl Iterator<Item = (bool, &TextCondition)> {
        self.terms.iter().filter_map(|term| match &term.condition {
            Condition::Text(condition) => Some((term.is_negated, condition)),
            Condition::Field(_) => None,
        })
    }

    pub fn has_text(&self) -> bool {
        self.texts().next().is_some()
    }

    /// Whether it has a term on this field.
    pub fn uses(&self, field: Field) -> bool {
        self.fields().any(|(_, condition)| condition.field == field)
    }

    /// Replaces the names of a field's resources by their ids. `names` has the name of each id; upper and lower case of
    /// names are the same. A value that is no name stays, because it may be an id.
    pub fn resolve<S: BuildHasher>(&mut self, field: Field, names: &HashMap<String, String, S>) {
        for term in &mut self.terms {
            let Condition::Field(condition) = &mut term.condition else { continue };
            if condition.field == field {
                condition.tests = condition.tests.iter().flat_map(|test| resolved(test, names)).collect();
            }
        }
    }
}

fn resolved<S: BuildHasher>(test: &Test, names: &HashMap<String, String, S>) -> Vec<Test> {
    let Test::Text(pattern) = test else { return vec![test.clone()] };
    if pattern.is_any() {
        return vec![test.clone()];
    }
    let folded = pattern.lowercase();
    let named = names.iter().filter(|(_, name)| folded.matches(&name.to_lowercase()));
    let mut ids: Vec<&str> = named.map(|(id, _)| id.as_str()).collect();
    ids.sort_unstable();
    let ids = ids.into_iter().map(|id| Test::Text(Pattern::literal(id)));
    std::iter::once(test.clone()).chain(ids).collect()
}
