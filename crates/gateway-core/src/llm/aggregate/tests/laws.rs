//! Aggregation inverts synthesis for every format and any response, and does not depend on the chunking of a stream.

use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::json;

use super::{
    native::{ANTHROPIC, COHERE, GEMINI, converse},
    openai::{CHAT, RESPONSES},
    *,
};

fn text() -> impl Strategy<Value = String> {
    "(word |é|日本|\"|\\\\|\n|<[a-z]>){1,40}"
}

fn input() -> impl Strategy<Value = Value> {
    vec(("[a-z]{1,8}", text()), 0..4)
        .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key, json!(value))).collect())
}

fn chat() -> impl Strategy<Value = Value> {
    let call = ("[a-z]{3}", input()).prop_map(|(name, input)| json!({"type": "function", "function": {"name": name, "arguments": input.to_string()}}));
    let choice = (option::of(text()), option::of(text()), vec(call, 0..4), any::<bool>()).prop_map(|(content, thought, mut calls, logprobs)| {
        for (at, call) in calls.iter_mut().enumerate() {
            call["id"] = format!("call_{at}").into();
        }
        let token = |token: &str| json!({"token": token, "logprob": -0.5, "top_logprobs": []});
        let logprobs = content.as_ref().filter(|_| logprobs).map(|text| {
            let (a, b) = text.split_at(text.floor_char_boundary(text.len() / 2));
            json!({"content": [token(a), token(b)], "refusal": null})
        });
        let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
        let mut message = json!({"role": "assistant", "content": content, "refusal": null, "annotations": [{"type": "url_citation"}]});
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        if let Some(thought) = thought {
            message["reasoning_content"] = thought.into();
        }
        json!({"message": message, "logprobs": logprobs, "finish_reason": reason, "content_filter_results": {}})
    });
    vec(choice, 1..4).prop_map(|mut choices| {
        for (at, choice) in choices.iter_mut().enumerate() {
            choice["index"] = at.into();
        }
        json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "m", "system_fingerprint": null,
            "choices": choices, "citations": ["https://a.example"],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
        })
    })
}

fn completions() -> impl Strategy<Value = Value> {
    text().prop_map(|text| {
        json!({
            "id": "c", "object": "text_completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "text": text, "logprobs": null, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
        })
    })
}

