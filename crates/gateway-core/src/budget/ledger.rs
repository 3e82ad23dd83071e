//! The budgets of one organization on one node, as a ledger in memory: pure state transitions without clock or I/O.
//!
//! Each budget has `spent = stored + unread`: `stored` comes from the last read of the log's roll-ups, `unread` is the
//! cost of the rows that this read did not contain. A call reserves its highest possible cost before it starts. When it
//! ends, the reservation is released and its log row is committed at its real cost.
//!
//! # Rows
//!
//! Log rows are written to the store, and the roll-ups are read from it, at the same time and without mutual exclusion.
//! The ledger decides from the state of each row whether a read contains it:
//!
//! | state | meaning | contained in a read |
//! |---|---|---|
//! | `Committed` | its call has ended, the row is not in the store | no |
//! | `Writing` | a write has started and its result is not known | uncertain |
//! | `Stored` | the store has confirmed the row during read number n | in reads after n; uncertain in read n |
//! | `Included` | a read contained the row before its write was confirmed | yes |
//!
//! A read takes three steps. `begin_read` returns its number. The caller then opens a snapshot of the store and sums
//! the roll-ups. Finally the caller looks up the `uncertain_rows` in the *same* snapshot and passes those that it found
//! to `reload`. A row and its share of the roll-ups are written in one transaction, so the snapshot contains both or
//! neither. No row is missed and none is counted twice, however reads and writes interleave.
//!
//! # Leases
//!
//! Where several nodes share a database, a node spends only what it has leased: `available = leased - outstanding`.
//! See the `leases` module.

mod leases;
mod rows;
mod state;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{AlertKind, Amount, Budget, Charge, Spender, Unpriced};
use crate::ids::BudgetId;
use crate::time::Timestamp;
pub use leases::{BudgetLease, LeasedAmounts, OtherNodes};
use rows::Row;
pub use rows::SpendRow;
use state::BudgetState;

#[derive(Debug)]
pub struct Ledger {
    sharing: Sharing,
    /// Set while the store cannot grant leases: the number of nodes that share what was left.
    offline_nodes: Option<u64>,
    /// Another node has requested the unused part of this node's leases.
    is_recalled: bool,
    budgets: Vec<BudgetState>,
    rows: HashMap<i64, Row>,
    reads: Reads,
    /// When a call was last admitted or denied.
    used_at: Timestamp,
    recalled_others_at: Timestamp,
}

/// Whether other nodes spend from the same budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    SingleNode,
    Leased,
}

#[derive(Debug)]
struct Reads {
    begun: u64,
    /// The number of the last read that was applied.
    applied: u64,
    applied_at: Timestamp,
    /// Rows in state `Stored`.
    stored_rows: usize,
    /// The store contained a row that no read is known to contain.
    is_stale: bool,
    /// The last read that found no money left to lease, and the budget.
    exhausted: Option<(u64, BudgetId)>,
}

/// What a read of the store returned.
#[derive(Debug)]
pub struct Reading {
    /// As returned by `begin_read`.
    pub number: u64,
    pub budgets: Vec<BudgetReading>,
    /// The uncertain rows that the read contains.
    pub included: HashSet<i64>,
}

/// A budget with the stored state of its current period.
#[derive(Debug)]
pub struct BudgetReading {
    pub budget: Budget,
    pub stored: Amount,
    pub notified: Vec<AlertKind>,
}

/// What is reserved for a call: the budgets and their periods, each with the amount.
#[derive(Debug)]
pub struct ReservedAmount {
    pub spender: Spender,
    pub charge: Charge,
    budgets: Vec<(BudgetId, Timestamp, Amount)>,
}

impl ReservedAmount {
    pub fn is_released(&self) -> bool {
        self.budgets.is_empty()
    }
}

/// A limit that was reached and has not been reported.
#[derive(Debug)]
pub struct PendingAlert {
    pub budget: Budget,
    pub starts_at: Timestamp,
    pub kind: AlertKind,
    pub limit: Amount,
    pub spent: Amount,
}

/// The budget that has no money left, and the end of its period.
#[derive(Debug)]
pub struct BudgetExceeded {
    pub budget: Budget,
    pub resets_at: Timestamp,
    /// Money is left, but all of it is reserved for running calls.
    pub is_reserved: bool,
    /// The budget refuses calls without a price, whatever is left.
    pub is_unpriced: bool,
}

