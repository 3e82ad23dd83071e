//! Moves rows from the spool to the store in batches. A row is removed from the disk only after it is stored. The store
//! counts each id once, so a crash in between does no harm.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::logs::LogRow;
use gateway_store::{Db, StoreError, logs};

use super::BatchObserver;
use super::barrier::{Pass, PassEnd};
use super::pacing::{AdaptiveBatch, LoadMonitor, Pace};
use super::spool::{RecentRows, SegmentFile, Spool, read_records};
use crate::services::Services;

/// How often the spool is polled. Less often under load, because large batches cost less per row.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const BUSY_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The delay after a failure. It doubles up to the maximum.
const RETRY_DELAY: Duration = Duration::from_millis(250);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Rows in one transaction, except at the yielding pace.
const BATCH_ROWS: usize = 1_000;
/// How much of a segment is read at once. The longest record fits into `READ_BYTES`.
const READ_BYTES: u64 = 4 << 20;
const YIELDING_READ_BYTES: u64 = 256 << 10;

#[derive(Clone)]
pub struct LogWriter {
    pub services: Arc<Services>,
    pub spool: Arc<Spool>,
    pub observer: Arc<dyn BatchObserver>,
}

/// The least time between two passes that readers wait for, so that each stores the rows of several requests.
const MIN_READER_INTERVAL: Duration = Duration::from_millis(20);

struct Progress {
    /// How many bytes of each segment are stored.
    offsets: HashMap<PathBuf, u64>,
    load: LoadMonitor,
    batch: AdaptiveBatch,
}

impl Progress {
    fn new(spool: &Spool) -> Self {
        Self { offsets: HashMap::new(), load: LoadMonitor::new(spool), batch: AdaptiveBatch::default() }
    }

    fn offset(&self, segment: &SegmentFile) -> u64 {
        self.offsets.get(&segment.path).copied().unwrap_or(0)
    }
}

#[derive(Debug, thiserror::Error)]
enum DrainError {
    #[error("cannot read the spool: {0}")]
    Disk(#[from] std::io::Error),
    #[error("cannot store log rows: {0}")]
    Store(#[from] StoreError),
}

impl LogWriter {
    /// Runs on the main runtime until the last request has ended, then moves the remaining rows.
    pub async fn run(self) {
        let (tasks, barrier) = (&self.services.tasks, &self.spool.barrier);
        let mut progress = Progress::new(&self.spool);
        let mut retry_delay = RETRY_DELAY;
        loop {
            let is_last = tasks.is_drained();
            let started = Instant::now();
            let pass = barrier.begin_pass();
            let (drained, returned) = self.run_pass(pass, progress).await;
            progress = returned;
            barrier.end_pass(pass, *drained.as_ref().unwrap_or(&PassEnd::Failed));
            match drained {
                Ok(PassEnd::Complete) if is_last => return,
                Ok(PassEnd::Complete) => {
                    retry_delay = RETRY_DELAY;
                    let is_busy = progress.load.pace(&self.spool) == Pace::Yielding;
                    let interval = if is_busy { BUSY_POLL_INTERVAL } else { POLL_INTERVAL };
                    // A reader that polls in a loop leaves half of the time to others.
                    let pause = if pass.has_readers {
                        started.elapsed().clamp(MIN_READER_INTERVAL, interval)
                    } else {
                        Duration::ZERO
                    };
                    self.sleep(interval, pause).await;
                }
                Ok(PassEnd::Interrupted | PassEnd::Failed) => {}
                Err(error) if is_last => {
                    tracing::warn!(%error, "log rows stay in the spool until the next start");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, retry_ms = retry_delay.as_millis(), "log rows stay in the spool; retrying");
                    self.sleep(retry_delay, RETRY_DELAY).await;
                    retry_delay = (retry_delay * 2).min(MAX_RETRY_DELAY);
                }
            }
        }
    }

    /// Sleeps until the interval has passed or the last request has ended. A reader ends it early, after the pause.
    async fn sleep(&self, interval: Duration, pause: Duration) {
        let reader = async {
            tokio::time::sleep(pause).await;
            self.spool.barrier.reader().await;
        };
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = self.services.tasks.drained() => {}
            () = reader => {}
        }
    }