fn responses() -> impl Strategy<Value = Value> {
    let item = prop_oneof![
        vec(text(), 1..3).prop_map(|texts| {
            let part = |text: String| json!({"type": "output_text", "text": text, "annotations": [{"type": "url_citation"}]});
            json!({"type": "message", "role": "assistant", "status": "completed", "content": texts.into_iter().map(part).collect::<Vec<_>>()})
        }),
        text().prop_map(|text| json!({"type": "message", "role": "assistant", "status": "completed", "content": [{"type": "refusal", "refusal": text}]})),
        input().prop_map(|input| json!({"type": "function_call", "status": "completed", "call_id": "c", "name": "f", "arguments": input.to_string()})),
        text().prop_map(|text| json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": text}], "encrypted_content": "x"})),
        text().prop_map(|text| json!({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": text})),
        Just(json!({"type": "web_search_call", "status": "completed"})),
    ];
    (vec(item, 0..4), select(vec!["completed", "incomplete"])).prop_map(|(mut items, status)| {
        for (at, item) in items.iter_mut().enumerate() {
            item["id"] = format!("item_{at}").into();
        }
        json!({
            "id": "r", "object": "response", "created_at": 1, "status": status, "output": items, "error": null,
            "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        })
    })
}

fn anthropic() -> impl Strategy<Value = Value> {
    let block = prop_oneof![
        text().prop_map(|text| json!({"type": "text", "text": text})),
        text()
            .prop_map(|text| json!({"type": "text", "text": text, "citations": [{"type": "page_location"}]})),
        text().prop_map(|text| json!({"type": "thinking", "thinking": text, "signature": "sig=="})),
        Just(json!({"type": "redacted_thinking", "data": "abc=="})),
        input().prop_map(|input| json!({"type": "tool_use", "id": "t", "name": "f", "input": input})),
        input().prop_map(
            |input| json!({"type": "server_tool_use", "id": "t", "name": "web_search", "input": input})
        ),
        Just(
            json!({"type": "web_search_tool_result", "tool_use_id": "t", "content": [{"type": "web_search_result"}]})
        ),
    ];
    vec(block, 0..5).prop_map(|content| json!({
        "id": "m", "type": "message", "role": "assistant", "model": "c", "content": content,
        "stop_reason": "end_turn", "stop_sequence": null, "container": {"id": "x"}, "context_management": {"applied_edits": []},
        "usage": {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 1},
    }))
}

/// Adjacent text parts are merged in a stream, so no generated response has them.
fn gemini() -> impl Strategy<Value = Value> {
    let candidate = (option::of(text()), option::of(text()), vec(input(), 0..3)).prop_map(|(thought, said, calls)| {
        let mut parts: Vec<Value> = Vec::new();
        parts.extend(thought.map(|text| json!({"text": text, "thought": true})));
        parts.extend(said.map(|text| json!({"text": text})));
        parts.extend(calls.into_iter().map(|args| json!({"functionCall": {"name": "f", "args": args}, "thoughtSignature": "c2ln"})));
        parts.push(json!({"text": "last", "thoughtSignature": "c2ln"}));
        json!({"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "safetyRatings": [{"category": "X"}], "citationMetadata": {"citationSources": [{"uri": "u"}]}})
    });
    vec(candidate, 1..3).prop_map(|mut candidates| {
        for (at, candidate) in candidates.iter_mut().enumerate() {
            candidate["index"] = at.into();
        }
        json!({"candidates": candidates, "usageMetadata": {"promptTokenCount": 1}, "modelVersion": "g", "responseId": "r", "newField": [1]})
    })
}

fn converse_body() -> impl Strategy<Value = Value> {
    let block = prop_oneof![
        text().prop_map(|text| json!({"text": text})),
        text().prop_map(
            |text| json!({"reasoningContent": {"reasoningText": {"text": text, "signature": "s"}}})
        ),
        Just(json!({"reasoningContent": {"redactedContent": "YWI="}})),
        input().prop_map(|input| json!({"toolUse": {"toolUseId": "t", "name": "f", "input": input}})),
        text().prop_map(
            |text| json!({"citationsContent": {"content": [{"text": text}], "citations": [{"title": "t"}]}})
        ),
    ];
    vec(block, 0..5).prop_map(|content| {
        json!({
            "output": {"message": {"role": "assistant", "content": content}}, "stopReason": "end_turn",
            "additionalModelResponseFields": {"a": 1},
            "usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}, "metrics": {"latencyMs": 1},
        })
    })
}

fn cohere() -> impl Strategy<Value = Value> {
    let call = input().prop_map(|input| json!({"id": "x", "type": "function", "function": {"name": "f", "arguments": input.to_string()}}));
    let block = prop_oneof![
        text().prop_map(|text| json!({"type": "text", "text": text})),
        text().prop_map(|text| json!({"type": "thinking", "thinking": text})),
    ];
    (vec(block, 0..3), option::of(text()), vec(call, 0..3)).prop_map(|(content, plan, calls)| {
        let mut message = json!({"role": "assistant"});
        for (key, list) in [("content", content), ("tool_calls", calls)] {
            if !list.is_empty() {
                message[key] = list.into();
            }
        }
        if let Some(plan) = plan {
            message["tool_plan"] = plan.into();
        }
        message["citations"] = json!([{"start": 0, "end": 1, "text": "a", "sources": []}]);
        json!({"id": "x", "finish_reason": "COMPLETE", "message": message, "usage": {"tokens": {"input_tokens": 1}}})
    })
}

fn responses_of_any_format() -> impl Strategy<Value = (WireFormat, Value)> {
    prop_oneof![
        chat().prop_map(|body| (WireFormat::OpenAiChat, body)),
        completions().prop_map(|body| (WireFormat::OpenAiCompletions, body)),
        responses().prop_map(|body| (WireFormat::OpenAiResponses, body)),
        anthropic().prop_map(|body| (WireFormat::Anthropic, body)),
        gemini().prop_map(|body| (WireFormat::Gemini, body)),
        converse_body().prop_map(|body| (WireFormat::Bedrock, body)),
        cohere().prop_map(|body| (WireFormat::Cohere, body)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn aggregating_a_synthesized_stream_returns_the_body((format, body) in responses_of_any_format()) {
        prop_assert_eq!(aggregated(format, &synthesized(format, &body)), body);
    }

    #[test]
    fn any_chunking_aggregates_to_the_same_body(size in 1usize..300) {
        let recordings = [
            (WireFormat::OpenAiChat, sse(&CHAT)),
            (WireFormat::OpenAiResponses, typed(&RESPONSES)),
            (WireFormat::Anthropic, typed(&ANTHROPIC)),
            (WireFormat::Gemini, sse(&GEMINI)),
            (WireFormat::Bedrock, converse()),
            (WireFormat::Cohere, typed(&COHERE)),
        ];
        for (format, bytes) in recordings {
            let mut aggregator = StreamAggregator::new(format, format.framing(), bytes.len());
            for chunk in bytes.chunks(size) {
                prop_assert_eq!(aggregator.feed(chunk), Ok(()));
            }
            prop_assert_eq!(aggregator.finish(), aggregate_stream(format, format.framing(), &bytes));
        }
    }

    #[test]
    fn arbitrary_events_never_panic(text in r#"(data: |event: error|\n\n|[\[\]{}":,0]|"choices"|"delta"|"type":|"message_start"|"content"){0,30}"#) {
        for format in WireFormat::ALL {
            for framing in [BodyFraming::Sse, BodyFraming::Json, BodyFraming::EventStream, BodyFraming::Opaque] {
                let _ = aggregate_stream(format, framing, text.as_bytes());
            }
            let _ = synthesize_stream(format, text.as_bytes(), true);
        }
    }
}
