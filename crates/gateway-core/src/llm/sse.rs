//! Server-sent events, cut out of a byte stream as it passes. Everything works on bytes and on any chunking, since
//! providers split events, lines and even characters wherever their buffers end, and everything is bounded, since a
//! stream without a blank line must not fill the memory.

mod filter;
mod splitter;
#[cfg(test)]
mod tests;

use memchr::memchr2_iter;
use splitter::EventSplitter;

pub use filter::{EventFilter, FilteredChunk};

/// How large a line and an event may be before they are no longer looked into.
#[derive(Debug, Clone, Copy)]
pub struct EventLimits {
    pub line: usize,
    pub event: usize,
}

impl EventLimits {
    /// For reading: the last event of some streams repeats the whole answer.
    pub const READ: EventLimits = EventLimits { line: 8 << 20, event: 8 << 20 };
    /// For hiding: what is hidden is small, and a caller should not wait for the end of a large event.
    pub const FILTER: EventLimits = EventLimits { line: 64 << 10, event: 64 << 10 };
}

/// One complete event. Several `data` lines are joined by a line feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    pub event: Option<&'a [u8]>,
    pub data: &'a [u8],
}

/// What the stream held: an event, or the trace of one too large to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventItem<'a> {
    Event(Event<'a>),
    Overlong,
}

/// Reads events. An event that lies wholly inside one chunk is handed out without being copied.
#[derive(Debug)]
pub struct EventReader {
    splitter: EventSplitter,
    held: Vec<u8>,
    joined: Vec<u8>,
    told_overlong: bool,
    first: bool,
}

impl EventReader {
    pub fn new(limits: EventLimits) -> Self {
        EventReader {
            splitter: EventSplitter::new(limits),
            held: Vec::new(),
            joined: Vec::new(),
            told_overlong: false,
            first: true,
        }
    }

    /// Calls `visit` for every event that this chunk completes.
    pub fn feed(&mut self, chunk: &[u8], mut visit: impl FnMut(EventItem<'_>)) {
        let mut rest = &chunk[self.splitter.late_line_feed(chunk)..];
        while let Some(cut) = self.splitter.next(rest) {
            let (here, after) = rest.split_at(cut.end);
            if cut.overlong {
                if !self.told_overlong {
                    visit(EventItem::Overlong);
                }
            } else {
                let block = if self.held.is_empty() {
                    here
                } else {
                    self.held.extend_from_slice(here);
                    &self.held
                };
                if let Some(event) = parse(block, self.first, &mut self.joined) {
                    visit(EventItem::Event(event));
                }
            }
            self.release();
            rest = after;
        }
        if self.splitter.overlong() {
            if !self.told_overlong {
                visit(EventItem::Overlong);
                self.told_overlong = true;
            }
            self.held = Vec::new();
        } else {
            self.held.extend_from_slice(rest);
        }
    }

    /// Hands out the last event of a stream that ended without its blank line: a provider's usage must not be lost to
    /// a missing line feed.
    pub fn finish(&mut self, mut visit: impl FnMut(EventItem<'_>)) {
        if let Some(event) = parse(&self.held, self.first, &mut self.joined) {
            visit(EventItem::Event(event));
        }
        self.release();
    }

    fn release(&mut self) {
        reuse(&mut self.held);
        reuse(&mut self.joined);
        self.told_overlong = false;
        self.first = false;
    }
}

fn parse<'a>(block: &'a [u8], first: bool, joined: &'a mut Vec<u8>) -> Option<Event<'a>> {
    const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
    let block = if first { block.strip_prefix(BYTE_ORDER_MARK).unwrap_or(block) } else { block };
    joined.clear();
    let mut event = None;
    let mut data: Option<&[u8]> = None;
    let mut several = false;
    let mut start = 0;
    for end in memchr2_iter(b'\n', b'\r', block).chain([block.len()]) {
        let line = &block[start..end];
        start = end + 1;
        if let Some(value) = field(line, b"data") {
            match data {
                None => data = Some(value),
                Some(one) => {
                    if !several {
                        joined.extend_from_slice(one);
                        several = true;
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
    Some(Event { event, data: if several { joined } else { data } })
}

fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(name)? {
        [] => Some(b""),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

/// Empties a buffer, and gives its memory back when one large event made it grow.
fn reuse(buffer: &mut Vec<u8>) {
    const KEPT: usize = 64 << 10;
    buffer.clear();
    buffer.shrink_to(KEPT);
}
