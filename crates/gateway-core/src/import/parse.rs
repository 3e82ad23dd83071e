//! Texts of sources as values. The YAML library runs with a resource budget, because the text is untrusted.

use serde_json::{Map, Value};

use super::{ImportError, MAX_SOURCE_BYTES};

const MAX_DEPTH: usize = 32;
const MAX_NODES: usize = 400_000;
const MAX_REASON_CHARS: usize = 200;

/// A YAML document. Anchors and merge keys are expanded within the budget.
pub fn yaml(text: &str) -> Result<Map<String, Value>, ImportError> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 2 * MAX_NODES,
            max_nodes: MAX_NODES,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_aliases: 10_000,
            max_anchors: 1_000,
            max_documents: 1,
            max_merge_keys: 10_000,
            max_total_scalar_bytes: MAX_SOURCE_BYTES,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: 8,
        },
        with_snippet: false,
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match serde_saphyr::from_str_with_options::<Value>(text, options) {
        Ok(value) => object(value, "YAML"),
        Err(error) => Err(malformed("YAML", &error.to_string())),
    }
}

pub fn json(text: &str) -> Result<Value, ImportError> {
    serde_json::from_str(text.strip_prefix('\u{feff}').unwrap_or(text))
        .map_err(|error| malformed("JSON", &error.to_string()))
}

pub fn object(value: Value, format: &str) -> Result<Map<String, Value>, ImportError> {
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err(ImportError::Malformed(format!("the {format} must be an object of fields"))),
    }
}

pub fn malformed(format: &str, why: &str) -> ImportError {
    let why: String = why.chars().take(MAX_REASON_CHARS).collect();
    ImportError::Malformed(format!("it is not valid {format}: {why}"))
}
