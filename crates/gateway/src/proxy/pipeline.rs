//! The response pipeline: meter, translate, record for the cache, filter. Built once per response; every byte of every
//! response passes through it, from a provider or from the cache.

use std::collections::VecDeque;

use bytes::Bytes;
use gateway_core::llm::sse::{EventFilter, EventLimits};
use gateway_core::llm::translate::StreamTranslator;
use gateway_core::llm::usage::is_usage_chunk;

use super::attempt::{Attempt, UsageChunk};
use super::cache_stage::CacheRecorder;
use super::content_decoding::ContentDecoder;
use super::record::Record;
use super::response_body::BodySource;
use super::response_format::ResponseContent;

pub struct Pipeline {
    /// Decodes a compressed response for the other stages.
    decoder: Option<Box<ContentDecoder>>,
    meter: MeterStage,
    translate: TranslateStage,
    cache: Option<Box<CacheRecorder>>,
    filter: FilterStage,
}

/// More of a response is not decoded, and not metered.
const MAX_DECODED_BYTES: u64 = 256 << 20;

/// A stage could not process the response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    #[error("{0}")]
    Translate(String),
}

impl Pipeline {
    /// The pipeline for a response, and the source of its bytes. `is_event_stream`: the caller receives an SSE stream
    /// to which events can be added, and from which they can be removed.
    pub fn new(
        attempt: &Attempt<'_>,
        content: ResponseContent,
        mut record: Record,
        cache: Option<CacheRecorder>,
        is_event_stream: bool,
    ) -> (Self, BodySource) {
        let mut decoder = None;
        let (source, translator, is_metered) = match content {
            ResponseContent::Streaming { source, codings, translator } => {
                decoder = codings.decoder(MAX_DECODED_BYTES).map(Box::new);
                (source, translator, false)
            }
            ResponseContent::Buffered(content) => {
                record.meter_chunk(&content.raw);
                (BodySource::Chunks(content.chunks), None, true)
            }
        };
        let plan = attempt.plan;
        // A translated stream contains its usage for the cache, even if the caller did not ask for it.
        let is_for_cache =
            plan.directives.cache.is_some() && translator.is_some() && !plan.facts.include_usage;
        let removes_usage = attempt.usage_chunk == UsageChunk::Ours || is_for_cache;
        let pipeline = Self {
            decoder,
            meter: MeterStage { record: Some(Box::new(record)), is_done: is_metered },
            translate: translator.map_or(TranslateStage::Passthrough, TranslateStage::Stream),
            cache: cache.map(Box::new),
            filter: if removes_usage && is_event_stream && !is_metered {
                FilterStage::UsageChunk(Box::new(EventFilter::new(EventLimits::FILTER)))
            } else {
                FilterStage::Passthrough
            },
        };
        (pipeline, source)
    }

    /// Processes a chunk of the source; `out` receives what the caller gets.
    pub fn feed(&mut self, chunk: Bytes, out: &mut VecDeque<Bytes>) {
        if self.decoder.is_some() {
            return self.feed_encoded(chunk, out);
        }
        self.meter.feed(&chunk);
        let chunk = self.translate.feed(chunk);
        self.forward(chunk, out);
    }

    /// The stages read what is decoded of the chunk. Without a translation the caller receives the chunk itself.
    fn feed_encoded(&mut self, chunk: Bytes, out: &mut VecDeque<Bytes>) {
        let Self { decoder: Some(decoder), meter, translate, cache, .. } = self else { return };
        let is_translated = !matches!(translate, TranslateStage::Passthrough);
        let mut translated = Vec::new();
        let decoded = decoder.feed(&chunk, &mut |piece| {
            meter.feed(piece);
            if is_translated {
                translated.extend_from_slice(&translate.feed(Bytes::copy_from_slice(piece)));
            } else if let Some(cache) = cache {
                cache.feed(piece);
            }
        });
        if decoded.is_err() {
            meter.stop();
            if let Some(cache) = cache.take() {
                cache.abandon();
            }
        }
        if is_translated {
            self.forward(translated.into(), out);
        } else {
            out.push_back(chunk);
        }
    }

