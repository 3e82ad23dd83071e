//! Files, and documents that are validated and matched.

use gateway_core::evaluators::{CallFacts, Evaluator, Subject, SubjectText};
use serde_json::{Value, json};

use super::{Input, bytes, check, items, with_names};
use crate::targets::{self, lossy};

#[test]
fn files_are_read_in_linear_time() {
    use gateway_core::cache::canonical_json;
    use gateway_core::datasets::import::{ImportFormat, check as import};
    let columns: Input = |length| {
        let header: String = (0..length / 2 / 8).map(|at| format!(",c{at:06}")).collect::<Vec<_>>().concat();
        format!("input{header}\n{}", "a\n".repeat(length / 2 / 2)).into_bytes()
    };
    let wide: Input = |length| {
        let columns = length.isqrt() / 2;
        let header: String = (0..columns).map(|at| format!(",c{at:06}")).collect::<Vec<_>>().concat();
        let row = format!("a{}\n", ",b".repeat(columns));
        format!("input{header}\n{}", row.repeat(length / row.len())).into_bytes()
    };
    check(&[
        ("CSV with many columns and rows", columns, |bytes| drop(import(ImportFormat::Csv, bytes))),
        ("a wide CSV", wide, |bytes| drop(import(ImportFormat::Csv, bytes))),
        ("bad lines", |length| b"[\n".repeat(length / 2), |bytes| drop(import(ImportFormat::Ndjson, bytes))),
        (
            "bad cases",
            |length| format!("[{}1]", "1,\n".repeat(length / 3)).into_bytes(),
            |bytes| drop(import(ImportFormat::Json, bytes)),
        ),
        (
            "empty lines before a case",
            |length| format!("[{}1]", "\n".repeat(length)).into_bytes(),
            |bytes| drop(import(ImportFormat::Json, bytes)),
        ),
        ("names", |length| with_names(length, json!({})), |body| drop(canonical_json(body, &["stream"]))),
        (
            "variables",
            |length| (0..length / 10).flat_map(|at| format!("{{{{v{at:05}}}}}").into_bytes()).collect(),
            targets::template,
        ),
        (
            "a template with a mistake at its end",
            |length| format!("{}{{{{", "a\n".repeat(length / 2)).into_bytes(),
            targets::template,
        ),
        (
            "query parameters",
            |length| {
                let query: String =
                    (0..length / 10).map(|at| format!("p{at:06}=1&")).collect::<Vec<_>>().concat();
                format!("/a?{query}").into_bytes()
            },
            targets::sign,
        ),
        ("segments", |length| "/models".repeat(length / 7).into_bytes(), targets::paths),
        ("scopes", |length| "model:gpt,".repeat(length / 10).into_bytes(), targets::chains),
        (
            "attributes of a resource",
            |length| {
                let attributes =
                    items(length, |at| json!({"key": format!("a{at}"), "value": {"stringValue": "b"}}));
                bytes(
                    &json!({"resourceSpans": [{"resource": {"attributes": attributes}, "scopeSpans": [{"spans":
                    vec![targets::span(); 10]}]}]}),
                )
            },
            targets::ingest_json,
        ),
        (
            "attributes of a span",
            |length| {
                let mut span = targets::span();
                let attributes = items(
                    length,
                    |at| json!({"key": format!("gen_ai.prompt.{at}.content"), "value": {"stringValue": "b"}}),
                );
                span["attributes"].as_array_mut().unwrap().extend(attributes);
                bytes(&json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))
            },
            targets::ingest_json,
        ),
        ("a sandbox call", crate::ordinary::chat_request, targets::sandbox_call),
        (
            "alternatives that refer to their schema",
            |length| itself("anyOf", length),
            targets::sandbox_schema,
        ),
        ("parts that refer to their schema", |length| itself("allOf", length), targets::sandbox_schema),
        (
            "properties that refer to their schema",
            |length| {
                let references = (0..length / 25).map(|at| (format!("p{at:06}"), json!({"$ref": "#"})));
                bytes(&json!({"properties": references.collect::<serde_json::Map<_, _>>()}))
            },
            targets::sandbox_schema,
        ),
    ]);
}

