//! The spool: segment files to which rows are appended with one system call each, checksummed, so that a row is safe
//! from a crash of the process before its caller sees the end of the response.
//!
//! A record is `length (4) | crc32 (4) | meta length (4) | request length (4) | meta | request | response`; the
//! length counts what follows the checksum. A torn record at the end of a segment is one whose caller saw no end.

mod recent;

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gateway_core::logs::{BodyStorage, LogRow};

pub use recent::AtHand;
use recent::Recent;

const HEADER: usize = 8;
const LENGTHS: usize = 8;
/// A segment that has grown to this is closed; the writer removes it once its rows are in the store.
const SEGMENT_BYTES: u64 = 8 << 20;
/// No segment has this number.
const NONE: u64 = u64::MAX;
/// Rows that wait in memory when the disk refuses them.
const MEMORY_ROWS: usize = 10_000;
/// How much of what is on disk may be in memory as well.
const RECENT_BYTES: usize = 4 << 20;
/// A record longer than this is none of ours: two bodies at their limit and a row that is bounded in all its texts.
pub const MAX_RECORD: usize = 3 << 20;

pub struct Spool {
    /// Held while this process lives: two of them would take each other's segments for finished ones.
    _lock: File,
    directory: PathBuf,
    limit: u64,
    /// One open segment per worker thread, so that no one waits for another; nor for the writer, whose thread may be kept
    /// from giving a lock back.
    lanes: Vec<Mutex<Lane>>,
    /// The number of each lane's open segment, for the writer to look at.
    open: Vec<AtomicU64>,
    /// The latest rows of each lane.
    recent: Vec<Mutex<Recent>>,
    sequence: AtomicU64,
    /// Bytes on disk that are not in the store yet.
    pending: AtomicU64,
    /// Rows that the disk refused.
    stranded: Mutex<VecDeque<LogRow>>,
    healthy: AtomicBool,
    pub shed_bodies: AtomicU64,
    pub shed_rows: AtomicU64,
    pub appended: AtomicU64,
}

#[derive(Default)]
struct Lane {
    open: Option<Segment>,
    buffer: Vec<u8>,
}

struct Segment {
    file: File,
    number: u64,
    written: u64,
}

/// Where a record stands.
struct Place {
    segment: u64,
    begins: u64,
    ends: u64,
}

/// A segment that the writer may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readable {
    pub path: PathBuf,
    /// Still being appended to: it must not be removed.
    pub open: bool,
}

impl Spool {
    /// `limit` is in bytes: beyond it bodies are shed, beyond twice of it rows.
    pub fn open(directory: PathBuf, lanes: usize, limit: u64) -> std::io::Result<Self> {
        std::fs::create_dir_all(&directory)?;
        let lock = File::create(directory.join("lock"))?;
        if lock.try_lock().is_err() {
            return Err(std::io::Error::other("another gateway process is using it"));
        }
        let left_over = segments(&directory)?;
        let next = left_over.last().and_then(|path| sequence_of(path)).map_or(0, |last| last + 1);
        let pending = left_over.iter().filter_map(|path| path.metadata().ok()).map(|meta| meta.len()).sum();
        let lanes = lanes.max(1);
        let recent = || Mutex::new(Recent::with_limit(RECENT_BYTES / lanes));
        Ok(Self {
            _lock: lock,
            directory,
            limit,
            lanes: (0..lanes).map(|_| Mutex::default()).collect(),
            open: (0..lanes).map(|_| AtomicU64::new(NONE)).collect(),
            recent: (0..lanes).map(|_| recent()).collect(),
            sequence: AtomicU64::new(next),
            pending: AtomicU64::new(pending),
            stranded: Mutex::default(),
            healthy: AtomicBool::new(true),
            shed_bodies: AtomicU64::new(0),
            shed_rows: AtomicU64::new(0),
            appended: AtomicU64::new(0),
        })
    }

