//! Accounts of organizations: what one of them uses of something that all share. There is one for each organization as
//! long as something uses it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use gateway_core::ids::OrgId;

/// Accounts that are no longer in use are removed when there are this many.
const MIN_SWEPT: usize = 1_024;

pub struct OrgAccounts<T>(Mutex<Accounts<T>>);

struct Accounts<T> {
    by_org: HashMap<OrgId, Weak<T>>,
    sweep_at: usize,
}

impl<T> Default for OrgAccounts<T> {
    fn default() -> Self {
        Self(Mutex::new(Accounts { by_org: HashMap::new(), sweep_at: MIN_SWEPT }))
    }
}

impl<T> OrgAccounts<T> {
    pub fn get(&self, org: OrgId, open: impl FnOnce() -> T) -> Arc<T> {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = accounts.by_org.get(&org).and_then(Weak::upgrade) {
            return account;
        }
        let account = Arc::new(open());
        accounts.by_org.insert(org, Arc::downgrade(&account));
        if accounts.by_org.len() >= accounts.sweep_at {
            accounts.by_org.retain(|_, account| account.strong_count() > 0);
            accounts.sweep_at = MIN_SWEPT.max(accounts.by_org.len() * 2);
        }
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_shared_while_it_is_in_use_and_then_removed() {
        let accounts = OrgAccounts::default();
        let org = |number: u128| OrgId(uuid::Uuid::from_u128(number));
        let first = accounts.get(org(1), || 7);
        assert_eq!(*accounts.get(org(1), || 8), 7);
        drop(first);
        assert_eq!(*accounts.get(org(1), || 9), 9);
        for number in 2..3_000 {
            accounts.get(org(number), || 0);
        }
        let known = accounts.0.lock().unwrap().by_org.len();
        assert!(known <= 2 * MIN_SWEPT, "{known} accounts, none of them in use");
    }
}
