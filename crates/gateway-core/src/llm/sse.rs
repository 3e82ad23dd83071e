//! Server-sent events in a byte stream. Providers split events, lines and even characters at any byte, so the readers
//! accept any chunking. Their memory is bounded, because a stream may never have a blank line.

mod editor;
mod filter;
mod splitter;
#[cfg(test)]
mod tests;

use memchr::memchr2_iter;
use splitter::EventSplitter;

pub use editor::EventEditor;
pub use filter::{EventFilter, FilteredChunk};

/// The maximum size of a line and of an event. Larger ones are not parsed.
#[derive(Debug, Clone, Copy)]
pub struct EventLimits {
    pub line: usize,
    pub event: usize,
}

impl EventLimits {
    /// For reading: the last event of some streams repeats the complete response.
    pub const READ: EventLimits = EventLimits { line: 8 << 20, event: 8 << 20 };
    /// For filtering: filtered events are small, and a caller should not wait for the end of a large event.
    pub const FILTER: EventLimits = EventLimits { line: 64 << 10, event: 64 << 10 };
}

/// One complete event. Multiple `data` lines are joined by a line feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    pub event: Option<&'a [u8]>,
    pub data: &'a [u8],
}

/// An item of a stream: an event, or a notice that an event exceeded the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventItem<'a> {
    Event(Event<'a>),
    Overlong,
}

/// Reads events. An event inside a single chunk is passed on without being copied.
#[derive(Debug)]
pub struct EventReader {
    splitter: EventSplitter,
    /// The incomplete event of earlier chunks.
    buffered: Vec<u8>,
    joined: Vec<u8>,
    reported_overlong: bool,
    is_first: bool,
}

impl EventReader {
    pub fn new(limits: EventLimits) -> Self {
        EventReader {
            splitter: EventSplitter::new(limits),
            buffered: Vec::new(),
            joined: Vec::new(),
            reported_overlong: false,
            is_first: true,
        }
    }

    /// Calls `visit` for every event that this chunk completes.
    pub fn feed(&mut self, chunk: &[u8], mut visit: impl FnMut(EventItem<'_>)) {
        let mut rest = &chunk[self.splitter.late_line_feed(chunk)..];
        loop {
            let blank = self.splitter.blank_lines(rest);
            self.is_first &= blank == 0;
            rest = &rest[blank..];
            let Some(end) = self.splitter.next(rest) else { break };
            let (here, after) = rest.split_at(end.offset);
            if end.is_overlong {
                if !self.reported_overlong {
                    visit(EventItem::Overlong);
                }
            } else {
                let block = if self.buffered.is_empty() {
                    here
                } else {
                    self.buffered.extend_from_slice(here);
                    &self.buffered
                };
                if let Some(event) = parse(block, self.is_first, &mut self.joined) {
                    visit(EventItem::Event(event));
                }
            }
            self.start_next_event();
            rest = after;
        }
        if self.splitter.is_overlong() {
            if !self.reported_overlong {
                visit(EventItem::Overlong);
                self.reported_overlong = true;
            }
            self.buffered = Vec::new();
        } else {
            self.buffered.extend_from_slice(rest);
        }
    }

    /// Visits the last event of a stream without a final blank line, so that a missing line feed does not lose usage.
    pub fn finish(&mut self, mut visit: impl FnMut(EventItem<'_>)) {
        if let Some(event) = parse(&self.buffered, self.is_first, &mut self.joined) {
            visit(EventItem::Event(event));
        }
        self.start_next_event();
    }

    fn start_next_event(&mut self) {
        clear_buffer(&mut self.buffered);
        clear_buffer(&mut self.joined);
        self.reported_overlong = false;
        self.is_first = false;
    }
}

fn parse<'a>(block: &'a [u8], is_first: bool, joined: &'a mut Vec<u8>) -> Option<Event<'a>> {
    const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
    let block = if is_first { block.strip_prefix(BYTE_ORDER_MARK).unwrap_or(block) } else { block };
    joined.clear();
    let mut event = None;
    let mut data: Option<&[u8]> = None;
    let mut has_several = false;
    let mut start = 0;
    for end in memchr2_iter(b'\n', b'\r', block).chain([block.len()]) {
        let line = &block[start..end];
        start = end + 1;
        if let Some(value) = field(line, b"data") {
            match data {
                None => data = Some(value),
                Some(first) => {
                    if !has_several {
                        joined.extend_from_slice(first);
                        has_several = true;
                    }
                    joined.push(b'\n');
                    joined.extend_from_slice(value);
                }
            }
        } else if let Some(value) = field(line, b"event") {
            event = Some(value);
        }
    }
    let data = data?;
    Some(Event { event, data: if has_several { joined } else { data } })
}

fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(name)? {
        [] => Some(b""),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

/// Clears a buffer and releases the memory that a large event allocated.
fn clear_buffer(buffer: &mut Vec<u8>) {
    const KEPT_CAPACITY: usize = 64 << 10;
    buffer.clear();
    buffer.shrink_to(KEPT_CAPACITY);
}
