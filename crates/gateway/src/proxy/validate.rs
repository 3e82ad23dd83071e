//! Buffers the start of a response until it is known to be valid. An error inside a 200, a stream that ends before any
//! content or a truncated body can then still be replaced by the response of another target. Only done while there is
//! something else to try; otherwise every byte is forwarded at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway_core::llm::BodyFraming;
use gateway_core::llm::failure::{AttemptOutcome, Refusal};
use gateway_core::llm::usage::{Meter, MeterReading};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use tokio::time::Instant;

use super::attempt::Attempt;
use super::content_decoding::{ContentDecoder, DecodeError, PART_BYTES};
use super::response_body::BodySource;
use super::response_format::ResponseContent;
use super::upstream::{AttemptError, UpstreamResponse};
use crate::memory::{HeldBuffer, MemoryAccount};
use crate::outbound::pool::UpstreamBody;

/// A response without new data for this time has failed.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// A stream without content in this many bytes is forwarded.
const MAX_STREAM_PREFIX: usize = 64 << 10;
/// A body larger than this is forwarded before its end is known.
const MAX_BODY_PREFIX: usize = 1 << 20;
const MAX_DECODED_PREFIX: u64 = 16 << 20;

/// The refusals after which another target is tried.
#[derive(Clone, Copy)]
pub struct WatchedRefusals {
    pub context: bool,
    pub content_filter: bool,
}

impl WatchedRefusals {
    fn is_any(self) -> bool {
        self.context || self.content_filter
    }

    /// The error of a response whose start says that the provider refused the input. `is_whole`: nothing follows.
    fn check(self, reading: &MeterReading, is_whole: bool) -> Result<(), AttemptError> {
        let by_error = || Refusal::of_error(reading.in_band_error.as_deref()?.as_bytes());
        let has_output = reading.output_chars > 0 && !is_whole;
        let by_finish = || Refusal::of_finish(reading.finish_reason.as_deref().filter(|_| !has_output)?);
        if !self.is_any() {
            return Ok(());
        }
        let (refusal, message) = match by_error().or_else(by_finish) {
            Some(refusal @ Refusal::Context) if self.context => {
                (refusal, "the input is too long for the model")
            }
            Some(refusal @ Refusal::ContentFilter) if self.content_filter => {
                (refusal, "the provider's content filter refused the input")
            }
            _ => return Ok(()),
        };
        let error = AttemptError::new(AttemptOutcome::Refused(refusal), message);
        Err(AttemptError { usage: reading.usage.clone().map(Box::new), ..error })
    }
}

/// Returns the response once its start is known to be valid. Without memory for the start it is forwarded at once.
pub async fn buffer_until_valid(
    attempt: &Attempt<'_>,
    response: UpstreamResponse,
    deadline: Instant,
    memory: &Arc<MemoryAccount>,
    watched: WatchedRefusals,
) -> Result<UpstreamResponse, AttemptError> {
    let UpstreamResponse { head, framing, content } = response;
    let (mut read, mut body, codings) = match content {
        ResponseContent::Streaming { source: BodySource::Upstream(body), codings, .. } => {
            (VecDeque::new(), body, codings)
        }
        ResponseContent::Streaming { source: BodySource::Prefixed(read, body), codings, .. } => {
            (read, body, codings)
        }
        content => return Ok(UpstreamResponse { head, framing, content }),
    };
    let format = attempt.provider().format;
    let mut meter =
        if watched.is_any() { Meter::new(format, framing) } else { Meter::for_validation(format, framing) };
    let mut decoder = codings.decoder(MAX_DECODED_PREFIX);
    let mut buffered = HeldBuffer::new(memory.open());
    let max_prefix = match framing {
        BodyFraming::Sse | BodyFraming::EventStream => MAX_STREAM_PREFIX,
        BodyFraming::Json => MAX_BODY_PREFIX,
        BodyFraming::Opaque => 0,
    };
    while buffered.len() < max_prefix {
        let chunk = match read.pop_front() {
            Some(chunk) => Some(chunk),
            None => next_chunk(&mut body, deadline).await?,
        };
        let Some(chunk) = chunk else {
            let reading = meter.finish();
            watched.check(&reading, framing == BodyFraming::Json)?;
            check_end(reading, framing, buffered.len(), attempt.wire_format().is_some())?;
            let response = UpstreamResponse::new(head, BodySource::whole(buffered.finish()));
            return Ok(UpstreamResponse { framing, ..response });
        };
        let metered = match &mut decoder {
            None => {
                meter.feed(&chunk);
                Ok(true)
            }
            Some(decoder) => meter_encoded(decoder, &chunk, &mut meter).await,
        };
        if buffered.append(&chunk).is_err() {
            read.push_front(chunk);
            break;
        }
        if metered.is_err() && attempt.translation.is_some() {
            let message = "upstream response cannot be decoded";
            return Err(AttemptError::new(AttemptOutcome::InvalidResponse, message));
        }
        // What was decoded of the chunk may be an error, even if the rest of it was not.
        if framing != BodyFraming::Json && has_content(&meter, watched)? {
            break;
        }
        if metered != Ok(true) {
            // Whether the response is valid cannot be known, or takes too much to find out. The caller receives it as it
            // is.
            break;
        }
    }
    if !buffered.is_empty() {
        read.push_front(buffered.finish());
    }
    Ok(UpstreamResponse { framing, ..UpstreamResponse::new(head, BodySource::Prefixed(read, body)) })
}

