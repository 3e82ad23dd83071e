//! Rows of organizations whose readers wait are stored before those of others.

use std::sync::Arc;

use gateway_core::logs::LogRow;
use tokio::sync::oneshot;

use super::pacing::Pace;
use super::spool::Spool;
use super::writer::{DrainError, LogWriter, Progress};

/// Below this backlog, one transaction for all rows takes less time than two.
const LARGE_BACKLOG: u64 = 64 << 10;
/// What is stored before others in one transaction.
const MAX_EARLY_BYTES: usize = 256 << 10;
/// If more rows are remembered, the pass stores some again; the store skips them.
const MAX_REMEMBERED: usize = 1 << 16;

/// Rows that readers wait for, and the readers.
#[derive(Default)]
struct Early {
    rows: Vec<LogRow>,
    readers: Vec<oneshot::Sender<()>>,
}

impl LogWriter {
    /// Stores the rows of waiting organizations that are in memory and a small part of the backlog, in one transaction.
    /// Once before each batch, so that readers and batches take turns.
    pub(super) async fn store_waiting(&self, progress: &mut Progress) -> Result<(), DrainError> {
        let barrier = &self.spool.barrier;
        if self.spool.backlog() < LARGE_BACKLOG || !progress.is_memory_complete || !barrier.has_readers() {
            return Ok(());
        }
        // Requests wait for the locks of the rows, so these must not be taken on a low-priority thread.
        let spool = Arc::clone(&self.spool);
        let Early { mut rows, readers } = self.on_main_runtime(async move { Ok(take_early(&spool)) }).await?;
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
        Ok(())
    }
}

/// Those with the fewest bytes first. An organization that has most of the backlog waits for the pass: nothing would be
/// left to store after it.
fn take_early(spool: &Spool) -> Early {
    let backlog = usize::try_from(spool.backlog()).unwrap_or(usize::MAX);
    let orgs = spool.barrier.waiting_in_memory().into_iter();
    let mut orgs: Vec<_> = orgs.map(|org| (spool.recent_bytes_of(org), org)).collect();
    orgs.sort_unstable_by_key(|(bytes, _)| *bytes);
    let (mut early, mut left) = (Early::default(), MAX_EARLY_BYTES.min(backlog / 2));
    for (bytes, org) in orgs {
        if bytes > left {
            break;
        }
        left -= bytes;
        // The readers before the rows: a reader that comes in between is not told of rows that were not copied.
        early.readers.extend(spool.barrier.take_readers(org));
        early.rows.extend(spool.recent_of(org));
    }
    early
}

#[cfg(test)]
mod tests {
    use gateway_core::ids::OrgId;

    use super::*;
    use crate::log::spool::tests::row;

    #[tokio::test]
    async fn an_organization_with_few_rows_goes_before_one_with_most_of_the_backlog() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Arc::new(Spool::open(directory.path().to_owned(), 2, 64 << 20).unwrap());
        let [large, small, none] = [1, 2, 3].map(|number| OrgId(uuid::Uuid::from_u128(number)));
        for id in 0..10 {
            spool.append(0, LogRow { org_id: large, ..row(id, &"x".repeat(20_000)) });
        }
        spool.append(1, LogRow { org_id: small, ..row(10, "short") });
        assert!(take_early(&spool).readers.is_empty(), "nobody waits");
        let writer = async {
            while spool.barrier.waiting_in_memory().len() < 2 {
                tokio::task::yield_now().await;
            }
            let early = take_early(&spool);
            assert_eq!(early.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [10]);
            assert_eq!(early.readers.len(), 1);
            assert_eq!(spool.barrier.waiting_in_memory(), [large]);
            for reader in early.readers {
                reader.send(()).unwrap();
            }
        };
        tokio::select! {
            () = spool.barrier.wait_until_stored(large) => panic!("its rows are not stored"),
            _ = async {
                tokio::join!(spool.barrier.wait_until_stored(small), spool.barrier.wait_until_stored(none), writer)
            } => {}
        }
    }
}
