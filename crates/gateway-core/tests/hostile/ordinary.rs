//! Ordinary inputs: recorded ones of the wire formats, and others of a given length.

use std::fs;
use std::path::PathBuf;

use gateway_core::llm::eventstream;
use serde_json::json;

/// The recorded files of a format with this suffix, such as `.request.json`.
pub fn recorded(format: &str, suffix: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(format);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.retain(|path| path.to_str().unwrap().ends_with(suffix));
    let read = paths.iter().map(|path| fs::read(path).unwrap());
    let read: Vec<Vec<u8>> = match (format, suffix) {
        ("bedrock", ".stream.txt") => read.map(|text| frames(&text)).collect(),
        _ => read.collect(),
    };
    assert!(!read.is_empty(), "no {suffix} of {format}");
    read
}

/// Bedrock's recorded streams are lines of event name and payload, with `!` before exceptions.
fn frames(text: &[u8]) -> Vec<u8> {
    let frame = |line: &str| {
        let (name, payload) = line.split_once(' ').unwrap();
        let headers = match name.strip_prefix('!') {
            Some(name) => [(":message-type", "exception"), (":exception-type", name)],
            None => [(":message-type", "event"), (":event-type", name)],
        };
        eventstream::encode(&headers, payload.as_bytes()).unwrap()
    };
    std::str::from_utf8(text).unwrap().lines().flat_map(frame).collect()
}

fn repeated_bytes(unit: &[u8], length: usize) -> Vec<u8> {
    unit.repeat(length.div_ceil(unit.len()))
}

/// A chat request of short messages and tool calls, for any reader of JSON.
pub fn chat_request(length: usize) -> Vec<u8> {
    let messages: Vec<_> = (0..length / 200)
        .map(|number| {
            let call = json!({"id": number.to_string(), "type": "function",
                "function": {"name": "find", "arguments": "{}"}});
            let text = format!("What about number {number}, is it larger?");
            if number % 2 == 0 {
                json!({"role": "user", "content": [{"type": "text", "text": text}]})
            } else {
                json!({"role": "assistant", "content": text, "tool_calls": [call]})
            }
        })
        .collect();
    json!({"model": "m", "messages": messages}).to_string().into_bytes()
}

pub fn anthropic_request(length: usize) -> Vec<u8> {
    let messages: Vec<_> = (0..length / 110)
        .map(|number| {
            let role = if number % 2 == 0 { "user" } else { "assistant" };
            json!({"role": role, "content": [{"type": "text", "text": format!("And number {number}?")}]})
        })
        .collect();
    json!({"model": "m", "max_tokens": 9, "messages": messages}).to_string().into_bytes()
}

pub fn responses_request(length: usize) -> Vec<u8> {
    let items: Vec<_> = (0..length / 60)
        .map(|number| json!({"role": "user", "content": format!("And number {number}?")}))
        .collect();
    json!({"model": "m", "input": items}).to_string().into_bytes()
}

pub fn gemini_request(length: usize) -> Vec<u8> {
    let contents: Vec<_> = (0..length / 70)
        .map(|number| {
            let role = if number % 2 == 0 { "user" } else { "model" };
            json!({"role": role, "parts": [{"text": format!("And number {number}?")}]})
        })
        .collect();
    json!({"contents": contents}).to_string().into_bytes()
}