    /// Appends a row. Returns when it is in the page cache.
    pub fn append(&self, lane: usize, mut row: LogRow) {
        let pending = self.pending.load(Ordering::Relaxed);
        if pending > self.limit.saturating_mul(2) {
            self.shed_rows.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if pending > self.limit {
            self.shed(&mut row);
        }
        let number = lane % self.lanes.len();
        let mut lane = self.lanes[number].lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = self.write(number, &mut lane, &row);
        if written.is_err() && (!row.request.is_empty() || !row.response.is_empty()) {
            // A disk that is nearly full may still take the row without its bodies.
            self.shed(&mut row);
            written = self.write(number, &mut lane, &row);
        }
        match written {
            Ok(Place { segment, begins, ends }) => {
                self.healthy.store(true, Ordering::Relaxed);
                self.pending.fetch_add(ends - begins, Ordering::Relaxed);
                self.appended.fetch_add(1, Ordering::Relaxed);
                // While the lane is held, so that rows are kept in the order in which they were written. Not while the
                // writer takes some: then it reads this one from disk.
                if let Ok(mut recent) = self.recent[number].try_lock() {
                    recent.keep(segment, begins, ends, row);
                }
            }
            Err(error) => self.strand(row, &error),
        }
    }

    pub fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed) && self.pending.load(Ordering::Relaxed) <= self.limit
    }

    /// Bytes that wait for the store.
    pub fn backlog(&self) -> u64 {
        self.pending.load(Ordering::Relaxed)
    }

    /// Every segment, oldest first.
    pub fn readable(&self) -> std::io::Result<Vec<Readable>> {
        // Listed first: a segment that is begun afterwards is not in the list, and so never taken for a closed one. One that
        // is in the list was said to be open before its file was there, and is so until its last row is written.
        let all = segments(&self.directory)?;
        let open: Vec<u64> = self.open.iter().map(|number| number.load(Ordering::SeqCst)).collect();
        let is_open = |path: &Path| sequence_of(path).is_some_and(|number| open.contains(&number));
        Ok(all.into_iter().map(|path| Readable { open: is_open(&path), path }).collect())
    }

    /// The rows of a closed segment, or a part of an open one, are in the store.
    pub fn moved(&self, bytes: u64) {
        let _ = self.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |pending| {
            Some(pending.saturating_sub(bytes))
        });
    }

    /// What is in memory of a segment, `most` rows of it.
    pub fn at_hand(&self, segment: &Path, from: u64, most: usize) -> AtHand {
        let Some(segment) = sequence_of(segment) else { return AtHand::Nothing };
        let lanes = 0..self.recent.len();
        let mut found = lanes.map(|lane| self.recent(lane).take(segment, from, most));
        found.find(|found| *found != AtHand::Nothing).unwrap_or(AtHand::Nothing)
    }

    /// A segment was removed.
    pub fn forget(&self, segment: &Path) {
        let segment = sequence_of(segment);
        (0..self.recent.len())
            .for_each(|lane| segment.iter().for_each(|gone| self.recent(lane).forget(*gone)));
    }

    fn recent(&self, lane: usize) -> MutexGuard<'_, Recent> {
        self.recent[lane].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rows that could not be written to the disk.
    pub fn take_stranded(&self) -> Vec<LogRow> {
        self.stranded.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// Puts rows back that the store did not take either.
    pub fn put_back(&self, rows: Vec<LogRow>) {
        let mut stranded = self.stranded.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows.into_iter().rev() {
            stranded.push_front(row);
        }
    }

    fn write(&self, number: usize, lane: &mut Lane, row: &LogRow) -> std::io::Result<Place> {
        lane.buffer.clear();
        lane.buffer.resize(HEADER + LENGTHS, 0);
        serde_json::to_writer(&mut lane.buffer, row).map_err(std::io::Error::other)?;
        let meta = lane.buffer.len() - HEADER - LENGTHS;
        let length = LENGTHS + meta + row.request.len() + row.response.len();
        if length > MAX_RECORD {
            return Err(std::io::Error::other("a log row is too long"));
        }
        lane.buffer[8..12].copy_from_slice(&u32_of(meta).to_le_bytes());
        lane.buffer[12..16].copy_from_slice(&u32_of(row.request.len()).to_le_bytes());
        let mut crc = crc32fast::Hasher::new();
        crc.update(&lane.buffer[HEADER..]);
        crc.update(&row.request);
        crc.update(&row.response);
        lane.buffer[0..4].copy_from_slice(&u32_of(length).to_le_bytes());
        lane.buffer[4..8].copy_from_slice(&crc.finalize().to_le_bytes());
        let total = (HEADER + length) as u64;
        let segment = match &mut lane.open {
            Some(segment) => segment,
            none => none.insert(self.new_segment(number)?),
        };
        let parts = [&lane.buffer[..], &row.request[..], &row.response[..]];
        if let Err(error) = write_all(&mut segment.file, parts, total) {
            // What was written is torn; it must not be followed by more.
            self.close(number, lane);
            return Err(error);
        }
        let place = Place { segment: segment.number, begins: segment.written, ends: segment.written + total };
        segment.written = place.ends;
        if segment.written >= SEGMENT_BYTES {
            self.close(number, lane);
        }
        Ok(place)
    }

    fn close(&self, number: usize, lane: &mut Lane) {
        lane.open = None;
        self.open[number].store(NONE, Ordering::SeqCst);
    }

    fn new_segment(&self, lane: usize) -> std::io::Result<Segment> {
        let number = self.sequence.fetch_add(1, Ordering::Relaxed);
        self.open[lane].store(number, Ordering::SeqCst);
        let path = self.directory.join(format!("{number:016}.seg"));
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Segment { file, number, written: 0 })
    }

    fn shed(&self, row: &mut LogRow) {
        self.shed_bodies.fetch_add(1, Ordering::Relaxed);
        row.request = Vec::new();
        row.response = Vec::new();
        (row.request_stored, row.response_stored) = (BodyStorage::Off, BodyStorage::Off);
    }

    fn strand(&self, row: LogRow, error: &std::io::Error) {
        if self.healthy.swap(false, Ordering::Relaxed) {
            tracing::error!(%error, "the log spool cannot be written; rows wait in memory");
        }
        let mut stranded = self.stranded.lock().unwrap_or_else(PoisonError::into_inner);
        if stranded.len() < MEMORY_ROWS {
            stranded.push_back(row);
        } else {
            self.shed_rows.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Reads whole records from the beginning of `bytes`; answers how many bytes they took. Stops at the first record
/// that is incomplete or damaged.
pub fn read_records(bytes: &[u8], mut visit: impl FnMut(LogRow)) -> usize {
    let mut at = 0;
    while let Some((row, length)) = read_record(&bytes[at..]) {
        visit(row);
        at += length;
    }
    at
}

fn read_record(bytes: &[u8]) -> Option<(LogRow, usize)> {
    let number = |at: usize| -> Option<usize> {
        let field: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(field)).ok()
    };
    let length = number(0)?;
    if !(LENGTHS..=MAX_RECORD).contains(&length) {
        return None;
    }
    let body = bytes.get(HEADER..HEADER + length)?;
    if crc32fast::hash(body) != u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?) {
        return None;
    }
    let (meta, request) = (number(8)?, number(12)?);
    let request_at = LENGTHS.checked_add(meta)?;
    let response_at = request_at.checked_add(request)?;
    let mut row: LogRow = serde_json::from_slice(body.get(LENGTHS..request_at)?).ok()?;
    row.request = body.get(request_at..response_at)?.to_vec();
    row.response = body.get(response_at..)?.to_vec();
    Some((row, HEADER + length))
}

/// One system call for the whole record; the rest of a short write follows, should the kernel ever do one.
fn write_all(file: &mut File, parts: [&[u8]; 3], total: u64) -> std::io::Result<()> {
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

fn segments(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(directory)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| sequence_of(path).is_some())
        .collect();
    found.sort();
    Ok(found)
}

fn sequence_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_suffix(".seg")?.parse().ok()
}

fn u32_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
