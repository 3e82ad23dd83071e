//! Moves rows from the spool to the store in batches. A row is removed from the disk only after it is stored. The store
//! counts each id once, so a crash in between does no harm.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::logs::LogRow;
use gateway_store::faults::{DiskCall, KillPoint, kill_point};
use gateway_store::logs::BatchTexts;
use gateway_store::{Db, StoreError, logs};

use super::BatchObserver;
use super::barrier::{Pass, PassEnd};
use super::follow_up::FollowUp;
use super::gather::{Gathered, Next};
use super::pacing::{AdaptiveBatch, LoadMonitor, Pace};
use super::quotas::LogQuotas;
use super::spool::{Records, SegmentFile, Spool, read_records};
use crate::services::Services;

/// How often the spool is polled. Less often under load, because large batches cost less per row.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const BUSY_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The delay after a failure. It doubles up to the maximum.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(250);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// The longest record fits into this.
const READ_BYTES: u64 = 4 << 20;

#[derive(Clone)]
pub struct LogWriter {
    pub services: Arc<Services>,
    pub spool: Arc<Spool>,
    pub observer: Arc<dyn BatchObserver>,
    pub quotas: Arc<LogQuotas>,
}

/// The pause after a pass that readers waited for, so that each stores the rows of several requests. It does not grow with
/// the time of the pass: on a busy machine that is mostly the time until a thread runs, and readers would wait for it
/// three times.
const READER_PAUSE: Duration = Duration::from_millis(20);

/// Bodies of this size are read on the threads for blocking work, because reading them takes milliseconds.
const LARGE_BODIES: usize = 64 << 10;

pub(super) struct Progress {
    /// How many bytes of each segment are stored.
    pub(super) offsets: HashMap<PathBuf, u64>,
    load: LoadMonitor,
    pub(super) batch: AdaptiveBatch,
    /// When the last complete pass began. All rows that are not stored are younger.
    caught_up_at: Instant,
    /// The current pass runs on a low-priority thread.
    is_low_priority: bool,
    /// No row was taken from memory without being stored.
    pub(super) is_memory_complete: bool,
    /// Rows that were stored before the pass came to them.
    pub(super) stored_early: HashSet<i64>,
    follow_up: FollowUp,
}

impl Progress {
    fn new(spool: &Spool) -> Self {
        Self {
            offsets: HashMap::new(),
            load: LoadMonitor::new(spool),
            batch: AdaptiveBatch::default(),
            caught_up_at: Instant::now(),
            is_low_priority: false,
            is_memory_complete: true,
            stored_early: HashSet::new(),
            follow_up: FollowUp::default(),
        }
    }

    fn pace(&mut self, spool: &Spool) -> Pace {
        self.load.pace(spool, self.caught_up_at.elapsed())
    }

