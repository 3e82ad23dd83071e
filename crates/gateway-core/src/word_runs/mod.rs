//! The search index of log rows: immutable runs, which are merged into larger ones as in a log-structured merge tree.
//!
//! A run is the inverted index of some rows. For each word of a row it has a key, a hash of the word and the
//! organization, and the rows that contain it (postings). The keys of two organizations differ, so that a search reads
//! only postings of its own organization, and the index does not contain the words themselves. A run has up to 65,536
//! rows; a posting is the position of its row among the ids of the run in ascending order.
//!
//! The keys of a run are in one or more parts by their first bits, so that a search reads a small share of a large run.

mod merge;
mod part;
mod sort;

pub use merge::{MergePlan, merge_part};
pub use part::{encode_part, read_part, rows_with};

use crate::ids::OrgId;
pub use crate::packed::Malformed;
use crate::packed::{put_varint, take_varint};

/// Rows of a run at most: a posting has 16 bits.
pub const MAX_ROWS: usize = 1 << 16;
/// Runs of the same size that are merged into one.
pub const FAN_IN: usize = 16;
/// Keys have 48 bits. A run has fewer than 2^24 words, so that two words of an organization share a key about once in
/// 10^7 searches of a word that no row has.
const KEY_BITS: u32 = 48;
const POSTING_BITS: u32 = 64 - KEY_BITS;

/// The key of a word. `term` is its hash, made by `search_terms`.
pub fn key_of(org: OrgId, term: u64) -> u64 {
    let (high, low) = org.0.as_u64_pair();
    mix(mix(term ^ high) ^ low) >> POSTING_BITS
}

/// The finalizer of MurmurHash3: every bit of the input changes half of the bits of the output.
pub(crate) fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// How large a run is: each level has 16 times the rows of the one below. Runs of one level are merged.
pub fn level_of(rows: usize) -> i64 {
    match rows {
        0..16 => 0,
        16..256 => 1,
        256..4_096 => 2,
        _ => 3,
    }
}

/// The highest level. Its runs are not merged.
pub const TOP_LEVEL: i64 = 3;

/// The number of parts of a run of this level.
pub fn parts_of(level: i64) -> usize {
    match level {
        ..=1 => 1,
        2 => 16,
        _ => 256,
    }
}

/// The part that has this key.
pub fn part_of(key: u64, parts: usize) -> usize {
    let bits = parts.next_power_of_two().trailing_zeros();
    usize::try_from(key.checked_shr(KEY_BITS - bits).unwrap_or(0)).unwrap_or(0)
}

/// A key with a row that has its word, ordered by key and then by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Posting(u64);

impl Posting {
    pub fn new(key: u64, row: u16) -> Self {
        Self(key << POSTING_BITS | u64::from(row))
    }

    pub fn key(self) -> u64 {
        self.0 >> POSTING_BITS
    }

    pub fn row(self) -> u16 {
        (self.0 & 0xffff) as u16
    }
}

/// A run as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// In ascending order.
    pub ids: Vec<i64>,
    pub parts: Vec<Vec<u8>>,
}

impl Run {
    /// The index of rows with their organizations and the hashes of their distinct words. None without rows. Rows beyond
    /// `MAX_ROWS` are left out: a batch is smaller.
    pub fn of<'a>(rows: impl IntoIterator<Item = (i64, OrgId, &'a [u64])>) -> Option<Self> {
        let mut rows: Vec<(i64, OrgId, &[u64])> = rows.into_iter().take(MAX_ROWS).collect();
        if rows.is_empty() {
            return None;
        }
        rows.sort_unstable_by_key(|(id, ..)| *id);
        let level = level_of(rows.len());
        let parts = parts_of(level);
        let count = rows.iter().map(|(.., terms)| terms.len()).sum::<usize>();
        let mut postings: Vec<Vec<Posting>> = Vec::new();
        postings.resize_with(parts, || Vec::with_capacity(count / parts + count / parts / 8));
        for ((_, org, terms), row) in rows.iter().zip(0..=u16::MAX) {
            for term in *terms {
                let key = key_of(*org, *term);
                if let Some(part) = postings.get_mut(part_of(key, parts)) {
                    part.push(Posting::new(key, row));
                }
            }
        }
        let parts = postings.into_iter().map(|mut part| {
            sort::sort(&mut part, parts);
            part.dedup();
            encode_part(&part, rows.len())
        });
        Some(Self { parts: parts.collect(), ids: rows.iter().map(|(id, ..)| *id).collect() })
    }
}

/// Ids in ascending order, each as the difference to the one before.
pub fn encode_ids(ids: &[i64]) -> Vec<u8> {
    let (mut bytes, mut last) = (Vec::with_capacity(ids.len() * 3), 0);
    for id in ids {
        put_varint(&mut bytes, id.wrapping_sub(last).cast_unsigned());
        last = *id;
    }
    bytes
}

pub fn decode_ids(mut bytes: &[u8]) -> Result<Vec<i64>, Malformed> {
    let (mut ids, mut last) = (Vec::new(), 0_i64);
    while !bytes.is_empty() {
        if ids.len() == MAX_ROWS {
            return Err(Malformed("a run has too many rows"));
        }
        last = last.wrapping_add(take_varint(&mut bytes)?.cast_signed());
        ids.push(last);
    }
    Ok(ids)
}

/// The rows that are in all lists, which are in ascending order.
pub fn in_all(mut lists: Vec<Vec<u16>>) -> Vec<u16> {
    lists.sort_unstable_by_key(Vec::len);
    let mut lists = lists.into_iter();
    let mut common = lists.next().unwrap_or_default();
    for list in lists {
        let mut rest = list.as_slice();
        common.retain(|row| {
            rest = &rest[rest.partition_point(|other| other < row)..];
            rest.first() == Some(row)
        });
    }
    common
}

#[cfg(test)]
mod tests;
