//! Bedrock's Converse API. Its streams are binary event stream frames.

use serde_json::{Map, Value, json};

use super::{Aggregate, AggregateError, chunks::text_chunks, merge};
use crate::llm::eventstream;

#[derive(Default)]
pub(super) struct State {
    role: Option<Value>,
    blocks: Vec<(u64, Block)>,
    stop: Option<Map<String, Value>>,
    metadata: Option<Map<String, Value>>,
}

/// An incomplete block. Its deltas determine its type.
#[derive(Default)]
struct Block {
    text: Option<String>,
    tool_use: Option<Map<String, Value>>,
    input: String,
    reasoning: Map<String, Value>,
    citations: Vec<Value>,
    rest: Map<String, Value>,
}

impl Aggregate for State {
    fn add_event(&mut self, name: &str, mut event: Map<String, Value>) -> Result<(), AggregateError> {
        // Padding.
        event.remove("p");
        let index = merge::index_of(&event, "contentBlockIndex").unwrap_or(0);
        match name {
            "messageStart" => self.role = event.remove("role"),
            "contentBlockStart" => {
                let mut start = merge::take_object(&mut event, "start").unwrap_or_default();
                let block = merge::indexed(&mut self.blocks, index)?;
                block.tool_use = merge::take_object(&mut start, "toolUse");
                merge::delta(&mut block.rest, start);
            }
            "contentBlockDelta" => {
                let delta = merge::take_object(&mut event, "delta");
                let delta = delta.ok_or(AggregateError::UnsupportedResponse("a delta event has no delta"))?;
                merge::indexed(&mut self.blocks, index)?.add_delta(delta);
            }
            "contentBlockStop" => {}
            "messageStop" => self.stop = Some(event),
            "metadata" => self.metadata = Some(event),
            _ => return Err(AggregateError::UnsupportedResponse("unknown event type")),
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value, AggregateError> {
        let State { role, blocks, stop: Some(stop), metadata: Some(metadata) } = *self else {
            return Err(AggregateError::Incomplete);
        };
        let cut = stop.get("stopReason").and_then(Value::as_str) == Some("max_tokens");
        let blocks =
            blocks.into_iter().map(|(_, block)| block.build(cut)).collect::<Result<Vec<Value>, _>>()?;
        let message = json!({"role": role.unwrap_or_else(|| "assistant".into()), "content": blocks});
        let mut body = Map::from_iter([("output".to_owned(), json!({"message": message}))]);
        body.extend(stop);
        body.extend(metadata);
        Ok(Value::Object(body))
    }
}

impl Block {
    fn add_delta(&mut self, mut delta: Map<String, Value>) {
        if let Some(more) = merge::take_text(&mut delta, "text") {
            self.text.get_or_insert_default().push_str(&more);
        }
        if let Some(mut tool_use) = merge::take_object(&mut delta, "toolUse") {
            self.input.push_str(&merge::take_text(&mut tool_use, "input").unwrap_or_default());
            merge::delta(self.tool_use.get_or_insert_default(), tool_use);
        }
        if let Some(mut reasoning) = merge::take_object(&mut delta, "reasoningContent") {
            if let (Some(Value::String(known)), Some(Value::String(more))) =
                (self.reasoning.get_mut("redactedContent"), reasoning.get("redactedContent"))
            {
                merge::join_base64(known, more);
                reasoning.remove("redactedContent");
            }
            merge::delta(&mut self.reasoning, reasoning);
        }
        if let Some(citation) = delta.remove("citation") {
            self.citations.push(citation);
        }
        merge::delta(&mut self.rest, delta);
    }

    fn build(self, cut: bool) -> Result<Value, AggregateError> {
        let Block { text, tool_use, input, mut reasoning, citations, mut rest } = self;
        if !citations.is_empty() {
            let content: Vec<Value> = text.into_iter().map(|text| json!({"text": text})).collect();
            rest.insert("citationsContent".into(), json!({"content": content, "citations": citations}));
        } else if let Some(text) = text {
            rest.insert("text".into(), text.into());
        }
        if let Some(mut tool_use) = tool_use {
            let input = match serde_json::from_str::<Value>(&input) {
                Ok(input) => input,
                Err(_) if input.is_empty() || cut => json!({}),
                Err(_) => {
                    return Err(AggregateError::UnsupportedResponse("the input of a tool call is not JSON"));
                }
            };
            tool_use.insert("input".into(), input);
            rest.insert("toolUse".into(), tool_use.into());
        }
        if !reasoning.is_empty() {
            let mut whole = Map::new();
            if let Some(redacted) = reasoning.remove("redactedContent") {
                whole.insert("redactedContent".into(), redacted);
            }
            if !reasoning.is_empty() {
                whole.insert("reasoningText".into(), reasoning.into());
            }
            rest.insert("reasoningContent".into(), whole.into());
        }
        Ok(Value::Object(rest))
    }
}

pub(super) fn synthesize(mut body: Map<String, Value>) -> Result<Vec<Vec<u8>>, AggregateError> {
    let message = merge::take_object(&mut body, "output")
        .and_then(|mut output| merge::take_object(&mut output, "message"));
    let mut message = message.ok_or(AggregateError::UnsupportedResponse("the body has no message"))?;
    let mut frames = Vec::new();
    let role = message.remove("role").unwrap_or_else(|| "assistant".into());
    push(&mut frames, "messageStart", &json!({"role": role}))?;
    for (at, block) in merge::take_list(&mut message, "content").unwrap_or_default().into_iter().enumerate() {
        let Value::Object(block) = block else {
            return Err(AggregateError::UnsupportedResponse("a content block is not an object"));
        };
        let (start, deltas) = split_block(block);
        if let Some(start) = start {
            push(&mut frames, "contentBlockStart", &json!({"start": start, "contentBlockIndex": at}))?;
        }
        for delta in deltas {
            push(&mut frames, "contentBlockDelta", &json!({"delta": delta, "contentBlockIndex": at}))?;
        }
        push(&mut frames, "contentBlockStop", &json!({"contentBlockIndex": at}))?;
    }
    const FINAL_KEYS: [&str; 2] = ["stopReason", "additionalModelResponseFields"];
    let (stop, metadata): (Map<String, Value>, Map<String, Value>) =
        body.into_iter().partition(|(key, _)| FINAL_KEYS.contains(&&**key));
    push(&mut frames, "messageStop", &Value::Object(stop))?;
    push(&mut frames, "metadata", &Value::Object(metadata))?;
    Ok(frames)
}

fn push(frames: &mut Vec<Vec<u8>>, name: &str, payload: &Value) -> Result<(), AggregateError> {
    let headers = [(":event-type", name), (":content-type", "application/json"), (":message-type", "event")];
    let frame = eventstream::encode(&headers, payload.to_string().as_bytes());
    frames.push(frame.map_err(|_| AggregateError::TooLarge)?);
    Ok(())
}

/// The start event of a block, if its type has one, and its deltas.
fn split_block(mut block: Map<String, Value>) -> (Option<Value>, Vec<Value>) {
    let mut start = None;
    let mut deltas = Vec::new();
    let mut citations = Vec::new();
    if let Some(mut cited) = merge::take_object(&mut block, "citationsContent") {
        let texts = merge::take_list(&mut cited, "content").unwrap_or_default();
        let text: String = texts.iter().filter_map(|one| one.get("text").and_then(Value::as_str)).collect();
        deltas.extend(text_chunks(&text).map(|piece| json!({"text": piece})));
        citations = merge::take_list(&mut cited, "citations").unwrap_or_default();
    }
    if let Some(text) = merge::take_text(&mut block, "text") {
        // A block with an empty text is kept.
        deltas.extend(text.is_empty().then(|| json!({"text": ""})));
        deltas.extend(text_chunks(&text).map(|piece| json!({"text": piece})));
    }
    deltas.extend(citations.into_iter().map(|citation| json!({"citation": citation})));
    if let Some(mut tool_use) = merge::take_object(&mut block, "toolUse") {
        let input = tool_use.remove("input").unwrap_or_else(|| json!({})).to_string();
        start = Some(json!({"toolUse": tool_use}));
        deltas.extend(text_chunks(&input).map(|piece| json!({"toolUse": {"input": piece}})));
    }
    if let Some(mut reasoning) = merge::take_object(&mut block, "reasoningContent") {
        if let Some(mut text) = merge::take_object(&mut reasoning, "reasoningText") {
            let reasoning_text = merge::take_text(&mut text, "text").unwrap_or_default();
            deltas.extend(reasoning_text.is_empty().then(|| json!({"reasoningContent": {"text": ""}})));
            deltas.extend(
                text_chunks(&reasoning_text).map(|piece| json!({"reasoningContent": {"text": piece}})),
            );
            deltas.extend((!text.is_empty()).then(|| json!({"reasoningContent": text})));
        }
        deltas.extend((!reasoning.is_empty()).then(|| json!({"reasoningContent": reasoning})));
    }
    deltas.extend((!block.is_empty()).then_some(Value::Object(block)));
    (start, deltas)
}
