//! Rows that are on disk and still in memory too, so that the writer need not read back and take apart what was written a
//! moment ago. A short cut and no more: what does not fit here, or was taken and then not stored, is read from disk.

use std::collections::VecDeque;

use gateway_core::logs::LogRow;

/// What a row takes besides its bodies, roughly.
const ROW_BYTES: usize = 1_024;

/// The rows of one lane, in the order in which they were written.
pub struct Recent {
    rows: VecDeque<Kept>,
    bytes: usize,
    limit: usize,
}

struct Kept {
    segment: u64,
    begins: u64,
    ends: u64,
    row: LogRow,
}

/// What is at hand of a segment from some place on.
#[derive(Debug, PartialEq)]
pub enum AtHand {
    /// Rows, and how many bytes of the segment they are.
    Rows(Vec<LogRow>, u64),
    /// Nothing here; the next row that is at hand begins this many bytes further on.
    Further(u64),
    Nothing,
}

impl Recent {
    pub fn with_limit(limit: usize) -> Self {
        Self { rows: VecDeque::new(), bytes: 0, limit }
    }

    /// Keeps a row that stands at this place of a segment, unless there are too many.
    pub fn keep(&mut self, segment: u64, begins: u64, ends: u64, row: LogRow) {
        let size = size_of(&row);
        if self.bytes + size <= self.limit {
            self.bytes += size;
            self.rows.push_back(Kept { segment, begins, ends, row });
        }
    }

    /// The rows that follow each other from this place on, `most` of them at most.
    pub fn take(&mut self, segment: u64, from: u64, most: usize) -> AtHand {
        while self.rows.front().is_some_and(|first| first.segment == segment && first.begins < from) {
            self.pop();
        }
        match self.rows.front() {
            Some(first) if first.segment == segment && first.begins > from => {
                return AtHand::Further(first.begins - from);
            }
            Some(first) if first.segment == segment => {}
            _ => return AtHand::Nothing,
        }
        let (mut rows, mut end) = (Vec::new(), from);
        while rows.len() < most
            && self.rows.front().is_some_and(|next| next.segment == segment && next.begins == end)
            && let Some(next) = self.pop()
        {
            end = next.ends;
            rows.push(next.row);
        }
        AtHand::Rows(rows, end - from)
    }

    /// The segment is gone.
    pub fn forget(&mut self, segment: u64) {
        while self.rows.front().is_some_and(|first| first.segment == segment) {
            self.pop();
        }
    }

    fn pop(&mut self) -> Option<Kept> {
        let first = self.rows.pop_front()?;
        self.bytes -= size_of(&first.row);
        if self.rows.is_empty() {
            // A burst must not hold its room for ever.
            self.rows.shrink_to(256);
        }
        Some(first)
    }
}

fn size_of(row: &LogRow) -> usize {
    ROW_BYTES + row.request.capacity() + row.response.capacity()
}
