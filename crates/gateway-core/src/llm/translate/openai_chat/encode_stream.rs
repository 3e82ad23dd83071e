//! Encodes a stream of chat chunks. Most chunks carry only a few characters of text, so the fields that all chunks
//! share are encoded once and copied.

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
        sequencer::MAX_CHOICES,
    },
    encode_finish_reason,
    response::{encode_encrypted_detail, encode_logprobs, encode_text_detail, encode_usage},
};

pub(super) struct Encoder {
    /// Whether the caller asked for the usage chunk. All other chunks then contain `usage: null`.
    include_usage: bool,
    /// The encoded fields that all chunks start with.
    head: Vec<u8>,
    usage: Option<Usage>,
    choices: Vec<ChoiceState>,
}

#[derive(Default)]
struct ChoiceState {
    is_open: bool,
    has_refusal: bool,
    /// Thinking that is not signed yet. It is buffered because a detail contains both text and signature.
    thinking: String,
    details: usize,
}

#[derive(Serialize)]
struct TextDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[CallDelta<'a>; 1]>,
}

/// One chunk with a single choice.
struct Chunk<'a, D> {
    choice: u32,
    delta: &'a D,
    logprobs: Option<&'a Value>,
    finish_reason: Option<&'a str>,
}

const EMPTY_DELTA: TextDelta<'static> =
    TextDelta { content: None, refusal: None, reasoning_content: None, tool_calls: None };

#[derive(Serialize)]
struct CallDelta<'a> {
    index: u32,
    function: ArgumentsDelta<'a>,
}

#[derive(Serialize)]
struct ArgumentsDelta<'a> {
    arguments: &'a str,
}

impl Encoder {
    pub(super) fn new(include_usage: bool) -> Self {
        Encoder { include_usage, head: Vec::new(), usage: None, choices: Vec::new() }
    }

    fn start(&mut self, start: &StreamStart) {
        let StreamStart { id, model, created, .. } = start;
        let head = json!({
            "id": id, "object": "chat.completion.chunk", "created": created, "model": model,
        });
        let mut text = format!("data: {head}").into_bytes();
        text.pop();
        self.head = text;
    }

    fn push_delta(&self, choice: u32, delta: &impl Serialize, out: &mut Vec<u8>) {
        self.push_chunk(&Chunk { choice, delta, logprobs: None, finish_reason: None }, out);
    }

