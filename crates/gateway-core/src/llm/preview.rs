//! Readable text from stored bodies of any wire format: the user's last message and the model's response. Lists, search
//! and evaluators use it. A truncated body yields the text that is left of it, and an unknown format yields None.

mod members;

use std::borrow::Cow;

use serde_json::Value;

use crate::json::{array_items, complete_truncated};
use crate::text::lossy_text;
use members::Members;

/// The text of the last user message with text. Only that message and the list around it are parsed, because a body may
/// have many others.
pub fn last_user_text(body: &[u8]) -> Option<String> {
    let text = lossy_text(body);
    let completed;
    let members = if let Some(members) = Members::parse(&text) {
        members
    } else {
        completed = complete_truncated(&text)?;
        Members::parse(&completed)?
    };
    let [input, contents] = [members.get("input"), members.get("contents")];
    let mut lists = [members.get("messages"), input, contents].into_iter().flatten();
    // Embeddings, completions and older APIs have a text or a list of texts.
    let texts = ["input", "prompt", "message", "contents", "content", "inputText", "texts"];
    lists
        .find_map(|list| {
            let messages: Vec<_> = array_items(list.as_bytes()).collect();
            messages.into_iter().rev().find_map(|message| user_text(&list[message]))
        })
        .or_else(|| texts.iter().find_map(|name| parsed_text(members.get(name)?)))
}

/// The text of a message if it is the user's. The message is valid JSON.
fn user_text(message: &str) -> Option<String> {
    let message = Members::of_valid(message);
    let role = message.get("role").map(serde_json::from_str::<String>);
    let is_user = match role {
        Some(Ok(role)) => role == "user",
        // Gemini callers may omit the role of a single message.
        _ => message.get("parts").is_some(),
    };
    let content = message.get("content").or_else(|| message.get("parts")).filter(|_| is_user)?;
    parsed_text(content)
}

fn parsed_text(raw: &str) -> Option<String> {
    if raw.starts_with('"') {
        return non_empty(serde_json::from_str(raw).ok()?);
    }
    joined_text(&serde_json::from_str(raw).ok()?)
}

/// The text of the model's response. Of several choices it is the first one's.
pub fn assistant_text(body: &[u8], is_event_stream: bool) -> Option<String> {
    let text = lossy_text(body);
    let text_found = if is_event_stream {
        stream_text(&text)
    } else {
        parse_truncated(&text).as_ref().and_then(response_text)
    };
    // A provider's content type is not always correct, so the other form is tried as well.
    text_found.or_else(|| {
        if is_event_stream {
            parse_truncated(&text).as_ref().and_then(response_text)
        } else {
            stream_text(&text)
        }
    })
}

/// The response text of a parsed body.
pub(crate) fn response_text(body: &Value) -> Option<String> {
    if let Some(pieces) = body.as_array() {
        // A Gemini stream without `alt=sse` is one array of responses.
        return non_empty(pieces.iter().filter_map(response_text).collect());
    }
    if let Some(choice) = body.pointer("/choices/0") {
        let message = choice.get("message");
        return message
            .and_then(message_text)
            .or_else(|| message?.get("refusal").and_then(joined_text))
            .or_else(|| joined_text(choice.get("text")?));
    }
    if let Some(items) = body.get("output").and_then(Value::as_array) {
        let messages = items.iter().filter(|item| item.get("type").is_none_or(|kind| kind == "message"));
        return non_empty(messages.filter_map(message_text).collect());
    }
    if let Some(candidate) = body.pointer("/candidates/0/content") {
        return message_text(candidate);
    }
    let messages = [Some(body), body.get("message"), body.pointer("/output/message")];
    messages.into_iter().flatten().find_map(message_text).or_else(|| {
        ["text", "response", "outputText", "generation"]
            .iter()
            .find_map(|key| body.get(key).and_then(joined_text))
            .or_else(|| body.pointer("/results/0/outputText").and_then(joined_text))
    })
}

/// The text of a message's `content` or `parts`, without thoughts and tool calls.
pub(crate) fn message_text(message: &Value) -> Option<String> {
    message.get("content").or_else(|| message.get("parts")).and_then(joined_text)
}

/// A text, or the joined texts of a list of texts and parts.
pub(crate) fn joined_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => non_empty(text.clone()),
        Value::Array(parts) => {
            let parts: Vec<&str> = parts.iter().filter_map(part_text).collect();
            non_empty(parts.join("\n"))
        }
        Value::Object(_) => message_text(value),
        _ => None,
    }
}

fn part_text(part: &Value) -> Option<&str> {
    if part.get("thought") == Some(&Value::Bool(true)) {
        return None;
    }
    let text = part.as_str().or_else(|| {
        let kind = part.get("type").and_then(Value::as_str);
        match kind {
            None | Some("text" | "input_text" | "output_text") => part.get("text")?.as_str(),
            Some("refusal") => part.get("refusal")?.as_str(),
            Some(_) => None,
        }
    });
    text.filter(|text| !text.is_empty())
}

fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// No shorter event has a text. It keeps a body of many short lines cheap.
const MIN_EVENT_BYTES: usize = r#"{"response":"a"#.len();

/// The joined text deltas of server-sent events or of JSON lines.
fn stream_text(text: &str) -> Option<String> {
    let mut joined = String::new();
    let mut data: Option<Cow<'_, str>> = None;
    for line in text.lines().chain([""]) {
        if let Some(more) = line.strip_prefix("data:") {
            let more = more.strip_prefix(' ').unwrap_or(more);
            match &mut data {
                None => data = Some(Cow::Borrowed(more)),
                // Appends in place: an event may have any number of lines.
                Some(before) => {
                    let before = before.to_mut();
                    before.push('\n');
                    before.push_str(more);
                }
            }
        } else if line.is_empty() {
            let event = data.take().filter(|event| event.len() >= MIN_EVENT_BYTES);
            joined.extend(event.and_then(|event| delta_text(&event)));
        } else if line.starts_with('{') && line.len() >= MIN_EVENT_BYTES {
            joined.extend(delta_text(line));
        }
    }
    non_empty(joined)
}

fn delta_text(data: &str) -> Option<String> {
    if data == "[DONE]" {
        return None;
    }
    let event = parse_truncated(data)?;
    if let Some(choice) = event.get("choices").map(|choices| choices.get(0)) {
        let choice = choice.filter(|choice| choice.get("index").is_none_or(|index| index == 0))?;
        let delta = choice.get("delta");
        return delta.and_then(message_text).or_else(|| joined_text(choice.get("text")?));
    }
    let kind = event.get("type").or_else(|| event.get("event_type")).and_then(Value::as_str);
    let text = |pointer: &str| event.pointer(pointer).and_then(joined_text);
    match kind {
        Some("response.output_text.delta" | "response.refusal.delta") => text("/delta"),
        Some("content_block_start") => text("/content_block/text"),
        Some("content_block_delta") => text("/delta/text"),
        Some("content-delta") => text("/delta/message/content/text"),
        Some("text-generation") => text("/text"),
        Some(_) => None,
        None => text("/contentBlockDelta/delta/text")
            .or_else(|| text("/delta/text"))
            .or_else(|| text("/candidates/0/content"))
            .or_else(|| text("/message/content"))
            .or_else(|| text("/response")),
    }
}

