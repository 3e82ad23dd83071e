//! What has been received of the caller's body. Its memory is reserved as it arrives.

use bytes::Bytes;

use crate::memory::{HeldBuffer, MemoryExhausted, Reservation, hold};

/// Smaller chunks are merged, because each one has a cost of its own.
const MIN_CHUNK: usize = 16 << 10;
/// Merged chunks have this size.
const MERGED_CHUNK: usize = 64 << 10;
/// A smaller body is copied: a slice would keep hyper's whole read buffer alive while the response streams.
const SMALL_BODY: usize = 8 << 10;

pub struct Received {
    chunks: Vec<Bytes>,
    /// For `chunks`.
    memory: Reservation,
    /// What comes after `chunks`.
    tail: HeldBuffer,
    /// All of it is in `tail`.
    is_contiguous: bool,
    length: usize,
}

impl Received {
    pub fn new(memory: Reservation) -> Self {
        let tail = HeldBuffer::new(memory.empty_sibling());
        Self { chunks: Vec::new(), memory, tail, is_contiguous: false, length: 0 }
    }

    pub fn length(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.tail.is_empty()
    }

    /// The first chunk, which usually is the whole body.
    pub fn first(&self) -> &[u8] {
        match self.chunks.first() {
            Some(chunk) => chunk,
            None => self.tail.as_slice(),
        }
    }

    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks.iter().map(|chunk| &chunk[..]).chain([self.tail.as_slice()])
    }

    pub fn push(&mut self, data: Bytes) -> Result<(), MemoryExhausted> {
        let length = data.len();
        if self.is_contiguous {
            self.tail.append(&data)?;
        } else if self.is_empty() || length >= MIN_CHUNK {
            self.flush();
            self.memory.grow(length)?;
            self.chunks.push(data);
        } else {
            self.tail.append(&data)?;
            if self.tail.len() >= MERGED_CHUNK {
                self.flush();
            }
        }
        self.length += length;
        Ok(())
    }

    /// All of the body is needed in one piece: reserves the memory for it before it is read.
    pub fn make_contiguous(&mut self, total: Option<usize>) -> Result<(), MemoryExhausted> {
        if self.is_contiguous {
            return Ok(());
        }
        let mut whole = HeldBuffer::new(self.memory.empty_sibling());
        whole.reserve(total.unwrap_or(0).max(self.length))?;
        for slice in self.slices() {
            whole.append(slice)?;
        }
        self.chunks.clear();
        self.memory.shrink_to(0);
        self.tail = whole;
        self.is_contiguous = true;
        Ok(())
    }

    /// Joins what has been received so far into the first chunk.
    pub fn join(&mut self) -> Result<(), MemoryExhausted> {
        if !self.is_contiguous && (self.chunks.len() > 1 || !self.tail.is_empty()) {
            self.make_contiguous(None)?;
        }
        Ok(())
    }

    /// The whole body. Its memory is released when it is dropped.
    pub fn into_whole(mut self) -> Result<Bytes, MemoryExhausted> {
        if self.is_empty() {
            return Ok(Bytes::new());
        }
        self.join()?;
        Ok(match self.chunks.pop() {
            Some(body) if body.len() < SMALL_BODY => hold(body.to_vec(), self.memory),
            Some(body) => hold(body, self.memory),
            None => self.tail.finish(),
        })
    }

    /// The chunks, to be sent in order. The memory of all is released with the last of them.
    pub fn into_chunks(mut self) -> Vec<Bytes> {
        self.flush();
        if let Some(last) = self.chunks.pop() {
            self.chunks.push(hold(last, self.memory));
        }
        self.chunks
    }

    /// Ends the tail, so that a chunk can follow it.
    fn flush(&mut self) {
        if !self.tail.is_empty() {
            let next = HeldBuffer::new(self.memory.empty_sibling());
            self.chunks.push(std::mem::replace(&mut self.tail, next).finish());
        }
    }
}
