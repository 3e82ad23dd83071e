//! Translation of response streams, event by event: framing, decoder, sequencer, encoder.

use super::{
    super::{
        ClientFormat, ProviderFormat,
        chat::{StopReason, StreamEvent, WireFormat},
        eventstream::FrameReader,
        sse::{EventItem, EventLimits, EventReader},
    },
    ResponseOptions, StreamDecoder, client_codec, provider_codec,
    sequencer::StreamSequencer,
};

/// Translates a provider's stream into a caller's. The bytes can arrive in chunks of any size.
pub struct StreamTranslator {
    framing: StreamFraming,
    pipeline: EventPipeline,
}

enum StreamFraming {
    Sse(EventReader),
    Frames(FrameReader),
}

/// Takes the payload of one event at a time.
struct EventPipeline {
    decoder: Box<dyn StreamDecoder>,
    sequencer: StreamSequencer,
    /// Reused for the events of each payload.
    events: Vec<StreamEvent>,
}

impl StreamTranslator {
    pub fn new(from: ProviderFormat, to: ClientFormat, options: &ResponseOptions<'_>) -> Self {
        let format = WireFormat::of_provider(from, options.use_responses_api);
        let encoder = client_codec(to).stream_encoder(options.include_usage);
        StreamTranslator {
            framing: match format {
                WireFormat::Bedrock => StreamFraming::Frames(FrameReader::new()),
                _ => StreamFraming::Sse(EventReader::new(EventLimits::READ)),
            },
            pipeline: EventPipeline {
                decoder: provider_codec(format).stream_decoder(),
                sequencer: StreamSequencer::new(format, WireFormat::from(to), encoder, options),
                events: Vec::new(),
            },
        }
    }

    /// Consumes the next bytes and appends their translation to `out`.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let StreamTranslator { framing, pipeline } = self;
        match framing {
            StreamFraming::Sse(sse) => sse.feed(bytes, |item| pipeline.process_sse_item(item, out)),
            StreamFraming::Frames(frames) => {
                let result = frames.feed(bytes, |frame| {
                    let name = frame.exception_type.or(frame.event_type);
                    pipeline.process_event(name, frame.payload, out);
                });
                if let Err(error) = result {
                    let message = format!("the provider's stream is corrupt: {error}");
                    pipeline.sequencer.fail("provider_error", &message, out);
                }
            }
        }
    }

    /// Ends the caller's stream after the end of the provider's. A truncated stream ends with an error.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let StreamTranslator { framing, pipeline } = self;
        if let StreamFraming::Sse(sse) = framing {
            sse.finish(|item| pipeline.process_sse_item(item, out));
        }
        let sequencer = &mut pipeline.sequencer;
        if sequencer.has_stopped() {
            sequencer.finish(out);
        } else {
            let message = "the provider's stream ended before the response was complete";
            sequencer.fail("provider_error", message, out);
        }
    }

    /// Ends the caller's stream with an error of the gateway, such as a lost connection.
    pub fn fail(&mut self, code: &str, message: &str, out: &mut Vec<u8>) {
        self.pipeline.sequencer.fail(code, message, out);
    }

    /// The message of the error with which the caller's stream ended: one of the provider's, or of a stream that cannot
    /// be translated.
    pub fn failure(&self) -> Option<&str> {
        self.pipeline.sequencer.failure()
    }

    /// Returns whether the caller has been sent the end of the stream or an error.
    pub fn is_finished(&self) -> bool {
        self.pipeline.sequencer.is_finished()
    }
}

impl EventPipeline {
    fn process_sse_item(&mut self, item: EventItem<'_>, out: &mut Vec<u8>) {
        match item {
            EventItem::Event(event) => {
                let name = event.event.and_then(|name| std::str::from_utf8(name).ok());
                self.process_event(name, event.data, out);
            }
            EventItem::Overlong => {
                self.sequencer.fail(
                    "provider_error",
                    "the provider sent a stream event that is too large",
                    out,
                );
            }
        }
    }

    fn process_event(&mut self, name: Option<&str>, data: &[u8], out: &mut Vec<u8>) {
        if self.sequencer.is_finished() {
            return;
        }
        let is_last = self.decoder.decode_event(name, data, &mut self.events);
        for event in self.events.drain(..) {
            self.sequencer.forward(event, out);
        }
        if is_last {
            // Some providers end a stream without a stop reason.
            if !self.sequencer.has_stopped() {
                self.sequencer.forward(StreamEvent::Stop { choice: 0, reason: StopReason::EndTurn }, out);
            }
            self.sequencer.finish(out);
        }
    }
}
