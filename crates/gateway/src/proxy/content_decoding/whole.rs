//! A whole body that is decoded into memory of its organization.

use bytes::{Buf as _, Bytes};

use super::{ContentDecoder, DecodeError};
use crate::memory::{HeldBuffer, MemoryExhausted, Reservation};

pub struct WholeBody {
    decoder: ContentDecoder,
    /// What is not decoded yet.
    rest: Bytes,
    text: HeldBuffer,
}

/// Why there is no text.
#[derive(Debug, Clone, Copy)]
pub enum Undecodable {
    Encoding(DecodeError),
    Memory(MemoryExhausted),
}

impl From<DecodeError> for Undecodable {
    fn from(error: DecodeError) -> Self {
        Self::Encoding(error)
    }
}

impl From<MemoryExhausted> for Undecodable {
    fn from(error: MemoryExhausted) -> Self {
        Self::Memory(error)
    }
}

impl WholeBody {
    pub fn new(mut decoder: ContentDecoder, body: Bytes, memory: Reservation) -> Self {
        decoder.begin(body.len());
        Self { decoder, rest: body, text: HeldBuffer::new(memory) }
    }

    /// Decodes a part: about so many bytes are read or written. Returns whether nothing more comes.
    pub fn decode_some(&mut self, max_bytes: usize) -> Result<bool, Undecodable> {
        let Self { decoder, rest, text } = self;
        let (mut input, mut appended) = (&rest[..], Ok(()));
        let decoded = decoder.decode_some(&mut input, max_bytes, &mut |piece| {
            if appended.is_ok() {
                appended = text.append(piece);
            }
        });
        let read = rest.len() - input.len();
        rest.advance(read);
        appended?;
        Ok(decoded?)
    }

    /// The text, if the body was complete.
    pub fn finish(self) -> Result<Bytes, Undecodable> {
        self.decoder.finish()?;
        Ok(self.text.finish())
    }
}
