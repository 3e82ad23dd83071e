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
    let org = Arc::new(OrgBudgets::new(Uuid::nil().into(), Arc::default(), false));
    let whole = vec![DaySpend { day: today(), spender: Spender::default(), cost: stored }];
    org.replace(Read { budgets, whole, parts: Vec::new(), told: Vec::new() }, now());
    org
}

fn spent(org: &OrgBudgets, number: u128, at: Timestamp) -> i64 {
    org.spent(Uuid::from_u128(number).into(), at).unwrap().1
}

fn hold(org: &Arc<OrgBudgets>, amount: i64) -> Option<Reservation> {
    org.reserve(Spender::default(), amount, now()).ok().flatten()
}

fn refused(org: &Arc<OrgBudgets>, amount: i64) -> Refused {
    match org.reserve(Spender::default(), amount, now()) {
        Err(Denied::Refused(refused)) => *refused,
        _ => panic!("it was let in, or a lease is wanted"),
    }
}

#[test]
fn what_is_held_counts_until_it_is_settled_or_dropped() {
    let org = with(vec![budget(1, everybody(), 100)], 40);
    let mut first = hold(&org, 50).unwrap();
    let second = hold(&org, 50).unwrap();
    assert!(refused(&org, 1).is_held);
    drop(second);
    let third = hold(&org, 50).unwrap();
    assert_eq!(third.remaining(), Some(60), "what is held is not spent");
    first.settle(first_log_id(now()), 10, now());
    drop((first, third));
    assert_eq!(spent(&org, 1, now()), 50);
    let mut last = hold(&org, 1).unwrap();
    last.settle(first_log_id(now()) + 1, 50, now());
    assert!(!refused(&org, 0).is_held);
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
        whole: vec![DaySpend { day: today(), spender: Spender::default(), cost }],
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
        LimitNotice { budget: Uuid::from_u128(1).into(), starts_at: today(), kind: Kind::Warning },
        "daily".to_owned(),
    )];
    let whole = vec![DaySpend { day: today(), spender: Spender::default(), cost: 110 }];
    let fresh = with(Vec::new(), 0);
    fresh.replace(Read { budgets: vec![budget(1, everybody(), 100)], whole, parts: Vec::new(), told }, now());
    assert_eq!(fresh.due(now()).len(), 1, "what the store knows to be told is not told again");
}

fn shared(limit: i64, stored: i64) -> Arc<OrgBudgets> {
    let org = Arc::new(OrgBudgets::new(Uuid::nil().into(), Arc::default(), true));
    let whole = vec![DaySpend { day: today(), spender: Spender::default(), cost: stored }];
    let budgets = vec![budget(1, everybody(), limit)];
    org.replace(Read { budgets, whole, parts: Vec::new(), told: Vec::new() }, now());
    org
}

fn today() -> Timestamp {
    now().plus(-DAY / 2)
}

/// Leases what a call of this amount needs, while others have leased so much.
fn lease(org: &OrgBudgets, amount: i64, others: i64) -> Option<i64> {
    let others = HashMap::from([((Uuid::from_u128(1).into(), today()), others)]);
    let leases = org.plan(Spender::default(), amount, &others, 2, now()).ok()?;
    org.granted(&leases);
    Some(leases[0].amount)
}

fn is_short(org: &Arc<OrgBudgets>, amount: i64) -> bool {
    matches!(org.reserve(Spender::default(), amount, now()), Err(Denied::Short))
}

#[test]
fn where_money_is_shared_only_what_is_leased_is_held() {
    let org = shared(1_000, 200);
    assert!(is_short(&org, 10));
    assert_eq!(lease(&org, 10, 0), Some(100), "an eighth of what is left");
    let held = hold(&org, 90).unwrap();
    assert!(is_short(&org, 11));
    assert_eq!(lease(&org, 60, 0), Some(90 + 88), "and of what is left then");
    drop(held);
    // What is leased stays so until somebody needs it or nobody has called for a while.
    assert!(!is_short(&org, 178));
    assert!(!org.has_to_note(now()));
    let noted = |at| org.to_note(at).iter().map(|lease| lease.amount).collect::<Vec<_>>();
    org.recall();
    assert_eq!(noted(now()), [0]);
    assert!(is_short(&org, 1));
    assert_eq!(lease(&org, 10, 0), Some(100));
    assert_eq!(noted(now().plus(1_000)), [0_i64; 0]);
    assert_eq!(noted(now().plus(3_000)), [0]);
}

#[test]
fn what_others_have_leased_is_spoken_for() {
    let org = shared(1_000, 200);
    assert_eq!(lease(&org, 50, 790), Some(50), "there is money left, so one more call may begin");
    let held = hold(&org, 50).unwrap();
    assert_eq!(lease(&org, 1, 790), None);
    drop(held);
    assert!(org.refused_after(org.readings(), Spender::default()).is_none(), "who comes later asks again");
    let before = org.readings();
    org.begins_reading();
    let whole = vec![DaySpend { day: today(), spender: Spender::default(), cost: 200 }];
    let read =
        Read { budgets: vec![budget(1, everybody(), 1_000)], whole, parts: Vec::new(), told: Vec::new() };
    org.replace(read, now());
    assert!(org.was_read_after(before) && !org.was_read_after(org.readings()));
    assert_eq!(lease(&org, 60, 800), None);
    assert!(org.refused_after(before, Spender::default()).unwrap().is_held);
}

#[test]
fn what_was_spent_leaves_the_lease_when_it_is_stored() {
    let org = shared(1_000, 0);
    assert_eq!(lease(&org, 10, 0), Some(125));
    let id = first_log_id(now());
    // A call that costs more than was held for it is leased in any case.
    hold(&org, 10).unwrap().settle(id, 300, now());
    let noted = |org: &OrgBudgets| org.to_note(now()).iter().map(|lease| lease.amount).collect::<Vec<_>>();
    assert_eq!(noted(&org), [300]);
    assert!(org.lock().is_stored_now(id));
    assert_eq!(noted(&org), [0]);
    // The store was away and may have lost what it knew.
    org.goes_alone(2);
    let held = hold(&org, 100).unwrap();
    assert_eq!(hold(&org, 100).unwrap().remaining(), Some(700));
    let more = hold(&org, 100).unwrap();
    assert!(refused(&org, 1).is_held, "the other node has as much");
    drop((held, more));
    let whole = vec![DaySpend { day: today(), spender: Spender::default(), cost: 300 }];
    let read =
        Read { budgets: vec![budget(1, everybody(), 1_000)], whole, parts: Vec::new(), told: Vec::new() };
    org.replace(read, now());
    assert!(is_short(&org, 1));
}
