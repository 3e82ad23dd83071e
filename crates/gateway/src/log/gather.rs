//! Gathers rows of several segments for one transaction. Each worker thread has a segment of its own: with a transaction
//! for each, readers would wait for as many transactions as there are threads.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use gateway_core::ids::OrgId;
use gateway_core::logs::LogRow;
use gateway_store::faults::DiskCall;

use super::barrier::Pass;
use super::pacing::Pace;
use super::spool::{RecentRows, Records, SegmentFile};
use super::writer::{DrainError, LogWriter, Progress, blocking, read_some};

/// Rows in one transaction, except at the yielding pace.
const BATCH_ROWS: usize = 1_000;
/// What is stored in one transaction. A reader that comes meanwhile waits for it.
const BATCH_BYTES: u64 = 512 << 10;

/// Rows that were read and are not stored yet.
#[derive(Default)]
pub(super) struct Gathered {
    rows: Vec<LogRow>,
    /// How many bytes the rows take in their segments.
    bytes: u64,
    /// Each segment with the offset behind its rows.
    ends: Vec<(PathBuf, u64)>,
    /// The same by organization, without rows of earlier processes.
    by_org: HashMap<OrgId, u64>,
}

/// What a segment has behind the rows that were read.
pub(super) enum Next {
    Rows,
    /// No record can be read at the offset. The next one in memory, if any, starts this many bytes later.
    Unreadable {
        offset: u64,
        limit: u64,
    },
}

impl Gathered {
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The offset behind the rows of the segment that are stored or gathered.
    pub(super) fn offset(&self, progress: &Progress, segment: &SegmentFile) -> u64 {
        let gathered = self.ends.iter().find(|(path, _)| *path == segment.path);
        gathered.map_or_else(|| progress.offset(&segment.path), |(_, end)| *end)
    }

    fn add(&mut self, segment: &Path, end: u64, found: Records) {
        self.bytes += found.length;
        self.rows.extend(found.rows);
        match self.ends.iter_mut().find(|(path, _)| path == segment) {
            Some((_, known)) => *known = end,
            None => self.ends.push((segment.to_owned(), end)),
        }
    }
}

impl LogWriter {
    /// Reads the next rows of a segment.
    pub(super) async fn gather(
        &self,
        progress: &mut Progress,
        gathered: &mut Gathered,
        (segment, pass): (&SegmentFile, Pass),
    ) -> Result<Next, DrainError> {
        let offset = gathered.offset(progress, segment);
        let rows = self.batch_rows(progress, pass).saturating_sub(gathered.rows.len()).max(1);
        let bytes = BATCH_BYTES.saturating_sub(gathered.bytes).max(1);
        self.spool.faults().disk(DiskCall::Read)?;
        let (mut found, limit) = match self.spool.take_recent(&segment.path, offset, (rows, bytes)) {
            RecentRows::Rows(rows, lengths) => {
                let found = Records::of_rows(rows, lengths);
                let length = found.length;
                (found, length)
            }
            RecentRows::StartsAfter(limit) => {
                (read_some(&segment.path, offset, BATCH_BYTES, limit).await?, limit)
            }
            RecentRows::Empty => (read_some(&segment.path, offset, BATCH_BYTES, u64::MAX).await?, u64::MAX),
        };
        if found.length == 0 {
            return Ok(Next::Unreadable { offset, limit });
        }
        for record in std::mem::take(&mut found.unreadable) {
            let spool = Arc::clone(&self.spool);
            let quarantine = move || spool.set_aside.quarantine(&record, "this version cannot read it");
            blocking(quarantine).await?;
        }
        if self.spool.is_of_this_process(&segment.path) {
            for (row, length) in found.rows.iter().zip(&found.lengths) {
                *gathered.by_org.entry(row.org_id).or_default() += length;
            }
        }
        found.rows.retain(|row| !progress.stored_early.remove(&row.id));
        gathered.add(&segment.path, offset + found.length, found);
        Ok(Next::Rows)
    }

    /// Returns true if a transaction should not have more rows than were gathered.
    pub(super) fn is_full(&self, progress: &mut Progress, gathered: &Gathered, pass: Pass) -> bool {
        gathered.bytes >= BATCH_BYTES || gathered.rows.len() >= self.batch_rows(progress, pass)
    }

    /// Stores what was gathered. Only then the offsets advance.
    pub(super) async fn store_gathered(
        &self,
        progress: &mut Progress,
        gathered: &mut Gathered,
        pass: Pass,
    ) -> Result<(), DrainError> {
        let Gathered { mut rows, bytes, ends, by_org } = std::mem::take(gathered);
        let (pace, batch_rows) = (self.pace(progress, pass), self.batch_rows(progress, pass));
        while !rows.is_empty() {
            let left = rows.split_off(rows.len().min(batch_rows));
            let batch = std::mem::replace(&mut rows, left);
            let (count, started) = (batch.len(), Instant::now());
            self.store_or_set_aside(batch, pace).await?;
            if pace == Pace::Yielding {
                progress.batch.record(count, started.elapsed(), BATCH_ROWS);
            }
        }
        self.spool.mark_stored(bytes);
        for (org, bytes) in by_org {
            self.spool.mark_stored_of(org, bytes);
        }
        progress.offsets.extend(ends);
        Ok(())
    }

    fn batch_rows(&self, progress: &mut Progress, pass: Pass) -> usize {
        match self.pace(progress, pass) {
            Pace::Yielding => progress.batch.rows(),
            Pace::Normal | Pace::Urgent => BATCH_ROWS,
        }
    }
}
