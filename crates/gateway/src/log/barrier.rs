//! Lets a reader see every row whose response has ended on this node. It waits until the rows of its organization that
//! are not stored yet are stored. Other organizations never wait.
//!
//! The writer works in passes. A pass stores everything that was appended before it began. An appended row is recorded
//! with the number of passes begun so far, `n`, so pass `n + 1` stores it at the latest. Rows are recorded after they
//! are in the spool: a row that a pass missed has at least the number of that pass.
//!
//! A pass may take long because of the rows of other organizations. Then the writer stores the rows of waiting
//! organizations first, if all of them are in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway_core::ids::OrgId;
use rustc_hash::FxBuildHasher;
use tokio::sync::{Notify, oneshot, watch};

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
    /// Readers that wait, by organization. They are told when the rows of the organization were stored before others.
    waiting: Mutex<HashMap<OrgId, Vec<oneshot::Sender<()>>, FxBuildHasher>>,
    lanes: Vec<Mutex<Appended>>,
}

/// The rows of an organization in a lane.
#[derive(Clone, Copy)]
struct OrgRows {
    /// The passes begun when the latest row was appended.
    last: u64,
    /// The same for the latest row that is not in memory.
    last_on_disk: Option<u64>,
}

/// What was appended to a lane.
#[derive(Default)]
struct Appended {
    orgs: HashMap<OrgId, OrgRows, FxBuildHasher>,
    /// The passes begun when the latest row of an organization that is not in `orgs` was appended.
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
            waiting: Mutex::default(),
            lanes,
        }
    }

    /// Records that a row was appended. The row must be in the spool already. `is_in_memory`: a copy was kept.
    pub fn appended(&self, lane: usize, org: OrgId, is_in_memory: bool) {
        let begun = self.begun.load(Ordering::SeqCst);
        let mut lane = self.lane(lane);
        if lane.orgs.len() >= MAX_ORGS && !lane.orgs.contains_key(&org) {
            let stored = self.stored.load(Ordering::SeqCst);
            if lane.pruned_at < stored {
                lane.pruned_at = stored;
                lane.orgs.retain(|_, rows| rows.last >= stored);
            }
            if lane.orgs.len() >= MAX_ORGS {
                lane.others = Some(begun);
                return;
            }
        }
        let rows = lane.orgs.entry(org).or_insert(OrgRows { last: begun, last_on_disk: None });
        rows.last = begun;
        if !is_in_memory {
            rows.last_on_disk = Some(begun);
        }
    }

    /// Waits until the rows appended so far are stored, at most for some seconds. Returns early if the writer fails.
    pub async fn wait_until_stored(&self, org: OrgId) {
        let Some(wanted) = self.pass_with_rows_of(org) else { return };
        let mut ended = self.ended.subscribe();
        let (sender, mut stored_first) = oneshot::channel();
        self.waiting().entry(org).or_default().push(sender);
        self.wanted.fetch_max(wanted, Ordering::SeqCst);
        self.wake_writer.notify_one();
        let stored = async {
            tokio::select! {
                // An interrupted pass is not enough, and is followed by another at once. A failed one ends the wait.
                _ = ended.wait_for(|ended| *ended >= wanted) => {}
                Ok(()) = &mut stored_first => {}
            }
        };
        let _ = tokio::time::timeout(MAX_WAIT, stored).await;
    }

    /// The waiting organizations all of whose rows in the spool are in memory.
    pub fn waiting_in_memory(&self) -> Vec<OrgId> {
        self.waiting().keys().copied().filter(|org| self.is_in_memory(*org)).collect()
    }

    /// Takes the readers of an organization, who are to be told that its rows are stored.
    pub fn take_readers(&self, org: OrgId) -> Vec<oneshot::Sender<()>> {
        self.waiting().remove(&org).unwrap_or_default()
    }

    fn is_in_memory(&self, org: OrgId) -> bool {
        let stored = self.stored.load(Ordering::SeqCst);
        (0..self.lanes.len()).all(|lane| {
            let lane = self.lane(lane);
            let on_disk = lane.orgs.get(&org).and_then(|rows| rows.last_on_disk).max(lane.others);
            on_disk.is_none_or(|appended| appended < stored)
        })
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
        self.waiting().retain(|_, readers| {
            readers.retain(|reader| !reader.is_closed());
            !readers.is_empty()
        });
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
            lane.orgs.get(&org).map(|rows| rows.last).max(lane.others)
        });
        appended.max().filter(|appended| *appended >= stored).map(|appended| appended + 1)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<OrgId, Vec<oneshot::Sender<()>>, FxBuildHasher>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
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
        barrier.appended(1, org(1), true);
        assert_eq!(barrier.pass_with_rows_of(org(1)), Some(1));
        assert_eq!(barrier.pass_with_rows_of(org(2)), None);
        let pass = barrier.begin_pass();
        // The pass may have missed this row.
        barrier.appended(0, org(2), true);
        barrier.end_pass(pass, PassEnd::Complete);
        assert_eq!(barrier.pass_with_rows_of(org(1)), None);
        assert_eq!(barrier.pass_with_rows_of(org(2)), Some(2));
        complete_pass(&barrier);
        assert_eq!(barrier.pass_with_rows_of(org(2)), None);
    }

    #[test]
    fn a_pass_that_fails_or_is_interrupted_stores_nothing_for_sure() {
        let barrier = ReadBarrier::new(1, false);
        barrier.appended(0, org(1), true);
        for end in [PassEnd::Failed, PassEnd::Interrupted] {
            let pass = barrier.begin_pass();
            barrier.end_pass(pass, end);
            assert!(barrier.pass_with_rows_of(org(1)).is_some(), "{end:?}");
        }
        complete_pass(&barrier);
        assert_eq!(barrier.pass_with_rows_of(org(1)), None);
    }

    #[tokio::test]
    async fn an_organization_is_stored_first_only_if_its_rows_are_in_memory() {
        let barrier = ReadBarrier::new(2, false);
        barrier.appended(0, org(1), true);
        barrier.appended(0, org(2), true);
        barrier.appended(1, org(2), false);
        assert!(barrier.waiting_in_memory().is_empty(), "nobody waits");
        let writer = async {
            while barrier.waiting().len() < 2 {
                tokio::task::yield_now().await;
            }
            assert_eq!(barrier.waiting_in_memory(), [org(1)], "a row of the other one is on disk only");
            let readers = barrier.take_readers(org(1));
            assert_eq!(readers.len(), 1);
            assert!(barrier.waiting_in_memory().is_empty());
            for reader in readers {
                reader.send(()).unwrap();
            }
        };
        tokio::select! {
            () = barrier.wait_until_stored(org(2)) => panic!("its rows are not stored"),
            ((), ()) = async { tokio::join!(barrier.wait_until_stored(org(1)), writer) } => {}
        }
        complete_pass(&barrier);
        assert_eq!(barrier.waiting().len(), 0, "readers that are gone are forgotten");
        barrier.appended(1, org(2), true);
        assert!(barrier.is_in_memory(org(2)), "what was on disk only is stored");
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
            barrier.appended(0, org(number), true);
        }
        assert_eq!(barrier.lane(0).orgs.len(), MAX_ORGS);
        assert_eq!(barrier.pass_with_rows_of(org(9_999)), Some(1), "may be one of the others");
        complete_pass(&barrier);
        assert_eq!(barrier.pass_with_rows_of(org(9_999)), None);
        barrier.appended(0, org(9_999), true);
        assert_eq!(barrier.lane(0).orgs.len(), 1, "stored organizations are removed");
        assert_eq!(barrier.pass_with_rows_of(org(9_999)), Some(2));
        assert_eq!(barrier.pass_with_rows_of(org(1)), None);
    }

    #[tokio::test]
    async fn readers_wait_for_one_pass_together_and_a_failure_releases_them() {
        let barrier = ReadBarrier::new(1, false);
        for end in [PassEnd::Failed, PassEnd::Complete] {
            barrier.appended(0, org(1), true);
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
