//! Converts message content in both directions. Stored bodies of any wire format become messages of the GenAI
//! conventions. Messages of ingested spans become bodies in the OpenAI format, which every reader of bodies
//! understands.

use serde_json::{Value, json};

use super::names::{
    INPUT_MESSAGES, NUMBERED_INPUT, NUMBERED_OUTPUT, OUTPUT_MESSAGES, PLAIN_INPUT, PLAIN_OUTPUT,
    SYSTEM_INSTRUCTIONS,
};
use super::proto::{Any, AnyValue};
use crate::llm::preview::{assistant_text, joined_text, message_text, parse_truncated, response_text};
use crate::text::lossy_text;

/// At most this many messages are read from numbered attributes.
const MAX_NUMBERED_MESSAGES: usize = 1_000;

/// A stored request, converted to the attributes of the conventions.
pub(super) struct RequestContent {
    /// `gen_ai.input.messages`
    pub messages: Option<String>,
    /// `gen_ai.system_instructions`
    pub system: Option<String>,
    pub body: Option<Value>,
}

pub(super) fn parse_request(request: &[u8]) -> RequestContent {
    let body = parse_truncated(&lossy_text(request));
    let field = |names: &[&str]| names.iter().find_map(|name| body.as_ref()?.get(*name));
    let turns = field(&["messages", "input", "contents"]).and_then(Value::as_array);
    let messages: Vec<Value> = match turns {
        Some(turns) => turns.iter().filter_map(convention_message).collect(),
        None => field(&["prompt", "input", "message", "inputText"])
            .and_then(joined_text)
            .map(|text| vec![text_message("user", &text)])
            .unwrap_or_default(),
    };
    let system =
        field(&["system", "system_instruction", "systemInstruction", "instructions"]).and_then(joined_text);
    RequestContent {
        messages: (!messages.is_empty()).then(|| Value::from(messages).to_string()),
        system: system.map(|text| json!([{"type": "text", "content": text}]).to_string()),
        body,
    }
}

fn convention_message(message: &Value) -> Option<Value> {
    let role = message.get("role").and_then(Value::as_str).unwrap_or("user");
    let text = message_text(message).or_else(|| message.as_str().map(ToOwned::to_owned))?;
    Some(text_message(if role == "model" { "assistant" } else { role }, &text))
}

fn text_message(role: &str, text: &str) -> Value {
    json!({"role": role, "parts": [{"type": "text", "content": text}]})
}

/// `gen_ai.output.messages` of a stored response. `parsed` is the response if it is a single JSON object.
pub(super) fn output_messages(
    response: &[u8],
    is_stream: bool,
    parsed: Option<&Value>,
    finish_reason: &str,
) -> Option<String> {
    let text = parsed.and_then(response_text).or_else(|| assistant_text(response, is_stream))?;
    let parts = json!([{"type": "text", "content": text}]);
    Some(json!([{"role": "assistant", "parts": parts, "finish_reason": finish_reason}]).to_string())
}

/// Parses a stored response that is one JSON value.
pub(super) fn parse_response(response: &[u8]) -> Option<Value> {
    serde_json::from_slice(response).ok()
}

/// Builds a request body in the OpenAI format from a span's attributes. Returns `None` if they carry no input.
pub(super) fn request_body<'a>(
    model: Option<&str>,
    find: impl Fn(&str) -> Option<&'a AnyValue>,
) -> Option<Vec<u8>> {
    let mut messages = Vec::new();
    if let Some(system) = find(SYSTEM_INSTRUCTIONS.written).map(to_json) {
        messages.extend(parts_text(&system).map(|text| json!({"role": "system", "content": text})));
    }
    messages.extend(span_messages(&find, INPUT_MESSAGES.written, &NUMBERED_INPUT, "user"));
    if messages.is_empty() {
        let text = find(PLAIN_INPUT).and_then(text_of)?;
        messages.push(json!({"role": "user", "content": text}));
    }
    Some(json!({"model": model, "messages": messages}).to_string().into_bytes())
}

/// Builds a response body in the OpenAI format from a span's attributes. Returns `None` if they carry no output.
pub(super) fn response_body<'a>(find: impl Fn(&str) -> Option<&'a AnyValue>) -> Option<Vec<u8>> {
    let mut messages = span_messages(&find, OUTPUT_MESSAGES.written, &NUMBERED_OUTPUT, "assistant");
    if messages.is_empty() {
        let text = find(PLAIN_OUTPUT).and_then(text_of)?;
        messages.push(json!({"role": "assistant", "content": text}));
    }
    let choices: Vec<Value> = messages
        .into_iter()
        .enumerate()
        .map(|(index, message)| json!({"index": index, "message": message}))
        .collect();
    Some(json!({"choices": choices}).to_string().into_bytes())
}

/// Reads messages from the one attribute that holds all of them, or else from numbered attributes. `role` is the
/// default role.
fn span_messages<'a>(
    find: &impl Fn(&str) -> Option<&'a AnyValue>,
    attribute: &str,
    numbered: &[(&str, &str)],
    role: &str,
) -> Vec<Value> {
    if let Some(value) = find(attribute) {
        let list = match to_json(value) {
            Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            other => other,
        };
        return match list {
            Value::Array(list) => list.iter().filter_map(|message| openai_message(message, role)).collect(),
            Value::String(text) => vec![json!({"role": role, "content": text})],
            _ => Vec::new(),
        };
    }
    let read_numbered = |(prefix, infix): &(&str, &str)| -> Vec<Value> {
        (0..MAX_NUMBERED_MESSAGES)
            .map_while(|number| {
                let field = |name: &str| find(&format!("{prefix}{number}{infix}{name}")).and_then(text_of);
                let text = field("content").or_else(|| field("contents.0.message_content.text"));
                let own_role = field("role");
                (text.is_some() || own_role.is_some())
                    .then(|| json!({"role": own_role.as_deref().unwrap_or(role), "content": text.unwrap_or_default()}))
            })
            .collect()
    };
    numbered.iter().map(read_numbered).find(|found| !found.is_empty()).unwrap_or_default()
}

/// Converts a message of the conventions to the OpenAI format.
fn openai_message(message: &Value, role: &str) -> Option<Value> {
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
    let part_text = |part: &Value| match part {
        Value::String(text) => Some(text.clone()),
        part => {
            let is_text = part.get("type").is_none_or(|kind| kind == "text");
            part.get("content").filter(|_| is_text).and_then(Value::as_str).map(ToOwned::to_owned)
        }
    };
    let texts: Vec<String> = parts.as_array()?.iter().filter_map(part_text).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// The value as text: composite values as JSON, bytes and empty strings as `None`.
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
