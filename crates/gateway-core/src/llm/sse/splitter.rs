//! The boundaries of events in a byte stream, whatever its line ends and wherever its chunks are cut.

use memchr::memchr2;

use super::EventLimits;

/// Finds where events end, and nothing else: at the line end of an empty line.
#[derive(Debug)]
pub(super) struct EventSplitter {
    limits: EventLimits,
    line: usize,
    event: usize,
    overlong: bool,
    /// The last byte was a carriage return inside an event; a line feed would belong to it.
    open_return: bool,
    /// The last byte was the carriage return that ended an event; a line feed would still belong to that event.
    closing_return: bool,
}

pub(super) struct EventEnd {
    pub(super) end: usize,
    pub(super) overlong: bool,
}

impl EventSplitter {
    pub(super) fn new(limits: EventLimits) -> Self {
        EventSplitter {
            limits,
            line: 0,
            event: 0,
            overlong: false,
            open_return: false,
            closing_return: false,
        }
    }

    pub(super) fn overlong(&self) -> bool {
        self.overlong
    }

    /// The length of the line feed, 1 or 0, that completes the line end of an event handed out with the last chunk.
    pub(super) fn late_line_feed(&mut self, chunk: &[u8]) -> usize {
        let Some(first) = chunk.first() else { return 0 };
        usize::from(std::mem::take(&mut self.closing_return) && *first == b'\n')
    }

    pub(super) fn next(&mut self, bytes: &[u8]) -> Option<EventEnd> {
        let mut at = 0;
        if let Some(first) = bytes.first()
            && std::mem::take(&mut self.open_return)
            && *first == b'\n'
        {
            at = 1;
            self.grow(0, 1);
        }
        while let Some(found) = memchr2(b'\n', b'\r', &bytes[at..]) {
            let blank = self.line + found == 0;
            self.grow(found, 1);
            self.line = 0;
            at += found + 1;
            let is_return = bytes[at - 1] == b'\r';
            let next = bytes.get(at);
            if blank {
                self.closing_return = is_return && next.is_none();
                self.event = 0;
                let overlong = std::mem::take(&mut self.overlong);
                return Some(EventEnd { end: at + usize::from(is_return && next == Some(&b'\n')), overlong });
            }
            if is_return && next == Some(&b'\n') {
                at += 1;
                self.grow(0, 1);
            }
            self.open_return = is_return && next.is_none();
        }
        self.grow(bytes.len() - at, 0);
        None
    }

    fn grow(&mut self, text: usize, line_end: usize) {
        self.line += text;
        self.event += text + line_end;
        self.overlong |= self.line > self.limits.line || self.event > self.limits.event;
    }
}
