//! JSON Schemas of tenants. The time that validation takes must be bounded whatever the schema: references stay inside
//! it and never lead back to themselves, and what it unfolds to has a limit.

use std::collections::HashMap;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// Schemas and subschemas, each counted as often as it is referred to.
const MOST_PARTS: u64 = 10_000;
const REGEX_BYTES: usize = 1 << 20;

pub(super) fn compile(schema: &Value) -> Result<Validator, String> {
    if !schema.is_object() && !schema.is_boolean() {
        return Err("must be a JSON Schema: an object, or true or false".into());
    }
    let mut unfolded = Unfolded { root: schema, known: HashMap::new() };
    if unfolded.parts(schema)? > MOST_PARTS {
        return Err("unfolds to too many parts".into());
    }
    // The regex crate matches in linear time; the default engine would try every way back.
    let patterns = PatternOptions::regex().size_limit(REGEX_BYTES).dfa_size_limit(REGEX_BYTES);
    let compiled = jsonschema::options().with_pattern_options(patterns).build(schema);
    compiled.map_err(|error| format!("is no valid JSON Schema: {}", cut(&error.to_string())))
}

/// The first thing that does not fit.
pub(super) fn first_violation(validator: &Validator, value: &Value) -> Option<String> {
    let error = validator.iter_errors(value).next()?;
    let place = error.instance_path().to_string();
    let place = if place.is_empty() { "the whole".to_owned() } else { place };
    Some(cut(&format!("{place}: {error}")))
}

struct Unfolded<'a> {
    root: &'a Value,
    /// Parts behind each reference; none while it is being followed.
    known: HashMap<&'a str, Option<u64>>,
}

impl<'a> Unfolded<'a> {
    fn parts(&mut self, schema: &'a Value) -> Result<u64, String> {
        match schema {
            Value::Array(items) => {
                items.iter().try_fold(1_u64, |sum, item| Ok(sum.saturating_add(self.parts(item)?)))
            }
            Value::Object(object) => {
                let mut sum = 1_u64;
                for (key, value) in object {
                    let parts = match (key.as_str(), value) {
                        ("$ref", Value::String(to)) => self.behind(to)?,
                        ("$dynamicRef" | "$recursiveRef", _) => {
                            return Err(format!("{key} is not supported"));
                        }
                        _ => self.parts(value)?,
                    };
                    sum = sum.saturating_add(parts);
                }
                Ok(sum)
            }
            _ => Ok(0),
        }
    }

    fn behind(&mut self, reference: &'a str) -> Result<u64, String> {
        match self.known.get(reference) {
            Some(Some(parts)) => return Ok(*parts),
            Some(None) => return Err(format!("$ref {} leads back to itself", cut(reference))),
            None => {}
        }
        let target = reference.strip_prefix('#').filter(|path| path.starts_with('/'));
        let target = target.ok_or_else(|| {
            format!("$ref {} must lead to a place inside the schema, as #/$defs/name", cut(reference))
        })?;
        let found = self.root.pointer(&unescaped(target));
        let found = found.ok_or_else(|| format!("$ref {} leads nowhere", cut(reference)))?;
        self.known.insert(reference, None);
        let parts = self.parts(found)?;
        self.known.insert(reference, Some(parts));
        Ok(parts)
    }
}

/// A pointer in a reference is part of a URL.
fn unescaped(pointer: &str) -> String {
    percent_encoding::percent_decode_str(pointer).decode_utf8_lossy().into_owned()
}

fn cut(text: &str) -> String {
    text.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(schema: &Value) -> String {
        compile(schema).err().unwrap_or_else(|| panic!("{schema} is taken"))
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_place() {
        let schema = json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/count"}}, "required": ["n"],
            "$defs": {"count": {"type": "integer", "minimum": 1}}});
        let validator = compile(&schema).unwrap();
        assert_eq!(first_violation(&validator, &json!({"n": 1})), None);
        assert!(first_violation(&validator, &json!({"n": 0})).unwrap().starts_with("/n: "));
        assert!(first_violation(&validator, &json!({})).unwrap().starts_with("the whole: "));
    }

    #[test]
    fn schemas_that_are_none_or_that_lead_outside_or_into_themselves_are_refused() {
        assert!(refused(&json!({"type": "nonsense"})).contains("JSON Schema"));
        assert!(refused(&json!("x")).contains("JSON Schema"));
        assert!(refused(&json!({"pattern": "("})).contains("JSON Schema"));
        for outside in ["http://127.0.0.1:1/x", "file:///etc/passwd", "other.json", "#anchor", "#"] {
            assert!(refused(&json!({"$ref": outside})).contains("inside the schema"), "{outside}");
        }
        assert!(refused(&json!({"$ref": "#/$defs/none"})).contains("nowhere"));
        assert!(refused(&json!({"$dynamicRef": "#x"})).contains("not supported"));
        let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": {"$ref": "#/$defs/b"}}}, "b": {"items": {"$ref": "#/$defs/a"}}}});
        assert!(refused(&circle).contains("back to itself"));
    }

    #[test]
    fn a_small_schema_that_unfolds_to_a_huge_one_is_refused() {
        let mut defs = serde_json::Map::new();
        for level in 0..40 {
            let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
            defs.insert(format!("l{level}"), json!({"anyOf": [next, next]}));
        }
        defs.insert("l40".into(), json!({"type": "integer"}));
        assert!(refused(&json!({"$ref": "#/$defs/l0", "$defs": defs})).contains("too many parts"));
    }
}
