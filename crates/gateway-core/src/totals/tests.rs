//! Tests of sums, packing, costs and latency histograms.

use proptest::prelude::*;

use super::*;

fn of(values: &[i64]) -> Latencies {
    let mut latencies = Latencies::default();
    for value in values {
        latencies.add(*value);
    }
    latencies
}

#[test]
fn the_buckets_reach_beyond_the_longest_call() {
    assert!(BOUNDS[BUCKETS - 1] > 100 * 3_600_000, "{}", BOUNDS[BUCKETS - 1]);
    assert!(BOUNDS.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn a_digest_distinguishes_neighbouring_texts() {
    let all = [
        digest(&[Some("ab"), Some("c")]),
        digest(&[Some("a"), Some("bc")]),
        digest(&[Some("abc"), None]),
        digest(&[Some("abc"), Some("")]),
    ];
    assert!(all.iter().enumerate().all(|(at, one)| *one >= 0 && !all[..at].contains(one)), "{all:?}");
}

#[test]
fn rows_of_one_latency_have_exact_percentiles() {
    let latencies = of(&[137; 50]);
    assert_eq!(latencies.percentile(0.5), Some(137));
    assert_eq!(latencies.percentile(0.95), Some(137));
    assert_eq!(Latencies::default().percentile(0.5), None);
}

#[test]
fn a_percentile_is_interpolated_within_its_bucket() {
    // The bucket from 100 to 110 has four rows: ranks 1 to 4 are at an eighth, three eighths and so on.
    let start = BOUNDS[usize::from(bucket_of(105))];
    let end = BOUNDS[usize::from(bucket_of(105)) + 1];
    let latencies = of(&[start, start, end - 1, end - 1]);
    let expected = [1, 3, 5, 7].map(|eighths| Some(start + (end - start) * eighths / 8));
    assert_eq!([0.25, 0.5, 0.75, 1.0].map(|share| latencies.percentile(share)), expected);
    // Below 20 ms a bucket is one millisecond wide.
    let latencies = of(&[0, 1, 5, 6, 19]);
    let shares = [0.0, 0.2, 0.21, 0.6, 0.8, 1.0];
    assert_eq!(shares.map(|share| latencies.percentile(share).unwrap()), [0, 0, 1, 5, 6, 19]);
}

#[test]
fn a_bucket_begins_at_its_own_bound() {
    for (bucket, bound) in (0..).zip(BOUNDS) {
        assert_eq!(bucket_of(bound), bucket);
        assert_eq!(bucket_of(bound - 1), bucket.saturating_sub(1));
    }
    assert_eq!([0, 19, 20, 21].map(|at| BOUNDS[at]), [0, 19, 20, 22]);
    for pair in BOUNDS.windows(2).skip(20) {
        assert_eq!(pair[1], pair[0] + pair[0] / 10);
    }
    let last = u16::try_from(BUCKETS - 1).unwrap();
    assert_eq!(bounds_of(last), (BOUNDS[BUCKETS - 1], MAX_LATENCY_MS));
}

#[test]
fn values_of_a_row_are_limited() {
    assert_eq!([-1, 0, 7, i64::MAX].map(bounded_latency), [0, 0, 7, 1_000_000_000]);
    assert_eq!([-1, 0, 7, i64::MAX].map(bounded_tokens), [0, 0, 7, 1_000_000_000_000]);
}

/// A row of 30 and 12 tokens that took 250 ms, with some fields replaced.
fn row(fields: serde_json::Value) -> LogRow {
    let mut row = serde_json::json!({
        "id": 1, "org_id": uuid::Uuid::nil(), "request_id": "r", "created_at": "2026-11-18T12:00:00Z",
        "level": "info", "source": "proxy", "provider": "openai", "method": "POST", "path": "/", "status": 200,
        "stream": false, "latency_ms": 250, "usage_estimated": false, "unpriced": false, "attempts": [],
        "metadata": {}, "request_stored": "off", "response_stored": "off", "response_is_stream": false,
        "tokens": {"prompt": 30, "completion": 12, "cached": 5, "cache_write": 0, "reasoning": 2, "audio": 0},
    });
    let serde_json::Value::Object(fields) = fields else { panic!("not an object") };
    row.as_object_mut().unwrap().extend(fields);
    serde_json::from_value(row).unwrap()
}

#[test]
fn a_row_counts_what_it_says() {
    let plain = Totals {
        requests: 1,
        prompt_tokens: 30,
        completion_tokens: 12,
        cached_tokens: 5,
        latencies: of(&[250]),
        ..Totals::default()
    };
    for (fields, expected) in [
        (serde_json::json!({}), plain.clone()),
        (
            serde_json::json!({"cost_usd": "0.5"}),
            Totals { cost: 500_000_000_000, priced: 1, ..plain.clone() },
        ),
        (serde_json::json!({"cost_usd": "0"}), Totals { priced: 1, ..plain.clone() }),
        (serde_json::json!({"unpriced": true}), Totals { unpriced: 1, ..plain.clone() }),
        (serde_json::json!({"status": 399}), plain.clone()),
        (serde_json::json!({"status": 400}), Totals { errors: 1, ..plain.clone() }),
        (serde_json::json!({"error_code": "cut_off"}), Totals { errors: 1, ..plain.clone() }),
        (serde_json::json!({"cache": "Hit"}), Totals { cache_hits: 1, ..plain.clone() }),
        (serde_json::json!({"cache": "miss"}), plain.clone()),
        (
            serde_json::json!({"tokens": null}),
            Totals { prompt_tokens: 0, completion_tokens: 0, cached_tokens: 0, ..plain.clone() },
        ),
        (
            serde_json::json!({"cache_saved_usd": "-0.25"}),
            Totals { cache_saved: -250_000_000_000, ..plain.clone() },
        ),
    ] {
        assert_eq!(Totals::from_row(&row(fields.clone())), expected, "{fields}");
    }
    let mut twice = plain.clone();
    twice.add_row(&row(serde_json::json!({"latency_ms": 10})));
    assert_eq!((twice.requests, twice.total_tokens(), twice.latencies), (2, 84, of(&[250, 10])));
}

fn totals() -> impl Strategy<Value = Totals> {
    let counts = prop::array::uniform10(prop_oneof![0..1_000_i64, Just(0), Just(i64::MAX / 2)]);
    let saved = prop_oneof![-1_000..1_000_i64, Just(0), Just(i64::MIN / 2), Just(i64::MAX / 2)];
    (counts, saved, prop::collection::vec(0_i64..900_000, 1..9)).prop_map(|(counts, saved, latencies)| {
        let [requests, prompt_tokens, completion_tokens, cost, priced, unpriced, errors, rest @ ..] = counts;
        let [cache_hits, cached_tokens, cache_write_tokens] = rest;
        Totals {
            requests,
            prompt_tokens,
            completion_tokens,
            cost,
            priced,
            unpriced,
            errors,
            cache_hits,
            cached_tokens,
            cache_write_tokens,
            cache_saved: saved,
            latencies: of(&latencies),
        }
    })
}

#[test]
fn a_sum_never_overflows() {
    let full = Totals { cost: i64::MAX, prompt_tokens: i64::MAX, completion_tokens: 1, ..Totals::default() };
    let mut sum = full.clone();
    sum.add(&full);
    assert_eq!((sum.cost, sum.prompt_tokens, sum.total_tokens()), (i64::MAX, i64::MAX, i64::MAX));
}

#[test]
fn damaged_packed_totals_add_nothing() {
    for text in ["", "x", "1 2 3 4 5 6 7 8 9 10 11", "1 2 3 -"] {
        let mut totals = Totals::default();
        totals.add_packed(text);
        assert_eq!(totals, Totals::default(), "{text}");
    }
    assert_eq!(["", "x", "-"].map(Totals::packed_at), [None; 3]);
    assert_eq!(["0", "9 1", " 12:3"].map(Totals::packed_at), [Some(0), Some(9), Some(12)]);
}

#[test]
fn totals_are_packed_as_earlier_versions_packed_them() {
    let totals = Totals {
        requests: 3,
        prompt_tokens: 1_620,
        completion_tokens: 180,
        cost: 351_000_000,
        priced: 2,
        unpriced: 1,
        errors: 1,
        latencies: of(&[5, 5, 250]),
        ..Totals::default()
    };
    let bucket = bucket_of(250);
    let packed = format!("1794700800000 3 1620 180 351000000 2 1 1 0 260 5 250 5:2 {bucket}:1");
    assert_eq!(totals.pack(1_794_700_800_000), packed);
}

#[test]
fn sums_of_the_prompt_cache_are_packed_so_that_older_versions_skip_them() {
    let plain = Totals { requests: 1, latencies: of(&[250]), ..Totals::default() };
    assert!(!plain.pack(7).contains('~'));
    let caching = Totals { cached_tokens: 1_029, cache_write_tokens: 0, cache_saved: -30, ..plain.clone() };
    let packed = caching.pack(7);
    assert_eq!(packed.split_once('~'), Some((format!("{} ", plain.pack(7)).as_str(), "bacj a -da ")));
    let mut sum = Totals::default();
    sum.add_packed(&packed);
    assert_eq!(sum, caching);
    for damaged in ["~", "~x y z", "~a", "~ -"] {
        let mut sum = Totals::default();
        sum.add_packed(&format!("{} {damaged}", plain.pack(7)));
        assert_eq!(sum, plain, "{damaged}");
    }
}

#[test]
fn an_unpriced_request_is_not_a_free_one() {
    let mixed = Totals { cost: 1_250_000_000_000, priced: 1, unpriced: 3, ..Totals::default() };
    assert_eq!(mixed.cost_usd(), Some(1.25));
    assert_eq!(Totals { priced: 0, ..mixed }.cost_usd(), None);
    assert_eq!(known_cost(0, 0, 0), Some(0.0));
    assert_eq!(known_cost(0, 1, 0), Some(0.0));
    assert_eq!(known_cost(0, 0, 1), None);
    assert_eq!(known_cost(2_500_000_000_000, 1, 1), Some(2.5));
}

#[test]
fn money_is_kept_to_the_twelfth_place() {
    let cost: Decimal = "0.000000000001".parse().unwrap();
    assert_eq!(cost_units(cost), 1);
    assert_eq!(cost_decimal(1), cost);
    assert_eq!(cost_units("12.3456789012345".parse().unwrap()), 12_345_678_901_234);
    assert_eq!(cost_units("0.0000000000015".parse().unwrap()), 2, "rounded, half to even");
    assert_eq!(cost_units(Decimal::MAX), MAX_COST_UNITS);
    assert_eq!(cost_units("-1".parse().unwrap()), 0);
    assert_eq!(cost_decimal(2_500_000_000_000_i64).to_string(), "2.5");
}

proptest! {
    #[test]
    fn a_percentile_is_off_by_less_than_a_tenth(
        mut values in prop::collection::vec(0_i64..900_000, 1..300), share in 0.01_f64..1.0,
    ) {
        let found = of(&values).percentile(share).unwrap();
        values.sort_unstable();
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let rank = (share * values.len() as f64).ceil().max(1.0) as usize;
        let exact = values[rank - 1];
        prop_assert!((found - exact).abs() * 10 <= exact.max(found), "{found} for {exact}");
    }

    #[test]
    fn packed_totals_add_up_like_the_totals_themselves(all in prop::collection::vec(totals(), 0..4)) {
        let (mut sum, mut unpacked) = (Totals::default(), Totals::default());
        for part in &all {
            sum.add(part);
            unpacked.add_packed(&part.pack(7));
            sum.add(&Totals::default());
        }
        prop_assert_eq!(&unpacked, &sum);
        let requests = all.iter().fold(0, |requests: i64, part| requests.saturating_add(part.requests));
        prop_assert_eq!(sum.requests, requests);
        prop_assert_eq!(sum.latencies.sum, all.iter().map(|part| part.latencies.sum).sum::<i64>());
        prop_assert_eq!(sum.latencies.min, all.iter().map(|part| part.latencies.min).min().unwrap_or(0));
        prop_assert_eq!(sum.latencies.max, all.iter().map(|part| part.latencies.max).max().unwrap_or(0));
    }

    #[test]
    fn parts_add_up_to_the_whole(
        left in prop::collection::vec(0_i64..900_000, 0..50), right in prop::collection::vec(0_i64..900_000, 1..50),
    ) {
        let mut merged = of(&left);
        merged.merge(&of(&right));
        let whole = of(&[left.clone(), right.clone()].concat());
        prop_assert_eq!(&merged, &whole);
        let mut read = Totals::default();
        for part in [&left, &right].into_iter().filter(|part| !part.is_empty()) {
            let part = Totals { requests: 3, cost: 1 << 40, latencies: of(part), ..Totals::default() };
            let packed = part.pack(1_794_700_800_000);
            prop_assert_eq!(Totals::packed_at(&packed), Some(1_794_700_800_000));
            read.add_packed(&packed);
        }
        prop_assert_eq!(&read.latencies, &whole);
        prop_assert_eq!(read.cost, read.requests / 3 * (1 << 40));
    }
}
