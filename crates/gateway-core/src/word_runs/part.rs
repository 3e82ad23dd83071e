//! A part of a run: `number of keys | keys, 6 bytes each in ascending order | lengths | lists of rows`. A length counts
//! the bytes of the key's list, and its lowest bit says how the list is encoded: as the differences of the rows, or as
//! one bit for each row of the run if that is shorter.

use super::{MAX_ROWS, Posting};
use crate::packed::{Malformed, put_varint, take, take_length, take_varint};

const KEY_BYTES: usize = 6;

/// Encodes postings, which are in ascending order without duplicates, of a run with this many rows.
pub fn encode_part(postings: &[Posting], rows: usize) -> Vec<u8> {
    let mut lists: Vec<u8> = Vec::with_capacity(postings.len() * 2);
    let mut lengths: Vec<u8> = Vec::new();
    let mut keys: Vec<u8> = Vec::new();
    let mut count = 0;
    for of_key in postings.chunk_by(|one, other| one.key() == other.key()) {
        count += 1;
        keys.extend(of_key.first().map_or(0, |posting| posting.key()).to_be_bytes().iter().skip(2));
        let (length, is_bitmap) = put_list(&mut lists, of_key, rows);
        put_varint(&mut lengths, (length as u64) << 1 | u64::from(is_bitmap));
    }
    let mut part = Vec::with_capacity(4 + keys.len() + lengths.len() + lists.len());
    put_varint(&mut part, count);
    part.extend(keys);
    part.extend(lengths);
    part.extend(lists);
    part
}

/// Appends the rows of a key. Returns the length, and whether the list is a bitmap.
fn put_list(lists: &mut Vec<u8>, postings: &[Posting], rows: usize) -> (usize, bool) {
    let (start, bitmap) = (lists.len(), rows.div_ceil(8));
    let (mut last, mut left) = (0, postings);
    while let [first, rest @ ..] = left
        && lists.len() - start + left.len() <= bitmap.max(1)
    {
        put_varint(lists, u64::from(first.row() - last));
        (last, left) = (first.row(), rest);
    }
    if left.is_empty() {
        return (lists.len() - start, false);
    }
    lists.truncate(start);
    lists.resize(start + bitmap, 0);
    for posting in postings {
        if let Some(byte) = lists.get_mut(start + usize::from(posting.row() / 8)) {
            *byte |= 1 << (posting.row() % 8);
        }
    }
    (bitmap, true)
}

/// The rows that contain the word with this key, in ascending order.
pub fn rows_with(part: &[u8], key: u64) -> Result<Vec<u16>, Malformed> {
    let mut rest = part;
    let keys = take_keys(&mut rest)?;
    let Ok(at) = keys.binary_search_by_key(&key, |bytes| key_from(*bytes)) else { return Ok(Vec::new()) };
    let (mut skipped, mut own) = (0_usize, 0);
    for number in 0..keys.len() {
        let length = take_length(&mut rest)?;
        match number.cmp(&at) {
            std::cmp::Ordering::Less => skipped = skipped.saturating_add(length >> 1),
            std::cmp::Ordering::Equal => own = length,
            std::cmp::Ordering::Greater => {}
        }
    }
    take(&mut rest, skipped)?;
    let list = take(&mut rest, own >> 1)?;
    let mut rows = Vec::new();
    read_list(list, own & 1 == 1, |row| rows.push(row))?;
    Ok(rows)
}

/// All postings of a part, in ascending order.
pub fn read_part(part: &[u8], mut each: impl FnMut(Posting)) -> Result<(), Malformed> {
    let mut rest = part;
    let keys = take_keys(&mut rest)?;
    let mut lengths = rest;
    for _ in keys {
        take_varint(&mut rest)?;
    }
    for key in keys {
        let length = take_length(&mut lengths)?;
        let list = take(&mut rest, length >> 1)?;
        read_list(list, length & 1 == 1, |row| each(Posting::new(key_from(*key), row)))?;
    }
    Ok(())
}

fn take_keys<'a>(rest: &mut &'a [u8]) -> Result<&'a [[u8; KEY_BYTES]], Malformed> {
    let count = take_length(rest)?;
    let length = count.checked_mul(KEY_BYTES).ok_or(Malformed("too many keys"))?;
    Ok(take(rest, length)?.as_chunks().0)
}

fn key_from(bytes: [u8; KEY_BYTES]) -> u64 {
    bytes.iter().fold(0, |key, byte| key << 8 | u64::from(*byte))
}

fn read_list(mut list: &[u8], is_bitmap: bool, mut each: impl FnMut(u16)) -> Result<(), Malformed> {
    if is_bitmap {
        if list.len() > MAX_ROWS / 8 {
            return Err(Malformed("a bitmap is too long"));
        }
        for (byte, first) in list.iter().zip((0..=u16::MAX).step_by(8)) {
            (0..8_u16).filter(|bit| byte >> bit & 1 == 1).for_each(|bit| each(first + bit));
        }
        return Ok(());
    }
    let mut row = 0_u64;
    while !list.is_empty() {
        row = row.saturating_add(take_varint(&mut list)?);
        each(u16::try_from(row).map_err(|_| Malformed("a row is not in the run"))?);
    }
    Ok(())
}