    /// Runs a pass in a task of its own: at low priority unless readers or the shutdown wait for it.
    async fn run_pass(&self, pass: Pass, mut progress: Progress) -> (Result<PassEnd, DrainError>, Progress) {
        let (tasks, writer) = (&self.services.tasks, self.clone());
        let drain = async move { (writer.drain(&mut progress, pass).await, progress) };
        let task = if pass.has_readers || tasks.is_stopping() {
            tasks.runtime.spawn(drain)
        } else {
            tasks.low_priority_runtime().spawn(drain)
        };
        // After a panic the segments are read from their start. The store skips the rows that it has.
        task.await.unwrap_or_else(|error| {
            (Err(StoreError::Other(error.to_string()).into()), Progress::new(&self.spool))
        })
    }

    /// Moves everything that was appended before the pass began.
    async fn drain(&self, progress: &mut Progress, pass: Pass) -> Result<PassEnd, DrainError> {
        if !self.spool.is_writable() {
            // Without this, the spool would count as broken until the next request.
            let spool = Arc::clone(&self.spool);
            let _ = blocking(move || spool.probe()).await;
        }
        if self.spool.has_unspooled() {
            self.move_unspooled(pass).await?;
        }
        let spool = Arc::clone(&self.spool);
        for segment in blocking(move || spool.segments()).await? {
            // Rows may arrive faster than they are stored, but the pass must end.
            let end = if segment.is_open { segment.length } else { u64::MAX };
            while progress.offset(&segment) < end && self.move_batch(progress, &segment, pass).await? {
                if !pass.has_readers && self.spool.barrier.has_readers() {
                    return Ok(PassEnd::Interrupted);
                }
            }
        }
        Ok(PassEnd::Complete)
    }

    /// Moves the rows that wait in memory to the disk, or to the store if the disk still rejects them.
    async fn move_unspooled(&self, pass: Pass) -> Result<(), DrainError> {
        // Requests wait for this lock, so it must not be taken on a low-priority thread.
        let spool = Arc::clone(&self.spool);
        let mut rows = self.on_main_runtime(async move { Ok(spool.take_unspooled()) }).await?;
        if self.spool.is_writable() {
            let spool = Arc::clone(&self.spool);
            match blocking(move || Ok(spool.respool(rows))).await? {
                Ok(()) => return Ok(()),
                Err(left) => rows = left,
            }
        }
        let rows = Arc::new(rows);
        let pace = if pass.has_readers { Pace::Urgent } else { Pace::Normal };
        let stored = self.store_at_pace(Arc::clone(&rows), pace).await;
        if stored.is_err() {
            let spool = Arc::clone(&self.spool);
            let put_back = async move {
                spool.put_back_unspooled(Arc::unwrap_or_clone(rows));
                Ok(())
            };
            self.on_main_runtime(put_back).await?;
        }
        Ok(stored?)
    }

