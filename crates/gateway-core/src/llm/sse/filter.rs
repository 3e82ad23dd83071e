//! Taking single events out of a stream that otherwise passes untouched.

use std::ops::Range;

use super::{Event, EventLimits, parse, splitter::EventSplitter};

/// What may be sent on: first `buffered`, bytes of earlier chunks that were held back, then these parts of the chunk.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FilteredChunk {
    pub buffered: Vec<u8>,
    pub ranges: Vec<Range<usize>>,
}

impl FilteredChunk {
    /// The released bytes in one buffer.
    pub fn concat(&self, chunk: &[u8]) -> Vec<u8> {
        let mut bytes = self.buffered.clone();
        for range in &self.ranges {
            bytes.extend_from_slice(&chunk[range.clone()]);
        }
        bytes
    }

    fn keep(&mut self, range: Range<usize>) {
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ if range.is_empty() => {}
            _ => self.ranges.push(range),
        }
    }
}

/// Withholds single events from a caller. Every other byte passes unchanged and in order; an incomplete event waits
/// for its end, or until it is too large to be one that is hidden.
#[derive(Debug)]
pub struct EventFilter {
    splitter: EventSplitter,
    held: Vec<u8>,
    joined: Vec<u8>,
    first: bool,
    hid_last: bool,
}

impl EventFilter {
    pub fn new(limits: EventLimits) -> Self {
        EventFilter {
            splitter: EventSplitter::new(limits),
            held: Vec::new(),
            joined: Vec::new(),
            first: true,
            hid_last: false,
        }
    }

    /// Takes the next chunk; `hide` says of each complete event whether its bytes are dropped.
    pub fn feed(&mut self, chunk: &[u8], mut hide: impl FnMut(&Event<'_>) -> bool) -> FilteredChunk {
        let mut released = FilteredChunk::default();
        let mut start = self.splitter.late_line_feed(chunk);
        if !self.hid_last {
            released.keep(0..start);
        }
        while let Some(cut) = self.splitter.next(&chunk[start..]) {
            let range = start..start + cut.end;
            start = range.end;
            if self.held.is_empty() {
                self.hid_last = !cut.overlong && self.hides(&chunk[range.clone()], &mut hide);
                if !self.hid_last {
                    released.keep(range);
                }
            } else {
                let mut block = std::mem::take(&mut self.held);
                block.extend_from_slice(&chunk[range]);
                self.hid_last = !cut.overlong && self.hides(&block, &mut hide);
                if !self.hid_last {
                    released.buffered = block;
                }
            }
            self.first = false;
        }
        if self.splitter.overlong() {
            released.buffered.append(&mut self.held);
            released.keep(start..chunk.len());
        } else {
            self.held.extend_from_slice(&chunk[start..]);
        }
        released
    }

    /// What was still held when the stream ended.
    pub fn finish(&mut self, mut hide: impl FnMut(&Event<'_>) -> bool) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        if self.hides(&held, &mut hide) { Vec::new() } else { held }
    }

    fn hides(&mut self, block: &[u8], hide: &mut impl FnMut(&Event<'_>) -> bool) -> bool {
        parse(block, self.first, &mut self.joined).is_some_and(|event| hide(&event))
    }
}