/// Parses a JSON text that may be cut off.
pub(crate) fn parse_truncated(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().or_else(|| serde_json::from_str(&complete_truncated(text)?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_last_user_text_is_found_in_every_format() {
        for body in [
            json!({"messages": [{"role": "user", "content": "old"}, {"role": "assistant", "content": "x"}, {"role": "user", "content": "hi"}]}),
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "u"}}]}]}),
            json!({"messages": [{"role": "user", "content": "hi"}, {"role": "user", "content": [{"type": "tool_result", "content": "42"}]}]}),
            json!({"messages": [{"role": "user", "content": [{"text": "hi"}, {"image": {}}]}], "inferenceConfig": {}}),
            json!({"input": "hi"}),
            json!({"input": ["hi"], "model": "text-embedding-3-small"}),
            json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, {"type": "function_call_output", "output": "x"}]}),
            json!({"input": [{"role": "user", "content": "hi"}], "instructions": "no"}),
            json!({"prompt": "hi"}),
            json!({"prompt": ["hi"]}),
            json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"text": "no"}]}]}),
            json!({"contents": [{"parts": [{"text": "hi"}]}]}),
            json!({"content": {"parts": [{"text": "hi"}]}}),
            json!({"message": "hi", "chat_history": [{"role": "USER", "message": "no"}]}),
            json!({"texts": ["hi"]}),
        ] {
            assert_eq!(last_user_text(body.to_string().as_bytes()).as_deref(), Some("hi"), "{body}");
        }
        for body in
            ["", "nonsense", "{}", r#"{"input":[1,2]}"#, r#"{"messages":[{"role":"system","content":"x"}]}"#]
        {
            assert_eq!(last_user_text(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn the_response_text_is_found_in_every_format() {
        for body in [
            json!({"choices": [{"message": {"role": "assistant", "content": "ok"}}, {"message": {"content": "second"}}]}),
            json!({"choices": [{"message": {"content": null, "refusal": "ok"}}]}),
            json!({"choices": [{"text": "ok"}]}),
            json!({"output": [{"type": "reasoning", "content": [{"type": "output_text", "text": "no"}]}, {"type": "message", "content": [{"type": "output_text", "text": "ok"}]}]}),
            json!({"type": "message", "role": "assistant", "content": [{"type": "thinking", "thinking": "no"}, {"type": "text", "text": "ok"}]}),
            json!({"candidates": [{"content": {"parts": [{"text": "no", "thought": true}, {"text": "ok"}]}}]}),
            json!([{"candidates": [{"content": {"parts": [{"text": "o"}]}}]}, {"candidates": [{"content": {"parts": [{"text": "k"}]}}]}]),
            json!({"output": {"message": {"role": "assistant", "content": [{"reasoningContent": {}}, {"text": "ok"}]}}}),
            json!({"message": {"role": "assistant", "content": [{"type": "text", "text": "ok"}]}}),
            json!({"text": "ok", "generation_id": "1"}),
            json!({"message": {"role": "assistant", "content": "ok"}, "done": true}),
        ] {
            assert_eq!(assistant_text(body.to_string().as_bytes(), false).as_deref(), Some("ok"), "{body}");
        }
        assert_eq!(assistant_text(br#"{"error":{"message":"no"}}"#, false), None);
        assert_eq!(assistant_text(br#"{"object":"list","data":[{"embedding":[0.1]}]}"#, false), None);
    }

    #[test]
    fn stream_deltas_are_joined_in_every_format() {
        for lines in [
            &[
                r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
                r#"{"choices":[{"index":0,"delta":{"content":"o"}}]}"#,
                r#"{"choices":[{"index":1,"delta":{"content":"x"}}]}"#,
                r#"{"choices":[{"index":0,"delta":{"content":"k"}}]}"#,
                r#"{"choices":[],"usage":{}}"#,
                "[DONE]",
            ][..],
            &[r#"{"choices":[{"index":0,"text":"ok"}]}"#],
            &[
                r#"{"type":"response.output_text.delta","delta":"ok"}"#,
                r#"{"type":"response.output_text.done","text":"ok"}"#,
                r#"{"type":"response.completed","response":{}}"#,
            ],
            &[
                r#"{"type":"message_start","message":{"content":[]}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"x"}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"ok"}}"#,
            ],
            &[
                r#"{"candidates":[{"content":{"parts":[{"text":"o"}]}}]}"#,
                r#"{"candidates":[{"content":{"parts":[{"text":"k"}]}}]}"#,
            ],
            &[r#"{"contentBlockDelta":{"delta":{"text":"ok"}}}"#],
            &[r#"{"type":"content-delta","delta":{"message":{"content":{"text":"ok"}}}}"#],
        ] {
            let sse: String =
                lines.iter().flat_map(|line| [": note\r\nevent: x\r\ndata: ", line, "\r\n\r\n"]).collect();
            assert_eq!(assistant_text(sse.as_bytes(), true).as_deref(), Some("ok"), "{sse}");
            assert_eq!(assistant_text(sse.as_bytes(), false).as_deref(), Some("ok"), "{sse}");
            let json_lines = lines.join("\n");
            assert_eq!(assistant_text(json_lines.as_bytes(), true).as_deref(), Some("ok"), "{json_lines}");
        }
        assert_eq!(assistant_text(br#"{"choices":[{"text":"ok"}]}"#, true).as_deref(), Some("ok"));
    }

    #[test]
    fn a_truncated_body_gives_the_text_that_is_left() {
        let start = r#"{"model":"m","messages":[{"role":"user","content":""#;
        for (rest, expected) in [
            ("fi", "fi"),
            (r#"first""#, "first"),
            (r#"first"},{"role":"us"#, "first"),
            (r#"first"},{"role":"user","conte"#, "first"),
            (r#"first"},{"role":"user","content":"sec"#, "sec"),
            (r#"first"},{"role":"user","content":"sec\u00"#, "sec"),
            (r#"first"}],"stream":tr"#, "first"),
            (r#"first"}],"n":1,"#, "first"),
        ] {
            assert_eq!(
                last_user_text(format!("{start}{rest}").as_bytes()).as_deref(),
                Some(expected),
                "{rest}"
            );
        }
        for cut in [r"\ud83d\ude00", r"\ud83d\ude", r"\ud83d\", r"\ud83d", r"\ud8", r"\"] {
            let got = last_user_text(format!(r#"{{"input":"x{cut}"#).as_bytes()).unwrap();
            assert_eq!(got, if cut.len() == 12 { "x\u{1f600}" } else { "x" }, "{cut}");
        }
        let sse = "data: {\"choices\":[{\"delta\":{\"content\":\"one \"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"tw";
        assert_eq!(assistant_text(sse.as_bytes(), true).as_deref(), Some("one tw"));
        assert_eq!(last_user_text(b"{\"input\":\"caf\xc3"), Some("caf\u{fffd}".to_owned()));
    }

    proptest! {
        #[test]
        fn a_body_truncated_anywhere_gives_a_prefix_of_the_text(text in ".{0,20}", cut in any::<prop::sample::Index>()) {
            let body = json!({"a": [1, true, {"b": null}], "messages": [{"role": "user", "content": text}], "z": 1.5}).to_string();
            let start = body.find("\"content\"").unwrap() + 11;
            let cut = (start..=body.len()).nth(cut.index(body.len() - start)).unwrap();
            if body.is_char_boundary(cut) {
                prop_assert!(text.starts_with(&last_user_text(&body.as_bytes()[..cut]).unwrap_or_default()));
            }
        }

        #[test]
        fn never_panics(body in r#"(\{|\}|\[|\]|"|:|,|data: |\n|messages|content|\\u|\\|é|1){0,30}"#) {
            let _ = (last_user_text(body.as_bytes()), assistant_text(body.as_bytes(), true));
        }
    }
}
