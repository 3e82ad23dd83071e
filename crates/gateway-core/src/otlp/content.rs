//! What was said: bodies of any wire format as the messages of the conventions, and messages of senders as bodies in the
//! OpenAI shape, which everything that reads stored bodies understands.

use serde_json::{Value, json};

use super::names::{
    INPUT_MESSAGES, OUTPUT_MESSAGES, PLAIN_INPUT, PLAIN_OUTPUT, SPREAD_INPUT, SPREAD_OUTPUT,
    SYSTEM_INSTRUCTIONS,
};
use super::proto::{Any, AnyValue};
use crate::llm::preview::{assistant_text, joined_text, message_text, parse_truncated, response_text};

/// Messages that a sender may spread over attributes, at most.
const MOST_MESSAGES: usize = 1_000;

/// What a stored request holds besides the messages' texts.
pub(super) struct Asked {
    /// `gen_ai.input.messages`
    pub messages: Option<String>,
    /// `gen_ai.system_instructions`
    pub system: Option<String>,
    pub body: Option<Value>,
}

pub(super) fn asked(request: &[u8]) -> Asked {
    let body = parse_truncated(&String::from_utf8_lossy(request));
    let field = |names: &[&str]| names.iter().find_map(|name| body.as_ref()?.get(*name));
    let turns = field(&["messages", "input", "contents"]).and_then(Value::as_array);
    let messages: Vec<Value> = match turns {
        Some(turns) => turns.iter().filter_map(turn).collect(),
        None => field(&["prompt", "input", "message", "inputText"])
            .and_then(joined_text)
            .map(|text| vec![message("user", &text)])
            .unwrap_or_default(),
    };
    let system =
        field(&["system", "system_instruction", "systemInstruction", "instructions"]).and_then(joined_text);
    Asked {
        messages: (!messages.is_empty()).then(|| Value::from(messages).to_string()),
        system: system.map(|text| json!([{"type": "text", "content": text}]).to_string()),
        body,
    }
}

fn turn(turn: &Value) -> Option<Value> {
    let role = turn.get("role").and_then(Value::as_str).unwrap_or("user");
    let text = message_text(turn).or_else(|| turn.as_str().map(ToOwned::to_owned))?;
    Some(message(if role == "model" { "assistant" } else { role }, &text))
}

fn message(role: &str, text: &str) -> Value {
    json!({"role": role, "parts": [{"type": "text", "content": text}]})
}

/// `gen_ai.output.messages` of a stored response, which may be parsed already.
pub(super) fn answered(
    response: &[u8],
    is_stream: bool,
    parsed: Option<&Value>,
    finish_reason: &str,
) -> Option<String> {
    let text = parsed.and_then(response_text).or_else(|| assistant_text(response, is_stream))?;
    let parts = json!([{"type": "text", "content": text}]);
    Some(json!([{"role": "assistant", "parts": parts, "finish_reason": finish_reason}]).to_string())
}

/// A stored response that is one JSON object.
pub(super) fn answer_body(response: &[u8]) -> Option<Value> {
    serde_json::from_slice(response).ok()
}

/// The request that a sender's attributes tell of, in the OpenAI shape; None when they say nothing of it.
pub(super) fn request_body<'a>(
    model: Option<&str>,
    find: impl Fn(&str) -> Option<&'a AnyValue>,
) -> Option<Vec<u8>> {
    let mut said = Vec::new();
    if let Some(system) = find(SYSTEM_INSTRUCTIONS.written).map(to_json) {
        said.extend(parts_text(&system).map(|text| json!({"role": "system", "content": text})));
    }
    said.extend(messages(&find, INPUT_MESSAGES.written, &SPREAD_INPUT, "user"));
    if said.is_empty() {
        let text = find(PLAIN_INPUT).and_then(text_of)?;
        said.push(json!({"role": "user", "content": text}));
    }
    Some(json!({"model": model, "messages": said}).to_string().into_bytes())
}

