//! Tests of reservations, row states, period roll-over, alerts and leases, case by case.

mod leases;

use super::*;
use crate::budget::{Period, Scope};
use crate::logs::first_log_id;
use crate::time::DAY;
use uuid::Uuid;

fn now() -> Timestamp {
    "2026-11-18T12:00:00Z".parse().unwrap()
}

fn today() -> Timestamp {
    now().plus(-DAY / 2)
}

fn budget(number: u128, scope: Scope, hard: Amount) -> Budget {
    let keys = if let Scope::Key(key) = scope { vec![key] } else { Vec::new() };
    let (soft_limit, hard_limit) = (Some(hard / 2), Some(hard));
    let id = Uuid::from_u128(number).into();
    let (period, unpriced) = (Period::Daily, Unpriced::Allow);
    Budget { id, scope, keys, period, soft_limit, hard_limit, unpriced, opening: 0, created_at: now() }
}

fn whole_org() -> Scope {
    Scope::Org(Uuid::nil().into())
}

/// Reads the store with one budget of the organization and the stored amount.
fn read(ledger: &mut Ledger, limit: Amount, stored: Amount, included: &[i64]) {
    let number = ledger.begin_read();
    finish_read(ledger, number, (limit, stored), included);
}

fn finish_read(ledger: &mut Ledger, number: u64, (limit, stored): (Amount, Amount), included: &[i64]) {
    let budgets = vec![BudgetReading { budget: budget(1, whole_org(), limit), stored, notified: Vec::new() }];
    ledger.reload(Reading { number, budgets, included: included.iter().copied().collect() }, now());
}

fn single_node(limit: Amount, stored: Amount) -> Ledger {
    let mut ledger = Ledger::new(Sharing::SingleNode);
    read(&mut ledger, limit, stored, &[]);
    ledger
}

fn leased(limit: Amount, stored: Amount) -> Ledger {
    let mut ledger = Ledger::new(Sharing::Leased);
    read(&mut ledger, limit, stored, &[]);
    ledger
}

fn spent(ledger: &mut Ledger, at: Timestamp) -> Amount {
    ledger.spent(Uuid::from_u128(1).into(), at).unwrap().1
}

fn reserve(ledger: &mut Ledger, amount: Amount) -> Option<ReservedAmount> {
    ledger.reserve(Spender::default(), Charge::priced(amount), now()).ok().flatten()
}

/// A call that is reserved and committed at once.
fn call(ledger: &mut Ledger, id: i64, cost: Amount) {
    let mut reserved = reserve(ledger, 1).unwrap();
    ledger.commit(&mut reserved, id, Charge::priced(cost), now());
}

fn exceeded(ledger: &mut Ledger, amount: Amount) -> BudgetExceeded {
    match ledger.reserve(Spender::default(), Charge::priced(amount), now()) {
        Err(Denied::Exceeded(exceeded)) => *exceeded,
        other => panic!("expected an exceeded budget: {other:?}"),
    }
}

fn row(id: i64, cost: Amount) -> SpendRow {
    SpendRow { id, spender: Spender::default(), charge: Charge::priced(cost) }
}

fn amounts(leases: &[BudgetLease]) -> Vec<Amount> {
    leases.iter().map(|lease| lease.amount).collect()
}

#[test]
fn a_reservation_counts_until_it_is_committed_or_released() {
    let mut ledger = single_node(100, 40);
    let mut first = reserve(&mut ledger, 50).unwrap();
    let mut second = reserve(&mut ledger, 50).unwrap();
    assert!(exceeded(&mut ledger, 1).is_reserved);
    ledger.release(&mut second);
    ledger.release(&mut second);
    let mut third = reserve(&mut ledger, 50).unwrap();
    assert_eq!(ledger.remaining(Spender::default()), Some(60), "reserved money is not spent");
    ledger.commit(&mut first, first_log_id(now()), Charge::priced(10), now());
    ledger.release(&mut third);
    assert_eq!(spent(&mut ledger, now()), 50);
    let mut last = reserve(&mut ledger, 1).unwrap();
    ledger.commit(&mut last, first_log_id(now()) + 1, Charge::priced(50), now());
    assert!(!exceeded(&mut ledger, 0).is_reserved);
}

