//! The body that the caller receives: every chunk goes through the pipeline as it arrives.
//!
//! The record is closed before the last byte is sent. A caller that has seen the end of a response can rely on its log
//! row being on disk.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::llm::ClientFormat;
use gateway_core::llm::errors::stream_error;
use gateway_core::llm::failure::{HealthSignal, timeout_signal};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, TRAILER};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::attempt::Attempt;
use super::cache_stage::CacheRecorder;
use super::cost;
use super::pipeline::Pipeline;
use super::pipeline::decoding::{Away, NextTurn, Returned, Turn};
use super::record::{Record, StreamFailure};
use super::response_format::ResponseContent;
use super::validate::IDLE_TIMEOUT;
use crate::calls_in_progress::CallInProgress;
use crate::outbound::http1::ConnectionError;
use crate::outbound::pool::UpstreamBody;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

const TOO_LATE: &str = "the request exceeded its timeout";

/// Where the bytes of a response come from.
pub enum BodySource {
    Upstream(UpstreamBody),
    /// A response whose start has been read.
    Prefixed(VecDeque<Bytes>, UpstreamBody),
    Chunks(VecDeque<Bytes>),
}

impl BodySource {
    pub fn whole(body: Bytes) -> Self {
        Self::Chunks(if body.is_empty() { VecDeque::new() } else { VecDeque::from([body]) })
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        match self {
            Self::Upstream(body) => Pin::new(body).poll_frame(context),
            Self::Prefixed(prefix, body) => match prefix.pop_front() {
                Some(chunk) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
                None => Pin::new(body).poll_frame(context),
            },
            Self::Chunks(chunks) => Poll::Ready(chunks.pop_front().map(|chunk| Ok(Frame::data(chunk)))),
        }
    }

    fn is_end(&self) -> bool {
        match self {
            Self::Upstream(body) => body.is_end_stream(),
            Self::Prefixed(prefix, body) => prefix.is_empty() && body.is_end_stream(),
            Self::Chunks(chunks) => chunks.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Upstream(body) => body.size_hint(),
            Self::Prefixed(prefix, body) => match body.size_hint().exact() {
                None => SizeHint::default(),
                Some(rest) => SizeHint::with_exact(rest + total_length(prefix)),
            },
            Self::Chunks(chunks) => SizeHint::with_exact(total_length(chunks)),
        }
    }
}

fn total_length(chunks: &VecDeque<Bytes>) -> u64 {
    chunks.iter().map(|chunk| chunk.len() as u64).sum()
}

pub struct MeteredBody {
    source: BodySource,
    /// None while it is away.
    pipeline: Option<Pipeline>,
    away: Option<Away>,
    /// The next part waits for a thread for computation.
    turn: Option<NextTurn>,
    /// A chunk has been decoded in part: other tasks of the thread go on before the rest.
    yields: bool,
    /// The length of the chunk that is being decoded.
    held: u64,
    /// Chunks that wait to be sent.
    ready: VecDeque<Bytes>,
    is_event_stream: bool,
    client_format: ClientFormat,
    /// The last chunk ended with a complete event.
    at_event_boundary: bool,
    deadline: Instant,
    last_data: Instant,
    /// The provider had nothing when it was asked last.
    is_waiting: bool,
    began: Instant,
    /// For how long nobody asked for the next data although the provider was not waited for: the caller took nothing.
    held_up: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    is_finished: bool,
    /// Ends the body once the chunks before it have been sent.
    error: Option<BoxError>,
    /// The head announced a trailer with the cost.
    has_trailer: bool,
    trailers: Option<HeaderMap>,
    _call: Option<CallInProgress>,
}

impl MeteredBody {
    /// `headers`: what the caller receives.
    pub fn new(
        attempt: &Attempt<'_>,
        headers: &HeaderMap,
        content: ResponseContent,
        mut record: Record,
        cache: Option<CacheRecorder>,
    ) -> Self {
        let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        // A compressed stream is forwarded as it is.
        let is_event_stream =
            content_type.starts_with(b"text/event-stream") && !headers.contains_key(CONTENT_ENCODING);
        let deadline = record.deadline(attempt.target.timeout);
        let call = record.take_call();
        let (pipeline, source) = Pipeline::new(attempt, content, record, cache, is_event_stream);
        let now = Instant::now();
        let mut body = Self {
            source,
            pipeline: Some(pipeline),
            away: None,
            turn: None,
            yields: false,
            held: 0,
            ready: VecDeque::new(),
            is_event_stream,
            client_format: attempt.plan.directives.client_format,
            at_event_boundary: true,
            deadline: Instant::from_std(deadline),
            last_data: now,
            is_waiting: false,
            began: now,
            held_up: Duration::ZERO,
            timer: None,
            is_finished: false,
            error: None,
            has_trailer: headers.contains_key(TRAILER),
            trailers: None,
            _call: call,
        };
        // A response without a body ends with its head.
        if body.source.is_end() {
            body.finish();
        }
        body
    }

