//! The order of waiting calls, the headers, and the map that forgets what was not used for long.

use std::time::Duration;

use crate::limits::headers::policy_item;
use crate::limits::{
    HEADER_NAMES, HeaderWriter, Lru, Policy, Tightest, Unit, WaitQueue, retry_after, tightest_policies,
};
use crate::time::Timestamp;

#[test]
fn priority_comes_before_arrival() {
    let mut queue = WaitQueue::default();
    for (arrival, priority) in [(0, 5), (1, 9), (2, 0), (3, 9), (4, 5)] {
        let order = queue.place(priority, Timestamp(arrival));
        queue.insert(order, (priority, arrival));
    }
    let served: Vec<_> = queue.iter().map(|(_, waiter)| *waiter).collect();
    assert_eq!(served, [(9, 1), (9, 3), (5, 0), (5, 4), (0, 2)]);
}

#[test]
fn two_seconds_of_waiting_are_one_step() {
    let mut queue = WaitQueue::default();
    let low = queue.place(5, Timestamp(0));
    assert!(queue.place(6, Timestamp(1_999)) < low);
    assert!(queue.place(6, Timestamp(2_001)) > low);
    let lowest = queue.place(0, Timestamp(0));
    assert!(queue.place(9, Timestamp(17_999)) < lowest);
    assert!(queue.place(9, Timestamp(18_001)) > lowest, "nobody waits longer than 18 s for later ones");
    queue.insert(low, 'a');
    assert_eq!((queue.before(lowest).count(), queue.remove(low), queue.len()), (1, Some('a'), 0));
}

fn policy(name: &str, unit: Unit, (limit, left): (u64, u64), resets_in: u64) -> Policy {
    let item = policy_item(name, unit, limit, 60_000).into();
    Policy { item, name_bytes: name.len(), unit, limit, left, resets_in: Duration::from_millis(resets_in) }
}

fn headers(write: impl FnOnce(&mut HeaderWriter)) -> Vec<(&'static str, String)> {
    let mut writer = HeaderWriter::default();
    write(&mut writer);
    let (text, places) = writer.finish();
    places.map(|(name, value)| (HEADER_NAMES[name], text[value].to_owned())).collect()
}

#[test]
fn headers_have_the_tightest_limit_first() {
    let policies = [
        policy("plan", Unit::Requests, (1_000, 998), 31_000),
        policy("team-tokens", Unit::Tokens, (60_000, 51_230), 8_001),
        policy("busy", Unit::Concurrent, (4, 1), 0),
    ];
    assert_eq!(policies.each_ref().map(Policy::name), ["plan", "team-tokens", "busy"]);
    let policies = tightest_policies(&policies);
    let standard = headers(|writer| writer.write_rate_limits(&policies));
    let policy =
        r#""busy";q=4;qu="concurrent-requests", "team-tokens";q=60000;w=60;qu="tokens", "plan";q=1000;w=60"#;
    let left = r#""busy";r=1, "team-tokens";r=51230;t=9, "plan";r=998;t=31"#;
    assert_eq!(standard, [("ratelimit-policy", policy.to_owned()), ("ratelimit", left.to_owned())]);
    let openai = headers(|writer| writer.write_openai(&policies));
    let values = ["1000", "998", "31s", "60000", "51230", "8.001s"].map(str::to_owned);
    assert_eq!(openai, HEADER_NAMES[2..8].iter().copied().zip(values).collect::<Vec<_>>());
    let anthropic = headers(|writer| writer.write_anthropic(&policies, Timestamp(1_794_700_000_500)));
    assert_eq!(anthropic.len(), 6, "none of input and output tokens");
    assert_eq!(anthropic[4], ("anthropic-ratelimit-tokens-remaining", "51230".to_owned()));
    let (name, reset) = &anthropic[5];
    assert!(*name == "anthropic-ratelimit-tokens-reset" && reset.ends_with('Z') && reset.len() == 20);
    let all = headers(|writer| {
        writer.write_rate_limits(&policies);
        writer.write_openai(&policies);
    });
    assert_eq!(all, [standard, openai].concat());
}

