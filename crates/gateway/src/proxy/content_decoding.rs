//! Decoding of compressed responses (`Content-Encoding`). The caller receives the provider's bytes unchanged; the
//! decoder gives the gateway a readable copy of them, chunk by chunk and within bounds.

mod coder;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use coder::Coder;

/// A response with more codings than this is not decoded.
const MAX_CODINGS: usize = 2;
/// A body may grow by this factor when it is decoded. Real answers stay below 60.
const MAX_RATIO: u64 = 200;
/// So much may be decoded whatever the factor is: small texts can be very repetitive.
const FREE_BYTES: u64 = 1 << 20;
const PIECE_BYTES: usize = 16 << 10;

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

    /// Decodes a whole body. A body without codings is returned as it is.
    pub fn decode(self, body: &Bytes, max_bytes: u64) -> Result<Bytes, DecodeError> {
        let Some(mut decoder) = self.decoder(max_bytes) else { return Ok(body.clone()) };
        let mut decoded = Vec::new();
        decoder.feed(body, &mut |piece| decoded.extend_from_slice(piece))?;
        decoder.finish()?;
        Ok(decoded.into())
    }

    /// Decodes as much of the start of a body as possible.
    pub fn decode_prefix(self, prefix: &Bytes, max_bytes: u64) -> Bytes {
        let Some(mut decoder) = self.decoder(max_bytes) else { return prefix.clone() };
        let mut decoded = Vec::new();
        let _ = decoder.feed(prefix, &mut |piece| decoded.extend_from_slice(piece));
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
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.volume.received += chunk.len() as u64;
        let result = decode(&mut self.layers, &mut self.volume, chunk, sink);
        self.failure = result.err();
        result
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
}

struct Layer {
    coder: Coder,
    piece: Box<[u8]>,
}

impl Layer {
    fn new(coding: Coding) -> Self {
        Self { coder: Coder::new(coding), piece: vec![0; PIECE_BYTES].into() }
    }
}

fn decode(
    layers: &mut [Layer],
    volume: &mut Volume,
    mut input: &[u8],
    sink: &mut dyn FnMut(&[u8]),
) -> Result<(), DecodeError> {
    let Some((layer, inner)) = layers.split_first_mut() else {
        sink(input);
        return Ok(());
    };
    if input.is_empty() {
        return Ok(());
    }
    loop {
        let step = layer.coder.step(input, &mut layer.piece)?;
        input = &input[step.consumed..];
        if step.written > 0 {
            volume.count(step.written)?;
            decode(inner, volume, &layer.piece[..step.written], sink)?;
        }
        let may_have_more = step.written == layer.piece.len() || !input.is_empty();
        if !may_have_more {
            return Ok(());
        }
        if step.consumed == 0 && step.written == 0 {
            return if input.is_empty() { Ok(()) } else { Err(DecodeError::Corrupt) };
        }
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
