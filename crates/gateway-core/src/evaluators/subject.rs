//! What is judged: a log row or a case of a dataset, as far as an evaluator looks at it.

use std::str::FromStr;

use rust_decimal::prelude::ToPrimitive as _;
use serde_json::Value;

use super::NotEvaluated;
use crate::llm::preview::{assistant_text, last_user_text};
use crate::logs::{BodyStorage, LogRow};

/// Where an evaluator looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub side: BodySide,
    /// A JSON pointer into the body; without one, the text that was said.
    pub pointer: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodySide {
    Request,
    Response,
}

impl FromStr for Field {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (side, pointer) = match text.split_once(':') {
            Some((side, pointer)) => (side, Some(pointer)),
            None => (text, None),
        };
        let side = match side {
            "response" | "output" => BodySide::Response,
            "request" | "input" => BodySide::Request,
            _ => {
                return Err(
                    "must be response, request, or either with a JSON pointer, as response:/choices/0",
                );
            }
        };
        match pointer {
            Some(pointer) if !pointer.is_empty() && !pointer.starts_with('/') => {
                Err("a JSON pointer begins with a slash, as in response:/choices/0")
            }
            pointer => Ok(Self { side, pointer: pointer.map(ToOwned::to_owned) }),
        }
    }
}

/// What the evaluator finds where it looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubjectText {
    Text(String),
    /// It was said or answered without this.
    Nothing(String),
    /// It may have been there, but it was not kept.
    Unknown(String),
}

/// What is known besides the texts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CallFacts {
    pub status: Option<u16>,
    /// It ended with an error, whatever its status.
    pub failed: bool,
    pub latency_ms: Option<i64>,
    pub cost_usd: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    pub seen: SubjectText,
    /// What was asked, for those who judge the answer by it.
    pub asked: Option<String>,
    /// What was to be answered.
    pub expected: Option<String>,
    pub facts: CallFacts,
}

impl Subject {
    /// A log row, looked at by one evaluator.
    pub fn of_row(field: &Field, row: &LogRow) -> Self {
        let (body, stored) = match field.side {
            BodySide::Request => (&row.request, row.request_stored),
            BodySide::Response => (&row.response, row.response_stored),
        };
        let text = || match field.side {
            BodySide::Request => last_user_text(&row.request),
            BodySide::Response if row.status < 400 => assistant_text(&row.response, row.response_is_stream),
            BodySide::Response => None,
        };
        let found = match &field.pointer {
            None => text(),
            Some(pointer) => serde_json::from_slice(body).ok().and_then(|body| at(&body, pointer)),
        };
        let seen = match found {
            Some(text) => SubjectText::Text(text),
            None if stored == BodyStorage::Off => {
                SubjectText::Unknown(format!("the {} was not kept", field.side.name()))
            }
            None if stored == BodyStorage::Truncated && field.pointer.is_some() => {
                SubjectText::Unknown(format!("the {} was kept only in part", field.side.name()))
            }
            None => SubjectText::Nothing(nothing(field, row.status)),
        };
        Self {
            seen,
            asked: last_user_text(&row.request),
            expected: None,
            facts: CallFacts {
                status: Some(row.status),
                failed: row.error_code.is_some(),
                latency_ms: Some(row.latency_ms),
                cost_usd: row.cost_usd.and_then(|cost| cost.to_f64()),
            },
        }
    }

    /// A case whose answer is at hand: its input, what was answered, and what should have been.
    pub fn of_case(field: &Field, input: &Value, output: Option<&Value>, expected: Option<&Value>) -> Self {
        let side = match field.side {
            BodySide::Request => Some(input),
            BodySide::Response => output,
        };
        let found = side.and_then(|value| match &field.pointer {
            None => text_of(value),
            Some(pointer) => at(value, pointer),
        });
        let nothing = || match (field.side, output) {
            (BodySide::Response, None) => SubjectText::Unknown(
                "the case has neither metadata.output nor expected, and no target was asked".into(),
            ),
            _ => SubjectText::Nothing(nothing(field, 200)),
        };
        Self {
            seen: found.map_or_else(nothing, SubjectText::Text),
            asked: text_of(input),
            expected: expected.and_then(text_of),
            facts: CallFacts::default(),
        }
    }

    /// The text that is looked at. `Ok(None)`: there is none, which is a matter for the verdict.
    pub(super) fn text(&self) -> Result<Result<&str, &str>, NotEvaluated> {
        match &self.seen {
            SubjectText::Text(text) => Ok(Ok(text)),
            SubjectText::Nothing(why) => Ok(Err(why)),
            SubjectText::Unknown(why) => Err(NotEvaluated(why.clone())),
        }
    }
}

impl BodySide {
    fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}

fn nothing(field: &Field, status: u16) -> String {
    match (&field.pointer, field.side) {
        (Some(pointer), side) => format!("the {} has nothing at {pointer}", side.name()),
        (None, BodySide::Response) if status >= 400 => format!("there is no answer: the status is {status}"),
        (None, BodySide::Response) => "the response has no text".to_owned(),
        (None, BodySide::Request) => "the request has no text".to_owned(),
    }
}

/// A text as it is; any other value as JSON.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        // A case may hold a whole chat: then the last thing that was said is what was asked.
        Value::Object(_) => {
            Some(last_user_text(value.to_string().as_bytes()).unwrap_or_else(|| value.to_string()))
        }
        value => Some(value.to_string()),
    }
}

fn at(body: &Value, pointer: &str) -> Option<String> {
    match body.pointer(pointer)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        value => Some(value.to_string()),
    }
}
