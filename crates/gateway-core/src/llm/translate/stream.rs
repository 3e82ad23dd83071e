//! Streams: the provider's bytes go in as they come, the caller's come out. Between decoder and encoder stands a sequencer
//! that keeps the promises of `StreamEvent`, so that neither has to defend itself against the other.

use super::{
    super::{
        ClientFormat, ProviderFormat,
        chat::{ProviderError, StopReason, StreamEvent, StreamStart, WireFormat, generated_call_id},
        eventstream::FrameReader,
        sse::{EventItem, EventLimits, EventReader},
    },
    StreamDecoder, StreamEncoder, client_codec,
    driver::{ResponseOptions, resolve_stop_reason},
    provider_codec, signatures,
};

/// AlternatingTurns a provider's stream into a caller's, whatever the chunks it comes in.
pub struct StreamTranslator {
    framing: StreamFraming,
    decoder: Box<dyn StreamDecoder>,
    sequencer: StreamSequencer,
    events: Vec<StreamEvent>,
}

enum StreamFraming {
    Sse(EventReader),
    Frames(FrameReader),
}

impl StreamTranslator {
    pub fn new(from: ProviderFormat, to: ClientFormat, reply: &ResponseOptions<'_>) -> Self {
        let format = WireFormat::of_provider(from, reply.use_responses_api);
        StreamTranslator {
            framing: match format {
                WireFormat::Bedrock => StreamFraming::Frames(FrameReader::new()),
                _ => StreamFraming::Sse(EventReader::new(EventLimits::READ)),
            },
            decoder: provider_codec(format).stream_decoder(),
            sequencer: StreamSequencer {
                maker: format,
                caller: WireFormat::from(to),
                encoder: client_codec(to).stream_encoder(reply.include_usage),
                start: Some(StreamStart {
                    id: reply.id.to_owned(),
                    model: reply.model.to_owned(),
                    created: Some(reply.created),
                    usage: None,
                }),
                choices: Vec::new(),
                said: 0,
                stopped: false,
                over: false,
            },
            events: Vec::new(),
        }
    }

    /// Takes in the next bytes and appends what the caller shall see of them.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let StreamTranslator { framing, decoder, sequencer, events } = self;
        match framing {
            StreamFraming::Sse(sse) => {
                sse.feed(bytes, |item| sse_item(item, &mut **decoder, sequencer, events, out))
            }
            StreamFraming::Frames(frames) => {
                let fed = frames.feed(bytes, |frame| {
                    let name = frame.exception_type.or(frame.event_type);
                    one_event(name, frame.payload, &mut **decoder, sequencer, events, out);
                });
                if let Err(error) = fed {
                    sequencer.fail(
                        "provider_error",
                        &format!("the provider's stream is broken: {error}"),
                        out,
                    );
                }
            }
        }
    }

    /// Ends the caller's stream after the provider's has ended. One that ended too early ends with an error.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let StreamTranslator { framing, decoder, sequencer, events } = self;
        if let StreamFraming::Sse(sse) = framing {
            sse.finish(|item| sse_item(item, &mut **decoder, sequencer, events, out));
        }
        if sequencer.stopped {
            sequencer.end(out);
        } else {
            sequencer.fail(
                "provider_error",
                "the provider's stream ended before the answer was complete",
                out,
            );
        }
    }

    /// Ends the caller's stream with an error of the gateway's own, such as a lost connection.
    pub fn fail(&mut self, code: &str, message: &str, out: &mut Vec<u8>) {
        self.sequencer.fail(code, message, out);
    }

    /// Whether the caller has been sent an error or the end.
    pub fn is_finished(&self) -> bool {
        self.sequencer.over
    }
}

fn sse_item(
    item: EventItem<'_>,
    decoder: &mut dyn StreamDecoder,
    sequencer: &mut StreamSequencer,
    events: &mut Vec<StreamEvent>,
    out: &mut Vec<u8>,
) {
    match item {
        EventItem::Event(event) => {
            let name = event.event.and_then(|name| std::str::from_utf8(name).ok());
            one_event(name, event.data, decoder, sequencer, events, out);
        }
        EventItem::Overlong => {
            sequencer.fail("provider_error", "the provider sent an event that is too large", out)
        }
    }
}

