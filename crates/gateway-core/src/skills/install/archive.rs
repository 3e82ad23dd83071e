//! Archives whose bytes depend on nothing but the files: fixed times and owners, the given order, and no compression,
//! because the output of a compressor changes between its versions and with it the checksum that hosts have stored.

use crc32fast::hash as crc32;

/// One file of an archive.
#[derive(Debug, Clone)]
pub struct ArchiveFile<'a> {
    /// At most 255 bytes, with a slash at or before byte 155 if it is longer than 100.
    pub path: String,
    pub bytes: &'a [u8],
    pub executable: bool,
}

const TAR_BLOCK: usize = 512;
/// Bytes of an uncompressed block of gzip.
const STORED_BLOCK: usize = 0xffff;
/// 1980-01-01 in the format of zip.
const ZIP_DATE: u16 = 0x21;

fn mode(executable: bool) -> u32 {
    if executable { 0o100_755 } else { 0o100_644 }
}

/// A tar archive in the ustar format, in a gzip container.
pub fn tar_gz(files: &[ArchiveFile<'_>]) -> Vec<u8> {
    let mut tar = Vec::new();
    for file in files {
        tar.extend_from_slice(&tar_head(file));
        tar.extend_from_slice(file.bytes);
        tar.resize(tar.len().next_multiple_of(TAR_BLOCK), 0);
    }
    tar.resize(tar.len() + 2 * TAR_BLOCK, 0);
    gzip(&tar)
}

fn tar_head(file: &ArchiveFile<'_>) -> [u8; TAR_BLOCK] {
    let mut head = [0; TAR_BLOCK];
    let (prefix, name) = split_path(&file.path);
    put(&mut head, 0, 100, name.as_bytes());
    put(&mut head, 100, 8, format!("{:07o}", mode(file.executable) & 0o777).as_bytes());
    put(&mut head, 108, 8, b"0000000");
    put(&mut head, 116, 8, b"0000000");
    put(&mut head, 124, 12, format!("{:011o}", file.bytes.len()).as_bytes());
    put(&mut head, 136, 12, b"00000000000");
    put(&mut head, 148, 8, b"        ");
    head[156] = b'0';
    put(&mut head, 257, 8, b"ustar\x0000");
    put(&mut head, 345, 155, prefix.as_bytes());
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut head, 148, 8, format!("{sum:06o}\0 ").as_bytes());
    head
}

fn put(head: &mut [u8; TAR_BLOCK], at: usize, length: usize, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(length)];
    head[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The two fields of a path: what precedes a slash, and at most 100 bytes after it.
fn split_path(path: &str) -> (&str, &str) {
    if path.len() <= 100 {
        return ("", path);
    }
    let fits = |(at, _): &(usize, &str)| path.len() - at - 1 <= 100;
    match path.match_indices('/').find(fits) {
        Some((at, _)) => (&path[..at], &path[at + 1..]),
        None => ("", path),
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = Vec::with_capacity(bytes.len() + bytes.len() / STORED_BLOCK * 5 + 32);
    gzip.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]);
    let mut blocks = bytes.chunks(STORED_BLOCK).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        gzip.push(u8::from(blocks.peek().is_none()));
        gzip.extend_from_slice(&length.to_le_bytes());
        gzip.extend_from_slice(&(!length).to_le_bytes());
        gzip.extend_from_slice(block);
    }
    gzip.extend_from_slice(&crc32(bytes).to_le_bytes());
    gzip.extend_from_slice(&low32(bytes.len()).to_le_bytes());
    gzip
}

/// A zip archive with the Unix modes of its files.
pub fn zip(files: &[ArchiveFile<'_>]) -> Vec<u8> {
    let (mut zip, mut directory) = (Vec::new(), Vec::new());
    for file in files {
        let offset = low32(zip.len());
        let fields = zip_fields(file);
        zip.extend_from_slice(b"PK\x03\x04");
        zip.extend_from_slice(&fields);
        zip.extend_from_slice(&[0, 0]);
        zip.extend_from_slice(file.path.as_bytes());
        zip.extend_from_slice(file.bytes);
        // Made by version 2.0 on Unix, so that readers use the mode.
        directory.extend_from_slice(b"PK\x01\x02\x14\x03");
        directory.extend_from_slice(&fields);
        directory.extend_from_slice(&[0; 8]);
        directory.extend_from_slice(&(mode(file.executable) << 16).to_le_bytes());
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(file.path.as_bytes());
    }
    let (start, count) = (low32(zip.len()), u16::try_from(files.len()).unwrap_or(u16::MAX));
    zip.extend_from_slice(&directory);
    zip.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    zip.extend_from_slice(&count.to_le_bytes());
    zip.extend_from_slice(&count.to_le_bytes());
    zip.extend_from_slice(&low32(directory.len()).to_le_bytes());
    zip.extend_from_slice(&start.to_le_bytes());
    zip.extend_from_slice(&[0, 0]);
    zip
}

/// The fields that a file's own header and its line in the directory share, up to the length of the name.
fn zip_fields(file: &ArchiveFile<'_>) -> Vec<u8> {
    let size = low32(file.bytes.len()).to_le_bytes();
    let name = u16::try_from(file.path.len()).unwrap_or(u16::MAX);
    let mut fields = Vec::with_capacity(24);
    // Version 2.0, names in UTF-8, stored, midnight.
    fields.extend_from_slice(&[20, 0, 0, 8, 0, 0, 0, 0]);
    fields.extend_from_slice(&ZIP_DATE.to_le_bytes());
    fields.extend_from_slice(&crc32(file.bytes).to_le_bytes());
    fields.extend_from_slice(&size);
    fields.extend_from_slice(&size);
    fields.extend_from_slice(&name.to_le_bytes());
    fields
}

/// Trees are bounded far below four gigabytes.
fn low32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
