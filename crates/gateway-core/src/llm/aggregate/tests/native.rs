//! Anthropic, Gemini, Bedrock and Cohere.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use super::*;
use crate::llm::eventstream;

pub(super) const ANTHROPIC: [&str; 19] = [
    r#"{"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":472,"cache_creation_input_tokens":0,"cache_read_input_tokens":5,"output_tokens":2,"service_tier":"standard"}}}"#,
    r#"{"type":"ping"}"#,
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me "}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"see."}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQBCgIYAhIM"}}"#,
    r#"{"type":"content_block_stop","index":0}"#,
    r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"","citations":[]}}"#,
    r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Okay"}}"#,
    r#"{"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{"type":"char_location","cited_text":"x","document_index":0}}}"#,
    r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":", let's"}}"#,
    r#"{"type":"content_block_stop","index":1}"#,
    r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_01","name":"get_weather","input":{}}}"#,
    r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}"#,
    r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"location\": \"San"}}"#,
    r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":" Francisco\"}"}}"#,
    r#"{"type":"content_block_stop","index":2}"#,
    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":89}}"#,
    r#"{"type":"message_stop"}"#,
];

pub(super) const GEMINI: [&str; 4] = [
    r#"{"candidates":[{"content":{"parts":[{"text":"Let me","thought":true}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":10,"totalTokenCount":10},"modelVersion":"gemini-2.5-flash","responseId":"r1"}"#,
    r#"{"candidates":[{"content":{"parts":[{"text":" see","thought":true},{"text":"It is"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":2,"totalTokenCount":12},"modelVersion":"gemini-2.5-flash","responseId":"r1"}"#,
    r#"{"candidates":[{"content":{"parts":[{"text":" sunny"},{"functionCall":{"name":"get_weather","args":{"city":"Rome"},"id":"c1"},"thoughtSignature":"c2ln"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":4,"totalTokenCount":14},"modelVersion":"gemini-2.5-flash","responseId":"r1"}"#,
    r#"{"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP","index":0,"groundingMetadata":{"webSearchQueries":["weather"]}}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":5,"thoughtsTokenCount":7,"totalTokenCount":22},"modelVersion":"gemini-2.5-flash","responseId":"r1"}"#,
];

pub(super) const COHERE: [&str; 13] = [
    r#"{"type":"message-start","id":"29f1","delta":{"message":{"role":"assistant","content":[],"tool_plan":"","tool_calls":[],"citations":[]}}}"#,
    r#"{"type":"tool-plan-delta","delta":{"message":{"tool_plan":"I will"}}}"#,
    r#"{"type":"tool-plan-delta","delta":{"message":{"tool_plan":" look."}}}"#,
    r#"{"type":"tool-call-start","index":0,"delta":{"message":{"tool_calls":{"id":"w_1","type":"function","function":{"name":"get_weather","arguments":""}}}}}"#,
    r#"{"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":"{\"city\":"}}}}}"#,
    r#"{"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":"\"Rome\"}"}}}}}"#,
    r#"{"type":"tool-call-end","index":0}"#,
    r#"{"type":"content-start","index":0,"delta":{"message":{"content":{"type":"text","text":""}}}}"#,
    r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"The "}}},"logprobs":{"text":"The ","token_ids":[1],"logprobs":[-0.1]}}"#,
    r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"LLM"}}}}"#,
    r#"{"type":"content-end","index":0}"#,
    r#"{"type":"citation-start","index":0,"delta":{"message":{"citations":{"start":4,"end":7,"text":"LLM","sources":[{"type":"document","id":"doc:0"}]}}}}"#,
    r#"{"type":"message-end","delta":{"finish_reason":"COMPLETE","usage":{"billed_units":{"input_tokens":5,"output_tokens":3},"tokens":{"input_tokens":71,"output_tokens":3}}}}"#,
];

