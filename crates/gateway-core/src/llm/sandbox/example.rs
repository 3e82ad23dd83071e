//! A minimal example value of a JSON Schema, for structured output and forced tool calls. It follows the constraints
//! that such schemas use in practice, not the whole standard.

use serde_json::{Map, Value, json};

/// Recursive schemas are cut off with null at this depth.
const MAX_DEPTH: usize = 16;

pub(super) fn example_of(schema: &Value) -> Value {
    let value = build(schema, schema, MAX_DEPTH);
    if schema.is_object() { value } else { json!({}) }
}

fn build(schema: &Value, root: &Value, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else { return Value::Null };
    if let Some(value) =
        schema.get("const").or_else(|| schema.get("default")).or_else(|| schema.pointer("/enum/0"))
    {
        return value.clone();
    }
    if let Some(target) =
        schema.get("$ref").and_then(Value::as_str).and_then(|name| root.pointer(name.strip_prefix('#')?))
    {
        return build(target, root, depth);
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(options) = schema.get(key).and_then(Value::as_array) {
            // An option that was cut off by recursion is the last choice.
            let whole =
                options.iter().map(|option| build(option, root, depth)).find(|value| !value.is_null());
            return whole.unwrap_or(Value::Null);
        }
    }
    if let Some(parts) = schema.get("allOf").and_then(Value::as_array) {
        let built = parts.iter().map(|part| build(part, root, depth));
        return built.reduce(merge).unwrap_or(Value::Null);
    }
    let kind = match schema.get("type") {
        Some(Value::String(kind)) => kind.as_str(),
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("null")
        }
        _ if schema.get("properties").is_some() => "object",
        _ if schema.get("items").is_some() => "array",
        _ => "string",
    };
    match kind {
        "object" => object(schema, root, depth),
        "array" => {
            let count = schema.get("minItems").and_then(Value::as_u64).unwrap_or(1).clamp(1, 64);
            let most = schema.get("maxItems").and_then(Value::as_u64).unwrap_or(u64::MAX);
            let item = build(schema.get("items").unwrap_or(&Value::Null), root, depth);
            // An item that was cut off is omitted where the schema allows it.
            let count = if item.is_null() && schema.get("minItems").is_none() { 0 } else { count.min(most) };
            (0..count).map(|_| item.clone()).collect()
        }
        "integer" | "number" => number(schema),
        "boolean" => json!(true),
        "null" => Value::Null,
        _ => text(schema),
    }
}

fn object(schema: &Value, root: &Value, depth: usize) -> Value {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut members = Map::new();
    for (name, member) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let value = build(member, root, depth);
        if !value.is_null() || required.contains(&name.as_str()) {
            members.insert(name.clone(), value);
        }
    }
    Value::Object(members)
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

fn text(schema: &Value) -> Value {
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
    let padded = text.chars().chain(std::iter::repeat_n('x', least.saturating_sub(text.len())));
    json!(padded.take(most).collect::<String>())
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
}
