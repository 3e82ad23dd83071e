//! Tests of what is held, settled and counted.

use super::*;
use gateway_core::budget::{Period, Scope};
use gateway_core::logs::first_log_id;
use gateway_core::time::DAY;
use uuid::Uuid;

fn now() -> Timestamp {
    "2026-11-18T12:00:00Z".parse().unwrap()
}

fn budget(number: u128, scope: Scope, hard: i64) -> Budget {
    let keys = if let Scope::Key(key) = scope { vec![key] } else { Vec::new() };
    let (soft_limit, hard_limit) = (Some(hard / 2), Some(hard));
    let id = Uuid::from_u128(number).into();
    Budget { id, scope, keys, period: Period::Daily, soft_limit, hard_limit, created_at: now() }
}

fn everybody() -> Scope {
    Scope::Org(Uuid::nil().into())
}

fn with(budgets: Vec<Budget>, stored: i64) -> Arc<OrgBudgets> {
    let org = Arc::new(OrgBudgets::new(Uuid::nil().into(), Arc::default()));
    let today = now().plus(-DAY / 2);
    let whole = vec![DaySpend { day: today, spender: Spender::default(), cost: stored }];
    org.replace(Read { budgets, whole, parts: Vec::new(), told: Vec::new() }, now());
    org
}

fn spent(org: &OrgBudgets, number: u128, at: Timestamp) -> i64 {
    org.spent(Uuid::from_u128(number).into(), at).unwrap().1
}

fn hold(org: &Arc<OrgBudgets>, amount: i64) -> Option<Reservation> {
    org.reserve(Spender::default(), amount, now()).ok().flatten()
}

#[test]
fn what_is_held_counts_until_it_is_settled_or_dropped() {
    let org = with(vec![budget(1, everybody(), 100)], 40);
    let mut first = hold(&org, 50).unwrap();
    let second = hold(&org, 50).unwrap();
    let refused = org.reserve(Spender::default(), 1, now()).err().unwrap();
    assert!(refused.is_held);
    drop(second);
    let third = hold(&org, 50).unwrap();
    assert_eq!(third.remaining(), Some(60), "what is held is not spent");
    first.settle(first_log_id(now()), 10, now());
    drop((first, third));
    assert_eq!(spent(&org, 1, now()), 50);
    let mut last = hold(&org, 1).unwrap();
    last.settle(first_log_id(now()) + 1, 50, now());
    assert!(!org.reserve(Spender::default(), 0, now()).err().unwrap().is_held);
}

#[test]
fn all_budgets_hold_or_none_does() {
    let key: gateway_core::ids::KeyId = Uuid::from_u128(7).into();
    let org = with(vec![budget(1, everybody(), 1_000), budget(2, Scope::Key(key), 100)], 0);
    let by_key = Spender { key: Some(key), ..Spender::default() };
    let held = org.reserve(by_key, 100, now()).ok().flatten().unwrap();
    assert_eq!(held.remaining(), Some(100), "the smaller of the two");
    for _ in 0..20 {
        assert!(org.reserve(by_key, 100, now()).is_err());
    }
    // Had the refused ones been held in the larger budget, there would be nothing left in it.
    assert!(hold(&org, 1).is_some());
}

#[test]
fn a_row_counts_once_before_and_after_it_is_stored() {
    let org = with(vec![budget(1, everybody(), 100)], 0);
    let id = first_log_id(now());
    let mut held = hold(&org, 1).unwrap();
    held.settle(id, 10, now());
    let state = |org: &OrgBudgets| (spent(org, 1, now()), org.ages(now()).2);
    assert_eq!(state(&org), (10, 0));
    org.lock().recent.get_mut(&id).unwrap().is_stored = true;
    let read = |cost| Read {
        budgets: vec![budget(1, everybody(), 100)],
        whole: vec![DaySpend { day: now().plus(-DAY / 2), spender: Spender::default(), cost }],
        parts: Vec::new(),
        told: Vec::new(),
    };
    org.replace(read(10), now());
    assert_eq!(state(&org), (10, 0));
    let mut held = hold(&org, 1).unwrap();
    held.settle(id + 1, 5, now());
    org.replace(read(10), now());
    assert_eq!(state(&org), (15, 0), "what is not stored yet is not forgotten");
}

#[test]
fn a_new_period_begins_with_nothing_and_old_calls_count_in_the_old_one() {
    let org = with(vec![budget(1, everybody(), 100)], 100);
    assert!(hold(&org, 1).is_none());
    let before = first_log_id(now());
    let tomorrow = now().plus(DAY);
    let mut held = org.reserve(Spender::default(), 60, tomorrow).ok().flatten().unwrap();
    assert_eq!(spent(&org, 1, tomorrow), 0);
    held.settle(before, 60, tomorrow);
    assert_eq!(spent(&org, 1, tomorrow), 0, "its call began yesterday");
}

#[test]
fn limits_are_due_once_in_a_period() {
    let org = with(vec![budget(1, everybody(), 100)], 50);
    let kinds = |at| org.due(at).iter().map(|due| (due.kind, due.spent)).collect::<Vec<_>>();
    assert_eq!(kinds(now()), [(Kind::Warning, 50)]);
    org.told(&org.due(now()));
    assert_eq!(kinds(now()), []);
    let mut held = hold(&org, 1).unwrap();
    held.settle(first_log_id(now()), 60, now());
    assert_eq!(kinds(now()), [(Kind::Exceeded, 110)]);
    org.told(&org.due(now()));
    let told = vec![(
        Notice { budget: Uuid::from_u128(1).into(), starts_at: now().plus(-DAY / 2), kind: Kind::Warning },
        "daily".to_owned(),
    )];
    let whole = vec![DaySpend { day: now().plus(-DAY / 2), spender: Spender::default(), cost: 110 }];
    let fresh = with(Vec::new(), 0);
    fresh.replace(Read { budgets: vec![budget(1, everybody(), 100)], whole, parts: Vec::new(), told }, now());
    assert_eq!(fresh.due(now()).len(), 1, "what the store knows to be told is not told again");
}
