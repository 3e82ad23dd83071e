//! Compiles JSON Schemas of tenants. Validation time must be bounded for every schema, so references must stay inside
//! the schema and must not be recursive, and the expanded size is limited.

use std::collections::HashMap;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// Schemas and subschemas, each counted once per reference.
const MAX_EXPANDED_PARTS: u64 = 10_000;
const MAX_REGEX_BYTES: usize = 1 << 20;

pub(super) fn compile(schema: &Value) -> Result<Validator, String> {
    if !schema.is_object() && !schema.is_boolean() {
        return Err("must be a JSON Schema: an object, or true or false".into());
    }
    let mut counter = ExpandedSize { root: schema, references: HashMap::new() };
    if counter.count(schema)? > MAX_EXPANDED_PARTS {
        return Err("expands to too many parts".into());
    }
    // The regex crate matches in linear time; the default engine backtracks.
    let patterns = PatternOptions::regex().size_limit(MAX_REGEX_BYTES).dfa_size_limit(MAX_REGEX_BYTES);
    let compiled = jsonschema::options().with_pattern_options(patterns).build(schema);
    compiled.map_err(|error| format!("is not a valid JSON Schema: {}", truncated(&error.to_string())))
}

/// The first violation of the schema, with its location.
pub(super) fn first_violation(validator: &Validator, value: &Value) -> Option<String> {
    let error = validator.iter_errors(value).next()?;
    let path = error.instance_path().to_string();
    let path = if path.is_empty() { "the document".to_owned() } else { path };
    Some(truncated(&format!("{path}: {error}")))
}

/// Counts the parts of a schema with all references expanded.
struct ExpandedSize<'a> {
    root: &'a Value,
    /// The size of each reference's target; `None` while the reference is being expanded.
    references: HashMap<&'a str, Option<u64>>,
}

impl<'a> ExpandedSize<'a> {
    fn count(&mut self, schema: &'a Value) -> Result<u64, String> {
        match schema {
            Value::Array(items) => {
                items.iter().try_fold(1_u64, |sum, item| Ok(sum.saturating_add(self.count(item)?)))
            }
            Value::Object(object) => {
                let mut sum = 1_u64;
                for (key, value) in object {
                    let parts = match (key.as_str(), value) {
                        ("$ref", Value::String(reference)) => self.count_target(reference)?,
                        ("$dynamicRef" | "$recursiveRef", _) => {
                            return Err(format!("{key} is not supported"));
                        }
                        _ => self.count(value)?,
                    };
                    sum = sum.saturating_add(parts);
                }
                Ok(sum)
            }
            _ => Ok(0),
        }
    }

    fn count_target(&mut self, reference: &'a str) -> Result<u64, String> {
        match self.references.get(reference) {
            Some(Some(parts)) => return Ok(*parts),
            Some(None) => return Err(format!("$ref {} is recursive", truncated(reference))),
            None => {}
        }
        let pointer = reference.strip_prefix('#').filter(|path| path.starts_with('/'));
        let pointer = pointer.ok_or_else(|| {
            format!("$ref {} must point inside the schema, such as #/$defs/name", truncated(reference))
        })?;
        let target = self.root.pointer(&percent_decoded(pointer));
        let target =
            target.ok_or_else(|| format!("the target of $ref {} does not exist", truncated(reference)))?;
        self.references.insert(reference, None);
        let parts = self.count(target)?;
        self.references.insert(reference, Some(parts));
        Ok(parts)
    }
}

/// A pointer in a `$ref` is a URL fragment.
fn percent_decoded(pointer: &str) -> String {
    percent_encoding::percent_decode_str(pointer).decode_utf8_lossy().into_owned()
}

fn truncated(text: &str) -> String {
    text.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rejected(schema: &Value) -> String {
        compile(schema).err().unwrap_or_else(|| panic!("{schema} is accepted"))
    }

    #[test]
    fn a_violation_is_reported_with_its_path() {
        let schema = json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/count"}}, "required": ["n"],
            "$defs": {"count": {"type": "integer", "minimum": 1}}});
        let validator = compile(&schema).unwrap();
        assert_eq!(first_violation(&validator, &json!({"n": 1})), None);
        assert!(first_violation(&validator, &json!({"n": 0})).unwrap().starts_with("/n: "));
        assert!(first_violation(&validator, &json!({})).unwrap().starts_with("the document: "));
    }

    #[test]
    fn invalid_schemas_and_external_or_recursive_references_are_rejected() {
        assert!(rejected(&json!({"type": "nonsense"})).contains("JSON Schema"));
        assert!(rejected(&json!("x")).contains("JSON Schema"));
        assert!(rejected(&json!({"pattern": "("})).contains("JSON Schema"));
        for outside in ["http://127.0.0.1:1/x", "file:///etc/passwd", "other.json", "#anchor", "#"] {
            assert!(rejected(&json!({"$ref": outside})).contains("inside the schema"), "{outside}");
        }
        assert!(rejected(&json!({"$ref": "#/$defs/none"})).contains("does not exist"));
        assert!(rejected(&json!({"$dynamicRef": "#x"})).contains("not supported"));
        let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": {"$ref": "#/$defs/b"}}}, "b": {"items": {"$ref": "#/$defs/a"}}}});
        assert!(rejected(&circle).contains("recursive"));
    }

    #[test]
    fn a_small_schema_that_expands_to_a_huge_one_is_rejected() {
        let mut defs = serde_json::Map::new();
        for level in 0..40 {
            let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
            defs.insert(format!("l{level}"), json!({"anyOf": [next, next]}));
        }
        defs.insert("l40".into(), json!({"type": "integer"}));
        assert!(rejected(&json!({"$ref": "#/$defs/l0", "$defs": defs})).contains("too many parts"));
    }
}
