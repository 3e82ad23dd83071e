//! The meter that stands beside a response on its way to the caller. It sees every chunk once, keeps little, and never
//! changes or delays a byte.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    ProviderFormat, Usage, body,
    json::{Value, pairs},
    objects::{Objects, Wanted},
    stream::{self, Reading},
};
use crate::llm::{
    BodyFraming,
    estimate::estimate_from_chars,
    eventstream::{Frame, FrameReader},
    sse::{EventItem, EventLimits, EventReader},
};

/// What a response said of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeterReading {
    /// None when the provider reported none, which is not zero.
    pub usage: Option<Usage>,
    /// The model as the provider names it.
    pub model: Option<String>,
    pub response_id: Option<String>,
    pub finish_reason: Option<String>,
    /// An error inside a response that began as a success, with its kind in front where one is given.
    pub in_band_error: Option<String>,
    /// Characters of generated text that were seen, tool arguments and shown reasoning included.
    pub output_chars: u64,
    /// Whether the response was complete: its last event was seen, or its JSON was closed.
    pub saw_end: bool,
}

impl MeterReading {
    /// The usage to account for, and whether any of it is an estimate. A response that broke off is charged for the
    /// text that was sent even where the provider's report of it had not come yet.
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

/// Reads a response as it passes.
#[derive(Debug)]
pub struct Meter {
    format: ProviderFormat,
    source: Source,
    reading: Reading,
}

#[derive(Debug)]
enum Source {
    Json(Objects),
    Sse(EventReader),
    EventStream { frames: FrameReader, decoded: Vec<u8> },
    Opaque,
}

impl Meter {
    pub fn new(format: ProviderFormat, framing: BodyFraming) -> Self {
        Self::wanting(body::WANTED, format, framing)
    }

    /// One that is asked whether a response is sound, and not what it used. Of a stream it reads all there is.
    pub fn for_validation(format: ProviderFormat, framing: BodyFraming) -> Self {
        Self::wanting(body::ERRORS, format, framing)
    }

    fn wanting(wanted: &'static [Wanted], format: ProviderFormat, framing: BodyFraming) -> Self {
        let source = match framing {
            BodyFraming::Json => Source::Json(Objects::new(wanted)),
            BodyFraming::Sse => Source::Sse(EventReader::new(EventLimits::READ)),
            BodyFraming::EventStream => {
                Source::EventStream { frames: FrameReader::new(), decoded: Vec::new() }
            }
            BodyFraming::Opaque => Source::Opaque,
        };
        Meter { format, source, reading: Reading::default() }
    }

    pub fn feed(&mut self, chunk: &[u8]) {
        let Meter { format, source, reading } = self;
        match source {
            Source::Json(objects) => objects.feed(chunk, |fields| body::absorb(reading, *format, fields)),
            Source::Sse(events) => events.feed(chunk, |item| read_item(reading, *format, item)),
            Source::EventStream { frames, decoded } => {
                // A broken frame ends the reading; what was read until then stands, and `saw_end` stays false.
                let _ = frames.feed(chunk, |frame| read_frame(reading, *format, &frame, decoded));
            }
            Source::Opaque => {}
        }
    }

    /// What is known now, for a caller that hangs up.
    pub fn snapshot(&self) -> MeterReading {
        let Meter { format, source, reading } = self;
        match source {
            Source::Json(objects) => match objects.unfinished() {
                Some(fields) => {
                    let mut reading = reading.clone();
                    body::absorb(&mut reading, *format, fields);
                    report(&reading, *format)
                }
                None => {
                    MeterReading { saw_end: objects.complete() && !reading.more, ..report(reading, *format) }
                }
            },
            Source::Sse(_) => {
                let metered = report(reading, *format);
                // Not everyone who copied OpenAI's streams sends `[DONE]`, but nothing follows a reason and a report.
                let told_all = *format == ProviderFormat::OpenAi
                    && metered.finish_reason.is_some()
                    && metered.usage.is_some();
                MeterReading { saw_end: metered.saw_end || told_all, ..metered }
            }
            Source::EventStream { .. } | Source::Opaque => report(reading, *format),
        }
    }

    /// What is known at the end of the body.
    pub fn finish(&mut self) -> MeterReading {
        let Meter { format, source, reading } = self;
        if let Source::Sse(events) = source {
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
        stream::event(reading, format, event.event, event.data);
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
        stream::event(reading, format, frame.event_type.map(str::as_bytes), frame.payload);
        return;
    }
    // The invoke calls wrap each event of the model's own stream in Base64.
    pairs(frame.payload, |key, value| {
        if let (b"bytes", Value::Text(text)) = (key, value) {
            decoded.clear();
            if STANDARD.decode_vec(text, decoded).is_ok() {
                stream::event(reading, format, None, decoded);
            }
        }
    });
}
