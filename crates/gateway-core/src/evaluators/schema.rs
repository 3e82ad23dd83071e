//! Compiles JSON Schemas of tenants. Validation takes time proportional to the parts of the schema times the bytes of the
//! document, so the product is bounded. What the validator checks several times counts several times. References must
//! stay inside the schema and must not be recursive.

use std::collections::HashMap;

use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};

use super::pattern;

/// Schemas, subschemas and values, each counted once per reference.
const MAX_EXPANDED_PARTS: u64 = 40_000;
/// The levels of objects and arrays, with all references expanded. The validator recurses on each of them.
const MAX_EXPANDED_DEPTH: usize = 256;
/// The parts of the schema times the bytes of the document.
const MAX_PRODUCT: u64 = 1 << 25;
/// The parts of the schema times the values of the document, up to which a violation of alternatives is located: the
/// validator collects every error of every alternative for it.
const MAX_COLLECTED_ERRORS: u64 = 1 << 18;
/// Patterns count by the size of their programs, because they are matched against every string.
const PATTERN_BYTES_PER_PART: usize = 256;

#[derive(Debug)]
pub struct BoundedSchema {
    validator: Validator,
    parts: u64,
    has_alternatives: bool,
}

impl BoundedSchema {
    pub(super) fn compile(schema: &Value) -> Result<Self, String> {
        if !schema.is_object() && !schema.is_boolean() {
            return Err("must be a JSON Schema: an object, or true or false".into());
        }
        let mut counter = ExpandedSize::new(schema);
        let parts = counter.count(schema, 0)?.parts;
        if parts > MAX_EXPANDED_PARTS {
            return Err(match counter.unevaluated {
                None => "expands to too many parts".into(),
                Some(keyword) => format!(
                    "expands to too many parts: {keyword} checks the schemas beside it again, at every level; nest \
                     it less, or use additionalProperties or items"
                ),
            });
        }
        // The regex crate matches in linear time; the default engine backtracks.
        let patterns = PatternOptions::regex().size_limit(pattern::MAX_PROGRAM_BYTES);
        let compiled = jsonschema::options().with_pattern_options(patterns).build(schema);
        let invalid = |error| format!("is not a valid JSON Schema: {}", truncated(&format!("{error}")));
        let has_alternatives = counter.has_alternatives;
        compiled.map(|validator| Self { validator, parts, has_alternatives }).map_err(invalid)
    }

    /// The length of the longest document that is validated in bounded time.
    pub(super) fn max_text_bytes(&self) -> usize {
        usize::try_from(MAX_PRODUCT / self.parts.max(1)).unwrap_or(usize::MAX)
    }

    /// The first violation of the schema, with its location.
    pub(super) fn first_violation(&self, value: &Value) -> Option<String> {
        if self.validator.is_valid(value) {
            return None;
        }
        if self.has_alternatives && self.parts.saturating_mul(values_in(value)) > MAX_COLLECTED_ERRORS {
            return Some("the document: does not match the schema; it is too large to say where".to_owned());
        }
        let error = self.validator.validate(value).err()?;
        let path = error.instance_path().to_string();
        let path = if path.is_empty() { "the document".to_owned() } else { path };
        Some(truncated(&format!("{path}: {error}")))
    }
}

/// The values of a document, itself included.
fn values_in(value: &Value) -> u64 {
    let inner: u64 = match value {
        Value::Array(items) => items.iter().map(values_in).sum(),
        Value::Object(members) => members.values().map(values_in).sum(),
        _ => 0,
    };
    inner + 1
}

/// The size of a part of a schema with all references expanded.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// What is checked for one value, which may be more than what is written.
    parts: u64,
    /// What `unevaluatedProperties` or `unevaluatedItems` of the same schema checks once more, to find what the schemas
    /// beside it have evaluated. Each of these schemas is validated again, and so are those inside it.
    repeated: u64,
    /// Levels of objects and arrays.
    depth: usize,
}

impl Size {
    const ONE: Self = Self { parts: 1, repeated: 0, depth: 1 };

    fn with(self, child: Self) -> Self {
        Self {
            parts: self.parts.saturating_add(child.parts),
            repeated: self.repeated.saturating_add(child.repeated),
            depth: self.depth.max(child.depth + 1),
        }
    }

    /// A schema for the same value as the one that it is in.
    fn in_place(self) -> Self {
        Self { repeated: self.repeated.saturating_add(self.parts), ..self }
    }

    /// A schema for other values, such as those of the properties.
    fn elsewhere(self) -> Self {
        Self { repeated: 0, ..self }
    }
}

/// Counts the parts of a schema with all references expanded.
struct ExpandedSize<'a> {
    root: &'a Value,
    /// The size of each reference's target; `None` while the reference is being expanded.
    references: HashMap<&'a str, Option<Size>>,
    /// Draft 4 names schemas with `id`.
    is_draft_4: bool,
    has_alternatives: bool,
    /// One that is checked.
    unevaluated: Option<&'a str>,
}