/// A response with many parts of text.
pub fn response(format: &str, length: usize) -> Vec<u8> {
    let parts = |part: serde_json::Value| vec![part.clone(); length / (part.to_string().len() + 1)];
    let text = "It is larger than the number before it.";
    match format {
        "openai" => json!({"id": "1", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": "It is larger. ".repeat(length / 200), "tool_calls":
            parts(json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}))}}]}),
        "openai-responses" => json!({"id": "1", "status": "completed", "output": parts(json!({"type": "message",
            "id": "m", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": text}]}))}),
        "anthropic" => json!({"id": "1", "type": "message", "role": "assistant", "stop_reason": "end_turn",
            "content": parts(json!({"type": "text", "text": text}))}),
        "gemini" => json!({"candidates": [{"finishReason": "STOP", "content": {"role": "model",
            "parts": parts(json!({"text": text}))}}]}),
        "bedrock" => json!({"stopReason": "end_turn", "output": {"message": {"role": "assistant",
            "content": parts(json!({"text": text}))}}}),
        _ => json!({"id": "1", "finish_reason": "COMPLETE", "message": {"role": "assistant",
            "content": parts(json!({"type": "text", "text": text}))}}),
    }
    .to_string()
    .into_bytes()
}

/// A stream of text deltas.
pub fn stream(format: &str, length: usize) -> Vec<u8> {
    if format == "bedrock" {
        let start = [(":message-type", "event"), (":event-type", "messageStart")];
        let delta = [(":message-type", "event"), (":event-type", "contentBlockDelta")];
        let mut bytes = eventstream::encode(&start, br#"{"role":"assistant"}"#).unwrap();
        let frame =
            eventstream::encode(&delta, br#"{"contentBlockIndex":0,"delta":{"text":"larger "}}"#).unwrap();
        bytes.extend(repeated_bytes(&frame, length));
        return bytes;
    }
    let (start, delta) = match format {
        "openai" => ("", r#"data: {"id":"1","choices":[{"index":0,"delta":{"content":"larger "}}]}"#),
        "openai-responses" => (
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"1\"}}\n\n",
            "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\
             \"output_index\":0,\"content_index\":0,\"delta\":\"larger \"}",
        ),
        "anthropic" => (
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"1\",\"content\":[]}}\n\n\
             event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
             \"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
             \"delta\":{\"type\":\"text_delta\",\"text\":\"larger \"}}",
        ),
        "gemini" => ("", r#"data: {"candidates":[{"content":{"parts":[{"text":"larger "}]}}]}"#),
        _ => (
            "event: message-start\ndata: {\"type\":\"message-start\",\"id\":\"1\",\
             \"delta\":{\"message\":{\"role\":\"assistant\"}}}\n\n\
             event: content-start\ndata: {\"type\":\"content-start\",\"index\":0,\
             \"delta\":{\"message\":{\"content\":{\"type\":\"text\",\"text\":\"\"}}}}\n\n",
            "event: content-delta\ndata: {\"type\":\"content-delta\",\"index\":0,\
             \"delta\":{\"message\":{\"content\":{\"text\":\"larger \"}}}}",
        ),
    };
    let delta = format!("{delta}\n\n");
    [start.as_bytes(), &repeated_bytes(delta.as_bytes(), length)].concat()
}

pub fn prose(length: usize) -> Vec<u8> {
    repeated_bytes(
        b"The release notes name every change, the reason for it, and who is affected by it. ",
        length,
    )
}

pub fn form(length: usize) -> Vec<u8> {
    let field = "--X\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nfour words of text\r\n";
    let mut form = field.repeat(length / field.len());
    form.push_str("--X\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--X--\r\n");
    form.into_bytes()
}

pub fn skill(length: usize) -> Vec<u8> {
    let mut text = String::from(
        "---\nname: release-notes\ndescription: Writes release notes. Use it before a release.\n---\n\n# Steps\n\n",
    );
    let step = "1. Read the commits since the last tag with `git log`, and group them by area.\n\
                2. Write one line for each change that a user can see, for example a new option.\n\n";
    text.push_str(&step.repeat(length / step.len()));
    text.into_bytes()
}

pub fn csv(length: usize) -> Vec<u8> {
    [&b"input,expected,topic\n"[..], &repeated_bytes(b"\"What is, say, 2+2?\",4,sums\n", length)].concat()
}

pub fn lines(length: usize) -> Vec<u8> {
    repeated_bytes(
        b"{\"input\":\"What is 2+2?\",\"expected\":\"4\",\"metadata\":{\"topic\":\"sums\"}}\n",
        length,
    )
}

pub fn cases(length: usize) -> Vec<u8> {
    let case = br#"{"input":"What is 2+2?","expected":"4","metadata":{"topic":"sums"}},"#;
    [&b"["[..], &repeated_bytes(case, length), b"{\"input\":\"x\"}]"].concat()
}

pub fn template(length: usize) -> Vec<u8> {
    repeated_bytes(b"Answer {{name}} in {{language}}, and be brief about {{topic}}. ", length)
}

pub fn path(length: usize) -> Vec<u8> {
    repeated_bytes(b"/v1/things/name?key=value&other=some%20text&", length)
}

/// A JSON Schema of many small objects.
pub fn schema(length: usize) -> Vec<u8> {
    let properties: serde_json::Map<String, serde_json::Value> = (0..length / 90)
        .map(|at| {
            (format!("field{at:05}"), json!({"type": "object", "properties": {"text": {"type": "string"}}}))
        })
        .collect();
    json!({"type": "object", "properties": properties}).to_string().into_bytes()
}