#[test]
fn an_amount_is_reserved_in_all_budgets_or_in_none() {
    let key: crate::ids::KeyId = Uuid::from_u128(7).into();
    let mut ledger = Ledger::new(Sharing::SingleNode);
    let budgets = [budget(1, whole_org(), 1_000), budget(2, Scope::Key(key), 100)]
        .map(|budget| BudgetReading { budget, stored: 0, notified: Vec::new() });
    let number = ledger.begin_read();
    ledger.reload(Reading { number, budgets: budgets.into(), included: HashSet::new() }, now());
    let by_key = Spender { key: Some(key), ..Spender::default() };
    assert!(ledger.reserve(by_key, Charge::priced(100), now()).unwrap().is_some());
    assert_eq!(ledger.remaining(by_key), Some(100), "the smaller of the two");
    for _ in 0..20 {
        assert!(ledger.reserve(by_key, Charge::priced(100), now()).is_err());
    }
    // Had the denied calls reserved in the larger budget, nothing would be left in it.
    assert!(reserve(&mut ledger, 1).is_some());
}

#[test]
fn a_row_counts_once_before_and_after_it_is_stored() {
    let mut ledger = single_node(100, 0);
    let id = first_log_id(now());
    call(&mut ledger, id, 10);
    assert_eq!((spent(&mut ledger, now()), ledger.stored_rows()), (10, 0));
    ledger.write_started(&row(id, 10));
    ledger.stored(&row(id, 10), true, now());
    ledger.stored(&row(id, 10), false, now());
    assert_eq!((spent(&mut ledger, now()), ledger.stored_rows()), (10, 1));
    read(&mut ledger, 100, 10, &[]);
    assert_eq!((spent(&mut ledger, now()), ledger.stored_rows()), (10, 0));
    call(&mut ledger, id + 1, 5);
    read(&mut ledger, 100, 10, &[]);
    assert_eq!(spent(&mut ledger, now()), 15, "a row that is not stored yet is kept");
}

#[test]
fn a_row_without_a_reservation_counts_once_it_is_stored() {
    let mut ledger = single_node(100, 0);
    let id = first_log_id(now());
    ledger.write_started(&row(id, 10));
    assert_eq!(spent(&mut ledger, now()), 0);
    ledger.stored(&row(id, 10), true, now());
    assert_eq!((spent(&mut ledger, now()), ledger.stored_rows()), (10, 1));
    assert!(!ledger.is_stale());
    // A row of an earlier run: the last read contains it.
    ledger.write_started(&row(id + 1, 10));
    ledger.stored(&row(id + 1, 10), false, now());
    assert_eq!(spent(&mut ledger, now()), 10);
    assert!(ledger.is_stale());
}

#[test]
fn a_read_during_a_write_counts_the_row_once_wherever_the_snapshot_falls() {
    // Whether the write is confirmed before the uncertain rows are read, before the reload, or after it.
    for (is_in_snapshot, confirmed) in [(true, 0), (true, 1), (true, 2), (false, 0), (false, 1), (false, 2)] {
        let mut ledger = leased(1_000, 0);
        ledger.enter_offline_mode(1);
        let id = first_log_id(now());
        call(&mut ledger, id, 10);
        ledger.write_started(&row(id, 10));
        let number = ledger.begin_read();
        let confirm = |ledger: &mut Ledger, step| {
            if step == confirmed {
                ledger.stored(&row(id, 10), true, now());
            }
        };
        confirm(&mut ledger, 0);
        assert_eq!(ledger.uncertain_rows(), [id]);
        confirm(&mut ledger, 1);
        let (stored, included) = if is_in_snapshot { (10, vec![id]) } else { (0, Vec::new()) };
        finish_read(&mut ledger, number, (1_000, stored), &included);
        assert_eq!(spent(&mut ledger, now()), 10, "in the snapshot: {is_in_snapshot}, step {confirmed}");
        confirm(&mut ledger, 2);
        assert_eq!(spent(&mut ledger, now()), 10, "in the snapshot: {is_in_snapshot}, step {confirmed}");
        read(&mut ledger, 1_000, 10, &[]);
        assert_eq!((spent(&mut ledger, now()), ledger.rows.len()), (10, 0));
    }
}

