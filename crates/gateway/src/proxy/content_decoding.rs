//! Decoding of compressed responses (`Content-Encoding`). The caller receives the provider's bytes unchanged; the
//! decoder gives the gateway a readable copy of them, part by part and within bounds.
//!
//! A few bytes can become very many, so a chunk is decoded in parts of about the size of a chunk: other requests of the
//! thread go on in between, and what is made of a part is used before the next one. Bodies that grow by more than
//! ordinary ones do are decoded in `compute`, in the turn of their organization; only answers to calls of the gateway
//! itself (`TextBody`, some megabytes at most) are decoded by the task that reads them, part by part.

mod coder;
#[cfg(test)]
mod tests;
mod text_body;
mod whole;

use std::ops::Range;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use coder::Coder;
pub use text_body::TextBody;
pub use whole::{Undecodable, WholeBody};

/// How much of a chunk is decoded at a time: as much as one read of a response that is not compressed, or twice.
pub const PART_BYTES: usize = 64 << 10;
/// How much of an encoded prefix is read: blocks of zstd have up to 128 KiB.
const PREFIX_BYTES: usize = 256 << 10;
/// A response with more codings than this is not decoded.
const MAX_CODINGS: usize = 2;
/// A body may grow by this factor when it is decoded. Real answers stay below 60.
const MAX_RATIO: u64 = 200;
/// So much may be decoded whatever the factor is: small texts can be very repetitive.
const FREE_BYTES: u64 = 1 << 20;
const PIECE_BYTES: usize = 16 << 10;
/// A step costs as much as this many bytes at least: a short member of a body needs a decoder of its own.
const STEP_BYTES: usize = 256;
/// What grows by less than this factor, or is not larger than this, is decoded by the thread of its request. Few answers
/// are not.
const ORDINARY_RATIO: u64 = 32;
const ORDINARY_BYTES: u64 = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// The codings of a body, in the order in which they were applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContentCodings([Option<Coding>; MAX_CODINGS]);

impl ContentCodings {
    /// The codings that the headers declare. None if one of them is unknown, or if there are too many.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut codings = Self::default();
        let mut free = codings.0.iter_mut();
        for value in headers.get_all(CONTENT_ENCODING) {
            for name in value.to_str().ok()?.split(',') {
                let coding = match &*name.trim().to_ascii_lowercase() {
                    "" | "identity" => continue,
                    "gzip" | "x-gzip" => Coding::Gzip,
                    "deflate" => Coding::Deflate,
                    "br" => Coding::Brotli,
                    "zstd" => Coding::Zstd,
                    _ => return None,
                };
                *free.next()? = Some(coding);
            }
        }
        Some(codings)
    }

    /// The body is not encoded.
    pub fn is_identity(self) -> bool {
        self == Self::default()
    }

    /// A decoder that stops after `max_bytes` of decoded text. None if the body is not encoded.
    pub fn decoder(self, max_bytes: u64) -> Option<ContentDecoder> {
        if self.is_identity() {
            return None;
        }
        // The coding that was applied last is removed first.
        let layers = self.0.into_iter().flatten().rev().map(Layer::new).collect();
        let volume = Volume { received: 0, decoded: 0, max_bytes };
        Some(ContentDecoder { layers, volume, failure: None })
    }

    /// Decodes as much of the start of a body as possible, at once and beside the memory budget: for short texts. What
    /// follows after `PREFIX_BYTES` of an encoded body is left out.
    pub fn decode_prefix(self, prefix: &Bytes, max_bytes: u64) -> Bytes {
        let Some(mut decoder) = self.decoder(max_bytes) else { return prefix.clone() };
        let mut decoded = Vec::new();
        let start = &prefix[..prefix.len().min(PREFIX_BYTES)];
        let _ = decoder.feed(start, &mut |piece| decoded.extend_from_slice(piece));
        decoded.into()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the body does not have the encoding that its head declares")]
    Corrupt,
    #[error("the decoded body is too large")]
    TooLarge,
    #[error("the encoded body ends early")]
    Truncated,
}

/// Decodes a body while it arrives. What can be decoded of a chunk is passed on with that chunk, so that events are
/// seen when they are sent.
pub struct ContentDecoder {
    layers: Vec<Layer>,
    volume: Volume,
    failure: Option<DecodeError>,
}

