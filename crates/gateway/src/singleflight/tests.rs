//! Leaders that finish, fail or disappear, and callers on several threads.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt as _;

use super::*;

type Group = Arc<SingleFlight<u32, u32>>;

impl<K: Hash + Eq, V> Joined<K, V> {
    fn leader(self) -> Leader<K, V> {
        match self {
            Self::Leader(leader) => leader,
            Self::Waiter(_) => panic!("a waiter where a leader was expected"),
        }
    }

    fn waiter(self) -> Waiter<K, V> {
        match self {
            Self::Waiter(waiter) => waiter,
            Self::Leader(_) => panic!("a leader where a waiter was expected"),
        }
    }
}

#[tokio::test]
async fn all_waiters_get_the_value_of_the_leader() {
    let group = Group::default();
    let leader = group.join(&1).leader();
    let waiters: Vec<_> = (0..10).map(|_| group.join(&1).waiter().wait()).collect();
    assert_eq!(group.waiters(&1), 10);
    leader.complete(7);
    for waited in futures_util::future::join_all(waiters).await {
        assert!(matches!(waited, Waited::Value(7)));
    }
    assert!(group.is_idle());
    group.join(&1).leader().fail();
}

#[tokio::test]
async fn keys_do_not_wait_for_each_other() {
    let group = Group::default();
    let (one, two) = (group.join(&1).leader(), group.join(&2).leader());
    assert!(group.try_lead(&1).is_none());
    one.complete(1);
    assert!(group.try_lead(&1).is_some());
    two.fail();
    assert!(group.is_idle());
}

#[tokio::test]
async fn a_failure_releases_every_waiter_without_a_value() {
    let group = Group::default();
    let leader = group.join(&1).leader();
    let waiters: Vec<_> = (0..10).map(|_| group.join(&1).waiter().wait()).collect();
    leader.fail();
    for waited in futures_util::future::join_all(waiters).await {
        assert!(matches!(waited, Waited::Failed));
    }
    assert!(group.is_idle());
}

#[tokio::test]
async fn a_dropped_leader_promotes_exactly_one_waiter() {
    let group = Group::default();
    let leader = group.join(&1).leader();
    let mut waiters: Vec<_> = (0..5).map(|_| Box::pin(group.join(&1).waiter().wait())).collect();
    assert!(waiters.iter_mut().all(|waiter| waiter.now_or_never().is_none()));
    drop(leader);
    let mut promoted = None;
    waiters.retain_mut(|waiter| match waiter.now_or_never() {
        Some(Waited::Promoted(leader)) => {
            assert!(promoted.replace(leader).is_none());
            false
        }
        Some(_) => panic!("a waiter was released without a value"),
        None => true,
    });
    assert_eq!(waiters.len(), 4);
    promoted.unwrap().complete(3);
    for waited in futures_util::future::join_all(waiters).await {
        assert!(matches!(waited, Waited::Value(3)));
    }
    assert!(group.is_idle());
}

#[tokio::test]
async fn a_waiter_that_is_cancelled_is_never_promoted() {
    let group = Group::default();
    let leader = group.join(&1).leader();
    let mut first = Box::pin(group.join(&1).waiter().wait());
    let mut second = Box::pin(group.join(&1).waiter().wait());
    assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
    drop(leader);
    // The first waiter was chosen, and is dropped before it runs.
    drop(first);
    assert!(matches!(second.now_or_never(), Some(Waited::Promoted(_))));
    assert!(group.is_idle());
}

#[tokio::test]
async fn a_flight_without_members_is_removed() {
    let group = Group::default();
    let leader = group.join(&1).leader();
    let waiter = group.join(&1).waiter();
    drop(leader);
    assert!(!group.is_idle(), "the waiter may still be promoted");
    drop(waiter);
    assert!(group.is_idle());
    drop(group.join(&1).leader());
    assert!(group.is_idle());
}

#[tokio::test]
async fn members_of_an_old_flight_do_not_remove_the_new_one() {
    let group = Group::default();
    let old = group.join(&1).leader();
    let waiter = group.join(&1).waiter();
    old.fail();
    let new = group.join(&1).leader();
    drop(waiter);
    assert!(group.try_lead(&1).is_none());
    drop(new);
    assert!(group.is_idle());
}

/// Every caller either leads, and then disappears, fails or completes, or it waits. All must finish.
#[test]
fn callers_on_many_threads_all_come_to_an_end() {
    const THREADS: u32 = 8;
    let group = Group::default();
    let start = Arc::new(Barrier::new(THREADS as usize));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (group, start) = (Arc::clone(&group), Arc::clone(&start));
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                start.wait();
                runtime.block_on(async {
                    for round in 0..500 {
                        run_once(&group, round % 3, thread + round).await;
                    }
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(group.is_idle());
}

async fn run_once(group: &Group, key: u32, choice: u32) {
    let leader = match group.join(&key) {
        Joined::Leader(leader) => leader,
        Joined::Waiter(waiter) => {
            let waited = tokio::time::timeout(Duration::from_secs(20), waiter.wait()).await;
            match waited.expect("a waiter was never released") {
                Waited::Promoted(leader) => leader,
                Waited::Value(value) => return assert_eq!(value, key),
                Waited::Failed => return,
            }
        }
    };
    tokio::task::yield_now().await;
    match choice % 3 {
        0 => leader.complete(key),
        1 => leader.fail(),
        _ => drop(leader),
    }
}
