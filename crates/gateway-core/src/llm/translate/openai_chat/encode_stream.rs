//! A stream of chat chunks for a caller. What all chunks share is written once and copied, since most chunks carry
//! a few letters of text and nothing else.

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
    encode_finish_reason,
    response::{encode_encrypted_detail, encode_logprobs, encode_text_detail, encode_usage},
};

pub(super) struct Encoder {
    /// Whether the caller asked for the chunk with the usage, and so for `usage: null` in all others.
    include_usage: bool,
    head: Vec<u8>,
    usage: Option<Usage>,
    choices: Vec<ChoiceState>,
}

#[derive(Default)]
struct ChoiceState {
    opened: bool,
    refused: bool,
    /// The thought that is being written, kept until its signature, because a detail holds both.
    thought: String,
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

const NOTHING: TextDelta<'static> =
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

    fn chunk(
        &self,
        choice: u32,
        delta: &impl Serialize,
        logprobs: Option<&Value>,
        reason: Option<&str>,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(&self.head);
        // Writing to memory cannot fail.
        let _ = write!(out, r#","choices":[{{"index":{choice},"delta":"#);
        let _ = serde_json::to_writer(&mut *out, delta);
        if let Some(logprobs) = logprobs {
            let _ = write!(out, r#","logprobs":{logprobs}"#);
        }
        out.extend_from_slice(br#","finish_reason":"#);
        let _ = serde_json::to_writer(&mut *out, &reason);
        out.extend_from_slice(if self.include_usage { b"}],\"usage\":null}\n\n" } else { b"}]}\n\n" });
    }

    fn state(&mut self, choice: u32, out: &mut Vec<u8>) -> &mut ChoiceState {
        const MOST: usize = 256;
        let at = (choice as usize).min(MOST - 1);
        if self.choices.len() <= at {
            self.choices.resize_with(at + 1, ChoiceState::default);
        }
        if !std::mem::replace(&mut self.choices[at].opened, true) {
            self.chunk(choice, &json!({"role": "assistant", "content": ""}), None, None, out);
        }
        &mut self.choices[at]
    }
}

impl StreamEncoder for Encoder {
    fn encode_event(&mut self, event: StreamEvent, out: &mut Vec<u8>) {
        match event {
            StreamEvent::Start(start) => self.start(&start),
            StreamEvent::Text { choice, text } => {
                // A signature behind a text is not that of the thought before it.
                self.state(choice, out).thought.clear();
                self.chunk(choice, &TextDelta { content: Some(&text), ..NOTHING }, None, None, out);
            }
            StreamEvent::Thinking { choice, text } => {
                self.state(choice, out).thought.push_str(&text);
                self.chunk(choice, &TextDelta { reasoning_content: Some(&text), ..NOTHING }, None, None, out);
            }
            StreamEvent::Signature { choice, signature } => {
                let state = self.state(choice, out);
                let detail =
                    encode_text_detail(&std::mem::take(&mut state.thought), &signature, state.details);
                state.details += 1;
                self.chunk(choice, &json!({"reasoning_details": [detail]}), None, None, out);
            }
            StreamEvent::Redacted { choice, data } => {
                let state = self.state(choice, out);
                state.thought.clear();
                let detail = encode_encrypted_detail(&data, state.details);
                state.details += 1;
                self.chunk(choice, &json!({"reasoning_details": [detail]}), None, None, out);
            }
            StreamEvent::ToolStart { choice, tool, id, name, signature } => {
                self.state(choice, out).thought.clear();
                let mut call = json!({
                    "index": tool, "id": id, "type": "function",
                    "function": {"name": name, "arguments": ""},
                });
                if let Some(signature) = signature {
                    call["extra_content"] = json!({"google": {"thought_signature": signature}});
                }
                self.chunk(choice, &json!({"tool_calls": [call]}), None, None, out);
            }
            StreamEvent::ToolArguments { choice, tool, json } => {
                let call = CallDelta { index: tool, function: ArgumentsDelta { arguments: &json } };
                self.chunk(choice, &TextDelta { tool_calls: Some([call]), ..NOTHING }, None, None, out);
            }
            StreamEvent::Refusal { choice, text } => {
                self.state(choice, out).refused = true;
                self.chunk(choice, &TextDelta { refusal: Some(&text), ..NOTHING }, None, None, out);
            }
            StreamEvent::Logprobs { choice, items } => {
                self.state(choice, out);
                self.chunk(choice, &NOTHING, Some(&encode_logprobs(&items)), None, out);
            }
            StreamEvent::Stop { choice, reason } => {
                let refused = self.state(choice, out).refused;
                self.stop(choice, &reason, refused, out);
            }
            StreamEvent::Usage(usage) => self.usage = Some(usage),
            StreamEvent::Error(failure) => self.fail(&failure, out),
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
    /// A chunk of the stream like any other, so that readers of chunks come across the error.
    fn fail(&self, failure: &ProviderError, out: &mut Vec<u8>) {
        let ProviderError { status, code, message } = failure;
        if self.head.is_empty() {
            out.extend(errors::stream_error(ClientFormat::OpenAiChat, code, message));
            return;
        }
        let body = errors::error_body(ClientFormat::OpenAiChat, *status, code, message);
        out.extend_from_slice(&self.head);
        out.extend_from_slice(br#","choices":[{"index":0,"delta":{},"finish_reason":"error"}],"#);
        // The body is an object with an error in it; all but its opening brace follows.
        out.extend_from_slice(&body[1..]);
        out.extend_from_slice(b"\n\ndata: [DONE]\n\n");
    }

    fn stop(&self, choice: u32, reason: &StopReason, refused: bool, out: &mut Vec<u8>) {
        self.chunk(choice, &NOTHING, None, Some(encode_finish_reason(reason, refused)), out);
    }
}
