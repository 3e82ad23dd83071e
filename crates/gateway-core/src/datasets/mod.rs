//! Datasets of test cases: validation and size limits of cases, import (`import`), sampling (`sample`) and export
//! (`export`).

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

/// The maximum size of a case: input, expected and metadata as JSON, together.
pub const MAX_CASE_BYTES: usize = 256 << 10;
pub const MAX_CASES: i64 = 1_000_000;
pub const MAX_DESCRIPTION: usize = 4_096;
pub const MAX_NOTE: usize = 1_024;

/// A stored case. Its three JSON values stay in their compact text form, so that reading many cases needs no parsing.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Case {
    pub id: CaseId,
    #[schemars(with = "Value")]
    pub input: Box<RawValue>,
    /// Null if the case has no expected output.
    #[schemars(with = "Value")]
    pub expected: Box<RawValue>,
    #[schemars(with = "Value")]
    pub metadata: Box<RawValue>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The validated content of a case: three compact JSON texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseContent {
    pub input: String,
    pub expected: String,
    pub metadata: String,
}

impl CaseContent {
    /// Validates the values. Input is required; absent metadata becomes an empty object.
    pub fn new(input: &Value, expected: &Value, metadata: &Value) -> Result<Self, String> {
        if input.is_null() {
            return Err("input: is required".into());
        }
        let metadata = if metadata.is_null() { "{}".to_owned() } else { metadata.to_string() };
        let content = Self { input: input.to_string(), expected: expected.to_string(), metadata };
        let Self { input, expected, metadata } = &content;
        if [input, expected, metadata].into_iter().any(|text| contains_nul(text)) {
            return Err("texts must not contain NUL characters".into());
        }
        let length = input.len() + expected.len() + metadata.len();
        if length > MAX_CASE_BYTES {
            return Err(format!(
                "a case may have at most {MAX_CASE_BYTES} bytes of JSON; this one has {length} bytes"
            ));
        }
        Ok(content)
    }

    /// Parses a case: an object with `input` and optionally `expected` and `metadata`.
    pub fn from_value(case: &Value) -> Result<Self, String> {
        let Some(case) = case.as_object() else { return Err("a case must be an object with `input`".into()) };
        let field = |name: &str| case.get(name).unwrap_or(&Value::Null);
        Self::new(field("input"), field("expected"), field("metadata"))
    }
}

/// Checks that a dataset with `cases` cases has room for `added` more.
pub fn check_capacity(cases: i64, added: i64) -> Result<(), String> {
    if cases.saturating_add(added) > MAX_CASES {
        return Err(format!(
            "a dataset can have at most {MAX_CASES} cases; this one has {cases}, and {added} more were sent"
        ));
    }
    Ok(())
}

/// Whether a JSON text contains an escaped NUL. The backslash must not be escaped itself.
fn contains_nul(json: &str) -> bool {
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
    fn a_case_has_a_maximum_size_and_no_nul() {
        let of = |length: usize| CaseContent::from_value(&json!({"input": "x".repeat(length)}));
        // Two quotes, `null` and `{}` count as well.
        assert!(of(MAX_CASE_BYTES - 8).is_ok());
        assert!(of(MAX_CASE_BYTES - 7).unwrap_err().contains("bytes"));
        assert!(CaseContent::from_value(&json!({"input": "a\0b"})).unwrap_err().contains("NUL"));
        assert!(CaseContent::from_value(&json!({"input": "a\\u0000b"})).is_ok());
    }

    #[test]
    fn a_full_dataset_accepts_no_more_cases() {
        assert!(check_capacity(MAX_CASES - 1, 1).is_ok());
        assert!(check_capacity(MAX_CASES - 1, 2).is_err());
        assert!(check_capacity(0, i64::MAX).is_err());
    }
}
