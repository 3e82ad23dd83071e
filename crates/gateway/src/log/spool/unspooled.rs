//! Rows that the disk rejected. They wait in memory until it accepts writes again, or the store takes them.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use gateway_core::logs::LogRow;
use gateway_store::faults::DiskCall;

use super::{Spool, record};

/// Rows that are kept in memory while the disk rejects them.
const MAX_UNSPOOLED_ROWS: usize = 10_000;
/// What a disk must accept before it counts as writable again.
const PROBE_BYTES: usize = 64 << 10;

impl Spool {
    /// Returns true if rows wait in memory because the disk rejected them.
    pub fn has_unspooled(&self) -> bool {
        self.unspooled_rows.load(Ordering::Relaxed) > 0
    }

    /// Whether the disk accepted the latest write.
    pub fn is_writable(&self) -> bool {
        self.is_writable.load(Ordering::Relaxed)
    }

    /// Checks whether a disk that rejected a row accepts writes again.
    pub fn probe(&self) -> std::io::Result<()> {
        let path = self.directory.join("probe");
        self.faults.disk(DiskCall::Create)?;
        let written = std::fs::write(&path, vec![0; PROBE_BYTES]);
        let removed = std::fs::remove_file(&path);
        written.and(removed)?;
        self.is_writable.store(true, Ordering::Relaxed);
        tracing::info!("the log spool is writable again");
        Ok(())
    }

    /// Writes rows that waited in memory to a segment of their own. On an error it returns the rows that are not in it.
    pub fn respool(&self, rows: Vec<LogRow>) -> Result<(), Vec<LogRow>> {
        let number = self.next_segment.fetch_add(1, Ordering::Relaxed);
        let mut left = rows.into_iter();
        let Ok(mut file) = self.create_segment(number) else { return Err(left.collect()) };
        let (mut buffer, mut whole) = (Vec::new(), 0);
        while let Some(row) = left.next() {
            let written = record::encode(&row, &self.marker, &mut buffer).and_then(|length| {
                record::write_all(&mut file, [&buffer, &row.request, &row.response], length, &self.faults)
                    .map(|()| length)
            });
            let Ok(length) = written else {
                // Without the torn record, the segment is not taken for a damaged one.
                let _ = file.set_len(whole);
                return Err(std::iter::once(row).chain(left).collect());
            };
            whole += length;
            self.pending_bytes.fetch_add(length, Ordering::Relaxed);
            self.org_bytes.add(row.org_id, length);
        }
        Ok(())
    }

    /// Takes the rows that the disk rejected.
    pub fn take_unspooled(&self) -> Vec<LogRow> {
        let mut unspooled = self.unspooled();
        self.unspooled_rows.store(0, Ordering::Relaxed);
        unspooled.drain(..).collect()
    }

    /// Puts rows back that the store rejected too.
    pub fn put_back_unspooled(&self, rows: Vec<LogRow>) {
        let mut unspooled = self.unspooled();
        for row in rows.into_iter().rev() {
            unspooled.push_front(row);
        }
        self.unspooled_rows.store(unspooled.len(), Ordering::Relaxed);
    }

    pub(super) fn keep_in_memory(&self, row: LogRow, error: &std::io::Error) {
        if self.is_writable.swap(false, Ordering::Relaxed) {
            tracing::error!(%error, "cannot write to the log spool; rows are kept in memory");
        }
        let mut unspooled = self.unspooled();
        if unspooled.len() < MAX_UNSPOOLED_ROWS {
            unspooled.push_back(row);
            self.unspooled_rows.store(unspooled.len(), Ordering::Relaxed);
        } else {
            self.shed_rows.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn unspooled(&self) -> MutexGuard<'_, VecDeque<LogRow>> {
        self.unspooled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
