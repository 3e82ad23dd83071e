//! The three formats of OpenAI.

use serde_json::json;

use super::*;

pub(super) const CHAT: [&str; 6] = [
    r#"{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini","system_fingerprint":"fp_44709d6fcb","service_tier":"default","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x9"}"#,
    r#"{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini","system_fingerprint":"fp_44709d6fcb","service_tier":"default","choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":{"content":[{"token":"Hello","logprob":-0.3,"bytes":[72],"top_logprobs":[]}],"refusal":null},"finish_reason":null}],"usage":null,"obfuscation":"a"}"#,
    r#"{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini","system_fingerprint":"fp_44709d6fcb","service_tier":"default","choices":[{"index":0,"delta":{"content":" you"},"logprobs":{"content":[{"token":" you","logprob":-0.5,"bytes":[32],"top_logprobs":[]}],"refusal":null},"finish_reason":null}],"usage":null,"obfuscation":"b"}"#,
    r#"{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini","system_fingerprint":"fp_44709d6fcb","service_tier":"default","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}"#,
    r#"{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini","system_fingerprint":"fp_44709d6fcb","service_tier":"default","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"completion_tokens_details":{"reasoning_tokens":0}}}"#,
    "[DONE]",
];

fn chunk(choice: &str) -> String {
    format!(r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{choice}]}}"#)
}

fn chat(choices: &[&str]) -> Value {
    let chunks: Vec<String> = choices.iter().map(|choice| chunk(choice)).collect();
    let mut events: Vec<&str> = chunks.iter().map(String::as_str).collect();
    events.push("[DONE]");
    aggregated(WireFormat::OpenAiChat, &sse(&events))
}

#[test]
fn a_chat_with_log_probabilities_and_usage_becomes_a_completion() {
    let token = |text: &str, logprob: f64, byte: u8| json!({"token": text, "logprob": logprob, "bytes": [byte], "top_logprobs": []});
    assert_eq!(
        aggregated(WireFormat::OpenAiChat, &sse(&CHAT)),
        json!({
            "id": "chatcmpl-123", "object": "chat.completion", "created": 1_694_268_190, "model": "gpt-4o-mini",
            "system_fingerprint": "fp_44709d6fcb", "service_tier": "default",
            "choices": [{
                "index": 0,
                "message": {"role": "assistant", "content": "Hello you", "refusal": null},
                "logprobs": {"content": [token("Hello", -0.3, 72), token(" you", -0.5, 32)], "refusal": null},
                "finish_reason": "stop",
            }],
            "usage": {
                "prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11,
                "completion_tokens_details": {"reasoning_tokens": 0},
            },
        })
    );
}

#[test]
fn parallel_calls_are_put_together_by_their_index() {
    let body = chat(&[
        r#"{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"weather","arguments":""}}]},"finish_reason":null}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]},"finish_reason":null}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"time","arguments":""}}]},"finish_reason":null}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{}"}},{"index":0,"function":{"arguments":"\"Rome\"}"}}]},"finish_reason":null}"#,
        r#"{"index":0,"delta":{},"finish_reason":"tool_calls"}"#,
    ]);
    assert_eq!(
        body["choices"],
        json!([{
            "index": 0,
            "message": {"role": "assistant", "content": null, "tool_calls": [
                {"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Rome\"}"}},
                {"id": "call_b", "type": "function", "function": {"name": "time", "arguments": "{}"}},
            ]},
            "finish_reason": "tool_calls",
        }])
    );
}

#[test]
fn calls_with_the_same_index_are_distinguished_by_their_ids() {
    let body = chat(&[
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{"}}]}}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"}"}}]}}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"tool_calls"}"#,
    ]);
    assert_eq!(
        body["choices"][0]["message"]["tool_calls"],
        json!([
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ])
    );
}

