//! A ledger behind a lock, of an organization or of one of its users, and the reservations made in it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gateway_core::budget::ledger::{
    BudgetExceeded, Denied, Ledger, Reading, ReservedAmount, Sharing, SpendRow,
};
use gateway_core::budget::{Amount, Budget, Charge, Spender};
use gateway_core::ids::{BudgetId, OrgId};
use gateway_core::time::Timestamp;
use gateway_store::cluster::budget_leases::LeaseOwner;
use tokio::sync::Notify;

use super::org::UserRules;

pub struct SharedLedger {
    org: OrgId,
    user: Option<LedgerUser>,
    ledger: Mutex<Ledger>,
    /// Held by tasks of the main runtime while they read the store or change leases of this ledger.
    pub(super) read_lock: tokio::sync::Mutex<()>,
    /// Ledgers of users are visited at regular intervals instead.
    wake: Option<Arc<Notify>>,
}

pub(super) struct LedgerUser {
    pub name: Arc<str>,
    /// With which the ledger was read.
    rules: Mutex<Arc<UserRules>>,
}

impl LedgerUser {
    pub fn rules(&self) -> Arc<UserRules> {
        Arc::clone(&self.rules.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn set_rules(&self, rules: Arc<UserRules>) {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
    }
}

impl SharedLedger {
    pub fn of_org(org: OrgId, wake: Arc<Notify>, sharing: Sharing) -> Self {
        Self::new(org, None, Some(wake), sharing)
    }

    pub fn of_user(org: OrgId, name: Arc<str>, sharing: Sharing) -> Self {
        let user = LedgerUser { name, rules: Mutex::default() };
        Self::new(org, Some(user), None, sharing)
    }

    fn new(org: OrgId, user: Option<LedgerUser>, wake: Option<Arc<Notify>>, sharing: Sharing) -> Self {
        let ledger = Mutex::new(Ledger::new(sharing));
        Self { org, user, ledger, read_lock: tokio::sync::Mutex::default(), wake }
    }

    pub fn org(&self) -> OrgId {
        self.org
    }

    pub(super) fn user(&self) -> Option<&LedgerUser> {
        self.user.as_ref()
    }

    pub(super) fn lease_owner(&self) -> LeaseOwner<'_> {
        LeaseOwner { org: self.org, user: self.user.as_ref().map(|user| &*user.name) }
    }

    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// The budget's limits and what was spent in its current period.
    pub fn spent(&self, id: BudgetId, now: Timestamp) -> Option<(Budget, Amount)> {
        self.lock().spent(id, now)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reserve(
        self: &Arc<Self>,
        spender: Spender,
        charge: Charge,
        now: Timestamp,
    ) -> Result<Option<Hold>, Denied> {
        let reserved = self.lock().reserve(spender, charge, now)?;
        Ok(self.hold(reserved))
    }

    /// The store is unreachable: reserves from this node's equal part of what was left.
    pub(super) fn reserve_offline(
        self: &Arc<Self>,
        spender: Spender,
        charge: Charge,
        nodes: u64,
        now: Timestamp,
    ) -> Result<Option<Hold>, Box<BudgetExceeded>> {
        let mut ledger = self.lock();
        ledger.enter_offline_mode(nodes);
        let reserved = ledger.reserve_offline(spender, charge, nodes, now)?;
        drop(ledger);
        Ok(self.hold(reserved))
    }

    pub(super) fn stored(&self, row: &SpendRow, is_new: bool, now: Timestamp) {
        let mut ledger = self.lock();
        ledger.stored(row, is_new, now);
        self.wake_if_needed(&ledger, now);
    }

    pub(super) fn reload(&self, reading: Reading, now: Timestamp) {
        let mut ledger = self.lock();
        ledger.reload(reading, now);
        self.wake_if_needed(&ledger, now);
    }

    fn hold(self: &Arc<Self>, reserved: Option<ReservedAmount>) -> Option<Hold> {
        reserved.map(|reserved| Hold { ledger: Arc::clone(self), reserved })
    }

    fn wake_if_needed(&self, ledger: &Ledger, now: Timestamp) {
        if let Some(wake) = &self.wake
            && (ledger.has_pending_alerts() || ledger.has_lease_changes(now))
        {
            wake.notify_one();
        }
    }
}

/// What is reserved for a call in one ledger. Released on drop.
pub(super) struct Hold {
    ledger: Arc<SharedLedger>,
    reserved: ReservedAmount,
}

impl Hold {
    fn commit(&mut self, row: i64, charge: Charge, now: Timestamp) {
        let mut ledger = self.ledger.lock();
        ledger.commit(&mut self.reserved, row, charge, now);
        if let Some(wake) = self.ledger.wake.as_ref().filter(|_| ledger.has_pending_alerts()) {
            wake.notify_one();
        }
    }

    fn remaining(&self) -> Option<Amount> {
        self.ledger.lock().remaining(self.reserved.spender)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.reserved.is_released() {
            self.ledger.lock().release(&mut self.reserved);
        }
    }
}

/// The highest possible cost of a call, reserved in the ledger of its organization and in that of its user until the
/// call has ended. Released on drop.
pub struct Reservation {
    of_org: Option<Hold>,
    of_user: Option<Hold>,
}

impl Reservation {
    /// None if no budget covers the call.
    pub(super) fn new(of_org: Option<Hold>, of_user: Option<Hold>) -> Option<Self> {
        (of_org.is_some() || of_user.is_some()).then_some(Self { of_org, of_user })
    }

    /// The call has ended with this log row and charge.
    pub fn commit(&mut self, row: i64, charge: Charge, now: Timestamp) {
        for hold in [&mut self.of_org, &mut self.of_user].into_iter().flatten() {
            hold.commit(row, charge, now);
        }
    }

    /// The least that any hard limit leaves.
    pub fn remaining(&self) -> Option<Amount> {
        [&self.of_org, &self.of_user].into_iter().flatten().filter_map(Hold::remaining).min()
    }
}
