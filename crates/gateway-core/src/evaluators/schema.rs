//! Compiles JSON Schemas of tenants. Validation takes time proportional to the parts of the schema times the bytes of the
//! document, so the product is bounded. References must stay inside the schema and must not be recursive.

use std::collections::HashMap;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::pattern;

/// Schemas, subschemas and values, each counted once per reference.
const MAX_EXPANDED_PARTS: u64 = 40_000;
/// The parts of the schema times the bytes of the document.
const MAX_PRODUCT: u64 = 1 << 25;
/// Patterns count by the size of their programs, because they are matched against every string.
const PATTERN_BYTES_PER_PART: usize = 256;

#[derive(Debug)]
pub struct BoundedSchema {
    validator: Validator,
    parts: u64,
}

impl BoundedSchema {
    pub(super) fn compile(schema: &Value) -> Result<Self, String> {
        if !schema.is_object() && !schema.is_boolean() {
            return Err("must be a JSON Schema: an object, or true or false".into());
        }
        let mut counter = ExpandedSize { root: schema, references: HashMap::new() };
        let parts = counter.count(schema)?;
        if parts > MAX_EXPANDED_PARTS {
            return Err("expands to too many parts".into());
        }
        // The regex crate matches in linear time; the default engine backtracks.
        let patterns = PatternOptions::regex().size_limit(pattern::MAX_PROGRAM_BYTES);
        let compiled = jsonschema::options().with_pattern_options(patterns).build(schema);
        let invalid = |error| format!("is not a valid JSON Schema: {}", truncated(&format!("{error}")));
        compiled.map(|validator| Self { validator, parts }).map_err(invalid)
    }

    /// The length of the longest document that is validated in bounded time.
    pub(super) fn max_text_bytes(&self) -> usize {
        usize::try_from(MAX_PRODUCT / self.parts.max(1)).unwrap_or(usize::MAX)
    }

    /// The first violation of the schema, with its location.
    pub(super) fn first_violation(&self, value: &Value) -> Option<String> {
        let error = self.validator.validate(value).err()?;
        let path = error.instance_path().to_string();
        let path = if path.is_empty() { "the document".to_owned() } else { path };
        Some(truncated(&format!("{path}: {error}")))
    }
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
                        ("pattern", Value::String(text)) => pattern_parts(text),
                        ("patternProperties", Value::Object(patterns)) => {
                            let sizes = patterns.keys().map(|text| pattern_parts(text));
                            sizes.fold(self.count(value)?, u64::saturating_add)
                        }
                        _ => self.count(value)?,
                    };
                    sum = sum.saturating_add(parts);
                }
                Ok(sum)
            }
            // A value of `enum` or `required` is compared with the document.
            _ => Ok(1),
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

/// A pattern that does not compile counts as the largest one; compiling the schema reports it.
fn pattern_parts(text: &str) -> u64 {
    let bytes = pattern::program_bytes(text).unwrap_or(pattern::MAX_PROGRAM_BYTES);
    u64::try_from(bytes / PATTERN_BYTES_PER_PART).unwrap_or(u64::MAX)
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
        BoundedSchema::compile(schema).err().unwrap_or_else(|| panic!("{schema} is accepted"))
    }

    #[test]
    fn a_violation_is_reported_with_its_path() {
        let schema = json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/count"}}, "required": ["n"],
            "$defs": {"count": {"type": "integer", "minimum": 1}}});
        let schema = BoundedSchema::compile(&schema).unwrap();
        assert_eq!(schema.first_violation(&json!({"n": 1})), None);
        assert!(schema.first_violation(&json!({"n": 0})).unwrap().starts_with("/n: "));
        assert!(schema.first_violation(&json!({})).unwrap().starts_with("the document: "));
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

    #[test]
    fn the_more_parts_a_schema_has_the_shorter_the_document() {
        let max = |schema: &Value| BoundedSchema::compile(schema).unwrap().max_text_bytes();
        assert!(max(&json!({"type": "object", "required": ["a", "b"]})) > 1 << 20);
        let names: Vec<String> = (0..5_000).map(|number| format!("n{number}")).collect();
        assert!(max(&json!({"enum": names})) < 8 << 10);
        assert!(max(&json!({"items": {"pattern": "a[ab]{500}c"}})) < 256 << 10);
        let keys = json!({"patternProperties": {"a[ab]{500}c": true, "b[ab]{500}c": true}});
        assert!(max(&keys) < 128 << 10);
    }
}