    fn process(&mut self, chunk: Bytes) {
        self.held = chunk.len() as u64;
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.feed(chunk, &mut self.ready);
        }
        self.after_part();
    }

    /// A chunk, or a part of one, has been processed.
    fn after_part(&mut self) {
        let Some(pipeline) = &self.pipeline else { return };
        if pipeline.is_decoding() {
            self.yields = true;
            return;
        }
        self.held = 0;
        if pipeline.has_failed() {
            // Nothing more can follow, so the provider need not send it.
            self.source = BodySource::Chunks(VecDeque::new());
        }
        if self.source.is_end() {
            self.finish();
        }
    }

    fn is_decoding(&self) -> bool {
        self.away.is_some() || self.pipeline.as_ref().is_some_and(Pipeline::is_decoding)
    }

    /// Goes on with a chunk that has been decoded in part: on this thread, unless it grows by more than ordinary ones.
    fn decode_on(&mut self) {
        if let Some(pipeline) = &mut self.pipeline
            && pipeline.is_ordinary()
        {
            pipeline.decode_part(&mut self.ready);
            return self.after_part();
        }
        let time_left = self.deadline.saturating_duration_since(Instant::now());
        self.turn = self.pipeline.as_ref().map(|pipeline| pipeline.turn(time_left));
    }

    /// It is the turn of the next part, or the wait for it is given up.
    fn begin_turn(&mut self, turn: Option<Turn>) {
        self.turn = None;
        // Waiting for a turn is not the provider's silence.
        self.last_data = Instant::now();
        match turn {
            Some(turn) => self.away = self.pipeline.take().map(|pipeline| pipeline.decode_elsewhere(turn)),
            None => self.stop_decoding(),
        }
    }

    /// There is no time to decode the rest. A caller of the provider's own bytes gets them all the same.
    fn stop_decoding(&mut self) {
        let Some(pipeline) = &mut self.pipeline else { return };
        if pipeline.is_translated() && Instant::now() >= self.deadline {
            let (code, message) = ("provider_timeout", TOO_LATE);
            self.error = self.fail(&StreamFailure { code, message, is_targets_fault: false });
            return;
        }
        pipeline.give_up_decoding(&mut self.ready);
        self.after_part();
    }

    /// The pipeline is back.
    fn take_back(&mut self, returned: Returned) {
        self.away = None;
        self.last_data = Instant::now();
        if let Ok((pipeline, out)) = returned {
            self.pipeline = Some(pipeline);
            self.ready.extend(out);
            self.after_part();
        } else {
            // Its record is closed.
            self.is_finished = true;
            self.held = 0;
            self.error = Some("the gateway failed to decode the response".into());
        }
    }

    /// The next step of a chunk that has been decoded in part.
    fn poll_decoding(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(turn) = &mut self.turn {
            let turn = ready!(turn.as_mut().poll(context));
            self.begin_turn(turn);
        } else if let Some(away) = &mut self.away {
            let returned = ready!(Pin::new(away).poll(context));
            self.take_back(returned);
        } else if Instant::now() >= self.deadline {
            self.stop_decoding();
        } else if std::mem::take(&mut self.yields) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        } else {
            self.decode_on();
        }
        Poll::Ready(())
    }

    /// The source has ended. The log row is written before the last bytes are sent.
    fn finish(&mut self) {
        self.is_finished = true;
        let Some(pipeline) = &mut self.pipeline else { return };
        pipeline.finish(&mut self.ready);
        if self.has_trailer {
            self.trailers = cost::trailers(pipeline.cost());
        }
    }

    /// The source has failed. The caller of an event stream gets an error event in its own format. Other bodies are
    /// aborted with the returned error, so that the client notices that they are incomplete.
    fn fail(&mut self, failure: &StreamFailure<'_>) -> Option<BoxError> {
        let StreamFailure { code, message, .. } = *failure;
        self.is_finished = true;
        self.held = 0;
        let error_event = self.pipeline.as_mut().and_then(|pipeline| pipeline.fail(failure));
        if !self.is_event_stream {
            return Some(message.to_owned().into());
        }
        if let Some(error_event) = error_event {
            self.ready.push_back(error_event);
            return None;
        }
        if !self.at_event_boundary {
            self.ready.push_back(Bytes::from_static(b"\n\n"));
        }
        self.ready.push_back(stream_error(self.client_format, code, message).into());
        None
    }

    /// The provider was asked. While the caller took nothing it was not, so it is silent only from the first time that it
    /// had nothing.
    fn note_asked(&mut self, has_data: bool) {
        let was_waiting = std::mem::replace(&mut self.is_waiting, !has_data);
        if was_waiting && !has_data {
            return;
        }
        let before = std::mem::replace(&mut self.last_data, Instant::now());
        if !was_waiting {
            self.held_up += self.last_data - before;
        }
    }

    /// The time of the call is up, and the caller has used most of it.
    fn is_too_late_by_caller(&self) -> bool {
        Instant::now() >= self.deadline && self.held_up * 2 > self.began.elapsed()
    }

    /// The time of the call is up because the caller did not take the response.
    fn abandon(&mut self) {
        self.is_finished = true;
        self.held = 0;
        self.pipeline = None;
        self.error = Some("the caller did not read the response in time".into());
    }

    /// Returns the timeout that has passed, if any. Otherwise the task is woken in time.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> Option<&'static str> {
        loop {
            let idle_deadline = self.last_data + IDLE_TIMEOUT;
            let (due, message) = if idle_deadline < self.deadline {
                (idle_deadline, "the provider sent no data within the idle timeout")
            } else {
                (self.deadline, TOO_LATE)
            };
            if Instant::now() >= due {
                return Some(message);
            }
            // The timer is not reset for each chunk. If it fires early, it is set again.
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            if timer.as_mut().poll(context).is_pending() {
                return None;
            }
            self.timer = None;
        }
    }
}

