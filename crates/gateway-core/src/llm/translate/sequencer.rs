//! The guarantees of `StreamEvent`: order, ids and limits. Neither decoders nor encoders have to check them.

use super::{
    super::chat::{ProviderError, StreamEvent, StreamStart, WireFormat, generated_call_id},
    ResponseOptions, StreamEncoder,
    response::resolve_stop_reason,
    signatures,
};

/// The maximum number of choices of one response that are tracked. No format allows more.
pub(super) const MAX_CHOICES: usize = 256;

/// The maximum number of tool calls of one choice. Decoders search calls linearly, so a malicious server must not be
/// able to send millions of them.
pub(super) const MAX_TOOL_CALLS: u32 = 1024;

/// The maximum size of a response. Some encoders buffer it to repeat it in the last event, so an endless stream must
/// not exhaust the memory.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Forwards events from the decoder to the encoder in valid order.
pub(super) struct StreamSequencer {
    provider_format: WireFormat,
    client_format: WireFormat,
    encoder: Box<dyn StreamEncoder>,
    /// Default values for the `Start` event. Taken when that is sent.
    start: Option<StreamStart>,
    choices: Vec<ChoiceState>,
    /// Bytes of text, thinking and arguments so far.
    response_bytes: usize,
    has_stopped: bool,
    is_finished: bool,
    /// The message of the error that ended the stream.
    failure: Option<String>,
}

#[derive(Default)]
struct ChoiceState {
    calls: u32,
    has_refusal: bool,
    has_stopped: bool,
}

impl StreamSequencer {
    pub(super) fn new(
        provider_format: WireFormat,
        client_format: WireFormat,
        encoder: Box<dyn StreamEncoder>,
        options: &ResponseOptions<'_>,
    ) -> Self {
        StreamSequencer {
            provider_format,
            client_format,
            encoder,
            start: Some(StreamStart {
                id: options.id.to_owned(),
                model: options.model.to_owned(),
                created: Some(options.created),
                usage: None,
            }),
            choices: Vec::new(),
            response_bytes: 0,
            has_stopped: false,
            is_finished: false,
            failure: None,
        }
    }

    /// Returns whether at least one choice has a stop reason.
    pub(super) fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(super) fn forward(&mut self, event: StreamEvent, out: &mut Vec<u8>) {
        if self.is_finished {
            return;
        }
        let Some(mut event) = self.check(event, out) else { return };
        if let Some(start) = self.start.take_if(|_| !matches!(event, StreamEvent::Error(_))) {
            self.encoder.encode_event(StreamEvent::Start(start), out);
        }
        self.response_bytes += event_size(&event);
        if self.response_bytes > MAX_RESPONSE_BYTES && !self.is_finished {
            self.fail("provider_error", "the provider's response is too large to be translated", out);
            return;
        }
        signatures::wrap_event(&mut event, self.provider_format, self.client_format);
        self.encoder.encode_event(event, out);
    }

    pub(super) fn fail(&mut self, code: &str, message: &str, out: &mut Vec<u8>) {
        let status = if code.contains("timeout") { 504 } else { 502 };
        let error = ProviderError { status, code: code.to_owned(), message: message.to_owned() };
        self.forward(StreamEvent::Error(error), out);
    }

    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.is_finished, true) {
            self.encoder.finish(out);
        }
    }

    /// Returns the event to encode, completed with ids. None if it is empty, out of order or handled here.
    fn check(&mut self, event: StreamEvent, out: &mut Vec<u8>) -> Option<StreamEvent> {
        Some(match event {
            StreamEvent::Start(start) => {
                self.start(start, out);
                return None;
            }
            StreamEvent::Error(error) => {
                self.is_finished = true;
                self.failure = Some(error.message.clone());
                StreamEvent::Error(error)
            }
            StreamEvent::ToolStart { choice, tool, id, name, signature } => {
                let calls = &mut self.choice(choice).calls;
                if *calls == MAX_TOOL_CALLS {
                    self.fail("provider_error", "the provider's response has too many tool calls", out);
                    return None;
                }
                *calls += 1;
                let id = if id.is_empty() { generated_call_id(choice, tool) } else { id };
                StreamEvent::ToolStart { choice, tool, id, name, signature }
            }
            StreamEvent::ToolArguments { choice, tool, json } => {
                if json.is_empty() || tool >= self.choice(choice).calls {
                    return None;
                }
                StreamEvent::ToolArguments { choice, tool, json }
            }
            StreamEvent::Refusal { choice, text } => {
                if text.is_empty() {
                    return None;
                }
                self.choice(choice).has_refusal = true;
                StreamEvent::Refusal { choice, text }
            }
            StreamEvent::Text { text, .. } | StreamEvent::Thinking { text, .. } if text.is_empty() => {
                return None;
            }
            StreamEvent::Stop { choice, reason } => {
                let state = self.choice(choice);
                if std::mem::replace(&mut state.has_stopped, true) {
                    return None;
                }
                let reason = resolve_stop_reason(reason, state.has_refusal, state.calls > 0);
                self.has_stopped = true;
                StreamEvent::Stop { choice, reason }
            }
            other => other,
        })
    }

    /// Sends the first `Start` event, with default values for its empty fields.
    fn start(&mut self, start: StreamStart, out: &mut Vec<u8>) {
        let Some(default) = self.start.take() else { return };
        let start = StreamStart {
            id: if start.id.is_empty() { default.id } else { start.id },
            model: if start.model.is_empty() { default.model } else { start.model },
            created: start.created.or(default.created),
            usage: start.usage,
        };
        self.encoder.encode_event(StreamEvent::Start(start), out);
    }

    fn choice(&mut self, index: u32) -> &mut ChoiceState {
        let index = (index as usize).min(MAX_CHOICES - 1);
        if self.choices.len() <= index {
            self.choices.resize_with(index + 1, ChoiceState::default);
        }
        &mut self.choices[index]
    }
}

fn event_size(event: &StreamEvent) -> usize {
    match event {
        StreamEvent::Text { text, .. }
        | StreamEvent::Thinking { text, .. }
        | StreamEvent::Refusal { text, .. } => text.len(),
        StreamEvent::ToolArguments { json, .. } => json.len(),
        StreamEvent::Signature { signature, .. } => signature.len(),
        StreamEvent::Redacted { data, .. } => data.len(),
        StreamEvent::Logprobs { items, .. } => size_of_val(&items[..]),
        _ => 0,
    }
}
