//! Rows of organizations whose readers wait are stored before a backlog of others.

use std::sync::Arc;

use super::pacing::Pace;
use super::writer::{DrainError, LogWriter, Progress};

/// Above this backlog a pass may take long.
const LARGE_BACKLOG: u64 = 1 << 20;
/// If more rows are remembered, the pass stores some again; the store skips them.
const MAX_REMEMBERED: usize = 1 << 16;

impl LogWriter {
    /// Stores the rows of waiting organizations that are in memory.
    pub(super) async fn store_waiting(&self, progress: &mut Progress) -> Result<(), DrainError> {
        if self.spool.backlog() < LARGE_BACKLOG || !progress.is_memory_complete {
            return Ok(());
        }
        while let Some((org, readers)) = self.spool.barrier.take_waiting() {
            // Requests wait for the locks of the rows, so these must not be taken on a low-priority thread.
            let spool = Arc::clone(&self.spool);
            let mut rows = self.on_main_runtime(async move { Ok(spool.recent_of(org)) }).await?;
            rows.retain(|row| !progress.stored_early.contains(&row.id));
            if !rows.is_empty() {
                let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
                self.store_or_set_aside(rows, Pace::Urgent).await?;
                if progress.stored_early.len() > MAX_REMEMBERED {
                    progress.stored_early.clear();
                }
                progress.stored_early.extend(ids);
            }
            for reader in readers {
                // A reader may have gone.
                let _ = reader.send(());
            }
        }
        Ok(())
    }
}
