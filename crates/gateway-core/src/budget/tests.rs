//! Tests of periods, limits and cost estimates.

use super::*;
use crate::pricing::PriceTable;
use uuid::Uuid;

const USD: Amount = 1_000_000_000_000;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn budget(scope: Scope, soft: Option<Amount>, hard: Option<Amount>) -> Budget {
    let keys = if let Scope::Key(key) = scope { vec![key] } else { Vec::new() };
    Budget {
        id: Uuid::nil().into(),
        scope,
        keys,
        period: Period::Daily,
        soft_limit: soft,
        hard_limit: hard,
        unpriced: Unpriced::Allow,
        opening: 0,
        created_at: Timestamp(0),
    }
}

#[test]
fn periods_begin_and_end_where_the_calendar_in_utc_says() {
    for (period, time, start, end) in [
        (Period::Daily, "2026-11-19T23:59:59.999Z", "2026-11-19T00:00:00Z", "2026-11-20T00:00:00Z"),
        (Period::Daily, "2026-11-20T00:00:00Z", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"),
        (Period::Weekly, "2026-11-22T23:59:59Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"),
        (Period::Weekly, "2026-11-23T00:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"),
        (Period::Monthly, "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        (Period::Monthly, "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
    ] {
        assert_eq!(
            (period.start_of(at(time)), period.end_of(at(time))),
            (at(start), at(end)),
            "{period} {time}"
        );
        assert_eq!(period.as_str().parse(), Ok(period));
        assert_eq!(period.to_string(), period.as_str());
    }
    assert!("hourly".parse::<Period>().is_err());
}

#[test]
fn a_budget_covers_its_own_scope() {
    let [one, other] = [1, 2].map(Uuid::from_u128);
    let spender = Spender { key: Some(one.into()), app: Some(one.into()), team: Some(one.into()) };
    for (scope, name) in [
        (Scope::Org(one.into()), "org"),
        (Scope::Team(one.into()), "team"),
        (Scope::App(one.into()), "app"),
        (Scope::Key(one.into()), "key"),
    ] {
        assert_eq!((scope.name(), scope.id()), (name, one.to_string()));
    }
    let covers = |scope, spender: &Spender| budget(scope, None, None).covers(spender);
    assert!(covers(Scope::Org(other.into()), &Spender::default()));
    for (same, else_) in [
        (Scope::Team(one.into()), Scope::Team(other.into())),
        (Scope::App(one.into()), Scope::App(other.into())),
        (Scope::Key(one.into()), Scope::Key(other.into())),
    ] {
        assert!(covers(same.clone(), &spender) && !covers(else_, &spender));
        assert!(!covers(same, &Spender::default()));
    }
    let rotated =
        Budget { keys: vec![other.into(), one.into()], ..budget(Scope::Key(other.into()), None, None) };
    assert!(rotated.covers(&spender));
}

#[test]
fn a_limit_is_reached_at_its_amount_and_reservations_count() {
    let both = budget(Scope::Org(Uuid::nil().into()), Some(5), Some(10));
    let reached = |spent| both.reached(spent).map(|(kind, limit)| (kind.as_str(), limit)).collect::<Vec<_>>();
    assert_eq!(reached(4), []);
    assert_eq!(reached(5), [("warning", 5)]);
    assert_eq!(reached(10), [("warning", 5), ("exceeded", 10)]);
    assert!(both.allows(9, 0) && both.allows(0, 9));
    assert!(!both.allows(10, 0) && !both.allows(5, 5) && !both.allows(Amount::MAX, 1));
    assert_eq!((both.remaining(4), both.remaining(12)), (Some(6), Some(0)));
    let soft = budget(Scope::Org(Uuid::nil().into()), Some(5), None);
    assert!(soft.allows(100, 100));
    assert_eq!(soft.remaining(1), None);
}

#[test]
fn a_call_is_estimated_at_its_highest_cost() {
    let prices = PriceTable::parse(
        "provider,model,mode,input_per_mtok,output_per_mtok,cache_write_1h_per_mtok,max_input_tokens,max_output_tokens\n\
         p,plain,chat,1,10,,100000,1000\np,cached,chat,1,10,2,100000,1000\np,vector,embedding,1,,,8000,\np,open,chat,1,10,,,\n",
    )
    .unwrap();
    let estimate = |model: &str, body_bytes, max_tokens, choices| {
        let inputs = CostInputs { body_bytes, max_tokens, choices };
        Amount::from(max_cost(prices.find("p", model).unwrap(), &inputs))
    };
    // 3,000 bytes are at most 1,000 tokens: a thousandth of a dollar at 1 USD a million.
    assert_eq!(estimate("plain", Some(3_000), Some(100), None), USD / 1_000 + USD / 1_000);
    assert_eq!(estimate("cached", Some(3_000), Some(100), None), 2 * USD / 1_000 + USD / 1_000);
    assert_eq!(estimate("plain", Some(0), None, None), USD / 100, "the model's own limit");
    assert_eq!(estimate("plain", Some(0), Some(1_000_000), None), USD / 100, "no more than the model can");
    assert_eq!(estimate("plain", Some(0), Some(100), Some(5)), 5 * USD / 1_000);
    assert_eq!(estimate("plain", None, Some(0), None), USD / 10, "the model's whole context");
    assert_eq!(estimate("vector", Some(3_000), None, None), USD / 1_000);
    assert_eq!(estimate("open", Some(0), None, None), 16_384 * 10 * USD / 1_000_000);
    assert_eq!(
        estimate("open", Some(0), Some(u64::MAX), Some(u64::MAX)),
        Amount::from(crate::totals::cost_units(Decimal::MAX)),
        "no overflow"
    );
}

#[test]
fn each_class_of_tokens_may_be_the_most_expensive_one() {
    let price = |column: &str| {
        let file = format!("provider,model,input_per_mtok,output_per_mtok,{column}\np,m,1,1,8\n");
        PriceTable::parse(&file).unwrap().find("p", "m").unwrap().clone()
    };
    for (column, factors) in [
        ("cache_read_per_mtok", (1, 1)),
        ("cache_write_per_mtok", (8, 1)),
        ("cache_write_1h_per_mtok", (8, 1)),
        ("audio_input_per_mtok", (8, 1)),
        ("reasoning_per_mtok", (1, 8)),
        ("audio_output_per_mtok", (1, 8)),
    ] {
        let inputs = CostInputs { body_bytes: Some(3_000_000), max_tokens: Some(2_000_000), choices: None };
        let expected = USD * factors.0 + 2 * USD * factors.1;
        assert_eq!(Amount::from(max_cost(&price(column), &inputs)), expected, "{column}");
    }
    // The plain classes are the most expensive ones here.
    let file = "provider,model,input_per_mtok,output_per_mtok,cache_write_per_mtok,audio_input_per_mtok,\
                reasoning_per_mtok,audio_output_per_mtok\np,m,8,9,1,1,1,1\n";
    let price = PriceTable::parse(file).unwrap().find("p", "m").unwrap().clone();
    let inputs = CostInputs { body_bytes: Some(3_000_000), max_tokens: Some(1_000_000), choices: None };
    assert_eq!(Amount::from(max_cost(&price, &inputs)), 17 * USD);
    // A write for five minutes may be dearer than one for an hour.
    let file = "provider,model,input_per_mtok,output_per_mtok,cache_write_per_mtok,cache_write_1h_per_mtok\n\
                p,m,1,1,8,2\n";
    let price = PriceTable::parse(file).unwrap().find("p", "m").unwrap().clone();
    assert_eq!(Amount::from(max_cost(&price, &inputs)), 9 * USD);
}

#[test]
fn a_limit_is_an_amount_of_money() {
    assert_eq!(limit_units(0.1), Ok(USD / 10));
    assert_eq!(limit_units(0.0), Ok(0));
    assert_eq!(limit_units(1_000_000.01), Ok(1_000_000 * USD + USD / 100));
    assert_eq!(limit_units(1e9), Ok(1_000_000_000 * USD));
    for bad in [-0.01, 1_000_000_000.01, f64::NAN, f64::INFINITY] {
        assert!(limit_units(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_limit_is_stored_in_64_bits() {
    for usd in [0.0, 0.000_000_000_001, 0.1, 9_223_372.0, 9_223_373.0, 12_345_678.901_234_5, 1e9] {
        let limit = limit_units(usd).unwrap();
        let (fine, coarse) = limit_columns(Some(limit));
        assert_eq!(limit_from_columns(fine, coarse), Some(limit), "{usd}");
        // A version that does not know the second column never takes the limit for a smaller one.
        assert!(coarse.is_none() || fine == Some(i64::MAX));
    }
    assert_eq!(limit_from_columns(None, None), None);
    assert_eq!(limit_columns(None), (None, None));
}

#[test]
fn what_was_spent_elsewhere_counts_in_the_period_of_creation() {
    let created_at = at("2026-11-18T12:00:00Z");
    let whole = budget(Scope::Org(Uuid::nil().into()), None, Some(USD));
    let monthly = Budget { period: Period::Monthly, opening: 5, created_at, ..whole };
    assert_eq!(monthly.opening_at(at("2026-11-30T23:59:59Z")), 5);
    assert_eq!(monthly.opening_at(at("2026-12-01T00:00:00Z")), 0);
    assert_eq!(monthly.opening_at(at("2026-10-31T00:00:00Z")), 0);
}