/// Feeds the meter with what is decoded of a chunk, part by part. Returns false, before its end, if the response grows by
/// more than ordinary ones.
async fn meter_encoded(
    decoder: &mut ContentDecoder,
    chunk: &[u8],
    meter: &mut Meter,
) -> Result<bool, DecodeError> {
    decoder.begin(chunk.len());
    let mut rest = chunk;
    while !decoder.decode_some(&mut rest, PART_BYTES, &mut |piece| meter.feed(piece))? {
        if !decoder.is_ordinary() {
            return Ok(false);
        }
        // Other requests of the thread go on in between.
        tokio::task::yield_now().await;
    }
    Ok(true)
}

/// The next chunk of a response body; None at the end.
pub async fn next_chunk(body: &mut UpstreamBody, deadline: Instant) -> Result<Option<Bytes>, AttemptError> {
    let waiting_since = Instant::now();
    loop {
        if body.is_end_stream() {
            return Ok(None);
        }
        let due = deadline.min(Instant::now() + IDLE_TIMEOUT);
        match tokio::time::timeout_at(due, body.frame()).await {
            Err(_) => {
                let silence = Some(waiting_since.elapsed());
                return Err(AttemptError { silence, ..AttemptError::timeout("response body timed out") });
            }
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => {
                let message = format!("response ended early: {error}");
                return Err(AttemptError::new(AttemptOutcome::Reset, message));
            }
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data()
                    && !data.is_empty()
                {
                    return Ok(Some(data));
                }
            }
        }
    }
}

fn has_content(meter: &Meter, watched: WatchedRefusals) -> Result<bool, AttemptError> {
    let reading = meter.snapshot();
    watched.check(&reading, false)?;
    match reading.in_band_error {
        Some(error) => Err(AttemptError::new(AttemptOutcome::StreamError, error)),
        None => Ok(reading.output_chars > 0 || reading.finish_reason.is_some() || reading.saw_end),
    }
}

/// Checks a response that ended within the prefix. `is_known`: streams of its format have content and an end.
fn check_end(
    reading: MeterReading,
    framing: BodyFraming,
    length: usize,
    is_known: bool,
) -> Result<(), AttemptError> {
    if let Some(error) = reading.in_band_error {
        return Err(AttemptError::new(AttemptOutcome::StreamError, error));
    }
    let is_empty = reading.output_chars == 0 && reading.finish_reason.is_none() && !reading.saw_end;
    let message = match framing {
        BodyFraming::Sse | BodyFraming::EventStream if length == 0 || (is_known && is_empty) => {
            "upstream stream ended before any content"
        }
        BodyFraming::Json if length > 0 && !reading.saw_end => "upstream returned truncated JSON",
        _ => return Ok(()),
    };
    Err(AttemptError::new(AttemptOutcome::InvalidResponse, message))
}
