//! The boundaries of events in a byte stream, for any line ends and any chunking.

use memchr::memchr2;

use super::EventLimits;

/// Finds the ends of events. An event ends with an empty line.
#[derive(Debug)]
pub(super) struct EventSplitter {
    limits: EventLimits,
    line_length: usize,
    event_length: usize,
    is_overlong: bool,
    /// The last byte was a carriage return inside an event. A line feed belongs to it.
    open_return: bool,
    /// The last byte was the carriage return that ended an event. A line feed still belongs to that event.
    closing_return: bool,
}

pub(super) struct EventEnd {
    pub(super) offset: usize,
    pub(super) is_overlong: bool,
}

impl EventSplitter {
    pub(super) fn new(limits: EventLimits) -> Self {
        EventSplitter {
            limits,
            line_length: 0,
            event_length: 0,
            is_overlong: false,
            open_return: false,
            closing_return: false,
        }
    }

    pub(super) fn is_overlong(&self) -> bool {
        self.is_overlong
    }

    /// The length, 1 or 0, of the line feed that belongs to an event that ended with the last chunk.
    pub(super) fn late_line_feed(&mut self, chunk: &[u8]) -> usize {
        let Some(first) = chunk.first() else { return 0 };
        usize::from(std::mem::take(&mut self.closing_return) && *first == b'\n')
    }

    /// The length of the blank lines that the next event begins with. They are skipped at once, because each of them
    /// would be an event of its own. The last carriage return is left, because a line feed may belong to it.
    pub(super) fn blank_lines(&self, bytes: &[u8]) -> usize {
        let is_between = self.event_length == 0 && !self.open_return && !self.is_overlong;
        match bytes {
            _ if !is_between => 0,
            [b'\r', b'\n', ..] => 2 * bytes.chunks_exact(2).take_while(|pair| *pair == b"\r\n").count(),
            [first @ (b'\n' | b'\r'), ..] => {
                let length = bytes.iter().take_while(|byte| *byte == first).count();
                length - usize::from(*first == b'\r')
            }
            _ => 0,
        }
    }

    pub(super) fn next(&mut self, bytes: &[u8]) -> Option<EventEnd> {
        let mut at = 0;
        if let Some(first) = bytes.first()
            && std::mem::take(&mut self.open_return)
            && *first == b'\n'
        {
            at = 1;
            self.advance(0, 1);
        }
        while let Some(found) = memchr2(b'\n', b'\r', &bytes[at..]) {
            let blank = self.line_length + found == 0;
            self.advance(found, 1);
            self.line_length = 0;
            at += found + 1;
            let is_return = bytes[at - 1] == b'\r';
            let next = bytes.get(at);
            if blank {
                self.closing_return = is_return && next.is_none();
                self.event_length = 0;
                let is_overlong = std::mem::take(&mut self.is_overlong);
                let offset = at + usize::from(is_return && next == Some(&b'\n'));
                return Some(EventEnd { offset, is_overlong });
            }
            if is_return && next == Some(&b'\n') {
                at += 1;
                self.advance(0, 1);
            }
            self.open_return = is_return && next.is_none();
        }
        self.advance(bytes.len() - at, 0);
        None
    }

    fn advance(&mut self, text: usize, line_end: usize) {
        self.line_length += text;
        self.event_length += text + line_end;
        self.is_overlong |= self.line_length > self.limits.line || self.event_length > self.limits.event;
    }
}
