//! Limits over all nodes. With Redis every request is counted there, in one round trip. Without it each node counts by
//! itself, tells the others several times a second what it has counted and learns what they have.
//!
//! A slice is a tenth of the limit, and each node has an equal share of it. A node lets pass no more than its share beyond what
//! it has told; who would go beyond waits for the exchange that is under way, a few milliseconds. So all nodes
//! together let pass at most the limit and one slice. When the database cannot be asked, each node goes on by what it knows.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_core::limits::LimitStatus;
use gateway_core::time::Timestamp;
use gateway_store::cluster::rate_counts::{self, WindowCount};
use gateway_store::redis;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::app::App;
use crate::auth::limits::{ATTEMPT_WINDOW, Attempt, Counted, Counter, network};

const EXCHANGE: Duration = Duration::from_millis(100);
/// An exchange that takes longer counts as failed; no request waits longer for one.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long after a failure the database is left alone.
const AGAIN: Duration = Duration::from_millis(500);
/// Counters told in one statement.
const BATCH: usize = 1_000;

/// Counters that have counted something since the others were told.
#[derive(Default)]
pub struct SharedCounts {
    untold: Mutex<Vec<(Uuid, Arc<Counter>)>>,
    hurry: Notify,
    exchanged: Notify,
    away: AtomicBool,
}

/// How many requests there are in this window on all nodes, this one included.
pub async fn total(app: &App, id: Uuid, counter: &Arc<Counter>, counted: Counted, limit: u64) -> u64 {
    let mine = counted.used + counter.others(counted);
    if mine > limit {
        return mine;
    }
    // Told in the background also while Redis counts: it may be away for one node only.
    let nodes = &app.nodes;
    nodes.counts.add(id, counter);
    let mut all = mine;
    if let Some(shared) = app.proxy.redis.as_ref().filter(|shared| shared.is_up())
        && let Ok(found) = redis::limits::increment(shared, &id.to_string(), counted.window).await
    {
        // Known here from now on, should Redis go away.
        counter.learn(counted, found);
        all = all.max(found);
        // One that was away in this window, and may have been emptied, has not counted all of it.
        if !shared.reconnected_within(counted.since(app.services.clock.now())) {
            return all;
        }
    }
    let alive = nodes.alive();
    if alive > 1 {
        let share = (limit / 10 / alive).max(1);
        nodes.counts.wait(counter, counted, share).await;
    }
    all.max(counted.used + counter.others(counted))
}

/// Counts an attempt of a stranger over all nodes. None when the database cannot be asked, and the attempt fails anyway.
pub async fn attempts(
    app: &App,
    kind: Attempt,
    address: IpAddr,
    limit: u64,
    now: Timestamp,
) -> Option<LimitStatus> {
    let address = network(address).to_string();
    let counted =
        rate_counts::count_attempt(&app.services.db, kind.as_str(), &address, ATTEMPT_WINDOW, now).await;
    let (began, tried) = counted.ok()?;
    Some(LimitStatus::new(limit, tried.max(0).cast_unsigned(), began.plus(ATTEMPT_WINDOW)))
}

impl SharedCounts {
    fn add(&self, id: Uuid, counter: &Arc<Counter>) {
        if counter.begin_telling() {
            let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
            untold.push((id, Arc::clone(counter)));
        }
    }

    /// Waits until no more than a share of the slice is untold, for as long as that makes sense.
    async fn wait(&self, counter: &Counter, counted: Counted, share: u64) {
        let untold = || counted.used.saturating_sub(counter.told(counted));
        if untold() > share / 2 {
            self.hurry.notify_one();
        }
        let told = async {
            loop {
                // Asked for before the look, so that no exchange falls between the two.
                let exchanged = self.exchanged.notified();
                if untold() <= share || self.away.load(Ordering::Relaxed) {
                    return;
                }
                exchanged.await;
                self.hurry.notify_one();
            }
        };
        let _ = tokio::time::timeout(PATIENCE, told).await;
    }

    fn take(&self) -> Vec<(Uuid, Arc<Counter>)> {
        std::mem::take(&mut *self.untold.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Exchanges counts with the other nodes, until it is dropped.
pub async fn run(app: &App) {
    let counts = &app.nodes.counts;
    loop {
        let _ = tokio::time::timeout(EXCHANGE, counts.hurry.notified()).await;
        let untold = counts.take();
        for batch in untold.chunks(BATCH) {
            let done = tokio::time::timeout(PATIENCE, exchange(app, batch)).await;
            let failed = !matches!(done, Ok(Ok(())));
            counts.away.store(failed, Ordering::Relaxed);
            counts.exchanged.notify_waiters();
            if failed {
                for (id, counter) in batch {
                    counts.add(*id, counter);
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

async fn exchange(app: &App, batch: &[(Uuid, Arc<Counter>)]) -> Result<(), gateway_store::StoreError> {
    // Whoever counts after this is told the next time.
    let told: Vec<Counted> = batch.iter().map(|(_, counter)| counter.end_telling()).collect();
    let mine: Vec<WindowCount> = batch
        .iter()
        .zip(&told)
        .map(|((id, _), counted)| WindowCount {
            id: id.to_string(),
            minute: counted.window,
            used: counted.used.cast_signed(),
        })
        .collect();
    let others = rate_counts::exchange(&app.services.db, &app.nodes.name, &mine).await?;
    for (((_, counter), counted), others) in batch.iter().zip(told).zip(others) {
        counter.exchanged(counted, others.max(0).cast_unsigned());
    }
    Ok(())
}
