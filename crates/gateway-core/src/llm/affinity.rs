//! Which conversation a request belongs to, where its headers do not say. Requests of one conversation share everything
//! that comes before the newest messages, so they are recognized by how they begin.

use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;

use super::paths::Operation;
use crate::json::{
    MemberValue, ObjectScan, ScanStatus, ScannedValue, array_items, for_each_member, unescape,
};

const MAX_KEY_BYTES: usize = 256;

/// The conversation as `prompt_cache_key` names it.
pub fn prompt_cache_key(body: &[u8]) -> Option<String> {
    static KEYS: [&str; 1] = ["prompt_cache_key"];
    let scan = ObjectScan::new(&KEYS, body);
    if scan.status() != ScanStatus::Complete {
        return None;
    }
    let ScannedValue::Raw(raw) = scan.get("prompt_cache_key")? else { return None };
    let text = unescape(raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?)?;
    (1..=MAX_KEY_BYTES).contains(&text.len()).then_some(text)
}

/// How a conversation begins: a hash of the system prompt and the first text of the user, and of that text alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beginning {
    pub with_system: u64,
    pub first_text: u64,
}

/// How the conversation of a request begins. None if the request has no message of a user.
pub fn beginning(operation: Operation, body: &[u8]) -> Option<Beginning> {
    static KEYS: [&str; 7] = [
        "system",
        "instructions",
        "systemInstruction",
        "system_instruction",
        "messages",
        "input",
        "contents",
    ];
    let list = match operation {
        Operation::Chat | Operation::Messages | Operation::Converse => "messages",
        Operation::Responses => "input",
        Operation::GenerateContent => "contents",
        _ => return None,
    };
    let scan = ObjectScan::new(&KEYS, body);
    if scan.status() != ScanStatus::Complete {
        return None;
    }
    let mut system = DefaultHasher::new();
    for key in &KEYS[..4] {
        if let Some(range) = scan.range(key) {
            hash_texts(&body[range], &mut system);
        }
    }
    let messages = scan.range(list)?;
    let mut first = DefaultHasher::new();
    if body.get(messages.start) == Some(&b'"') {
        hash_texts(&body[messages], &mut first);
    } else {
        hash_texts(first_user(&body[messages], &mut system)?, &mut first);
    }
    let first_text = first.finish();
    system.write_u64(first_text);
    Some(Beginning { with_system: system.finish(), first_text })
}

/// The content of the first message of a user. What precedes it belongs to the system prompt.
fn first_user<'a>(messages: &'a [u8], system: &mut DefaultHasher) -> Option<&'a [u8]> {
    static KEYS: [&str; 3] = ["role", "content", "parts"];
    for item in array_items(messages) {
        let text = &messages[item];
        let scan = ObjectScan::new(&KEYS, text);
        let content: Option<Range<usize>> = scan.range("content").or_else(|| scan.range("parts"));
        let Some(content) = content.filter(|_| scan.status() == ScanStatus::Complete) else { continue };
        // Gemini's role may be missing.
        let role = scan.range("role").map(|role| &text[role]);
        if matches!(role, None | Some(br#""user""#)) {
            return Some(&text[content]);
        }
        hash_texts(&text[content], system);
    }
    None
}

/// Hashes a text, or the texts of blocks. Other members of a block, such as marks, differ between calls.
fn hash_texts(value: &[u8], hasher: &mut DefaultHasher) {
    if value.first() == Some(&b'"') {
        hasher.write(value.get(1..value.len().saturating_sub(1)).unwrap_or_default());
        return;
    }
    for_each_member(value, |key, member| {
        if let (b"text", MemberValue::Text(text)) = (key, member) {
            hasher.write(text);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(operation: Operation, body: &str) -> Option<Beginning> {
        beginning(operation, body.as_bytes())
    }

    #[test]
    fn calls_of_a_conversation_begin_alike() {
        for (operation, first, later) in [
            (
                Operation::Chat,
                r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"hello"}]}"#,
                r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"hello"},{"role":"assistant","content":"hi"},{"role":"user","content":"more"}]}"#,
            ),
            // Marks move from message to message, and a plain text may become a block.
            (
                Operation::Messages,
                r#"{"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"hello","cache_control":{"type":"ephemeral"}}]}]}"#,
                r#"{"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"hello"},{"role":"user","content":"more"}]}"#,
            ),
            (
                Operation::Responses,
                r#"{"instructions":"s","input":"hello"}"#,
                r#"{"instructions":"s","input":[{"role":"user","content":[{"type":"input_text","text":"hello"}]},{"role":"user","content":"x"}]}"#,
            ),
            (
                Operation::GenerateContent,
                r#"{"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"parts":[{"text":"hello"}]}]}"#,
                r#"{"system_instruction":{"parts":[{"text":"s"}]},"contents":[{"role":"user","parts":[{"text":"hello"}]},{"role":"model","parts":[]}]}"#,
            ),
            (
                Operation::Converse,
                r#"{"system":[{"text":"s"}],"messages":[{"role":"user","content":[{"text":"hello"}]}]}"#,
                r#"{"system":[{"text":"s"},{"cachePoint":{}}],"messages":[{"role":"user","content":[{"text":"hello"}]},{"role":"assistant","content":[]}]}"#,
            ),
        ] {
            let found = begins(operation, first);
            assert!(found.is_some(), "{first}");
            assert_eq!(found, begins(operation, later), "{later}");
            let other_user = begins(operation, &first.replace("hello", "bye")).unwrap();
            assert_ne!(found.unwrap().first_text, other_user.first_text);
            let other_system = begins(operation, &first.replace("\"s\"", "\"t\"")).unwrap();
            assert_ne!(found.unwrap().with_system, other_system.with_system);
            assert_eq!(found.unwrap().first_text, other_system.first_text);
        }
    }

    #[test]
    fn what_is_no_conversation_has_no_beginning() {
        for body in
            ["", "{}", "[]", r#"{"messages":[]}"#, r#"{"messages":[{"role":"assistant","content":"a"}]}"#]
        {
            assert_eq!(begins(Operation::Chat, body), None, "{body}");
        }
        assert_eq!(begins(Operation::Embeddings, r#"{"input":"a"}"#), None);
    }

    #[test]
    fn a_prompt_cache_key_is_read() {
        let key = |body: &str| prompt_cache_key(body.as_bytes());
        assert_eq!(key(r#"{"prompt_cache_key":"a\u0062"}"#).as_deref(), Some("ab"));
        for body in [r#"{"prompt_cache_key":""}"#, r#"{"prompt_cache_key":1}"#, "{}", ""] {
            assert_eq!(key(body), None, "{body}");
        }
        assert_eq!(key(&format!(r#"{{"prompt_cache_key":"{}"}}"#, "x".repeat(257))), None);
    }
}