#[test]
fn each_header_is_named_after_its_unit() {
    for (unit, word) in [
        (Unit::Requests, "-requests"),
        (Unit::Tokens, "-tokens"),
        (Unit::InputTokens, "-input-tokens"),
        (Unit::OutputTokens, "-output-tokens"),
    ] {
        let policy = policy("l", unit, (9, 8), 0);
        let written = headers(|writer| writer.write_anthropic(&[&policy], Timestamp(0)));
        let names = ["limit", "remaining", "reset"].map(|part| format!("anthropic-ratelimit{word}-{part}"));
        assert!(written.iter().map(|(name, _)| *name).eq(names), "{written:?}");
    }
}

#[test]
fn the_tightest_of_many_buckets_are_chosen() {
    let mut tightest = Tightest::default();
    for bucket in 0..20_u32 {
        tightest.add(f64::from((bucket * 7) % 20) / 20.0, Unit::Requests, bucket);
    }
    tightest.add(0.9, Unit::Tokens, 20);
    tightest.add(0.95, Unit::Tokens, 21);
    let chosen: Vec<(Unit, u32)> = tightest.chosen().collect();
    let requests = [0, 3, 6, 9, 12, 15, 18, 1].map(|bucket| (Unit::Requests, bucket));
    assert_eq!(
        chosen,
        [&requests[..], &[(Unit::Tokens, 20)]].concat(),
        "eight, and the tightest of each unit"
    );
    let none = Tightest::<u32>::default();
    assert_eq!(none.chosen().count(), 0);
}

#[test]
fn durations_are_written_like_those_of_openai() {
    for (millis, text) in [
        (0, "0s"),
        (120, "120ms"),
        (1_000, "1s"),
        (1_500, "1.5s"),
        (360_000, "6m0s"),
        (3_723_004, "1h2m3.004s"),
    ] {
        let policy = policy("l", Unit::Tokens, (1, 1), millis);
        assert_eq!(headers(|writer| writer.write_openai(&[&policy]))[2].1, text);
    }
}

#[test]
fn both_ways_to_say_when_to_retry_agree() {
    let after = |millis| retry_after(Duration::from_millis(millis));
    assert_eq!([after(0), after(1), after(1_000), after(1_001)], [(1, 1), (1, 1), (1, 1_000), (2, 1_001)]);
}

#[test]
fn the_least_recently_used_leaves_first() {
    let mut lru = Lru::new(3);
    for key in 0..3 {
        lru.entry(&key, || key * 10, |_| false);
    }
    assert_eq!(lru.get(&0).copied(), Some(0));
    lru.entry(&3, || 30, |_| false);
    assert_eq!(lru.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [3, 0, 2]);
    assert_eq!((lru.peek(&1), lru.len()), (None, 3));
    lru.entry(&4, || 40, |value| *value == 20);
    assert_eq!(lru.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [4, 3, 2], "2 is held, so 0 leaves");
    lru.entry(&5, || 50, |_| true);
    assert_eq!(lru.peek(&2), None, "if all are held, the last leaves");
}

#[test]
fn the_oldest_can_be_removed_and_the_others_stay_in_order() {
    let mut lru = Lru::new(100);
    for key in 0..6 {
        lru.entry(&key, || key * 10, |_| false);
    }
    lru.get(&1);
    lru.remove_oldest(|_| false);
    lru.remove_oldest(|value| *value == 20);
    let order = |lru: &Lru<i32, i32>| lru.iter().map(|(key, _)| *key).collect::<Vec<_>>();
    assert_eq!(order(&lru), [1, 5, 4, 2], "0 was the oldest, and 2 is held");
    lru.entry(&7, || 70, |_| false);
    assert_eq!([1, 2, 4, 5, 7].map(|key| lru.get(&key).copied()), [10, 20, 40, 50, 70].map(Some));
    assert_eq!(order(&lru), [7, 5, 4, 2, 1]);
    for _ in 0..6 {
        lru.remove_oldest(|_| false);
    }
    assert!(lru.is_empty() && order(&lru).is_empty());
    lru.entry(&9, || 90, |_| false);
    assert_eq!(order(&lru), [9]);
}
