//! Decodes a provider's stream of message events.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    super::{
        super::{
            chat::{ProviderError, StreamEvent, StreamStart},
            usage::MessagesReport,
        },
        StreamDecoder,
        json::parse_event,
    },
    decode_error, decode_stop_reason,
};

#[derive(Default)]
pub(super) struct Decoder {
    report: MessagesReport,
    calls: Vec<Call>,
}

/// A `tool_use` block.
struct Call {
    block: u32,
    /// Whether any arguments have been emitted. A call without arguments is given an empty object when it ends.
    has_arguments: bool,
}

#[derive(Deserialize)]
struct Event {
    r#type: Option<String>,
    #[serde(default)]
    index: u32,
    message: Option<Message>,
    content_block: Option<Block>,
    delta: Option<Delta>,
    usage: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct Message {
    id: Option<String>,
    model: Option<String>,
    usage: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct Block {
    r#type: String,
    id: Option<String>,
    name: Option<String>,
    input: Option<Value>,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    data: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    text: Option<String>,
    partial_json: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    stop_reason: Option<String>,
    stop_sequence: Option<String>,
}

const CHOICE: u32 = 0;

impl StreamDecoder for Decoder {
    fn decode_event(&mut self, name: Option<&str>, data: &[u8], out: &mut Vec<StreamEvent>) -> bool {
        let Some(event) = parse_event::<Event>(data, out) else { return false };
        match event.r#type.as_deref().or(name).unwrap_or_default() {
            "message_start" => self.start_message(event.message, out),
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.start_block(event.index, block, out);
                }
            }
            "content_block_delta" => {
                if let Some(delta) = event.delta {
                    self.apply_delta(event.index, delta, out);
                }
            }
            "content_block_stop" => self.end_block(event.index, out),
            "message_delta" => {
                if let Some(usage) = &event.usage {
                    self.report.merge(MessagesReport::from_map(usage));
                    out.extend(self.report.usage().map(StreamEvent::Usage));
                }
                if let Some(delta) = event.delta
                    && let Some(reason) = delta.stop_reason
                {
                    let reason = decode_stop_reason(&reason, delta.stop_sequence.as_deref());
                    out.push(StreamEvent::Stop { choice: CHOICE, reason });
                }
            }
            "message_stop" => return true,
            "error" => {
                let body: Map<String, Value> = serde_json::from_slice(data).unwrap_or_default();
                out.push(StreamEvent::Error(decode_error(None, &body).unwrap_or_else(|| ProviderError {
                    status: 500,
                    code: "api_error".to_owned(),
                    message: "the provider reported an error without a message".to_owned(),
                })));
                return true;
            }
            _ => {}
        }
        false
    }
}

impl Decoder {
    fn start_message(&mut self, message: Option<Message>, out: &mut Vec<StreamEvent>) {
        let Some(message) = message else { return };
        if let Some(usage) = &message.usage {
            self.report.merge(MessagesReport::from_map(usage));
        }
        out.push(StreamEvent::Start(StreamStart {
            id: message.id.unwrap_or_default(),
            model: message.model.unwrap_or_default(),
            created: None,
            usage: self.report.usage(),
        }));
    }

    fn start_block(&mut self, index: u32, block: Block, out: &mut Vec<StreamEvent>) {
        let choice = CHOICE;
        match &*block.r#type {
            "tool_use" => {
                let Ok(tool) = u32::try_from(self.calls.len()) else { return };
                out.push(StreamEvent::ToolStart {
                    choice,
                    tool,
                    id: block.id.unwrap_or_default(),
                    name: block.name.unwrap_or_default(),
                    signature: None,
                });
                // Some servers do not stream arguments and send them complete in the first event.
                let whole = block.input.filter(|input| input.as_object().is_some_and(|map| !map.is_empty()));
                self.calls.push(Call { block: index, has_arguments: whole.is_some() });
                if let Some(input) = whole {
                    out.push(StreamEvent::ToolArguments { choice, tool, json: input.to_string() });
                }
            }
            "redacted_thinking" => {
                out.extend(block.data.map(|data| StreamEvent::Redacted { choice, data }));
            }
            "text" => out.extend(block.text.map(|text| StreamEvent::Text { choice, text })),
            "thinking" => {
                out.extend(block.thinking.map(|text| StreamEvent::Thinking { choice, text }));
                let signature = block.signature.filter(|signature| !signature.is_empty());
                out.extend(signature.map(|signature| StreamEvent::Signature { choice, signature }));
            }
            _ => {}
        }
    }

    fn apply_delta(&mut self, index: u32, delta: Delta, out: &mut Vec<StreamEvent>) {
        let choice = CHOICE;
        if let Some(text) = delta.text {
            out.push(StreamEvent::Text { choice, text });
        } else if let Some(json) = delta.partial_json.filter(|json| !json.is_empty()) {
            // Tools that the provider runs itself have deltas too, but no call was opened for them.
            if let Some((tool, call)) = self.find_call(index) {
                call.has_arguments = true;
                out.push(StreamEvent::ToolArguments { choice, tool, json });
            }
        } else if let Some(text) = delta.thinking {
            out.push(StreamEvent::Thinking { choice, text });
        } else if let Some(signature) = delta.signature {
            out.push(StreamEvent::Signature { choice, signature });
        }
    }

    fn end_block(&mut self, index: u32, out: &mut Vec<StreamEvent>) {
        if let Some((tool, call)) = self.find_call(index)
            && !std::mem::replace(&mut call.has_arguments, true)
        {
            let json = "{}".to_owned();
            out.push(StreamEvent::ToolArguments { choice: CHOICE, tool, json });
        }
    }

    fn find_call(&mut self, block: u32) -> Option<(u32, &mut Call)> {
        let at = self.calls.iter().position(|call| call.block == block)?;
        Some((u32::try_from(at).ok()?, &mut self.calls[at]))
    }
}
