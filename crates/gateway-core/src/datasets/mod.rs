//! Datasets: collections of test cases. What a case is, how large things may be, and the pure parts of importing
//! (`import`), drawing samples (`sample`) and writing cases out (`export`).

pub mod export;
pub mod from_log;
pub mod import;
pub mod sample;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::ids::CaseId;
use crate::time::Timestamp;

/// A case's input, expected and metadata as JSON, together.
pub const MAX_CASE_BYTES: usize = 256 << 10;
pub const MAX_CASES: i64 = 1_000_000;
pub const MAX_DESCRIPTION: usize = 4_096;
pub const MAX_NOTE: usize = 1_024;

/// A stored case. Its three values are any JSON, kept as the compact text that was stored, so that reading a hundred
/// thousand of them builds no trees.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Case {
    pub id: CaseId,
    #[schemars(with = "Value")]
    pub input: Box<RawValue>,
    /// Null when nothing is expected.
    #[schemars(with = "Value")]
    pub expected: Box<RawValue>,
    #[schemars(with = "Value")]
    pub metadata: Box<RawValue>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The content of a case, checked: three compact JSON texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseContent {
    pub input: String,
    pub expected: String,
    pub metadata: String,
}

impl CaseContent {
    /// Metadata that is absent is an empty object; an input must be there.
    pub fn new(input: &Value, expected: &Value, metadata: &Value) -> Result<Self, String> {
        if input.is_null() {
            return Err("input: is required".into());
        }
        let metadata = if metadata.is_null() { "{}".to_owned() } else { metadata.to_string() };
        let content = Self { input: input.to_string(), expected: expected.to_string(), metadata };
        let Self { input, expected, metadata } = &content;
        if [input, expected, metadata].into_iter().any(|text| holds_nul(text)) {
            return Err("texts must not contain NUL characters".into());
        }
        let length = input.len() + expected.len() + metadata.len();
        if length > MAX_CASE_BYTES {
            return Err(format!(
                "a case may have at most {MAX_CASE_BYTES} bytes of JSON, and this has {length}"
            ));
        }
        Ok(content)
    }

    /// A case as callers write it: an object with `input` and perhaps `expected` and `metadata`.
    pub fn from_value(case: &Value) -> Result<Self, String> {
        let Some(case) = case.as_object() else { return Err("a case must be an object with `input`".into()) };
        let field = |name: &str| case.get(name).unwrap_or(&Value::Null);
        Self::new(field("input"), field("expected"), field("metadata"))
    }
}

/// May a dataset of so many cases take so many more?
pub fn check_capacity(cases: i64, more: i64) -> Result<(), String> {
    if cases.saturating_add(more) > MAX_CASES {
        return Err(format!(
            "a dataset holds at most {MAX_CASES} cases; this one has {cases}, and {more} more were sent"
        ));
    }
    Ok(())
}

/// JSON text spells a NUL as an escape, unless that is itself escaped.
fn holds_nul(json: &str) -> bool {
    memchr::memmem::find_iter(json.as_bytes(), b"\\u0000").any(|at| {
        let slashes = json.as_bytes()[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        slashes % 2 == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_case_needs_an_input_and_nothing_else() {
        let content = CaseContent::from_value(&json!({"input": {"b": 1, "a": [true]}, "other": 1})).unwrap();
        assert_eq!(content.input, r#"{"b":1,"a":[true]}"#);
        assert_eq!((content.expected.as_str(), content.metadata.as_str()), ("null", "{}"));
        for bad in [json!({}), json!({"input": null}), json!("x"), json!([1])] {
            assert!(CaseContent::from_value(&bad).unwrap_err().contains("input"), "{bad}");
        }
        assert!(CaseContent::from_value(&json!({"input": ""})).is_ok());
    }

    #[test]
    fn a_case_has_a_greatest_size_and_no_nul() {
        let of = |length: usize| CaseContent::from_value(&json!({"input": "x".repeat(length)}));
        // Two quotes, `null` and `{}` count as well.
        assert!(of(MAX_CASE_BYTES - 8).is_ok());
        assert!(of(MAX_CASE_BYTES - 7).unwrap_err().contains("bytes"));
        assert!(CaseContent::from_value(&json!({"input": "a\0b"})).unwrap_err().contains("NUL"));
        assert!(CaseContent::from_value(&json!({"input": "a\\u0000b"})).is_ok());
    }

    #[test]
    fn a_full_dataset_takes_no_more() {
        assert!(check_capacity(MAX_CASES - 1, 1).is_ok());
        assert!(check_capacity(MAX_CASES - 1, 2).is_err());
        assert!(check_capacity(0, i64::MAX).is_err());
    }
}
