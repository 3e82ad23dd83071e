//! Splits a request for semantic caching into its last user text, which is compared by meaning, and the rest, which
//! must be identical. Requests whose last message contains more than text are excluded.

use serde_json::Value;

use super::canonical::DELIVERY_FIELDS;
use super::json::canonical_json;
use crate::llm::paths::Operation;

/// In longer texts a small but decisive difference barely changes the vector.
const MAX_TEXT_CHARS: usize = 2_000;

/// A request without its last user text, and that text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptSplit {
    /// The canonical request with an empty last user text.
    pub rest: Vec<u8>,
    pub text: String,
}

/// Splits off the last user text. Returns `None` if the request supports exact matching only.
pub fn split(operation: Operation, body: &[u8]) -> Option<PromptSplit> {
    let canonical = canonical_json(body, &DELIVERY_FIELDS).ok()?;
    let mut request: Value = serde_json::from_slice(&canonical).ok()?;
    // A number that does not survive parsing, such as a very big integer, could hide a difference.
    if canonical_json(&serde_json::to_vec(&request).ok()?, &[]).ok()? != canonical {
        return None;
    }
    let mut texts = Vec::new();
    match operation {
        Operation::Chat | Operation::Messages | Operation::Converse => {
            take_message(request.get_mut("messages")?.as_array_mut()?.last_mut()?, "content", &mut texts)?;
        }
        Operation::Responses => match request.get_mut("input")? {
            Value::Array(items) => {
                let item = items.last_mut()?;
                let kind = item.get("type").and_then(Value::as_str);
                if kind.is_some_and(|kind| kind != "message") {
                    return None;
                }
                take_message(item, "content", &mut texts)?;
            }
            input => take_text(input, &mut texts)?,
        },
        Operation::GenerateContent => {
            take_message(request.get_mut("contents")?.as_array_mut()?.last_mut()?, "parts", &mut texts)?;
        }
        Operation::Embeddings | Operation::Completions | Operation::Models | Operation::Other => return None,
    }
    let text = texts.join("\n");
    if text.trim().is_empty() || text.chars().count() > MAX_TEXT_CHARS {
        return None;
    }
    Some(PromptSplit { rest: serde_json::to_vec(&request).ok()?, text })
}

/// Moves the text of a user message into `texts`.
fn take_message(message: &mut Value, field: &str, texts: &mut Vec<String>) -> Option<()> {
    match message.get("role").and_then(Value::as_str) {
        Some("user") => {}
        // Gemini allows omitting the role of a single message.
        None if field == "parts" => {}
        _ => return None,
    }
    match message.get_mut(field)? {
        Value::Array(parts) => parts.iter_mut().try_for_each(|part| take_part(part, texts)),
        content => take_text(content, texts),
    }
}

fn take_part(part: &mut Value, texts: &mut Vec<String>) -> Option<()> {
    let fields = part.as_object_mut()?;
    match fields.get("type").and_then(Value::as_str) {
        Some("text" | "input_text") => {}
        // Parts of Gemini and Bedrock have no type; a part with any key besides `text` is not plain text.
        None if fields.len() == 1 => {}
        _ => return None,
    }
    take_text(fields.get_mut("text")?, texts)
}