/// Why nothing was reserved.
#[derive(Debug)]
pub enum Denied {
    Exceeded(Box<BudgetExceeded>),
    /// The lease does not cover the amount. The caller must ask the store for more.
    LeaseTooSmall,
}

impl From<Box<BudgetExceeded>> for Denied {
    fn from(exceeded: Box<BudgetExceeded>) -> Self {
        Self::Exceeded(exceeded)
    }
}

impl Ledger {
    pub fn new(sharing: Sharing) -> Self {
        let never = Timestamp(i64::MIN / 2);
        let reads = Reads {
            begun: 0,
            applied: 0,
            applied_at: never,
            stored_rows: 0,
            is_stale: false,
            exhausted: None,
        };
        Self {
            sharing,
            offline_nodes: None,
            is_recalled: false,
            budgets: Vec::new(),
            rows: HashMap::new(),
            reads,
            used_at: never,
            recalled_others_at: never,
        }
    }

    /// No budget applies to the organization.
    pub fn is_empty(&self) -> bool {
        self.budgets.is_empty()
    }

    /// Reserves the charge in every budget that covers the spender, or in none. Returns `None` if no budget does.
    pub fn reserve(
        &mut self,
        spender: Spender,
        charge: Charge,
        now: Timestamp,
    ) -> Result<Option<ReservedAmount>, Denied> {
        if let Some(nodes) = self.offline_nodes {
            return Ok(self.reserve_offline(spender, charge, nodes, now)?);
        }
        self.check_limits(spender, charge, now)?;
        if self.sharing == Sharing::Leased
            && self.covering(spender).any(|state| !state.is_lease_sufficient(charge))
        {
            return Err(Denied::LeaseTooSmall);
        }
        Ok(self.add_reservation(spender, charge))
    }

    /// Reserves by what this node knows, as one of several nodes that each may use an equal part of what was left.
    pub fn reserve_offline(
        &mut self,
        spender: Spender,
        charge: Charge,
        nodes: u64,
        now: Timestamp,
    ) -> Result<Option<ReservedAmount>, Box<BudgetExceeded>> {
        self.check_limits(spender, charge, now)?;
        self.check_node_share(spender, nodes)?;
        Ok(self.add_reservation(spender, charge))
    }

    /// Releases the reservation and counts the row of the call that has ended.
    pub fn commit(&mut self, reserved: &mut ReservedAmount, id: i64, charge: Charge, now: Timestamp) {
        self.roll_over(now);
        self.release(reserved);
        if !charge.is_nothing() {
            self.commit_row(SpendRow { id, spender: reserved.spender, charge });
        }
        if self.sharing == Sharing::Leased {
            self.cover_outstanding();
        }
    }

    /// Releases the whole reservation. Further calls have no effect.
    pub fn release(&mut self, reserved: &mut ReservedAmount) {
        for (budget, starts_at, amount) in std::mem::take(&mut reserved.budgets) {
            let is_own = |state: &&mut BudgetState| (state.budget.id, state.starts_at) == (budget, starts_at);
            if let Some(state) = self.budgets.iter_mut().find(is_own) {
                state.reserved = state.reserved.saturating_sub(amount).max(0);
            }
        }
    }

    /// Starts a read of the store and returns its number. Call this before the snapshot is opened.
    pub fn begin_read(&mut self) -> u64 {
        self.reads.begun += 1;
        self.reads.begun
    }

    /// The number of reads that have begun so far.
    pub fn reads_begun(&self) -> u64 {
        self.reads.begun
    }

    /// Returns true if a read that began after the given number of reads has been applied.
    pub fn was_read_after(&self, reads: u64) -> bool {
        self.reads.applied > reads
    }

    /// Replaces budgets and stored amounts with what was read. Reservations stay.
    pub fn reload(&mut self, reading: Reading, now: Timestamp) {
        self.roll_over(now);
        self.absorb_rows(reading.number, &reading.included);
        self.reads.applied = reading.number;
        self.reads.applied_at = now;
        self.reads.is_stale = false;
        let previous: HashMap<(BudgetId, Timestamp), BudgetState> = std::mem::take(&mut self.budgets)
            .into_iter()
            .map(|state| ((state.budget.id, state.starts_at), state))
            .collect();
        let states = reading.budgets.into_iter().map(|read| {
            let key = (read.budget.id, read.budget.period.start_of(now));
            BudgetState::from_reading(read, previous.get(&key), now)
        });
        self.budgets = states.collect();
        self.sum_rows();
        self.leave_offline_mode();
    }

