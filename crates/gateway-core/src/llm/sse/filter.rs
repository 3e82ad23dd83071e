//! Removing single events from a stream that is otherwise forwarded unchanged.

use std::ops::Range;

use super::{Event, EventLimits, parse, splitter::EventSplitter};

/// The bytes to forward: first `buffered`, which holds bytes of earlier chunks, then these ranges of the chunk.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FilteredChunk {
    pub buffered: Vec<u8>,
    pub ranges: Vec<Range<usize>>,
}

impl FilteredChunk {
    /// The bytes to forward, in one buffer.
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

/// Removes single events from a stream. All other bytes are forwarded unchanged and in order. An incomplete event is
/// buffered until it ends or exceeds the limits.
#[derive(Debug)]
pub struct EventFilter {
    splitter: EventSplitter,
    buffered: Vec<u8>,
    joined: Vec<u8>,
    is_first: bool,
    removed_last: bool,
}

impl EventFilter {
    pub fn new(limits: EventLimits) -> Self {
        EventFilter {
            splitter: EventSplitter::new(limits),
            buffered: Vec::new(),
            joined: Vec::new(),
            is_first: true,
            removed_last: false,
        }
    }

    /// Filters the next chunk. Events for which `removes` returns true are dropped.
    pub fn feed(&mut self, chunk: &[u8], mut removes: impl FnMut(&Event<'_>) -> bool) -> FilteredChunk {
        let mut filtered = FilteredChunk::default();
        let mut start = self.splitter.late_line_feed(chunk);
        if !self.removed_last {
            filtered.keep(0..start);
        }
        loop {
            let blank = self.splitter.blank_lines(&chunk[start..]);
            if blank > 0 {
                filtered.keep(start..start + blank);
                (self.is_first, self.removed_last) = (false, false);
                start += blank;
            }
            let Some(end) = self.splitter.next(&chunk[start..]) else { break };
            let range = start..start + end.offset;
            start = range.end;
            if self.buffered.is_empty() {
                self.removed_last = !end.is_overlong && self.is_removed(&chunk[range.clone()], &mut removes);
                if !self.removed_last {
                    filtered.keep(range);
                }
            } else {
                let mut block = std::mem::take(&mut self.buffered);
                block.extend_from_slice(&chunk[range]);
                self.removed_last = !end.is_overlong && self.is_removed(&block, &mut removes);
                if !self.removed_last {
                    filtered.buffered = block;
                }
            }
            self.is_first = false;
        }
        if self.splitter.is_overlong() {
            filtered.buffered.append(&mut self.buffered);
            filtered.keep(start..chunk.len());
        } else {
            self.buffered.extend_from_slice(&chunk[start..]);
        }
        filtered
    }

    /// The buffered bytes at the end of the stream, unless they are an event to remove.
    pub fn finish(&mut self, mut removes: impl FnMut(&Event<'_>) -> bool) -> Vec<u8> {
        let rest = std::mem::take(&mut self.buffered);
        if self.is_removed(&rest, &mut removes) { Vec::new() } else { rest }
    }

    fn is_removed(&mut self, block: &[u8], removes: &mut impl FnMut(&Event<'_>) -> bool) -> bool {
        parse(block, self.is_first, &mut self.joined).is_some_and(|event| removes(&event))
    }
}
