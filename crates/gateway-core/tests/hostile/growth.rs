//! The cost of an input grows in proportion to its length. The inputs here are valid, so readers keep something of
//! every part, and a search among what was kept would show.

use gateway_core::evaluators::{CallFacts, Evaluator, Subject, SubjectText};
use gateway_core::llm::eventstream;
use serde_json::{Value, json};

use super::cost::lowest_cost;
use super::targets::{self, lossy};

const SHORT: usize = 8 << 10;
const LONG: usize = 16 * SHORT;
/// How much more a byte of the long input may cost.
const MAX_RATIO: f64 = 8.0;

type Input = fn(usize) -> Vec<u8>;
type Case = (&'static str, Input, fn(&[u8]));

fn check(cases: &[Case]) {
    let mut too_expensive = Vec::new();
    for (name, input, run) in cases {
        let short = lowest_cost(*run, &input(SHORT), 0.0);
        let long = lowest_cost(*run, &input(LONG), short * MAX_RATIO);
        if long > short * MAX_RATIO {
            too_expensive.push(format!("{name}: {long:.0} instead of {short:.0} ns/byte"));
        }
    }
    assert!(too_expensive.is_empty(), "{too_expensive:#?}");
}

/// As many items as the length allows.
fn items(length: usize, item: impl Fn(usize) -> Value) -> Vec<Value> {
    let mut items = Vec::new();
    let mut size = 0;
    while size < length {
        items.push(item(items.len()));
        size += items.last().unwrap().to_string().len() + 1;
    }
    items
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn events(length: usize, event: impl Fn(usize) -> String) -> Vec<u8> {
    let mut text = String::new();
    for number in 0.. {
        if text.len() >= length {
            break;
        }
        text.extend(["data: ", &event(number), "\n\n"]);
    }
    text.into_bytes()
}

fn frames(length: usize, name: &str, payload: impl Fn(usize) -> String) -> Vec<u8> {
    let mut frames = Vec::new();
    for number in 0.. {
        if frames.len() >= length {
            break;
        }
        let headers = [(":message-type", "event"), (":event-type", name)];
        frames.extend(eventstream::encode(&headers, payload(number).as_bytes()).unwrap());
    }
    frames
}

/// An object with many members of their own names, besides the given ones.
fn with_names(length: usize, mut object: Value) -> Vec<u8> {
    let members = object.as_object_mut().unwrap();
    for number in 0..length / 12 {
        members.insert(format!("n{number:06}"), 1.into());
    }
    bytes(&object)
}

#[test]
fn requests_are_translated_in_linear_time() {
    let chat: &[Case] = &[
        (
            "calls and results",
            |length| {
                let calls = items(
                    length / 2,
                    |at| json!({"id": format!("c{at}"), "type": "function", "function": {"name": format!("f{at}"), "arguments": "{}"}}),
                );
                let mut messages = vec![json!({"role": "assistant", "content": null, "tool_calls": calls})];
                messages.extend(items(
                    length / 2,
                    |at| json!({"role": "tool", "tool_call_id": format!("c{at}"), "content": "1"}),
                ));
                bytes(&json!({"model": "m", "messages": messages}))
            },
            |body| targets::requests(body, 0),
        ),
        (
            "unknown fields",
            |length| {
                with_names(length, json!({"model": "m", "messages": [{"role": "user", "content": "a"}]}))
            },
            |body| targets::requests(body, 0),
        ),
        (
            "unknown fields of messages",
            |length| {
                let messages =
                    items(length, |at| json!({"role": "user", "content": "a", format!("n{at}"): 1}));
                bytes(&json!({"model": "m", "messages": messages}))
            },
            |body| targets::requests(body, 0),
        ),
        (
            "tools",
            |length| {
                let tools = items(
                    length,
                    |at| json!({"type": "function", "function": {"name": format!("f{at}"), "parameters": {"type": "object"}}}),
                );
                bytes(&json!({"model": "m", "messages": [{"role": "user", "content": "a"}], "tools": tools}))
            },
            |body| targets::requests(body, 0),
        ),
        (
            "system messages",
            |length| {
                let messages = items(length, |at| json!({"role": "system", "content": format!("a{at}")}));
                bytes(&json!({"model": "m", "messages": messages}))
            },
            |body| targets::requests(body, 0),
        ),
        (
            "messages",
            |length| {
                let messages = items(length, |at| json!({"role": "user", "content": format!("a{at}")}));
                bytes(&json!({"model": "m", "messages": messages}))
            },
            |body| targets::requests(body, 0),
        ),
        (
            "allowed tools",
            |length| {
                let names = items(length / 2, |at| json!({"type": "function", "name": format!("x{at}")}));
                let tools = items(
                    length / 2,
                    |at| json!({"type": "function", "name": format!("f{at}"), "parameters": {"type": "object"}}),
                );
                bytes(&json!({"model": "m", "input": "a", "tools": tools,
                    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": names}}))
            },
            |body| targets::requests(body, 1),
        ),
        (
            "calls and results of responses",
            |length| {
                let mut input = items(
                    length / 2,
                    |at| json!({"type": "function_call", "call_id": format!("c{at}"), "name": format!("f{at}"), "arguments": "{}"}),
                );
                input.extend(items(
                    length / 2,
                    |at| json!({"type": "function_call_output", "call_id": format!("c{at}"), "output": "1"}),
                ));
                bytes(&json!({"model": "m", "input": input}))
            },
            |body| targets::requests(body, 1),
        ),
        (
            "calls and results of anthropic",
            |length| {
                let calls = items(
                    length / 2,
                    |at| json!({"type": "tool_use", "id": format!("c{at}"), "name": format!("f{at}"), "input": {}}),
                );
                let results = items(
                    length / 2,
                    |at| json!({"type": "tool_result", "tool_use_id": format!("c{at}"), "content": "1"}),
                );
                bytes(&json!({"model": "m", "max_tokens": 1, "messages": [
                    {"role": "assistant", "content": calls}, {"role": "user", "content": results}]}))
            },
            |body| targets::requests(body, 2),
        ),
        (
            "calls and results of gemini",
            |length| {
                let calls =
                    items(length / 2, |at| json!({"functionCall": {"name": format!("f{at}"), "args": {}}}));
                let mut results = items(
                    length / 2,
                    |at| json!({"functionResponse": {"name": format!("f{at}"), "response": {}}}),
                );
                results.reverse();
                bytes(&json!({"contents": [
                    {"role": "model", "parts": calls}, {"role": "user", "parts": results}]}))
            },
            |body| targets::requests(body, 3),
        ),
        (
            "results without calls of gemini",
            |length| {
                let calls =
                    items(length / 2, |at| json!({"functionCall": {"name": format!("f{at}"), "args": {}}}));
                let results = items(
                    length / 2,
                    |at| json!({"functionResponse": {"name": format!("g{at}"), "response": {}}}),
                );
                bytes(&json!({"contents": [
                    {"role": "model", "parts": calls}, {"role": "user", "parts": results}]}))
            },
            |body| targets::requests(body, 3),
        ),
    ];
    check(chat);
}

#[test]
fn responses_are_translated_in_linear_time() {
    check(&[
        (
            "tool calls",
            |length| {
                let calls = items(
                    length,
                    |at| json!({"id": format!("c{at}"), "type": "function", "function": {"name": "f", "arguments": "{}"}}),
                );
                bytes(&json!({"choices": [{"index": 0, "finish_reason": "tool_calls",
                    "message": {"role": "assistant", "tool_calls": calls}}]}))
            },
            |body| targets::responses(body, 0),
        ),
        (
            "choices",
            |length| {
                let choices = items(
                    length,
                    |at| json!({"index": at, "finish_reason": "stop", "message": {"role": "assistant", "content": "a"}}),
                );
                bytes(&json!({"choices": choices}))
            },
            |body| targets::responses(body, 0),
        ),
        (
            "blocks",
            |length| {
                let blocks = items(
                    length,
                    |at| json!({"type": "tool_use", "id": format!("c{at}"), "name": "f", "input": {}}),
                );
                bytes(&json!({"type": "message", "stop_reason": "end_turn", "content": blocks}))
            },
            |body| targets::responses(body, 1),
        ),
        (
            "parts",
            |length| {
                let parts =
                    items(length, |at| json!({"functionCall": {"name": format!("f{at}"), "args": {}}}));
                bytes(&json!({"candidates": [{"finishReason": "STOP", "content": {"parts": parts}}]}))
            },
            |body| targets::responses(body, 2),
        ),
        (
            "streams of tool calls",
            |length| {
                let calls = items(
                    length,
                    |at| json!({"id": format!("c{at}"), "type": "function", "function": {"name": "f", "arguments": "{}"}}),
                );
                bytes(&json!({"choices": [{"index": 0, "finish_reason": "tool_calls",
                    "message": {"role": "assistant", "tool_calls": calls}}]}))
            },
            |body| targets::synthesize(body, 0),
        ),
        (
            "streams of items",
            |length| {
                let output = items(
                    length,
                    |at| json!({"type": "message", "id": format!("m{at}"), "content": [{"type": "output_text", "text": "a b c"}]}),
                );
                bytes(&json!({"status": "completed", "output": output}))
            },
            |body| targets::synthesize(body, 2),
        ),
    ]);
}

const CHAT_STREAMS: [(&str, Input); 7] = [
    ("choices", |length| {
        events(length, |at| format!(r#"{{"choices":[{{"index":{at},"delta":{{"content":"a"}}}}]}}"#))
    }),
    ("tool calls", |length| {
        events(length, |at| {
            format!(
                r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":{at},"id":"c{at}","function":{{"name":"f","arguments":"{{}}"}}}}]}}}}]}}"#
            )
        })
    }),
    ("tool calls of many choices", |length| {
        events(length, |at| {
            format!(
                r#"{{"choices":[{{"index":{},"delta":{{"tool_calls":[{{"index":{},"id":"c{at}","function":{{"name":"f"}}}}]}}}}]}}"#,
                at % 200,
                at / 200
            )
        })
    }),
    ("tool calls without an index", |length| {
        events(length, |at| {
            format!(
                r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"id":"c{at}","function":{{"name":"f","arguments":"{{}}"}}}}]}}}}]}}"#
            )
        })
    }),
    ("arguments", |length| {
        events(length, |_| {
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"a"}}]}}]}"#
                .to_owned()
        })
    }),
    ("audio", |length| {
        events(length, |_| {
            let data = "QUJD".repeat(80) + "QQ==";
            format!(r#"{{"choices":[{{"index":0,"delta":{{"audio":{{"id":"a","data":"{data}"}}}}}}]}}"#)
        })
    }),
    ("unknown fields", |length| {
        events(length, |at| format!(r#"{{"n{at}":1,"choices":[{{"index":0,"delta":{{"n{at}":"a"}}}}]}}"#))
    }),
];

#[test]
fn chat_streams_are_read_in_linear_time() {
    for (name, input) in CHAT_STREAMS {
        check(&[
            (name, input, |bytes| targets::aggregate(bytes, 0)),
            (name, input, |bytes| targets::streams(bytes, 0)),
            (name, input, |bytes| targets::meter(bytes, 0)),
        ]);
    }
}

#[test]
fn other_streams_are_read_in_linear_time() {
    let anthropic: Input = |length| {
        let mut stream =
            events(1, |_| r#"{"type":"message_start","message":{"id":"1","content":[]}}"#.to_owned());
        stream.extend(events(length, |at| {
            format!(
                r#"{{"type":"content_block_start","index":{at},"content_block":{{"type":"tool_use","id":"c{at}","name":"f","input":{{}}}}}}"#
            )
        }));
        stream
    };
    let arguments: Input = |length| {
        let mut stream =
            events(1, |_| r#"{"type":"message_start","message":{"id":"1","content":[]}}"#.to_owned());
        stream.extend(events(length, |at| {
            if at == 0 {
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"f","input":{}}}"#.to_owned()
            } else {
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"["}}"#
                    .to_owned()
            }
        }));
        stream
    };
    let citations: Input = |length| {
        let mut stream =
            events(1, |_| r#"{"type":"message_start","message":{"id":"1","content":[]}}"#.to_owned());
        stream.extend(events(length, |at| {
            if at == 0 {
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#.to_owned()
            } else {
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"a":1}}}"#
                    .to_owned()
            }
        }));
        stream
    };
    let gemini: Input = |length| {
        events(length, |at| {
            format!(
                r#"{{"candidates":[{{"index":{at},"content":{{"parts":[{{"functionCall":{{"name":"f{at}","args":{{}}}}}}]}}}}]}}"#
            )
        })
    };
    let images: Input = |length| {
        events(length, |_| {
            r#"{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"a/b","data":"QQ=="}},{"text":"a"}]}}]}"#
                .to_owned()
        })
    };
    let items: Input = |length| {
        events(length, |at| {
            format!(
                r#"{{"type":"response.output_item.done","output_index":{at},"item":{{"type":"function_call","id":"i{at}","call_id":"c{at}","name":"f","arguments":"{{}}"}}}}"#
            )
        })
    };
    let cohere: Input = |length| {
        events(length, |at| {
            format!(
                r#"{{"type":"tool-call-start","index":{at},"delta":{{"message":{{"tool_calls":{{"id":"c{at}","type":"function","function":{{"name":"f","arguments":""}}}}}}}}}}"#
            )
        })
    };
    let redacted: Input = |length| {
        frames(length, "contentBlockDelta", |_| {
            let data = "QUJD".repeat(80) + "QQ==";
            format!(
                r#"{{"contentBlockIndex":0,"delta":{{"reasoningContent":{{"redactedContent":"{data}"}}}}}}"#
            )
        })
    };
    let blocks: Input = |length| {
        frames(length, "contentBlockStart", |at| {
            format!(
                r#"{{"contentBlockIndex":{at},"start":{{"toolUse":{{"toolUseId":"c{at}","name":"f"}}}}}}"#
            )
        })
    };
    check(&[
        ("anthropic blocks, aggregated", anthropic, |bytes| targets::aggregate(bytes, 3)),
        ("anthropic blocks", anthropic, |bytes| targets::streams(bytes, 1)),
        ("anthropic arguments, aggregated", arguments, |bytes| targets::aggregate(bytes, 3)),
        ("anthropic arguments", arguments, |bytes| targets::streams(bytes, 1)),
        ("anthropic citations, aggregated", citations, |bytes| targets::aggregate(bytes, 3)),
        ("anthropic citations", citations, |bytes| targets::streams(bytes, 1)),
        ("gemini calls, aggregated", gemini, |bytes| targets::aggregate(bytes, 4)),
        ("gemini calls", gemini, |bytes| targets::streams(bytes, 2)),
        ("gemini images, aggregated", images, |bytes| targets::aggregate(bytes, 4)),
        ("gemini images", images, |bytes| targets::streams(bytes, 2)),
        ("items of responses, aggregated", items, |bytes| targets::aggregate(bytes, 2)),
        ("cohere calls, aggregated", cohere, |bytes| targets::aggregate(bytes, 6)),
        ("cohere calls", cohere, |bytes| targets::streams(bytes, 4)),
        ("bedrock redacted, aggregated", redacted, |bytes| targets::aggregate(bytes, 5)),
        ("bedrock redacted", redacted, |bytes| targets::streams(bytes, 3)),
        ("bedrock blocks, aggregated", blocks, |bytes| targets::aggregate(bytes, 5)),
        ("bedrock blocks", blocks, |bytes| targets::streams(bytes, 3)),
    ]);
}

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
        ("a sandbox call", super::ordinary::chat_request, targets::sandbox_call),
    ]);
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
