//! The spool: segment files to which rows are appended with one system call each, with a checksum. A row is safe from a
//! crash of the process before its caller sees the end of the response.

mod damage;
mod marker;
mod org_bytes;
mod recent;
mod record;
mod set_aside;
mod unspooled;

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gateway_core::ids::OrgId;
use gateway_core::logs::{BodyStorage, LogRow};
use gateway_store::faults::{DiskCall, Faults};
use gateway_store::org_owners::OrgOwners;

use super::barrier::ReadBarrier;
use marker::Marker;
use org_bytes::OrgBytes;
use recent::RecentBuffer;
pub use recent::RecentRows;
pub use record::{Records, read_records};
pub use set_aside::SetAside;

/// A segment of this size is closed. The writer deletes it once its rows are stored.
const SEGMENT_BYTES: u64 = 8 << 20;
/// The number of a lane's open segment if it has none.
const NO_SEGMENT: u64 = u64::MAX;
/// The size of all copies in memory of spooled rows.
const RECENT_BYTES: usize = 16 << 20;

pub struct Spool {
    /// Locked while this process runs. A second process would treat the open segments of the first as closed.
    _lock: File,
    directory: PathBuf,
    faults: Faults,
    marker: Marker,
    pub set_aside: SetAside,
    limit: u64,
    /// One open segment per worker thread, so that threads do not wait for each other. The writer, which runs at low
    /// priority, never takes these locks.
    lanes: Vec<Mutex<Lane>>,
    /// The number of each lane's open segment, readable without its lock.
    open_segments: Vec<AtomicU64>,
    /// The latest rows of each lane. Requests use `try_lock`, because the writer may hold these locks.
    recent: Vec<Mutex<RecentBuffer>>,
    next_segment: AtomicU64,
    /// The first segment of this process.
    first_segment: u64,
    /// Bytes on disk that are not stored yet.
    pending_bytes: AtomicU64,
    /// Of rows that this process appended, by organization and by owner.
    org_bytes: OrgBytes,
    /// Rows that the disk rejected, and their number.
    unspooled: Mutex<VecDeque<LogRow>>,
    unspooled_rows: AtomicUsize,
    is_writable: AtomicBool,
    /// When the last complete pass of the writer began. All rows that are not stored are younger.
    caught_up_at: Mutex<Instant>,
    pub shed_bodies: AtomicU64,
    pub shed_rows: AtomicU64,
    pub appended: AtomicU64,
    /// Knows which organizations have rows that are not stored yet.
    pub barrier: ReadBarrier,
}

#[derive(Default)]
struct Lane {
    segment: Option<OpenSegment>,
    buffer: Vec<u8>,
}

struct OpenSegment {
    file: File,
    number: u64,
    written: u64,
}

/// The place of a record in a segment.
#[derive(Clone, Copy)]
struct RecordSpan {
    segment: u64,
    start: u64,
    end: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFile {
    pub path: PathBuf,
    /// Rows may still be appended, so the file must not be deleted.
    pub is_open: bool,
    /// Its size in bytes when the segments were listed.
    pub length: u64,
}

impl Spool {
    /// An organization alone keeps its bodies up to seven eighths of `limit` bytes. While others have rows that are not
    /// stored yet, the bodies of an organization with more than its share are shed before, and one with little keeps its own
    /// up to the limit. Above twice the limit whole rows are shed.
    pub fn open(directory: PathBuf, lanes: usize, limit: u64) -> std::io::Result<Self> {
        std::fs::create_dir_all(&directory)?;
        let lock = File::create(directory.join("lock"))?;
        if lock.try_lock().is_err() {
            return Err(std::io::ErrorKind::ResourceBusy.into());
        }
        let existing = segment_paths(&directory)?;
        let next_segment = existing.last().and_then(|path| segment_number(path)).map_or(0, |last| last + 1);
        let pending_bytes: u64 =
            existing.iter().filter_map(|path| path.metadata().ok()).map(|meta| meta.len()).sum();
        let lanes = lanes.max(1);
        let recent = || Mutex::new(RecentBuffer::with_limit(RECENT_BYTES / lanes));
        Ok(Self {
            _lock: lock,
            marker: Marker::open(&directory),
            set_aside: SetAside::open(&directory)?,
            directory,
            faults: Faults::default(),
            limit,
            lanes: (0..lanes).map(|_| Mutex::default()).collect(),
            open_segments: (0..lanes).map(|_| AtomicU64::new(NO_SEGMENT)).collect(),
            recent: (0..lanes).map(|_| recent()).collect(),
            next_segment: AtomicU64::new(next_segment),
            first_segment: next_segment,
            pending_bytes: AtomicU64::new(pending_bytes),
            org_bytes: OrgBytes::default(),
            unspooled: Mutex::default(),
            unspooled_rows: AtomicUsize::new(0),
            is_writable: AtomicBool::new(true),
            caught_up_at: Mutex::new(Instant::now()),
            shed_bodies: AtomicU64::new(0),
            shed_rows: AtomicU64::new(0),
            appended: AtomicU64::new(0),
            barrier: ReadBarrier::new(lanes, pending_bytes > 0),
        })
    }

