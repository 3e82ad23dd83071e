//! Readable text out of stored bodies of any wire format: what the user said last and what the model answered.
//! For lists, searches and evaluators. Nothing here fails: a body that was cut off when it was stored gives
//! the text that it still holds, an unknown one gives None.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

/// The text of the user's last message that has any.
pub fn last_user_text(body: &[u8]) -> Option<String> {
    last_of_chat(body).or_else(|| last_of_any(body))
}

/// The usual body: whole, and with chat messages, of which only the one that is wanted is looked into.
fn last_of_chat(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Chat<'a> {
        #[serde(borrow)]
        messages: Vec<Turn<'a>>,
    }
    #[derive(Deserialize)]
    struct Turn<'a> {
        #[serde(borrow)]
        role: Option<Cow<'a, str>>,
        #[serde(borrow)]
        content: Option<&'a RawValue>,
        parts: Option<IgnoredAny>,
    }
    let chat: Chat<'_> = serde_json::from_slice(body).ok()?;
    let turns = chat.messages.iter().rev();
    for turn in turns.filter(|turn| turn.role.as_deref() == Some("user") || turn.parts.is_some()) {
        if turn.parts.is_some() {
            return None;
        }
        let text = turn.content.and_then(|raw| joined_text(&serde_json::from_str(raw.get()).ok()?));
        if text.is_some() {
            return text;
        }
    }
    None
}

fn last_of_any(body: &[u8]) -> Option<String> {
    let body = parse_truncated(&String::from_utf8_lossy(body))?;
    for key in ["messages", "input", "contents"] {
        let Some(turns) = body.get(key).and_then(Value::as_array) else { continue };
        let is_user = |turn: &&Value| {
            let role = turn.get("role").and_then(Value::as_str);
            // Gemini leaves the role out when there is only one turn.
            role == Some("user") || (role.is_none() && turn.get("parts").is_some())
        };
        if let Some(text) = turns.iter().rev().filter(is_user).find_map(message_text) {
            return Some(text);
        }
    }
    // Embeddings, completions and the older APIs have a bare text or a list of texts.
    ["input", "prompt", "message", "contents", "content", "inputText", "texts"]
        .iter()
        .find_map(|key| body.get(key).and_then(joined_text))
}

/// The text of the model's answer: of its first choice, when there are several.
pub fn assistant_text(body: &[u8], is_event_stream: bool) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let folded = if is_event_stream {
        stream_text(&text)
    } else {
        parse_truncated(&text).as_ref().and_then(response_text)
    };
    // What a provider says of its content type is not always so.
    folded.or_else(|| {
        if is_event_stream {
            parse_truncated(&text).as_ref().and_then(response_text)
        } else {
            stream_text(&text)
        }
    })
}

/// The same of a body that is parsed already.
pub(crate) fn response_text(body: &Value) -> Option<String> {
    if let Some(pieces) = body.as_array() {
        // Gemini streams without `alt=sse` are one array of answers.
        return some(pieces.iter().filter_map(response_text).collect());
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
        return some(messages.filter_map(message_text).collect());
    }
    if let Some(candidate) = body.pointer("/candidates/0/content") {
        return message_text(candidate);
    }
    let holders = [Some(body), body.get("message"), body.pointer("/output/message")];
    holders.into_iter().flatten().find_map(message_text).or_else(|| {
        ["text", "response", "outputText", "generation"]
            .iter()
            .find_map(|key| body.get(key).and_then(joined_text))
            .or_else(|| body.pointer("/results/0/outputText").and_then(joined_text))
    })
}

/// The text of a message: its `content` or `parts`, thoughts and tool traffic left out.
pub(crate) fn message_text(message: &Value) -> Option<String> {
    message.get("content").or_else(|| message.get("parts")).and_then(joined_text)
}

