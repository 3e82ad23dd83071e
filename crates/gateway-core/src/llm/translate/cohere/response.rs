//! Decodes a complete chat response.

use serde_json::{Map, Value};

use super::{
    super::{
        super::{
            ProviderFormat,
            chat::{ChatResponse, Choice, Content, Logprob, Part, ToolCall},
            usage,
        },
        json::{str_field, take_array, take_object, take_string},
    },
    decode_stop_reason,
};

type Object = Map<String, Value>;

pub(super) fn decode_response(mut body: Object) -> Option<ChatResponse> {
    let mut message = take_object(&mut body, "message").ok()??;
    let mut parts = Vec::new();
    if let Some(text) = take_string(&mut message, "tool_plan").ok()?.filter(|plan| !plan.is_empty()) {
        parts.push(Part::new(Content::Thinking { text, signature: None }));
    }
    for part in take_array(&mut message, "content").ok()?.unwrap_or_default() {
        let Value::Object(mut part) = part else { return None };
        parts.push(Part::new(match str_field(&part, "type") {
            "thinking" => Content::Thinking {
                text: take_string(&mut part, "thinking").ok()?.unwrap_or_default(),
                signature: None,
            },
            "text" => Content::Text(take_string(&mut part, "text").ok()?.unwrap_or_default()),
            _ => Content::Other(part.into()),
        }));
    }
    for call in take_array(&mut message, "tool_calls").ok()?.unwrap_or_default() {
        let Value::Object(mut call) = call else { return None };
        let mut function = take_object(&mut call, "function").ok()??;
        parts.push(Part::new(Content::ToolCall(ToolCall {
            id: take_string(&mut call, "id").ok()?.unwrap_or_default(),
            name: take_string(&mut function, "name").ok()?.unwrap_or_default(),
            arguments: take_string(&mut function, "arguments").ok()?.unwrap_or_default(),
            signature: None,
        })));
    }
    let logprobs = take_array(&mut body, "logprobs").ok()?.unwrap_or_default();
    let choice = Choice {
        index: 0,
        parts,
        stop: body.get("finish_reason").and_then(Value::as_str).map(decode_stop_reason),
        logprobs: logprobs.iter().filter_map(decode_logprob).collect(),
    };
    let report = take_object(&mut body, "usage").ok().flatten();
    Some(ChatResponse {
        id: str_field(&body, "id").to_owned(),
        model: String::new(),
        created: None,
        choices: vec![choice],
        usage: report.and_then(|report| usage::parse_report(ProviderFormat::Cohere, &report)),
    })
}

/// Decodes a piece of text with the log probabilities of its tokens. Cohere does not say how the text splits into
/// tokens, so only pieces of a single token can be used.
pub(super) fn decode_logprob(piece: &Value) -> Option<Logprob> {
    let probabilities = piece.get("logprobs")?.as_array()?;
    let [probability] = &probabilities[..] else { return None };
    Some(Logprob {
        token: piece.get("text")?.as_str()?.to_owned(),
        logprob: probability.as_number()?.clone(),
        bytes: None,
        top: Vec::new(),
    })
}
