//! Encodes a stream of message events. The format sends its blocks one after another, so each block is closed when the
//! next one begins. Tool calls with incomplete arguments are the exception: some providers stream several calls in
//! parallel, and their remaining arguments need an open block.

use std::io::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    super::{
        super::{
            ClientFormat,
            chat::{ProviderError, StopReason, StreamEvent, StreamStart},
            errors,
            usage::Usage,
        },
        StreamEncoder,
    },
    encode_stop_reason,
    response::encode_usage,
};

#[derive(Default)]
pub(super) struct Encoder {
    blocks: u32,
    open_block: Option<OpenBlock>,
    /// Indexed by the number of the call.
    calls: Vec<Call>,
    usage: Option<Usage>,
    /// Sent at the end, together with the usage.
    stop: Option<StopReason>,
}

/// The block that is being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenBlock {
    Text(u32),
    Thinking { block: u32, is_signed: bool },
    Call(usize),
}

struct Call {
    block: u32,
    arguments: ArgumentsScanner,
    is_closed: bool,
}

/// Scans JSON text to detect the end of its object.
#[derive(Default)]
struct ArgumentsScanner {
    depth: u32,
    in_string: bool,
    is_escaped: bool,
    is_complete: bool,
}

impl ArgumentsScanner {
    fn feed(&mut self, json: &str) {
        for byte in json.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_string => self.is_escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.is_complete = self.depth == 0;
                }
                _ => {}
            }
        }
    }
}

#[derive(Serialize)]
struct BlockDelta<'a> {
    r#type: &'static str,
    index: u32,
    delta: DeltaContent<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum DeltaContent<'a> {
    #[serde(rename = "text_delta")]
    Text { text: &'a str },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: &'a str },
    #[serde(rename = "signature_delta")]
    Signature { signature: &'a str },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: &'a str },
}

fn push_event(name: &str, data: &impl Serialize, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "event: {name}\ndata: ");
    let _ = serde_json::to_writer(&mut *out, data);
    out.extend_from_slice(b"\n\n");
}

fn push_delta(index: u32, delta: DeltaContent<'_>, out: &mut Vec<u8>) {
    push_event("content_block_delta", &BlockDelta { r#type: "content_block_delta", index, delta }, out);
}

fn push_block_stop(index: u32, out: &mut Vec<u8>) {
    push_event("content_block_stop", &json!({"type": "content_block_stop", "index": index}), out);
}

impl Encoder {
    fn start(&mut self, start: StreamStart, out: &mut Vec<u8>) {
        let usage = start.usage.unwrap_or_default();
        let message = json!({
            "id": start.id,
            "type": "message",
            "role": "assistant",
            "model": start.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": encode_usage(&usage),
        });
        push_event("message_start", &json!({"type": "message_start", "message": message}), out);
        self.usage = Some(usage);
    }

    fn start_block(&mut self, content: &Value, out: &mut Vec<u8>) -> u32 {
        let index = self.blocks;
        self.blocks += 1;
        let event = json!({"type": "content_block_start", "index": index, "content_block": content});
        push_event("content_block_start", &event, out);
        index
    }

    /// Closes the open block, unless it is a tool call with incomplete arguments.
    fn close_block(&mut self, out: &mut Vec<u8>) {
        match self.open_block.take() {
            Some(OpenBlock::Text(block) | OpenBlock::Thinking { block, .. }) => push_block_stop(block, out),
            Some(OpenBlock::Call(at)) => {
                if let Some(call) = self.calls.get_mut(at).filter(|call| call.arguments.is_complete) {
                    call.is_closed = true;
                    push_block_stop(call.block, out);
                }
            }
            None => {}
        }
    }

    fn push_text(&mut self, text: &str, out: &mut Vec<u8>) {
        let block = if let Some(OpenBlock::Text(block)) = self.open_block {
            block
        } else {
            self.close_block(out);
            let block = self.start_block(&json!({"type": "text", "text": ""}), out);
            self.open_block = Some(OpenBlock::Text(block));
            block
        };
        push_delta(block, DeltaContent::Text { text }, out);
    }

    /// Returns the open thinking block. Starts a new one if there is none or if the last one is signed.
    fn thinking_block(&mut self, out: &mut Vec<u8>) -> u32 {
        if let Some(OpenBlock::Thinking { block, is_signed: false }) = self.open_block {
            return block;
        }
        self.close_block(out);
        let block = self.start_block(&json!({"type": "thinking", "thinking": "", "signature": ""}), out);
        self.open_block = Some(OpenBlock::Thinking { block, is_signed: false });
        block
    }

    fn push_signature(&mut self, signature: &str, out: &mut Vec<u8>) {
        let block = self.thinking_block(out);
        push_delta(block, DeltaContent::Signature { signature }, out);
        self.open_block = Some(OpenBlock::Thinking { block, is_signed: true });
    }
}

impl StreamEncoder for Encoder {
    fn encode_event(&mut self, event: StreamEvent, out: &mut Vec<u8>) {
        match event {
            StreamEvent::Start(start) => self.start(start, out),
            StreamEvent::Text { text, .. } | StreamEvent::Refusal { text, .. } => self.push_text(&text, out),
            StreamEvent::Thinking { text, .. } => {
                let block = self.thinking_block(out);
                push_delta(block, DeltaContent::Thinking { thinking: &text }, out);
            }
            StreamEvent::Signature { signature, .. } => self.push_signature(&signature, out),
            StreamEvent::Redacted { data, .. } => {
                self.close_block(out);
                let block = self.start_block(&json!({"type": "redacted_thinking", "data": data}), out);
                push_block_stop(block, out);
            }
            StreamEvent::ToolStart { id, name, signature, .. } => {
                if let Some(signature) = signature {
                    self.push_signature(&signature, out);
                }
                self.close_block(out);
                let content = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                let block = self.start_block(&content, out);
                self.open_block = Some(OpenBlock::Call(self.calls.len()));
                self.calls.push(Call { block, arguments: ArgumentsScanner::default(), is_closed: false });
            }
            StreamEvent::ToolArguments { tool, json, .. } => {
                let call = self.calls.get_mut(tool as usize).filter(|call| !call.is_closed);
                if let Some(call) = call {
                    call.arguments.feed(&json);
                    push_delta(call.block, DeltaContent::InputJson { partial_json: &json }, out);
                }
            }
            StreamEvent::Logprobs { .. } => {}
            StreamEvent::Stop { reason, .. } => self.stop = Some(reason),
            StreamEvent::Usage(usage) => self.usage = Some(usage),
            StreamEvent::Error(error) => {
                let ProviderError { status, code, message } = error;
                let body = errors::error_body(ClientFormat::Anthropic, status, &code, &message);
                out.extend_from_slice(b"event: error\ndata: ");
                out.extend_from_slice(&body);
                out.extend_from_slice(b"\n\n");
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.close_block(out);
        for call in self.calls.iter().filter(|call| !call.is_closed) {
            push_block_stop(call.block, out);
        }
        let stop = self.stop.take().unwrap_or(StopReason::EndTurn);
        let (reason, sequence) = encode_stop_reason(&stop);
        let event = json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": encode_usage(&self.usage.take().unwrap_or_default()),
        });
        push_event("message_delta", &event, out);
        push_event("message_stop", &json!({"type": "message_stop"}), out);
    }
}
