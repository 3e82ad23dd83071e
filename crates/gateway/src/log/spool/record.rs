//! The format of a spooled row: `length (4) | crc32 (4) | meta length (4) | request length (4) | meta | request |
//! response`, integers in little endian. `length` counts the bytes after the checksum. `meta` is the row as JSON
//! without its bodies.

use std::fs::File;
use std::io::{IoSlice, Write as _};

use gateway_core::logs::LogRow;

const HEADER_BYTES: usize = 8;
const LENGTH_BYTES: usize = 8;
/// A longer record is not valid: two bodies at their limit, and a row whose texts are all bounded, are shorter.
pub const MAX_RECORD: usize = 3 << 20;

/// Writes the start of a record to the buffer, up to the bodies. Returns the length of the whole record in bytes.
pub fn encode(row: &LogRow, buffer: &mut Vec<u8>) -> std::io::Result<u64> {
    buffer.clear();
    buffer.resize(HEADER_BYTES + LENGTH_BYTES, 0);
    serde_json::to_writer(&mut *buffer, row).map_err(std::io::Error::other)?;
    let meta = buffer.len() - HEADER_BYTES - LENGTH_BYTES;
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

/// Reads whole records from the start of `bytes` and returns how many bytes they take. Stops at the first record that
/// is incomplete or damaged.
pub fn read_records(bytes: &[u8], mut visit: impl FnMut(LogRow)) -> usize {
    let mut at = 0;
    while let Some((row, length)) = read_record(&bytes[at..]) {
        visit(row);
        at += length;
    }
    at
}

pub(super) fn read_record(bytes: &[u8]) -> Option<(LogRow, usize)> {
    let number = |at: usize| -> Option<usize> {
        let field: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(field)).ok()
    };
    let length = number(0)?;
    if !(LENGTH_BYTES..=MAX_RECORD).contains(&length) {
        return None;
    }
    let body = bytes.get(HEADER_BYTES..HEADER_BYTES + length)?;
    if crc32fast::hash(body) != u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?) {
        return None;
    }
    let (meta, request) = (number(8)?, number(12)?);
    let request_at = LENGTH_BYTES.checked_add(meta)?;
    let response_at = request_at.checked_add(request)?;
    let mut row: LogRow = serde_json::from_slice(body.get(LENGTH_BYTES..request_at)?).ok()?;
    row.request = body.get(request_at..response_at)?.to_vec();
    row.response = body.get(response_at..)?.to_vec();
    Some((row, HEADER_BYTES + length))
}

/// Writes the whole record with one system call. The loop continues after a short write.
pub fn write_all(file: &mut File, parts: [&[u8]; 3], total: u64) -> std::io::Result<()> {
    let mut slices = parts.map(IoSlice::new);
    let written = file.write_vectored(&slices)?;
    if written as u64 == total {
        return Ok(());
    }
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, written);
    while !rest.is_empty() {
        let written = file.write_vectored(rest)?;
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
