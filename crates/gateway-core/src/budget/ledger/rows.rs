//! The rows of a ledger: which of them a read of the store contains.

use std::collections::HashSet;

use super::Ledger;
use crate::budget::{Amount, Charge, Spender};
use crate::time::Timestamp;

/// Rows that are tracked one by one. The cost of further rows is only added up until the next read.
const MAX_TRACKED_ROWS: usize = 100_000;

/// A log row as far as budgets are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpendRow {
    pub id: i64,
    pub spender: Spender,
    pub charge: Charge,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) spender: Spender,
    charge: Charge,
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

impl Ledger {
    /// A write of the row to the store starts.
    pub fn write_started(&mut self, row: &SpendRow) {
        if row.charge.is_nothing() {
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
        if row.charge.is_nothing() {
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

    pub(super) fn commit_row(&mut self, row: SpendRow) {
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

    fn insert(&mut self, row: &SpendRow, state: RowState) {
        let SpendRow { id, spender, charge } = *row;
        let row = Row { spender, charge, state };
        let is_full = self.rows.len() >= MAX_TRACKED_ROWS;
        for budget in self.budgets.iter_mut().filter(|budget| row.is_unread() && budget.counts(id, &row)) {
            let cost = budget.budget.amount_of(charge);
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

    pub(super) fn rows_are_stored(&self) -> bool {
        self.rows.values().all(|row| matches!(row.state, RowState::Stored { .. } | RowState::Included))
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
            let cost = state.budget.amount_of(row.charge);
            state.unstored = state.unstored.saturating_sub(cost);
            state.leased = state.leased.saturating_sub(cost).max(0);
            state.is_lease_recorded = false;
        }
    }

    /// Removes the rows that a read contains from the rows that are counted in addition to it.
    pub(super) fn absorb_rows(&mut self, read: u64, included: &HashSet<i64>) {
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

    pub(super) fn sum_rows(&mut self) {
        for state in &mut self.budgets {
            let (mut unread, mut unstored): (Amount, Amount) = (0, 0);
            for (id, row) in self.rows.iter().filter(|(_, row)| row.is_unread()) {
                if state.counts(*id, row) {
                    let cost = state.budget.amount_of(row.charge);
                    unread = unread.saturating_add(cost);
                    unstored = unstored.saturating_add(if row.is_unstored() { cost } else { 0 });
                }
            }
            (state.unread, state.unstored) = (unread, unstored);
        }
    }
}
