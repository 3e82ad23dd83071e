//! Tests of reservations: what is reserved is released, whatever happens to it.

use gateway_core::ids::UserId;
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
fn an_account_with_many_organizations_leaves_memory_to_others() {
    let owners = Arc::new(OrgOwners::default());
    (1..101).for_each(|number| owners.set(org(number), UserId(Uuid::max())));
    let budget = budget().sharing_by(&owners);
    let fill = |number| {
        let account = budget.account(org(number));
        std::iter::from_fn(move || account.reserve(QUANTUM).ok())
    };
    let held: Vec<_> = (1..101).flat_map(fill).collect();
    assert!((32..=38).contains(&held.len()), "{} quanta of 64", held.len());
    let other: Vec<_> = fill(200).collect();
    assert!(other.len() >= 6, "{}", other.len());
    drop((held, other));
    assert_eq!(budget.used(), 0);
    let half = budget.account(org(1)).reserve(TOTAL / 2);
    assert!(half.is_ok() && budget.account(org(3)).reserve(QUANTUM + 1).is_err());
    assert!(budget.account(org(3)).reserve(QUANTUM).is_ok(), "the first one does not stop the others");
}

#[test]
fn an_organization_that_gets_another_owner_gives_everything_back() {
    let (owners, before, after) = (Arc::new(OrgOwners::default()), Uuid::from_u128(7), Uuid::from_u128(8));
    let budget = budget().sharing_by(&owners);
    owners.set(org(1), UserId(before));
    let first = budget.account(org(1)).reserve(QUANTUM).unwrap();
    owners.set(org(1), UserId(after));
    let mut second = budget.account(org(1)).reserve(QUANTUM).unwrap();
    assert!(!Arc::ptr_eq(&first.account, &second.account));
    let [old, new] = [&first, &second].map(|held| Arc::clone(&held.account));
    second.absorb(first);
    assert_eq!((budget.used(), second.bytes()), (2 * QUANTUM as u64, 2 * QUANTUM));
    drop(second);
    let counts = [&old, &new].map(|account| account.used.load(Ordering::Relaxed));
    let of_owners = [&old, &new].map(|account| account.of_owner.load(Ordering::Relaxed));
    assert_eq!((budget.used(), counts, of_owners), (0, [0, 0], [0, 0]));
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
fn a_large_response_has_its_room_before_it_is_made_and_then_takes_its_length() {
    const MIB: usize = 1 << 20;
    let budget = MemoryBudget::new(16 * MIB as u64);
    let account = budget.account(org(1));
    let memory = RequestMemory::new(account.open());
    memory.grow(QUANTUM).unwrap();
    memory.reserve_response(SMALL_UNCOMPRESSED, 3).unwrap();
    assert_eq!(budget.used(), QUANTUM as u64, "few rows need no room");
    memory.reserve_response(MIB, 3).unwrap();
    assert_eq!(budget.used(), (QUANTUM + 3 * MIB) as u64);
    memory.hold_response(2 * MIB, true).unwrap();
    assert_eq!(budget.used(), (QUANTUM + 2 * MIB) as u64);
    memory.charge_response(3 * QUANTUM);
    assert_eq!(budget.used(), 4 * QUANTUM as u64);
    // The organization has the 8 MiB that it may have.
    let held = account.reserve(8 * MIB - 4 * QUANTUM).unwrap();
    assert!(memory.reserve_response(MIB, 3).is_err() && memory.hold_response(MIB, true).is_err());
    assert!(memory.hold_response(SMALL_RESPONSE + QUANTUM, false).is_err());
    assert!(memory.hold_response(SMALL_RESPONSE, false).is_ok());
    assert!(memory.hold_response(SMALL_UNCOMPRESSED, true).is_ok(), "its compressed form is small");
    memory.charge_response(MIB);
    assert_eq!(budget.used(), (9 * MIB - 3 * QUANTUM) as u64, "also beyond the share");
    drop((held, memory));
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