#[test]
fn several_choices_stand_in_the_order_of_their_index() {
    let body = chat(&[
        r#"{"index":1,"delta":{"role":"assistant","content":"b"}}"#,
        r#"{"index":0,"delta":{"role":"assistant","content":"a"}}"#,
        r#"{"index":1,"delta":{"content":"B"},"finish_reason":"length"},{"index":0,"delta":{"content":"A"},"finish_reason":"stop"}"#,
    ]);
    let said = |at: usize| {
        (body["choices"][at]["message"]["content"].clone(), body["choices"][at]["finish_reason"].clone())
    };
    assert_eq!(said(0), (json!("aA"), json!("stop")));
    assert_eq!(said(1), (json!("bB"), json!("length")));
}

#[test]
fn refusals_reasoning_audio_and_unknown_texts_are_joined() {
    let body = chat(&[
        r#"{"index":0,"delta":{"role":"assistant","content":"","refusal":null,"reasoning_content":"Let"}}"#,
        r#"{"index":0,"delta":{"role":"assistant","reasoning_content":" me","new_text":"x","audio":{"id":"audio_1","data":"YQ==","transcript":"Hi"}}}"#,
        r#"{"index":0,"delta":{"refusal":"I can","new_text":"y","audio":{"data":"Yg==","transcript":" you","expires_at":7}}}"#,
        r#"{"index":0,"delta":{"refusal":"not."},"finish_reason":"stop","content_filter_results":{"hate":{"filtered":false}}}"#,
    ]);
    assert_eq!(
        body["choices"][0],
        json!({
            "index": 0,
            "message": {
                "role": "assistant", "content": null, "refusal": "I cannot.", "reasoning_content": "Let me", "new_text": "xy",
                "audio": {"id": "audio_1", "data": "YWI=", "transcript": "Hi you", "expires_at": 7},
            },
            "finish_reason": "stop",
            "content_filter_results": {"hate": {"filtered": false}},
        })
    );
}