fn one_event(
    name: Option<&str>,
    data: &[u8],
    decoder: &mut dyn StreamDecoder,
    sequencer: &mut StreamSequencer,
    events: &mut Vec<StreamEvent>,
    out: &mut Vec<u8>,
) {
    if sequencer.over {
        return;
    }
    let last = decoder.decode_event(name, data, events);
    for event in events.drain(..) {
        sequencer.pass(event, out);
    }
    if last {
        // Some end their streams without ever saying why.
        if !sequencer.stopped {
            sequencer.pass(StreamEvent::Stop { choice: 0, reason: StopReason::EndTurn }, out);
        }
        sequencer.end(out);
    }
}

/// Far more calls than any model makes in one answer. Calls are searched for by number, so a server that means ill must
/// not be able to send millions of them.
pub(super) const MAX_TOOL_CALLS: u32 = 1024;

/// Some formats repeat the whole answer in the end, so that it has to be kept; a server that never ends must not fill the
/// memory.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

fn size_of_event(event: &StreamEvent) -> usize {
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

/// Passes events on in good order.
struct StreamSequencer {
    maker: WireFormat,
    caller: WireFormat,
    encoder: Box<dyn StreamEncoder>,
    /// What the stream will say of itself, until it has been said.
    start: Option<StreamStart>,
    choices: Vec<ChoiceState>,
    /// Bytes of text, thoughts and arguments so far.
    said: usize,
    stopped: bool,
    over: bool,
}

#[derive(Default)]
struct ChoiceState {
    tools: u32,
    refused: bool,
    stopped: bool,
}

impl StreamSequencer {
    fn pass(&mut self, event: StreamEvent, out: &mut Vec<u8>) {
        if self.over {
            return;
        }
        let event = match event {
            StreamEvent::Start(said) => {
                if let Some(start) = self.start.take() {
                    let start = StreamStart {
                        id: if said.id.is_empty() { start.id } else { said.id },
                        model: if said.model.is_empty() { start.model } else { said.model },
                        created: said.created.or(start.created),
                        usage: said.usage,
                    };
                    self.encoder.encode_event(StreamEvent::Start(start), out);
                }
                return;
            }
            StreamEvent::Error(failure) => {
                self.over = true;
                StreamEvent::Error(failure)
            }
            StreamEvent::ToolStart { choice, tool, id, name, signature } => {
                let tools = &mut self.choice(choice).tools;
                if *tools == MAX_TOOL_CALLS {
                    self.fail("provider_error", "the provider called too many tools at once", out);
                    return;
                }
                *tools += 1;
                let id = if id.is_empty() { generated_call_id(choice, tool) } else { id };
                StreamEvent::ToolStart { choice, tool, id, name, signature }
            }
            StreamEvent::ToolArguments { choice, tool, json } => {
                if json.is_empty() || tool >= self.choice(choice).tools {
                    return;
                }
                StreamEvent::ToolArguments { choice, tool, json }
            }
            StreamEvent::Refusal { choice, text } => {
                if text.is_empty() {
                    return;
                }
                self.choice(choice).refused = true;
                StreamEvent::Refusal { choice, text }
            }
            StreamEvent::Text { text, .. } | StreamEvent::Thinking { text, .. } if text.is_empty() => return,
            StreamEvent::Stop { choice, reason } => {
                let state = self.choice(choice);
                if std::mem::replace(&mut state.stopped, true) {
                    return;
                }
                let reason = resolve_stop_reason(reason, state.refused, state.tools > 0);
                self.stopped = true;
                StreamEvent::Stop { choice, reason }
            }
            other => other,
        };
        if let Some(start) = self.start.take_if(|_| !matches!(event, StreamEvent::Error(_))) {
            self.encoder.encode_event(StreamEvent::Start(start), out);
        }
        let mut event = event;
        self.said += size_of_event(&event);
        if self.said > MAX_RESPONSE_BYTES && !self.over {
            self.fail("provider_error", "the provider's answer is too long to be translated", out);
            return;
        }
        signatures::wrap_event(&mut event, self.maker, self.caller);
        self.encoder.encode_event(event, out);
    }

    fn choice(&mut self, index: u32) -> &mut ChoiceState {
        /// No format asks for more answers than this at once.
        const MOST: usize = 256;
        let index = (index as usize).min(MOST - 1);
        if self.choices.len() <= index {
            self.choices.resize_with(index + 1, ChoiceState::default);
        }
        &mut self.choices[index]
    }

    fn fail(&mut self, code: &str, message: &str, out: &mut Vec<u8>) {
        let status = if code.contains("timeout") { 504 } else { 502 };
        let failure = ProviderError { status, code: code.to_owned(), message: message.to_owned() };
        self.pass(StreamEvent::Error(failure), out);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.over, true) {
            self.encoder.finish(out);
        }
    }
}
