//! A minimal example value of a JSON Schema, for structured output and forced tool calls. It follows the constraints
//! that such schemas use in practice, not the whole standard.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

/// Recursive schemas are cut off with null at this depth.
const MAX_DEPTH: usize = 16;
/// The schemas that are visited, each as often as something refers to it. What is beyond is null or missing.
const MAX_VISITS: usize = 10_000;
/// The length of the example as text.
const MAX_BYTES: usize = 64 << 10;
/// Characters of a reference that cost as much as a visit.
const REFERENCE_BYTES_PER_VISIT: usize = 64;
/// What a value and its separator take at least, for numbers and the names of literals.
const VALUE_BYTES: usize = 8;
/// There are seven types.
const MAX_TYPES: usize = 16;

pub(super) fn example_of(schema: &Value) -> Value {
    if !schema.is_object() {
        return json!({});
    }
    Builder { root: schema, visits: MAX_VISITS, bytes: MAX_BYTES }.build(schema, MAX_DEPTH)
}

/// Builds an example as long as there is something left of both budgets.
struct Builder<'a> {
    root: &'a Value,
    visits: usize,
    bytes: usize,
}

impl<'a> Builder<'a> {
    fn build(&mut self, schema: &'a Value, depth: usize) -> Value {
        let Some(depth) = depth.checked_sub(1) else { return Value::Null };
        if !self.visit(1) || !self.spend(VALUE_BYTES) {
            return Value::Null;
        }
        if let Some(value) =
            schema.get("const").or_else(|| schema.get("default")).or_else(|| schema.pointer("/enum/0"))
        {
            return self.copy(value);
        }
        if let Some(target) = self.target_of(schema) {
            return self.build(target, depth);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(options) = schema.get(key).and_then(Value::as_array) {
                return self.first_of(options, depth);
            }
        }
        if let Some(parts) = schema.get("allOf").and_then(Value::as_array) {
            return self.all_of(parts, depth);
        }
        let kind = match schema.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            Some(Value::Array(kinds)) => {
                let mut kinds = kinds.iter().take(MAX_TYPES).filter_map(Value::as_str);
                kinds.find(|kind| *kind != "null").unwrap_or("null")
            }
            _ if schema.get("properties").is_some() => "object",
            _ if schema.get("items").is_some() => "array",
            _ => "string",
        };
        match kind {
            "object" => self.object(schema, depth),
            "array" => self.array(schema, depth),
            "integer" | "number" => number(schema),
            "boolean" => json!(true),
            "null" => Value::Null,
            _ => self.text(schema),
        }
    }

    /// Whether there is enough left; otherwise nothing is.
    fn visit(&mut self, count: usize) -> bool {
        let left = self.visits.checked_sub(count);
        self.visits = left.unwrap_or(0);
        left.is_some()
    }

    /// Whether there is enough left; otherwise nothing is.
    fn spend(&mut self, bytes: usize) -> bool {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.unwrap_or(0);
        left.is_some()
    }

    fn is_exhausted(&self) -> bool {
        self.visits == 0 || self.bytes == 0
    }

    /// A copy of a value of the schema, or null if it is too long.
    fn copy(&mut self, value: &Value) -> Value {
        if self.spend_value(value) { value.clone() } else { Value::Null }
    }

    fn spend_value(&mut self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.spend(text.len() + VALUE_BYTES),
            Value::Array(items) => self.spend(VALUE_BYTES) && items.iter().all(|item| self.spend_value(item)),
            Value::Object(members) => {
                self.spend(VALUE_BYTES)
                    && members.iter().all(|(name, member)| {
                        self.spend(name.len() + VALUE_BYTES) && self.spend_value(member)
                    })
            }
            _ => self.spend(VALUE_BYTES),
        }
    }

    fn target_of(&mut self, schema: &'a Value) -> Option<&'a Value> {
        let name = schema.get("$ref")?.as_str()?;
        if !self.visit(name.len() / REFERENCE_BYTES_PER_VISIT) {
            return None;
        }
        self.root.pointer(name.strip_prefix('#')?)
    }

    /// An option that was cut off by recursion is the last choice.
    fn first_of(&mut self, options: &'a [Value], depth: usize) -> Value {
        for option in options {
            let value = self.build(option, depth);
            if !value.is_null() || self.is_exhausted() {
                return value;
            }
        }
        Value::Null
    }

    fn all_of(&mut self, parts: &'a [Value], depth: usize) -> Value {
        let mut whole: Option<Value> = None;
        for part in parts {
            let value = self.build(part, depth);
            whole = Some(match whole {
                Some(whole) => merge(whole, value),
                None => value,
            });
            if self.is_exhausted() {
                break;
            }
        }
        whole.unwrap_or(Value::Null)
    }

    fn array(&mut self, schema: &'a Value, depth: usize) -> Value {
        let count = schema.get("minItems").and_then(Value::as_u64).unwrap_or(1).clamp(1, 64);
        let most = schema.get("maxItems").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let before = self.bytes;
        let item = self.build(schema.get("items").unwrap_or(&Value::Null), depth);
        let item_bytes = (before - self.bytes).max(VALUE_BYTES);
        // An item that was cut off is omitted where the schema allows it.
        let count = if item.is_null() && schema.get("minItems").is_none() { 0 } else { count.min(most) };
        let mut items = Vec::new();
        for number in 0..count {
            if number > 0 && !self.spend(item_bytes) {
                break;
            }
            items.push(item.clone());
        }
        Value::Array(items)
    }

    fn object(&mut self, schema: &'a Value, depth: usize) -> Value {
        let required =
            schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if !self.visit(required.len()) {
            return Value::Null;
        }
        let required: HashSet<&str> = required.iter().filter_map(Value::as_str).collect();
        let mut members = Map::new();
        for (name, member) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if self.is_exhausted() || !self.spend(name.len()) {
                break;
            }
            let value = self.build(member, depth);
            if !value.is_null() || required.contains(name.as_str()) {
                members.insert(name.clone(), value);
            }
        }
        Value::Object(members)
    }

    fn text(&mut self, schema: &Value) -> Value {
        let text = match schema.get("format").and_then(Value::as_str) {
            Some("date-time") => "2024-01-01T00:00:00Z",
            Some("date") => "2024-01-01",
            Some("time") => "00:00:00Z",
            Some("email") => "sandbox@example.com",
            Some("uri" | "url") => "https://example.com/",
            Some("uuid") => "00000000-0000-4000-8000-000000000000",
            _ => "sandbox",
        };
        let bound =
            |key: &str| schema.get(key).and_then(Value::as_u64).and_then(|bound| usize::try_from(bound).ok());
        let least = bound("minLength").unwrap_or(0).min(10_000);
        let most = bound("maxLength").unwrap_or(usize::MAX);
        if !self.spend(least.max(text.len()).min(most)) {
            return Value::Null;
        }
        let padded = text.chars().chain(std::iter::repeat_n('x', least.saturating_sub(text.len())));
        json!(padded.take(most).collect::<String>())
    }
}

