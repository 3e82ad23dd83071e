//! Changing single events of a stream that is otherwise forwarded unchanged.

use super::{EventLimits, parse, splitter::EventSplitter};

/// Replaces the data of single events. All other bytes are forwarded unchanged and in order. An incomplete event is
/// buffered until it ends or exceeds the limits.
#[derive(Debug)]
pub struct EventEditor {
    splitter: EventSplitter,
    buffered: Vec<u8>,
    joined: Vec<u8>,
    is_first: bool,
}

impl EventEditor {
    pub fn new(limits: EventLimits) -> Self {
        EventEditor {
            splitter: EventSplitter::new(limits),
            buffered: Vec::new(),
            joined: Vec::new(),
            is_first: true,
        }
    }

    /// Returns the bytes to forward. `edit` returns the new data of an event, or None to leave it.
    pub fn feed(&mut self, chunk: &[u8], mut edit: impl FnMut(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
        let mut out = Vec::with_capacity(chunk.len() + 64);
        let mut start = self.splitter.late_line_feed(chunk);
        out.extend_from_slice(&chunk[..start]);
        loop {
            let blank = self.splitter.blank_lines(&chunk[start..]);
            if blank > 0 {
                out.extend_from_slice(&chunk[start..start + blank]);
                self.is_first = false;
                start += blank;
            }
            let Some(end) = self.splitter.next(&chunk[start..]) else { break };
            let mut block = std::mem::take(&mut self.buffered);
            block.extend_from_slice(&chunk[start..start + end.offset]);
            start += end.offset;
            if end.is_overlong {
                out.append(&mut block);
            } else {
                self.push(&block, &mut edit, &mut out);
            }
            self.is_first = false;
        }
        if self.splitter.is_overlong() {
            out.append(&mut self.buffered);
            out.extend_from_slice(&chunk[start..]);
        } else {
            self.buffered.extend_from_slice(&chunk[start..]);
        }
        out
    }

    /// The buffered bytes at the end of the stream.
    pub fn finish(&mut self, mut edit: impl FnMut(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
        let rest = std::mem::take(&mut self.buffered);
        let mut out = Vec::new();
        self.push(&rest, &mut edit, &mut out);
        out
    }

    fn push(&mut self, block: &[u8], edit: &mut impl FnMut(&[u8]) -> Option<Vec<u8>>, out: &mut Vec<u8>) {
        let edited = parse(block, self.is_first, &mut self.joined).and_then(|event| {
            let length = event.data.len();
            let at = event.data.as_ptr().addr().checked_sub(block.as_ptr().addr())?;
            // Data of several lines is not in one piece of the block.
            let is_inside = at.checked_add(length).is_some_and(|end| end <= block.len());
            Some((at, length, edit(event.data).filter(|_| is_inside)?))
        });
        match edited {
            None => out.extend_from_slice(block),
            Some((at, length, data)) => {
                out.extend_from_slice(&block[..at]);
                out.extend_from_slice(&data);
                out.extend_from_slice(&block[at + length..]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edited(chunks: &[&[u8]]) -> String {
        let edit = |data: &[u8]| (data == b"b").then(|| b"[b]".to_vec());
        let mut editor = EventEditor::new(EventLimits { line: 64, event: 64 });
        let mut out: Vec<u8> = chunks.iter().flat_map(|chunk| editor.feed(chunk, edit)).collect();
        out.extend(editor.finish(edit));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_the_event_itself_changes() {
        let stream =
            "data: a\n\n: ping\n\nevent: x\ndata: b\nid: 1\n\n\n\ndata: a\ndata: b\n\ndata: [DONE]\n\n";
        assert_eq!(edited(&[stream.as_bytes()]), stream.replace("data: b\nid", "data: [b]\nid"));
        assert_eq!(edited(&[b"data: b"]), "data: [b]");
        let long = format!("data: {}\n\ndata: b\n\n", "x".repeat(100));
        assert_eq!(edited(&[long.as_bytes()]), long.replace("data: b", "data: [b]"));
    }

    proptest! {
        #[test]
        fn the_chunking_does_not_matter(events in prop::collection::vec("(data: [ab]{0,3}|: c|event: e|)(\n|\r\n)", 0..12), cut in 0_usize..80) {
            let stream = events.concat();
            let cut = cut.min(stream.len());
            let (first, second) = stream.as_bytes().split_at(cut);
            prop_assert_eq!(edited(&[first, second]), edited(&[stream.as_bytes()]));
        }
    }
}
