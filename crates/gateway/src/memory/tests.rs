//! Tests of reservations: what is reserved is released, whatever happens to it.

use uuid::Uuid;

use super::*;

const TOTAL: usize = 64 * QUANTUM;

fn budget() -> MemoryBudget {
    MemoryBudget::new(TOTAL as u64)
}

fn org(number: u128) -> OrgId {
    OrgId(Uuid::from_u128(number))
}

#[test]
fn reservations_are_released_when_they_are_dropped() {
    let budget = budget();
    let account = budget.account(org(1));
    let mut first = account.reserve(1).unwrap();
    assert_eq!(budget.used(), QUANTUM as u64);
    first.grow(QUANTUM - 1).unwrap();
    assert_eq!(budget.used(), QUANTUM as u64, "the first quantum is not exceeded");
    first.grow(1).unwrap();
    let second = first.sibling(3 * QUANTUM).unwrap();
    assert_eq!(budget.used(), 5 * QUANTUM as u64);
    first.absorb(second);
    assert_eq!((budget.used(), first.bytes()), (5 * QUANTUM as u64, 4 * QUANTUM + 1));
    first.shrink_to(10);
    assert_eq!(budget.used(), QUANTUM as u64);
    first.resize(2 * QUANTUM).unwrap();
    assert_eq!(budget.used(), 2 * QUANTUM as u64);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _held = account.reserve(QUANTUM).unwrap();
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    drop(first);
    assert_eq!(budget.used(), 0);
}

#[test]
fn an_organization_is_refused_while_others_are_not() {
    let budget = budget();
    let greedy = budget.account(org(1));
    let mut held = greedy.reserve(TOTAL / 2).unwrap();
    assert!(held.grow(1).is_err());
    assert_eq!((held.bytes(), budget.refusals()), (TOTAL / 2, 1));
    assert!(greedy.reserve(1).is_err());
    let other = budget.account(org(2)).reserve(TOTAL / 8).unwrap();
    drop(held);
    assert_eq!(budget.used(), (TOTAL / 8) as u64);
    drop(other);
    assert_eq!(budget.used(), 0);
}

#[test]
fn an_organization_has_one_account() {
    let budget = budget();
    let held = budget.account(org(1)).reserve(TOTAL / 2).unwrap();
    assert!(budget.account(org(1)).reserve(1).is_err(), "it has the use of the one before");
    drop(held);
    assert!(budget.account(org(1)).reserve(TOTAL / 2).is_ok());
}

#[test]
fn unauthenticated_callers_have_a_small_part() {
    let budget = budget();
    let held = budget.anonymous().reserve(TOTAL / 16).unwrap();
    assert!(budget.anonymous().reserve(1).is_err());
    drop(held);
    assert_eq!(budget.used(), 0);
}

#[test]
fn threads_never_exceed_the_budget() {
    let budget = Arc::new(budget());
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let account = budget.account(org(number % 2));
            std::thread::spawn(move || {
                for round in 0..10_000 {
                    let held = account.reserve((round % 20) * QUANTUM);
                    let used = account.shared.used.load(Ordering::Relaxed);
                    drop(held);
                    // Reservations that are about to be refused are in it for a moment.
                    assert!(used <= (TOTAL + 4 * 20 * QUANTUM) as u64, "{used}");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_buffer_takes_about_its_length() {
    let budget = budget();
    let account = budget.account(org(1));
    let mut buffer = HeldBuffer::new(account.open());
    for _ in 0..10 * QUANTUM {
        buffer.append(b"x").unwrap();
    }
    assert!(budget.used() <= 20 * QUANTUM as u64);
    let mut full = HeldBuffer::new(account.open());
    let chunk = vec![0; QUANTUM];
    while full.append(&chunk).is_ok() {}
    assert!(full.len() >= 10 * QUANTUM, "it is filled up to the share: {}", full.len());
    let (held, used) = (full.finish(), budget.used());
    let part = held.slice(..1);
    drop((held, buffer.release()));
    assert!(budget.used() > 0 && budget.used() < used, "a part keeps the whole");
    drop(part);
    assert_eq!(budget.used(), 0);
}
