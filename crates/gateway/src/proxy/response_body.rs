//! The body that goes to the caller, piece by piece as it comes, while the record beside it meters and copies.
//!
//! The record is closed before the last byte is handed on: a caller that has seen the end of a response can rely on
//! its row being on disk.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::llm::ClientFormat;
use gateway_core::llm::errors::stream_error;
use gateway_core::llm::sse::{EventFilter, EventLimits};
use gateway_core::llm::translate::StreamTranslator;
use gateway_core::llm::usage::is_usage_chunk;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::cache_stage::CacheRecorder;
use super::call::Call;
use super::pool::Answer;
use super::record::Record;
use super::upstream::UpstreamResponse;

/// A stream that is silent for this long has died.
pub const SILENCE: Duration = Duration::from_secs(120);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Where the bytes come from.
pub enum Source {
    Upstream(Answer),
    /// An answer of which the beginning has been looked at.
    Begun(VecDeque<Bytes>, Answer),
    Pieces(VecDeque<Bytes>),
}

impl Source {
    pub fn whole(body: Bytes) -> Self {
        Source::Pieces(if body.is_empty() { VecDeque::new() } else { VecDeque::from([body]) })
    }

    pub fn pieces(pieces: VecDeque<Bytes>) -> Self {
        Source::Pieces(pieces)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self {
            Source::Upstream(body) => Pin::new(body).poll_frame(context),
            Source::Begun(first, body) => match first.pop_front() {
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                None => Pin::new(body).poll_frame(context),
            },
            Source::Pieces(pieces) => Poll::Ready(pieces.pop_front().map(|piece| Ok(Frame::data(piece)))),
        }
    }

    fn is_end(&self) -> bool {
        match self {
            Source::Upstream(body) => body.is_end_stream(),
            Source::Begun(first, body) => first.is_empty() && body.is_end_stream(),
            Source::Pieces(pieces) => pieces.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Source::Upstream(body) => body.size_hint(),
            Source::Begun(first, body) => match body.size_hint().exact() {
                None => SizeHint::default(),
                Some(rest) => SizeHint::with_exact(rest + length(first)),
            },
            Source::Pieces(pieces) => SizeHint::with_exact(length(pieces)),
        }
    }
}

fn length(pieces: &VecDeque<Bytes>) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

pub struct MeteredBody {
    source: Source,
    /// Gone once it is closed.
    record: Option<Box<Record>>,
    /// Turns the provider's stream into the caller's.
    translator: Option<Box<StreamTranslator>>,
    /// The record has seen it all already.
    is_metered: bool,
    /// Copies the answer for the cache.
    keeper: Option<Box<CacheRecorder>>,
    /// Withholds the usage chunk that only we asked for.
    filter: Option<Box<EventFilter>>,
    /// Pieces that wait to be handed on.
    ready: VecDeque<Bytes>,
    is_sse: bool,
    caller: ClientFormat,
    at_boundary: bool,
    ends_at: Instant,
    heard: Instant,
    alarm: Option<Pin<Box<Sleep>>>,
    done: bool,
    /// What the body ends with, once the bytes before it have left.
    error: Option<BoxError>,
}

impl MeteredBody {
    pub fn new(
        answered: UpstreamResponse,
        headers: &HeaderMap,
        mut record: Record,
        call: &Call,
        keeper: Option<CacheRecorder>,
    ) -> Self {
        let UpstreamResponse { head: _, source, framing: _, translator, collected } = answered;
        let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        let is_sse = content_type.starts_with(b"text/event-stream");
        if let Some(collected) = &collected {
            record.saw_response(&collected.raw);
        }
        // A stream that may be kept tells its usage to the cache, whether the caller asked for it or not.
        let told_to_cache = call.caching.is_some() && translator.is_some() && !call.wants_usage;
        let hides = (call.hide_usage || told_to_cache) && is_sse && collected.is_none();
        Self {
            source,
            translator,
            is_metered: collected.is_some(),
            keeper: keeper.map(Box::new),
            filter: hides.then(|| Box::new(EventFilter::new(EventLimits::FILTER))),
            ready: VecDeque::new(),
            is_sse,
            caller: call.caller,
            at_boundary: true,
            ends_at: Instant::from_std(record.ends_at(call.timeout)),
            heard: Instant::now(),
            alarm: None,
            done: false,
            error: None,
            record: Some(Box::new(record)),
        }
        .closed_if_empty()
    }

    /// An answer without a body ends with its head.
    fn closed_if_empty(mut self) -> Self {
        if self.source.is_end() {
            self.end();
        }
        self
    }

