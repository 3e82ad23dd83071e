//! The meter that stands beside a response on its way to the caller. It sees every chunk once, keeps little, and never
//! changes or delays a byte.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    Shape, Usage, body,
    json::{Value, pairs},
    objects::{Objects, Wanted},
    stream::{self, Reading},
};
use crate::llm::{
    estimate::estimate_from_chars,
    eventstream::{Frame, Frames},
    sse::{Events, Item, Limits},
};

/// How the body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Json,
    Sse,
    EventStream,
    /// Anything else: it passes unread.
    Opaque,
}

impl Kind {
    /// The framing that a `content-type` announces. Rows of JSON objects count as JSON.
    pub fn of(content_type: &str) -> Kind {
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match &*essence {
            "text/event-stream" => Kind::Sse,
            "application/vnd.amazon.eventstream" => Kind::EventStream,
            "application/json" | "application/x-ndjson" | "application/stream+json" => Kind::Json,
            other if other.ends_with("+json") => Kind::Json,
            _ => Kind::Opaque,
        }
    }
}

/// What a response said of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metered {
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

impl Metered {
    /// The usage to account for, and whether any of it is an estimate. A response that broke off is charged for the
    /// text that was sent even where the provider's report of it had not come yet.
    pub fn settle(&self, estimate_prompt: impl FnOnce() -> u64) -> (Usage, bool) {
        let seen = estimate_from_chars(self.output_chars);
        match &self.usage {
            None => (Usage::of_totals(estimate_prompt(), seen), true),
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
    shape: Shape,
    source: Source,
    reading: Reading,
}

#[derive(Debug)]
enum Source {
    Json(Objects),
    Sse(Events),
    EventStream { frames: Frames, decoded: Vec<u8> },
    Opaque,
}

impl Meter {
    pub fn new(shape: Shape, kind: Kind) -> Self {
        Self::wanting(body::WANTED, shape, kind)
    }

    /// One that is asked whether a response is sound, and not what it used. Of a stream it reads all there is.
    pub fn of_soundness(shape: Shape, kind: Kind) -> Self {
        Self::wanting(body::ERRORS, shape, kind)
    }

    fn wanting(wanted: &'static [Wanted], shape: Shape, kind: Kind) -> Self {
        let source = match kind {
            Kind::Json => Source::Json(Objects::new(wanted)),
            Kind::Sse => Source::Sse(Events::new(Limits::READ)),
            Kind::EventStream => Source::EventStream { frames: Frames::new(), decoded: Vec::new() },
            Kind::Opaque => Source::Opaque,
        };
        Meter { shape, source, reading: Reading::default() }
    }

    pub fn feed(&mut self, chunk: &[u8]) {
        let Meter { shape, source, reading } = self;
        match source {
            Source::Json(objects) => objects.feed(chunk, |fields| body::absorb(reading, *shape, fields)),
            Source::Sse(events) => events.feed(chunk, |item| read_item(reading, *shape, item)),
            Source::EventStream { frames, decoded } => {
                // A broken frame ends the reading; what was read until then stands, and `saw_end` stays false.
                let _ = frames.feed(chunk, |frame| read_frame(reading, *shape, &frame, decoded));
            }
            Source::Opaque => {}
        }
    }

    /// What is known now, for a caller that hangs up.
    pub fn so_far(&self) -> Metered {
        let Meter { shape, source, reading } = self;
        match source {
            Source::Json(objects) => match objects.unfinished() {
                Some(fields) => {
                    let mut reading = reading.clone();
                    body::absorb(&mut reading, *shape, fields);
                    report(&reading, *shape)
                }
                None => Metered { saw_end: objects.complete() && !reading.more, ..report(reading, *shape) },
            },
            Source::Sse(_) => {
                let metered = report(reading, *shape);
                // Not everyone who copied OpenAI's streams sends `[DONE]`, but nothing follows a reason and a report.
                let told_all =
                    *shape == Shape::OpenAi && metered.finish_reason.is_some() && metered.usage.is_some();
                Metered { saw_end: metered.saw_end || told_all, ..metered }
            }
            Source::EventStream { .. } | Source::Opaque => report(reading, *shape),
        }
    }

    /// What is known at the end of the body.
    pub fn finish(&mut self) -> Metered {
        let Meter { shape, source, reading } = self;
        if let Source::Sse(events) = source {
            events.finish(|item| read_item(reading, *shape, item));
        }
        self.so_far()
    }
}

fn report(reading: &Reading, shape: Shape) -> Metered {
    Metered {
        usage: reading.final_usage(shape),
        model: reading.model.clone(),
        response_id: reading.response_id.clone(),
        finish_reason: reading.finish_reason.clone(),
        in_band_error: reading.in_band_error.clone(),
        output_chars: reading.output_chars,
        saw_end: reading.saw_end,
    }
}

fn read_item(reading: &mut Reading, shape: Shape, item: Item<'_>) {
    if let Item::Event(event) = item {
        stream::event(reading, shape, event.event, event.data);
    }
}

fn read_frame(reading: &mut Reading, shape: Shape, frame: &Frame<'_>, decoded: &mut Vec<u8>) {
    if let Some(exception) = frame.exception_type {
        reading.error(&String::from_utf8_lossy(frame.payload));
        let message = reading.in_band_error.take().unwrap_or_default();
        reading.in_band_error = Some(format!("{exception}: {message}"));
        return;
    }
    if frame.event_type != Some("chunk") {
        stream::event(reading, shape, frame.event_type.map(str::as_bytes), frame.payload);
        return;
    }
    // The invoke calls wrap each event of the model's own stream in Base64.
    pairs(frame.payload, |key, value| {
        if let (b"bytes", Value::Text(text)) = (key, value) {
            decoded.clear();
            if STANDARD.decode_vec(text, decoded).is_ok() {
                stream::event(reading, shape, None, decoded);
            }
        }
    });
}