impl<'a> ExpandedSize<'a> {
    fn new(root: &'a Value) -> Self {
        let draft = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
        Self {
            root,
            references: HashMap::new(),
            is_draft_4: draft.contains("draft-04"),
            has_alternatives: false,
            unevaluated: None,
        }
    }

    fn count(&mut self, schema: &'a Value, level: usize) -> Result<Size, String> {
        check_depth(level)?;
        match schema {
            Value::Array(items) => {
                items.iter().try_fold(Size::ONE, |sum, item| Ok(sum.with(self.count(item, level + 1)?)))
            }
            Value::Object(object) => self.count_schema(object, level),
            // A value of `enum` or `required` is compared with the document.
            _ => Ok(Size::ONE),
        }
    }

    fn count_schema(&mut self, object: &'a Map<String, Value>, level: usize) -> Result<Size, String> {
        self.check_identifiers(object, level)?;
        let (mut sum, mut repetitions) = (Size::ONE, 0);
        for (key, value) in object {
            if matches!(key.as_str(), "unevaluatedProperties" | "unevaluatedItems") {
                match value {
                    Value::Bool(true) => {}
                    Value::Bool(false) => {
                        repetitions += 1;
                        self.unevaluated = Some(key);
                    }
                    _ => return Err(must_be_boolean(key)),
                }
            }
            sum = sum.with(self.count_keyword(key, value, level + 1)?);
        }
        sum.parts = sum.parts.saturating_add(sum.repeated.saturating_mul(repetitions));
        Ok(sum)
    }

    fn count_keyword(&mut self, key: &'a str, value: &'a Value, level: usize) -> Result<Size, String> {
        Ok(match (key, value) {
            ("$ref", Value::String(reference)) => self.count_target(reference, level)?.in_place(),
            ("$dynamicRef" | "$recursiveRef", _) => return Err(format!("{key} is not supported")),
            ("pattern", Value::String(text)) => Size { parts: pattern_parts(text), ..Size::ONE },
            ("allOf" | "if" | "then" | "else", _) => self.count(value, level)?.in_place(),
            ("anyOf" | "oneOf", _) => {
                self.has_alternatives = true;
                self.count(value, level)?.in_place()
            }
            ("dependentSchemas", Value::Object(schemas)) => self.count_named(schemas, level)?.in_place(),
            ("properties" | "$defs" | "definitions", Value::Object(schemas)) => {
                self.count_named(schemas, level)?.elsewhere()
            }
            ("patternProperties", Value::Object(schemas)) => {
                let patterns = schemas.keys().map(|text| pattern_parts(text)).fold(0, u64::saturating_add);
                let size = self.count_named(schemas, level)?;
                Size { parts: size.parts.saturating_add(patterns), repeated: patterns, ..size }
            }
            ("contains", _) => self.count(value, level)?.elsewhere().in_place(),
            // It is kept a second time, for the error.
            ("not", _) => {
                let size = self.count(value, level)?.elsewhere();
                Size { parts: size.parts.saturating_mul(2), ..size }
            }
            _ => self.count(value, level)?.elsewhere(),
        })
    }

    /// Schemas by the names of properties, which are no keywords.
    fn count_named(&mut self, schemas: &'a Map<String, Value>, level: usize) -> Result<Size, String> {
        check_depth(level)?;
        self.check_identifiers(schemas, level)?;
        schemas.values().try_fold(Size::ONE, |sum, schema| Ok(sum.with(self.count(schema, level + 1)?)))
    }

    /// References below an identifier point into the schema that it names, and are not counted as such.
    fn check_identifiers(&self, object: &Map<String, Value>, level: usize) -> Result<(), String> {
        for key in ["$id", "$schema", "id"] {
            let is_identifier = key != "id" || self.is_draft_4;
            let named = object.get(key).and_then(Value::as_str).is_some_and(|id| !id.starts_with('#'));
            if level > 0 && is_identifier && named {
                return Err(format!("{key} is supported at the root of the schema only"));
            }
        }
        Ok(())
    }

    fn count_target(&mut self, reference: &'a str, level: usize) -> Result<Size, String> {
        match self.references.get(reference) {
            Some(Some(size)) => {
                check_depth(level + size.depth)?;
                return Ok(*size);
            }
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
        let size = self.count(target, level)?;
        self.references.insert(reference, Some(size));
        Ok(size)
    }
}

fn check_depth(level: usize) -> Result<(), String> {
    if level > MAX_EXPANDED_DEPTH {
        return Err(format!(
            "is nested too deeply: more than {MAX_EXPANDED_DEPTH} levels with its references"
        ));
    }
    Ok(())
}

fn must_be_boolean(keyword: &str) -> String {
    let instead = if keyword == "unevaluatedItems" { "items" } else { "additionalProperties" };
    format!("{keyword} must be true or false; use {instead} for a schema of the others")
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
mod tests;