#[test]
fn a_write_whose_confirmation_is_lost_counts_once() {
    let mut ledger = single_node(100, 0);
    let id = first_log_id(now());
    call(&mut ledger, id, 10);
    ledger.write_started(&row(id, 10));
    // The write failed for its caller, but the store has the row.
    ledger.begin_read();
    assert_eq!(ledger.uncertain_rows(), [id]);
    finish_read(&mut ledger, 2, (100, 10), &[id]);
    assert_eq!(spent(&mut ledger, now()), 10);
    ledger.write_started(&row(id, 10));
    ledger.stored(&row(id, 10), false, now());
    assert_eq!((spent(&mut ledger, now()), ledger.rows.len()), (10, 0));
}

#[test]
fn a_new_period_starts_empty_and_earlier_calls_count_in_the_earlier_one() {
    let mut ledger = single_node(100, 100);
    assert!(reserve(&mut ledger, 1).is_none());
    let tomorrow = now().plus(DAY);
    let mut reserved = ledger.reserve(Spender::default(), Charge::priced(60), tomorrow).unwrap().unwrap();
    assert_eq!(spent(&mut ledger, tomorrow), 0);
    ledger.commit(&mut reserved, first_log_id(now()), Charge::priced(60), tomorrow);
    assert_eq!(spent(&mut ledger, tomorrow), 0, "the call began yesterday");
}

#[test]
fn alerts_are_pending_once_in_a_period() {
    let mut ledger = single_node(100, 50);
    let kinds = |ledger: &mut Ledger| {
        ledger.pending_alerts(now()).iter().map(|alert| (alert.kind, alert.spent)).collect::<Vec<_>>()
    };
    let notify = |ledger: &mut Ledger| {
        let alerts = ledger.pending_alerts(now());
        ledger.mark_notified(&alerts);
    };
    assert_eq!(kinds(&mut ledger), [(AlertKind::Warning, 50)]);
    assert!(ledger.has_pending_alerts());
    notify(&mut ledger);
    assert_eq!(kinds(&mut ledger), []);
    call(&mut ledger, first_log_id(now()), 60);
    assert_eq!(kinds(&mut ledger), [(AlertKind::Exceeded, 110)]);
    notify(&mut ledger);
    let number = ledger.begin_read();
    let notified = vec![AlertKind::Warning];
    let budgets = vec![BudgetReading { budget: budget(1, whole_org(), 100), stored: 110, notified }];
    ledger.reload(Reading { number, budgets, included: HashSet::new() }, now());
    let pending = ledger.pending_alerts(now());
    assert_eq!(pending.len(), 1, "the store knows that the warning was sent");
}

/// Leases what a call of this amount needs, while the other of two nodes has leased an amount.
fn lease(ledger: &mut Ledger, amount: Amount, others: Amount) -> Option<Amount> {
    let leased = HashMap::from([((Uuid::from_u128(1).into(), today()), others)]);
    let others = OtherNodes { leased, alive: 2 };
    let leases = ledger.plan_leases(Spender::default(), Charge::priced(amount), &others, now()).ok()?;
    ledger.lease_granted(&leases);
    Some(leases[0].amount)
}