    /// Moves the next rows of a segment. Returns false if there are none for now.
    async fn move_batch(
        &self,
        progress: &mut Progress,
        segment: &SegmentFile,
        pass: Pass,
    ) -> Result<bool, DrainError> {
        let is_urgent = pass.has_readers || self.services.tasks.is_stopping();
        let pace = if is_urgent { Pace::Urgent } else { progress.load.pace(&self.spool) };
        let (read_bytes, batch_rows) = match pace {
            Pace::Yielding => (YIELDING_READ_BYTES, progress.batch.rows()),
            // Readers may search, so the rows are indexed at once.
            _ if pass.has_readers => (READ_BYTES, logs::MAX_INLINE_INDEXED),
            Pace::Normal | Pace::Urgent => (READ_BYTES, BATCH_ROWS),
        };
        let offset = progress.offset(segment);
        let (mut rows, length) = match self.spool.take_recent(&segment.path, offset, batch_rows) {
            RecentRows::Rows(rows, length) => (rows, length),
            RecentRows::StartsAfter(bytes) => read_some(&segment.path, offset, read_bytes, bytes).await?,
            RecentRows::Empty => read_some(&segment.path, offset, read_bytes, u64::MAX).await?,
        };
        if rows.is_empty() {
            // Deleting a file may take a while. The next pass without readers does it.
            if !segment.is_open && !pass.has_readers {
                self.remove(progress, segment, offset)?;
            }
            return Ok(false);
        }
        while !rows.is_empty() {
            let batch: Vec<LogRow> = rows.drain(..rows.len().min(batch_rows)).collect();
            let (count, started) = (batch.len(), Instant::now());
            self.store_at_pace(Arc::new(batch), pace).await?;
            if pace == Pace::Yielding {
                progress.batch.record(count, started.elapsed(), logs::MAX_INLINE_INDEXED);
            }
        }
        self.spool.mark_stored(length);
        progress.offsets.insert(segment.path.clone(), offset + length);
        Ok(true)
    }

    async fn store_at_pace(&self, rows: Arc<Vec<LogRow>>, pace: Pace) -> Result<(), StoreError> {
        match pace {
            // A starved low-priority thread would let the disk fill up.
            Pace::Urgent => {
                let writer = self.clone();
                self.on_main_runtime(async move { writer.store(rows, &writer.services.logs).await }).await
            }
            Pace::Yielding | Pace::Normal => self.store(rows, &self.services.logs_low_priority).await,
        }
    }

    async fn store(&self, rows: Arc<Vec<LogRow>>, logs: &Db) -> Result<(), StoreError> {
        let (observer, batch) = (Arc::clone(&self.observer), Arc::clone(&rows));
        let announce = async move {
            observer.write_started(&batch);
            Ok(())
        };
        self.on_main_runtime(announce).await?;
        let new = logs::write_batch(logs, &rows).await?;
        let observer = Arc::clone(&self.observer);
        self.on_main_runtime(async move { observer.stored(rows, new).await }).await
    }

    /// Runs code that takes locks which requests wait for. A low-priority thread may be suspended while it holds one.
    async fn on_main_runtime<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let done = self.services.tasks.runtime.spawn(task).await;
        done.map_err(|error| StoreError::Other(error.to_string()))?
    }

    /// All whole records of a closed segment are stored. Bytes after the last one are a torn record.
    fn remove(&self, progress: &mut Progress, segment: &SegmentFile, offset: u64) -> std::io::Result<()> {
        let size = std::fs::metadata(&segment.path)?.len();
        if size > offset {
            tracing::warn!(
                bytes = size - offset,
                segment = %segment.path.display(),
                "dropped a torn log record"
            );
            self.spool.mark_stored(size - offset);
        }
        std::fs::remove_file(&segment.path)?;
        progress.offsets.remove(&segment.path);
        self.spool.remove_recent(&segment.path);
        Ok(())
    }
}

/// Reads records from a segment, at most `limit` bytes. Reads more than `read_bytes` if not even one record fits.
async fn read_some(
    path: &Path,
    offset: u64,
    read_bytes: u64,
    limit: u64,
) -> std::io::Result<(Vec<LogRow>, u64)> {
    let path = path.to_owned();
    let read = move || match read_from(&path, offset, read_bytes.min(limit))? {
        (rows, _) if rows.is_empty() && read_bytes < READ_BYTES.min(limit) => {
            read_from(&path, offset, READ_BYTES.min(limit))
        }
        found => Ok(found),
    };
    blocking(read).await
}

/// Runs file operations on a thread for blocking work, with the priority of the calling thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

fn read_from(path: &Path, offset: u64, limit: u64) -> std::io::Result<(Vec<LogRow>, u64)> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    let mut rows = Vec::new();
    let length = read_records(&bytes, |row| rows.push(row));
    Ok((rows, length as u64))
}