    /// The limits that were reached and not reported.
    pub fn pending_alerts(&mut self, now: Timestamp) -> Vec<PendingAlert> {
        self.roll_over(now);
        self.budgets.iter().flat_map(BudgetState::pending_alerts).collect()
    }

    pub fn has_pending_alerts(&self) -> bool {
        self.budgets.iter().any(|state| state.pending_alerts().next().is_some())
    }

    pub fn mark_notified(&mut self, alerts: &[PendingAlert]) {
        for state in &mut self.budgets {
            let own = alerts
                .iter()
                .filter(|alert| alert.budget.id == state.budget.id && alert.starts_at == state.starts_at);
            state.notified.extend(own.map(|alert| alert.kind));
        }
    }

    /// The budget and what was spent in its current period.
    pub fn spent(&mut self, id: BudgetId, now: Timestamp) -> Option<(Budget, Amount)> {
        self.roll_over(now);
        let state = self.budgets.iter().find(|state| state.budget.id == id)?;
        Some((state.budget.clone(), state.spent()))
    }

    /// The least that any hard limit leaves to the spender.
    pub fn remaining(&self, spender: Spender) -> Option<Amount> {
        self.covering(spender).filter_map(|state| state.budget.remaining(state.spent())).min()
    }

    /// How long ago the last read was applied.
    pub fn read_age(&self, now: Timestamp) -> Duration {
        now.since(self.reads.applied_at)
    }

    /// How long ago a call was last admitted or denied.
    pub fn idle_for(&self, now: Timestamp) -> Duration {
        now.since(self.used_at)
    }

    /// Rows that a new read would remove from memory.
    pub fn stored_rows(&self) -> usize {
        self.reads.stored_rows
    }

    /// Everything is in the store: a new ledger that reads it continues where this one ends.
    pub fn is_settled(&self) -> bool {
        let is_returned = |state: &BudgetState| {
            self.sharing == Sharing::SingleNode || (state.leased <= 0 && state.is_lease_recorded)
        };
        self.rows_are_stored() && self.budgets.iter().all(|state| state.reserved == 0 && is_returned(state))
    }

    /// The limits of a budget that were reported in its current period.
    pub fn notified(&mut self, id: BudgetId, now: Timestamp) -> Vec<AlertKind> {
        self.roll_over(now);
        let state = self.budgets.iter().find(|state| state.budget.id == id);
        state.map(|state| state.notified.clone()).unwrap_or_default()
    }

    /// The amounts may be wrong until the next read.
    pub fn is_stale(&self) -> bool {
        self.reads.is_stale
    }

    fn covering(&self, spender: Spender) -> impl Iterator<Item = &BudgetState> {
        self.budgets.iter().filter(move |state| state.budget.covers(&spender))
    }

    fn check_limits(
        &mut self,
        spender: Spender,
        charge: Charge,
        now: Timestamp,
    ) -> Result<(), Box<BudgetExceeded>> {
        self.used_at = now;
        self.roll_over(now);
        let refuses = |state: &&BudgetState| charge.is_unpriced && state.budget.unpriced == Unpriced::Refuse;
        if let Some(state) = self.covering(spender).find(refuses) {
            return Err(Box::new(BudgetExceeded { is_unpriced: true, ..state.exceeded() }));
        }
        let exceeded =
            self.covering(spender).find(|state| !state.budget.allows(state.spent(), state.reserved));
        exceeded.map_or(Ok(()), |state| Err(Box::new(state.exceeded())))
    }

    fn add_reservation(&mut self, spender: Spender, charge: Charge) -> Option<ReservedAmount> {
        let mut budgets = Vec::new();
        for state in self.budgets.iter_mut().filter(|state| state.budget.covers(&spender)) {
            let amount = state.budget.amount_of(charge);
            state.reserved = state.reserved.saturating_add(amount);
            budgets.push((state.budget.id, state.starts_at, amount));
        }
        (!budgets.is_empty()).then_some(ReservedAmount { spender, charge, budgets })
    }

    /// A new period starts with nothing spent and nothing reserved: calls of the previous period count there.
    fn roll_over(&mut self, now: Timestamp) {
        let mut has_rolled = false;
        for state in &mut self.budgets {
            let starts_at = state.budget.period.start_of(now);
            if starts_at != state.starts_at {
                (state.starts_at, state.ends_at) = (starts_at, state.budget.period.end_of(now));
                (state.stored, state.reserved, state.leased) = (0, 0, 0);
                state.notified.clear();
                has_rolled = true;
            }
        }
        if has_rolled {
            self.sum_rows();
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