fn is_lease_too_small(ledger: &mut Ledger, amount: Amount) -> bool {
    matches!(ledger.reserve(Spender::default(), Charge::priced(amount), now()), Err(Denied::LeaseTooSmall))
}

#[test]
fn where_money_is_shared_only_leased_money_is_reserved() {
    let mut ledger = leased(1_000, 200);
    assert!(is_lease_too_small(&mut ledger, 10));
    assert_eq!(lease(&mut ledger, 10, 0), Some(100), "an eighth of what is left");
    let mut reserved = reserve(&mut ledger, 90).unwrap();
    assert!(is_lease_too_small(&mut ledger, 11));
    assert_eq!(lease(&mut ledger, 60, 0), Some(90 + 88), "and of what is left then");
    ledger.release(&mut reserved);
    // A lease stays until another node needs it or no call was made for a while.
    let mut all = reserve(&mut ledger, 178).unwrap();
    ledger.release(&mut all);
    assert!(!ledger.has_lease_changes(now()));
    ledger.recall();
    assert!(ledger.has_lease_changes(now()));
    assert_eq!(amounts(&ledger.take_lease_changes(now())), [0]);
    assert!(is_lease_too_small(&mut ledger, 1));
    assert_eq!(lease(&mut ledger, 10, 0), Some(100));
    assert_eq!(amounts(&ledger.take_lease_changes(now().plus(1_000))), [0_i128; 0]);
    assert_eq!(amounts(&ledger.take_lease_changes(now().plus(3_000))), [0]);
}

#[test]
fn money_leased_by_others_is_not_available() {
    let mut ledger = leased(1_000, 200);
    assert_eq!(lease(&mut ledger, 50, 790), Some(50), "money is left, so one more call may start");
    let mut reserved = reserve(&mut ledger, 50).unwrap();
    assert_eq!(lease(&mut ledger, 1, 790), None);
    ledger.release(&mut reserved);
    let reads = ledger.reads_begun();
    assert!(ledger.exhausted_after(reads, Spender::default()).is_none(), "later calls ask again");
    read(&mut ledger, 1_000, 200, &[]);
    assert!(ledger.was_read_after(reads) && !ledger.was_read_after(ledger.reads_begun()));
    assert_eq!(lease(&mut ledger, 60, 800), None);
    assert!(ledger.exhausted_after(reads, Spender::default()).unwrap().is_reserved);
}

#[test]
fn a_lease_shrinks_by_a_row_that_is_stored() {
    let mut ledger = leased(1_000, 0);
    assert_eq!(lease(&mut ledger, 10, 0), Some(125));
    let id = first_log_id(now());
    // A call that costs more than was reserved for it is covered by the lease in any case.
    let mut reserved = reserve(&mut ledger, 10).unwrap();
    ledger.commit(&mut reserved, id, Charge::priced(300), now());
    assert_eq!(amounts(&ledger.take_lease_changes(now())), [300]);
    ledger.stored(&row(id, 300), true, now());
    let changes = ledger.take_lease_changes(now());
    assert_eq!(amounts(&changes), [0]);
    ledger.lease_changes_failed(&changes);
    assert_eq!(amounts(&ledger.take_lease_changes(now())), [0]);
    // The store was unreachable and may have lost the lease.
    ledger.enter_offline_mode(2);
    let mut calls: Vec<ReservedAmount> = (0..2).map(|_| reserve(&mut ledger, 100).unwrap()).collect();
    assert_eq!(ledger.remaining(Spender::default()), Some(700));
    assert!(exceeded(&mut ledger, 1).is_reserved, "the other node may spend as much");
    for call in &mut calls {
        ledger.release(call);
    }
    read(&mut ledger, 1_000, 300, &[]);
    assert!(is_lease_too_small(&mut ledger, 1));
}