/// A schema whose every part is the schema itself.
fn itself(keyword: &str, length: usize) -> Vec<u8> {
    bytes(&json!({keyword: items(length, |_| json!({"$ref": "#"}))}))
}

fn evaluate(kind: &str, name: &str, config: &Value, text: &[u8]) {
    let evaluator = Evaluator::parse(kind, name, config).unwrap();
    let text = SubjectText::Text(lossy(text).into_owned());
    evaluator.evaluate(&Subject { text, request: None, expected: None, facts: CallFacts::default() });
}

fn validate(schema: &Value, document: &[u8]) {
    evaluate("static", "json_schema", &json!({"schema": schema}), document);
}

fn objects(length: usize) -> Vec<u8> {
    bytes(&Value::from(items(length, |at| json!({"a": at, "b": {"c": [at]}}))))
}

#[test]
fn documents_are_validated_in_linear_time() {
    check(&[
        ("unique objects", objects, |body| validate(&json!({"uniqueItems": true}), body)),
        (
            "unique numbers",
            |length| bytes(&Value::from(items(length, |at| json!(at)))),
            |body| validate(&json!({"uniqueItems": true}), body),
        ),
        ("contains", objects, |body| {
            validate(&json!({"contains": {"properties": {"a": {"const": -1}}, "required": ["a"]}}), body);
        }),
        (
            "patterns of names",
            |length| with_names(length, json!({})),
            |body| {
                let schema = json!({"patternProperties": {"^n.*7$": {"type": "integer"}, "x{10}": true},
                    "additionalProperties": {"type": "integer"}, "propertyNames": {"maxLength": 9}});
                validate(&schema, body);
            },
        ),
        (
            "unevaluated properties",
            |length| with_names(length, json!({})),
            |body| {
                let schema = json!({"allOf": [{"properties": {"n000001": true}}, {"patternProperties": {"^n": true}}],
                    "unevaluatedProperties": false});
                validate(&schema, body);
            },
        ),
        ("unevaluated items", objects, |body| {
            validate(&json!({"allOf": [{"contains": {"type": "object"}}], "unevaluatedItems": false}), body);
        }),
        ("alternatives", objects, |body| {
            let parts: Vec<Value> =
                (0..5).map(|at| json!({"properties": {"a": {"minimum": at}}, "required": ["z"]})).collect();
            validate(&json!({"items": {"anyOf": parts}}), body);
        }),
        ("nested alternatives", objects, |body| {
            let mut part = json!({"required": ["z"]});
            for _ in 0..3 {
                part = json!({"oneOf": [part, {"allOf": [part]}]});
            }
            validate(&json!({"items": part}), body);
        }),
        ("a web of references", objects, |body| {
            let mut parts = serde_json::Map::new();
            for level in 0..3 {
                let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
                parts.insert(format!("l{level}"), json!({"anyOf": [next, next]}));
            }
            parts.insert("l3".into(), json!({"type": "string"}));
            validate(&json!({"items": {"$ref": "#/$defs/l0"}, "$defs": parts}), body);
        }),
    ]);
}

#[test]
fn texts_are_matched_in_linear_time() {
    let random: Input = |length| {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if state >> 63 == 0 { b'a' } else { b'b' }
        };
        (0..length).map(|_| next()).collect()
    };
    let letters: Input = |length| vec![b'a'; length];
    check(&[
        ("an almost matching run", random, |text| {
            evaluate("static", "regex", &json!({"pattern": "a[ab]{40}[^ab]"}), text);
        }),
        ("nested repetition", letters, |text| {
            evaluate("static", "regex", &json!({"pattern": "(a*)*b"}), text);
        }),
        ("alternatives", letters, |text| {
            evaluate("static", "regex", &json!({"pattern": "(a|aa|aaa)+$|(a?){20}a{20}b"}), text);
        }),
        ("values", letters, |text| {
            let values: Vec<String> = (0..50).map(|at| format!("{}b{at}", "a".repeat(50))).collect();
            evaluate("static", "contains", &json!({"values": values}), text);
        }),
        ("a long value", letters, |text| {
            evaluate("static", "contains", &json!({"value": "a".repeat(9_000) + "b"}), text);
        }),
    ]);
}
