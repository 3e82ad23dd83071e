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
//! A read takes three steps. `begin_read` returns its number. The caller then opens a snapshot of the store and sums the
//! roll-ups. Finally the caller looks up the `uncertain_rows` in the *same* snapshot and passes those that it found to
//! `reload`. A row and its share of the roll-ups are written in one transaction, so the snapshot contains both or neither.
//! No row is missed and none is counted twice, however reads and writes interleave.
//!
//! # Leases
//!
//! Where several nodes share a database, a node spends only what it has leased: `available = leased - outstanding`.
//! See the `leases` module.

mod leases;

use std::collections::{HashMap, HashSet};

use super::{AlertKind, Budget, Spender};
use crate::ids::BudgetId;
use crate::logs::log_id_time;
use crate::time::Timestamp;
pub use leases::{BudgetLease, LeasedAmounts, OtherNodes};

/// Rows that are tracked one by one. The cost of further rows is only added up until the next read.
const MAX_TRACKED_ROWS: usize = 100_000;

#[derive(Debug)]
pub struct Ledger {
    sharing: Sharing,
    /// Set while the store cannot grant leases: the number of nodes that share what was left.
    offline_nodes: Option<u64>,
    /// Another node has asked for the unused part of this node's leases.
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

#[derive(Debug)]
struct BudgetState {
    budget: Budget,
    starts_at: Timestamp,
    ends_at: Timestamp,
    /// What the last read says was spent in this period.
    stored: i64,
    /// The cost of rows in this period that the last read does not contain.
    unread: i64,
    /// The part of `unread` that the store has not confirmed.
    unstored: i64,
    reserved: i64,
    /// How much may be outstanding on this node.
    leased: i64,
    /// The store's record of the lease is current.
    is_lease_recorded: bool,
    notified: Vec<AlertKind>,
}

/// A log row as far as budgets are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpendRow {
    pub id: i64,
    pub spender: Spender,
    pub cost: i64,
}

#[derive(Debug)]
struct Row {
    spender: Spender,
    cost: i64,
    state: RowState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowState {
    Committed,
    /// A row whose call was not committed to this ledger is not counted until the store confirms it.
    Writing {
        is_counted: bool,
    },
    Stored {
        during_read: u64,
    },
    Included,
}

impl Row {
    fn is_unread(&self) -> bool {
        !matches!(self.state, RowState::Included | RowState::Writing { is_counted: false })
    }

    fn is_unstored(&self) -> bool {
        matches!(self.state, RowState::Committed | RowState::Writing { is_counted: true })
    }
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

/// A budget with what the store says about its current period.
#[derive(Debug)]
pub struct BudgetReading {
    pub budget: Budget,
    pub stored: i64,
    pub notified: Vec<AlertKind>,
}

/// The amount reserved for a call, and the budgets and periods in which it is reserved.
#[derive(Debug)]
pub struct ReservedAmount {
    pub spender: Spender,
    pub amount: i64,
    budgets: Vec<(BudgetId, Timestamp)>,
}

/// A limit that was reached and has not been reported.
#[derive(Debug)]
pub struct PendingAlert {
    pub budget: Budget,
    pub starts_at: Timestamp,
    pub kind: AlertKind,
    pub limit: i64,
    pub spent: i64,
}

/// The budget that has no money left, and the end of its period.
#[derive(Debug)]
pub struct BudgetExceeded {
    pub budget: Budget,
    pub resets_at: Timestamp,
    /// Money is left, but all of it is reserved for running calls.
    pub is_reserved: bool,
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

    /// Reserves the amount in every budget that covers the spender, or in none. Returns `None` if no budget does.
    pub fn reserve(
        &mut self,
        spender: Spender,
        amount: i64,
        now: Timestamp,
    ) -> Result<Option<ReservedAmount>, Denied> {
        if let Some(nodes) = self.offline_nodes {
            return Ok(self.reserve_offline(spender, amount, nodes, now)?);
        }
        self.check_limits(spender, now)?;
        if self.sharing == Sharing::Leased
            && self.covering(spender).any(|state| !state.is_lease_sufficient(amount))
        {
            return Err(Denied::LeaseTooSmall);
        }
        Ok(self.add_reservation(spender, amount))
    }

    /// Reserves by what this node knows, as one of several nodes that each may use an equal part of what was left.
    pub fn reserve_offline(
        &mut self,
        spender: Spender,
        amount: i64,
        nodes: u64,
        now: Timestamp,
    ) -> Result<Option<ReservedAmount>, Box<BudgetExceeded>> {
        self.check_limits(spender, now)?;
        self.check_node_share(spender, nodes)?;
        Ok(self.add_reservation(spender, amount))
    }

