//! Moves rows from the spool to the store in batches. A row is removed from the disk only after the store has it;
//! the store counts each id once, so a crash between the two does no harm.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::logs::LogRow;
use gateway_store::{StoreError, logs};

use super::spool::{AtHand, Readable, read_records};
use super::tempo::{Step, Tempo, Watch};
use crate::app::App;
use crate::budgets;
use crate::evals::live;

/// How long a row waits before the writer looks. Under load it looks less often: large batches cost less per row.
const TICK: Duration = Duration::from_millis(100);
const BUSY_TICK: Duration = Duration::from_millis(250);
/// After a failure the writer waits this long, then longer.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// Rows in one transaction, and how much of a segment is read for them; fewer at ease. The longest record fits into what is
/// read at most.
const BATCH_ROWS: usize = 1_000;
const READ_BYTES: u64 = 4 << 20;
const READ_BYTES_AT_EASE: u64 = 256 << 10;

/// How far each segment has been moved.
#[derive(Default)]
struct Progress(HashMap<PathBuf, u64>);

/// Runs until the service has given its last answer, then moves what is left.
pub async fn run(app: Arc<App>) {
    let mut progress = Progress::default();
    let mut retry = FIRST_RETRY;
    let (mut watch, mut step) = (Watch::new(&app), Step::default());
    loop {
        let stopping = app.services.tasks.is_drained();
        match drain(&app, &mut progress, &mut watch, &mut step).await {
            Ok(()) if stopping => return,
            Ok(()) => {
                retry = FIRST_RETRY;
                let tick = if watch.tempo(&app) == Tempo::AtEase { BUSY_TICK } else { TICK };
                let _ = tokio::time::timeout(tick, app.services.tasks.drained()).await;
            }
            Err(error) if stopping => {
                tracing::warn!(%error, "log rows stay in the spool until the next start");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, wait_ms = retry.as_millis(), "log rows wait in the spool");
                let _ = tokio::time::timeout(retry, app.services.tasks.drained()).await;
                retry = (retry * 2).min(LAST_RETRY);
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum DrainError {
    #[error("the spool cannot be read: {0}")]
    Disk(#[from] std::io::Error),
    #[error("the store does not take them: {0}")]
    Store(#[from] StoreError),
}

async fn drain(
    app: &Arc<App>,
    progress: &mut Progress,
    watch: &mut Watch,
    step: &mut Step,
) -> Result<(), DrainError> {
    let stranded = Arc::new(app.proxy.spool.take_stranded());
    if !stranded.is_empty() {
        if let Err(error) = budgets::write(app, &app.services.logs_low_priority, &stranded).await {
            app.proxy.spool.put_back(Arc::unwrap_or_clone(stranded));
            return Err(error.into());
        }
        sample(app, &stranded).await?;
    }
    for segment in app.proxy.spool.readable()? {
        let tempo = |watch: &mut Watch| {
            if app.services.tasks.is_stopping() { Tempo::Pressed } else { watch.tempo(app) }
        };
        while move_some(app, progress, &segment, tempo(watch), step).await? {}
    }
    Ok(())
}

/// Moves the next rows of a segment; false when there are none left for now.
async fn move_some(
    app: &Arc<App>,
    progress: &mut Progress,
    segment: &Readable,
    tempo: Tempo,
    step: &mut Step,
) -> Result<bool, DrainError> {
    let done = progress.0.get(&segment.path).copied().unwrap_or(0);
    let (at_once, batch_rows) = match tempo {
        Tempo::AtEase => (READ_BYTES_AT_EASE, step.rows()),
        Tempo::Swift | Tempo::Pressed => (READ_BYTES, BATCH_ROWS),
    };
    let from_disk = |most: u64| match read_from(&segment.path, done, at_once.min(most))? {
        (rows, _) if rows.is_empty() && at_once < READ_BYTES.min(most) => {
            read_from(&segment.path, done, READ_BYTES.min(most))
        }
        found => Ok(found),
    };
    let (mut rows, length) = match app.proxy.spool.at_hand(&segment.path, done, batch_rows) {
        AtHand::Rows(rows, length) => (rows, length),
        AtHand::Further(bytes) => from_disk(bytes)?,
        AtHand::Nothing => from_disk(u64::MAX)?,
    };
    if rows.is_empty() {
        if !segment.open {
            discard(app, progress, segment, done)?;
        }
        return Ok(false);
    }
    while !rows.is_empty() {
        let batch: Vec<LogRow> = rows.drain(..rows.len().min(batch_rows)).collect();
        let (count, began) = (batch.len(), Instant::now());
        let stored = store(Arc::clone(app), batch, tempo);
        match tempo {
            // Off the threads that step back, or the requests would let the disk fill up.
            Tempo::Pressed => {
                app.services.tasks.runtime.spawn(stored).await.map_err(std::io::Error::other)??
            }
            Tempo::AtEase | Tempo::Swift => stored.await?,
        }
        if tempo == Tempo::AtEase {
            step.took(count, began.elapsed(), logs::MAX_INLINE_INDEXED);
        }
    }
    app.proxy.spool.moved(length);
    progress.0.insert(segment.path.clone(), done + length);
    Ok(true)
}

async fn store(app: Arc<App>, rows: Vec<LogRow>, tempo: Tempo) -> Result<(), DrainError> {
    let logs = if tempo == Tempo::Pressed { &app.services.logs } else { &app.services.logs_low_priority };
    let rows = Arc::new(rows);
    budgets::write(&app, logs, &rows).await?;
    tell_followers(&app, &rows);
    sample(&app, &rows).await
}

/// Rows are given to the evals of live traffic while the spool still has them, so that a crash skips none. What the
/// store can never take is no reason to hold up the rows behind.
async fn sample(app: &App, rows: &[LogRow]) -> Result<(), DrainError> {
    match live::sample(app, rows).await {
        Err(error @ StoreError::Unavailable(_)) => Err(error.into()),
        Err(error) => {
            tracing::error!(%error, "new rows could not be given to evals");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Rows are told to followers once they can be read back, so that who misses one finds it in the store.
fn tell_followers(app: &App, rows: &[LogRow]) {
    if app.proxy.tail.receiver_count() > 0 {
        for row in rows {
            // An error means that the last follower has just left.
            let _ = app.proxy.tail.send(Arc::new(row.clone()));
        }
    }
}

/// A closed segment has given all it has. Bytes behind the last whole record are a torn one.
fn discard(app: &App, progress: &mut Progress, segment: &Readable, done: u64) -> std::io::Result<()> {
    let size = std::fs::metadata(&segment.path)?.len();
    if size > done {
        tracing::warn!(bytes = size - done, segment = %segment.path.display(), "a torn log record was dropped");
        app.proxy.spool.moved(size - done);
    }
    std::fs::remove_file(&segment.path)?;
    progress.0.remove(&segment.path);
    app.proxy.spool.forget(&segment.path);
    Ok(())
}

fn read_from(path: &Path, at: u64, at_once: u64) -> std::io::Result<(Vec<LogRow>, u64)> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(at_once).read_to_end(&mut bytes)?;
    let mut rows = Vec::new();
    let length = read_records(&bytes, |row| rows.push(row));
    Ok((rows, length as u64))
}
