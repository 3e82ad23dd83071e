//! How many bytes each organization has in the spool: of whole records, because rows without bodies fill it too. Every
//! request adds to it, so there is no lock and no entry for each organization: a count is the lesser of two, which few
//! organizations share by chance.

use std::sync::atomic::{AtomicU64, Ordering};

use gateway_core::fair_share::{ShareRule, Use};
use gateway_core::ids::OrgId;

/// One part of so many of the limit is left by an organization that is alone: for rows without bodies, and for the bodies
/// of the next organization.
const RESERVED_PART: u64 = 8;
/// Two organizations share both counts with a chance of one in 16 million.
const COUNTS: usize = 1 << 12;
const COUNT_BITS: u32 = COUNTS.trailing_zeros();

pub struct OrgBytes {
    tables: [Box<[AtomicU64]>; 2],
    /// In sum. Rows that are damaged are never subtracted.
    total: AtomicU64,
}

impl OrgBytes {
    pub fn new() -> Self {
        let table = || (0..COUNTS).map(|_| AtomicU64::new(0)).collect();
        Self { tables: [table(), table()], total: AtomicU64::new(0) }
    }

    pub fn of(&self, org: OrgId) -> u64 {
        self.counts(org).map(|count| count.load(Ordering::Relaxed)).into_iter().min().unwrap_or(0)
    }

    /// Whether bodies of an organization may be added to the spool: what waits of it must not cost others theirs.
    pub fn has_room(&self, org: OrgId, bodies: u64, (pending, limit): (u64, u64)) -> bool {
        let own = self.of(org);
        let for_one = limit - limit / RESERVED_PART;
        if self.is_only(own) && pending.saturating_add(bodies) <= for_one {
            return true;
        }
        // The rows that the writer stores name no owner, so each organization counts for itself here.
        ShareRule::SPOOLED_BODIES.admits(Use { total: limit, used: pending, own, of_owner: own }, bodies)
    }

    /// Whether an organization with so many bytes is the only one that has any.
    fn is_only(&self, own: u64) -> bool {
        self.total.load(Ordering::Relaxed) <= own
    }

    pub fn add(&self, org: OrgId, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
        for count in self.counts(org) {
            count.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub fn subtract(&self, org: OrgId, bytes: u64) {
        for count in [&self.total].into_iter().chain(self.counts(org)) {
            let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                Some(count.saturating_sub(bytes))
            });
        }
    }

    /// The spool is empty.
    pub fn clear(&self) {
        if self.total.swap(0, Ordering::Relaxed) > 0 {
            for count in self.tables.iter().flatten() {
                count.store(0, Ordering::Relaxed);
            }
        }
    }

    /// The random bits of an id are its last ones.
    fn counts(&self, org: OrgId) -> [&AtomicU64; 2] {
        let bits = org.0.as_u128();
        let index = |shift: u32| usize::try_from((bits >> shift) % COUNTS as u128).unwrap_or_default();
        let [first, second] = &self.tables;
        [&first[index(0)], &second[index(COUNT_BITS)]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn organizations_with_a_count_in_common_are_told_apart_by_the_other() {
        let bytes = OrgBytes::new();
        let org = |number: u128| OrgId(uuid::Uuid::from_u128(number));
        // The same first count, and the same second one.
        let [one, two, three] = [5, 5 | (1 << COUNT_BITS), 6].map(org);
        bytes.add(one, 100);
        assert_eq!([one, two, three].map(|org| bytes.of(org)), [100, 0, 0]);
        assert!(bytes.is_only(bytes.of(one)) && !bytes.is_only(bytes.of(two)));
        bytes.add(two, 30);
        assert_eq!([one, two, three].map(|org| bytes.of(org)), [100, 30, 0]);
        assert!(!bytes.is_only(bytes.of(one)) && !bytes.is_only(bytes.of(two)));
        bytes.subtract(one, 60);
        assert_eq!([one, two].map(|org| bytes.of(org)), [40, 30]);
        bytes.subtract(two, 30);
        assert_eq!([one, two].map(|org| bytes.of(org)), [40, 0]);
        bytes.clear();
        assert_eq!(bytes.of(one), 0, "what a damaged row left");
    }
}
