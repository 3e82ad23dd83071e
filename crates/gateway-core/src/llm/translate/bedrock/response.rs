//! Decodes a complete Converse response.

use serde_json::{Map, Value};

use super::{
    super::super::{
        ProviderFormat,
        chat::{ChatResponse, Choice, Content, Part, ToolCall},
        usage,
    },
    decode_stop_reason,
};

pub(super) fn decode_response(body: &Map<String, Value>) -> Option<ChatResponse> {
    let content = body.get("output")?.get("message")?.get("content")?.as_array()?;
    let report = body.get("usage").and_then(Value::as_object);
    Some(ChatResponse {
        choices: vec![Choice {
            index: 0,
            parts: content.iter().flat_map(decode_block).collect(),
            stop: body.get("stopReason").and_then(Value::as_str).map(decode_stop_reason),
            logprobs: Vec::new(),
        }],
        usage: report.and_then(|report| usage::parse_report(ProviderFormat::Bedrock, report)),
        ..ChatResponse::default()
    })
}

fn decode_block(block: &Value) -> Vec<Part> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let content = if let Some(text) = text(block, "text") {
        Some(Content::Text(text))
    } else if let Some(call) = block.get("toolUse") {
        Some(Content::ToolCall(ToolCall {
            id: text(call, "toolUseId").unwrap_or_default(),
            name: text(call, "name").unwrap_or_default(),
            arguments: call.get("input").map_or_else(|| "{}".to_owned(), Value::to_string),
            signature: None,
        }))
    } else if let Some(reasoning) = block.get("reasoningContent") {
        if let Some(thought) = reasoning.get("reasoningText") {
            let signature = text(thought, "signature").filter(|signature| !signature.is_empty());
            Some(Content::Thinking { text: text(thought, "text").unwrap_or_default(), signature })
        } else {
            text(reasoning, "redactedContent").map(Content::Redacted)
        }
    } else if let Some(cited) = block.get("citationsContent").and_then(|cited| cited.get("content")) {
        let texts = cited.as_array().map_or(&[][..], Vec::as_slice);
        return texts.iter().filter_map(|one| text(one, "text")).map(Part::text).collect();
    } else {
        None
    };
    content.map(Part::new).into_iter().collect()
}
