//! Reads the values of fields: texts, numbers, durations, amounts and times.

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive as _;

use super::{Comparison, Kind, MAX_STARS, Pattern, Test};
use crate::time::{DAY, HOUR, MINUTE, SECOND, Timestamp};
use crate::totals::COST_SCALE;

/// The time range of values: from 1970 to 2100.
const MAX_TIME: i64 = 4_102_444_800_000;

/// Reads a value without quotes. Errors say what is wrong.
pub(super) fn parse_value(kind: Kind, text: &str) -> Result<Test, String> {
    if kind.is_text() {
        return parse_text(kind, text, false);
    }
    match (kind, text) {
        (Kind::Status, "error") => return Ok(Test::Failed(true)),
        (Kind::Status, "ok") => return Ok(Test::Failed(false)),
        (Kind::Boolean, "true") => return Ok(Test::Number(Comparison::Equal, 1)),
        (Kind::Boolean, "false") => return Ok(Test::Number(Comparison::Equal, 0)),
        (Kind::Boolean, _) => return Err(format!("{} is not true or false", shown(text))),
        _ => {}
    }
    if let Some(class) = text.strip_suffix("xx").filter(|_| kind == Kind::Status) {
        return match class.parse::<i64>() {
            Ok(class @ 1..=5) => Ok(Test::Between(class * 100, class * 100 + 99)),
            _ => Err(format!("{} is not a class of statuses", shown(text))),
        };
    }
    if let Some((from, to)) = text.split_once("..") {
        let (from, to) = (parse_number(kind, from)?, parse_number(kind, to)?);
        // A time range ends before its end, so that ranges of days do not overlap.
        let to = if kind == Kind::Time { to - 1 } else { to };
        return if from <= to { Ok(Test::Between(from, to)) } else { Err("the range is empty".into()) };
    }
    let comparison = Comparison::ALL.into_iter().find(|comparison| text.starts_with(comparison.symbol()));
    if kind == Kind::Time && comparison.is_none_or(|comparison| comparison == Comparison::Equal) {
        return Err("a time needs one of > >= < <= or a range".into());
    }
    let number = text.strip_prefix(comparison.map_or("", Comparison::symbol)).unwrap_or(text);
    Ok(Test::Number(comparison.unwrap_or(Comparison::Equal), parse_number(kind, number)?))
}

/// Reads a text. Only without quotes a star is a pattern.
pub(super) fn parse_text(kind: Kind, text: &str, is_quoted: bool) -> Result<Test, String> {
    match kind {
        Kind::Text | Kind::Name if is_quoted => Ok(Test::Text(Pattern::literal(text))),
        Kind::Text | Kind::Name => {
            if text.matches('*').count() > MAX_STARS {
                return Err(format!("a value has at most {MAX_STARS} stars"));
            }
            Ok(Test::Text(Pattern::with_stars(text)))
        }
        Kind::Choice(choices) => {
            let wanted = text.to_ascii_lowercase();
            let is_any = !is_quoted && wanted == "*";
            if is_any || choices.contains(&wanted.as_str()) {
                return Ok(Test::Text(if is_any {
                    Pattern::with_stars("*")
                } else {
                    Pattern::literal(&wanted)
                }));
            }
            Err(format!("{} is not one of {}", shown(text), choices.join(", ")))
        }
        _ => Err(format!("{} is in quotes; write the value without them", shown(text))),
    }
}

fn parse_number(kind: Kind, text: &str) -> Result<i64, String> {
    let number = match kind {
        Kind::Time => parse_time(text),
        Kind::Duration => {
            with_unit(text, &[("ms", 1), ("s", SECOND), ("m", MINUTE), ("h", HOUR), ("d", DAY), ("", 1)])
        }
        Kind::Money => parse_money(text),
        Kind::Status => text.parse().ok().filter(|status| (100..=599).contains(status)),
        _ => with_unit(text, &[("k", 1_000), ("m", 1_000_000), ("", 1)]),
    };
    number.ok_or_else(|| format!("{} is not {}", shown(text), noun(kind)))
}

fn noun(kind: Kind) -> &'static str {
    match kind {
        Kind::Time => "a time",
        Kind::Duration => "a duration",
        Kind::Money => "an amount",
        Kind::Status => "a status",
        _ => "a number",
    }
}

/// A decimal number with the first unit that fits, rounded.
fn with_unit(text: &str, units: &[(&str, i64)]) -> Option<i64> {
    let (number, unit) = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))?;
    decimal(number)?.checked_mul(Decimal::from(unit))?.round().to_i64()
}

fn parse_money(text: &str) -> Option<i64> {
    let amount = decimal(text.strip_prefix('$').unwrap_or(text))?.normalize();
    if amount.scale() > COST_SCALE {
        return None;
    }
    amount.checked_mul(Decimal::from(10_i64.pow(COST_SCALE)))?.to_i64()
}

/// Digits with an optional fraction, without sign or exponent.
fn decimal(text: &str) -> Option<Decimal> {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    if is_number { Decimal::from_str_exact(text).ok() } else { None }
}

/// An RFC 3339 time, or a day.
fn parse_time(text: &str) -> Option<i64> {
    let time: Timestamp = match text.parse() {
        Ok(time) => time,
        Err(_) if text.len() == 10 => format!("{text}T00:00:00Z").parse().ok()?,
        Err(_) => return None,
    };
    Some(time.0).filter(|time| (0..=MAX_TIME).contains(time))
}

/// A value as a message quotes it.
fn shown(text: &str) -> String {
    let start: String = text.chars().take(40).collect();
    format!("{start:?}")
}