    /// What organizations of one owner have in the spool counts together.
    #[must_use]
    pub fn sharing_by(self, owners: &Arc<OrgOwners>) -> Self {
        Self { org_bytes: OrgBytes::sharing_by(owners), ..self }
    }

    /// Appends a row. Returns when it is in the page cache.
    pub fn append(&self, lane: usize, mut row: LogRow) {
        let pending = self.pending_bytes.load(Ordering::Relaxed);
        if pending > self.limit.saturating_mul(2) {
            self.shed_rows.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let bytes = body_bytes(&row);
        if bytes > 0 && !self.org_bytes.has_room(row.org_id, bytes, (pending, self.limit)) {
            self.shed(&mut row);
        }
        let (number, org) = (lane % self.lanes.len(), row.org_id);
        let mut lane = self.lanes[number].lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = self.write(number, &mut lane, &row);
        if written.is_err() && body_bytes(&row) > 0 {
            // A disk that is nearly full may still accept the row without its bodies.
            self.shed(&mut row);
            written = self.write(number, &mut lane, &row);
        }
        let is_in_memory = match written {
            Ok(span) => {
                self.is_writable.store(true, Ordering::Relaxed);
                self.pending_bytes.fetch_add(span.end - span.start, Ordering::Relaxed);
                self.appended.fetch_add(1, Ordering::Relaxed);
                // Under the lane's lock, so that rows are kept in the order in which they were written. If the writer
                // holds the lock, it reads this row from disk.
                let recent = self.recent[number].try_lock();
                let is_kept = recent.is_ok_and(|mut recent| recent.push(span, row));
                // Not before: the writer removes a closed segment and its rows in memory.
                if span.end >= SEGMENT_BYTES {
                    self.close(number, &mut lane);
                }
                is_kept
            }
            Err(error) => {
                self.keep_in_memory(row, &error);
                false
            }
        };
        self.barrier.appended(number, org, is_in_memory);
    }

    /// The faults that tests inject into the disk.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    pub fn is_healthy(&self) -> bool {
        self.is_writable() && self.backlog() <= self.limit
    }

    /// Bytes that are not stored yet.
    pub fn backlog(&self) -> u64 {
        self.pending_bytes.load(Ordering::Relaxed)
    }

    /// All rows that were appended before this moment are stored.
    pub fn set_caught_up(&self, at: Instant) {
        *self.caught_up_at.lock().unwrap_or_else(PoisonError::into_inner) = at;
        if self.backlog() == 0 {
            self.org_bytes.clear();
        }
    }

    /// For how long a row may have waited to be stored at most.
    pub fn oldest_age(&self) -> Duration {
        if self.backlog() == 0 && !self.has_unspooled() {
            return Duration::ZERO;
        }
        self.caught_up_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// All segments, oldest first.
    pub fn segments(&self) -> std::io::Result<Vec<SegmentFile>> {
        // List the files before reading the open numbers. A segment created later is not in the list, so an open
        // segment is never taken for a closed one. A listed one was marked open before its file existed, and stays so
        // until its last row is written.
        self.faults.disk(DiskCall::List)?;
        let all = segment_paths(&self.directory)?;
        let open: Vec<u64> = self.open_segments.iter().map(|number| number.load(Ordering::SeqCst)).collect();
        let is_open = |path: &Path| segment_number(path).is_some_and(|number| open.contains(&number));
        let segment = |path: PathBuf| {
            let length = path.metadata()?.len();
            Ok(SegmentFile { is_open: is_open(&path), path, length })
        };
        all.into_iter().map(segment).collect()
    }

    /// This many bytes of a segment are stored, or dropped.
    pub fn mark_stored(&self, bytes: u64) {
        let _ = self.pending_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |pending| {
            Some(pending.saturating_sub(bytes))
        });
    }

    /// Whether this process appended to the segment. Rows of earlier ones are not counted by organization.
    pub fn is_of_this_process(&self, segment: &Path) -> bool {
        segment_number(segment).is_some_and(|number| number >= self.first_segment)
    }

    /// So many of them are of an organization.
    pub fn mark_stored_of(&self, org: OrgId, bytes: u64) {
        self.org_bytes.subtract(org, bytes);
    }

    /// Takes the rows of a segment that are still in memory, from an offset on. `limits`: rows, and their bytes in the
    /// segment.
    pub fn take_recent(&self, segment: &Path, offset: u64, limits: (usize, u64)) -> RecentRows {
        let Some(segment) = segment_number(segment) else { return RecentRows::Empty };
        let lanes = 0..self.recent.len();
        let mut found = lanes.map(|lane| self.recent(lane).take(segment, offset, limits));
        found.find(|found| *found != RecentRows::Empty).unwrap_or(RecentRows::Empty)
    }

