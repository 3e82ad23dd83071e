//! The response pipeline: meter, translate, record for the cache, filter. Built once per response; every byte of every
//! response passes through it, from a provider or from the cache.

pub mod decoding;

use std::collections::VecDeque;

use bytes::Bytes;
use gateway_core::llm::sse::{EventEditor, EventFilter, EventLimits};
use gateway_core::llm::translate::StreamTranslator;
use gateway_core::llm::usage::{is_usage_chunk, with_cost};
use rust_decimal::Decimal;

use super::attempt::{Attempt, UsageChunk};
use super::cache_stage::CacheRecorder;
use super::cost;
use super::record::{Record, StreamFailure};
use super::response_body::BodySource;
use super::response_format::ResponseContent;
use decoding::{Decoding, NO_TIME};

pub struct Pipeline {
    decoding: Decoding,
    /// The translation ended because the gateway had no time to decode the rest. The provider is not to blame.
    gave_up: bool,
    meter: MeterStage,
    translate: TranslateStage,
    cache: Option<Box<CacheRecorder>>,
    filter: FilterStage,
    wants_cost: bool,
    /// Known once the response is complete, if it is wanted.
    cost: Option<Decimal>,
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
        let mut decoding = Decoding::Plain;
        let (source, translator, is_metered) = match content {
            ResponseContent::Streaming { source, codings, translator } => {
                decoding = Decoding::of(codings);
                (source, translator, false)
            }
            ResponseContent::Buffered(content) => {
                record.meter_whole(&content.raw, content.meter.map(|meter| *meter));
                (BodySource::Chunks(content.chunks), None, true)
            }
        };
        let plan = attempt.plan;
        // A translated stream contains its usage for the cache, even if the caller did not ask for it.
        let is_for_cache =
            plan.directives.cache.is_some() && translator.is_some() && !plan.facts.include_usage;
        let removes_usage =
            (attempt.usage_chunk == UsageChunk::Ours || is_for_cache) && !plan.directives.wants_cost;
        let has_cost = is_event_stream && cost::is_in_events(plan, attempt.wire_format());
        let pipeline = Self {
            decoding,
            gave_up: false,
            meter: MeterStage { record: Some(Box::new(record)), is_done: is_metered },
            translate: translator.map_or(TranslateStage::Passthrough, TranslateStage::Stream),
            cache: cache.map(Box::new),
            filter: if has_cost {
                FilterStage::Cost(Box::new(EventEditor::new(EventLimits::READ)))
            } else if removes_usage && is_event_stream && !is_metered {
                FilterStage::UsageChunk(Box::new(EventFilter::new(EventLimits::FILTER)))
            } else {
                FilterStage::Passthrough
            },
            wants_cost: plan.directives.wants_cost,
            cost: None,
        };
        (pipeline, source)
    }

    /// Processes a chunk of the source; `out` receives what the caller gets. Of a compressed chunk it may be only a part:
    /// then `is_decoding`, and nothing else may be fed until `decode_part` has done the rest.
    pub fn feed(&mut self, chunk: Bytes, out: &mut VecDeque<Bytes>) {
        match &mut self.decoding {
            Decoding::Plain => {}
            Decoding::Encoded(encoded) => {
                encoded.begin(chunk);
                self.meter.begin();
                if self.is_ordinary() {
                    self.decode_part(out);
                }
                return;
            }
            Decoding::Ended => {
                if !self.is_translated() {
                    out.push_back(chunk);
                }
                return;
            }
        }
        self.meter.feed(&chunk);
        let chunk = self.translate.feed(chunk);
        self.forward(chunk, out);
    }

    /// Returns true if the caller has been sent an error in place of the rest of the response.
    pub fn has_failed(&self) -> bool {
        matches!(&self.translate, TranslateStage::Stream(translator) if translator.failure().is_some())
    }

    /// Ends all stages and closes the record. If the translation failed, the caller has received the error as part of
    /// its stream, and the record shows it.
    pub fn finish(&mut self, out: &mut VecDeque<Bytes>) {
        let (rest, failure) = self.translate.finish();
        if let Some(rest) = rest {
            self.forward(rest, out);
        }
        self.filter.finish(out, &self.meter);
        if self.wants_cost {
            self.cost = self.meter.cost();
        }
        let record = self.meter.record.take();
        let cache = self.cache.take();
        if let Some(message) = failure {
            match record {
                Some(record) if self.gave_up => record.fail_stream(&StreamFailure {
                    code: NO_TIME.code,
                    message: &message,
                    is_targets_fault: false,
                }),
                Some(record) => record.fail_translation(&message),
                None => {}
            }
            if let Some(cache) = cache {
                cache.abandon();
            }
            return;
        }
        let usage = record.and_then(|record| record.complete());
        if let Some(cache) = cache {
            cache.complete(usage);
        }
    }

    /// The source failed: closes the record with an error. Returns the error event of a translated stream.
    pub fn fail(&mut self, failure: &StreamFailure<'_>) -> Option<Bytes> {
        let StreamFailure { code, message, .. } = *failure;
        if let Some(record) = self.meter.record.take() {
            record.fail_stream(failure);
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
        self.filter.feed(chunk, out, &self.meter);
    }

    /// The cost of a complete response.
    pub fn cost(&self) -> Option<Decimal> {
        self.cost
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
    /// The cost of what has been metered.
    fn cost(&self) -> Option<Decimal> {
        self.record.as_ref()?.cost_so_far()
    }

    /// The first bytes have arrived, of which nothing may be read.
    fn begin(&mut self) {
        if let Some(record) = &mut self.record
            && !self.is_done
        {
            record.note_first_byte();
        }
    }

    /// The rest of the response cannot be read.
    fn stop(&mut self) {
        if let Some(record) = &mut self.record {
            record.stop_metering();
        }
    }

    /// What follows is metered or kept for the log.
    fn reads_on(&self) -> bool {
        !self.is_done && self.record.as_ref().is_some_and(|record| record.reads_on())
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

    /// Returns the end of the stream, which contains an error event if the translation failed, and the failure.
    fn finish(&mut self) -> (Option<Bytes>, Option<String>) {
        match std::mem::replace(self, Self::Finished) {
            Self::Passthrough | Self::Finished => (None, None),
            Self::Stream(mut translator) => {
                let mut out = Vec::new();
                translator.finish(&mut out);
                (Some(out.into()), translator.failure().map(ToOwned::to_owned))
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
    /// Adds the cost to the usage.
    Cost(Box<EventEditor>),
}

impl FilterStage {
    fn feed(&mut self, chunk: Bytes, out: &mut VecDeque<Bytes>, meter: &MeterStage) {
        match self {
            Self::Cost(editor) => {
                let edited = editor.feed(&chunk, |data| with_cost(data, || meter.cost().map(cost::text)));
                if !edited.is_empty() {
                    out.push_back(edited.into());
                }
            }
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

    fn finish(&mut self, out: &mut VecDeque<Bytes>, meter: &MeterStage) {
        let rest = match self {
            Self::Passthrough => return,
            Self::UsageChunk(filter) => filter.finish(|event| is_usage_chunk(event.data)),
            Self::Cost(editor) => editor.finish(|data| with_cost(data, || meter.cost().map(cost::text))),
        };
        if !rest.is_empty() {
            out.push_back(rest.into());
        }
    }
}
