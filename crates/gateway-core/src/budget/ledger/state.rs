//! The state of one budget in a ledger.

use super::rows::Row;
use super::{BudgetExceeded, BudgetReading, PendingAlert};
use crate::budget::{AlertKind, Amount, Budget};
use crate::logs::log_id_time;
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct BudgetState {
    pub(super) budget: Budget,
    pub(super) starts_at: Timestamp,
    pub(super) ends_at: Timestamp,
    /// The spending of this period according to the last read.
    pub(super) stored: Amount,
    /// The cost of rows in this period that the last read does not contain.
    pub(super) unread: Amount,
    /// The part of `unread` that the store has not confirmed.
    pub(super) unstored: Amount,
    pub(super) reserved: Amount,
    /// How much may be outstanding on this node.
    pub(super) leased: Amount,
    /// The store's record of the lease is current.
    pub(super) is_lease_recorded: bool,
    pub(super) notified: Vec<AlertKind>,
}

impl BudgetState {
    pub(super) fn from_reading(read: BudgetReading, previous: Option<&Self>, now: Timestamp) -> Self {
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

    pub(super) fn spent(&self) -> Amount {
        self.stored.saturating_add(self.unread)
    }

    pub(super) fn exceeded(&self) -> BudgetExceeded {
        let is_reserved = self.budget.allows(self.spent(), 0);
        BudgetExceeded {
            budget: self.budget.clone(),
            resets_at: self.ends_at,
            is_reserved,
            is_unpriced: false,
        }
    }

    /// A row belongs to the period in which its call began, as it does in the log.
    pub(super) fn counts(&self, id: i64, row: &Row) -> bool {
        (self.starts_at..self.ends_at).contains(&log_id_time(id)) && self.budget.covers(&row.spender)
    }

    pub(super) fn pending_alerts(&self) -> impl Iterator<Item = PendingAlert> {
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
