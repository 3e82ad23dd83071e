//! Adds a system prompt to a request of any wire format, before the request's own system prompt. The text is spliced
//! into the body without parsing and rewriting it, so every byte of the caller stays.

use std::ops::Range;

use serde_json::json;

use super::paths::Operation;
use crate::json::{ObjectScan, ScanStatus};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SystemPromptError {
    #[error("a system prompt requires a chat endpoint")]
    NotChat,
    #[error("the request body is not a JSON object")]
    NotObject,
    #[error("the field \"{0}\" appears more than once in the request body")]
    Duplicate(&'static str),
    #[error("the field \"{0}\" is missing from the request body or has the wrong type")]
    WrongType(&'static str),
}

/// Returns the body with the text as its first system message, or before its system text. An empty text changes
/// nothing.
pub fn prepend_system_prompt(
    operation: Operation,
    body: &[u8],
    text: &str,
) -> Result<Vec<u8>, SystemPromptError> {
    let add = match operation {
        Operation::Chat => chat,
        Operation::Responses => responses,
        Operation::Messages => messages,
        Operation::GenerateContent => generate_content,
        Operation::Converse => converse,
        _ => return Err(SystemPromptError::NotChat),
    };
    if text.is_empty() { Ok(body.to_vec()) } else { add(body, text) }
}

/// OpenAI's chat completions and similar APIs (Cohere's v2, Ollama): a message with the role `system`. Cohere's v1 has
/// a single `message` and a `preamble`.
fn chat(body: &[u8], text: &str) -> Result<Vec<u8>, SystemPromptError> {
    static KEYS: [&str; 3] = ["messages", "message", "preamble"];
    let scan = scan_object(&KEYS, body)?;
    match scan.range("messages") {
        Some(at) => prepend_item(body, at, &json!({"role": "system", "content": text}).to_string())
            .ok_or(SystemPromptError::WrongType("messages")),
        None if scan.range("message").is_some() => prepend_text(body, &scan, "preamble", text),
        None => Err(SystemPromptError::WrongType("messages")),
    }
}

fn responses(body: &[u8], text: &str) -> Result<Vec<u8>, SystemPromptError> {
    static KEYS: [&str; 1] = ["instructions"];
    prepend_text(body, &scan_object(&KEYS, body)?, "instructions", text)
}

/// Anthropic: a text or an array of blocks.
fn messages(body: &[u8], text: &str) -> Result<Vec<u8>, SystemPromptError> {
    static KEYS: [&str; 1] = ["system"];
    let scan = scan_object(&KEYS, body)?;
    let block = || json!({"type": "text", "text": text}).to_string();
    match scan.range("system").and_then(|at| prepend_item(body, at, &block())) {
        Some(spliced) => Ok(spliced),
        None => prepend_text(body, &scan, "system", text),
    }
}

/// Gemini: an object with parts, in camel case or snake case.
fn generate_content(body: &[u8], text: &str) -> Result<Vec<u8>, SystemPromptError> {
    static KEYS: [&str; 2] = ["systemInstruction", "system_instruction"];
    static PARTS: [&str; 1] = ["parts"];
    let scan = scan_object(&KEYS, body)?;
    let part = json!({"text": text});
    let key = KEYS.into_iter().find(|key| scan.range(key).is_some()).unwrap_or(KEYS[0]);
    let Some(at) = scan.range(key).filter(|at| !is_null(body, at)) else {
        return Ok(set(body, &scan, key, &json!({"parts": [part]}).to_string()));
    };
    let inner = scan_object(&PARTS, &body[at.clone()]).map_err(|_| SystemPromptError::WrongType(key))?;
    let parts = inner.range("parts").ok_or(SystemPromptError::WrongType(key))?;
    let parts = at.start + parts.start..at.start + parts.end;
    prepend_item(body, parts, &part.to_string()).ok_or(SystemPromptError::WrongType(key))
}

/// Bedrock: an array of blocks.
fn converse(body: &[u8], text: &str) -> Result<Vec<u8>, SystemPromptError> {
    static KEYS: [&str; 1] = ["system"];
    let scan = scan_object(&KEYS, body)?;
    let block = json!({"text": text}).to_string();
    match scan.range("system").filter(|at| !is_null(body, at)) {
        Some(at) => prepend_item(body, at, &block).ok_or(SystemPromptError::WrongType("system")),
        None => Ok(set(body, &scan, "system", &format!("[{block}]"))),
    }
}

fn scan_object<'a, const N: usize>(
    keys: &'static [&'static str; N],
    body: &'a [u8],
) -> Result<ObjectScan<'a, N>, SystemPromptError> {
    let scan = ObjectScan::new(keys, body);
    match scan.status() {
        ScanStatus::Complete => Ok(scan),
        ScanStatus::Duplicate(key) => Err(SystemPromptError::Duplicate(key)),
        ScanStatus::Open | ScanStatus::NotObject | ScanStatus::Malformed => Err(SystemPromptError::NotObject),
    }
}

