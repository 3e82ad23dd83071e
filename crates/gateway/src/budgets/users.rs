//! The ledgers of end users. Each is created with the first call of its user, reads what the user has spent, and leaves
//! when it was not used for a while or when others need its place and everything in it is stored. An organization has a
//! share of the places, so that callers who invent users take the places of their own organization.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway_core::budget::ledger::Sharing;
use gateway_core::budget::spending_user;
use gateway_core::ids::OrgId;
use gateway_core::logs::LogRow;
use gateway_core::org_lru::{LruLimits, OrgLru};
use gateway_core::time::Timestamp;
use gateway_store::StoreError;
use gateway_store::connection_shares::on_behalf_of;

use super::org::{OrgBudgets, UserRules};
use super::shared_ledger::SharedLedger;
use super::{Budgets, Unread, reader, spend_row};
use crate::services::Services;

/// Users that are in memory. A ledger takes about 1 KiB.
const LIMITS: LruLimits = LruLimits { all: 50_000, per_org: 10_000 };
/// A user without a call for this long leaves.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// A call is refused when the spending of its user cannot be read in this time.
const LOAD_TIMEOUT: Duration = Duration::from_secs(5);

pub struct UserLedgers {
    ledgers: Mutex<OrgLru<Arc<SharedLedger>>>,
    sharing: Sharing,
}

impl UserLedgers {
    pub fn new(sharing: Sharing) -> Self {
        Self { ledgers: Mutex::new(OrgLru::new(LIMITS)), sharing }
    }

    /// Calls the function for the rows of users that have a ledger.
    pub fn for_each<'r>(&self, rows: &'r [LogRow], apply: impl Fn(&SharedLedger, &'r LogRow)) {
        let ledgers = self.lock();
        if ledgers.is_empty() {
            return;
        }
        for row in rows {
            let user = row.user.as_deref().map(spending_user);
            if let Some(ledger) = user.and_then(|user| ledgers.peek(row.org_id, &user)) {
                apply(ledger, row);
            }
        }
    }

    pub fn find(&self, org: OrgId, user: &str) -> Option<Arc<SharedLedger>> {
        self.lock().peek(org, user).cloned()
    }

    pub fn all(&self) -> Vec<Arc<SharedLedger>> {
        self.lock().values().cloned().collect()
    }

    /// The user's ledger. A new one is initialized with its rows that are being written.
    fn entry(&self, org: OrgId, user: &str, writing: &[LogRow]) -> Result<Arc<SharedLedger>, Unread> {
        let mut ledgers = self.lock();
        if let Some(known) = ledgers.get(org, user) {
            return Ok(Arc::clone(known));
        }
        let name: Arc<str> = user.into();
        let ledger = Arc::new(SharedLedger::of_user(org, Arc::clone(&name), self.sharing));
        for row in writing.iter().filter(|row| row.org_id == org) {
            if row.user.as_deref().map(spending_user).as_deref() == Some(user)
                && let Some((_, row)) = spend_row(row)
            {
                ledger.lock().write_started(&row);
            }
        }
        let added = ledgers.insert(org, name, Arc::clone(&ledger), is_removable);
        added.map(|()| ledger).map_err(|_| Unread::TooManyUsers)
    }

    /// Removes ledgers that were not used for a while.
    pub fn prune(&self, now: Timestamp) {
        self.lock().retain(|ledger| {
            let is_idle = ledger.lock().idle_for(now) >= IDLE_TIMEOUT;
            !is_idle || !is_removable(ledger)
        });
    }

    fn lock(&self) -> MutexGuard<'_, OrgLru<Arc<SharedLedger>>> {
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody uses the ledger, and the store has everything in it.
fn is_removable(ledger: &Arc<SharedLedger>) -> bool {
    Arc::strong_count(ledger) == 1 && ledger.lock().is_settled()
}

impl Budgets {
    /// The ledger of a user, with its spending. None if no budget holds for the user.
    pub(super) async fn user_ledger(
        &self,
        org: &OrgBudgets,
        user: &str,
    ) -> Result<Option<Arc<SharedLedger>>, Unread> {
        let (rules, user) = (org.user_rules(), spending_user(user));
        if !rules.budgets.covers(&user) {
            return Ok(None);
        }
        let ledger = {
            let tracked = self.read();
            let writing = tracked.writing.as_ref().map(|rows| rows.as_slice()).unwrap_or_default();
            tracked.users.entry(org.id(), &user, writing)?
        };
        if is_read_with(&ledger, &rules) {
            return Ok(Some(ledger));
        }
        // Only tasks of the main runtime use the database.
        let (services, loaded) = (Arc::clone(&self.0.services), Arc::clone(&ledger));
        let load = async move {
            let read = Box::pin(on_behalf_of(loaded.org(), load(&services, &rules, &loaded)));
            tokio::time::timeout(LOAD_TIMEOUT, read).await
        };
        let error = match self.0.services.tasks.runtime.spawn(load).await {
            Ok(Ok(Ok(()))) => return Ok(Some(ledger)),
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(_)) => "the store does not respond".to_owned(),
            Err(error) => error.to_string(),
        };
        tracing::debug!(error, "cannot read the spending of a user; the call is refused");
        Err(Unread::Unavailable)
    }
}

fn is_read_with(ledger: &SharedLedger, rules: &UserRules) -> bool {
    ledger.user().is_some_and(|user| user.rules().revision == rules.revision)
}

async fn load(
    services: &Services,
    rules: &Arc<UserRules>,
    ledger: &Arc<SharedLedger>,
) -> Result<(), StoreError> {
    let _guard = ledger.read_lock.lock().await;
    // Concurrent calls of the user share one read.
    if is_read_with(ledger, rules) {
        return Ok(());
    }
    reader::reload_users(services, rules, std::slice::from_ref(ledger)).await
}