    pub(super) fn offset(&self, segment: &Path) -> u64 {
        self.offsets.get(segment).copied().unwrap_or(0)
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum DrainError {
    #[error("cannot use the spool: {0}")]
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
                Ok(PassEnd::Complete) if is_last => {
                    if let Err(error) = self.finish_follow_up(&mut progress.follow_up).await {
                        tracing::warn!(%error, "stored log rows were not sampled");
                    }
                    return;
                }
                Ok(PassEnd::Complete) => {
                    retry_delay = RETRY_DELAY;
                    progress.is_memory_complete = true;
                    progress.caught_up_at = started;
                    self.spool.set_caught_up(started);
                    let is_busy = progress.pace(&self.spool) == Pace::Yielding;
                    let interval = if is_busy { BUSY_POLL_INTERVAL } else { POLL_INTERVAL };
                    let pause = if pass.has_readers { READER_PAUSE } else { Duration::ZERO };
                    self.sleep(interval, pause).await;
                }
                Ok(PassEnd::Interrupted | PassEnd::Failed) => {}
                Err(error) if is_last => {
                    tracing::warn!(%error, "log rows stay in the spool until the next start");
                    return;
                }
                Err(error) => {
                    progress.is_memory_complete = false;
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

    /// Runs a pass in a task of its own, at low priority while requests need the CPU.
    async fn run_pass(&self, pass: Pass, mut progress: Progress) -> (Result<PassEnd, DrainError>, Progress) {
        let (tasks, writer) = (&self.services.tasks, self.clone());
        let is_low_priority = self.pace(&mut progress, pass) == Pace::Yielding;
        progress.is_low_priority = is_low_priority;
        let drain = async move { (writer.drain(&mut progress, pass).await, progress) };
        let task = if is_low_priority {
            tasks.low_priority_runtime().spawn(drain)
        } else {
            tasks.runtime.spawn(drain)
        };
        // After a panic the segments are read from their start. The store skips the rows that it has.
        task.await.unwrap_or_else(|error| {
            (Err(StoreError::Other(error.to_string()).into()), Progress::new(&self.spool))
        })
    }

    pub(super) fn pace(&self, progress: &mut Progress, pass: Pass) -> Pace {
        let is_awaited = pass.has_readers || self.services.tasks.is_stopping();
        if is_awaited { Pace::Urgent } else { progress.pace(&self.spool) }
    }

    /// Moves everything that was appended before the pass began.
    async fn drain(&self, progress: &mut Progress, pass: Pass) -> Result<PassEnd, DrainError> {
        if !self.spool.is_writable() {
            // Without this, the spool would count as broken until the next request.
            let spool = Arc::clone(&self.spool);
            let _ = blocking(move || spool.probe()).await;
        }
        if self.spool.set_aside.has_quarantine() {
            let spool = Arc::clone(&self.spool);
            blocking(move || spool.set_aside.look_again()).await?;
        }
        if self.spool.has_unspooled() {
            self.move_unspooled(pass).await?;
        }
        let spool = Arc::clone(&self.spool);
        let mut gathered = Gathered::default();
        for segment in blocking(move || spool.segments()).await? {
            // Rows may arrive faster than they are stored, but the pass must end.
            let end = if segment.is_open { segment.length } else { u64::MAX };
            loop {
                // Gathered rows are no longer among those in memory.
                if gathered.is_empty() {
                    self.store_waiting(progress).await?;
                }
                if gathered.offset(progress, &segment) >= end {
                    break;
                }
                let next = self.gather(progress, &mut gathered, (&segment, pass)).await?;
                if matches!(next, Next::Rows) && !self.is_full(progress, &gathered, pass) {
                    continue;
                }
                self.store_gathered(progress, &mut gathered, pass).await?;
                if let Next::Unreadable { offset, limit } = next
                    && !self.skip_damage(progress, &segment, (offset, limit)).await?
                {
                    break;
                }
                self.start_follow_up(&mut progress.follow_up).await?;
                let is_late = progress.is_low_priority && progress.pace(&self.spool) == Pace::Urgent;
                if is_late || (!pass.has_readers && self.spool.barrier.has_readers()) {
                    return Ok(PassEnd::Interrupted);
                }
            }
        }
        self.store_gathered(progress, &mut gathered, pass).await?;
        self.start_follow_up(&mut progress.follow_up).await?;
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
        let pace = if pass.has_readers { Pace::Urgent } else { Pace::Normal };
        let stored = self.store_or_set_aside(rows.clone(), pace).await;
        if stored.is_err() {
            let spool = Arc::clone(&self.spool);
            let put_back = async move {
                spool.put_back_unspooled(rows);
                Ok(())
            };
            self.on_main_runtime(put_back).await?;
        }
        stored
    }

    /// No record can be read at the offset. Skips damaged bytes up to the limit. At the end of a closed segment, removes
    /// it and returns false.
    async fn skip_damage(
        &self,
        progress: &mut Progress,
        segment: &SegmentFile,
        (offset, limit): (u64, u64),
    ) -> Result<bool, DrainError> {
        let (spool, damaged) = (Arc::clone(&self.spool), segment.clone());
        let length = blocking(move || spool.set_aside_damage(&damaged, offset, limit)).await?;
        if length > 0 {
            self.spool.mark_stored(length);
            progress.offsets.insert(segment.path.clone(), offset + length);
            return Ok(true);
        }
        if !segment.is_open {
            self.finish_follow_up(&mut progress.follow_up).await?;
            self.remove(progress, segment, offset).await?;
        }
        Ok(false)
    }

    pub(super) async fn store_at_pace(&self, rows: Arc<Vec<LogRow>>, pace: Pace) -> Result<(), StoreError> {
        match pace {
            // Other programs may keep a low-priority thread from running: it is used only to leave the CPU to requests.
            Pace::Normal | Pace::Urgent => {
                let writer = self.clone();
                let store = async move { writer.store(rows, &writer.services.logs, pace).await };
                self.on_main_runtime(store).await
            }
            Pace::Yielding => self.store(rows, &self.services.logs_low_priority, pace).await,
        }
    }

    async fn store(&self, rows: Arc<Vec<LogRow>>, logs: &Db, pace: Pace) -> Result<(), StoreError> {
        let (observer, batch, quotas) =
            (Arc::clone(&self.observer), Arc::clone(&rows), Arc::clone(&self.quotas));
        let announce = async move {
            observer.write_started(&batch);
            Ok(quotas.limits(&batch).await)
        };
        let limits = self.on_main_runtime(announce).await?;
        kill_point(KillPoint::BatchAnnounced);
        let texts = self.texts_of(&rows, pace).await?;
        let written = if let Some(written) = logs::write_prepared(logs, &rows, texts, &limits).await? {
            written
        } else {
            let texts = self.texts_of(&rows, pace).await?;
            logs::write_exclusively(logs, &rows, texts, &limits).await?
        };
        let (observer, quotas) = (Arc::clone(&self.observer), Arc::clone(&self.quotas));
        let observe = async move {
            quotas.record(&written);
            observer.stored(rows, written);
            Ok(())
        };
        self.on_main_runtime(observe).await?;
        kill_point(KillPoint::BatchObserved);
        Ok(())
    }

    /// What is derived from the bodies. Requests are served by the threads of the main runtime, so a large body is not
    /// read there.
    async fn texts_of(&self, rows: &Arc<Vec<LogRow>>, pace: Pace) -> Result<BatchTexts, StoreError> {
        let size: usize = rows.iter().map(|row| row.request.len() + row.response.len()).sum();
        if pace == Pace::Yielding || size < LARGE_BODIES {
            return Ok(BatchTexts::of(rows));
        }
        let rows = Arc::clone(rows);
        // A panic may be the row's fault.
        let texts = tokio::task::spawn_blocking(move || BatchTexts::of(&rows)).await;
        texts.map_err(|error| StoreError::Other(error.to_string()))
    }

    /// Runs code that takes locks which requests wait for. A low-priority thread may be suspended while it holds one.
    pub(super) async fn on_main_runtime<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        // A panic may be the row's fault. A task that is cancelled at the shutdown is not.
        self.services.tasks.runtime.spawn(task).await.map_err(|error| {
            if error.is_panic() {
                StoreError::Other(error.to_string())
            } else {
                StoreError::Unavailable(error.to_string())
            }
        })?
    }

    /// All of a closed segment is stored or set aside.
    async fn remove(
        &self,
        progress: &mut Progress,
        segment: &SegmentFile,
        offset: u64,
    ) -> std::io::Result<()> {
        let (path, spool) = (segment.path.clone(), Arc::clone(&self.spool));
        let remove = move || {
            if std::fs::metadata(&path)?.len() > offset {
                return Ok(false);
            }
            kill_point(KillPoint::SegmentStored);
            spool.faults().disk(DiskCall::Remove)?;
            std::fs::remove_file(&path)?;
            kill_point(KillPoint::SegmentRemoved);
            Ok(true)
        };
        if blocking(remove).await? {
            progress.offsets.remove(&segment.path);
            self.spool.remove_recent(&segment.path);
        }
        Ok(())
    }
}

/// Reads records from a segment, at most `limit` bytes. Reads more than `chunk` if not even one record fits.
pub(super) async fn read_some(path: &Path, offset: u64, chunk: u64, limit: u64) -> std::io::Result<Records> {
    let path = path.to_owned();
    let read = move || {
        let found = read_records(&read_bytes(&path, offset, chunk.min(limit))?);
        if found.length == 0 && chunk < READ_BYTES.min(limit) {
            return Ok(read_records(&read_bytes(&path, offset, READ_BYTES.min(limit))?));
        }
        Ok(found)
    };
    blocking(read).await
}

/// Runs file operations on a thread for blocking work, with the priority of the calling thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

fn read_bytes(path: &Path, offset: u64, length: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}
