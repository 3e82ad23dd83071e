//! Metering of a response while it is forwarded. The meter reads every chunk once, keeps a bounded amount of it, and
//! neither changes nor delays a byte.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    ProviderFormat, Usage,
    body::{self, Field},
    fields::{FieldReader, FieldSelection},
    stream::{self, Reading},
};
use crate::json::{MemberValue, for_each_member};
use crate::llm::{
    BodyFraming,
    estimate::estimate_from_chars,
    eventstream::{Frame, FrameReader},
    sse::{EventItem, EventLimits, EventReader},
};

/// What a response reports about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeterReading {
    /// None if the provider reported none, which differs from zero.
    pub usage: Option<Usage>,
    /// The model name that the provider reports.
    pub model: Option<String>,
    pub response_id: Option<String>,
    pub finish_reason: Option<String>,
    /// An error inside a response that started as a success, prefixed by its type if there is one.
    pub in_band_error: Option<String>,
    /// Characters of generated text, including tool arguments and visible reasoning.
    pub output_chars: u64,
    /// Whether the response is complete: its last event arrived, or its JSON is closed.
    pub saw_end: bool,
}

impl MeterReading {
    /// The usage to record, and whether any of it is an estimate. An aborted response is charged for the text that was
    /// sent, even if the provider's report of it is missing.
    pub fn finalize_usage(&self, estimate_prompt: impl FnOnce() -> u64) -> (Usage, bool) {
        let seen = estimate_from_chars(self.output_chars);
        match &self.usage {
            None => (Usage::from_totals(estimate_prompt(), seen), true),
            Some(usage) if self.saw_end || usage.completion_tokens() >= seen => (usage.clone(), false),
            Some(usage) => {
                let missing = seen - usage.completion_tokens();
                (Usage { output: usage.output + missing, ..usage.clone() }, true)
            }
        }
    }
}

/// Reads a response while it is forwarded.
#[derive(Debug)]
pub struct Meter {
    format: ProviderFormat,
    reader: BodyReader,
    reading: Reading,
}

#[derive(Debug)]
enum BodyReader {
    Json(FieldReader<Field>),
    Sse(EventReader),
    EventStream { frames: FrameReader, decoded: Vec<u8> },
    Opaque,
}

impl Meter {
    pub fn new(format: ProviderFormat, framing: BodyFraming) -> Self {
        Self::with_fields(body::select_all, format, framing)
    }

    /// A meter that only checks a response for errors. It still reads all events of a stream.
    pub fn for_validation(format: ProviderFormat, framing: BodyFraming) -> Self {
        Self::with_fields(body::select_error, format, framing)
    }

    fn with_fields(select: FieldSelection<Field>, format: ProviderFormat, framing: BodyFraming) -> Self {
        let reader = match framing {
            BodyFraming::Json => BodyReader::Json(FieldReader::new(select)),
            BodyFraming::Sse => BodyReader::Sse(EventReader::new(EventLimits::READ)),
            BodyFraming::EventStream => {
                BodyReader::EventStream { frames: FrameReader::new(), decoded: Vec::new() }
            }
            BodyFraming::Opaque => BodyReader::Opaque,
        };
        Meter { format, reader, reading: Reading::default() }
    }

    pub fn feed(&mut self, chunk: &[u8]) {
        let Meter { format, reader, reading } = self;
        match reader {
            BodyReader::Json(fields) => {
                fields.feed(chunk, |object| body::read_object(reading, *format, object));
            }
            BodyReader::Sse(events) => events.feed(chunk, |item| read_item(reading, *format, item)),
            BodyReader::EventStream { frames, decoded } => {
                // An invalid frame ends the reading. Earlier results are kept, and `saw_end` stays false.
                let _ = frames.feed(chunk, |frame| read_frame(reading, *format, &frame, decoded));
            }
            BodyReader::Opaque => {}
        }
    }

    /// Whether anything is read of what follows.
    pub fn reads_on(&self) -> bool {
        match &self.reader {
            BodyReader::Json(_) | BodyReader::Sse(_) => true,
            BodyReader::EventStream { frames, .. } => !frames.has_failed(),
            BodyReader::Opaque => false,
        }
    }

    /// The reading so far, for a caller that disconnects.
    pub fn snapshot(&self) -> MeterReading {
        let Meter { format, reader, reading } = self;
        match reader {
            BodyReader::Json(fields) => match fields.open_object() {
                Some(object) => {
                    let mut reading = reading.clone();
                    body::read_object(&mut reading, *format, object);
                    report(&reading, *format)
                }
                None => MeterReading {
                    saw_end: fields.is_complete() && !reading.expects_more,
                    ..report(reading, *format)
                },
            },
            BodyReader::Sse(_) => {
                let metered = report(reading, *format);
                // Some compatible providers omit `[DONE]`, but nothing follows a finish reason and a usage report.
                let reported_all = *format == ProviderFormat::OpenAi
                    && metered.finish_reason.is_some()
                    && metered.usage.is_some();
                MeterReading { saw_end: metered.saw_end || reported_all, ..metered }
            }
            BodyReader::EventStream { .. } | BodyReader::Opaque => report(reading, *format),
        }
    }

    /// The reading at the end of the body.
    pub fn finish(&mut self) -> MeterReading {
        let Meter { format, reader, reading } = self;
        if let BodyReader::Sse(events) = reader {
            events.finish(|item| read_item(reading, *format, item));
        }
        self.snapshot()
    }
}

fn report(reading: &Reading, format: ProviderFormat) -> MeterReading {
    MeterReading {
        usage: reading.final_usage(format),
        model: reading.model.clone(),
        response_id: reading.response_id.clone(),
        finish_reason: reading.finish_reason.clone(),
        in_band_error: reading.in_band_error.clone(),
        output_chars: reading.output_chars,
        saw_end: reading.saw_end,
    }
}

fn read_item(reading: &mut Reading, format: ProviderFormat, item: EventItem<'_>) {
    if let EventItem::Event(event) = item {
        stream::read_event(reading, format, event.event, event.data);
    }
}

fn read_frame(reading: &mut Reading, format: ProviderFormat, frame: &Frame<'_>, decoded: &mut Vec<u8>) {
    if let Some(exception) = frame.exception_type {
        reading.error(&String::from_utf8_lossy(frame.payload));
        let message = reading.in_band_error.take().unwrap_or_default();
        reading.in_band_error = Some(format!("{exception}: {message}"));
        return;
    }
    if frame.event_type != Some("chunk") {
        stream::read_event(reading, format, frame.event_type.map(str::as_bytes), frame.payload);
        return;
    }
    // The invoke calls encode each event of the model's own stream in Base64.
    for_each_member(frame.payload, |key, value| {
        if let (b"bytes", MemberValue::Text(text)) = (key, value) {
            decoded.clear();
            if STANDARD.decode_vec(text, decoded).is_ok() {
                stream::read_event(reading, format, None, decoded);
            }
        }
    });
}
