//! What is judged: a log row or a case of a dataset, as far as an evaluator looks at it.

use std::str::FromStr;

use rust_decimal::prelude::ToPrimitive as _;
use serde_json::Value;

use super::Unjudged;
use crate::llm::preview::{assistant_text, last_user_text};
use crate::logs::{LogRow, Stored};

/// Where an evaluator looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub side: Side,
    /// A JSON pointer into the body; without one, the text that was said.
    pub pointer: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
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
            "response" | "output" => Side::Response,
            "request" | "input" => Side::Request,
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
pub enum Seen {
    Text(String),
    /// It was said or answered without this.
    Nothing(String),
    /// It may have been there, but it was not kept.
    Unknown(String),
}

/// What is known besides the texts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Facts {
    pub status: Option<u16>,
    /// It ended with an error, whatever its status.
    pub failed: bool,
    pub latency_ms: Option<i64>,
    pub cost_usd: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    pub seen: Seen,
    /// What was asked, for those who judge the answer by it.
    pub asked: Option<String>,
    /// What was to be answered.
    pub expected: Option<String>,
    pub facts: Facts,
}

impl Subject {
    /// A log row, looked at by one evaluator.
    pub fn of_row(field: &Field, row: &LogRow) -> Self {
        let (body, stored) = match field.side {
            Side::Request => (&row.request, row.request_stored),
            Side::Response => (&row.response, row.response_stored),
        };
        let text = || match field.side {
            Side::Request => last_user_text(&row.request),
            Side::Response if row.status < 400 => assistant_text(&row.response, row.response_is_stream),
            Side::Response => None,
        };
        let found = match &field.pointer {
            None => text(),
            Some(pointer) => serde_json::from_slice(body).ok().and_then(|body| at(&body, pointer)),
        };
        let seen = match found {
            Some(text) => Seen::Text(text),
            None if stored == Stored::Off => Seen::Unknown(format!("the {} was not kept", field.side.name())),
            None if stored == Stored::Truncated && field.pointer.is_some() => {
                Seen::Unknown(format!("the {} was kept only in part", field.side.name()))
            }
            None => Seen::Nothing(nothing(field, row.status)),
        };
        Self {
            seen,
            asked: last_user_text(&row.request),
            expected: None,
            facts: Facts {
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
            Side::Request => Some(input),
            Side::Response => output,
        };
        let found = side.and_then(|value| match &field.pointer {
            None => text_of(value),
            Some(pointer) => at(value, pointer),
        });
        let nothing = || match (field.side, output) {
            (Side::Response, None) => Seen::Unknown(
                "the case has neither metadata.output nor expected, and no target was asked".into(),
            ),
            _ => Seen::Nothing(nothing(field, 200)),
        };
        Self {
            seen: found.map_or_else(nothing, Seen::Text),
            asked: text_of(input),
            expected: expected.and_then(text_of),
            facts: Facts::default(),
        }
    }

    /// The text that is looked at. `Ok(None)`: there is none, which is a matter for the verdict.
    pub(super) fn text(&self) -> Result<Result<&str, &str>, Unjudged> {
        match &self.seen {
            Seen::Text(text) => Ok(Ok(text)),
            Seen::Nothing(why) => Ok(Err(why)),
            Seen::Unknown(why) => Err(Unjudged(why.clone())),
        }
    }
}

impl Side {
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
        (None, Side::Response) if status >= 400 => format!("there is no answer: the status is {status}"),
        (None, Side::Response) => "the response has no text".to_owned(),
        (None, Side::Request) => "the request has no text".to_owned(),
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
