//! Bodies of log rows, compressed in blocks. Bodies of one conversation repeat each other, so a block of several is much
//! smaller than the sum of its bodies. A block is small enough to be read for a single row.
//!
//! A block is `encoding | length | content`. The content, compressed with zstd if that makes it smaller, is `number of
//! rows | id, length of request and length of response of each row | requests and responses`. Ids are differences to the
//! first.

use std::collections::HashMap;

use crate::ids::{KeyId, OrgId};
use crate::logs::log_id_time;
pub use crate::packed::Malformed;
use crate::packed::{put_varint, take, take_length, take_varint};
use crate::time::MINUTE;

/// A block with this many bytes of bodies is full. Larger blocks are hardly smaller per row, and dearer to read.
const FULL: usize = 16 << 10;
/// The rows of a block are of the same ten minutes, so that none is kept much longer than its retention.
const MAX_SPAN: i64 = 10 * MINUTE;
/// More is not read: a row has bodies of less than a MiB.
const MAX_CONTENT: usize = 16 << 20;
const LEVEL: i32 = 1;

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;

/// The bodies of some rows of an organization, as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyBlock {
    /// The ids of its rows, of which the first is the smallest.
    pub ids: Vec<i64>,
    pub last_id: i64,
    pub bytes: Vec<u8>,
}

impl BodyBlock {
    /// The id of the block: that of its first row.
    pub fn id(&self) -> i64 {
        self.ids.first().copied().unwrap_or_default()
    }
}

/// A row with its bodies.
#[derive(Clone, Copy, Debug)]
pub struct RowBodies<'a> {
    pub id: i64,
    pub org: OrgId,
    pub conversation: Conversation<'a>,
    pub request: &'a [u8],
    pub response: &'a [u8],
}

/// What rows of one conversation have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conversation<'a> {
    pub session: Option<&'a str>,
    pub user: Option<&'a str>,
    pub key: Option<KeyId>,
}

impl RowBodies<'_> {
    fn len(&self) -> usize {
        self.request.len() + self.response.len()
    }

    /// Rows with different places are in different blocks.
    fn place(&self) -> (OrgId, i64) {
        (self.org, log_id_time(self.id.max(0)).0.div_euclid(MAX_SPAN))
    }
}

/// The bodies of rows in blocks. A block has rows of one organization and of the same ten minutes, conversations side by
/// side.
pub fn blocks_of<'a>(rows: impl IntoIterator<Item = RowBodies<'a>>) -> Vec<BodyBlock> {
    let mut rows: Vec<RowBodies<'_>> = rows.into_iter().collect();
    rows.sort_unstable_by_key(|row| (row.place(), row.conversation, row.id));
    let mut compressor = zstd::bulk::Compressor::new(LEVEL).ok();
    let mut blocks = Vec::new();
    for rows in rows.chunk_by_mut(|one, other| one.place() == other.place()) {
        let mut rest = rows;
        while !rest.is_empty() {
            let mut length = 0;
            let is_full = |row: &RowBodies<'_>| {
                length += row.len();
                length >= FULL
            };
            let count = rest.iter().position(is_full).map_or(rest.len(), |at| at + 1);
            let (block, others) = rest.split_at_mut(count);
            blocks.push(encode(block, compressor.as_mut()));
            rest = others;
        }
    }
    blocks
}

fn encode(rows: &mut [RowBodies<'_>], compressor: Option<&mut zstd::bulk::Compressor<'_>>) -> BodyBlock {
    // The first id is the smallest, and the others are differences to it.
    if let Some(first) = rows.iter().enumerate().min_by_key(|(_, row)| row.id).map(|(at, _)| at) {
        rows[..=first].rotate_right(1);
    }
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let first_id = ids.first().copied().unwrap_or_default();
    let length: usize = rows.iter().map(RowBodies::len).sum();
    let mut content = Vec::with_capacity(length + 16 * rows.len());
    put_varint(&mut content, rows.len() as u64);
    for row in rows.iter() {
        put_varint(&mut content, row.id.abs_diff(first_id));
        put_varint(&mut content, row.request.len() as u64);
        put_varint(&mut content, row.response.len() as u64);
    }
    for row in rows.iter() {
        content.extend_from_slice(row.request);
        content.extend_from_slice(row.response);
    }
    let compressed = compressor.and_then(|compressor| compressor.compress(&content).ok());
    let compressed = compressed.filter(|compressed| compressed.len() < content.len());
    let (encoding, stored) = match &compressed {
        Some(compressed) => (ZSTD, compressed),
        None => (PLAIN, &content),
    };
    let mut bytes = Vec::with_capacity(stored.len() + 8);
    bytes.push(encoding);
    put_varint(&mut bytes, content.len() as u64);
    bytes.extend_from_slice(stored);
    BodyBlock { last_id: ids.iter().copied().max().unwrap_or_default(), ids, bytes }
}

/// Request and response of a row.
pub type Bodies = (Vec<u8>, Vec<u8>);

/// Reads the bodies of the rows that are wanted of a block. `block`: its id.
pub fn read_bodies(
    block: i64,
    bytes: &[u8],
    is_wanted: impl Fn(i64) -> bool,
) -> Result<HashMap<i64, Bodies>, Malformed> {
    let content = decode(bytes)?;
    let mut directory = content.as_slice();
    let count = take_length(&mut directory)?;
    let mut bodies = directory;
    for _ in 0..count {
        for _ in 0..3 {
            take_varint(&mut bodies)?;
        }
    }
    let mut found = HashMap::new();
    for _ in 0..count {
        let id = take_varint(&mut directory)?;
        let (request, response) = (take_length(&mut directory)?, take_length(&mut directory)?);
        let (request, response) = (take(&mut bodies, request)?, take(&mut bodies, response)?);
        let id = block.checked_add_unsigned(id).ok_or(Malformed("an id is too large"))?;
        if is_wanted(id) {
            found.insert(id, (request.to_vec(), response.to_vec()));
        }
    }
    Ok(found)
}

fn decode(mut bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
    let encoding = take(&mut bytes, 1)?;
    let length = take_length(&mut bytes)?;
    if length > MAX_CONTENT {
        return Err(Malformed("a block of bodies is too long"));
    }
    let content = match encoding {
        [PLAIN] => bytes.to_vec(),
        [ZSTD] => {
            zstd::bulk::decompress(bytes, length).map_err(|_| Malformed("a block of bodies is torn"))?
        }
        _ => return Err(Malformed("a block of bodies has an unknown encoding")),
    };
    if content.len() == length { Ok(content) } else { Err(Malformed("a block of bodies is torn")) }
}

#[cfg(test)]
mod tests;
