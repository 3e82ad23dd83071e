//! Deterministic evaluators that depend on the subject alone.

use serde_json::Value;

use super::pattern::Pattern;
use super::schema::BoundedSchema;
use super::{NotEvaluated, Subject, Verdict};

/// The bytes that all searches for the values of one evaluator may read: the number of values times the length of the
/// text.
const MAX_SEARCHED_BYTES: usize = 1 << 28;

#[derive(Debug)]
pub enum Check {
    IsJson,
    Schema(Box<BoundedSchema>),
    Contains { expected: ExpectedText, all: bool },
    NotContains { forbidden: ExpectedText },
    Equals(ExpectedText),
    StartsWith(ExpectedText),
    EndsWith(ExpectedText),
    Regex(Box<Pattern>),
    Length { min: u64, max: u64 },
    Latency(i64),
    Cost(f64),
    StatusOk,
}

/// Texts to search for, in lower case if the search ignores case.
#[derive(Debug)]
pub struct ExpectedText {
    values: Vec<String>,
    ignore_case: bool,
}

impl ExpectedText {
    pub fn new(values: Vec<String>, case_sensitive: bool) -> Self {
        let ignore_case = !case_sensitive;
        let values =
            if ignore_case { values.iter().map(|value| value.to_lowercase()).collect() } else { values };
        Self { values, ignore_case }
    }

    /// An error if the text is too long to search for all values.
    fn check_length(&self, text: &str) -> Result<(), NotEvaluated> {
        let max = MAX_SEARCHED_BYTES / self.values.len().max(1);
        check_length(text, max, &format!("{} values", self.values.len()))
    }

    /// Partitions the values into those that match the text and those that do not.
    fn partition(&self, text: &str, matches: impl Fn(&str, &str) -> bool) -> (Vec<&str>, Vec<&str>) {
        let lowercase = if self.ignore_case { Some(text.to_lowercase()) } else { None };
        let text = lowercase.as_deref().unwrap_or(text);
        self.values.iter().map(String::as_str).partition(|value| matches(text, value))
    }

    fn matches(&self, text: &str, matches: impl Fn(&str, &str) -> bool) -> bool {
        self.partition(text, matches).1.is_empty()
    }
}

impl Check {
    pub(super) fn evaluate(&self, subject: &Subject) -> Result<Verdict, NotEvaluated> {
        let facts = &subject.facts;
        let unknown = |fact: &str| NotEvaluated(format!("the {fact} is not known"));
        match self {
            Self::StatusOk => {
                let status = facts.status.ok_or_else(|| unknown("status"))?;
                let verdict =
                    Verdict::binary(status < 400 && !facts.failed, format!("the status is {status}"));
                return Ok(verdict);
            }
            Self::Latency(max) => {
                let latency = facts.latency_ms.ok_or_else(|| unknown("latency"))?;
                return Ok(Verdict::binary(
                    latency <= *max,
                    format!("it took {latency} ms, {max} ms are allowed"),
                ));
            }
            Self::Cost(max) => {
                let cost = facts.cost_usd.ok_or_else(|| unknown("cost"))?;
                return Ok(Verdict::binary(
                    cost <= *max,
                    format!("it cost {cost} USD, {max} USD are allowed"),
                ));
            }
            _ => {}
        }
        match subject.text()? {
            Ok(text) => self.evaluate_text(text),
            Err(missing) => Ok(Verdict::binary(false, missing)),
        }
    }

    /// The time is bounded: a text that is too long for the evaluator is not evaluated.
    fn evaluate_text(&self, text: &str) -> Result<Verdict, NotEvaluated> {
        Ok(match self {
            Self::IsJson => match serde_json::from_str::<serde::de::IgnoredAny>(text) {
                Ok(_) => Verdict::binary(true, "valid JSON"),
                Err(error) => Verdict::binary(false, format!("not valid JSON: {error}")),
            },
            Self::Schema(schema) => {
                check_length(text, schema.max_text_bytes(), "a schema of this size")?;
                match serde_json::from_str::<Value>(text) {
                    Err(error) => Verdict::binary(false, format!("not valid JSON: {error}")),
                    Ok(value) => match schema.first_violation(&value) {
                        None => Verdict::binary(true, "matches the schema"),
                        Some(violation) => Verdict::binary(false, violation),
                    },
                }
            }
            Self::Contains { expected, all } => {
                expected.check_length(text)?;
                let (found, missing) = expected.partition(text, |text, value| text.contains(value));
                let passed = if *all { missing.is_empty() } else { !found.is_empty() };
                let details = if passed {
                    format!("contains {}", quoted(&found))
                } else {
                    format!("does not contain {}", quoted(&missing))
                };
                Verdict::binary(passed, details)
            }
            Self::NotContains { forbidden } => {
                forbidden.check_length(text)?;
                let (found, _) = forbidden.partition(text, |text, value| text.contains(value));
                let details = if found.is_empty() {
                    "contains none of the values".into()
                } else {
                    format!("contains {}", quoted(&found))
                };
                Verdict::binary(found.is_empty(), details)
            }
            Self::Equals(expected) => {
                let passed = expected.matches(text.trim(), |text, value| text == value.trim());
                Verdict::binary(passed, if passed { "equal" } else { "different" })
            }
            Self::StartsWith(expected) => {
                let passed = expected.matches(text, |text, value| text.starts_with(value));
                Verdict::binary(passed, if passed { "starts with the value" } else { "starts differently" })
            }
            Self::EndsWith(expected) => {
                let passed = expected.matches(text, |text, value| text.ends_with(value));
                Verdict::binary(passed, if passed { "ends with the value" } else { "ends differently" })
            }
            Self::Regex(pattern) => {
                check_length(text, pattern.max_text_bytes(), "a pattern of this size")?;
                match pattern.find(text) {
                    Some(start) => Verdict::binary(true, format!("matches at byte {start}")),
                    None => Verdict::binary(false, "no match"),
                }
            }
            Self::Length { min, max } => {
                let length = text.chars().count() as u64;
                Verdict::binary((*min..=*max).contains(&length), format!("{length} characters"))
            }
            Self::Latency(_) | Self::Cost(_) | Self::StatusOk => {
                Verdict::binary(false, "does not apply to text")
            }
        })
    }
}

/// An error if the text is longer than `max` bytes, which is as much as `what` can be evaluated on in bounded time.
fn check_length(text: &str, max: usize, what: &str) -> Result<(), NotEvaluated> {
    if text.len() <= max {
        return Ok(());
    }
    Err(NotEvaluated(format!(
        "the text has {} bytes; {what} is evaluated on at most {max}. Select a shorter field, or simplify the config",
        text.len()
    )))
}

fn quoted(values: &[&str]) -> String {
    let shown = values.iter().take(10).map(|value| {
        let value: String = value.chars().take(80).collect();
        format!("{value:?}")
    });
    shown.collect::<Vec<_>>().join(", ")
}
