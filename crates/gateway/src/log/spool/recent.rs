//! Copies in memory of rows that were just appended, so that the writer need not read and parse them again. It is only
//! a shortcut: rows that do not fit, or that were taken and not stored, are read from disk.

use std::collections::VecDeque;

use gateway_core::logs::LogRow;

use super::RecordSpan;

/// The approximate size of a row without its bodies.
const ROW_BYTES: usize = 1_024;

/// The latest rows of one lane, in the order in which they were written.
pub struct RecentBuffer {
    rows: VecDeque<RecentRow>,
    bytes: usize,
    limit: usize,
}

struct RecentRow {
    span: RecordSpan,
    row: LogRow,
}

/// The rows in memory from some offset of a segment on.
#[derive(Debug, PartialEq)]
pub enum RecentRows {
    /// Rows, and how many bytes of the segment they take.
    Rows(Vec<LogRow>, u64),
    /// No row starts at the offset; the next one in memory starts this many bytes later.
    StartsAfter(u64),
    Empty,
}

impl RecentBuffer {
    pub fn with_limit(limit: usize) -> Self {
        Self { rows: VecDeque::new(), bytes: 0, limit }
    }

    /// Keeps a row unless the buffer is full.
    pub fn push(&mut self, span: RecordSpan, row: LogRow) {
        let size = size_of(&row);
        if self.bytes + size <= self.limit {
            self.bytes += size;
            self.rows.push_back(RecentRow { span, row });
        }
    }

    /// Takes the contiguous rows that start at the offset, at most `max_rows`.
    pub fn take(&mut self, segment: u64, offset: u64, max_rows: usize) -> RecentRows {
        let is_before = |row: &RecentRow| row.span.segment == segment && row.span.start < offset;
        while self.rows.front().is_some_and(is_before) {
            self.pop();
        }
        match self.rows.front().map(|row| &row.span) {
            Some(first) if first.segment == segment && first.start > offset => {
                return RecentRows::StartsAfter(first.start - offset);
            }
            Some(first) if first.segment == segment => {}
            _ => return RecentRows::Empty,
        }
        let (mut rows, mut end) = (Vec::new(), offset);
        while rows.len() < max_rows
            && self.rows.front().is_some_and(|next| next.span.segment == segment && next.span.start == end)
            && let Some(next) = self.pop()
        {
            end = next.span.end;
            rows.push(next.row);
        }
        RecentRows::Rows(rows, end - offset)
    }

    /// Drops the rows of a segment that was deleted.
    pub fn remove_segment(&mut self, segment: u64) {
        while self.rows.front().is_some_and(|first| first.span.segment == segment) {
            self.pop();
        }
    }

    fn pop(&mut self) -> Option<RecentRow> {
        let first = self.rows.pop_front()?;
        self.bytes -= size_of(&first.row);
        if self.rows.is_empty() {
            // Release the capacity that a burst needed.
            self.rows.shrink_to(256);
        }
        Some(first)
    }
}

fn size_of(row: &LogRow) -> usize {
    ROW_BYTES + row.request.capacity() + row.response.capacity()
}
