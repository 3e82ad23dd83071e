//! What is held for a call, until it is settled or given back.

use std::sync::Arc;

use gateway_core::budget::Spender;
use gateway_core::ids::BudgetId;
use gateway_core::time::Timestamp;

use super::{OrgBudgets, Recent, State};

/// What a call may cost, held until it has ended. Given back when it is dropped.
pub struct Reservation {
    pub(super) org: Arc<OrgBudgets>,
    pub(super) spender: Spender,
    pub(super) amount: i64,
    /// The budgets that it counts against, with the period.
    pub(super) lines: Vec<(BudgetId, Timestamp)>,
}

impl Reservation {
    /// The call has ended as this row, at this cost.
    pub fn settle(&mut self, id: i64, cost: i64, now: Timestamp) {
        let mut state = self.org.lock();
        state.roll(now);
        release(&mut state, self.amount, &self.lines);
        self.amount = 0;
        if cost > 0 {
            state.add(id, Recent { spender: self.spender, cost, is_stored: false });
            self.org.ring(&state);
        }
        if self.org.is_shared {
            state.lease_what_is_needed();
        }
    }

    /// The least that any of the budgets has left until its hard limit.
    pub fn remaining(&self) -> Option<i64> {
        let state = self.org.lock();
        let covering = state.lines.iter().filter(|line| line.budget.covers(&self.spender));
        covering.filter_map(|line| line.budget.remaining(line.spent())).min()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.amount > 0 {
            release(&mut self.org.lock(), self.amount, &self.lines);
        }
    }
}

fn release(state: &mut State, amount: i64, lines: &[(BudgetId, Timestamp)]) {
    for line in &mut state.lines {
        if lines.contains(&(line.budget.id, line.starts_at)) {
            line.reserved = line.reserved.saturating_sub(amount).max(0);
        }
    }
}