pub(super) fn converse() -> Vec<u8> {
    converse_frames(&[
        ("messageStart", r#"{"role":"assistant","p":"abc"}"#),
        (
            "contentBlockDelta",
            r#"{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"Let me"}},"p":"ab"}"#,
        ),
        ("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":" see"}}}"#),
        ("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"reasoningContent":{"signature":"sig"}}}"#),
        ("contentBlockStop", r#"{"contentBlockIndex":0}"#),
        ("contentBlockDelta", r#"{"contentBlockIndex":1,"delta":{"text":"Hel"}}"#),
        ("contentBlockDelta", r#"{"contentBlockIndex":1,"delta":{"text":"lo"}}"#),
        ("contentBlockStop", r#"{"contentBlockIndex":1}"#),
        (
            "contentBlockStart",
            r#"{"contentBlockIndex":2,"start":{"toolUse":{"toolUseId":"t1","name":"top_song"}}}"#,
        ),
        ("contentBlockDelta", r#"{"contentBlockIndex":2,"delta":{"toolUse":{"input":"{\"sign\":"}}}"#),
        ("contentBlockDelta", r#"{"contentBlockIndex":2,"delta":{"toolUse":{"input":"\"WZPZ\"}"}}}"#),
        ("contentBlockStop", r#"{"contentBlockIndex":2}"#),
        ("messageStop", r#"{"stopReason":"tool_use","p":"abcd"}"#),
        (
            "metadata",
            r#"{"usage":{"inputTokens":30,"outputTokens":8,"totalTokens":38},"metrics":{"latencyMs":12},"p":"x"}"#,
        ),
    ])
}

pub(super) fn converse_frames(events: &[(&str, &str)]) -> Vec<u8> {
    let frame = |(name, payload): &(&str, &str)| {
        eventstream::encode(&[(":event-type", name), (":message-type", "event")], payload.as_bytes()).unwrap()
    };
    events.iter().flat_map(frame).collect()
}

fn message() -> Value {
    json!({
        "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [
            {"type": "thinking", "thinking": "Let me see.", "signature": "EqQBCgIYAhIM"},
            {"type": "text", "text": "Okay, let's", "citations": [{"type": "char_location", "cited_text": "x", "document_index": 0}]},
            {"type": "tool_use", "id": "toolu_01", "name": "get_weather", "input": {"location": "San Francisco"}},
        ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {
            "input_tokens": 472, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 5,
            "output_tokens": 89, "service_tier": "standard",
        },
    })
}

#[test]
fn a_message_of_anthropic_gets_its_blocks_and_the_last_usage() {
    assert_eq!(aggregated(WireFormat::Anthropic, &typed(&ANTHROPIC)), message());
}

#[test]
fn a_message_of_anthropic_on_bedrock_is_the_same_message() {
    let wrap = |event: &&str| ("chunk", json!({"bytes": STANDARD.encode(event)}).to_string());
    let wrapped: Vec<(&str, String)> = ANTHROPIC.iter().map(wrap).collect();
    let frames: Vec<(&str, &str)> = wrapped.iter().map(|(name, data)| (*name, &**data)).collect();
    let body =
        aggregate_stream(WireFormat::Anthropic, BodyFraming::EventStream, &converse_frames(&frames)).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), message());
}

#[test]
fn a_tool_input_that_ran_out_of_tokens_stays_empty() {
    let mut events = ANTHROPIC.to_vec();
    events.remove(15);
    let cut = r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":9}}"#;
    events[16] = cut;
    let body = aggregated(WireFormat::Anthropic, &typed(&events));
    assert_eq!(body["content"][2]["input"], json!({}));
    assert_eq!(body["stop_reason"], "max_tokens");
    events[16] = ANTHROPIC[17];
    assert_eq!(
        fails(WireFormat::Anthropic, &typed(&events)),
        AggregateError::UnsupportedResponse("the input of a tool call is not JSON")
    );
}

#[test]
fn a_synthesized_message_starts_extends_and_stops_each_block() {
    let events = synthesize_stream(WireFormat::Anthropic, message().to_string().as_bytes(), false).unwrap();
    let name = |event: &Vec<u8>| {
        let text = String::from_utf8(event.clone()).unwrap();
        text.lines().next().unwrap().strip_prefix("event: ").unwrap().to_owned()
    };
    let mut names: Vec<String> = events.iter().map(name).collect();
    names.dedup();
    let block = ["content_block_start", "content_block_delta", "content_block_stop"];
    let blocks = [block, block, block].concat();
    assert_eq!(names, [&["message_start"], &*blocks, &["message_delta", "message_stop"]].concat());
    let first: Value =
        serde_json::from_str(String::from_utf8(events[0].clone()).unwrap().split_once("data: ").unwrap().1)
            .unwrap();
    assert_eq!(first["message"]["content"], json!([]));
    assert_eq!(first["message"]["stop_reason"], Value::Null);
    assert_eq!(first["message"]["usage"]["input_tokens"], 472);
}

fn generated() -> Value {
    json!({
        "candidates": [{
            "content": {"role": "model", "parts": [
                {"text": "Let me see", "thought": true},
                {"text": "It is sunny"},
                {"functionCall": {"name": "get_weather", "args": {"city": "Rome"}, "id": "c1"}, "thoughtSignature": "c2ln"},
            ]},
            "finishReason": "STOP", "index": 0, "groundingMetadata": {"webSearchQueries": ["weather"]},
        }],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 7, "totalTokenCount": 22},
        "modelVersion": "gemini-2.5-flash", "responseId": "r1",
    })
}

#[test]
fn a_gemini_response_joins_texts_and_keeps_thoughts_and_signatures_apart() {
    assert_eq!(aggregated(WireFormat::Gemini, &sse(&GEMINI)), generated());
}

#[test]
fn a_gemini_array_is_aggregated_like_its_events() {
    let array = format!("[{}\n]", GEMINI.join("\n,\r\n"));
    let body = aggregate_stream(WireFormat::Gemini, BodyFraming::Json, array.as_bytes()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), generated());
    assert_eq!(
        aggregate_stream(WireFormat::Gemini, BodyFraming::Json, &array.as_bytes()[..300]),
        Err(AggregateError::Incomplete)
    );
}

#[test]
fn a_blocked_gemini_prompt_is_a_complete_response() {
    let blocked = r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}"#;
    let body: Value = serde_json::from_str(blocked).unwrap();
    assert_eq!(aggregated(WireFormat::Gemini, &sse(&[blocked])), body);
    assert_eq!(aggregated(WireFormat::Gemini, &synthesized(WireFormat::Gemini, &body)), body);
}

#[test]
fn candidates_citations_and_probabilities_of_gemini_are_added_up() {
    let events = [
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}],"role":"model"},"index":0,"citationMetadata":{"citationSources":[{"uri":"u1"}]},"logprobsResult":{"chosenCandidates":[{"token":"a"}]}},{"content":{"parts":[{"text":"x"}],"role":"model"},"index":1}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"b"}],"role":"model"},"finishReason":"STOP","index":0,"citationMetadata":{"citationSources":[{"uri":"u2"}]},"logprobsResult":{"chosenCandidates":[{"token":"b"}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"s"}],"role":"model"},"finishReason":"MAX_TOKENS","index":1}]}"#,
    ];
    assert_eq!(
        aggregated(WireFormat::Gemini, &sse(&events)),
        json!({"candidates": [
            {
                "content": {"role": "model", "parts": [{"text": "ab"}]}, "finishReason": "STOP", "index": 0,
                "citationMetadata": {"citationSources": [{"uri": "u1"}, {"uri": "u2"}]},
                "logprobsResult": {"chosenCandidates": [{"token": "a"}, {"token": "b"}]},
            },
            {
                "content": {"role": "model", "parts": [{"text": "x", "thoughtSignature": "s"}]},
                "finishReason": "MAX_TOKENS", "index": 1,
            },
        ]})
    );
}

