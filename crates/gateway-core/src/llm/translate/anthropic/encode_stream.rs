//! A stream of message events for a caller. The format wants its blocks one after the other, so each is closed when the
//! next begins. The one exception are calls whose arguments are not complete yet: some providers send
//! several calls at once, and what is still to come needs an open block.

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
    open: Option<Open>,
    /// Calls by their number.
    calls: Vec<Call>,
    usage: Option<Usage>,
    /// Told at the end, together with the usage.
    stop: Option<StopReason>,
}

/// The block that is being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Text(u32),
    Thinking { block: u32, signed: bool },
    Call(usize),
}

struct Call {
    block: u32,
    arguments: Arguments,
    closed: bool,
}

/// Follows JSON text just far enough to know when its object is complete.
#[derive(Default)]
struct Arguments {
    depth: u32,
    in_text: bool,
    escaped: bool,
    complete: bool,
}

impl Arguments {
    fn feed(&mut self, json: &str) {
        for byte in json.bytes() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_text => self.escaped = true,
                b'"' => self.in_text = !self.in_text,
                _ if self.in_text => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.complete = self.depth == 0;
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
    delta: Piece<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum Piece<'a> {
    #[serde(rename = "text_delta")]
    Text { text: &'a str },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: &'a str },
    #[serde(rename = "signature_delta")]
    Signature { signature: &'a str },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: &'a str },
}

fn put(name: &str, data: &impl Serialize, out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = write!(out, "event: {name}\ndata: ");
    let _ = serde_json::to_writer(&mut *out, data);
    out.extend_from_slice(b"\n\n");
}

fn put_delta(index: u32, delta: Piece<'_>, out: &mut Vec<u8>) {
    put("content_block_delta", &BlockDelta { r#type: "content_block_delta", index, delta }, out);
}

fn put_stop(index: u32, out: &mut Vec<u8>) {
    put("content_block_stop", &json!({"type": "content_block_stop", "index": index}), out);
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
        put("message_start", &json!({"type": "message_start", "message": message}), out);
        self.usage = Some(usage);
    }

    fn open_block(&mut self, content: &Value, out: &mut Vec<u8>) -> u32 {
        let index = self.blocks;
        self.blocks += 1;
        let event = json!({"type": "content_block_start", "index": index, "content_block": content});
        put("content_block_start", &event, out);
        index
    }

    /// Closes the block that is being written, unless it is a call that waits for more.
    fn close(&mut self, out: &mut Vec<u8>) {
        match self.open.take() {
            Some(Open::Text(block) | Open::Thinking { block, .. }) => put_stop(block, out),
            Some(Open::Call(at)) => {
                if let Some(call) = self.calls.get_mut(at).filter(|call| call.arguments.complete) {
                    call.closed = true;
                    put_stop(call.block, out);
                }
            }
            None => {}
        }
    }

    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        let block = if let Some(Open::Text(block)) = self.open {
            block
        } else {
            self.close(out);
            let block = self.open_block(&json!({"type": "text", "text": ""}), out);
            self.open = Some(Open::Text(block));
            block
        };
        put_delta(block, Piece::Text { text }, out);
    }

    /// The open thought, which is a new one if the last was signed.
    fn thinking(&mut self, out: &mut Vec<u8>) -> u32 {
        if let Some(Open::Thinking { block, signed: false }) = self.open {
            return block;
        }
        self.close(out);
        let block = self.open_block(&json!({"type": "thinking", "thinking": "", "signature": ""}), out);
        self.open = Some(Open::Thinking { block, signed: false });
        block
    }

    fn sign(&mut self, signature: &str, out: &mut Vec<u8>) {
        let block = self.thinking(out);
        put_delta(block, Piece::Signature { signature }, out);
        self.open = Some(Open::Thinking { block, signed: true });
    }
}

impl StreamEncoder for Encoder {
    fn encode_event(&mut self, event: StreamEvent, out: &mut Vec<u8>) {
        match event {
            StreamEvent::Start(start) => self.start(start, out),
            StreamEvent::Text { text, .. } | StreamEvent::Refusal { text, .. } => self.text(&text, out),
            StreamEvent::Thinking { text, .. } => {
                let block = self.thinking(out);
                put_delta(block, Piece::Thinking { thinking: &text }, out);
            }
            StreamEvent::Signature { signature, .. } => self.sign(&signature, out),
            StreamEvent::Redacted { data, .. } => {
                self.close(out);
                let block = self.open_block(&json!({"type": "redacted_thinking", "data": data}), out);
                put_stop(block, out);
            }
            StreamEvent::ToolStart { id, name, signature, .. } => {
                if let Some(signature) = signature {
                    self.sign(&signature, out);
                }
                self.close(out);
                let content = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                let block = self.open_block(&content, out);
                self.open = Some(Open::Call(self.calls.len()));
                self.calls.push(Call { block, arguments: Arguments::default(), closed: false });
            }
            StreamEvent::ToolArguments { tool, json, .. } => {
                let call = self.calls.get_mut(tool as usize).filter(|call| !call.closed);
                if let Some(call) = call {
                    call.arguments.feed(&json);
                    put_delta(call.block, Piece::InputJson { partial_json: &json }, out);
                }
            }
            StreamEvent::Logprobs { .. } => {}
            StreamEvent::Stop { reason, .. } => self.stop = Some(reason),
            StreamEvent::Usage(usage) => self.usage = Some(usage),
            StreamEvent::Error(failure) => {
                let ProviderError { status, code, message } = failure;
                let body = errors::error_body(ClientFormat::Anthropic, status, &code, &message);
                out.extend_from_slice(b"event: error\ndata: ");
                out.extend_from_slice(&body);
                out.extend_from_slice(b"\n\n");
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.close(out);
        for call in self.calls.iter().filter(|call| !call.closed) {
            put_stop(call.block, out);
        }
        let stop = self.stop.take().unwrap_or(StopReason::EndTurn);
        let (reason, sequence) = encode_stop_reason(&stop);
        let event = json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": encode_usage(&self.usage.take().unwrap_or_default()),
        });
        put("message_delta", &event, out);
        put("message_stop", &json!({"type": "message_stop"}), out);
    }
}