#[test]
fn a_lease_of_a_large_budget_fits_in_64_bits() {
    let billion = crate::budget::limit_units(1e9).unwrap();
    let mut ledger = leased(billion, 0);
    let leased = lease(&mut ledger, 10, 0).unwrap();
    assert!(i64::try_from(leased).is_ok() && leased >= 10);
    // What other nodes have leased may exceed 64 bits together.
    assert!(lease(&mut ledger, leased + 1, billion - 2 * leased).is_some());
    assert!(lease(&mut ledger, 3 * leased, billion).is_none());
}

#[test]
fn a_ledger_without_budgets_reserves_nothing() {
    let mut ledger = Ledger::new(Sharing::Leased);
    assert!(ledger.is_empty());
    assert!(ledger.reserve(Spender::default(), Charge::priced(10), now()).unwrap().is_none());
    assert!(!single_node(100, 0).is_empty());
}

#[test]
fn a_call_that_cost_nothing_leaves_no_row() {
    let mut ledger = single_node(100, 0);
    let id = first_log_id(now());
    call(&mut ledger, id, 0);
    ledger.write_started(&row(id, 0));
    ledger.stored(&row(id, 0), true, now());
    assert_eq!((ledger.rows.len(), ledger.stored_rows(), spent(&mut ledger, now())), (0, 0, 0));
}

#[test]
fn ages_count_from_the_last_read_and_the_last_call() {
    let mut ledger = single_node(100, 0);
    assert_eq!(ledger.read_age(now().plus(700)), Duration::from_millis(700));
    assert!(ledger.idle_for(now()) > Duration::from_secs(1 << 32), "never used");
    assert!(Ledger::new(Sharing::SingleNode).read_age(now()) > Duration::from_secs(1 << 32), "never read");
    reserve(&mut ledger, 1);
    assert_eq!(ledger.idle_for(now().plus(700)), Duration::from_millis(700));
}

#[test]
fn reads_are_numbered_in_the_order_in_which_they_begin() {
    let mut ledger = Ledger::new(Sharing::SingleNode);
    assert_eq!((ledger.begin_read(), ledger.begin_read(), ledger.reads_begun()), (1, 2, 2));
    finish_read(&mut ledger, 2, (100, 0), &[]);
    assert!(ledger.was_read_after(0) && ledger.was_read_after(1) && !ledger.was_read_after(2));
}

#[test]
fn rows_that_are_not_tracked_one_by_one_still_count() {
    let mut ledger = leased(1_000_000, 0);
    ledger.enter_offline_mode(1);
    let first = first_log_id(now());
    let mut reserved = reserve(&mut ledger, 1).unwrap();
    for id in first..first + 100_000 {
        ledger.commit(&mut reserved, id, Charge::priced(1), now());
    }
    let outstanding = |ledger: &Ledger| ledger.budgets[0].unstored;
    assert_eq!(
        (spent(&mut ledger, now()), ledger.rows.len(), outstanding(&ledger)),
        (100_000, 100_000, 100_000)
    );
    ledger.commit(&mut reserved, first + 100_000, Charge::priced(5), now());
    ledger.stored(&row(first + 100_001, 7), true, now());
    assert_eq!(spent(&mut ledger, now()), 100_012);
    assert_eq!((ledger.rows.len(), ledger.stored_rows(), outstanding(&ledger)), (100_000, 0, 100_000));
}

#[test]
fn a_row_that_the_writer_reports_before_the_call_ends_counts_once() {
    let mut ledger = single_node(100, 0);
    let id = first_log_id(now());
    ledger.write_started(&row(id, 10));
    call(&mut ledger, id, 10);
    assert_eq!((spent(&mut ledger, now()), ledger.budgets[0].unstored), (10, 10));
    ledger.stored(&row(id, 10), true, now());
    call(&mut ledger, id, 10);
    assert_eq!((spent(&mut ledger, now()), ledger.budgets[0].unstored, ledger.stored_rows()), (10, 0, 1));
}