/// The answer that a sender's attributes tell of.
pub(super) fn response_body<'a>(find: impl Fn(&str) -> Option<&'a AnyValue>) -> Option<Vec<u8>> {
    let mut said = messages(&find, OUTPUT_MESSAGES.written, &SPREAD_OUTPUT, "assistant");
    if said.is_empty() {
        let text = find(PLAIN_OUTPUT).and_then(text_of)?;
        said.push(json!({"role": "assistant", "content": text}));
    }
    let choices: Vec<Value> = said
        .into_iter()
        .enumerate()
        .map(|(index, message)| json!({"index": index, "message": message}))
        .collect();
    Some(json!({"choices": choices}).to_string().into_bytes())
}

fn messages<'a>(
    find: &impl Fn(&str) -> Option<&'a AnyValue>,
    whole: &str,
    spread: &[(&str, &str)],
    role: &str,
) -> Vec<Value> {
    if let Some(value) = find(whole) {
        let list = match to_json(value) {
            Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            other => other,
        };
        return match list {
            Value::Array(list) => list.iter().filter_map(|message| plain(message, role)).collect(),
            Value::String(text) => vec![json!({"role": role, "content": text})],
            _ => Vec::new(),
        };
    }
    let numbered = |(before, behind): &(&str, &str)| -> Vec<Value> {
        (0..MOST_MESSAGES)
            .map_while(|number| {
                let field = |name: &str| find(&format!("{before}{number}{behind}{name}")).and_then(text_of);
                let text = field("content").or_else(|| field("contents.0.message_content.text"));
                let said_by = field("role");
                (text.is_some() || said_by.is_some())
                    .then(|| json!({"role": said_by.as_deref().unwrap_or(role), "content": text.unwrap_or_default()}))
            })
            .collect()
    };
    spread.iter().map(numbered).find(|found| !found.is_empty()).unwrap_or_default()
}

/// A message of the conventions as one of the OpenAI shape.
fn plain(message: &Value, role: &str) -> Option<Value> {
    let role = message.get("role").and_then(Value::as_str).unwrap_or(role);
    let text = match message.get("parts") {
        Some(parts) => parts_text(parts),
        None => message_text(message),
    };
    Some(json!({"role": role, "content": text?}))
}

fn parts_text(parts: &Value) -> Option<String> {
    let parsed;
    let parts = match parts {
        Value::String(text) => {
            let Ok(inner) = serde_json::from_str::<Value>(text) else { return Some(text.clone()) };
            parsed = inner;
            &parsed
        }
        other => other,
    };
    let one = |part: &Value| match part {
        Value::String(text) => Some(text.clone()),
        part => {
            let is_text = part.get("type").is_none_or(|kind| kind == "text");
            part.get("content").filter(|_| is_text).and_then(Value::as_str).map(ToOwned::to_owned)
        }
    };
    let texts: Vec<String> = parts.as_array()?.iter().filter_map(one).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// A value as a text, whatever it is.
pub(super) fn text_of(value: &AnyValue) -> Option<String> {
    match value.value.as_ref()? {
        Any::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Any::Bool(flag) => Some(flag.to_string()),
        Any::Int(number) => Some(number.to_string()),
        Any::Double(number) => Some(number.to_string()),
        Any::Array(_) | Any::Map(_) => Some(to_json(value).to_string()),
        Any::Bytes(_) => None,
    }
}

fn to_json(value: &AnyValue) -> Value {
    match &value.value {
        None | Some(Any::Bytes(_)) => Value::Null,
        Some(Any::String(text)) => text.as_str().into(),
        Some(Any::Bool(flag)) => (*flag).into(),
        Some(Any::Int(number)) => (*number).into(),
        Some(Any::Double(number)) => (*number).into(),
        Some(Any::Array(array)) => array.values.iter().map(to_json).collect(),
        Some(Any::Map(map)) => map
            .values
            .iter()
            .map(|pair| (pair.key.clone(), pair.value.as_ref().map_or(Value::Null, to_json)))
            .collect(),
    }
}