    /// Releases the reservation and counts the row of the call that has ended.
    pub fn commit(&mut self, reserved: &mut ReservedAmount, id: i64, cost: i64, now: Timestamp) {
        self.roll_over(now);
        self.release(reserved);
        if cost > 0 {
            self.commit_row(SpendRow { id, spender: reserved.spender, cost });
        }
        if self.sharing == Sharing::Leased {
            self.cover_outstanding();
        }
    }

    /// Releases the whole reservation. Further calls have no effect.
    pub fn release(&mut self, reserved: &mut ReservedAmount) {
        let amount = std::mem::take(&mut reserved.amount);
        for state in &mut self.budgets {
            if reserved.budgets.contains(&(state.budget.id, state.starts_at)) {
                state.reserved = state.reserved.saturating_sub(amount).max(0);
            }
        }
    }

    /// A write of the row to the store starts.
    pub fn write_started(&mut self, row: &SpendRow) {
        if row.cost <= 0 {
            return;
        }
        match self.rows.get_mut(&row.id) {
            Some(known) if known.state == RowState::Committed => {
                known.state = RowState::Writing { is_counted: true };
            }
            Some(_) => {}
            None => self.insert(row, RowState::Writing { is_counted: false }),
        }
    }

    /// The store has confirmed the row. `is_new` is false if the store contained it before this write.
    pub fn stored(&mut self, row: &SpendRow, is_new: bool, now: Timestamp) {
        self.roll_over(now);
        if row.cost <= 0 {
            return;
        }
        let confirmed = RowState::Stored { during_read: self.reads.begun };
        match self.rows.get(&row.id).map(|known| known.state) {
            Some(RowState::Committed | RowState::Writing { is_counted: true }) => {
                self.confirm(row.id);
                self.set_state(row.id, confirmed);
                self.reads.stored_rows += 1;
            }
            Some(RowState::Writing { is_counted: false }) | None if is_new => {
                self.rows.remove(&row.id);
                self.insert(row, confirmed);
            }
            // A row of an earlier run of the process is in every read. An earlier write of this run may have succeeded
            // without a confirmation, and only a new read can tell.
            Some(RowState::Writing { is_counted: false }) => {
                self.rows.remove(&row.id);
                self.reads.is_stale = true;
            }
            Some(RowState::Included) => {
                self.rows.remove(&row.id);
            }
            Some(RowState::Stored { .. }) | None => {}
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

    /// The rows that the current read may contain or not. Call this after the snapshot is opened.
    pub fn uncertain_rows(&self) -> Vec<i64> {
        let begun = self.reads.begun;
        let is_uncertain = |row: &Row| match row.state {
            RowState::Committed | RowState::Included => false,
            RowState::Writing { .. } => true,
            RowState::Stored { during_read } => during_read == begun,
        };
        self.rows.iter().filter(|(_, row)| is_uncertain(row)).map(|(id, _)| *id).collect()
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
    pub fn spent(&mut self, id: BudgetId, now: Timestamp) -> Option<(Budget, i64)> {
        self.roll_over(now);
        let state = self.budgets.iter().find(|state| state.budget.id == id)?;
        Some((state.budget.clone(), state.spent()))
    }

    /// The least that any hard limit leaves to the spender.
    pub fn remaining(&self, spender: Spender) -> Option<i64> {
        self.covering(spender).filter_map(|state| state.budget.remaining(state.spent())).min()
    }

    /// Milliseconds since the last read was applied.
    pub fn read_age(&self, now: Timestamp) -> i64 {
        now.0.saturating_sub(self.reads.applied_at.0)
    }

    /// Milliseconds since a call was last admitted or denied.
    pub fn idle_for(&self, now: Timestamp) -> i64 {
        now.0.saturating_sub(self.used_at.0)
    }

    /// Rows that a new read would remove from memory.
    pub fn stored_rows(&self) -> usize {
        self.reads.stored_rows
    }

    /// The amounts may be wrong until the next read.
    pub fn is_stale(&self) -> bool {
        self.reads.is_stale
    }

    fn covering(&self, spender: Spender) -> impl Iterator<Item = &BudgetState> {
        self.budgets.iter().filter(move |state| state.budget.covers(&spender))
    }

    fn check_limits(&mut self, spender: Spender, now: Timestamp) -> Result<(), Box<BudgetExceeded>> {
        self.used_at = now;
        self.roll_over(now);
        let exceeded =
            self.covering(spender).find(|state| !state.budget.allows(state.spent(), state.reserved));
        exceeded.map_or(Ok(()), |state| Err(Box::new(state.exceeded())))
    }

    fn add_reservation(&mut self, spender: Spender, amount: i64) -> Option<ReservedAmount> {
        let mut budgets = Vec::new();
        for state in self.budgets.iter_mut().filter(|state| state.budget.covers(&spender)) {
            state.reserved = state.reserved.saturating_add(amount);
            budgets.push((state.budget.id, state.starts_at));
        }
        (!budgets.is_empty()).then_some(ReservedAmount { spender, amount, budgets })
    }

    fn commit_row(&mut self, row: SpendRow) {
        match self.rows.get(&row.id).map(|known| known.state) {
            None => self.insert(&row, RowState::Committed),
            // The writer was faster than the call's own end.
            Some(RowState::Writing { is_counted: false }) => {
                self.rows.remove(&row.id);
                self.insert(&row, RowState::Writing { is_counted: true });
            }
            Some(_) => {}
        }
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

    fn insert(&mut self, row: &SpendRow, state: RowState) {
        let SpendRow { id, spender, cost } = *row;
        let row = Row { spender, cost, state };
        let is_full = self.rows.len() >= MAX_TRACKED_ROWS;
        for budget in self.budgets.iter_mut().filter(|budget| row.is_unread() && budget.counts(id, &row)) {
            let sum = if is_full { &mut budget.stored } else { &mut budget.unread };
            *sum = sum.saturating_add(cost);
            if row.is_unstored() && !is_full {
                budget.unstored = budget.unstored.saturating_add(cost);
            }
        }
        if !is_full {
            self.reads.stored_rows += usize::from(matches!(state, RowState::Stored { .. }));
            self.rows.insert(id, row);
        }
    }

    fn set_state(&mut self, id: i64, state: RowState) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.state = state;
        }
    }

    /// The store contains a row that was committed here: it is no longer outstanding.
    fn confirm(&mut self, id: i64) {
        let Some(row) = self.rows.get(&id) else { return };
        for state in self.budgets.iter_mut().filter(|state| state.counts(id, row)) {
            state.unstored = state.unstored.saturating_sub(row.cost);
            state.leased = state.leased.saturating_sub(row.cost).max(0);
            state.is_lease_recorded = false;
        }
    }

    /// Removes the rows that a read contains from those that are counted beside it.
    fn absorb_rows(&mut self, read: u64, included: &HashSet<i64>) {
        let mut early = Vec::new();
        self.rows.retain(|id, row| match row.state {
            RowState::Committed | RowState::Included => true,
            RowState::Writing { is_counted } => {
                if included.contains(id) {
                    early.push((*id, is_counted));
                }
                true
            }
            RowState::Stored { during_read } => during_read >= read && !included.contains(id),
        });
        for (id, is_counted) in early {
            if is_counted {
                self.confirm(id);
            }
            self.set_state(id, RowState::Included);
        }
        let is_stored = |row: &&Row| matches!(row.state, RowState::Stored { .. });
        self.reads.stored_rows = self.rows.values().filter(is_stored).count();
    }

    fn sum_rows(&mut self) {
        for state in &mut self.budgets {
            let (mut unread, mut unstored) = (0_i64, 0_i64);
            for (id, row) in self.rows.iter().filter(|(_, row)| row.is_unread()) {
                if state.counts(*id, row) {
                    unread = unread.saturating_add(row.cost);
                    unstored = unstored.saturating_add(if row.is_unstored() { row.cost } else { 0 });
                }
            }
            (state.unread, state.unstored) = (unread, unstored);
        }
    }
}

impl BudgetState {
    fn from_reading(read: BudgetReading, previous: Option<&Self>, now: Timestamp) -> Self {
        let BudgetReading { budget, stored, notified } = read;
        let has_same_limit = previous.is_some_and(|state| state.budget.hard_limit == budget.hard_limit);
        Self {
            starts_at: budget.period.start_of(now),
            ends_at: budget.period.end_of(now),
            stored,
            unread: 0,
            unstored: 0,
            reserved: previous.map_or(0, |state| state.reserved),
            // A lease under another limit may be more than the new limit allows.
            leased: previous.filter(|_| has_same_limit).map_or(0, |state| state.leased),
            is_lease_recorded: previous
                .as_ref()
                .is_none_or(|state| has_same_limit && state.is_lease_recorded),
            notified,
            budget,
        }
    }

    fn spent(&self) -> i64 {
        self.stored.saturating_add(self.unread)
    }

    fn exceeded(&self) -> BudgetExceeded {
        let is_reserved = self.budget.allows(self.spent(), 0);
        BudgetExceeded { budget: self.budget.clone(), resets_at: self.ends_at, is_reserved }
    }

    /// A row belongs to the period in which its call began, as it does in the log.
    fn counts(&self, id: i64, row: &Row) -> bool {
        (self.starts_at..self.ends_at).contains(&log_id_time(id)) && self.budget.covers(&row.spender)
    }

    fn pending_alerts(&self) -> impl Iterator<Item = PendingAlert> {
        let spent = self.spent();
        let pending = self.budget.reached(spent).filter(|(kind, _)| !self.notified.contains(kind));
        pending.map(move |(kind, limit)| PendingAlert {
            budget: self.budget.clone(),
            starts_at: self.starts_at,
            kind,
            limit,
            spent,
        })
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