#[test]
fn a_stream_without_end_marker_is_complete_when_its_choices_are() {
    let finished = chunk(r#"{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}"#);
    assert_eq!(
        aggregated(WireFormat::OpenAiChat, &sse(&[&finished]))["choices"][0]["message"]["content"],
        "a"
    );
}

#[test]
fn usage_is_synthesized_only_on_request() {
    let body = aggregated(WireFormat::OpenAiChat, &sse(&CHAT)).to_string();
    let without_usage = synthesize_stream(WireFormat::OpenAiChat, body.as_bytes(), false).unwrap().concat();
    assert!(!String::from_utf8(without_usage.clone()).unwrap().contains("usage"));
    assert_eq!(aggregated(WireFormat::OpenAiChat, &without_usage).get("usage"), None);
    let with_usage =
        String::from_utf8(synthesize_stream(WireFormat::OpenAiChat, body.as_bytes(), true).unwrap().concat())
            .unwrap();
    assert_eq!(with_usage.matches(r#""usage":null"#).count(), with_usage.matches("data: {").count() - 1);
    assert_eq!(with_usage.matches(r#""choices":[],"usage":{"#).count(), 1);
    assert!(with_usage.ends_with("data: [DONE]\n\n"));
}

#[test]
fn a_synthesized_chat_has_several_deltas_and_names_a_call_before_its_arguments() {
    let call = json!({"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Rome\",\"unit\":\"celsius\"}"}});
    let body = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": null, "tool_calls": [call]}, "logprobs": null, "finish_reason": "tool_calls"},
    ]});
    let events = synthesize_stream(WireFormat::OpenAiChat, body.to_string().as_bytes(), false).unwrap();
    let data = |at: usize| -> Value { serde_json::from_slice(&events[at]["data: ".len()..]).unwrap() };
    assert_eq!(data(0)["choices"][0]["delta"], json!({"role": "assistant", "content": null}));
    assert_eq!(
        data(1)["choices"][0]["delta"]["tool_calls"],
        json!([{"index": 0, "id": "call_a", "type": "function", "function": {"name": "weather", "arguments": ""}}])
    );
    assert_eq!(data(2)["choices"][0]["delta"]["tool_calls"][0]["index"], 0);
    assert_eq!(data(2)["object"], "chat.completion.chunk");
    assert_eq!(data(events.len() - 2)["choices"][0]["finish_reason"], "tool_calls");
    assert!(events.len() > 5);
}

#[test]
fn legacy_completions_are_aggregated_too() {
    let events = [
        r#"{"id":"cmpl-1","object":"text_completion","created":1,"choices":[{"text":"Hel","index":0,"logprobs":{"tokens":["Hel"],"token_logprobs":[-1.0],"top_logprobs":null,"text_offset":[0]},"finish_reason":null}],"model":"gpt-3.5-turbo-instruct"}"#,
        r#"{"id":"cmpl-1","object":"text_completion","created":1,"choices":[{"text":"lo","index":0,"logprobs":{"tokens":["lo"],"token_logprobs":[-2.0],"top_logprobs":null,"text_offset":[3]},"finish_reason":"stop"}],"model":"gpt-3.5-turbo-instruct"}"#,
        "[DONE]",
    ];
    assert_eq!(
        aggregated(WireFormat::OpenAiCompletions, &sse(&events)),
        json!({
            "id": "cmpl-1", "object": "text_completion", "created": 1, "model": "gpt-3.5-turbo-instruct",
            "choices": [{
                "text": "Hello", "index": 0, "finish_reason": "stop",
                "logprobs": {"tokens": ["Hel", "lo"], "token_logprobs": [-1.0, -2.0], "top_logprobs": null, "text_offset": [0, 3]},
            }],
        })
    );
}

pub(super) const RESPONSES: [&str; 9] = [
    r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","created_at":1741290958,"status":"in_progress","model":"gpt-4.1","output":[],"usage":null}}"#,
    r#"{"type":"response.in_progress","sequence_number":1,"response":{"id":"resp_1","object":"response","created_at":1741290958,"status":"in_progress","model":"gpt-4.1","output":[],"usage":null}}"#,
    r#"{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}"#,
    r#"{"type":"response.content_part.added","sequence_number":3,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}}"#,
    r#"{"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hi","logprobs":[]}"#,
    r#"{"type":"response.output_text.done","sequence_number":5,"item_id":"msg_1","output_index":0,"content_index":0,"text":"Hi","logprobs":[]}"#,
    r#"{"type":"response.content_part.done","sequence_number":6,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"Hi","annotations":[]}}"#,
    r#"{"type":"response.output_item.done","sequence_number":7,"output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hi","annotations":[]}]}}"#,
    r#"{"type":"response.completed","sequence_number":8,"response":{"id":"resp_1","object":"response","created_at":1741290958,"status":"completed","model":"gpt-4.1","output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hi","annotations":[]}]}],"usage":{"input_tokens":37,"input_tokens_details":{"cached_tokens":0},"output_tokens":11,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":48}}}"#,
];

#[test]
fn a_response_is_what_its_last_event_says() {
    let last: Value = serde_json::from_str(RESPONSES[8]).unwrap();
    assert_eq!(aggregated(WireFormat::OpenAiResponses, &typed(&RESPONSES)), last["response"]);
}

#[test]
fn items_that_the_last_event_leaves_out_are_taken_from_their_own() {
    let bare = r#"{"type":"response.completed","sequence_number":8,"response":{"id":"resp_1","status":"completed","output":[]}}"#;
    let mut events = RESPONSES;
    events[8] = bare;
    assert_eq!(
        aggregated(WireFormat::OpenAiResponses, &typed(&events))["output"][0]["content"][0]["text"],
        "Hi"
    );
}

#[test]
fn a_synthesized_response_has_the_events_of_openai_in_order() {
    let body = aggregated(WireFormat::OpenAiResponses, &typed(&RESPONSES));
    let events = synthesize_stream(WireFormat::OpenAiResponses, body.to_string().as_bytes(), false).unwrap();
    let expected: Vec<Vec<u8>> = RESPONSES.iter().map(|event| typed(&[event])).collect();
    assert_eq!(events.len(), expected.len());
    for (event, expected) in events.iter().zip(&expected) {
        let parts = |event: &[u8]| -> (String, Value) {
            let text = String::from_utf8(event.to_vec()).unwrap();
            let (name, data) = text.split_once("\ndata: ").unwrap();
            (name.to_owned(), serde_json::from_str(data).unwrap())
        };
        assert_eq!(parts(event), parts(expected));
    }
}
