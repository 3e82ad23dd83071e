//! Tests of JSON Schemas: which are accepted, and what validation costs.

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
    let mut defs = Map::new();
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

/// A schema that is `depth` levels of itself.
fn nested(depth: usize, inner: Value, level: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(inner, |schema, _| level(schema))
}

#[test]
fn unevaluated_parts_are_booleans() {
    for (keyword, instead) in
        [("unevaluatedProperties", "additionalProperties"), ("unevaluatedItems", "use items")]
    {
        let error = rejected(&json!({"anyOf": [{}], keyword: {"type": "string"}}));
        assert!(error.contains(keyword) && error.contains(instead), "{error}");
        let doubling = nested(40, json!(false), |inner| json!({"anyOf": [{}], keyword: inner}));
        assert!(rejected(&doubling).contains(keyword));
        for allowed in [true, false] {
            let schema = json!({"allOf": [{"properties": {"a": true}}], keyword: allowed});
            assert!(BoundedSchema::compile(&schema).is_ok(), "{schema}");
        }
    }
    // A property of that name.
    let named = json!({"properties": {"unevaluatedProperties": {"type": "boolean"}}});
    assert!(BoundedSchema::compile(&named).is_ok());
}

#[test]
fn unevaluated_parts_below_each_other_count_as_often_as_they_are_checked() {
    let levels: [fn(Value) -> Value; 6] = [
        |inner| json!({"anyOf": [inner], "unevaluatedProperties": false}),
        |inner| json!({"allOf": [{"properties": {"a": inner}}], "unevaluatedProperties": false}),
        |inner| json!({"oneOf": [{"items": inner}], "unevaluatedItems": false}),
        |inner| json!({"contains": inner, "unevaluatedItems": false}),
        |inner| json!({"if": inner, "unevaluatedProperties": false}),
        |inner| json!({"dependentSchemas": {"a": inner}, "unevaluatedProperties": false}),
    ];
    for level in levels {
        let error = rejected(&nested(20, json!({"properties": {"a": true}}), level));
        assert!(error.contains("too many parts: unevaluated"), "{error}");
        assert!(BoundedSchema::compile(&nested(2, json!({}), level)).is_ok());
    }
    let mut defs = Map::new();
    for level in 0..20 {
        let next = json!({"$ref": format!("#/$defs/l{}", level + 1), "unevaluatedProperties": false});
        defs.insert(format!("l{level}"), next);
    }
    defs.insert("l20".into(), json!({}));
    assert!(rejected(&json!({"$ref": "#/$defs/l0", "$defs": defs})).contains("too many parts: unevaluated"));
}

#[test]
fn a_part_that_is_checked_again_counts_again() {
    let parts = |schema: &Value| BoundedSchema::compile(schema).unwrap().parts;
    let base = json!({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
    let (open, closed) = (json!({"allOf": [base]}), json!({"allOf": [base], "unevaluatedProperties": false}));
    assert_eq!(parts(&closed), 2 * parts(&open));
    let aside = json!({"properties": {"x": {"enum": ["a", "b"]}}, "unevaluatedProperties": false});
    assert_eq!(parts(&aside), 7, "the properties themselves are not checked again");
}

#[test]
fn references_do_not_make_a_schema_deep() {
    let link = |this: usize, next: usize| (format!("l{this}"), json!({"$ref": format!("#/$defs/l{next}")}));
    let end = |name: &str| (name.to_owned(), json!({}));
    let forwards: Map<String, Value> =
        (0..2_000).map(|level| link(level, level + 1)).chain([end("l2000")]).collect();
    let backwards: Map<String, Value> =
        [end("l0")].into_iter().chain((1..2_000).map(|level| link(level, level - 1))).collect();
    for defs in [forwards, backwards] {
        assert!(rejected(&json!({"$defs": defs})).contains("nested too deeply"));
    }
}

#[test]
fn a_schema_inside_has_no_identifier_of_its_own() {
    let inner = json!({"$id": "http://example.com/x", "$ref": "#/$defs/a", "$defs": {"a": {"not": {}}}});
    let schema = json!({"$defs": {"a": {}}, "properties": {"x": inner}});
    assert!(rejected(&schema).contains("$id is supported at the root"));
    let other = json!({"properties": {"x": {"$schema": "http://json-schema.org/draft-04/schema#"}}});
    assert!(rejected(&other).contains("$schema is supported at the root"));
    let old = json!({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"x": {"id": "x"}}});
    assert!(rejected(&old).contains("id is supported at the root"));
    let generated = json!({"$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://example.com/x",
        "properties": {"a": {"$id": "#/properties/a", "type": "string"}, "$id": {"type": "string"}}});
    assert!(BoundedSchema::compile(&generated).is_ok());
}

#[test]
fn the_errors_of_alternatives_are_not_collected_for_a_large_document() {
    let schema = json!({"anyOf": [{"items": {"type": "string"}}, {"items": {"type": "boolean"}}]});
    let schema = BoundedSchema::compile(&schema).unwrap();
    assert!(schema.first_violation(&json!([1])).unwrap().contains("anyOf"));
    let large = Value::from(vec![1; 100_000]);
    assert!(schema.first_violation(&large).unwrap().contains("too large to say where"));
    assert_eq!(schema.first_violation(&Value::from(vec!["a"; 100_000])), None);
}