#[test]
fn an_alert_is_marked_in_its_own_budget_and_period() {
    let mut ledger = single_node(100, 100);
    let alerts = ledger.pending_alerts(now());
    assert_eq!(alerts.len(), 2);
    let of_yesterday = PendingAlert { starts_at: today().plus(-DAY), ..copy_of(&alerts[0]) };
    let of_another = PendingAlert { budget: budget(9, whole_org(), 100), ..copy_of(&alerts[0]) };
    ledger.mark_notified(&[of_yesterday, of_another]);
    assert_eq!(ledger.pending_alerts(now()).len(), 2);
    ledger.mark_notified(&alerts);
    assert!(!ledger.has_pending_alerts());
    assert_eq!(ledger.pending_alerts(now().plus(DAY)).len(), 0, "nothing is spent yet");
    call_at(&mut ledger, 60, now().plus(DAY));
    assert!(ledger.has_pending_alerts(), "every period has its own alerts");
}

fn copy_of(alert: &PendingAlert) -> PendingAlert {
    let PendingAlert { budget, starts_at, kind, limit, spent } = alert;
    PendingAlert { budget: budget.clone(), starts_at: *starts_at, kind: *kind, limit: *limit, spent: *spent }
}

fn call_at(ledger: &mut Ledger, cost: Amount, at: Timestamp) {
    let mut reserved = ledger.reserve(Spender::default(), Charge::priced(1), at).unwrap().unwrap();
    ledger.commit(&mut reserved, first_log_id(at), Charge::priced(cost), at);
}

/// A ledger with one budget of the organization that treats calls without a price in this way.
fn ledger_with(unpriced: Unpriced, stored: Amount) -> Ledger {
    let mut ledger = Ledger::new(Sharing::SingleNode);
    let number = ledger.begin_read();
    let budget = Budget { unpriced, ..budget(1, whole_org(), 100) };
    let stored = budget.sum_of(stored, 0);
    let budgets = vec![BudgetReading { budget, stored, notified: Vec::new() }];
    ledger.reload(Reading { number, budgets, included: HashSet::new() }, now());
    ledger
}

#[test]
fn a_call_without_a_price_is_allowed_refused_or_counted_at_a_flat_amount() {
    let unpriced = Charge { cost: 0, is_unpriced: true };
    let call = |ledger: &mut Ledger, id: i64, charge: Charge| {
        let mut reserved = ledger.reserve(Spender::default(), charge, now()).ok().flatten()?;
        ledger.commit(&mut reserved, first_log_id(now()) + id, charge, now());
        ledger.remaining(Spender::default())
    };
    let mut allowing = ledger_with(Unpriced::Allow, 0);
    assert_eq!(call(&mut allowing, 0, unpriced), Some(100));
    let mut refusing = ledger_with(Unpriced::Refuse, 0);
    let Err(Denied::Exceeded(refused)) = refusing.reserve(Spender::default(), unpriced, now()) else {
        panic!()
    };
    assert!(refused.is_unpriced && !exceeded(&mut ledger_with(Unpriced::Refuse, 100), 1).is_unpriced);
    assert_eq!(call(&mut refusing, 0, Charge::priced(30)), Some(70));
    let mut flat = ledger_with(Unpriced::Flat(40), 0);
    assert_eq!(call(&mut flat, 0, unpriced), Some(60));
    assert_eq!(
        call(&mut flat, 1, Charge { cost: 5, is_unpriced: true }),
        Some(15),
        "known and unknown cost add up"
    );
    // What is reserved counts too.
    let reserved = flat.reserve(Spender::default(), unpriced, now()).unwrap().unwrap();
    assert!(exceeded(&mut flat, 1).is_reserved);
    drop(reserved);
    let budget = Budget { unpriced: Unpriced::Flat(40), ..budget(1, whole_org(), 100) };
    assert_eq!(budget.sum_of(7, 3), 127);
}
