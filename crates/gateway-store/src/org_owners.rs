//! Who owns the organizations that a process works for. What all of them use is shared between owners, so that an account
//! with many organizations gets no more of it than one with a single organization. It is known in memory, because slots
//! and memory are taken without a query.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gateway_core::access::Role;
use gateway_core::ids::{OrgId, OwnerId, UserId};

use crate::row::args;
use crate::{Db, StoreError};

/// Organizations that are known at least. Those that were used least recently are forgotten.
const MIN_KNOWN: usize = 100_000;

/// The owners of organizations that were loaded.
#[derive(Default)]
pub struct OrgOwners(Mutex<Known>);

/// In two generations: when the latest one is full, it becomes the earlier one, and what is used again moves to the latest.
#[derive(Default)]
struct Known {
    latest: HashMap<OrgId, OwnerId>,
    earlier: HashMap<OrgId, OwnerId>,
}

impl OrgOwners {
    /// An organization that was not loaded counts as one of an owner of its own.
    pub fn of(&self, org: OrgId) -> OwnerId {
        let (owner, _forgotten) = self.lock().find(org);
        owner.unwrap_or(OwnerId(org.0))
    }

    /// An organization has been created. What it uses before it is loaded counts against its owner too.
    pub fn set(&self, org: OrgId, owner: UserId) {
        let _forgotten = self.lock().add(org, OwnerId(owner.0));
    }

    /// Reads the owner, for an organization that is loaded.
    pub async fn load(&self, db: &Db, org: OrgId) -> Result<(), StoreError> {
        let owner = read(db, org).await?;
        let _forgotten = self.lock().add(org, owner);
        Ok(())
    }

    /// The same unless the owner is known, for work that nobody was authenticated for in this process.
    pub async fn ensure(&self, db: &Db, org: OrgId) -> Result<(), StoreError> {
        let is_known = {
            let (owner, _forgotten) = self.lock().find(org);
            owner.is_some()
        };
        if is_known { Ok(()) } else { self.load(db, org).await }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The generation that is forgotten, if one is. Its memory is freed after the lock.
type Forgotten = HashMap<OrgId, OwnerId>;

impl Known {
    fn find(&mut self, org: OrgId) -> (Option<OwnerId>, Forgotten) {
        if let Some(owner) = self.latest.get(&org) {
            return (Some(*owner), Forgotten::new());
        }
        match self.earlier.remove(&org) {
            Some(owner) => (Some(owner), self.add(org, owner)),
            None => (None, Forgotten::new()),
        }
    }

    fn add(&mut self, org: OrgId, owner: OwnerId) -> Forgotten {
        let mut forgotten = Forgotten::new();
        if self.latest.len() >= MIN_KNOWN && !self.latest.contains_key(&org) {
            forgotten = std::mem::replace(&mut self.earlier, std::mem::take(&mut self.latest));
        }
        self.latest.insert(org, owner);
        forgotten
    }
}

/// Of the organization's owners the one who has been a member for longest: ownership can be shared, but an organization has
/// one owner here, and each account's organizations count against it.
async fn read(db: &Db, org: OrgId) -> Result<OwnerId, StoreError> {
    let row = db
        .opt(
            "SELECT user_id FROM memberships WHERE org_id = $1 AND role = $2 ORDER BY created_at, user_id LIMIT 1",
            args![org, Role::Owner],
        )
        .await?;
    let owner: Option<UserId> = row.map(|row| row.get("user_id")).transpose()?;
    Ok(owner.map_or(OwnerId(org.0), |user| OwnerId(user.0)))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn org(number: usize) -> OrgId {
        OrgId(Uuid::from_u128(number as u128))
    }

    #[test]
    fn an_organization_that_is_not_known_is_its_own_owner() {
        let (owners, user) = (OrgOwners::default(), UserId(Uuid::from_u128(7)));
        assert_eq!(owners.of(org(1)), OwnerId(org(1).0));
        owners.set(org(1), user);
        owners.set(org(2), user);
        let found = [1, 2, 3].map(|number| owners.of(org(number)));
        assert_eq!(found, [OwnerId(user.0), OwnerId(user.0), OwnerId(org(3).0)]);
    }

    #[test]
    fn what_is_used_stays_known_and_memory_is_bounded() {
        let (owners, user) = (OrgOwners::default(), UserId(Uuid::max()));
        for number in 0..3 * MIN_KNOWN {
            owners.set(org(number), user);
            if number % 1_000 == 0 {
                assert_eq!(owners.of(org(0)), OwnerId(user.0), "it is used all the time");
            }
        }
        assert_eq!(owners.of(org(1)), OwnerId(org(1).0), "it is forgotten");
        let known = owners.lock();
        assert!(known.latest.len() + known.earlier.len() <= 2 * MIN_KNOWN);
    }
}
