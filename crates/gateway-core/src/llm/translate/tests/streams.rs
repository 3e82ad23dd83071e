//! Peculiarities of the streams of real providers.

use serde_json::{Value, json};

use super::{
    super::super::{ClientFormat, ProviderFormat},
    support::{ProviderApi, translate_stream},
};

const CHAT: ProviderApi = ProviderApi { provider: ProviderFormat::OpenAi, use_responses_api: false };
const MESSAGES: ProviderApi = ProviderApi { provider: ProviderFormat::Anthropic, use_responses_api: false };

/// Parses the data of all events except `[DONE]`.
fn event_data(stream: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(stream).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn chat_chunks(choices: &[Value]) -> Vec<u8> {
    let chunk = |choice: &Value| {
        let chunk = json!({"id": "c1", "model": "m1", "created": 5, "choices": [choice]});
        format!("data: {chunk}\n\n")
    };
    (choices.iter().map(chunk).collect::<String>() + "data: [DONE]\n\n").into_bytes()
}

fn delta(delta: &Value) -> Value {
    json!({"index": 0, "delta": delta, "finish_reason": null})
}

fn stop(reason: &str) -> Value {
    json!({"index": 0, "delta": {}, "finish_reason": reason})
}

fn call(index: u32, id: &str, name: &str, arguments: &str) -> Value {
    let function = json!({"name": name, "arguments": arguments});
    delta(&json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}))
}

fn tool_uses(events: &[Value]) -> Vec<(&str, &str)> {
    let blocks = events.iter().filter(|event| event["type"] == "content_block_start");
    let calls = blocks.map(|event| &event["content_block"]).filter(|block| block["type"] == "tool_use");
    calls.map(|call| (call["id"].as_str().unwrap(), call["name"].as_str().unwrap())).collect()
}

#[test]
fn calls_with_the_same_index_are_distinguished_by_id() {
    let stream = chat_chunks(&[call(0, "a", "one", "{}"), call(0, "b", "two", "{}"), stop("tool_calls")]);
    let events = event_data(&translate_stream(CHAT, ClientFormat::Anthropic, &stream, &[9]));
    assert_eq!(tool_uses(&events), [("a", "one"), ("b", "two")]);
}

#[test]
fn repeated_ids_do_not_start_a_call_again() {
    let stream =
        chat_chunks(&[call(0, "a", "one", "{\"x\""), call(0, "a", "one", ":1}"), stop("tool_calls")]);
    let events = event_data(&translate_stream(CHAT, ClientFormat::Anthropic, &stream, &[9]));
    assert_eq!(tool_uses(&events), [("a", "one")]);
    let pieces: String = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    assert_eq!(pieces, "{\"x\":1}");
}

#[test]
fn an_empty_list_of_calls_is_ignored() {
    let stream = chat_chunks(&[delta(&json!({"content": "Hi", "tool_calls": []})), stop("stop")]);
    let events = event_data(&translate_stream(CHAT, ClientFormat::Anthropic, &stream, &[9]));
    assert_eq!(tool_uses(&events), []);
    assert!(events.iter().all(|event| event["delta"]["type"] != "input_json_delta"));
}

#[test]
fn a_call_without_an_id_gets_a_generated_one() {
    let stream = chat_chunks(&[call(0, "", "one", "{}"), call(1, "", "two", "{}"), stop("tool_calls")]);
    let events = event_data(&translate_stream(CHAT, ClientFormat::Anthropic, &stream, &[9]));
    assert_eq!(tool_uses(&events), [("call_0", "one"), ("call_1", "two")]);
}

#[test]
fn a_plain_stop_after_calls_becomes_tool_use() {
    let stream = chat_chunks(&[call(0, "a", "one", "{}"), stop("stop")]);
    let events = event_data(&translate_stream(CHAT, ClientFormat::Anthropic, &stream, &[9]));
    assert_eq!(events[events.len() - 2]["delta"]["stop_reason"], "tool_use");
}

#[test]
fn azures_first_chunk_does_not_set_id_and_model() {
    let opening = json!({"id": "", "model": "", "created": 0, "choices": [], "prompt_filter_results": []});
    let mut stream = format!("data: {opening}\n\n").into_bytes();
    stream.extend(chat_chunks(&[delta(&json!({"content": "Hi"})), stop("stop")]));
    let events = event_data(&translate_stream(CHAT, ClientFormat::Anthropic, &stream, &[9]));
    assert_eq!((&events[0]["message"]["id"], &events[0]["message"]["model"]), (&json!("c1"), &json!("m1")));
}

#[test]
fn usage_is_read_from_any_late_chunk() {
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5});
    let text = json!({"id": "c", "model": "m", "choices": [delta(&json!({"content": "Hi"}))]});
    let last = json!({"id": "c", "model": "m", "choices": [stop("stop")], "usage": usage});
    let stream = format!("data: {text}\r\n\r\ndata:{last}\r\n\r\n");
    let events = event_data(&translate_stream(CHAT, ClientFormat::Anthropic, stream.as_bytes(), &[3]));
    let usage = &events[events.len() - 2]["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(3), &json!(2)));
}

#[test]
fn a_truncated_stream_ends_with_an_error_in_the_callers_format() {
    let mut stream = chat_chunks(&[delta(&json!({"content": "Hi"}))]);
    stream.truncate(stream.len() - "data: [DONE]\n\n".len());
    let broken = translate_stream(CHAT, ClientFormat::Anthropic, &stream, &[9]);
    let events = event_data(&broken);
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["error"]["type"]), (&json!("error"), &json!("api_error")));
    let chat = translate_stream(CHAT, ClientFormat::OpenAiChat, &stream, &[9]);
    let last = event_data(&chat).pop().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "error");
    assert!(chat.ends_with(b"data: [DONE]\n\n"));
}

