//! Exchange of request counts between nodes through PostgreSQL, several times a second.
//!
//! A tenth of the limit is divided equally among the nodes. A node admits at most its share of unreported requests;
//! beyond that, requests wait for the next exchange, a few milliseconds. All nodes together therefore exceed the limit
//! by at most a tenth. While the database is unreachable, each node continues with the counts that it knows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_store::cluster::rate_counts::{self, WindowCount};
use gateway_store::{Db, StoreError};
use tokio::sync::Notify;
use uuid::Uuid;

use super::window::{Counted, WindowCounter};

const EXCHANGE_INTERVAL: Duration = Duration::from_millis(100);
/// Applies to an exchange and to a request that waits for one.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(1);
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Counters reported in one statement.
const BATCH_SIZE: usize = 1_000;

/// The counters with unreported requests.
#[derive(Default)]
pub struct CountExchange {
    queue: Mutex<Vec<(Uuid, Arc<WindowCounter>)>>,
    /// Starts the next exchange early.
    requested: Notify,
    exchanged: Notify,
    /// The last exchange failed, so no request waits for the next one.
    is_unavailable: AtomicBool,
}

impl CountExchange {
    /// Queues a counter for the next report.
    pub fn enqueue(&self, id: Uuid, counter: &Arc<WindowCounter>) {
        if counter.mark_queued() {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.push((id, Arc::clone(counter)));
        }
    }

    /// Waits until at most `share` requests of the window are unreported.
    pub async fn wait_until_reported(&self, counter: &WindowCounter, counted: Counted, share: u64) {
        let unreported = || counted.used.saturating_sub(counter.reported(counted));
        if unreported() > share / 2 {
            self.requested.notify_one();
        }
        let reported = async {
            loop {
                // Created before the check, so that no exchange is missed in between.
                let exchanged = self.exchanged.notified();
                if unreported() <= share || self.is_unavailable.load(Ordering::Relaxed) {
                    return;
                }
                exchanged.await;
                self.requested.notify_one();
            }
        };
        let _ = tokio::time::timeout(EXCHANGE_TIMEOUT, reported).await;
    }

    /// Exchanges counts until it is dropped.
    pub async fn run(&self, db: &Db, node_name: &str) {
        loop {
            let _ = tokio::time::timeout(EXCHANGE_INTERVAL, self.requested.notified()).await;
            let queued = std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
            for batch in queued.chunks(BATCH_SIZE) {
                let done = tokio::time::timeout(EXCHANGE_TIMEOUT, exchange(db, node_name, batch)).await;
                let has_failed = !matches!(done, Ok(Ok(())));
                self.is_unavailable.store(has_failed, Ordering::Relaxed);
                self.exchanged.notify_waiters();
                if has_failed {
                    for (id, counter) in batch {
                        self.enqueue(*id, counter);
                    }
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }
}

async fn exchange(db: &Db, node_name: &str, batch: &[(Uuid, Arc<WindowCounter>)]) -> Result<(), StoreError> {
    // Requests counted after this are part of the next report.
    let reports: Vec<Counted> = batch.iter().map(|(_, counter)| counter.take_report()).collect();
    let local: Vec<WindowCount> = batch
        .iter()
        .zip(&reports)
        .map(|((id, _), counted)| WindowCount {
            id: id.to_string(),
            minute: counted.window,
            used: counted.used.cast_signed(),
        })
        .collect();
    let remote = rate_counts::exchange(db, node_name, &local).await?;
    for (((_, counter), report), remote) in batch.iter().zip(reports).zip(remote) {
        counter.record_exchange(report, remote.max(0).cast_unsigned());
    }
    Ok(())
}
