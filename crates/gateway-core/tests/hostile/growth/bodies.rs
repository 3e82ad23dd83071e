//! Requests and responses that are translated.

use serde_json::json;

use super::{Case, bytes, check, items, with_names};
use crate::targets;

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
