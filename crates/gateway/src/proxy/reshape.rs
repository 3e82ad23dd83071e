//! An answer in the form that the caller wants: a stream folded into one body, a body replayed as a stream, either of
//! them translated. What has to be collected is collected before anything is sent on, so that a failure in it is one
//! that the next target can make good. A stream that stays one is translated as it passes (`tee`).

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use gateway_core::llm::failure::Outcome;
use gateway_core::llm::fold::{self, FoldError, Format};
use gateway_core::llm::paths::Operation;
use gateway_core::llm::usage::Kind;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::call::Call;
use super::hold::{kind_of, next_piece};
use super::tee::Source;
use super::upstream::{Answered, Failed};

/// A larger answer is not collected.
const LARGEST: usize = 32 << 20;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// What an answer calls itself where the provider gave it no name.
pub struct Naming {
    pub name: String,
    /// Seconds since 1970.
    pub created: i64,
}

/// Is there nothing to be done to any answer?
pub fn is_idle(call: &Call) -> bool {
    call.translation.is_none() && !call.has_stream_header()
}

/// The answer in the form that the caller wants. One that stays as it is passes untouched.
pub async fn reshape(
    call: &Call,
    answered: Answered,
    naming: &Naming,
    ends_at: Instant,
) -> Result<Answered, Failed> {
    let kind = kind_of(&answered.head.headers);
    let is_stream = matches!(kind, Kind::Sse | Kind::EventStream);
    let status = answered.head.status;
    if !status.is_success() || kind == Kind::Opaque {
        return Ok(answered);
    }
    let format = call.format();
    if is_stream && call.wants_stream {
        let translator = call
            .translation
            .as_ref()
            .map(|made| Box::new(made.stream(&naming.name, naming.created, call.caching.is_some())));
        if translator.is_none() {
            return Ok(answered);
        }
        let Answered { mut head, source, .. } = answered;
        retype(&mut head.headers, EVENTS);
        return Ok(Answered { head, source, kind, translator, collected: None });
    }
    let must_change = call.translation.is_some() || is_stream != call.wants_stream;
    let Some(format) = format.filter(|_| must_change) else {
        return plain(call, answered, naming, ends_at).await;
    };
    let Answered { mut head, source, .. } = answered;
    let raw = collect(source, ends_at).await?;
    let body = match (is_stream, &call.translation) {
        (false, None) => raw.clone(),
        (false, Some(made)) => made.answer(&raw, &naming.name, naming.created).map_err(unreadable)?.into(),
        (true, None) => fold::fold(format, kind, &raw).map_err(unfolded)?.into(),
        (true, Some(made)) => {
            let mut out = Vec::new();
            let mut stream = made.stream(&naming.name, naming.created, true);
            stream.feed(&raw, &mut out);
            stream.finish(&mut out);
            fold::fold(format, Kind::Sse, &out).map_err(unfolded)?.into()
        }
    };
    let pieces = if call.wants_stream {
        retype(&mut head.headers, EVENTS);
        let events = fold::replay(format, &body, call.wants_usage).map_err(unfolded)?;
        events.into_iter().map(Bytes::from).collect()
    } else {
        retype(&mut head.headers, JSON);
        VecDeque::from([body.clone()])
    };
    Ok(Answered {
        head,
        source: Source::Pieces(pieces),
        kind,
        translator: None,
        collected: Some(Collected { raw, body }),
    })
}

/// A refusal of the provider's, in the caller's words.
pub async fn refusal(call: &Call, answered: Answered, ends_at: Instant) -> Answered {
    let Some(made) = &call.translation else { return answered };
    let Answered { mut head, source, kind, .. } = answered;
    let raw = collect(source, ends_at).await.unwrap_or_default();
    let body = Bytes::from(made.error(head.status, &raw));
    retype(&mut head.headers, JSON);
    let source = Source::whole(body.clone());
    Answered { head, source, kind, translator: None, collected: Some(Collected { raw, body }) }
}

/// What the provider sent, and what was made of it.
pub struct Collected {
    pub raw: Bytes,
    /// One body in the caller's format.
    pub body: Bytes,
}

/// An answer whose form is right already. Embeddings and lists of models have no streams, but may be translated.
async fn plain(
    call: &Call,
    answered: Answered,
    naming: &Naming,
    ends_at: Instant,
) -> Result<Answered, Failed> {
    let Some(made) = &call.translation else { return Ok(answered) };
    let Answered { mut head, source, kind, .. } = answered;
    let raw = collect(source, ends_at).await?;
    let body = Bytes::from(made.answer(&raw, &naming.name, naming.created).map_err(unreadable)?);
    retype(&mut head.headers, JSON);
    let source = Source::whole(body.clone());
    Ok(Answered { head, source, kind, translator: None, collected: Some(Collected { raw, body }) })
}

async fn collect(source: Source, ends_at: Instant) -> Result<Bytes, Failed> {
    let (pieces, mut rest) = match source {
        Source::Pieces(pieces) => (pieces, None),
        Source::Begun(pieces, rest) => (pieces, Some(rest)),
        Source::Upstream(rest) => (VecDeque::new(), Some(rest)),
    };
    let mut whole = BytesMut::new();
    for piece in &pieces {
        whole.extend_from_slice(piece);
    }
    while let Some(rest) = &mut rest
        && let Some(piece) = next_piece(rest, ends_at).await?
    {
        whole.extend_from_slice(&piece);
        if whole.len() > LARGEST {
            return Err(Failed::of(Outcome::Garbage, "its answer is too large to be collected"));
        }
    }
    Ok(whole.freeze())
}

fn retype(headers: &mut HeaderMap, content_type: HeaderValue) {
    headers.insert(CONTENT_TYPE, content_type);
    headers.remove(CONTENT_LENGTH);
}

fn unreadable(error: impl std::fmt::Display) -> Failed {
    Failed::of(Outcome::Garbage, error.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "used as a map_err function")]
fn unfolded(error: FoldError) -> Failed {
    let outcome = match error {
        FoldError::Incomplete => Outcome::Reset,
        FoldError::InBand(_) => Outcome::StreamError,
        FoldError::NotUnderstood(_) | FoldError::TooLarge => Outcome::Garbage,
    };
    Failed::of(outcome, error.to_string())
}

impl Call {
    /// The format of answers that come from no target.
    pub fn caller_format(&self) -> Option<Format> {
        if !self.caller_is_known {
            return Format::of(self.hops[0].target.shape, self.operation);
        }
        Format::of(self.caller.native(), self.operation).map(|_| match self.operation {
            Operation::Completions => Format::Completions,
            _ => self.caller.into(),
        })
    }

    /// The format of the answer as the caller sees it; None where answers are never streams.
    pub fn format(&self) -> Option<Format> {
        match &self.translation {
            Some(_) => Format::of(self.caller.native(), self.operation).map(|_| self.caller.into()),
            None => Format::of(self.target().shape, self.operation),
        }
    }
}
