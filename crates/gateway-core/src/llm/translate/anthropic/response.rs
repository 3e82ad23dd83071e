//! Complete (non-streaming) messages.

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::{
            ProviderFormat,
            chat::{ChatResponse, Choice, Content, Part, StopReason, parse_arguments},
            usage::{self, Usage},
        },
        json::{str_field, take_array, take_object},
    },
    decode_request::decode_block,
    decode_stop_reason, encode_stop_reason,
};

type Object = Map<String, Value>;

pub(super) fn decode_response(mut body: Object) -> Option<ChatResponse> {
    let blocks = take_array(&mut body, "content").ok()??;
    let mut parts = Vec::with_capacity(blocks.len());
    for block in blocks {
        let Value::Object(block) = block else { return None };
        parts.push(decode_block(block).ok()?);
    }
    let report = take_object(&mut body, "usage").ok().flatten();
    let sequence = body.get("stop_sequence").and_then(Value::as_str);
    let stop =
        body.get("stop_reason").and_then(Value::as_str).map(|reason| decode_stop_reason(reason, sequence));
    Some(ChatResponse {
        id: str_field(&body, "id").to_owned(),
        model: str_field(&body, "model").to_owned(),
        created: None,
        choices: vec![Choice { index: 0, parts, stop, logprobs: Vec::new() }],
        usage: report.and_then(|report| usage::parse_report(ProviderFormat::Anthropic, &report)),
    })
}

pub(super) fn encode_response(response: ChatResponse) -> Value {
    let choice = response.choices.into_iter().next().unwrap_or_default();
    let mut content: Vec<Value> = Vec::with_capacity(choice.parts.len());
    for part in choice.parts {
        encode_block(part, &mut content);
    }
    let stop = choice.stop.unwrap_or(StopReason::EndTurn);
    let (reason, sequence) = encode_stop_reason(&stop);
    json!({
        "id": response.id,
        "type": "message",
        "role": "assistant",
        "model": response.model,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": encode_usage(&response.usage.unwrap_or_default()),
    })
}

fn encode_block(part: Part, content: &mut Vec<Value>) {
    match part.content {
        Content::Text(text) | Content::Refusal(text) => content.push(json!({"type": "text", "text": text})),
        Content::Thinking { text, signature } => {
            let signature = signature.unwrap_or_default();
            content.push(json!({"type": "thinking", "thinking": text, "signature": signature}));
        }
        Content::Redacted(data) => content.push(json!({"type": "redacted_thinking", "data": data})),
        Content::ToolCall(call) => {
            if let Some(signature) = call.signature {
                attach_call_signature(content, signature);
            }
            let input = parse_arguments(&call.arguments);
            content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
        }
        _ => {}
    }
}

/// Stores the signature of a tool call in the thinking block before it, since the format signs thinking only.
fn attach_call_signature(content: &mut Vec<Value>, signature: String) {
    match content.last_mut() {
        Some(last) if last["type"] == "thinking" && last["signature"] == "" => {
            last["signature"] = signature.into();
        }
        _ => content.push(json!({"type": "thinking", "thinking": "", "signature": signature})),
    }
}

/// Encodes usage as Anthropic counts it: `input_tokens` excludes tokens read from or written to the cache.
pub(super) fn encode_usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input.saturating_add(usage.audio_input),
        "cache_creation_input_tokens": usage.cache_write.saturating_add(usage.cache_write_1h),
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write,
            "ephemeral_1h_input_tokens": usage.cache_write_1h,
        },
        "output_tokens": usage.completion_tokens(),
    })
}
