//! Lets a reader see every row whose response has ended on this node. It waits until the rows of its organization that
//! are not stored yet are stored. Other organizations never wait.
//!
//! The writer works in passes. A pass stores everything that was appended before it began. An appended row is recorded
//! with the number of passes begun so far, `n`, so pass `n + 1` stores it at the latest. Rows are recorded after they
//! are in the spool: a row that a pass missed has at least the number of that pass.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway_core::ids::OrgId;
use rustc_hash::FxBuildHasher;
use tokio::sync::{Notify, watch};

/// How long a reader waits. After that it reads what is stored.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Organizations that a lane knows by name. The rows of further ones make every reader wait.
const MAX_ORGS: usize = 1_024;

pub struct ReadBarrier {
    /// The number of passes that have begun.
    begun: AtomicU64,
    /// The number of the last pass that stored everything.
    stored: AtomicU64,
    /// The number of the pass that readers wait for.
    wanted: AtomicU64,
    wake_writer: Notify,
    /// The number of the last pass that ended, for readers.
    ended: watch::Sender<u64>,
    lanes: Vec<Mutex<Appended>>,
}

/// The passes begun when an organization's latest row was appended to a lane.
#[derive(Default)]
struct Appended {
    orgs: HashMap<OrgId, u64, FxBuildHasher>,
    /// The same for the organizations that are not in `orgs`.
    others: Option<u64>,
    /// The value of `stored` when stored organizations were last removed.
    pruned_at: u64,
}

/// A pass of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    number: u64,
    /// Readers wait for it, so it must not run at low priority.
    pub has_readers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassEnd {
    /// Everything that was appended before the pass began is stored.
    Complete,
    /// A reader came: the next pass goes on.
    Interrupted,
    Failed,
}

impl ReadBarrier {
    /// `has_old_rows`: the spool has rows of a previous process, of unknown organizations.
    pub fn new(lanes: usize, has_old_rows: bool) -> Self {
        let lanes: Vec<Mutex<Appended>> = (0..lanes).map(|_| Mutex::default()).collect();
        if has_old_rows && let Some(first) = lanes.first() {
            first.lock().unwrap_or_else(PoisonError::into_inner).others = Some(0);
        }
        Self {
            begun: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            wake_writer: Notify::new(),
            ended: watch::Sender::new(0),
            lanes,
        }
    }

    /// Records that a row was appended. The row must be in the spool already.
    pub fn appended(&self, lane: usize, org: OrgId) {
        let begun = self.begun.load(Ordering::SeqCst);
        let mut lane = self.lane(lane);
        if lane.orgs.len() >= MAX_ORGS && !lane.orgs.contains_key(&org) {
            let stored = self.stored.load(Ordering::SeqCst);
            if lane.pruned_at < stored {
                lane.pruned_at = stored;
                lane.orgs.retain(|_, appended| *appended >= stored);
            }
            if lane.orgs.len() >= MAX_ORGS {
                lane.others = Some(begun);
                return;
            }
        }
        lane.orgs.insert(org, begun);
    }

    /// Waits until the rows appended so far are stored, at most for some seconds. Returns early if the writer fails.
    pub async fn wait_until_stored(&self, org: OrgId) {
        let Some(wanted) = self.pass_with_rows_of(org) else { return };
        let mut ended = self.ended.subscribe();
        self.wanted.fetch_max(wanted, Ordering::SeqCst);
        self.wake_writer.notify_one();
        // An interrupted pass is not enough, and is followed by another at once. A failed one ends the wait.
        let _ = tokio::time::timeout(MAX_WAIT, ended.wait_for(|ended| *ended >= wanted)).await;
    }

    /// Begins a pass. There is one at a time.
    pub fn begin_pass(&self) -> Pass {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        Pass { number, has_readers: self.has_readers() }
    }

