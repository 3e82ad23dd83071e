//! The format of a spooled row: `length (4) | crc32 (4) | meta length (4) | request length (4) | meta | request |
//! response`, integers in little endian. `length` counts the bytes after the checksum. `meta` is the marker of the spool
//! and the encoded row without its bodies. Earlier versions wrote `meta` as JSON, with the marker as the first field, and
//! version 0.1.0 without it.

use std::fs::File;
use std::io::IoSlice;

use gateway_core::logs::LogRow;
use gateway_store::faults::Faults;

use super::marker::Marker;

const HEADER_BYTES: usize = 8;
const LENGTH_BYTES: usize = 8;
/// Where `meta` begins.
pub const META_AT: usize = HEADER_BYTES + LENGTH_BYTES;
/// A longer record is not valid: two bodies at their limit, and a row whose texts are all bounded, are shorter.
pub const MAX_RECORD: usize = 3 << 20;

/// Writes the start of a record to the buffer, up to the bodies. Returns the length of the whole record in bytes.
pub fn encode(row: &LogRow, marker: &Marker, buffer: &mut Vec<u8>) -> std::io::Result<u64> {
    buffer.clear();
    buffer.resize(META_AT, 0);
    buffer.extend_from_slice(marker.bytes());
    row.encode(buffer);
    let meta = buffer.len() - META_AT;
    let length = LENGTH_BYTES + meta + row.request.len() + row.response.len();
    if length > MAX_RECORD {
        return Err(std::io::Error::other("the log row is too long"));
    }
    buffer[8..12].copy_from_slice(&u32_of(meta).to_le_bytes());
    buffer[12..16].copy_from_slice(&u32_of(row.request.len()).to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&buffer[HEADER_BYTES..]);
    crc.update(&row.request);
    crc.update(&row.response);
    buffer[0..4].copy_from_slice(&u32_of(length).to_le_bytes());
    buffer[4..8].copy_from_slice(&crc.finalize().to_le_bytes());
    Ok((HEADER_BYTES + length) as u64)
}

/// The records at the start of some bytes.
#[derive(Debug, Default)]
pub struct Records {
    pub rows: Vec<LogRow>,
    /// How many bytes each of them takes.
    pub lengths: Vec<u64>,
    /// Intact records that this version cannot read.
    pub unreadable: Vec<Vec<u8>>,
    /// How many bytes all rows and records take.
    pub length: u64,
}

impl Records {
    /// Rows, each of which takes this many bytes of the segment.
    pub fn of_rows(rows: Vec<LogRow>, lengths: Vec<u64>) -> Self {
        let length = lengths.iter().sum();
        Self { rows, lengths, unreadable: Vec::new(), length }
    }
}

/// Reads whole records from the start of `bytes`. Stops at the first record that is incomplete or damaged.
pub fn read_records(bytes: &[u8]) -> Records {
    let (mut found, mut at) = (Records::default(), 0);
    while let Some(record) = read_record(&bytes[at..]) {
        let end = at + record.length;
        match record.row {
            Some(row) => {
                found.rows.push(row);
                found.lengths.push(record.length as u64);
            }
            None => found.unreadable.push(bytes[at..end].to_vec()),
        }
        at = end;
    }
    found.length = at as u64;
    found
}

/// An intact record.
pub(super) struct Record {
    /// None if this version cannot read it.
    pub row: Option<LogRow>,
    pub length: usize,
}

pub(super) fn read_record(bytes: &[u8]) -> Option<Record> {
    let length = claimed_length(bytes)?;
    let body = bytes.get(HEADER_BYTES..length)?;
    if crc32fast::hash(body) != u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?) {
        return None;
    }
    Some(Record { row: read_row(body), length })
}

fn read_row(body: &[u8]) -> Option<LogRow> {
    let request_at = LENGTH_BYTES.checked_add(number(body, 0)?)?;
    let response_at = request_at.checked_add(number(body, 4)?)?;
    let mut row = read_meta(body.get(LENGTH_BYTES..request_at)?)?;
    row.request = body.get(request_at..response_at)?.to_vec();
    row.response = body.get(response_at..)?.to_vec();
    Some(row)
}

fn read_meta(meta: &[u8]) -> Option<LogRow> {
    match Marker::skip(meta) {
        Some(row) => LogRow::decode(row).ok(),
        None => serde_json::from_slice(meta).ok(),
    }
}

/// The length of a record by its header.
pub(super) fn claimed_length(bytes: &[u8]) -> Option<usize> {
    let length = number(bytes, 0)?;
    (LENGTH_BYTES..=MAX_RECORD).contains(&length).then_some(HEADER_BYTES + length)
}

/// The length of what may be a whole record of version 0.1.0, judged without its checksum.
pub(super) fn plausible_length(bytes: &[u8]) -> Option<usize> {
    let length = claimed_length(bytes)?;
    let parts = number(bytes, 8)?.checked_add(number(bytes, 12)?)?;
    let is_plausible =
        length <= bytes.len() && parts <= length - META_AT && bytes.get(META_AT) == Some(&b'{');
    is_plausible.then_some(length)
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let field: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(field)).ok()
}

/// Writes the whole record with one system call. The loop continues after a short write.
pub fn write_all(file: &mut File, parts: [&[u8]; 3], total: u64, faults: &Faults) -> std::io::Result<()> {
    let mut slices = parts.map(IoSlice::new);
    let written = faults.write(file, &slices)?;
    if written as u64 == total {
        return Ok(());
    }
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, written);
    while !rest.is_empty() {
        let written = faults.write(file, rest)?;
        if written == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut rest, written);
    }
    Ok(())
}

fn u32_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