fn is_null(body: &[u8], at: &Range<usize>) -> bool {
    &body[at.clone()] == b"null"
}

/// Sets a field that is null or missing.
fn set<const N: usize>(body: &[u8], scan: &ObjectScan<'_, N>, key: &str, value: &str) -> Vec<u8> {
    if let Some(at) = scan.range(key) {
        return [&body[..at.start], value.as_bytes(), &body[at.end..]].concat();
    }
    let at = scan.closing().unwrap_or(body.len());
    let comma = if scan.has_members() { "," } else { "" };
    [&body[..at], format!("{comma}\"{key}\":{value}").as_bytes(), &body[at..]].concat()
}

/// Inserts a text before the text of a field, separated by a blank line.
fn prepend_text<const N: usize>(
    body: &[u8],
    scan: &ObjectScan<'_, N>,
    key: &'static str,
    text: &str,
) -> Result<Vec<u8>, SystemPromptError> {
    let quoted = json!(text).to_string();
    let Some(at) = scan.range(key).filter(|at| !is_null(body, at)) else {
        return Ok(set(body, scan, key, &quoted));
    };
    match &body[at.clone()] {
        br#""""# => Ok([&body[..at.start], quoted.as_bytes(), &body[at.end..]].concat()),
        [b'"', ..] => {
            let inner = &quoted.as_bytes()[..quoted.len() - 1];
            Ok([&body[..at.start], inner, br"\n\n", &body[at.start + 1..]].concat())
        }
        _ => Err(SystemPromptError::WrongType(key)),
    }
}

