//! Streams: the provider's bytes go in as they come, the caller's come out. Between reader and writer stands a guide
//! that keeps the promises of `StreamEvent`, so that neither has to defend itself against the other.

use super::{
    super::{
        ClientShape, Shape,
        chat::{Failure, Start, Stop, StreamEvent, Wire, call_id},
        eventstream::Frames,
        sse::{Events, Item, Limits},
    },
    ReadStream, WriteStream, caller,
    driver::{Reply, true_reason},
    provider, signatures,
};

/// Turns a provider's stream into a caller's, whatever the chunks it comes in.
pub struct StreamTranslator {
    source: Source,
    reader: Box<dyn ReadStream>,
    guide: Guide,
    events: Vec<StreamEvent>,
}

enum Source {
    Sse(Events),
    Frames(Frames),
}

impl StreamTranslator {
    pub fn new(from: Shape, to: ClientShape, reply: &Reply<'_>) -> Self {
        let wire = Wire::of_provider(from, reply.has_responses);
        StreamTranslator {
            source: match wire {
                Wire::Bedrock => Source::Frames(Frames::new()),
                _ => Source::Sse(Events::new(Limits::READ)),
            },
            reader: provider(wire).stream_reader(),
            guide: Guide {
                maker: wire,
                caller: Wire::of_client(to),
                writer: caller(to).stream_writer(reply.usage_wanted),
                start: Some(Start {
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
        let StreamTranslator { source, reader, guide, events } = self;
        match source {
            Source::Sse(sse) => sse.feed(bytes, |item| sse_item(item, &mut **reader, guide, events, out)),
            Source::Frames(frames) => {
                let fed = frames.feed(bytes, |frame| {
                    let name = frame.exception_type.or(frame.event_type);
                    one_event(name, frame.payload, &mut **reader, guide, events, out);
                });
                if let Err(error) = fed {
                    guide.fail("provider_error", &format!("the provider's stream is broken: {error}"), out);
                }
            }
        }
    }

    /// Ends the caller's stream after the provider's has ended. One that ended too early ends with an error.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let StreamTranslator { source, reader, guide, events } = self;
        if let Source::Sse(sse) = source {
            sse.finish(|item| sse_item(item, &mut **reader, guide, events, out));
        }
        if guide.stopped {
            guide.end(out);
        } else {
            guide.fail("provider_error", "the provider's stream ended before the answer was complete", out);
        }
    }

    /// Ends the caller's stream with an error of the gateway's own, such as a lost connection.
    pub fn fail(&mut self, code: &str, message: &str, out: &mut Vec<u8>) {
        self.guide.fail(code, message, out);
    }

    /// Whether the caller has been sent an error or the end.
    pub fn is_over(&self) -> bool {
        self.guide.over
    }
}

fn sse_item(
    item: Item<'_>,
    reader: &mut dyn ReadStream,
    guide: &mut Guide,
    events: &mut Vec<StreamEvent>,
    out: &mut Vec<u8>,
) {
    match item {
        Item::Event(event) => {
            let name = event.event.and_then(|name| std::str::from_utf8(name).ok());
            one_event(name, event.data, reader, guide, events, out);
        }
        Item::Overlong => guide.fail("provider_error", "the provider sent an event that is too large", out),
    }
}

fn one_event(
    name: Option<&str>,
    data: &[u8],
    reader: &mut dyn ReadStream,
    guide: &mut Guide,
    events: &mut Vec<StreamEvent>,
    out: &mut Vec<u8>,
) {
    if guide.over {
        return;
    }
    let last = reader.event(name, data, events);
    for event in events.drain(..) {
        guide.pass(event, out);
    }
    if last {
        // Some end their streams without ever saying why.
        if !guide.stopped {
            guide.pass(StreamEvent::Stop { choice: 0, reason: Stop::EndTurn }, out);
        }
        guide.end(out);
    }
}

/// Far more calls than any model makes in one answer. Calls are searched for by number, so a server that means ill must
/// not be able to send millions of them.
pub(super) const MOST_CALLS: u32 = 1024;

/// Some formats repeat the whole answer in the end, so that it has to be kept; a server that never ends must not fill the
/// memory.
const MOST_SAID: usize = 64 << 20;

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
struct Guide {
    maker: Wire,
    caller: Wire,
    writer: Box<dyn WriteStream>,
    /// What the stream will say of itself, until it has been said.
    start: Option<Start>,
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

impl Guide {
    fn pass(&mut self, event: StreamEvent, out: &mut Vec<u8>) {
        if self.over {
            return;
        }
        let event = match event {
            StreamEvent::Start(said) => {
                if let Some(start) = self.start.take() {
                    let start = Start {
                        id: if said.id.is_empty() { start.id } else { said.id },
                        model: if said.model.is_empty() { start.model } else { said.model },
                        created: said.created.or(start.created),
                        usage: said.usage,
                    };
                    self.writer.event(StreamEvent::Start(start), out);
                }
                return;
            }
            StreamEvent::Error(failure) => {
                self.over = true;
                StreamEvent::Error(failure)
            }
            StreamEvent::ToolStart { choice, tool, id, name, signature } => {
                let tools = &mut self.choice(choice).tools;
                if *tools == MOST_CALLS {
                    self.fail("provider_error", "the provider called too many tools at once", out);
                    return;
                }
                *tools += 1;
                let id = if id.is_empty() { call_id(choice, tool) } else { id };
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
                let reason = true_reason(reason, state.refused, state.tools > 0);
                self.stopped = true;
                StreamEvent::Stop { choice, reason }
            }
            other => other,
        };
        if let Some(start) = self.start.take_if(|_| !matches!(event, StreamEvent::Error(_))) {
            self.writer.event(StreamEvent::Start(start), out);
        }
        let mut event = event;
        self.said += size_of_event(&event);
        if self.said > MOST_SAID && !self.over {
            self.fail("provider_error", "the provider's answer is too long to be translated", out);
            return;
        }
        signatures::wrap_event(&mut event, self.maker, self.caller);
        self.writer.event(event, out);
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
        let failure = Failure { status, code: code.to_owned(), message: message.to_owned() };
        self.pass(StreamEvent::Error(failure), out);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.over, true) {
            self.writer.end(out);
        }
    }
}
