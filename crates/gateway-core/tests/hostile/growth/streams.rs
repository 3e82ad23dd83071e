//! Streams of every wire format.

use gateway_core::llm::eventstream;

use super::{Input, check};
use crate::targets;

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