/// Inserts an item at the start of an array. None if the value is not an array.
fn prepend_item(body: &[u8], at: Range<usize>, item: &str) -> Option<Vec<u8>> {
    let inner = body[at.clone()].strip_prefix(b"[")?;
    let empty = inner.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b']');
    let comma: &[u8] = if empty { b"" } else { b"," };
    let start = at.start + 1;
    Some([&body[..start], item.as_bytes(), comma, &body[start..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    const TEXT: &str = "Be \"kind\".\n\\";

    fn put(operation: Operation, body: &str) -> Value {
        serde_json::from_slice(&prepend_system_prompt(operation, body.as_bytes(), TEXT).unwrap()).unwrap()
    }

    #[test]
    fn every_format_gets_the_text_in_its_own_field() {
        let both = format!("{TEXT}\n\nold");
        for (operation, body, expected) in [
            (
                Operation::Chat,
                r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#,
                json!({"model": "m", "messages": [{"role": "system", "content": TEXT}, {"role": "user", "content": "hi"}]}),
            ),
            (
                Operation::Chat,
                r#"{"messages": [ ]}"#,
                json!({"messages": [{"role": "system", "content": TEXT}]}),
            ),
            (Operation::Chat, r#"{"message":"hi"}"#, json!({"message": "hi", "preamble": TEXT})),
            (
                Operation::Chat,
                r#"{"message":"hi","preamble":"old"}"#,
                json!({"message": "hi", "preamble": both}),
            ),
            (Operation::Responses, r#"{"input":"hi"}"#, json!({"input": "hi", "instructions": TEXT})),
            (Operation::Responses, "{}", json!({"instructions": TEXT})),
            (Operation::Responses, r#"{"instructions":null}"#, json!({"instructions": TEXT})),
            (Operation::Responses, r#"{"instructions":""}"#, json!({"instructions": TEXT})),
            (Operation::Responses, r#"{"instructions":"old"}"#, json!({"instructions": both})),
            (Operation::Messages, r#"{"messages":[]}"#, json!({"messages": [], "system": TEXT})),
            (Operation::Messages, r#"{"system":"old"}"#, json!({"system": both})),
            (
                Operation::Messages,
                r#"{"system":[{"type":"text","text":"old","cache_control":{"type":"ephemeral"}}]}"#,
                json!({"system": [{"type": "text", "text": TEXT}, {"type": "text", "text": "old", "cache_control": {"type": "ephemeral"}}]}),
            ),
            (
                Operation::GenerateContent,
                r#"{"contents":[]}"#,
                json!({"contents": [], "systemInstruction": {"parts": [{"text": TEXT}]}}),
            ),
            (
                Operation::GenerateContent,
                r#"{"system_instruction":{"role":"system","parts":[{"text":"old"}]}}"#,
                json!({"system_instruction": {"role": "system", "parts": [{"text": TEXT}, {"text": "old"}]}}),
            ),
            (
                Operation::GenerateContent,
                r#"{"systemInstruction":null}"#,
                json!({"systemInstruction": {"parts": [{"text": TEXT}]}}),
            ),
            (Operation::Converse, r#"{"messages":[]}"#, json!({"messages": [], "system": [{"text": TEXT}]})),
            (
                Operation::Converse,
                r#"{"system":[{"text":"old"}]}"#,
                json!({"system": [{"text": TEXT}, {"text": "old"}]}),
            ),
        ] {
            assert_eq!(put(operation, body), expected, "{body}");
        }
    }

    #[test]
    fn the_callers_own_bytes_stay_as_they_were() {
        let body = br#" { "n" : 1.50 , "messages" : [ {"role":"user","content":"\u00e9"} ] , "x":1e5 } "#;
        let put = prepend_system_prompt(Operation::Chat, body, "S").unwrap();
        let item = br#"{"role":"system","content":"S"},"#;
        let at = put.windows(item.len()).position(|window| window == item).unwrap();
        assert_eq!([&put[..at], &put[at + item.len()..]].concat(), body);
    }

    #[test]
    fn an_empty_text_changes_nothing() {
        assert_eq!(prepend_system_prompt(Operation::Chat, b"{}", "").unwrap(), b"{}");
    }

    #[test]
    fn a_body_without_a_field_for_it_is_rejected() {
        use SystemPromptError::{Duplicate, NotChat, NotObject, WrongType};
        for (operation, body, error) in [
            (Operation::Embeddings, "{}", NotChat),
            (Operation::Other, "{}", NotChat),
            (Operation::Chat, "[]", NotObject),
            (Operation::Chat, "", NotObject),
            (Operation::Chat, r#"{"messages":["#, NotObject),
            (Operation::Chat, "{}", WrongType("messages")),
            (Operation::Chat, r#"{"messages":"x"}"#, WrongType("messages")),
            (Operation::Chat, r#"{"messages":[],"Messages":[]}"#, Duplicate("messages")),
            (Operation::Responses, r#"{"instructions":[]}"#, WrongType("instructions")),
            (Operation::Messages, r#"{"system":1}"#, WrongType("system")),
            (Operation::Messages, r#"{"system":"a","system":"b"}"#, Duplicate("system")),
            (Operation::GenerateContent, r#"{"systemInstruction":"x"}"#, WrongType("systemInstruction")),
            (Operation::GenerateContent, r#"{"systemInstruction":{}}"#, WrongType("systemInstruction")),
            (Operation::Converse, r#"{"system":"x"}"#, WrongType("system")),
        ] {
            assert_eq!(prepend_system_prompt(operation, body.as_bytes(), "S"), Err(error), "{body}");
        }
    }

    proptest! {
        #[test]
        fn any_text_comes_out_as_it_went_in(text in any::<String>(), old in any::<String>()) {
            prop_assume!(!text.is_empty() && !old.is_empty());
            let body = json!({"system": old}).to_string();
            let put = prepend_system_prompt(Operation::Messages, body.as_bytes(), &text).unwrap();
            let value: Value = serde_json::from_slice(&put).unwrap();
            prop_assert_eq!(value["system"].as_str().unwrap(), format!("{text}\n\n{old}"));
        }
    }
}