/// hyper aborts the connection on a body error. Yields once, so that buffered bytes (at least the head) are flushed.
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
            if let Some(chunk) = this.ready.pop_front() {
                this.at_event_boundary = chunk.ends_with(b"\n\n") || chunk.ends_with(b"\r\n\r\n");
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            if let Some(error) = this.error.take() {
                return Poll::Ready(Some(Err(error)));
            }
            if let Some(trailers) = this.trailers.take() {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            if this.is_finished {
                return Poll::Ready(None);
            }
            if this.is_decoding() {
                ready!(this.poll_decoding(context));
                if this.error.is_some() {
                    return flush_first(context);
                }
                continue;
            }
            let (code, message, is_targets_fault) = match this.source.poll(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    this.note_asked(true);
                    // Trailers belong to the provider's connection, and would end the body too early.
                    if let Ok(data) = frame.into_data() {
                        this.process(data);
                    }
                    continue;
                }
                Poll::Ready(None) => {
                    this.finish();
                    continue;
                }
                Poll::Ready(Some(Err(error))) => {
                    // The provider may have sent its head before it had read the body of the caller.
                    let is_targets_fault = !matches!(error, ConnectionError::RequestBody(_));
                    let message = format!("the provider's response ended early: {error}");
                    ("provider_error", message.into(), is_targets_fault)
                }
                Poll::Pending => {
                    this.note_asked(false);
                    let Some(message) = this.poll_timeout(context) else { return Poll::Pending };
                    if this.is_too_late_by_caller() {
                        this.abandon();
                        return flush_first(context);
                    }
                    let signal = timeout_signal(this.last_data.elapsed());
                    ("provider_timeout", Cow::Borrowed(message), signal == HealthSignal::Failure)
                }
            };
            this.error = this.fail(&StreamFailure { code, message: &message, is_targets_fault });
            if this.error.is_some() {
                return flush_first(context);
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_finished && self.ready.is_empty() && self.error.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_event_stream {
            return SizeHint::default();
        }
        let buffered = total_length(&self.ready) + self.held;
        match self.source.size_hint().exact() {
            _ if self.is_finished => SizeHint::with_exact(buffered),
            Some(rest) => SizeHint::with_exact(buffered + rest),
            None => SizeHint::default(),
        }
    }
}
