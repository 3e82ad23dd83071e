//! Tests of leases with several budgets, of their return, and of nodes without a store.

use super::*;

const SECOND: i64 = 1_000;

fn key() -> crate::ids::KeyId {
    Uuid::from_u128(7).into()
}

fn by_key() -> Spender {
    Spender { key: Some(key()), ..Spender::default() }
}

/// A node that shares budget 1 of the organization and budget 2 of the key.
fn two_budgets(sharing: Sharing) -> Ledger {
    let mut ledger = Ledger::new(sharing);
    let budgets = [budget(1, whole_org(), 1_000), budget(2, Scope::Key(key()), 400)];
    read_budgets(&mut ledger, budgets.into());
    ledger
}

fn read_budgets(ledger: &mut Ledger, budgets: Vec<Budget>) {
    let number = ledger.begin_read();
    let read = |budget| BudgetReading { budget, stored: 0, notified: Vec::new() };
    let budgets = budgets.into_iter().map(read).collect();
    ledger.reload(Reading { number, budgets, included: HashSet::new() }, now());
}

fn alone() -> OtherNodes {
    OtherNodes { leased: HashMap::new(), alive: 1 }
}

fn plan(ledger: &mut Ledger, spender: Spender, amount: Amount) -> Vec<BudgetLease> {
    ledger.plan_leases(spender, Charge::priced(amount), &alone(), now()).unwrap()
}

#[test]
fn each_budget_has_its_own_lease() {
    let mut ledger = two_budgets(Sharing::Leased);
    let leases = plan(&mut ledger, by_key(), 10);
    assert_eq!(amounts(&leases), [250, 100]);
    assert!(leases.iter().all(|lease| lease.starts_at == today()));
    ledger.lease_granted(&leases[1..]);
    assert!(
        matches!(ledger.reserve(by_key(), Charge::priced(10), now()), Err(Denied::LeaseTooSmall)),
        "budget 1 has none"
    );
    assert_eq!(amounts(&plan(&mut ledger, by_key(), 10)), [250], "budget 2 has enough");
    let yesterday = BudgetLease { starts_at: today().plus(-DAY), ..leases[0] };
    ledger.lease_granted(&[yesterday]);
    assert!(is_lease_too_small(&mut ledger, 10), "the lease of another period does not count");
    ledger.lease_granted(&leases);
    let mut reserved = ledger.reserve(by_key(), Charge::priced(10), now()).unwrap().unwrap();
    assert!(matches!(ledger.reserve(by_key(), Charge::priced(91), now()), Err(Denied::LeaseTooSmall)));
    assert!(reserve(&mut ledger, 240).is_some(), "budget 1 has more");
    ledger.release(&mut reserved);
    ledger.lease_granted(&[BudgetLease { amount: 5, ..leases[1] }]);
    assert!(
        ledger.reserve(by_key(), Charge::priced(10), now()).is_ok(),
        "a lease only grows when it is granted"
    );
}

#[test]
fn a_call_without_a_price_needs_a_lease_of_one_unit() {
    let mut ledger = leased(1_000, 0);
    assert!(is_lease_too_small(&mut ledger, 0));
    ledger.lease_granted(&[BudgetLease { budget: Uuid::from_u128(1).into(), starts_at: today(), amount: 1 }]);
    assert!(reserve(&mut ledger, 0).is_some());
}

#[test]
fn a_budget_without_a_hard_limit_needs_no_lease() {
    let mut ledger = Ledger::new(Sharing::Leased);
    read_budgets(&mut ledger, vec![Budget { hard_limit: None, ..budget(1, whole_org(), 100) }]);
    let mut reserved = reserve(&mut ledger, 1_000).unwrap();
    ledger.commit(&mut reserved, first_log_id(now()), Charge::priced(5_000), now());
    assert_eq!(plan(&mut ledger, Spender::default(), 10), []);
    assert!(!ledger.has_lease_changes(now()), "what is outstanding needs no lease either");
    ledger.enter_offline_mode(3);
    assert!(reserve(&mut ledger, 1_000).is_some());
}

#[test]
fn only_a_used_lease_is_kept_when_it_is_recalled() {
    let mut ledger = leased(1_000, 0);
    assert_eq!(lease(&mut ledger, 10, 0), Some(125));
    let mut all = reserve(&mut ledger, 125).unwrap();
    ledger.recall();
    assert!(!ledger.has_lease_changes(now()), "all of it is in use");
    assert_eq!(amounts(&ledger.take_lease_changes(now())), [0; 0]);
    ledger.commit(&mut all, first_log_id(now()), Charge::priced(125), now());
    assert!(!ledger.has_lease_changes(now()), "the row is not stored yet, and the lease covers it");
    ledger.stored(&row(first_log_id(now()), 125), true, now());
    assert!(ledger.has_lease_changes(now()), "the store counts the row from now on");
    assert_eq!(amounts(&ledger.take_lease_changes(now())), [0]);
    assert!(!ledger.has_lease_changes(now()), "and has recorded the change");
}

