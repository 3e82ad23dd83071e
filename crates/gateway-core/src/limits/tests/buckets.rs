//! Buckets: exact refill, no drift, reservations and shares of classes.

use std::time::Duration;

use proptest::prelude::*;

use super::limit;
use crate::limits::{Account, Averages, Bucket, Demand, Floor, TokenEstimate, TokenFacts, TokensUsed, Unit};
use crate::time::{DAY, HOUR, MINUTE, Timestamp};

/// The level in exact parts, kept by the plainest arithmetic.
struct Model {
    level: i128,
    at: i64,
}

#[test]
fn a_million_steps_do_not_drift() {
    let cases = [
        (7, MINUTE, 1_000_000),
        (100, MINUTE, 100_000),
        (60_000, HOUR, 100_000),
        (9_999_999_967, DAY, 100_000),
    ];
    for (capacity, window, steps) in cases {
        let mut bucket = Bucket::new(capacity, window, Timestamp(0));
        let full = i128::from(capacity) * i128::from(window);
        let mut model = Model { level: full, at: 0 };
        let mut random = 42_u64;
        for step in 0..steps {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let now = model.at + i64::try_from(random >> 54).unwrap();
            model.level = full.min(model.level + i128::from(capacity) * i128::from(now - model.at));
            model.at = now;
            bucket.refill(Timestamp(now));
            let amount = (random >> 20) % (capacity / 100 + 1);
            if step % 3 == 0 {
                let fits = model.level >= i128::from(amount) * i128::from(window);
                assert_eq!(bucket.has(amount, 0), fits, "step {step}");
                if fits {
                    bucket.take(amount);
                    model.level -= i128::from(amount) * i128::from(window);
                }
            }
            assert!(model.level >= 0, "never negative without overrun");
        }
        assert_eq!(i128::from(bucket.left()), model.level.div_euclid(i128::from(window)));
    }
}

#[test]
fn the_refill_is_exact_to_the_millisecond() {
    let mut bucket = Bucket::new(100, MINUTE, Timestamp(0));
    bucket.take(100);
    assert_eq!(bucket.time_until(1, 0), Duration::from_millis(600));
    bucket.refill(Timestamp(599));
    assert!(!bucket.has(1, 0));
    bucket.refill(Timestamp(600));
    assert!(bucket.has(1, 0) && !bucket.has(2, 0));
    bucket.refill(Timestamp(59_999));
    assert!(!bucket.is_full() && bucket.left() == 99);
    bucket.refill(Timestamp(60_000));
    assert!(bucket.is_full() && bucket.left() == 100);
    bucket.refill(Timestamp(600_000));
    assert_eq!(bucket.left(), 100, "never above the capacity");
}

#[test]
fn an_overrun_delays_the_next_call_by_its_refill_only() {
    let mut bucket = Bucket::new(60, MINUTE, Timestamp(0));
    bucket.take(60);
    bucket.give_back(-30);
    assert_eq!(bucket.left(), -30);
    assert_eq!(bucket.time_until(1, 0), Duration::from_secs(31));
    bucket.refill(Timestamp(31_000));
    assert!(bucket.has(1, 0));
}

#[test]
fn a_clock_that_steps_back_neither_refills_twice_nor_locks_out() {
    let mut bucket = Bucket::new(60, MINUTE, Timestamp(100_000));
    bucket.take(60);
    bucket.refill(Timestamp(98_000));
    assert_eq!(bucket.left(), 0);
    bucket.refill(Timestamp(100_000));
    assert_eq!(bucket.left(), 0, "the two seconds are not refilled twice");
    bucket.refill(Timestamp(101_000));
    assert_eq!(bucket.left(), 1);
    bucket.refill(Timestamp(50_000));
    bucket.refill(Timestamp(51_000));
    assert_eq!(bucket.left(), 2, "a large step starts the refill anew");
}

#[test]
fn a_changed_limit_keeps_what_is_used() {
    let mut bucket = Bucket::new(100, MINUTE, Timestamp(0));
    bucket.take(80);
    bucket.resize(50, MINUTE);
    assert_eq!(bucket.left(), -30, "no new calls until it has drained");
    bucket.resize(200, MINUTE);
    assert_eq!(bucket.left(), 120);
}