impl ContentDecoder {
    /// Decodes a chunk; `sink` receives the text in pieces. After an error nothing more is decoded.
    pub fn feed(&mut self, chunk: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<(), DecodeError> {
        self.begin(chunk.len());
        let mut rest = chunk;
        self.decode_some(&mut rest, usize::MAX, sink).map(|_| ())
    }

    /// A chunk of this length begins. The one before was decoded.
    pub fn begin(&mut self, length: usize) {
        self.volume.received += length as u64;
    }

    /// Decodes what is left of a chunk that has begun, until about so many bytes have been read or written by the layers
    /// together. Returns whether nothing more comes of the chunk.
    pub fn decode_some(
        &mut self,
        rest: &mut &[u8],
        max_bytes: usize,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, DecodeError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let result = self.advance(rest, max_bytes, sink);
        self.failure = result.err();
        result
    }

    /// The body has not grown by more than ordinary ones do.
    pub fn is_ordinary(&self) -> bool {
        let Volume { received, decoded, .. } = self.volume;
        decoded <= ORDINARY_BYTES.max(received.saturating_mul(ORDINARY_RATIO))
    }

    /// Checks that the body was complete. A body without any bytes is.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.failure {
            Some(failure) => Err(failure),
            None if self.volume.received == 0 || self.layers.iter().all(|layer| layer.coder.is_at_end()) => {
                Ok(())
            }
            None => Err(DecodeError::Truncated),
        }
    }

    fn advance(
        &mut self,
        rest: &mut &[u8],
        max_bytes: usize,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, DecodeError> {
        let mut done = 0_usize;
        while done < max_bytes {
            // The innermost layer that can go on, so that no layer writes over what the next one has not read.
            let can_go_on = |index: &usize| {
                let unread = match index.checked_sub(1) {
                    None => rest.len(),
                    Some(outer) => self.layers[outer].unread.len(),
                };
                unread > 0 || self.layers[*index].has_more
            };
            let Some(index) = (0..self.layers.len()).rev().find(can_go_on) else { return Ok(true) };
            let (outer, inner) = self.layers.split_at_mut(index);
            let mut outer = outer.last_mut();
            let Some((layer, deeper)) = inner.split_first_mut() else { return Ok(true) };
            let input: &[u8] = match &outer {
                None => rest,
                Some(outer) => &outer.piece[outer.unread.clone()],
            };
            let input = &input[..input.len().min(PIECE_BYTES)];
            let step = layer.coder.step(input, &mut layer.piece)?;
            done = done.saturating_add(step.consumed.max(step.written).max(STEP_BYTES));
            if step.consumed == 0 && step.written == 0 && !input.is_empty() {
                return Err(DecodeError::Corrupt);
            }
            match &mut outer {
                None => *rest = &rest[step.consumed..],
                Some(outer) => outer.unread.start += step.consumed,
            }
            layer.has_more = step.written == layer.piece.len();
            if step.written == 0 {
                continue;
            }
            self.volume.count(step.written)?;
            if deeper.is_empty() {
                sink(&layer.piece[..step.written]);
            } else {
                layer.unread = 0..step.written;
            }
        }
        Ok(false)
    }
}

struct Layer {
    coder: Coder,
    piece: Box<[u8]>,
    /// What of the piece the next layer has not read.
    unread: Range<usize>,
    /// The coder has filled the piece, so it may have more without more input.
    has_more: bool,
}

impl Layer {
    fn new(coding: Coding) -> Self {
        let piece = vec![0; PIECE_BYTES].into();
        Self { coder: Coder::new(coding), piece, unread: 0..0, has_more: false }
    }
}

/// How much was received and decoded. A few bytes can decode to gigabytes.
struct Volume {
    received: u64,
    /// The output of all layers.
    decoded: u64,
    max_bytes: u64,
}

impl Volume {
    fn count(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.decoded += bytes as u64;
        let by_ratio = FREE_BYTES.max(self.received.saturating_mul(MAX_RATIO));
        if self.decoded > by_ratio.min(self.max_bytes) { Err(DecodeError::TooLarge) } else { Ok(()) }
    }
}
