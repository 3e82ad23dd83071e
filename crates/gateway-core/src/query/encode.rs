//! The canonical text of a query: parsed again, it is the same query.

use std::fmt::{Display, Formatter, Result};

use super::{Comparison, Condition, Field, FieldCondition, Kind, Pattern, Query, Term, Test, TextCondition};
use crate::time::{DAY, HOUR, MINUTE, SECOND, Timestamp};
use crate::totals::cost_decimal;

impl Display for Query {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (at, term) in self.terms.iter().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            term.fmt(f)?;
        }
        Ok(())
    }
}

impl Display for Term {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if self.is_negated {
            f.write_str("-")?;
        }
        match &self.condition {
            Condition::Text(condition) => condition.fmt(f),
            Condition::Field(condition) => condition.fmt(f),
        }
    }
}

impl Display for TextCondition {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if self.is_quoted { write_quoted(f, &self.text) } else { f.write_str(&self.text) }
    }
}

impl Display for FieldCondition {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { field, key, tests } = self;
        f.write_str(field.info().name)?;
        if let Some(key) = key {
            write!(f, ".{key}")?;
        }
        f.write_str(":")?;
        for (at, test) in tests.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            write_test(f, *field, test)?;
        }
        Ok(())
    }
}

fn write_test(f: &mut Formatter<'_>, field: Field, test: &Test) -> Result {
    let kind = field.kind();
    match test {
        Test::Text(pattern) => write_pattern(f, pattern),
        Test::Failed(true) => f.write_str("error"),
        Test::Failed(false) => f.write_str("ok"),
        Test::Number(_, value) if kind == Kind::Boolean => {
            f.write_str(if *value == 0 { "false" } else { "true" })
        }
        Test::Number(comparison, value) => {
            if *comparison != Comparison::Equal {
                f.write_str(comparison.symbol())?;
            }
            f.write_str(&number(kind, *value))
        }
        Test::Between(from, to) => {
            let to = if kind == Kind::Time { to.saturating_add(1) } else { *to };
            write!(f, "{}..{}", number(kind, *from), number(kind, to))
        }
    }
}

fn number(kind: Kind, value: i64) -> String {
    match kind {
        Kind::Duration => duration(value),
        Kind::Money => cost_decimal(value).normalize().to_string(),
        Kind::Time => Timestamp(value).to_string(),
        _ => value.to_string(),
    }
}

/// In the largest unit of which it is a multiple.
fn duration(milliseconds: i64) -> String {
    let units = [("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND)];
    let unit = units.into_iter().find(|(_, unit)| milliseconds != 0 && milliseconds % unit == 0);
    let (name, unit) = unit.unwrap_or(("ms", 1));
    format!("{}{name}", milliseconds / unit)
}

fn write_pattern(f: &mut Formatter<'_>, pattern: &Pattern) -> Result {
    match pattern.as_literal() {
        Some(text) if needs_quotes(text) => write_quoted(f, text),
        Some(text) => f.write_str(text),
        None => f.write_str(&pattern.parts().join("*")),
    }
}

fn needs_quotes(text: &str) -> bool {
    text.is_empty() || text.contains(|c: char| c.is_whitespace() || matches!(c, '"' | ',' | '*'))
}

fn write_quoted(f: &mut Formatter<'_>, text: &str) -> Result {
    write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