fn take_text(value: &mut Value, texts: &mut Vec<String>) -> Option<()> {
    let Value::String(text) = value else { return None };
    texts.push(std::mem::take(text));
    Some(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_user_text_of_every_shape_is_cut_out() {
        for (operation, with) in [
            (
                Operation::Chat,
                |text: &str| json!({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": text}]}),
            ),
            (
                Operation::Chat,
                |text: &str| json!({"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]}),
            ),
            (
                Operation::Messages,
                |text: &str| json!({"system": "s", "messages": [{"role": "user", "content": [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]}]}),
            ),
            (Operation::Responses, |text: &str| json!({"input": text, "instructions": "s"})),
            (Operation::Responses, |text: &str| json!({"input": [{"role": "user", "content": text}]})),
            (
                Operation::Responses,
                |text: &str| json!({"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}]}),
            ),
            (Operation::GenerateContent, |text: &str| json!({"contents": [{"parts": [{"text": text}]}]})),
            (
                Operation::GenerateContent,
                |text: &str| json!({"contents": [{"role": "model", "parts": [{"text": "x"}]}, {"role": "user", "parts": [{"text": text}]}]}),
            ),
            (
                Operation::Converse,
                |text: &str| json!({"messages": [{"role": "user", "content": [{"text": text}]}]}),
            ),
        ] as [(Operation, fn(&str) -> Value); 9]
        {
            let (one, other) = (with("How are you?"), with("And now?"));
            let first = split(operation, one.to_string().as_bytes()).unwrap();
            let second = split(operation, other.to_string().as_bytes()).unwrap();
            assert_eq!((&*first.text, &*second.text), ("How are you?", "And now?"), "{one}");
            assert_eq!(first.rest, second.rest, "{one}");
            let mut hotter = one.clone();
            hotter["temperature"] = json!(0.5);
            assert_ne!(split(operation, hotter.to_string().as_bytes()).unwrap().rest, first.rest);
            let mut streamed = one;
            streamed["stream"] = json!(true);
            streamed["stream_options"] = json!({"include_usage": true});
            assert_eq!(split(operation, streamed.to_string().as_bytes()).unwrap(), first);
        }
    }

    #[test]
    fn the_history_belongs_to_the_rest() {
        let with = |history: &str| {
            json!({"messages": [{"role": "user", "content": history}, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]}).to_string()
        };
        let (one, other) = (
            split(Operation::Chat, with("a").as_bytes()).unwrap(),
            split(Operation::Chat, with("b").as_bytes()).unwrap(),
        );
        assert_eq!(one.text, other.text);
        assert_ne!(one.rest, other.rest);
    }

    #[test]
    fn more_than_text_is_never_compared() {
        let long = "word ".repeat(500);
        for (operation, body) in [
            (
                Operation::Chat,
                json!({"messages": [{"role": "user", "content": "x"}, {"role": "tool", "content": "42"}]}),
            ),
            (
                Operation::Chat,
                json!({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}),
            ),
            (
                Operation::Chat,
                json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "u"}}]}]}),
            ),
            (Operation::Chat, json!({"messages": []})),
            (Operation::Chat, json!({"messages": [{"role": "user", "content": "   "}]})),
            (Operation::Chat, json!({"messages": [{"role": "user", "content": long}]})),
            (Operation::Chat, json!({"input": "x"})),
            (
                Operation::Messages,
                json!({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]}),
            ),
            (
                Operation::Messages,
                json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "document", "source": {}}]}]}),
            ),
            (
                Operation::Responses,
                json!({"input": [{"role": "user", "content": "x"}, {"type": "function_call_output", "output": "y"}]}),
            ),
            (
                Operation::Responses,
                json!({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}),
            ),
            (
                Operation::GenerateContent,
                json!({"contents": [{"parts": [{"text": "x"}, {"inlineData": {"data": "aa"}}]}]}),
            ),
            (Operation::GenerateContent, json!({"contents": [{"parts": [{"text": "x", "thought": true}]}]})),
            (
                Operation::GenerateContent,
                json!({"contents": [{"role": "function", "parts": [{"functionResponse": {}}]}]}),
            ),
            (Operation::Embeddings, json!({"input": "x"})),
            (Operation::Completions, json!({"prompt": "x"})),
        ] {
            assert_eq!(split(operation, body.to_string().as_bytes()), None, "{body}");
        }
        for body in ["", "x", r#"{"input":"a","input":"b"}"#, r#"{"input":"a","seed":18446744073709551617}"#]
        {
            assert_eq!(split(Operation::Responses, body.as_bytes()), None, "{body}");
        }
    }
}
