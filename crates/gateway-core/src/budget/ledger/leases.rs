//! Leases: where several nodes share a database, a node reserves only money that it has leased from the store.
//!
//! A lease covers what is outstanding on the node (reserved, or spent and not stored yet) and a little more, so that
//! most calls need not ask the store. While the store is unreachable, each node continues with an equal part of what
//! was left.

use std::collections::HashMap;
use std::time::Duration;

use super::state::BudgetState;
use super::{BudgetExceeded, Ledger, Sharing};
use crate::budget::{Amount, Charge, Spender};
use crate::ids::BudgetId;
use crate::time::Timestamp;

/// A lease takes the remaining amount divided by this number and by the number of nodes. Leases therefore shrink as the
/// budget runs out.
const LEASE_PARTS: Amount = 4;
/// A lease takes at most this much in advance (1,000,000 USD), so that what a store records fits in 64 bits.
const MAX_LEASE_PART: Amount = 1_000_000_000_000_000_000;
/// Unused leases are returned when no call was made for this long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);
/// The minimum time between two recalls of other nodes' leases.
const RECALL_INTERVAL: Duration = Duration::from_millis(500);

/// What a node may have outstanding in the period of a budget that began at `starts_at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetLease {
    pub budget: BudgetId,
    pub starts_at: Timestamp,
    pub amount: Amount,
}

/// The amounts leased to nodes, by budget and start of its period.
pub type LeasedAmounts = HashMap<(BudgetId, Timestamp), Amount>;

impl Ledger {
    /// The store cannot grant leases. Until the next read, each node continues with an equal part of what was left.
    pub fn enter_offline_mode(&mut self, nodes: u64) {
        self.offline_nodes = Some(nodes).filter(|nodes| *nodes > 0);
    }

    /// The store may have lost this node's leases, or have them under another limit: all are recorded again.
    pub(super) fn leave_offline_mode(&mut self) {
        if self.offline_nodes.take().is_some() {
            self.budgets.iter_mut().for_each(BudgetState::shrink_lease);
        }
        if self.sharing == Sharing::Leased {
            self.cover_outstanding();
        }
    }

    /// Another node needs the unused part of this node's leases.
    pub fn recall(&mut self) {
        self.is_recalled = true;
    }

    /// Returns true if the other nodes may be asked now to return the unused part of their leases.
    pub fn may_recall_others(&mut self, now: Timestamp) -> bool {
        let may_recall = now.since(self.recalled_others_at) >= RECALL_INTERVAL;
        if may_recall {
            self.recalled_others_at = now;
        }
        may_recall
    }

    /// The budget of this spender that was found exhausted by a read which began after the given number of reads.
    pub fn exhausted_after(&self, reads: u64, spender: Spender) -> Option<Box<BudgetExceeded>> {
        let (_, budget) = self.reads.exhausted.filter(|(read, _)| *read > reads)?;
        let state = self.covering(spender).find(|state| state.budget.id == budget)?;
        Some(Box::new(state.exceeded()))
    }

    /// The leases that this call needs, right after a read. Money leased to others is not available.
    pub fn plan_leases(
        &mut self,
        spender: Spender,
        charge: Charge,
        others: &OtherNodes,
        now: Timestamp,
    ) -> Result<Vec<BudgetLease>, Box<BudgetExceeded>> {
        self.roll_over(now);
        let short = self.covering(spender).filter(|state| !state.is_lease_sufficient(charge));
        let planned: Result<Vec<BudgetLease>, Box<BudgetExceeded>> = short
            .map(|state| state.plan_lease(charge, others).ok_or_else(|| Box::new(state.exceeded())))
            .collect();
        if let Err(exceeded) = &planned {
            self.reads.exhausted = Some((self.reads.applied, exceeded.budget.id));
        }
        planned
    }

    /// The store has recorded these leases.
    pub fn lease_granted(&mut self, leases: &[BudgetLease]) {
        for state in &mut self.budgets {
            let is_own =
                |lease: &&BudgetLease| lease.budget == state.budget.id && lease.starts_at == state.starts_at;
            if let Some(lease) = leases.iter().find(is_own) {
                state.leased = state.leased.max(lease.amount);
            }
        }
    }

