//! Anthropic's messages API: content blocks that start, receive deltas and stop.

use serde_json::{Map, Value, json};

use super::{
    Aggregate, AggregateError,
    chunks::{EventBuffer, text_chunks},
    merge,
};

#[derive(Default)]
pub(super) struct State {
    message: Option<Map<String, Value>>,
    blocks: Vec<(u64, Block)>,
    stopped: bool,
}

#[derive(Default)]
struct Block {
    members: Map<String, Value>,
    /// The tool input so far, as JSON text.
    input: String,
}

impl Aggregate for State {
    fn add_event(&mut self, name: &str, mut event: Map<String, Value>) -> Result<(), AggregateError> {
        let kind = merge::take_text(&mut event, "type").unwrap_or_else(|| name.to_owned());
        let index = merge::index_of(&event, "index").unwrap_or(0);
        match &*kind {
            "message_start" => {
                let message = merge::take_object(&mut event, "message");
                self.message =
                    Some(message.ok_or(AggregateError::UnsupportedResponse("message_start has no message"))?);
            }
            "content_block_start" => {
                let block = merge::take_object(&mut event, "content_block");
                let members = block
                    .ok_or(AggregateError::UnsupportedResponse("content_block_start has no content_block"))?;
                *merge::indexed(&mut self.blocks, index)? = Block { members, input: String::new() };
            }
            "content_block_delta" => {
                let delta = merge::take_object(&mut event, "delta");
                let delta = delta.ok_or(AggregateError::UnsupportedResponse("a delta event has no delta"))?;
                merge::indexed(&mut self.blocks, index)?.add_delta(delta);
            }
            "message_delta" => {
                let message = self
                    .message
                    .as_mut()
                    .ok_or(AggregateError::UnsupportedResponse("message_start is missing"))?;
                merge::latest(message, merge::take_object(&mut event, "delta").unwrap_or_default());
                if let Some(usage) = merge::take_object(&mut event, "usage") {
                    match message.get_mut("usage") {
                        Some(Value::Object(known)) => merge::latest(known, usage),
                        _ => {
                            message.insert("usage".into(), usage.into());
                        }
                    }
                }
                merge::latest(message, event);
            }
            "message_stop" => self.stopped = true,
            // `ping`, ends of blocks and future events have no content.
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value, AggregateError> {
        let State { message: Some(mut message), blocks, stopped: true } = *self else {
            return Err(AggregateError::Incomplete);
        };
        let cut = message.get("stop_reason").and_then(Value::as_str) == Some("max_tokens");
        let blocks =
            blocks.into_iter().map(|(_, block)| block.build(cut)).collect::<Result<Vec<Value>, _>>()?;
        message.insert("content".into(), blocks.into());
        Ok(Value::Object(message))
    }
}

impl Block {
    fn add_delta(&mut self, mut delta: Map<String, Value>) {
        delta.remove("type");
        if let Some(more) = merge::take_text(&mut delta, "partial_json") {
            self.input.push_str(&more);
        }
        if let Some(citation) = delta.remove("citation") {
            match self.members.get_mut("citations") {
                Some(Value::Array(citations)) => citations.push(citation),
                _ => {
                    self.members.insert("citations".into(), json!([citation]));
                }
            }
        }
        merge::delta(&mut self.members, delta);
    }

    fn build(self, cut: bool) -> Result<Value, AggregateError> {
        let Block { mut members, input } = self;
        if !input.is_empty() {
            match serde_json::from_str::<Value>(&input) {
                Ok(input) => {
                    members.insert("input".into(), input);
                }
                // A call truncated by max_tokens cannot be made anyway, so it keeps its initial input.
                Err(_) if cut => {}
                Err(_) => {
                    return Err(AggregateError::UnsupportedResponse("the input of a tool call is not JSON"));
                }
            }
        }
        Ok(Value::Object(members))
    }
}

pub(super) fn synthesize(mut body: Map<String, Value>) -> Result<Vec<Vec<u8>>, AggregateError> {
    let Some(content) = merge::take_list(&mut body, "content") else {
        return Err(AggregateError::UnsupportedResponse("content is not a list"));
    };
    // Members of the last event, besides the usage.
    const FINAL_KEYS: [&str; 4] = ["stop_reason", "stop_sequence", "container", "stop_details"];
    let mut end = Map::new();
    for key in FINAL_KEYS {
        if let Some(value) = body.get_mut(key) {
            end.insert(key.into(), value.take());
        }
    }
    let management = body.remove("context_management");
    let usage = body.get("usage").cloned().unwrap_or_else(|| json!({}));
    if let Some(count) = body.get_mut("usage").and_then(|usage| usage.get_mut("output_tokens")) {
        *count = json!(1);
    }
    body.insert("content".into(), json!([]));
    let mut events = EventBuffer::default();
    events.named("message_start", &json!({"type": "message_start", "message": body}));
    for (at, block) in content.into_iter().enumerate() {
        let Value::Object(block) = block else {
            return Err(AggregateError::UnsupportedResponse("a content block is not an object"));
        };
        synthesize_block(&mut events, at, block);
    }
    let mut last = json!({"type": "message_delta", "delta": end, "usage": usage});
    if let (Some(management), Some(last)) = (management, last.as_object_mut()) {
        last.insert("context_management".into(), management);
    }
    events.named("message_delta", &last);
    events.named("message_stop", &json!({"type": "message_stop"}));
    Ok(events.0)
}

fn synthesize_block(events: &mut EventBuffer, at: usize, mut block: Map<String, Value>) {
    let kind = block.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut deltas = Vec::new();
    let mut grow = |block: &mut Map<String, Value>, key: &str, delta: &str| {
        if let Some(Value::String(text)) = block.get_mut(key) {
            let text = std::mem::take(text);
            deltas.extend(text_chunks(&text).map(|piece| json!({"type": delta, key: piece})));
        }
    };
    match &*kind {
        "text" => grow(&mut block, "text", "text_delta"),
        "thinking" => {
            grow(&mut block, "thinking", "thinking_delta");
            if let Some(Value::String(signature)) = block.get_mut("signature") {
                deltas.push(json!({"type": "signature_delta", "signature": std::mem::take(signature)}));
            }
        }
        _ if kind.ends_with("tool_use") => {
            if let Some(input) = block.get_mut("input").filter(|input| **input != json!({})) {
                let text = std::mem::replace(input, json!({})).to_string();
                deltas.extend(
                    text_chunks(&text)
                        .map(|piece| json!({"type": "input_json_delta", "partial_json": piece})),
                );
            }
        }
        _ => {}
    }
    if let Some(Value::Array(citations)) = block.get_mut("citations").filter(|_| kind == "text") {
        let citations = std::mem::take(citations);
        deltas.extend(citations.into_iter().map(|one| json!({"type": "citations_delta", "citation": one})));
    }
    let start = json!({"type": "content_block_start", "index": at, "content_block": block});
    events.named("content_block_start", &start);
    for delta in deltas {
        let delta = json!({"type": "content_block_delta", "index": at, "delta": delta});
        events.named("content_block_delta", &delta);
    }
    events.named("content_block_stop", &json!({"type": "content_block_stop", "index": at}));
}
