//! Holding back the beginning of an answer until it is known to be one: an error inside a 200, a stream that breaks
//! before its first word or a body that never comes can then still be answered by the next target. Done only while
//! there is something else to try; otherwise every byte passes at once.

use std::collections::VecDeque;

use bytes::Bytes;
use gateway_core::llm::failure::AttemptOutcome;
use gateway_core::llm::usage::Meter;
use gateway_core::llm::{BodyFraming, ProviderFormat};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use tokio::time::Instant;

use super::pool::Answer;
use super::response_body::{SILENCE, Source};
use super::upstream::{AttemptError, UpstreamResponse};

/// A stream that has said nothing of meaning by then is passed on.
const STREAM_BYTES: usize = 64 << 10;
/// A plain answer larger than this is passed on while it comes.
const BODY_BYTES: usize = 1 << 20;

/// How the answer's body is framed, as far as it can be looked into.
pub fn body_framing(headers: &HeaderMap) -> BodyFraming {
    if headers.contains_key(CONTENT_ENCODING) {
        return BodyFraming::Opaque;
    }
    BodyFraming::from_content_type(
        headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default(),
    )
}

/// The answer, once its beginning is known to be good. `is_known`: a stream of this kind has words and an end.
pub async fn buffer_until_valid(
    answered: UpstreamResponse,
    format: ProviderFormat,
    is_known: bool,
    ends_at: Instant,
) -> Result<UpstreamResponse, AttemptError> {
    let framing = body_framing(&answered.head.headers);
    let UpstreamResponse { head, source, .. } = answered;
    let Source::Upstream(mut incoming) = source else { return Ok(UpstreamResponse::new(head, source)) };
    let mut meter = Meter::for_validation(format, framing);
    let mut held = VecDeque::new();
    let enough = match framing {
        BodyFraming::Sse | BodyFraming::EventStream => STREAM_BYTES,
        BodyFraming::Json => BODY_BYTES,
        BodyFraming::Opaque => 0,
    };
    let mut length = 0;
    while length < enough {
        let Some(piece) = next_piece(&mut incoming, ends_at).await? else {
            check_end(&mut meter, framing, length, is_known)?;
            return Ok(UpstreamResponse::new(head, Source::Pieces(held)));
        };
        meter.feed(&piece);
        length += piece.len();
        held.push_back(piece);
        if framing != BodyFraming::Json && begins_well(&meter)? {
            break;
        }
    }
    Ok(UpstreamResponse::new(head, Source::Begun(held, incoming)))
}

/// The next piece; None at the end.
pub async fn next_piece(incoming: &mut Answer, ends_at: Instant) -> Result<Option<Bytes>, AttemptError> {
    loop {
        if incoming.is_end_stream() {
            return Ok(None);
        }
        let due = ends_at.min(Instant::now() + SILENCE);
        match tokio::time::timeout_at(due, incoming.frame()).await {
            Err(_) => return Err(AttemptError::timeout("its answer did not come in time")),
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => {
                return Err(AttemptError::of(
                    AttemptOutcome::Reset,
                    format!("its answer broke off: {error}"),
                ));
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

/// Has the stream said something that can be passed on?
fn begins_well(meter: &Meter) -> Result<bool, AttemptError> {
    let metered = meter.snapshot();
    match metered.in_band_error {
        Some(error) => Err(AttemptError::of(AttemptOutcome::StreamError, error)),
        None => Ok(metered.output_chars > 0 || metered.finish_reason.is_some() || metered.saw_end),
    }
}

fn check_end(
    meter: &mut Meter,
    framing: BodyFraming,
    length: usize,
    is_known: bool,
) -> Result<(), AttemptError> {
    let metered = meter.finish();
    if let Some(error) = metered.in_band_error {
        return Err(AttemptError::of(AttemptOutcome::StreamError, error));
    }
    let says_nothing = metered.output_chars == 0 && metered.finish_reason.is_none() && !metered.saw_end;
    match framing {
        BodyFraming::Sse | BodyFraming::EventStream if length == 0 || (is_known && says_nothing) => {
            Err(AttemptError::of(AttemptOutcome::InvalidResponse, "its stream ended before it began"))
        }
        BodyFraming::Json if length > 0 && !metered.saw_end => {
            Err(AttemptError::of(AttemptOutcome::InvalidResponse, "its answer is no complete JSON"))
        }
        _ => Ok(()),
    }
}