#[test]
fn an_error_inside_a_stream_keeps_its_code() {
    let stream = b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"Slow down\"}}\n\n";
    let chat = event_data(&translate_stream(MESSAGES, ClientFormat::OpenAiChat, stream, &[9]));
    assert_eq!(chat[0]["error"]["code"], "rate_limit_error");
    assert_eq!(chat[0]["error"]["message"], "Slow down");
}

#[test]
fn an_error_without_a_message_ends_the_stream_too() {
    let text = chat_chunks(&[delta(&json!({"content": "Hi"}))]);
    for error in [json!({"code": 429}), json!({}), json!(7)] {
        let mut stream = text[..text.len() - "data: [DONE]\n\n".len()].to_vec();
        stream.extend(format!("data: {}\n\n", json!({"error": error})).into_bytes());
        let events = event_data(&translate_stream(CHAT, ClientFormat::Anthropic, &stream, &[9]));
        let kind = if error["code"] == 429 { "rate_limit_error" } else { "api_error" };
        assert_eq!(events.last().unwrap()["error"]["type"], kind, "{error}");
    }
    let bare = b"event: error\ndata: {\"type\":\"error\"}\n\n";
    let events = event_data(&translate_stream(MESSAGES, ClientFormat::Anthropic, bare, &[9]));
    assert_eq!(events.last().unwrap()["type"], "error");
}

#[test]
fn too_many_calls_end_the_stream() {
    let calls: Vec<Value> =
        (0..5000).map(|at| json!({"index": at, "id": format!("c{at}"), "function": {"name": "f"}})).collect();
    let stream = chat_chunks(&[delta(&json!({"tool_calls": calls})), stop("tool_calls")]);
    let chunks = event_data(&translate_stream(CHAT, ClientFormat::OpenAiChat, &stream, &[usize::MAX]));
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "error");
    assert!(chunks.len() < 1100);
}

#[test]
fn chat_callers_get_usage_only_on_request() {
    use super::super::{ResponseOptions, StreamTranslator};
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5});
    let mut stream = chat_chunks(&[delta(&json!({"content": "Hi"})), stop("stop")]);
    let last = json!({"id": "c", "model": "m", "choices": [], "usage": usage});
    stream.splice(0..0, format!("data: {last}\n\n").into_bytes());
    for wanted in [false, true] {
        let options = ResponseOptions { include_usage: wanted, ..CHAT.response_options() };
        let mut translator =
            StreamTranslator::new(ProviderFormat::OpenAi, ClientFormat::OpenAiChat, &options);
        let mut out = Vec::new();
        translator.feed(&stream, &mut out);
        translator.finish(&mut out);
        let has_usage = event_data(&out).iter().any(|chunk| chunk["usage"]["total_tokens"] == 5);
        assert_eq!(has_usage, wanted);
        assert_eq!(String::from_utf8(out).unwrap().contains("usage"), wanted);
    }
}

#[test]
fn choices_of_one_stream_are_not_mixed() {
    let piece = |index: u32, text: &str| json!({"index": index, "delta": {"content": text}});
    let end = |index: u32| json!({"index": index, "delta": {}, "finish_reason": "stop"});
    let stream = chat_chunks(&[piece(0, "a"), piece(1, "b"), piece(0, "c"), end(1), end(0)]);
    let chunks = event_data(&translate_stream(CHAT, ClientFormat::OpenAiChat, &stream, &[9]));
    let text_of = |index: u32| {
        let choices = chunks.iter().map(|chunk| &chunk["choices"][0]);
        let own = choices.filter(|choice| choice["index"] == index);
        own.filter_map(|choice| choice["delta"]["content"].as_str()).collect::<String>()
    };
    assert_eq!((&*text_of(0), &*text_of(1)), ("ac", "b"));
}

#[test]
fn a_stream_without_a_stop_reason_ends_normally() {
    let stream = chat_chunks(&[delta(&json!({"content": "Hi"}))]);
    let events = event_data(&translate_stream(CHAT, ClientFormat::Anthropic, &stream, &[9]));
    assert_eq!(events[events.len() - 2]["delta"]["stop_reason"], "end_turn");
    assert_eq!(events.last().unwrap()["type"], "message_stop");
}

#[test]
fn fields_of_unexpected_types_do_not_lose_the_text() {
    let call = json!({"index": null, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}});
    let choice =
        json!({"index": 0, "delta": {"content": "Hi", "tool_calls": [call]}, "finish_reason": "stop"});
    let chunk = json!({"id": 7, "model": "m", "created": 1.5, "choices": [choice]});
    let stream = format!("data: {chunk}\n\ndata: [DONE]\n\n");
    let chunks = event_data(&translate_stream(CHAT, ClientFormat::OpenAiChat, stream.as_bytes(), &[9]));
    assert!(chunks.iter().any(|chunk| chunk["choices"][0]["delta"]["content"] == "Hi"));
    let arguments =
        |chunk: &Value| chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].clone();
    assert!(chunks.iter().any(|chunk| arguments(chunk) == "{\"x\":1}"));
}

#[test]
fn an_event_with_invalid_json_becomes_an_error() {
    let mut stream = chat_chunks(&[delta(&json!({"content": "Hi"}))]);
    stream.splice(0..0, *b"data: ping\n\n");
    let passed = event_data(&translate_stream(CHAT, ClientFormat::Anthropic, &stream, &[9]));
    assert_eq!(passed.last().unwrap()["type"], "message_stop");
    stream.splice(0..0, *b"data: {\"choices\":\n\n");
    let failed = event_data(&translate_stream(CHAT, ClientFormat::Anthropic, &stream, &[9]));
    assert_eq!(failed.last().unwrap()["type"], "error");
}
