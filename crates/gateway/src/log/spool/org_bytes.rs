//! How many bytes each organization and each owner has in the spool: of whole records, because rows without bodies fill it
//! too. Every request adds to it, so there is no lock and no entry for each of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gateway_core::fair_share::{ShareRule, Use};
use gateway_core::ids::OrgId;
use gateway_store::org_owners::OrgOwners;
use uuid::Uuid;

/// One part of so many of the limit is left by an owner that is alone: for rows without bodies, and for the bodies of the
/// next one.
const RESERVED_PART: u64 = 8;
/// Two organizations share both counts with a chance of one in 16 million.
const COUNTS: usize = 1 << 12;
const COUNT_BITS: u32 = COUNTS.trailing_zeros();

#[derive(Default)]
pub struct OrgBytes {
    owners: Arc<OrgOwners>,
    of_orgs: Counts,
    /// An owner that changes leaves what it had until the spool is empty.
    of_owners: Counts,
    /// In sum. Rows that are damaged are never subtracted.
    total: AtomicU64,
}

impl OrgBytes {
    pub fn sharing_by(owners: &Arc<OrgOwners>) -> Self {
        Self { owners: Arc::clone(owners), ..Self::default() }
    }

    #[cfg(test)]
    pub fn of(&self, org: OrgId) -> u64 {
        self.of_orgs.of(org.0)
    }

    /// Whether bodies of an organization may be added to the spool: what waits of it must not cost others theirs.
    pub fn has_room(&self, org: OrgId, bodies: u64, (pending, limit): (u64, u64)) -> bool {
        let of_owner = self.of_owners.of(self.owners.of(org).0);
        let for_one = limit - limit / RESERVED_PART;
        if self.is_only(of_owner) && pending.saturating_add(bodies) <= for_one {
            return true;
        }
        let own = self.of_orgs.of(org.0);
        ShareRule::SPOOLED_BODIES.admits(Use { total: limit, used: pending, own, of_owner }, bodies)
    }

    /// Whether an owner with so many bytes is the only one that has any.
    fn is_only(&self, of_owner: u64) -> bool {
        self.total.load(Ordering::Relaxed) <= of_owner
    }

    pub fn add(&self, org: OrgId, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
        self.of_orgs.add(org.0, bytes);
        self.of_owners.add(self.owners.of(org).0, bytes);
    }

    pub fn subtract(&self, org: OrgId, bytes: u64) {
        subtract(&self.total, bytes);
        self.of_orgs.subtract(org.0, bytes);
        self.of_owners.subtract(self.owners.of(org).0, bytes);
    }

    /// The spool is empty.
    pub fn clear(&self) {
        if self.total.swap(0, Ordering::Relaxed) > 0 {
            self.of_orgs.clear();
            self.of_owners.clear();
        }
    }
}

/// A count is the lesser of two, which few ids share by chance.
struct Counts([Box<[AtomicU64]>; 2]);

impl Default for Counts {
    fn default() -> Self {
        let table = || (0..COUNTS).map(|_| AtomicU64::new(0)).collect();
        Self([table(), table()])
    }
}

impl Counts {
    fn of(&self, id: Uuid) -> u64 {
        self.both(id).map(|count| count.load(Ordering::Relaxed)).into_iter().min().unwrap_or(0)
    }

    fn add(&self, id: Uuid, bytes: u64) {
        for count in self.both(id) {
            count.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn subtract(&self, id: Uuid, bytes: u64) {
        for count in self.both(id) {
            subtract(count, bytes);
        }
    }

    fn clear(&self) {
        for count in self.0.iter().flatten() {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// The random bits of an id are its last ones.
    fn both(&self, id: Uuid) -> [&AtomicU64; 2] {
        let bits = id.as_u128();
        let index = |shift: u32| usize::try_from((bits >> shift) % COUNTS as u128).unwrap_or_default();
        let [first, second] = &self.0;
        [&first[index(0)], &second[index(COUNT_BITS)]]
    }
}

fn subtract(count: &AtomicU64, bytes: u64) {
    let _ =
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| Some(count.saturating_sub(bytes)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn organizations_with_a_count_in_common_are_told_apart_by_the_other() {
        let bytes = OrgBytes::default();
        let org = |number: u128| OrgId(Uuid::from_u128(number));
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

    #[test]
    fn organizations_of_one_owner_have_the_room_of_one() {
        let owners = Arc::new(OrgOwners::default());
        let org = |number: u128| OrgId(Uuid::from_u128(number));
        let user = gateway_core::ids::UserId(Uuid::from_u128(1 << 100));
        (1..=32).for_each(|number| owners.set(org(number), user));
        let (bytes, limit) = (OrgBytes::sharing_by(&owners), 32_000);
        let pending = || bytes.total.load(Ordering::Relaxed);
        bytes.add(org(99), 1);
        for round in 0..1_000_u128 {
            let org = org(1 + round % 32);
            if bytes.has_room(org, 100, (pending(), limit)) {
                bytes.add(org, 100);
            }
        }
        let of_owner = pending() - 1;
        assert!((16_000..=27_000).contains(&of_owner), "{of_owner}: each alone has little");
        assert!(bytes.has_room(org(99), 900, (pending(), limit)), "there is room for the other owner");
        (1..=32).for_each(|number| bytes.subtract(org(number), limit));
        assert_eq!(bytes.of_owners.of(user.0), 0);
    }
}