    fn push_chunk(&self, chunk: &Chunk<'_, impl Serialize>, out: &mut Vec<u8>) {
        let Chunk { choice, delta, logprobs, finish_reason } = chunk;
        out.extend_from_slice(&self.head);
        // Writing to a Vec cannot fail.
        let _ = write!(out, r#","choices":[{{"index":{choice},"delta":"#);
        let _ = serde_json::to_writer(&mut *out, delta);
        if let Some(logprobs) = logprobs {
            let _ = write!(out, r#","logprobs":{logprobs}"#);
        }
        out.extend_from_slice(br#","finish_reason":"#);
        let _ = serde_json::to_writer(&mut *out, finish_reason);
        out.extend_from_slice(if self.include_usage { b"}],\"usage\":null}\n\n" } else { b"}]}\n\n" });
    }

    /// Returns the state of a choice. The first call for a choice writes its opening chunk.
    fn choice(&mut self, choice: u32, out: &mut Vec<u8>) -> &mut ChoiceState {
        let at = (choice as usize).min(MAX_CHOICES - 1);
        if self.choices.len() <= at {
            self.choices.resize_with(at + 1, ChoiceState::default);
        }
        if !std::mem::replace(&mut self.choices[at].is_open, true) {
            self.push_delta(choice, &json!({"role": "assistant", "content": ""}), out);
        }
        &mut self.choices[at]
    }
}

impl StreamEncoder for Encoder {
    fn encode_event(&mut self, event: StreamEvent, out: &mut Vec<u8>) {
        match event {
            StreamEvent::Start(start) => self.start(&start),
            StreamEvent::Text { choice, text } => {
                // A signature after text does not sign the thinking before the text.
                self.choice(choice, out).thinking.clear();
                self.push_delta(choice, &TextDelta { content: Some(&text), ..EMPTY_DELTA }, out);
            }
            StreamEvent::Thinking { choice, text } => {
                self.choice(choice, out).thinking.push_str(&text);
                self.push_delta(choice, &TextDelta { reasoning_content: Some(&text), ..EMPTY_DELTA }, out);
            }
            StreamEvent::Signature { choice, signature } => {
                let state = self.choice(choice, out);
                let detail =
                    encode_text_detail(&std::mem::take(&mut state.thinking), &signature, state.details);
                state.details += 1;
                self.push_delta(choice, &json!({"reasoning_details": [detail]}), out);
            }
            StreamEvent::Redacted { choice, data } => {
                let state = self.choice(choice, out);
                state.thinking.clear();
                let detail = encode_encrypted_detail(&data, state.details);
                state.details += 1;
                self.push_delta(choice, &json!({"reasoning_details": [detail]}), out);
            }
            StreamEvent::ToolStart { choice, tool, id, name, signature } => {
                self.choice(choice, out).thinking.clear();
                let mut call = json!({
                    "index": tool, "id": id, "type": "function",
                    "function": {"name": name, "arguments": ""},
                });
                if let Some(signature) = signature {
                    call["extra_content"] = json!({"google": {"thought_signature": signature}});
                }
                self.push_delta(choice, &json!({"tool_calls": [call]}), out);
            }
            StreamEvent::ToolArguments { choice, tool, json } => {
                let call = CallDelta { index: tool, function: ArgumentsDelta { arguments: &json } };
                self.push_delta(choice, &TextDelta { tool_calls: Some([call]), ..EMPTY_DELTA }, out);
            }
            StreamEvent::Refusal { choice, text } => {
                self.choice(choice, out).has_refusal = true;
                self.push_delta(choice, &TextDelta { refusal: Some(&text), ..EMPTY_DELTA }, out);
            }
            StreamEvent::Logprobs { choice, items } => {
                self.choice(choice, out);
                let logprobs = encode_logprobs(&items);
                let chunk =
                    Chunk { choice, delta: &EMPTY_DELTA, logprobs: Some(&logprobs), finish_reason: None };
                self.push_chunk(&chunk, out);
            }
            StreamEvent::Stop { choice, reason } => {
                let has_refusal = self.choice(choice, out).has_refusal;
                self.push_stop(choice, &reason, has_refusal, out);
            }
            StreamEvent::Usage(usage) => self.usage = Some(usage),
            StreamEvent::Error(error) => self.push_error(&error, out),
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(usage) = self.usage.take().filter(|_| self.include_usage) {
            out.extend_from_slice(&self.head);
            let _ = write!(out, ",\"choices\":[],\"usage\":{}}}\n\n", encode_usage(&usage));
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }
}

impl Encoder {
    /// Writes the error as an ordinary chunk, so that clients that read only chunks notice it.
    fn push_error(&self, error: &ProviderError, out: &mut Vec<u8>) {
        let ProviderError { status, code, message } = error;
        if self.head.is_empty() {
            out.extend(errors::stream_error(ClientFormat::OpenAiChat, code, message));
            return;
        }
        let body = errors::error_body(ClientFormat::OpenAiChat, *status, code, message);
        out.extend_from_slice(&self.head);
        out.extend_from_slice(br#","choices":[{"index":0,"delta":{},"finish_reason":"error"}],"#);
        // The body is an object with an `error` field. Everything after its opening brace is appended.
        out.extend_from_slice(&body[1..]);
        out.extend_from_slice(b"\n\ndata: [DONE]\n\n");
    }

    fn push_stop(&self, choice: u32, reason: &StopReason, has_refusal: bool, out: &mut Vec<u8>) {
        let finish_reason = Some(encode_finish_reason(reason, has_refusal));
        self.push_chunk(&Chunk { choice, delta: &EMPTY_DELTA, logprobs: None, finish_reason }, out);
    }
}
