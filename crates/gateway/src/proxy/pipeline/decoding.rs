//! The first stage of the pipeline of a compressed response: the others read what is decoded of it, part by part.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use gateway_store::fair_slots::Slot;

use super::{Pipeline, TranslateStage};
use crate::compute::ComputeError;
use crate::proxy::content_decoding::{ContentCodings, ContentDecoder, PART_BYTES};
use crate::services::Services;

/// More of a response is not decoded, and not metered.
const MAX_DECODED_BYTES: u64 = 256 << 20;
/// How long a part waits for its turn in `compute`. Then the rest of the response is not decoded.
const MAX_TURN_WAIT: Duration = Duration::from_secs(10);

/// Why the rest of a response is not decoded, as the caller of a translated stream is told.
pub(super) struct Reason {
    pub code: &'static str,
    message: &'static str,
}

const UNREADABLE: Reason =
    Reason { code: "provider_error", message: "the provider's stream cannot be decoded" };
pub(super) const NO_TIME: Reason =
    Reason { code: "overloaded", message: "the gateway has no time to decode the provider's stream" };

pub(super) enum Decoding {
    /// The response is not compressed.
    Plain,
    Encoded(Box<Encoded>),
    /// It cannot be decoded, or no stage reads more of it.
    Ended,
}

pub(super) struct Encoded {
    decoder: ContentDecoder,
    /// A chunk that is being decoded, and what of it is left.
    chunk: Option<(Bytes, Bytes)>,
}

/// The turn of an organization, in which one part is decoded.
pub struct Turn {
    services: Arc<Services>,
    slot: Slot,
}

pub type NextTurn = Pin<Box<dyn Future<Output = Option<Turn>> + Send>>;

/// The pipeline after a part, and what the caller gets of it. An error if the pipeline is lost, and its record closed.
pub type Returned = Result<(Pipeline, VecDeque<Bytes>), ComputeError>;

/// A pipeline in the hands of a thread for computation.
pub struct Away {
    /// None once it is back.
    decoding: Option<Pin<Box<dyn Future<Output = Returned> + Send>>>,
    services: Arc<Services>,
}

impl Future for Away {
    type Output = Returned;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Returned> {
        let Some(decoding) = &mut self.decoding else { return Poll::Ready(Err(ComputeError::Failed)) };
        let Poll::Ready(returned) = decoding.as_mut().poll(context) else { return Poll::Pending };
        self.decoding = None;
        Poll::Ready(returned)
    }
}

/// The caller is gone, so the record is closed. Its locks are those of requests: no thread of low priority may hold them.
impl Drop for Away {
    fn drop(&mut self) {
        if let Some(decoding) = self.decoding.take() {
            self.services.tasks.spawn(async move { drop(decoding.await) });
        }
    }
}

impl Decoding {
    pub fn of(codings: ContentCodings) -> Self {
        let encoded = |decoder| Self::Encoded(Box::new(Encoded { decoder, chunk: None }));
        codings.decoder(MAX_DECODED_BYTES).map_or(Self::Plain, encoded)
    }
}

impl Encoded {
    /// The next chunk has arrived.
    pub fn begin(&mut self, chunk: Bytes) {
        self.decoder.begin(chunk.len());
        self.chunk = Some((chunk.clone(), chunk));
    }
}

impl Pipeline {
    /// A part of a chunk has not been decoded yet.
    pub fn is_decoding(&self) -> bool {
        matches!(&self.decoding, Decoding::Encoded(encoded) if encoded.chunk.is_some())
    }

    /// The response grows as ordinary ones do when it is decoded, so that the thread of the request may do it.
    pub fn is_ordinary(&self) -> bool {
        match &self.decoding {
            Decoding::Encoded(encoded) => encoded.decoder.is_ordinary(),
            Decoding::Plain | Decoding::Ended => true,
        }
    }

    /// Decodes a part of the chunk. The stages read it; without a translation the caller receives the chunk itself, once
    /// all of it has been read that is wanted.
    pub fn decode_part(&mut self, out: &mut VecDeque<Bytes>) {
        let is_translated = self.is_translated();
        let Self { decoding: Decoding::Encoded(encoded), meter, translate, cache, .. } = self else { return };
        let Encoded { decoder, chunk } = &mut **encoded;
        let Some((whole, left)) = chunk else { return };
        let whole = whole.clone();
        let (mut rest, mut translated) = (&left[..], Vec::new());
        let decoded = decoder.decode_some(&mut rest, PART_BYTES, &mut |piece| {
            meter.feed(piece);
            if is_translated {
                translated.extend_from_slice(&translate.feed(Bytes::copy_from_slice(piece)));
            } else if let Some(cache) = cache {
                cache.feed(piece);
            }
        });
        let read = left.len() - rest.len();
        left.advance(read);
        if decoded == Ok(true) {
            *chunk = None;
        }
        if is_translated {
            self.forward(translated.into(), out);
        }
        let is_wanted = is_translated || self.cache.is_some() || self.meter.reads_on();
        match decoded {
            Err(_) => self.stop_decoding(&UNREADABLE, out),
            Ok(_) if !is_wanted => self.decoding = Decoding::Ended,
            Ok(true) => {}
            Ok(false) => return,
        }
        if !is_translated {
            out.push_back(whole);
        }
    }

    /// Waits until a thread for computation is free for the organization. None if that takes too long.
    pub fn turn(&self, time_left: Duration) -> NextTurn {
        let owner = self.meter.record.as_ref().map(|record| record.owner());
        Box::pin(async move {
            let (services, org) = owner?;
            let slot = services.compute.turn(org, MAX_TURN_WAIT.min(time_left)).await.ok()?;
            Some(Turn { services, slot })
        })
    }

    /// Decodes a part as computation of the organization: what grows by so much must not take the time of the threads
    /// that serve requests. It takes about a millisecond, and no time limits it, so that the pipeline comes back.
    pub fn decode_elsewhere(self, turn: Turn) -> Away {
        let Turn { services, slot } = turn;
        let pool = Arc::clone(&services);
        let decoding = async move {
            let work = move || {
                let (mut pipeline, mut out) = (self, VecDeque::new());
                pipeline.decode_part(&mut out);
                (pipeline, out)
            };
            pool.compute.run_in_turn(slot, work).await
        };
        Away { decoding: Some(Box::pin(decoding)), services }
    }

    /// There is no time to decode the rest of the response. The caller gets what is left of the chunk.
    pub fn give_up_decoding(&mut self, out: &mut VecDeque<Bytes>) {
        let chunk = match &mut self.decoding {
            Decoding::Encoded(encoded) => encoded.chunk.take(),
            Decoding::Plain | Decoding::Ended => None,
        };
        // A stream that has failed before keeps its failure.
        self.gave_up = !self.has_failed();
        self.stop_decoding(&NO_TIME, out);
        if !self.is_translated() {
            out.extend(chunk.map(|(whole, _)| whole));
        }
    }

    /// The rest of the response is not read.
    fn stop_decoding(&mut self, reason: &Reason, out: &mut VecDeque<Bytes>) {
        self.decoding = Decoding::Ended;
        self.meter.stop();
        let mut failure = Vec::new();
        if let TranslateStage::Stream(translator) = &mut self.translate {
            translator.fail(reason.code, reason.message, &mut failure);
        }
        if !failure.is_empty() {
            self.forward(failure.into(), out);
        }
        if let Some(cache) = self.cache.take() {
            cache.abandon();
        }
    }

    /// The caller receives a translation, and not the provider's bytes.
    pub fn is_translated(&self) -> bool {
        !matches!(self.translate, TranslateStage::Passthrough)
    }
}
