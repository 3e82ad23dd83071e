//! Reading on behind a damaged record, so that it loses only itself.

use memchr::memmem;

use super::marker::Marker;
use super::record::{self, META_AT, read_record};

/// How many bytes may be checked against checksums in a segment without markers. Bounds the time for a segment that is
/// made to look like many records.
const MAX_CHECKED_BYTES: usize = 64 << 20;

/// The offset of the first intact record behind `offset`, at which there is none.
pub fn next_record(segment: &[u8], offset: usize, marker: &Marker) -> Option<usize> {
    match marker.in_segment(segment) {
        Some(mark) => next_marked(segment, offset, mark),
        // Written by version 0.1.0.
        None => next_unmarked(segment, offset),
    }
}

fn next_marked(segment: &[u8], offset: usize, mark: &[u8]) -> Option<usize> {
    let mut at = offset + 1;
    loop {
        let found = at + memmem::find(segment.get(at..)?, mark)?;
        at = found + 1;
        let start = found.checked_sub(META_AT).filter(|start| *start > offset);
        if let Some(start) = start
            && read_record(&segment[start..]).is_some()
        {
            return Some(start);
        }
    }
}

/// The length of a damaged record is mostly intact. Otherwise every offset is tried.
fn next_unmarked(segment: &[u8], offset: usize) -> Option<usize> {
    let mut checked = 0;
    let mut is_record = |at: usize| {
        let Some(length) = segment.get(at..).and_then(record::plausible_length) else { return false };
        checked += length;
        checked <= MAX_CHECKED_BYTES && read_record(&segment[at..]).is_some()
    };
    let claimed = record::claimed_length(&segment[offset..]).map(|length| offset + length);
    match claimed {
        Some(end) if end == segment.len() => None,
        Some(end) if is_record(end) => Some(end),
        _ => (offset + 1..segment.len()).find(|at| is_record(*at)),
    }
}

#[cfg(test)]
mod tests;
