//! Semantic caching compares the last thing that the user said; everything else has to be the same to the last byte.
//! Requests whose last turn is more than text are not compared at all.

use serde_json::Value;

use super::json::canonical_json;
use crate::llm::paths::Operation;

/// In a longer text a small difference, which may be all that matters, drowns.
const LONGEST: usize = 2_000;

/// A request taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptSplit {
    /// Canonical, with the last user text blanked out.
    pub rest: Vec<u8>,
    pub text: String,
}

/// Takes a request apart into its last user text and all the rest; `None` when it has to be compared exactly.
pub fn split(operation: Operation, body: &[u8]) -> Option<PromptSplit> {
    const DELIVERY: [&str; 2] = ["stream", "stream_options"];
    let canonical = canonical_json(body, &DELIVERY).ok()?;
    let mut request: Value = serde_json::from_slice(&canonical).ok()?;
    // A number that does not survive being read (a very big integer) could hide a difference.
    if canonical_json(&serde_json::to_vec(&request).ok()?, &[]).ok()? != canonical {
        return None;
    }
    let mut texts = Vec::new();
    match operation {
        Operation::Chat | Operation::Messages | Operation::Converse => {
            take_turn(request.get_mut("messages")?.as_array_mut()?.last_mut()?, "content", &mut texts)?;
        }
        Operation::Responses => match request.get_mut("input")? {
            Value::Array(items) => {
                let item = items.last_mut()?;
                let kind = item.get("type").and_then(Value::as_str);
                if kind.is_some_and(|kind| kind != "message") {
                    return None;
                }
                take_turn(item, "content", &mut texts)?;
            }
            input => take_text(input, &mut texts)?,
        },
        Operation::GenerateContent => {
            take_turn(request.get_mut("contents")?.as_array_mut()?.last_mut()?, "parts", &mut texts)?;
        }
        Operation::Embeddings | Operation::Completions | Operation::Models | Operation::Other => return None,
    }
    let text = texts.join("\n");
    if text.trim().is_empty() || text.chars().count() > LONGEST {
        return None;
    }
    Some(PromptSplit { rest: serde_json::to_vec(&request).ok()?, text })
}

/// Blanks out the text of a user's turn.
fn take_turn(turn: &mut Value, field: &str, texts: &mut Vec<String>) -> Option<()> {
    match turn.get("role").and_then(Value::as_str) {
        Some("user") => {}
        // Gemini leaves the role out when there is only one turn.
        None if field == "parts" => {}
        _ => return None,
    }
    match turn.get_mut(field)? {
        Value::Array(parts) => parts.iter_mut().try_for_each(|part| take_part(part, texts)),
        content => take_text(content, texts),
    }
}

fn take_part(part: &mut Value, texts: &mut Vec<String>) -> Option<()> {
    let fields = part.as_object_mut()?;
    match fields.get("type").and_then(Value::as_str) {
        Some("text" | "input_text") => {}
        // Parts of Gemini and Bedrock are told by their keys; any key but the text's is something else.
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