    /// Copies the rows of an organization that are in memory and may not be stored yet.
    pub fn recent_of(&self, org: OrgId) -> Vec<LogRow> {
        (0..self.recent.len()).flat_map(|lane| self.recent(lane).rows_of(org)).collect()
    }

    /// The size of these rows.
    pub fn recent_bytes_of(&self, org: OrgId) -> usize {
        (0..self.recent.len()).map(|lane| self.recent(lane).bytes_of(org)).sum()
    }

    /// Drops the copies in memory of a segment that was deleted.
    pub fn remove_recent(&self, segment: &Path) {
        if let Some(segment) = segment_number(segment) {
            (0..self.recent.len()).for_each(|lane| self.recent(lane).remove_segment(segment));
        }
    }

    /// Keeps the damaged bytes at an offset of a segment, at most `limit`, in a file of their own: those up to the next
    /// intact record, or in a closed segment up to its end. Returns how many. There are none at the end of the segment,
    /// and while a record may still be written.
    pub fn set_aside_damage(&self, segment: &SegmentFile, offset: u64, limit: u64) -> std::io::Result<u64> {
        if std::fs::metadata(&segment.path)?.len() <= offset {
            return Ok(0);
        }
        let bytes = std::fs::read(&segment.path)?;
        let Ok(start) = usize::try_from(offset) else { return Ok(0) };
        let end = match damage::next_record(&bytes, start, &self.marker) {
            Some(next) => next,
            None if segment.is_open => start,
            None => bytes.len(),
        };
        let end = end.min(start.saturating_add(usize::try_from(limit).unwrap_or(usize::MAX)));
        if end > start {
            self.set_aside.keep_damaged(&segment.path, offset, &bytes[start..end]);
        }
        Ok((end - start) as u64)
    }

    /// Keeps a row that the store rejects in a file of its own.
    pub fn quarantine(&self, row: &LogRow, reason: &str) -> std::io::Result<()> {
        let mut record = Vec::new();
        record::encode(row, &self.marker, &mut record)?;
        record.extend_from_slice(&row.request);
        record.extend_from_slice(&row.response);
        self.set_aside.quarantine(&record, reason)
    }

    fn write(&self, number: usize, lane: &mut Lane, row: &LogRow) -> std::io::Result<RecordSpan> {
        let length = record::encode(row, &self.marker, &mut lane.buffer)?;
        // Before the writer can read the row.
        self.org_bytes.add(row.org_id, length);
        let written = self.write_encoded(number, lane, row, length);
        if written.is_err() {
            self.org_bytes.subtract(row.org_id, length);
        }
        written
    }

    /// Writes the row whose record begins with what the buffer of the lane has.
    fn write_encoded(
        &self,
        number: usize,
        lane: &mut Lane,
        row: &LogRow,
        length: u64,
    ) -> std::io::Result<RecordSpan> {
        let segment = match &mut lane.segment {
            Some(segment) => segment,
            none => none.insert(self.new_segment(number)?),
        };
        let parts = [&lane.buffer[..], &row.request[..], &row.response[..]];
        if let Err(error) = record::write_all(&mut segment.file, parts, length, &self.faults) {
            // Nothing may follow a torn record. Without it, the segment is not taken for a damaged one.
            let _ = segment.file.set_len(segment.written);
            self.close(number, lane);
            return Err(error);
        }
        let span =
            RecordSpan { segment: segment.number, start: segment.written, end: segment.written + length };
        segment.written = span.end;
        Ok(span)
    }

    fn close(&self, number: usize, lane: &mut Lane) {
        lane.segment = None;
        self.open_segments[number].store(NO_SEGMENT, Ordering::SeqCst);
    }

    fn new_segment(&self, lane: usize) -> std::io::Result<OpenSegment> {
        let number = self.next_segment.fetch_add(1, Ordering::Relaxed);
        self.open_segments[lane].store(number, Ordering::SeqCst);
        Ok(OpenSegment { file: self.create_segment(number)?, number, written: 0 })
    }

    fn create_segment(&self, number: u64) -> std::io::Result<File> {
        let path = self.directory.join(format!("{number:016}.seg"));
        self.faults.disk(DiskCall::Create)?;
        OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)
    }

    fn shed(&self, row: &mut LogRow) {
        self.shed_bodies.fetch_add(1, Ordering::Relaxed);
        row.request = Vec::new();
        row.response = Vec::new();
        (row.request_stored, row.response_stored) = (BodyStorage::Off, BodyStorage::Off);
    }

    fn recent(&self, lane: usize) -> MutexGuard<'_, RecentBuffer> {
        self.recent[lane].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn body_bytes(row: &LogRow) -> u64 {
    (row.request.len() + row.response.len()) as u64
}

fn segment_paths(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(directory)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| segment_number(path).is_some())
        .collect();
    found.sort();
    Ok(found)
}

fn segment_number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_suffix(".seg")?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests;