proptest! {
    #[test]
    fn many_steps_refill_like_one(capacity in 1..1_000_000_u64, steps in prop::collection::vec(0..5_000_i64, 1..50)) {
        let mut stepwise = Bucket::new(capacity, MINUTE, Timestamp(0));
        stepwise.take(capacity);
        let mut once = stepwise;
        let mut now = 0;
        for step in steps {
            now += step;
            stepwise.refill(Timestamp(now));
        }
        once.refill(Timestamp(now));
        prop_assert_eq!(stepwise, once);
    }

    #[test]
    fn waiting_as_long_as_told_is_enough_and_not_too_long(capacity in 1..100_000_u64, taken in 0..100_000_u64, wanted in 0..100_000_u64) {
        let (taken, wanted) = (taken.min(capacity), wanted.min(capacity));
        let mut bucket = Bucket::new(capacity, MINUTE, Timestamp(0));
        bucket.take(taken);
        let wait = i64::try_from(bucket.time_until(wanted, 0).as_millis()).unwrap();
        let mut early = bucket;
        bucket.refill(Timestamp(wait));
        prop_assert!(bucket.has(wanted, 0));
        if wait > 0 {
            early.refill(Timestamp(wait - 1));
            prop_assert!(!early.has(wanted, 0));
        }
    }
}

fn demand(tokens: u64) -> Demand {
    Demand { requests: 1, tokens, input_tokens: tokens, output_tokens: 0 }
}

