//! One organization's ledger behind a lock, and the reservations made in it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gateway_core::budget::ledger::{
    BudgetExceeded, Denied, Ledger, Reading, ReservedAmount, Sharing, SpendRow,
};
use gateway_core::budget::{Amount, Budget, Charge, Spender};
use gateway_core::ids::{BudgetId, OrgId};
use gateway_core::time::Timestamp;
use tokio::sync::Notify;

pub struct OrgBudgets {
    org: OrgId,
    ledger: Mutex<Ledger>,
    /// Held by tasks of the main runtime while they read the store or change leases of this organization.
    pub(super) read_lock: tokio::sync::Mutex<()>,
    wake: Arc<Notify>,
}

/// The highest possible cost of a call, reserved until the call has ended. Released on drop.
pub struct Reservation {
    org: Arc<OrgBudgets>,
    reserved: ReservedAmount,
}

impl OrgBudgets {
    pub fn new(org: OrgId, wake: Arc<Notify>, sharing: Sharing) -> Self {
        Self { org, ledger: Mutex::new(Ledger::new(sharing)), read_lock: tokio::sync::Mutex::default(), wake }
    }

    pub fn id(&self) -> OrgId {
        self.org
    }

    /// The budget's limits and what was spent in its current period.
    pub fn spent(&self, id: BudgetId, now: Timestamp) -> Option<(Budget, Amount)> {
        self.ledger().spent(id, now)
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reserve(
        self: &Arc<Self>,
        spender: Spender,
        charge: Charge,
        now: Timestamp,
    ) -> Result<Option<Reservation>, Denied> {
        let reserved = self.ledger().reserve(spender, charge, now)?;
        Ok(self.guard(reserved))
    }

    /// The store is unreachable: reserves from this node's equal part of what was left.
    pub(super) fn reserve_offline(
        self: &Arc<Self>,
        spender: Spender,
        charge: Charge,
        nodes: u64,
        now: Timestamp,
    ) -> Result<Option<Reservation>, Box<BudgetExceeded>> {
        let mut ledger = self.ledger();
        ledger.enter_offline_mode(nodes);
        let reserved = ledger.reserve_offline(spender, charge, nodes, now)?;
        drop(ledger);
        Ok(self.guard(reserved))
    }

    pub(super) fn stored(&self, row: &SpendRow, is_new: bool, now: Timestamp) {
        let mut ledger = self.ledger();
        ledger.stored(row, is_new, now);
        self.wake_if_needed(&ledger, now);
    }

    pub(super) fn reload(&self, reading: Reading, now: Timestamp) {
        let mut ledger = self.ledger();
        ledger.reload(reading, now);
        self.wake_if_needed(&ledger, now);
    }

    fn guard(self: &Arc<Self>, reserved: Option<ReservedAmount>) -> Option<Reservation> {
        reserved.map(|reserved| Reservation { org: Arc::clone(self), reserved })
    }

    fn wake_if_needed(&self, ledger: &Ledger, now: Timestamp) {
        if ledger.has_pending_alerts() || ledger.has_lease_changes(now) {
            self.wake.notify_one();
        }
    }
}

impl Reservation {
    /// The call has ended with this log row and charge.
    pub fn commit(&mut self, row: i64, charge: Charge, now: Timestamp) {
        let mut ledger = self.org.ledger();
        ledger.commit(&mut self.reserved, row, charge, now);
        if ledger.has_pending_alerts() {
            self.org.wake.notify_one();
        }
    }

    /// The least that any hard limit leaves.
    pub fn remaining(&self) -> Option<Amount> {
        self.org.ledger().remaining(self.reserved.spender)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.reserved.is_released() {
            self.org.ledger().release(&mut self.reserved);
        }
    }
}