#[test]
fn an_unused_lease_is_returned_by_an_idle_node() {
    let mut ledger = leased(1_000, 0);
    lease(&mut ledger, 10, 0);
    let mut reserved = reserve(&mut ledger, 10).unwrap();
    ledger.release(&mut reserved);
    assert_eq!(ledger.idle_for(now().plus(1_500)), Duration::from_millis(1_500));
    assert!(!ledger.has_lease_changes(now().plus(2 * SECOND - 1)));
    assert!(ledger.has_lease_changes(now().plus(2 * SECOND)));
    assert_eq!(amounts(&ledger.take_lease_changes(now().plus(2 * SECOND))), [0]);
}

#[test]
fn a_single_node_has_no_leases_to_change() {
    let mut ledger = two_budgets(Sharing::SingleNode);
    call(&mut ledger, first_log_id(now()), 10);
    ledger.stored(&row(first_log_id(now()), 10), true, now());
    ledger.recall();
    assert!(!ledger.has_lease_changes(now().plus(3 * SECOND)));
}

#[test]
fn a_change_that_the_store_refused_is_offered_again() {
    let mut ledger = two_budgets(Sharing::Leased);
    let leases = plan(&mut ledger, by_key(), 10);
    ledger.lease_granted(&leases);
    ledger.recall();
    let changes = ledger.take_lease_changes(now());
    assert_eq!(amounts(&changes), [0, 0]);
    ledger.lease_changes_failed(&changes[1..]);
    let again = ledger.take_lease_changes(now());
    assert_eq!(again.iter().map(|lease| lease.budget).collect::<Vec<_>>(), [leases[1].budget]);
}

#[test]
fn other_nodes_are_asked_twice_a_second_at_most() {
    let mut ledger = leased(1_000, 0);
    let asked = [0, 499, 500, 999, 1_000].map(|at| ledger.may_recall_others(now().plus(at)));
    assert_eq!(asked, [true, false, true, false, true]);
}

#[test]
fn another_limit_ends_the_lease() {
    let mut ledger = leased(1_000, 0);
    lease(&mut ledger, 10, 0);
    read(&mut ledger, 1_000, 0, &[]);
    assert!(reserve(&mut ledger, 125).is_some(), "a read does not change the lease");
    assert!(!ledger.has_lease_changes(now()));
    read(&mut ledger, 900, 0, &[]);
    assert!(is_lease_too_small(&mut ledger, 1));
    assert_eq!(amounts(&ledger.take_lease_changes(now())), [125], "the reservation stays covered");
}

#[test]
fn a_change_stays_pending_across_a_read() {
    let mut ledger = leased(1_000, 0);
    lease(&mut ledger, 10, 0);
    call(&mut ledger, first_log_id(now()), 10);
    ledger.stored(&row(first_log_id(now()), 10), true, now());
    read(&mut ledger, 1_000, 10, &[]);
    assert_eq!(amounts(&ledger.take_lease_changes(now())), [115]);
    read(&mut ledger, 1_000, 10, &[]);
    assert!(!ledger.has_lease_changes(now()));
}

#[test]
fn without_a_store_each_node_uses_an_equal_part() {
    let mut ledger = leased(900, 0);
    ledger.enter_offline_mode(0);
    assert!(is_lease_too_small(&mut ledger, 1), "the number of nodes is not known");
    ledger.enter_offline_mode(3);
    for id in 0..3 {
        call(&mut ledger, first_log_id(now()) + id, 100);
    }
    assert!(exceeded(&mut ledger, 1).is_reserved, "the others may have spent as much");
    assert!(
        ledger.reserve_offline(Spender::default(), Charge::priced(1), 2, now()).is_ok(),
        "of two nodes a half"
    );
    let mut reserved =
        ledger.reserve_offline(Spender::default(), Charge::priced(1), 1, now()).unwrap().unwrap();
    ledger.release(&mut reserved);
    read(&mut ledger, 900, 0, &[]);
    assert!(is_lease_too_small(&mut ledger, 1), "the store is there again");
    assert_eq!(amounts(&ledger.take_lease_changes(now())), [301], "and learns what is outstanding");
}

#[test]
fn a_ledger_is_settled_when_the_store_has_everything() {
    let mut ledger = single_node(100, 0);
    assert!(ledger.is_settled());
    let id = first_log_id(now());
    let mut reserved = reserve(&mut ledger, 10).unwrap();
    assert!(!ledger.is_settled());
    ledger.commit(&mut reserved, id, Charge::priced(10), now());
    assert!(!ledger.is_settled());
    ledger.write_started(&row(id, 10));
    assert!(!ledger.is_settled());
    ledger.stored(&row(id, 10), true, now());
    assert!(ledger.is_settled());

    let mut ledger = leased(1_000, 0);
    lease(&mut ledger, 10, 0).unwrap();
    assert!(!ledger.is_settled(), "other nodes cannot use what is leased");
    ledger.recall();
    ledger.take_lease_changes(now());
    assert!(ledger.is_settled());
}

#[test]
fn what_was_reported_is_known_until_the_period_ends() {
    let mut ledger = single_node(100, 50);
    let id = Uuid::from_u128(1).into();
    assert_eq!(ledger.notified(id, now()), []);
    let alerts = ledger.pending_alerts(now());
    ledger.mark_notified(&alerts);
    assert_eq!(ledger.notified(id, now()), [AlertKind::Warning]);
    assert_eq!(ledger.notified(id, now().plus(DAY)), []);
}
