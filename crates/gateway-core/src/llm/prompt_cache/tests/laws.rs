//! Properties of marks over random bodies.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::MarkFormat;
use super::{AUTO, HOUR, mark};

static FORMATS: [MarkFormat; 4] =
    [MarkFormat::Anthropic, MarkFormat::Bedrock, MarkFormat::OpenAiChat, MarkFormat::OpenAiResponses];

/// The texts that a mark adds to blocks.
const MARKS: [&str; 5] = [
    r#","cache_control":{"type":"ephemeral"}"#,
    r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#,
    r#",{"cachePoint":{"type":"default"}}"#,
    r#",{"cachePoint":{"type":"default","ttl":"1h"}}"#,
    r#","prompt_cache_breakpoint":{"mode":"explicit"}"#,
];

fn without_marks(body: &str) -> String {
    MARKS.iter().fold(body.to_owned(), |body, mark| body.replace(mark, ""))
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[a-z ]{0,40}", Just("word ".repeat(1_200))]
}

fn block(format: MarkFormat) -> impl Strategy<Value = Value> {
    (text(), 0..6_u8).prop_map(move |(text, kind)| match (format, kind) {
        (MarkFormat::Bedrock, 0) => json!({"reasoningContent": {"reasoningText": {"text": text}}}),
        (MarkFormat::Bedrock, _) => json!({"text": text}),
        (MarkFormat::Anthropic, 0) => json!({"type": "thinking", "thinking": text}),
        (MarkFormat::Anthropic, 1) => json!({"type": "tool_result", "tool_use_id": "1", "content": text}),
        (MarkFormat::OpenAiChat, 0) => json!({"type": "image_url", "image_url": {"url": text}}),
        (MarkFormat::OpenAiResponses, _) => json!({"type": "input_text", "text": text}),
        _ => json!({"type": "text", "text": text}),
    })
}

fn blocks(format: MarkFormat) -> impl Strategy<Value = Value> {
    prop::collection::vec(block(format), 0..4).prop_map(Value::Array)
}

fn messages(format: MarkFormat) -> impl Strategy<Value = Value> {
    let role = prop_oneof![Just("system"), Just("user"), Just("assistant")];
    let message =
        (role, blocks(format)).prop_map(|(role, content)| json!({"role": role, "content": content}));
    prop::collection::vec(message, 0..6).prop_map(Value::Array)
}

fn body(format: MarkFormat) -> impl Strategy<Value = Value> {
    (messages(format), prop::option::of(blocks(format)), text(), any::<bool>()).prop_map(
        move |(messages, system, tool, is_explicit)| {
            let mut body = Map::new();
            body.insert("model".into(), "m".into());
            match format {
                MarkFormat::Anthropic => body.insert("tools".into(), json!([{"name": tool}])),
                MarkFormat::Bedrock => {
                    body.insert("toolConfig".into(), json!({"tools": [{"toolSpec": {"name": tool}}]}))
                }
                MarkFormat::OpenAiChat | MarkFormat::OpenAiResponses if is_explicit => {
                    body.insert("prompt_cache_options".into(), json!({"mode": "explicit"}))
                }
                MarkFormat::OpenAiChat | MarkFormat::OpenAiResponses => None,
            };
            if let (MarkFormat::Anthropic | MarkFormat::Bedrock, Some(system)) = (format, system) {
                body.insert("system".into(), system);
            }
            let key = if format == MarkFormat::OpenAiResponses { "input" } else { "messages" };
            body.insert(key.into(), messages);
            Value::Object(body)
        },
    )
}

fn any_body() -> impl Strategy<Value = (MarkFormat, Value)> {
    prop::sample::select(&FORMATS[..]).prop_flat_map(|format| (Just(format), body(format)))
}

/// The number of marks at any depth.
fn count(value: &Value) -> u32 {
    match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| {
                let is_mark =
                    ["cache_control", "cachePoint", "prompt_cache_breakpoint"].contains(&name.as_str());
                u32::from(is_mark) + count(value)
            })
            .sum(),
        _ => 0,
    }
}

proptest! {
    #[test]
    fn removing_the_marks_gives_back_the_bytes((format, body) in any_body(), is_pretty in any::<bool>(), is_long in any::<bool>()) {
        let setting = if is_long { HOUR } else { AUTO };
        let body = if is_pretty { serde_json::to_string_pretty(&body) } else { serde_json::to_string(&body) }.unwrap();
        prop_assume!(without_marks(&body) == body);
        if let Some(marked) = mark(format, &setting, &body) {
            let text = String::from_utf8(marked.body).unwrap();
            prop_assert_eq!(without_marks(&text), body);
            prop_assert_eq!(count(&serde_json::from_str(&text).unwrap()), marked.marks);
            prop_assert!((1..=2).contains(&marked.marks));
        }
    }

    /// What is marked once is not marked again: all places are the caller's then.
    #[test]
    fn a_marked_body_is_left_alone((format, body) in any_body()) {
        let body = body.to_string();
        if let Some(marked) = mark(format, &AUTO, &body) {
            let again = mark(format, &AUTO, &String::from_utf8(marked.body).unwrap());
            prop_assert_eq!(again, None);
        }
    }

    #[test]
    fn no_body_breaks_the_reader(format in prop::sample::select(&FORMATS[..]), body in any::<Vec<u8>>()) {
        if let Some(prompt) = super::CacheablePrompt::read(format, &body) {
            prompt.head_hash();
            prompt.marked(&AUTO, super::model(format));
        }
    }
}
