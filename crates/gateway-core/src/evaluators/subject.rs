//! The subject of an evaluation: the part of a log row or of a dataset's case that an evaluator reads.

use std::str::FromStr;

use rust_decimal::prelude::ToPrimitive as _;
use serde_json::Value;

use super::NotEvaluated;
use crate::llm::preview::{assistant_text, last_user_text};
use crate::logs::{BodyStorage, LogRow};

/// The text that an evaluator reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub side: BodySide,
    /// A JSON pointer into the body; `None` selects the message text.
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
                    "must be response, request, or either with a JSON pointer, such as response:/choices/0",
                );
            }
        };
        match pointer {
            Some(pointer) if !pointer.is_empty() && !pointer.starts_with('/') => {
                Err("a JSON pointer must begin with a slash, such as response:/choices/0")
            }
            pointer => Ok(Self { side, pointer: pointer.map(ToOwned::to_owned) }),
        }
    }
}

/// The text of the selected field, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubjectText {
    Text(String),
    /// The body does not contain the field. The evaluation fails for this reason.
    Missing(String),
    /// The body was not stored, so the field is unknown. The evaluation is skipped.
    Unknown(String),
}

/// Facts about the call besides its texts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CallFacts {
    pub status: Option<u16>,
    /// The call ended with an error, regardless of its status.
    pub failed: bool,
    pub latency_ms: Option<i64>,
    pub cost_usd: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    pub text: SubjectText,
    /// The user's request, for judges that need it as context.
    pub request: Option<String>,
    /// The expected response of a dataset's case.
    pub expected: Option<String>,
    pub facts: CallFacts,
}

impl Subject {
    /// The subject of a log row.
    pub fn from_row(field: &Field, row: &LogRow) -> Self {
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
            Some(pointer) => serde_json::from_slice(body).ok().and_then(|body| text_at(&body, pointer)),
        };
        let text = match found {
            Some(text) => SubjectText::Text(text),
            None if stored == BodyStorage::Off => {
                SubjectText::Unknown(format!("the {} was not stored", field.side.name()))
            }
            None if stored == BodyStorage::Truncated && field.pointer.is_some() => {
                SubjectText::Unknown(format!("the stored {} is truncated", field.side.name()))
            }
            None => SubjectText::Missing(missing_reason(field, row.status)),
        };
        Self {
            text,
            request: last_user_text(&row.request),
            expected: None,
            facts: CallFacts {
                status: Some(row.status),
                failed: row.error_code.is_some(),
                latency_ms: Some(row.latency_ms),
                cost_usd: row.cost_usd.and_then(|cost| cost.to_f64()),
            },
        }
    }

    /// The subject of a dataset's case with its input, output and expected output.
    pub fn from_case(field: &Field, input: &Value, output: Option<&Value>, expected: Option<&Value>) -> Self {
        let side = match field.side {
            BodySide::Request => Some(input),
            BodySide::Response => output,
        };
        let found = side.and_then(|value| match &field.pointer {
            None => text_of(value),
            Some(pointer) => text_at(value, pointer),
        });
        let missing = || match (field.side, output) {
            (BodySide::Response, None) => SubjectText::Unknown(
                "the case has neither metadata.output nor expected, and the run has no target".into(),
            ),
            _ => SubjectText::Missing(missing_reason(field, 200)),
        };
        Self {
            text: found.map_or_else(missing, SubjectText::Text),
            request: text_of(input),
            expected: expected.and_then(text_of),
            facts: CallFacts::default(),
        }
    }

    /// The text to evaluate. The inner error is the reason why it is missing, which fails the evaluation.
    pub(super) fn text(&self) -> Result<Result<&str, &str>, NotEvaluated> {
        match &self.text {
            SubjectText::Text(text) => Ok(Ok(text)),
            SubjectText::Missing(reason) => Ok(Err(reason)),
            SubjectText::Unknown(reason) => Err(NotEvaluated(reason.clone())),
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

fn missing_reason(field: &Field, status: u16) -> String {
    match (&field.pointer, field.side) {
        (Some(pointer), side) => format!("the {} has nothing at {pointer}", side.name()),
        (None, BodySide::Response) if status >= 400 => {
            format!("there is no response: the status is {status}")
        }
        (None, BodySide::Response) => "the response has no text".to_owned(),
        (None, BodySide::Request) => "the request has no text".to_owned(),
    }
}

/// A string as it is, any other value as JSON.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        // A case may contain a whole chat; its last user message is the text.
        Value::Object(_) => {
            Some(last_user_text(value.to_string().as_bytes()).unwrap_or_else(|| value.to_string()))
        }
        value => Some(value.to_string()),
    }
}

fn text_at(body: &Value, pointer: &str) -> Option<String> {
    match body.pointer(pointer)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        value => Some(value.to_string()),
    }
}
