//! Notifies the components of stored log rows: budgets count them, the live tail publishes them, and evals of live
//! traffic sample them.

use std::fmt::Debug;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use gateway_core::logs::LogRow;
use gateway_store::StoreError;
use gateway_store::logs::Written;

use super::App;
use crate::jobs::live_evals::{self, Trace};
use crate::log::BatchObserver;
use crate::log::tail::StoredRow;

pub struct LogObserver {
    app: Arc<App>,
    /// Stored rows that evals of live traffic may sample.
    traces: Mutex<Vec<Trace>>,
}

impl BatchObserver for LogObserver {
    fn write_started(&self, rows: &Arc<Vec<LogRow>>) {
        self.app.proxy.budgets.write_started(rows);
    }

    fn stored(&self, mut rows: Arc<Vec<LogRow>>, written: Written) {
        self.app.proxy.budgets.stored(&rows, &written.new);
        if !written.counted.is_empty() {
            // Rows that are beyond a quota are in no list.
            Arc::make_mut(&mut rows).retain(|row| !written.counted.contains(&row.id));
        }
        self.publish(&rows);
        self.traces().extend(rows.iter().filter_map(Trace::of));
    }

    fn pending(&self) -> usize {
        self.traces().len()
    }

    /// Samples rows while the spool still has them, so that a crash skips none. Neither a permanent error nor a panic
    /// blocks the rows behind.
    fn follow_up(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            let traces = std::mem::take(&mut *self.traces());
            let sample = |part| live_evals::sample(&self.app.jobs, part).boxed();
            in_parts(&traces, sample).await.map_err(|(error, left)| {
                self.traces().extend(left);
                error
            })
        }
        .boxed()
    }
}

impl LogObserver {
    pub fn new(app: Arc<App>) -> Self {
        Self { app, traces: Mutex::default() }
    }

    /// Publishes rows once they can be read back, so that a subscriber finds a missed row in the store.
    fn publish(&self, rows: &[LogRow]) {
        let tail = &self.app.proxy.tail;
        if tail.receiver_count() > 0 {
            for row in rows {
                // An error means that the last subscriber has disconnected.
                let _ = tail.send(StoredRow::of(row));
            }
        }
    }

    fn traces(&self) -> MutexGuard<'_, Vec<Trace>> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Failures after which parts are no longer divided: then the rows are not at fault.
const MAX_FAILURES: usize = 256;

/// Works on all items. Parts that fail for a permanent reason or panic are divided until only the items at fault are
/// left out. Returns what is left if the database is away. Items of a part that failed may be worked on twice.
async fn in_parts<'a, T: Clone + Debug>(
    items: &'a [T],
    work: impl Fn(&'a [T]) -> BoxFuture<'a, Result<(), StoreError>>,
) -> Result<(), (StoreError, Vec<T>)> {
    let (mut parts, mut failures) = (vec![items], 0);
    while let Some(part) = parts.pop() {
        let error = match AssertUnwindSafe(work(part)).catch_unwind().await {
            Ok(Ok(())) => continue,
            Ok(Err(error @ StoreError::Unavailable(_))) => {
                parts.push(part);
                return Err((error, parts.concat()));
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "a panic".to_owned(),
        };
        failures += 1;
        if part.len() > 1 && failures < MAX_FAILURES {
            let (first, second) = part.split_at(part.len() / 2);
            parts.extend([second, first]);
        } else {
            let first = part.first();
            tracing::error!(%error, rows = part.len(), ?first, "cannot sample log rows for evals; they are left out");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Works on numbers: 13 panics, and from `away` on the database is away.
    async fn run(items: &[u32], bad: u32, away: u32) -> (Vec<u32>, Option<Vec<u32>>) {
        let done = Mutex::new(Vec::new());
        let work = |part: &[u32]| {
            let (part, done) = (part.to_vec(), &done);
            async move {
                assert!(!part.contains(&13), "an unlucky row");
                if part.contains(&bad) {
                    return Err(StoreError::Other("a bad row".into()));
                }
                if part.iter().any(|item| *item >= away) {
                    return Err(StoreError::Unavailable("away".into()));
                }
                done.lock().unwrap().extend(part);
                Ok(())
            }
            .boxed()
        };
        let left = in_parts(items, work).await.err().map(|(_, left)| left);
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        (done, left)
    }

    #[tokio::test]
    async fn a_panic_or_an_error_leaves_out_only_the_row_that_caused_it() {
        let items: Vec<u32> = (0..100).collect();
        let (done, left) = run(&items, 57, 1_000).await;
        let expected: Vec<u32> = items.iter().copied().filter(|item| ![13, 57].contains(item)).collect();
        assert_eq!((done, left), (expected, None));
    }

    #[tokio::test]
    async fn what_was_not_done_is_returned_while_the_database_is_away() {
        let items: Vec<u32> = (0..100).collect();
        let (done, left) = run(&items, 1_000, 60).await;
        let mut all = [done.clone(), left.unwrap()].concat();
        all.sort_unstable();
        let expected: Vec<u32> = items.iter().copied().filter(|item| *item != 13).collect();
        assert_eq!((all, done.len()), (expected, 49));
    }
}
