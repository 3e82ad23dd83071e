//! Copies in memory of rows that were just appended, so that the writer need not read and parse them again. It is only
//! a shortcut: rows that do not fit, or that were taken and not stored, are read from disk.

use std::collections::{HashMap, VecDeque};

use gateway_core::ids::OrgId;
use gateway_core::logs::LogRow;
use rustc_hash::FxBuildHasher;

use super::RecordSpan;

/// The approximate size of a row without its bodies.
const ROW_BYTES: usize = 1_024;
/// One organization may use one part in this many of the buffer, so that there is room for the rows of others.
const ORG_PARTS: usize = 4;

/// The latest rows of one lane, in the order in which they were written.
pub struct RecentBuffer {
    rows: VecDeque<RecentRow>,
    bytes: usize,
    bytes_by_org: HashMap<OrgId, usize, FxBuildHasher>,
    limit: usize,
}

struct RecentRow {
    span: RecordSpan,
    row: LogRow,
}

/// The rows in memory from some offset of a segment on.
#[derive(Debug, PartialEq)]
pub enum RecentRows {
    /// Rows, and how many bytes of the segment each of them takes.
    Rows(Vec<LogRow>, Vec<u64>),
    /// No row starts at the offset; the next one in memory starts this many bytes later.
    StartsAfter(u64),
    Empty,
}

impl RecentBuffer {
    pub fn with_limit(limit: usize) -> Self {
        Self { rows: VecDeque::new(), bytes: 0, bytes_by_org: HashMap::default(), limit }
    }

    /// Keeps a row. Returns false if the buffer, or the share of the organization, is full.
    pub fn push(&mut self, span: RecordSpan, row: LogRow) -> bool {
        let size = size_of(&row);
        let of_org = self.bytes_by_org.get(&row.org_id).copied().unwrap_or(0) + size;
        if self.bytes + size > self.limit || of_org > self.limit / ORG_PARTS {
            return false;
        }
        self.bytes += size;
        self.bytes_by_org.insert(row.org_id, of_org);
        self.rows.push_back(RecentRow { span, row });
        true
    }

    pub fn bytes_of(&self, org: OrgId) -> usize {
        self.bytes_by_org.get(&org).copied().unwrap_or(0)
    }

    /// Copies the rows of an organization.
    pub fn rows_of(&self, org: OrgId) -> Vec<LogRow> {
        if !self.bytes_by_org.contains_key(&org) {
            return Vec::new();
        }
        self.rows.iter().filter(|recent| recent.row.org_id == org).map(|recent| recent.row.clone()).collect()
    }

    /// Takes the contiguous rows that start at the offset, as many as there may be, and until they have the bytes.
    pub fn take(&mut self, segment: u64, offset: u64, (max_rows, enough_bytes): (usize, u64)) -> RecentRows {
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
        let (mut rows, mut lengths, mut end) = (Vec::new(), Vec::new(), offset);
        while rows.len() < max_rows
            && end - offset < enough_bytes
            && self.rows.front().is_some_and(|next| next.span.segment == segment && next.span.start == end)
            && let Some(next) = self.pop()
        {
            end = next.span.end;
            lengths.push(end - next.span.start);
            rows.push(next.row);
        }
        RecentRows::Rows(rows, lengths)
    }

    /// Drops the rows of a segment that was deleted.
    pub fn remove_segment(&mut self, segment: u64) {
        while self.rows.front().is_some_and(|first| first.span.segment == segment) {
            self.pop();
        }
    }

    fn pop(&mut self) -> Option<RecentRow> {
        let first = self.rows.pop_front()?;
        let size = size_of(&first.row);
        self.bytes -= size;
        if let Some(of_org) = self.bytes_by_org.get_mut(&first.row.org_id) {
            *of_org = of_org.saturating_sub(size);
            if *of_org == 0 {
                self.bytes_by_org.remove(&first.row.org_id);
            }
        }
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
