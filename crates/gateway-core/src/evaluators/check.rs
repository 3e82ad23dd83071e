//! Evaluators that need nothing but the subject: the same subject always gets the same verdict.

use jsonschema::Validator;
use regex::Regex;
use serde_json::Value;

use super::{NotEvaluated, Subject, Verdict, schema};

#[derive(Debug)]
pub enum Check {
    IsJson,
    Schema(Box<Validator>),
    Contains { wanted: ExpectedText, all: bool },
    NotContains { unwanted: ExpectedText },
    Equals(ExpectedText),
    StartsWith(ExpectedText),
    EndsWith(ExpectedText),
    Regex(Box<Regex>),
    Length { min: u64, max: u64 },
    Latency(i64),
    Cost(f64),
    StatusOk,
}

/// Texts to look for; folded to lower case when case does not matter.
#[derive(Debug)]
pub struct ExpectedText {
    values: Vec<String>,
    folds: bool,
}

impl ExpectedText {
    pub fn new(values: Vec<String>, case_sensitive: bool) -> Self {
        let folds = !case_sensitive;
        Self { values: if folds { values.iter().map(|v| v.to_lowercase()).collect() } else { values }, folds }
    }

    /// The values for which it holds, and those for which it does not.
    fn split(&self, text: &str, holds: impl Fn(&str, &str) -> bool) -> (Vec<&str>, Vec<&str>) {
        let folded = if self.folds { Some(text.to_lowercase()) } else { None };
        let text = folded.as_deref().unwrap_or(text);
        self.values.iter().map(String::as_str).partition(|value| holds(text, value))
    }

    fn one(&self, text: &str, holds: impl Fn(&str, &str) -> bool) -> bool {
        self.split(text, holds).1.is_empty()
    }
}

impl Check {
    pub(super) fn judge(&self, subject: &Subject) -> Result<Verdict, NotEvaluated> {
        let facts = &subject.facts;
        let unknown = |what: &str| NotEvaluated(format!("the {what} is not known"));
        match self {
            Self::StatusOk => {
                let status = facts.status.ok_or_else(|| unknown("status"))?;
                let verdict = Verdict::of(status < 400 && !facts.failed, format!("the status is {status}"));
                return Ok(verdict);
            }
            Self::Latency(max) => {
                let latency = facts.latency_ms.ok_or_else(|| unknown("latency"))?;
                return Ok(Verdict::of(
                    latency <= *max,
                    format!("it took {latency} ms, {max} ms are allowed"),
                ));
            }
            Self::Cost(max) => {
                let cost = facts.cost_usd.ok_or_else(|| unknown("cost"))?;
                return Ok(Verdict::of(cost <= *max, format!("it cost {cost} USD, {max} USD are allowed")));
            }
            _ => {}
        }
        Ok(match subject.text()? {
            Ok(text) => self.judge_text(text),
            Err(nothing) => Verdict::of(false, nothing),
        })
    }

    fn judge_text(&self, text: &str) -> Verdict {
        match self {
            Self::IsJson => match serde_json::from_str::<serde::de::IgnoredAny>(text) {
                Ok(_) => Verdict::of(true, "valid JSON"),
                Err(error) => Verdict::of(false, format!("not valid JSON: {error}")),
            },
            Self::Schema(validator) => match serde_json::from_str::<Value>(text) {
                Err(error) => Verdict::of(false, format!("not valid JSON: {error}")),
                Ok(value) => match schema::first_violation(validator, &value) {
                    None => Verdict::of(true, "fits the schema"),
                    Some(why) => Verdict::of(false, why),
                },
            },
            Self::Contains { wanted, all } => {
                let (found, missing) = wanted.split(text, |text, value| text.contains(value));
                let passed = if *all { missing.is_empty() } else { !found.is_empty() };
                let details = if passed {
                    format!("contains {}", quoted(&found))
                } else {
                    format!("lacks {}", quoted(&missing))
                };
                Verdict::of(passed, details)
            }
            Self::NotContains { unwanted } => {
                let (found, _) = unwanted.split(text, |text, value| text.contains(value));
                let details = if found.is_empty() {
                    "contains none of it".into()
                } else {
                    format!("contains {}", quoted(&found))
                };
                Verdict::of(found.is_empty(), details)
            }
            Self::Equals(wanted) => {
                let passed = wanted.one(text.trim(), |text, value| text == value.trim());
                Verdict::of(passed, if passed { "equal" } else { "different" })
            }
            Self::StartsWith(wanted) => {
                let passed = wanted.one(text, |text, value| text.starts_with(value));
                Verdict::of(passed, if passed { "starts with it" } else { "starts differently" })
            }
            Self::EndsWith(wanted) => {
                let passed = wanted.one(text, |text, value| text.ends_with(value));
                Verdict::of(passed, if passed { "ends with it" } else { "ends differently" })
            }
            Self::Regex(regex) => match regex.find(text) {
                Some(found) => Verdict::of(true, format!("matches at byte {}", found.start())),
                None => Verdict::of(false, "no match"),
            },
            Self::Length { min, max } => {
                let length = text.chars().count() as u64;
                Verdict::of((*min..=*max).contains(&length), format!("{length} characters"))
            }
            Self::Latency(_) | Self::Cost(_) | Self::StatusOk => Verdict::of(false, "not a matter of text"),
        }
    }
}

fn quoted(values: &[&str]) -> String {
    let shown = values.iter().take(10).map(|value| {
        let value: String = value.chars().take(80).collect();
        format!("{value:?}")
    });
    shown.collect::<Vec<_>>().join(", ")
}
