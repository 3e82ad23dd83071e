//! Accounts of organizations and of their owners: what one of them uses of something that all share. There is one for each
//! as long as something uses it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use gateway_core::ids::{OrgId, OwnerId};

/// Accounts that are no longer in use are removed when there are this many.
const MIN_SWEPT: usize = 1_024;

/// Of an organization while this is its owner: what it used before counts against the owner that it had then.
pub type OwnedOrg = (OrgId, OwnerId);

pub struct OrgAccounts<T, K = OwnedOrg>(Mutex<Accounts<T, K>>);

struct Accounts<T, K> {
    by_key: HashMap<K, Weak<T>>,
    sweep_at: usize,
}

impl<T, K> Default for OrgAccounts<T, K> {
    fn default() -> Self {
        Self(Mutex::new(Accounts { by_key: HashMap::new(), sweep_at: MIN_SWEPT }))
    }
}

impl<T, K: Eq + Hash> OrgAccounts<T, K> {
    pub fn get(&self, key: K, open: impl FnOnce() -> T) -> Arc<T> {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = accounts.by_key.get(&key).and_then(Weak::upgrade) {
            return account;
        }
        let account = Arc::new(open());
        accounts.by_key.insert(key, Arc::downgrade(&account));
        if accounts.by_key.len() >= accounts.sweep_at {
            accounts.by_key.retain(|_, account| account.strong_count() > 0);
            accounts.sweep_at = MIN_SWEPT.max(accounts.by_key.len() * 2);
        }
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_shared_while_it_is_in_use_and_then_removed() {
        let accounts = OrgAccounts::<u8, OrgId>::default();
        let org = |number: u128| OrgId(uuid::Uuid::from_u128(number));
        let first = accounts.get(org(1), || 7);
        assert_eq!(*accounts.get(org(1), || 8), 7);
        drop(first);
        assert_eq!(*accounts.get(org(1), || 9), 9);
        for number in 2..3_000 {
            accounts.get(org(number), || 0);
        }
        let known = accounts.0.lock().unwrap().by_key.len();
        assert!(known <= 2 * MIN_SWEPT, "{known} accounts, none of them in use");
    }
}