fn merge(left: Value, right: Value) -> Value {
    match (left, right) {
        (Value::Object(mut left), Value::Object(right)) => {
            left.extend(right);
            Value::Object(left)
        }
        (_, right) => right,
    }
}

fn number(schema: &Value) -> Value {
    let bound = |key: &str| schema.get(key).filter(|bound| bound.is_number());
    let beyond = |value: &Value, step: i64| {
        value.as_i64().map_or_else(|| value.clone(), |whole| json!(whole.saturating_add(step)))
    };
    bound("minimum")
        .cloned()
        .or_else(|| bound("exclusiveMinimum").map(|value| beyond(value, 1)))
        .or_else(|| bound("maximum").cloned())
        .or_else(|| bound("exclusiveMaximum").map(|value| beyond(value, -1)))
        .unwrap_or_else(|| json!(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_fit_the_schemas_that_people_send() {
        for (schema, expected) in [
            (
                json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 3}}, "required": ["city"]}),
                json!({"city": "sandbox", "days": 3}),
            ),
            (json!({"enum": ["b", "a"]}), json!("b")),
            (json!({"type": ["null", "boolean"]}), json!(true)),
            (json!({"anyOf": [{"type": "null"}, {"type": "number", "exclusiveMinimum": 0}]}), json!(1)),
            (
                json!({"allOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"b": {"const": 2}}}]}),
                json!({"a": 1, "b": 2}),
            ),
            (
                json!({"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 2}),
                json!(["san", "san"]),
            ),
            (
                json!({"$ref": "#/$defs/x", "$defs": {"x": {"type": "string", "format": "date"}}}),
                json!("2024-01-01"),
            ),
            (json!({"type": "string", "minLength": 9}), json!("sandboxxx")),
            (json!({}), json!("sandbox")),
            (Value::Null, json!({})),
        ] {
            assert_eq!(example_of(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let tree = json!({"type": "object", "required": ["value"], "properties": {
            "value": {"type": "integer"},
            "children": {"type": "array", "items": {"$ref": "#"}},
            "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        }});
        assert_eq!(example_of(&tree)["value"], json!(1));
        assert_eq!(example_of(&json!({"$ref": "#"})), Value::Null);
    }

    #[test]
    fn a_small_schema_does_not_become_a_large_example() {
        let again = |count: usize| -> Vec<Value> { vec![json!({"$ref": "#"}); count] };
        let named: Map<String, Value> =
            (0..20).map(|number| (format!("p{number}"), json!({"$ref": "#"}))).collect();
        let long = "a".repeat(60_000);
        let deep = (0..14).fold(
            json!({"type": "string"}),
            |items, _| json!({"type": "array", "minItems": 64, "items": items}),
        );
        let copies: Vec<Value> = vec![json!({"const": long}); 50];
        let pairs: Map<String, Value> =
            (0..50).map(|number| (format!("p{number}"), json!({"minLength": 10_000}))).collect();
        for schema in [
            json!({"anyOf": again(20)}),
            json!({"oneOf": again(20)}),
            json!({"allOf": again(20)}),
            json!({"properties": named, "required": named.keys().collect::<Vec<_>>()}),
            json!({"properties": pairs}),
            json!({"allOf": copies}),
            json!({"properties": {"a": {"allOf": again(9)}, "b": {"items": {"$ref": "#"}}}}),
            deep,
        ] {
            let started = std::time::Instant::now();
            let length = example_of(&schema).to_string().len();
            assert!(length <= 2 * MAX_BYTES, "{length} bytes");
            assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
        }
    }

    #[test]
    fn what_is_beyond_the_budget_is_missing() {
        let properties: Map<String, Value> =
            (0..20_000).map(|number| (format!("p{number}"), json!({"type": "boolean"}))).collect();
        let example = example_of(&json!({"type": "object", "properties": properties}));
        let count = example.as_object().unwrap().len();
        assert!((1_000..20_000).contains(&count), "{count} members");
        assert_eq!(example_of(&json!({"const": "a".repeat(MAX_BYTES)})), Value::Null);
    }
}