    /// Returns true if the store's record of a lease has to change.
    pub fn has_lease_changes(&self, now: Timestamp) -> bool {
        let shrinks = self.is_recalled || self.is_idle(now);
        self.sharing == Sharing::Leased
            && self
                .budgets
                .iter()
                .any(|state| !state.is_lease_recorded || (shrinks && state.has_unused_lease()))
    }

    /// The leases that the store has to record. Their unused part is left out when another node needs it or when no
    /// call was made for a while.
    pub fn take_lease_changes(&mut self, now: Timestamp) -> Vec<BudgetLease> {
        self.roll_over(now);
        if std::mem::take(&mut self.is_recalled) || self.is_idle(now) {
            let unused = self.budgets.iter_mut().filter(|state| state.has_unused_lease());
            unused.for_each(BudgetState::shrink_lease);
        }
        let mut leases = Vec::new();
        for state in self.budgets.iter_mut().filter(|state| !state.is_lease_recorded) {
            state.is_lease_recorded = true;
            leases.push(state.lease());
        }
        leases
    }

    /// The store could not record these leases.
    pub fn lease_changes_failed(&mut self, leases: &[BudgetLease]) {
        for state in &mut self.budgets {
            if leases.iter().any(|lease| lease.budget == state.budget.id) {
                state.is_lease_recorded = false;
            }
        }
    }

    /// Everything outstanding is leased, because a call may cost more than was reserved for it.
    pub(super) fn cover_outstanding(&mut self) {
        let is_short = |state: &&mut BudgetState| {
            state.budget.hard_limit.is_some() && state.outstanding() > state.leased
        };
        self.budgets.iter_mut().filter(is_short).for_each(BudgetState::shrink_lease);
    }

    /// Checks this node's equal part of what was left at the last read.
    pub(super) fn check_node_share(&self, spender: Spender, nodes: u64) -> Result<(), Box<BudgetExceeded>> {
        let nodes = Amount::from(nodes);
        let is_used_up = |state: &&BudgetState| {
            let own = state.unread.saturating_add(state.reserved);
            !state.budget.allows(state.stored, own.saturating_mul(nodes))
        };
        let exceeded = self.covering(spender).find(is_used_up);
        exceeded.map_or(Ok(()), |state| Err(Box::new(state.exceeded())))
    }

    fn is_idle(&self, now: Timestamp) -> bool {
        self.idle_for(now) >= IDLE_TIMEOUT
    }
}

/// What a lease request has to know about the cluster.
#[derive(Debug)]
pub struct OtherNodes {
    /// What the other nodes have leased.
    pub leased: LeasedAmounts,
    /// All nodes that are alive, including this one.
    pub alive: u64,
}

impl BudgetState {
    /// A lease with room for the charge. Returns `None` if no money is available.
    fn plan_lease(&self, charge: Charge, others: &OtherNodes) -> Option<BudgetLease> {
        let of_others = others.leased.get(&(self.budget.id, self.starts_at)).copied().unwrap_or(0);
        let unavailable = self.spent().saturating_add(self.reserved).saturating_add(of_others);
        // While any money is available, one more call may start.
        let left = self.budget.remaining(unavailable).filter(|left| *left > 0)?;
        let part = (left / LEASE_PARTS / Amount::from(others.alive).max(1)).min(MAX_LEASE_PART);
        let wanted = self.outstanding().saturating_add(self.budget.amount_of(charge).max(1).max(part));
        Some(BudgetLease { amount: wanted.max(self.leased), ..self.lease() })
    }

    fn outstanding(&self) -> Amount {
        self.unstored.saturating_add(self.reserved)
    }

    /// Returns true if the lease has room for the charge. A budget without a hard limit needs no lease.
    pub(super) fn is_lease_sufficient(&self, charge: Charge) -> bool {
        let amount = self.budget.amount_of(charge);
        self.budget.hard_limit.is_none() || self.outstanding().saturating_add(amount.max(1)) <= self.leased
    }

    fn has_unused_lease(&self) -> bool {
        self.leased > self.outstanding()
    }

    /// Leases exactly what is outstanding.
    fn shrink_lease(&mut self) {
        (self.leased, self.is_lease_recorded) = (self.outstanding(), false);
    }

    fn lease(&self) -> BudgetLease {
        BudgetLease { budget: self.budget.id, starts_at: self.starts_at, amount: self.leased }
    }
}