#[test]
fn a_converse_stream_gets_its_blocks_stop_and_metadata() {
    assert_eq!(
        aggregated(WireFormat::Bedrock, &converse()),
        json!({
            "output": {"message": {"role": "assistant", "content": [
                {"reasoningContent": {"reasoningText": {"text": "Let me see", "signature": "sig"}}},
                {"text": "Hello"},
                {"toolUse": {"toolUseId": "t1", "name": "top_song", "input": {"sign": "WZPZ"}}},
            ]}},
            "stopReason": "tool_use",
            "usage": {"inputTokens": 30, "outputTokens": 8, "totalTokens": 38},
            "metrics": {"latencyMs": 12},
        })
    );
}

#[test]
fn cited_text_of_converse_becomes_one_cited_block() {
    let frames = converse_frames(&[
        ("messageStart", r#"{"role":"assistant"}"#),
        ("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"It says"}}"#),
        (
            "contentBlockDelta",
            r#"{"contentBlockIndex":0,"delta":{"citation":{"title":"doc","location":{"documentPage":{"documentIndex":0,"start":1,"end":2}}}}}"#,
        ),
        ("contentBlockStop", r#"{"contentBlockIndex":0}"#),
        ("messageStop", r#"{"stopReason":"end_turn"}"#),
        ("metadata", "{}"),
    ]);
    let body = aggregated(WireFormat::Bedrock, &frames);
    let cited = &body["output"]["message"]["content"][0]["citationsContent"];
    assert_eq!(cited["content"], json!([{"text": "It says"}]));
    assert_eq!(cited["citations"][0]["title"], "doc");
    assert_eq!(aggregated(WireFormat::Bedrock, &synthesized(WireFormat::Bedrock, &body)), body);
}

#[test]
fn a_chat_of_cohere_gets_plan_calls_content_and_citations() {
    assert_eq!(
        aggregated(WireFormat::Cohere, &typed(&COHERE)),
        json!({
            "id": "29f1", "finish_reason": "COMPLETE",
            "message": {
                "role": "assistant",
                "tool_plan": "I will look.",
                "tool_calls": [{"id": "w_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\":\"Rome\"}"}}],
                "content": [{"type": "text", "text": "The LLM"}],
                "citations": [{"start": 4, "end": 7, "text": "LLM", "sources": [{"type": "document", "id": "doc:0"}]}],
            },
            "usage": {"billed_units": {"input_tokens": 5, "output_tokens": 3}, "tokens": {"input_tokens": 71, "output_tokens": 3}},
            "logprobs": [{"text": "The ", "token_ids": [1], "logprobs": [-0.1]}],
        })
    );
}
