//! The findings of an import, and the tables that say what becomes of each field of an object.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{Finding, Status};
use crate::route::MAX_RETRIES;

/// Longer names of fields are cut in paths.
const MAX_FIELD_CHARS: usize = 128;
const MAX_TIMEOUT_MS: u64 = 86_400_000;
pub const UNKNOWN: &str = "the gateway has no such field; it is ignored";

/// What becomes of a field, and the message about it.
#[derive(Clone, Copy)]
pub enum Fate {
    Exact(&'static str),
    Approximate(&'static str),
    Manual(&'static str),
    Unsupported(&'static str),
    /// The fields of its value have findings of their own.
    Inner,
}

/// The known fields of an object.
pub type Known = [(&'static str, Fate)];

#[derive(Default)]
pub struct Report {
    findings: Vec<Finding>,
    by_path: HashMap<String, usize>,
}

impl Report {
    /// Adds a finding. Of several about one path the worst is kept.
    pub fn set(&mut self, path: &str, status: Status, message: impl Into<String>) {
        let finding = Finding { path: path.to_owned(), status, message: message.into() };
        match self.by_path.get(path) {
            Some(&index) if self.findings[index].status > status => {}
            Some(&index) => self.findings[index] = finding,
            None => {
                self.by_path.insert(path.to_owned(), self.findings.len());
                self.findings.push(finding);
            }
        }
    }

    pub fn fate(&mut self, path: &str, fate: Fate) {
        match fate {
            Fate::Exact(message) => self.set(path, Status::Exact, message),
            Fate::Approximate(message) => self.set(path, Status::Approximate, message),
            Fate::Manual(message) => self.set(path, Status::Manual, message),
            Fate::Unsupported(message) => self.set(path, Status::Unsupported, message),
            Fate::Inner => {}
        }
    }

    /// Adds a finding for each field of an object that is not null.
    pub fn fields(&mut self, path: &str, object: &Map<String, Value>, known: &Known) {
        for (name, value) in object.iter().filter(|(_, value)| !value.is_null()) {
            let fate = known.iter().find(|(known, _)| known == name).map(|(_, fate)| *fate);
            let at = join(path, name);
            match fate {
                // Only objects and lists have fields of their own.
                Some(Fate::Inner) if !(value.is_object() || value.is_array()) => {
                    self.set(&at, Status::Unsupported, "must be an object or a list; it is ignored");
                }
                // An empty one has no fields that could be lost.
                Some(fate) => self.fate(&at, fate),
                None => self.set(&at, Status::Unsupported, UNKNOWN),
            }
        }
    }

    /// The object at a path. A value of another type has a finding.
    pub fn object<'v>(&mut self, path: &str, value: &'v Value) -> Option<&'v Map<String, Value>> {
        match value {
            Value::Object(object) => Some(object),
            Value::Null => None,
            _ => {
                self.set(path, Status::Unsupported, "must be an object; it is ignored");
                None
            }
        }
    }

    /// The list at a path. A value of another type has a finding.
    pub fn list<'v>(&mut self, path: &str, value: Option<&'v Value>) -> &'v [Value] {
        match value {
            Some(Value::Array(list)) => list,
            None | Some(Value::Null) => &[],
            Some(_) => {
                self.set(path, Status::Unsupported, "must be a list; it is ignored");
                &[]
            }
        }
    }

    /// The text of a field. A value of another type has a finding.
    pub fn text<'v>(&mut self, path: &str, object: &'v Map<String, Value>, name: &str) -> Option<&'v str> {
        match object.get(name) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            None | Some(Value::Null | Value::String(_)) => None,
            Some(_) => {
                self.set(&join(path, name), Status::Unsupported, "must be a text; it is ignored");
                None
            }
        }
    }

    /// The number of a field, which may be written as a text. Any other value has a finding.
    pub fn number(&mut self, path: &str, object: &Map<String, Value>, name: &str) -> Option<f64> {
        let value = object.get(name).filter(|value| !value.is_null())?;
        let number = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        let number = number.filter(|number| number.is_finite() && *number >= 0.0);
        if number.is_none() {
            self.set(
                &join(path, name),
                Status::Unsupported,
                "must be a number that is not negative; it is ignored",
            );
        }
        number
    }

    /// A duration in seconds as milliseconds, within what a model may have.
    pub fn seconds(&mut self, path: &str, object: &Map<String, Value>, name: &str) -> Option<u64> {
        let seconds = self.number(path, object, name)?;
        let milliseconds = whole(seconds * 1_000.0);
        if (1..=MAX_TIMEOUT_MS).contains(&milliseconds) {
            return Some(milliseconds);
        }
        self.set(
            &join(path, name),
            Status::Unsupported,
            "a timeout must be above 0 and at most a day; it is ignored",
        );
        None
    }

    /// A number of retries, within what a model may have.
    pub fn retries(&mut self, path: &str, object: &Map<String, Value>, name: &str) -> Option<u32> {
        let retries = whole(self.number(path, object, name)?);
        if retries > u64::from(MAX_RETRIES) {
            self.set(
                &join(path, name),
                Status::Approximate,
                format!("there are at most {MAX_RETRIES} retries at each target"),
            );
        }
        Some(u32::try_from(retries).unwrap_or(MAX_RETRIES).min(MAX_RETRIES))
    }

    pub fn into_findings(self) -> Vec<Finding> {
        self.findings
    }
}

/// A number as a whole one; too large ones are the largest.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates, which is what is wanted"
)]
pub fn whole(number: f64) -> u64 {
    number.round() as u64
}

/// The path of a field of an object.
pub fn join(path: &str, name: &str) -> String {
    let name: String = name.chars().take(MAX_FIELD_CHARS).collect();
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

/// The path of an item of a list.
pub fn item(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}