    fn take_in(&mut self, data: Bytes) {
        if let Some(record) = &mut self.record
            && !self.is_metered
        {
            record.saw_response(&data);
        }
        match &mut self.translator {
            None => self.pass(data),
            Some(translator) => {
                let mut out = Vec::new();
                translator.feed(&data, &mut out);
                self.pass(out.into());
            }
        }
        if self.source.is_end() {
            self.end();
        }
    }

    /// Hands on what is in the caller's format.
    fn pass(&mut self, data: Bytes) {
        if let Some(keeper) = &mut self.keeper {
            keeper.saw(&data);
        }
        match &mut self.filter {
            None if data.is_empty() => {}
            None => self.ready.push_back(data),
            Some(filter) => {
                let released = filter.feed(&data, |event| is_usage_chunk(event.data));
                if !released.buffered.is_empty() {
                    self.ready.push_back(released.buffered.into());
                }
                self.ready.extend(released.ranges.into_iter().map(|range| data.slice(range)));
            }
        }
    }

    /// The provider is done: the row is written, and only then the last bytes leave.
    fn end(&mut self) {
        if let Some(mut translator) = self.translator.take() {
            let mut out = Vec::new();
            translator.finish(&mut out);
            self.pass(out.into());
        }
        if let Some(filter) = &mut self.filter {
            let left = filter.finish(|event| is_usage_chunk(event.data));
            if !left.is_empty() {
                self.ready.push_back(left.into());
            }
        }
        self.done = true;
        let usage = self.record.take().and_then(|record| record.completed());
        if let Some(keeper) = self.keeper.take() {
            keeper.complete(usage);
        }
    }

    /// The provider broke off. An event stream tells so in the caller's format; other bodies are cut, so that the
    /// caller's client sees that they are incomplete.
    fn break_off(&mut self, code: &'static str, message: &str) -> Option<BoxError> {
        self.done = true;
        if let Some(record) = self.record.take() {
            record.broke(code, message);
        }
        if let Some(keeper) = self.keeper.take() {
            keeper.broke();
        }
        if !self.is_sse {
            return Some(message.to_owned().into());
        }
        if let Some(mut translator) = self.translator.take() {
            let mut out = Vec::new();
            translator.fail(code, message, &mut out);
            self.ready.push_back(out.into());
            return None;
        }
        if !self.at_boundary {
            self.ready.push_back(Bytes::from_static(b"\n\n"));
        }
        self.ready.push_back(stream_error(self.caller, code, message).into());
        None
    }

    /// Has the stream been silent, or the whole call running, for too long? Otherwise wakes the task in time.
    fn is_overdue(&mut self, context: &mut Context<'_>) -> Option<&'static str> {
        loop {
            let (due, what) = match self.heard + SILENCE {
                silent if silent < self.ends_at => (silent, "the provider fell silent"),
                _ => (self.ends_at, "the call took longer than its limit"),
            };
            if Instant::now() >= due {
                return Some(what);
            }
            // The alarm is not moved with every piece; when it rings early it is set again.
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            if alarm.as_mut().poll(context).is_pending() {
                return None;
            }
            self.alarm = None;
        }
    }
}

/// An error ends the connection at once. Who comes back a turn later has let it send what it was given before, be that
/// only the head.
fn flush_first<T>(context: &Context<'_>) -> Poll<T> {
    context.waker().wake_by_ref();
    Poll::Pending
}

impl Body for MeteredBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            if let Some(piece) = this.ready.pop_front() {
                this.at_boundary = piece.ends_with(b"\n\n") || piece.ends_with(b"\r\n\r\n");
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if let Some(error) = this.error.take() {
                return Poll::Ready(Some(Err(error)));
            }
            if this.done {
                return Poll::Ready(None);
            }
            match this.source.poll(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    this.heard = Instant::now();
                    match frame.into_data() {
                        Ok(data) => this.take_in(data),
                        // Trailers are of the provider's hop; passed on they would end the body before its time.
                        Err(_trailers) => {}
                    }
                }
                Poll::Ready(None) => this.end(),
                Poll::Ready(Some(Err(error))) => {
                    let message = format!("the provider's answer broke off: {error}");
                    this.error = this.break_off("provider_error", &message);
                    if this.error.is_some() {
                        return flush_first(context);
                    }
                }
                Poll::Pending => match this.is_overdue(context) {
                    None => return Poll::Pending,
                    Some(what) => {
                        this.error = this.break_off("provider_timeout", what);
                        if this.error.is_some() {
                            return flush_first(context);
                        }
                    }
                },
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.done && self.ready.is_empty() && self.error.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_sse {
            return SizeHint::default();
        }
        let held = length(&self.ready);
        match self.source.size_hint().exact() {
            _ if self.done => SizeHint::with_exact(held),
            Some(rest) => SizeHint::with_exact(held + rest),
            None => SizeHint::default(),
        }
    }
}