#[test]
fn a_call_fits_all_units_or_none() {
    let limit = limit(r#"{"name": "l", "requests": 10, "tokens": 100, "concurrent": 2}"#);
    let mut account = Account::new(&limit, Timestamp(0));
    account.take(&demand(90), Timestamp(0));
    let short = account.check(&demand(20), Floor(0), 1).unwrap_err();
    assert_eq!((short.unit, short.limit, short.needed, short.left), (Unit::Tokens, 100, 20, 10));
    assert_eq!(short.wait, Some(Duration::from_secs(6)));
    assert_eq!(account.check(&demand(101), Floor(0), 1).unwrap_err().wait, None, "it never fits");
    account.take(&demand(5), Timestamp(0));
    let short = account.check(&demand(1), Floor(0), 1).unwrap_err();
    assert_eq!((short.unit, short.left), (Unit::Concurrent, 0));
    account.settle(&demand(90), &demand(10), Timestamp(0));
    account.release();
    assert_eq!(account.check(&demand(80), Floor(0), 1), Ok(()));
    let left: Vec<i64> = account.readings().map(|reading| reading.left).collect();
    assert_eq!(left, [8, 85, 1], "requests stay counted");
}

#[test]
fn a_share_is_kept_for_its_class_unless_it_is_idle() {
    let limit = limit(r#"{"name": "l", "tokens": 100, "reserve": {"prod": 0.7}}"#);
    let mut account = Account::new(&limit, Timestamp(0));
    let other = Some("batch");
    assert_eq!(account.floor(&limit, other, Timestamp(0)), Floor(0), "nobody of the class calls");
    account.note_class(&limit, Some("prod"), Timestamp(0));
    let floor = account.floor(&limit, other, Timestamp(1));
    assert_eq!(floor, Floor(700_000));
    assert_eq!(account.check(&demand(30), floor, 1), Ok(()));
    assert!(account.check(&demand(31), floor, 1).is_err());
    assert_eq!(account.floor(&limit, Some("prod"), Timestamp(1)), Floor(0), "the class itself goes on");
    assert_eq!(account.floor(&limit, None, Timestamp(10_000)), Floor(0), "idle again");
    account.take(&demand(81), Timestamp(10_000));
    account.refill(Timestamp(19_999));
    assert_eq!(account.floor(&limit, None, Timestamp(19_999)), Floor(700_000), "it was below a fifth");
    assert_eq!(account.floor(&limit, None, Timestamp(20_000)), Floor(0));
    // A bucket that stays low keeps its shares, however long nobody is admitted.
    let day = self::limit(r#"{"name": "l", "tokens": 100, "window": "day", "reserve": {"prod": 0.7}}"#);
    let mut account = Account::new(&day, Timestamp(0));
    account.take(&demand(85), Timestamp(0));
    account.refill(Timestamp(600_000));
    assert_eq!(account.floor(&day, None, Timestamp(600_000)), Floor(700_000));
}

#[test]
fn nodes_that_do_not_see_each_other_have_a_part_each() {
    let limit = limit(r#"{"name": "l", "tokens": 100, "concurrent": 5}"#);
    let mut account = Account::new(&limit, Timestamp(0));
    assert!(account.check(&demand(40), Floor(0), 3).is_ok(), "a full bucket serves a call above the part");
    assert_eq!(account.check(&demand(101), Floor(0), 3).unwrap_err().wait, None, "it never fits");
    account.take(&demand(40).times(3), Timestamp(0));
    let short = account.check(&demand(40), Floor(0), 3).unwrap_err();
    assert_eq!((short.unit, short.needed), (Unit::Tokens, 40));
    assert_eq!(short.wait, Some(Duration::from_secs(72)), "until it is full again");
    // Five calls at the same time are one for each of three nodes, and always one.
    let short = account.check(&demand(0), Floor(0), 3).unwrap_err();
    assert_eq!(short.unit, Unit::Concurrent);
    account.release();
    assert!(account.check(&demand(0), Floor(0), 9).is_ok());
}

#[test]
fn calls_of_other_nodes_are_shown_and_not_counted_as_own() {
    let limit = limit(r#"{"name": "l", "concurrent": 5}"#);
    let mut account = Account::new(&limit, Timestamp(0));
    let left = |account: &Account| account.reading(Unit::Concurrent).unwrap().left;
    account.begin();
    account.set_running_everywhere(4);
    assert_eq!((account.running(), left(&account)), (1, 1));
    account.release();
    assert!(account.is_unused());
    account.take(&demand(0), Timestamp(0));
    assert_eq!((account.running(), left(&account)), (1, 4), "what was known of the others is old");
}

#[test]
fn the_reservation_follows_the_request_or_the_average() {
    let facts = TokenFacts { body_bytes: 300, generates_text: true, ..TokenFacts::default() };
    let big = limit(r#"{"name": "l", "tokens": 100000, "output_tokens": 600}"#);
    let stated = TokenEstimate::new(&TokenFacts { max_tokens: Some(900), choices: Some(8), ..facts });
    assert_eq!((stated.demand(&big).tokens, stated.demand(&big).output_tokens), (100 + 7_200, 7_200));
    let guessed = TokenEstimate::new(&TokenFacts { average: Some(400), ..facts }).demand(&big);
    assert_eq!((guessed.tokens, guessed.input_tokens, guessed.output_tokens), (900, 100, 300));
    let least = TokenEstimate::new(&TokenFacts { average: Some(3), ..facts });
    assert_eq!(least.output, 256);
    let small = limit(r#"{"name": "l", "tokens": 200}"#);
    assert_eq!(least.demand(&small).tokens, 200, "at most half of the limit for the output");
    let capped = TokenFacts { max_input: Some(50), max_output: Some(80), max_tokens: Some(900), ..facts };
    assert_eq!(TokenEstimate::new(&capped).demand(&big).tokens, 130);
    let embeddings = TokenEstimate::new(&TokenFacts { generates_text: false, ..facts });
    assert_eq!((embeddings.input, embeddings.output), (100, 0));
}

#[test]
fn cached_input_counts_unless_the_limit_says_otherwise() {
    let used = TokensUsed { input: 100, cached: 60, output: 7 };
    assert_eq!(used.demand(&limit(r#"{"name": "l", "tokens": 9}"#)).tokens, 107);
    let without = limit(r#"{"name": "l", "tokens": 9, "count_cached": false}"#);
    assert_eq!((used.demand(&without).tokens, used.demand(&without).input_tokens), (47, 40));
}

#[test]
fn averages_follow_the_latest_calls() {
    let mut averages = Averages::default();
    assert_eq!(averages.get(None, "m"), None);
    averages.add(None, "m", 80);
    assert_eq!(averages.get(None, "m"), Some(80));
    for _ in 0..100 {
        averages.add(None, "m", 400);
    }
    assert!(averages.get(None, "m").is_some_and(|average| (390..=401).contains(&average)));
    assert_eq!(averages.get(None, "other"), None);
}