/// A text, or the texts in a list of texts and parts.
pub(crate) fn joined_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => some(text.clone()),
        Value::Array(parts) => {
            let parts: Vec<&str> = parts.iter().filter_map(part_text).collect();
            some(parts.join("\n"))
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

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// Joins the text pieces of server-sent events, or of JSON lines.
fn stream_text(text: &str) -> Option<String> {
    let mut folded = String::new();
    let mut data: Option<Cow<'_, str>> = None;
    for line in text.lines().chain([""]) {
        if let Some(more) = line.strip_prefix("data:") {
            let more = more.strip_prefix(' ').unwrap_or(more);
            data = Some(match data {
                None => Cow::Borrowed(more),
                Some(before) => Cow::Owned(format!("{before}\n{more}")),
            });
        } else if line.is_empty() {
            folded.extend(data.take().and_then(|data| piece(&data)));
        } else if line.starts_with('{') {
            folded.extend(piece(line));
        }
    }
    some(folded)
}

fn piece(data: &str) -> Option<String> {
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

/// Parses a JSON text, also one that was cut off.
pub(crate) fn parse_truncated(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().or_else(|| serde_json::from_str(&complete_truncated(text)?).ok())
}

struct Level {
    closer: char,
    at_key: bool,
}

fn closers(levels: &[Level]) -> Vec<char> {
    levels.iter().rev().map(|level| level.closer).collect()
}

/// Completes a JSON text that breaks off: an open string is closed where it ends, anything else unfinished is
/// dropped, and the brackets are closed.
fn complete_truncated(text: &str) -> Option<String> {
    let mut levels: Vec<Level> = Vec::new();
    // The text up to here, with the brackets open here, is complete but for the brackets.
    let mut sound = (0, Vec::new());
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                let is_key = levels.last().is_some_and(|level| level.at_key);
                if let Err(cut) = string_end(&mut chars, text.len()) {
                    if is_key {
                        break;
                    }
                    let mut completed = text[..cut].to_owned();
                    completed.push('"');
                    completed.extend(closers(&levels));
                    return Some(completed);
                }
                if !is_key {
                    sound = (chars.offset(), closers(&levels));
                }
            }
            '{' | '[' => {
                let closer = if c == '{' { '}' } else { ']' };
                levels.push(Level { closer, at_key: c == '{' });
                sound = (at + 1, closers(&levels));
            }
            '}' | ']' => {
                levels.pop()?;
                sound = (at + 1, closers(&levels));
            }
            ',' => {
                // A number or a literal is only known to be whole by the comma behind it.
                sound = (at, closers(&levels));
                if let Some(level) = levels.last_mut() {
                    level.at_key = level.closer == '}';
                }
            }
            ':' => {
                if let Some(level) = levels.last_mut() {
                    level.at_key = false;
                }
            }
            _ => {}
        }
    }
    let (end, closers) = sound;
    (end > 0).then(|| text[..end].chars().chain(closers).collect())
}

/// Reads on to the end of a string. When the text ends first: where it has to be cut so that no half of an
/// escape or of a surrogate pair is left.
fn string_end(chars: &mut std::str::CharIndices<'_>, length: usize) -> Result<(), usize> {
    let mut half_pair = None;
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok(()),
            '\\' => {
                let letter = chars.next().map(|(_, c)| c);
                let digits = if letter == Some('u') { 4 } else { 0 };
                let code: String = chars.by_ref().take(digits).map(|(_, c)| c).collect();
                if letter.is_none() || code.len() < digits {
                    return Err(half_pair.unwrap_or(at));
                }
                let code = u32::from_str_radix(&code, 16).unwrap_or(0);
                half_pair = (0xD800..0xDC00).contains(&code).then_some(at);
            }
            _ => half_pair = None,
        }
    }
    Err(half_pair.unwrap_or(length))
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
    fn the_answer_is_found_in_every_format() {
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
    fn streams_are_folded_in_every_format() {
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
    fn a_body_cut_off_gives_what_it_still_holds() {
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
        fn any_cut_of_any_text_is_mended(text in ".{0,20}", cut in any::<prop::sample::Index>()) {
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
