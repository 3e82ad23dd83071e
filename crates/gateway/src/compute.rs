//! Computation that tenants cause: judging, patterns, schemas, embeddings, parsing of imports and of large bodies. It
//! runs on a few threads of its own at low priority, so that requests, authentication, lease renewals and budgets never
//! wait for it. Owners take turns, piece of work by piece of work, and so do the organizations of each.
//!
//! A piece of work cannot be interrupted from outside. Long ones ask `Cancellation` between their parts; the others are
//! bounded by the size of their input.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gateway_core::ids::OrgId;
use gateway_store::fair_slots::{FairSlots, Overloaded, Slot, SlotLimits, SlotStats};
use gateway_store::org_owners::OrgOwners;
use tokio::sync::oneshot;

use crate::low_priority::{LowPriorityThreads, NiceValue};

/// Bodies up to this size are read on the thread of the request, which takes about a millisecond.
const INLINE_BYTES: usize = 128 << 10;
/// Pieces of work of one organization that may wait.
const MAX_WAITING_PER_ORG: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ComputeError {
    #[error("too much work of this organization is waiting")]
    Overloaded,
    #[error("the computation took too long")]
    TimedOut,
    #[error("the computation failed")]
    Failed,
}

impl From<Overloaded> for ComputeError {
    fn from(Overloaded: Overloaded) -> Self {
        Self::Overloaded
    }
}

/// How long a caller waits.
#[derive(Debug, Clone, Copy)]
pub struct WaitLimits {
    /// For a thread. `None`: as long as it takes; the caller is cancelled otherwise.
    start: Option<Duration>,
    /// For the result, from the start of the work.
    run: Duration,
}

impl WaitLimits {
    /// A client waits for the response.
    pub const REQUEST: Self = Self { start: Some(Duration::from_secs(10)), run: Duration::from_secs(20) };
    /// A client waits for the import of a large file.
    pub const IMPORT: Self = Self { start: Some(Duration::from_secs(30)), run: Duration::from_secs(120) };
    /// A job waits, whose lease is renewed meanwhile. The time to run is many times what the bounds on the input allow
    /// for, because a thread of low priority gets little of a busy machine.
    pub const JOB: Self = Self { start: None, run: Duration::from_secs(60) };
}

/// Tells a piece of work that nobody waits for its result any more.
#[derive(Clone)]
pub struct Cancellation {
    is_cancelled: Arc<AtomicBool>,
    deadline: Instant,
}

impl Cancellation {
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }
}

pub struct ComputePool {
    slots: Arc<FairSlots>,
    threads: LowPriorityThreads,
}

impl ComputePool {
    /// Half of the cores: the other half is always left for requests. At least two threads, of which one organization has
    /// all but one: what takes long for one of them must not stop the others.
    pub fn start(owners: &Arc<OrgOwners>) -> std::io::Result<Self> {
        let threads = LowPriorityThreads::start("compute", half_of_the_cores().max(2), NiceValue::Ten)?;
        let limits = SlotLimits {
            slots: threads.count(),
            per_org: (threads.count() - 1).max(1),
            waiting_per_org: MAX_WAITING_PER_ORG,
        };
        Ok(Self { slots: FairSlots::new(limits, owners), threads })
    }

    /// Runs a piece of work when it is the organization's turn. The work is not started, or is told to stop, when the
    /// caller goes away.
    pub async fn run<T: Send + 'static>(
        &self,
        org: OrgId,
        limits: WaitLimits,
        work: impl FnOnce(&Cancellation) -> T + Send + 'static,
    ) -> Result<T, ComputeError> {
        let slot = self.slots.acquire(org, limits.start).await?;
        self.run_in(slot, Instant::now() + limits.run, work).await
    }

    /// Waits for the organization's turn, for work that must not be lost if the turn does not come: it is handed over in
    /// `run_in_turn`.
    pub async fn turn(&self, org: OrgId, max_wait: Duration) -> Result<Slot, ComputeError> {
        Ok(self.slots.acquire(org, Some(max_wait)).await?)
    }

    /// Runs a short piece of work at once. No time limits it, so that what it hands back is not lost on a busy machine.
    pub async fn run_in_turn<T: Send + 'static>(
        &self,
        turn: Slot,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ComputeError> {
        self.start_work(turn, move || Some(work()))?.await.map_err(|_| ComputeError::Failed)
    }

    async fn run_in<T: Send + 'static>(
        &self,
        slot: Slot,
        deadline: Instant,
        work: impl FnOnce(&Cancellation) -> T + Send + 'static,
    ) -> Result<T, ComputeError> {
        let cancellation = Cancellation { is_cancelled: Arc::default(), deadline };
        let _cancel_on_drop = CancelOnDrop(Arc::clone(&cancellation.is_cancelled));
        let result = self.start_work(slot, move || {
            if cancellation.is_cancelled() { None } else { Some(work(&cancellation)) }
        })?;
        match tokio::time::timeout_at(deadline.into(), result).await {
            Ok(Ok(done)) => Ok(done),
            // A thread that came to it too late has not begun the work.
            Ok(Err(_)) if Instant::now() < deadline => Err(ComputeError::Failed),
            Ok(Err(_)) | Err(_) => Err(ComputeError::TimedOut),
        }
    }

    /// Runs work that takes time in proportion to a body of this size: at once if the body is small, else within the
    /// timeout, which covers the wait for a thread too.
    pub async fn run_for_body<T: Send + 'static>(
        &self,
        org: OrgId,
        bytes: usize,
        timeout: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ComputeError> {
        if bytes <= INLINE_BYTES {
            return Ok(work());
        }
        let deadline = Instant::now() + timeout;
        let slot = self.slots.acquire(org, Some(timeout)).await?;
        self.run_in(slot, deadline, move |_| work()).await
    }

    /// The slot is free when the work has ended, even if the caller did not wait for it. `work` returns None if it was
    /// not begun.
    fn start_work<T: Send + 'static>(
        &self,
        slot: Slot,
        work: impl FnOnce() -> Option<T> + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, ComputeError> {
        let (sender, receiver) = oneshot::channel();
        let started = self.threads.run(move || {
            let _slot = slot;
            match catch_unwind(AssertUnwindSafe(work)) {
                Ok(Some(result)) => {
                    let _ = sender.send(result);
                }
                Ok(None) => {}
                Err(_) => tracing::error!("a computation panicked"),
            }
        });
        if started { Ok(receiver) } else { Err(ComputeError::Failed) }
    }

    pub fn stats(&self) -> SlotStats {
        self.slots.stats()
    }
}

struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// At least one.
pub fn half_of_the_cores() -> usize {
    (std::thread::available_parallelism().map_or(2, usize::from) / 2).max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn org(number: u128) -> OrgId {
        OrgId(uuid::Uuid::from_u128(number))
    }

    fn pool(threads: usize) -> ComputePool {
        let limits = SlotLimits { slots: threads, per_org: threads, waiting_per_org: 2 };
        ComputePool {
            slots: FairSlots::new(limits, &Arc::default()),
            threads: LowPriorityThreads::start("test", threads, NiceValue::Ten).unwrap(),
        }
    }

    #[tokio::test]
    async fn work_is_done_and_a_panic_breaks_nothing() {
        let pool = pool(1);
        assert_eq!(pool.run(org(1), WaitLimits::JOB, |_| 1 + 1).await, Ok(2));
        let panicked = pool.run(org(1), WaitLimits::JOB, |_| -> u8 { panic!("on purpose") }).await;
        assert_eq!(panicked, Err(ComputeError::Failed));
        assert_eq!(pool.run(org(1), WaitLimits::REQUEST, |_| 3).await, Ok(3));
    }

    #[tokio::test]
    async fn only_a_large_body_waits_for_a_thread() {
        let pool = pool(1);
        let this_thread = || std::thread::current().id();
        let (here, second) = (this_thread(), Duration::from_secs(20));
        assert_eq!(pool.run_for_body(org(1), INLINE_BYTES, second, this_thread).await, Ok(here));
        let elsewhere = pool.run_for_body(org(1), INLINE_BYTES + 1, second, this_thread).await;
        assert_ne!(elsewhere.unwrap(), here);
    }

    #[tokio::test]
    async fn the_time_of_a_large_body_covers_the_wait_and_the_work() {
        let pool = pool(1);
        let sleep = |millis| move || std::thread::sleep(Duration::from_millis(millis));
        let first = pool.run_for_body(org(1), INLINE_BYTES + 1, Duration::from_secs(20), sleep(250));
        let second = pool.run_for_body(org(1), INLINE_BYTES + 1, Duration::from_millis(400), sleep(300));
        assert_eq!(tokio::join!(first, second), (Ok(()), Err(ComputeError::TimedOut)));
    }

    #[tokio::test]
    async fn work_that_a_thread_comes_to_too_late_has_timed_out() {
        let pool = pool(1);
        let limits = WaitLimits { start: None, run: Duration::ZERO };
        for _ in 0..50 {
            assert_eq!(pool.run(org(1), limits, |_| 1).await, Err(ComputeError::TimedOut));
        }
    }

    #[tokio::test]
    async fn work_is_cancelled_when_its_caller_goes_away() {
        let pool = pool(1);
        let (stopped, has_stopped) = mpsc::channel();
        let endless = pool.run(org(1), WaitLimits::JOB, move |cancellation| {
            while !cancellation.is_cancelled() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = stopped.send(());
        });
        assert!(tokio::time::timeout(Duration::from_millis(20), endless).await.is_err());
        tokio::task::spawn_blocking(move || has_stopped.recv_timeout(Duration::from_secs(20)))
            .await
            .unwrap()
            .expect("the work goes on");
        assert_eq!(pool.run(org(2), WaitLimits::JOB, |_| 4).await, Ok(4));
    }

    #[tokio::test]
    async fn a_caller_does_not_wait_beyond_the_deadline_and_the_thread_stays_occupied() {
        let pool = Arc::new(pool(1));
        let (finish, may_finish) = mpsc::channel::<()>();
        let limits = WaitLimits { start: None, run: Duration::from_millis(20) };
        let slow = pool.run(org(1), limits, move |_| may_finish.recv());
        assert_eq!(slow.await.err(), Some(ComputeError::TimedOut));
        let short = WaitLimits { start: Some(Duration::from_millis(20)), run: Duration::from_secs(20) };
        assert_eq!(pool.run(org(2), short, |_| 5).await, Err(ComputeError::Overloaded));
        finish.send(()).unwrap();
        assert_eq!(pool.run(org(2), WaitLimits::JOB, |_| 5).await, Ok(5));
    }
}
