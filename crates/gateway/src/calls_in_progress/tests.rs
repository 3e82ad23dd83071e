//! Tests of the calls in progress: shares, turns, and that every place is given back.

use gateway_core::ids::UserId;

use super::*;

fn org(number: u128) -> OrgId {
    OrgId(uuid::Uuid::from_u128(number))
}

fn begin_all(calls: &Arc<OrgCalls>) -> Vec<CallInProgress> {
    std::iter::from_fn(|| calls.begin().ok()).collect()
}

#[test]
fn an_organization_leaves_room_and_everything_is_given_back() {
    let calls = CallsInProgress::new(640);
    let (one, two) = (calls.of(org(1)), calls.of(org(2)));
    let held = begin_all(&one);
    assert_eq!((held.len(), calls.running(), calls.refusals()), (448, 448, 1));
    let others = begin_all(&two);
    assert!(others.len() >= 80, "{}", others.len());
    drop(held);
    assert_eq!(calls.running(), others.len() as u64);
    drop(others);
    assert_eq!((calls.running(), one.running.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn an_account_with_many_organizations_leaves_calls_to_others() {
    let owners = Arc::new(OrgOwners::default());
    (1..101).for_each(|number| owners.set(org(number), UserId(uuid::Uuid::max())));
    let calls = CallsInProgress::new(640).sharing_by(&owners);
    let held: Vec<_> = (1..101).flat_map(|number| begin_all(&calls.of(org(number)))).collect();
    assert!((448..500).contains(&held.len()), "{} of all calls", held.len());
    let others = begin_all(&calls.of(org(200)));
    assert!(others.len() >= 45, "{}", others.len());
    drop((held, others));
    assert_eq!((calls.running(), begin_all(&calls.of(org(7))).len()), (0, 448));
}

#[test]
fn an_organization_is_counted_once_however_often_it_is_loaded() {
    let calls = CallsInProgress::new(64);
    let first = calls.of(org(1));
    let held = begin_all(&first);
    drop(first);
    assert_eq!(calls.of(org(1)).begin().err(), Some(TooManyCalls));
    drop(held);
    assert!(calls.of(org(1)).begin().is_ok());
}

#[tokio::test]
async fn those_who_wait_begin_when_others_end_and_take_turns() {
    let calls = CallsInProgress::new(8);
    let mut held: Vec<_> = (3..6).flat_map(|number| begin_all(&calls.of(org(number)))).collect();
    let order = Mutex::new(Vec::new());
    let begun = |number: u128| {
        let (calls, order) = (calls.of(org(number)), &order);
        async move {
            let call = calls.begin_in_turn(Duration::from_secs(600)).await.unwrap();
            order.lock().unwrap().push(number);
            call
        }
    };
    let waiting = futures_util::future::join_all([begun(1), begun(1), begun(1), begun(2)]);
    let ending = async {
        while calls.shared.waiting.load(Ordering::SeqCst) < 4 {
            tokio::task::yield_now().await;
        }
        for (ended, call) in held.drain(..4).enumerate() {
            assert_eq!(order.lock().unwrap().len(), ended);
            drop(call);
            while order.lock().unwrap().len() == ended {
                tokio::task::yield_now().await;
            }
        }
    };
    let (begun, ()) = tokio::join!(waiting, ending);
    assert_eq!(*order.lock().unwrap(), [1, 2, 1, 1]);
    assert!(calls.shared.queue(|queue| queue.orgs.is_empty()));
    drop((begun, held));
    assert_eq!(calls.running(), 0);
}

#[tokio::test]
async fn a_call_waits_for_a_limited_time_and_only_so_many_of_an_organization_wait() {
    let calls = CallsInProgress::new(8);
    let one = calls.of(org(1));
    let held = begin_all(&one);
    let refused = calls.refusals();
    let waiting = (0..=MAX_WAITING_PER_ORG).map(|_| one.begin_in_turn(Duration::from_millis(50)));
    let answers = futures_util::future::join_all(waiting).await;
    assert!(answers.iter().all(Result::is_err));
    assert_eq!(calls.refusals() - refused, MAX_WAITING_PER_ORG as u64 + 1);
    assert_eq!(calls.shared.waiting.load(Ordering::SeqCst), MAX_WAITING_PER_ORG);
    // Those who have gone away leave room for the next one.
    let (next, ()) = tokio::join!(one.begin_in_turn(Duration::from_secs(600)), async { drop(held) });
    assert!(next.is_ok());
    assert_eq!(calls.shared.waiting.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_who_waits_is_overlooked() {
    let calls = Arc::new(CallsInProgress::new(16));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8 {
        for _ in 0..8 {
            let account = calls.of(org(number));
            tasks.spawn(async move {
                for _ in 0..500 {
                    let call = account.begin_in_turn(Duration::from_secs(60)).await;
                    assert!(call.is_ok());
                    tokio::task::yield_now().await;
                }
            });
        }
    }
    let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
    tokio::time::timeout(Duration::from_secs(50), all).await.expect("somebody waits for ever");
    assert_eq!(calls.running(), 0);
}

#[test]
fn threads_that_begin_calls_at_once_do_not_exceed_the_total() {
    let calls = CallsInProgress::new(100);
    let most = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (account, most) = (calls.of(org(number)), &most);
            scope.spawn(move || {
                for _ in 0..2_000 {
                    let held = account.begin();
                    if held.is_ok() {
                        // Those that are being refused are counted for a moment as well.
                        most.fetch_max(account.shared.running.load(Ordering::Relaxed), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(most.load(Ordering::Relaxed) <= 100 + 8);
    assert_eq!(calls.running(), 0);
}