    pub fn end_pass(&self, pass: Pass, end: PassEnd) {
        match end {
            PassEnd::Complete => self.stored.store(pass.number, Ordering::SeqCst),
            PassEnd::Interrupted => return,
            // Its readers go on. Later readers ask again.
            PassEnd::Failed => {}
        }
        let _ = self
            .wanted
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |wanted| (wanted <= pass.number).then_some(0));
        self.ended.send_replace(pass.number);
    }

    /// Returns true while readers wait for a pass.
    pub fn has_readers(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > 0
    }

    /// Resolves when a reader waits.
    pub async fn reader(&self) {
        while !self.has_readers() {
            self.wake_writer.notified().await;
        }
    }

    /// The first pass that stores all rows of the organization, or `None` if they are stored.
    fn pass_with_rows_of(&self, org: OrgId) -> Option<u64> {
        let stored = self.stored.load(Ordering::SeqCst);
        let appended = (0..self.lanes.len()).filter_map(|lane| {
            let lane = self.lane(lane);
            lane.orgs.get(&org).copied().max(lane.others)
        });
        appended.max().filter(|appended| *appended >= stored).map(|appended| appended + 1)
    }

    fn lane(&self, lane: usize) -> MutexGuard<'_, Appended> {
        self.lanes[lane].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn org(number: u128) -> OrgId {
        OrgId(uuid::Uuid::from_u128(number))
    }

    fn complete_pass(barrier: &ReadBarrier) {
        let pass = barrier.begin_pass();
        barrier.end_pass(pass, PassEnd::Complete);
    }

    #[test]
    fn only_organizations_with_rows_that_are_not_stored_wait() {
        let barrier = ReadBarrier::new(2, false);
        assert_eq!(barrier.pass_with_rows_of(org(1)), None);
        barrier.appended(1, org(1));
        assert_eq!(barrier.pass_with_rows_of(org(1)), Some(1));
        assert_eq!(barrier.pass_with_rows_of(org(2)), None);
        let pass = barrier.begin_pass();
        // The pass may have missed this row.
        barrier.appended(0, org(2));
        barrier.end_pass(pass, PassEnd::Complete);
        assert_eq!(barrier.pass_with_rows_of(org(1)), None);
        assert_eq!(barrier.pass_with_rows_of(org(2)), Some(2));
        complete_pass(&barrier);
        assert_eq!(barrier.pass_with_rows_of(org(2)), None);
    }

    #[test]
    fn a_pass_that_fails_or_is_interrupted_stores_nothing_for_sure() {
        let barrier = ReadBarrier::new(1, false);
        barrier.appended(0, org(1));
        for end in [PassEnd::Failed, PassEnd::Interrupted] {
            let pass = barrier.begin_pass();
            barrier.end_pass(pass, end);
            assert!(barrier.pass_with_rows_of(org(1)).is_some(), "{end:?}");
        }
        complete_pass(&barrier);
        assert_eq!(barrier.pass_with_rows_of(org(1)), None);
    }

    #[test]
    fn everybody_waits_for_rows_of_a_previous_process() {
        let barrier = ReadBarrier::new(2, true);
        assert_eq!(barrier.pass_with_rows_of(org(1)), Some(1));
        complete_pass(&barrier);
        assert_eq!(barrier.pass_with_rows_of(org(1)), None);
    }

    #[test]
    fn a_lane_remembers_a_bounded_number_of_organizations() {
        let barrier = ReadBarrier::new(1, false);
        for number in 0..MAX_ORGS as u128 + 10 {
            barrier.appended(0, org(number));
        }
        assert_eq!(barrier.lane(0).orgs.len(), MAX_ORGS);
        assert_eq!(barrier.pass_with_rows_of(org(9_999)), Some(1), "may be one of the others");
        complete_pass(&barrier);
        assert_eq!(barrier.pass_with_rows_of(org(9_999)), None);
        barrier.appended(0, org(9_999));
        assert_eq!(barrier.lane(0).orgs.len(), 1, "stored organizations are removed");
        assert_eq!(barrier.pass_with_rows_of(org(9_999)), Some(2));
        assert_eq!(barrier.pass_with_rows_of(org(1)), None);
    }

    #[tokio::test]
    async fn readers_wait_for_one_pass_together_and_a_failure_releases_them() {
        let barrier = ReadBarrier::new(1, false);
        for end in [PassEnd::Failed, PassEnd::Complete] {
            barrier.appended(0, org(1));
            let done = Cell::new(0);
            let reader = || async {
                barrier.wait_until_stored(org(1)).await;
                done.set(done.get() + 1);
            };
            let writer = async {
                barrier.reader().await;
                while barrier.ended.receiver_count() < 3 {
                    tokio::task::yield_now().await;
                }
                let pass = barrier.begin_pass();
                barrier.end_pass(pass, PassEnd::Interrupted);
                tokio::task::yield_now().await;
                assert_eq!(done.get(), 0, "the rows may not be stored");
                let pass = barrier.begin_pass();
                assert!(pass.has_readers);
                barrier.end_pass(pass, end);
            };
            tokio::join!(reader(), reader(), reader(), writer);
            assert_eq!(done.get(), 3);
            assert!(!barrier.has_readers());
        }
        // Stored rows need no wait.
        barrier.wait_until_stored(org(1)).await;
        assert!(!barrier.has_readers());
    }
}