    /// Ends all stages and closes the record. The error of a stage has been sent to the caller as part of its stream;
    /// the record shows the status of the provider.
    pub fn finish(&mut self, out: &mut VecDeque<Bytes>) -> Result<(), StageError> {
        let (rest, result) = self.translate.finish();
        if let Some(rest) = rest {
            self.forward(rest, out);
        }
        self.filter.finish(out);
        let usage = self.meter.record.take().and_then(|record| record.complete());
        if let Some(cache) = self.cache.take() {
            cache.complete(usage);
        }
        result
    }

    /// The source failed: closes the record with an error. Returns the error event of a translated stream.
    pub fn fail(&mut self, code: &'static str, message: &str) -> Option<Bytes> {
        if let Some(record) = self.meter.record.take() {
            record.fail_stream(code, message);
        }
        if let Some(cache) = self.cache.take() {
            cache.abandon();
        }
        self.translate.fail(code, message)
    }

    fn forward(&mut self, chunk: Bytes, out: &mut VecDeque<Bytes>) {
        if let Some(cache) = &mut self.cache {
            cache.feed(&chunk);
        }
        self.filter.feed(chunk, out);
    }
}

/// Feeds the record with what the provider sent.
struct MeterStage {
    /// None once it is closed.
    record: Option<Box<Record>>,
    /// The whole response was metered before.
    is_done: bool,
}

impl MeterStage {
    /// The rest of the response cannot be read.
    fn stop(&mut self) {
        if let Some(record) = &mut self.record {
            record.stop_metering();
        }
    }

    fn feed(&mut self, chunk: &[u8]) {
        if let Some(record) = &mut self.record
            && !self.is_done
        {
            record.meter_chunk(chunk);
        }
    }
}

enum TranslateStage {
    Passthrough,
    Stream(Box<StreamTranslator>),
    Finished,
}

impl TranslateStage {
    fn feed(&mut self, chunk: Bytes) -> Bytes {
        match self {
            Self::Passthrough | Self::Finished => chunk,
            Self::Stream(translator) => {
                let mut out = Vec::new();
                translator.feed(&chunk, &mut out);
                out.into()
            }
        }
    }

    /// Returns the end of the stream, which contains an error event if the translation failed.
    fn finish(&mut self) -> (Option<Bytes>, Result<(), StageError>) {
        match std::mem::replace(self, Self::Finished) {
            Self::Passthrough | Self::Finished => (None, Ok(())),
            Self::Stream(mut translator) => {
                let mut out = Vec::new();
                translator.finish(&mut out);
                let error = translator.failure().map(|message| StageError::Translate(message.to_owned()));
                (Some(out.into()), error.map_or(Ok(()), Err))
            }
        }
    }

    fn fail(&mut self, code: &str, message: &str) -> Option<Bytes> {
        match std::mem::replace(self, Self::Finished) {
            Self::Passthrough | Self::Finished => None,
            Self::Stream(mut translator) => {
                let mut out = Vec::new();
                translator.fail(code, message, &mut out);
                Some(out.into())
            }
        }
    }
}

enum FilterStage {
    Passthrough,
    /// Removes the usage chunk that only the gateway requested.
    UsageChunk(Box<EventFilter>),
}

impl FilterStage {
    fn feed(&mut self, chunk: Bytes, out: &mut VecDeque<Bytes>) {
        match self {
            Self::Passthrough if chunk.is_empty() => {}
            Self::Passthrough => out.push_back(chunk),
            Self::UsageChunk(filter) => {
                let filtered = filter.feed(&chunk, |event| is_usage_chunk(event.data));
                if !filtered.buffered.is_empty() {
                    out.push_back(filtered.buffered.into());
                }
                out.extend(filtered.ranges.into_iter().map(|range| chunk.slice(range)));
            }
        }
    }

    fn finish(&mut self, out: &mut VecDeque<Bytes>) {
        if let Self::UsageChunk(filter) = self {
            let rest = filter.finish(|event| is_usage_chunk(event.data));
            if !rest.is_empty() {
                out.push_back(rest.into());
            }
        }
    }
}
