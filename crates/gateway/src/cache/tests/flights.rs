//! Tests of the same request under way several times.

use std::sync::atomic::AtomicUsize;
use std::sync::{Barrier, mpsc};
use std::thread;

use super::*;

/// Runs a caller on a thread and a runtime of its own, as a worker does.
fn on_own_thread<T: Send + 'static>(work: impl AsyncFnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(work())
    })
}

/// Waits until so many requests wait for this leader. The tenant is held by the map, twice by the leader, and twice by
/// each follower.
fn until_followed_by(followers: usize, lead: &Lead) {
    for _ in 0..1_000 {
        if Arc::strong_count(&lead.tenant) == 3 + 2 * followers {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("it did not happen");
}

#[test]
fn sixty_four_at_once_have_one_leader_and_the_same_answer() {
    let cache = cache();
    let (calls, start) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(8)));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (cache, calls, start) = (Arc::clone(&cache), Arc::clone(&calls), Arc::clone(&start));
            on_own_thread(async move || {
                start.wait();
                let one = async || match cache.look(ask(1, 1)).await {
                    Lookup::Hit(hit) => hit.text().to_owned(),
                    Lookup::Lead(lead) => {
                        let call = calls.fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        let entry = lead.complete(answer(&format!("answer {call}")), None);
                        String::from_utf8(entry.body.to_vec()).unwrap()
                    }
                };
                futures_util::future::join_all((0..8).map(|_| one())).await
            })
        })
        .collect();
    let answers: Vec<String> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert_eq!(answers.len(), 64);
    assert!(answers.iter().all(|answer| answer == "answer 0"), "{answers:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    let stats = cache.stats(org(1));
    assert_eq!((stats.misses, stats.hits, stats.entries), (1, 63, 1));
    assert!(stats.coalesced > 0);
}

#[test]
fn when_the_leader_hangs_up_exactly_one_follower_leads_and_the_rest_wait_for_it() {
    let cache = cache();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let first = runtime.block_on(cache.look(ask(1, 1))).led();
    let (sender, leads) = mpsc::channel();
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let (cache, sender) = (Arc::clone(&cache), sender.clone());
            on_own_thread(async move || match cache.look(ask(1, 1)).await {
                Lookup::Hit(hit) => hit.text().to_owned(),
                Lookup::Lead(lead) => {
                    sender.send(()).unwrap();
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    lead.complete(answer("second"), None);
                    "led".to_owned()
                }
            })
        })
        .collect();
    until_followed_by(16, &first);
    drop(first);
    let mut answers: Vec<String> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    answers.sort();
    assert_eq!(leads.try_iter().count(), 1);
    assert_eq!(answers[0], "led");
    assert!(answers[1..].iter().all(|answer| answer == "second"), "{answers:?}");
}

#[test]
fn a_failure_is_nobody_elses_and_sends_all_on_their_own_way() {
    let cache = cache();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let first = runtime.block_on(cache.look(ask(1, 1))).led();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let cache = Arc::clone(&cache);
            on_own_thread(async move || cache.look(ask(1, 1)).await.led())
        })
        .collect();
    until_followed_by(8, &first);
    let failed_at = std::time::Instant::now();
    first.failed();
    // All of them hold a lead at the same time, and none waits for another.
    let mut leads: Vec<Lead> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(leads.len(), 8);
    assert!(failed_at.elapsed() < PATIENCE / 2);
    // One who succeeds later still fills the cache.
    leads.pop().unwrap().complete(answer("mine"), None);
    leads.into_iter().for_each(Lead::failed);
    assert_eq!(runtime.block_on(cache.look(ask(1, 1))).hit().text(), "mine");
}

#[tokio::test]
async fn a_follower_waits_no_longer_than_it_said() {
    let cache = cache();
    let first = cache.look(ask(1, 1)).await.led();
    let hasty = Ask { patience: Duration::from_millis(30), ..ask(1, 1) };
    cache.look(hasty).await.led().complete(answer("own"), None);
    assert_eq!(cache.look(ask(1, 1)).await.hit().text(), "own");
    first.complete(answer("late"), None);
    assert_eq!(cache.look(ask(1, 1)).await.hit().text(), "late");
}

#[tokio::test]
async fn a_follower_that_hangs_up_while_waiting_takes_nothing_with_it() {
    let cache = cache();
    let first = cache.look(ask(1, 1)).await.led();
    for _ in 0..3 {
        let waiting = tokio::time::timeout(Duration::from_millis(10), cache.look(ask(1, 1))).await;
        assert!(waiting.is_err());
    }
    drop(first);
    cache.look(ask(1, 1)).await.led().complete(answer("ok"), None);
    assert_eq!(cache.look(ask(1, 1)).await.hit().text(), "ok");
}

#[tokio::test]
async fn a_flight_that_everybody_left_is_forgotten() {
    let cache = cache();
    drop(cache.look(ask(1, 1)).await.led());
    let tenant = cache.known(org(1)).unwrap();
    assert!(tenant.is_idle_since(Timestamp(i64::MAX)));
    cache.look(ask(1, 1)).await.led().failed();
    assert!(tenant.is_idle_since(Timestamp(i64::MAX)));
}

#[tokio::test]
async fn refresh_always_leads_and_replaces() {
    let cache = cache();
    store(&cache, ask(1, 1), "old").await;
    let refresh = Ask { mode: Mode::Refresh, ..ask(1, 1) };
    let lead = cache.look(refresh).await.led();
    // While it is under way the old answer is still good, and a second refresh leads too.
    assert_eq!(cache.look(ask(1, 1)).await.hit().text(), "old");
    let other = cache.look(refresh).await.led();
    lead.complete(answer("new"), None);
    assert_eq!(cache.look(ask(1, 1)).await.hit().text(), "new");
    other.failed();
    assert_eq!(cache.look(ask(1, 1)).await.hit().text(), "new");
    let stats = cache.stats(org(1));
    assert_eq!((stats.entries, stats.misses), (1, 1));
}

#[tokio::test]
async fn organizations_share_neither_entries_nor_flights() {
    let cache = cache();
    // The same key on purpose: the partition holds even if two keys met.
    let first = cache.look(ask(1, 7)).await.led();
    let second = cache.look(ask(2, 7)).await.led();
    first.complete(answer("first"), None);
    assert_eq!(cache.look(ask(1, 7)).await.hit().text(), "first");
    second.complete(answer("second"), None);
    assert_eq!(cache.look(ask(2, 7)).await.hit().text(), "second");
    assert_eq!(cache.look(ask(1, 7)).await.hit().text(), "first");
    cache.look(ask(3, 7)).await.led().failed();
    assert_eq!(cache.purge(org(1), PurgeScope::All).await, 1);
    assert_eq!(cache.look(ask(2, 7)).await.hit().text(), "second");
}
