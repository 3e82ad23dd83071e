//! One organization's budgets in memory: what is stored as spent, what was settled since, what is held for calls under
//! way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gateway_core::budget::{Budget, Kind, Spender};
use gateway_core::ids::{BudgetId, OrgId};
use gateway_core::logs::{LogRow, log_id_time};
use gateway_core::time::Timestamp;
use gateway_core::totals::cost_units;
use gateway_store::budgets::Notice;
use gateway_store::logs::DaySpend;
use tokio::sync::Notify;

/// Rows that are remembered one by one; more of them are only added up.
const MOST_RECENT: usize = 100_000;

pub struct OrgBudgets {
    org: OrgId,
    state: Mutex<State>,
    bell: Arc<Notify>,
}

struct State {
    lines: Vec<Line>,
    /// Rows that were settled since the spending was read, by id.
    recent: HashMap<i64, Recent>,
    /// How many of them are in the store by now.
    stored: usize,
    read_at: Timestamp,
    used_at: Timestamp,
}

struct Line {
    budget: Budget,
    starts_at: Timestamp,
    ends_at: Timestamp,
    /// As it was read.
    stored: i64,
    /// Of the rows settled since, those of this period that count here.
    recent: i64,
    reserved: i64,
    told: Vec<Kind>,
}

struct Recent {
    spender: Spender,
    cost: i64,
    is_stored: bool,
}

/// What was read from the store.
pub struct Read {
    pub budgets: Vec<Budget>,
    /// What all spent together, and what those spent whom budgets tell apart.
    pub whole: Vec<DaySpend>,
    pub parts: Vec<DaySpend>,
    /// With the name of the period.
    pub told: Vec<(Notice, String)>,
}

/// A limit that was reached, and nobody was told.
pub struct Due {
    pub budget: Budget,
    pub starts_at: Timestamp,
    pub kind: Kind,
    pub limit: i64,
    pub spent: i64,
}

/// The budget that has no money left, and until when.
pub struct Refused {
    pub budget: Budget,
    pub resets_at: Timestamp,
    /// Money is left, but calls under way may need it.
    pub is_held: bool,
}

/// What a call may cost, held until it has ended. Given back when it is dropped.
pub struct Reservation {
    org: Arc<OrgBudgets>,
    spender: Spender,
    amount: i64,
    /// The budgets that it counts against, with the period.
    lines: Vec<(BudgetId, Timestamp)>,
}

impl OrgBudgets {
    pub fn new(org: OrgId, bell: Arc<Notify>) -> Self {
        let never = Timestamp(i64::MIN / 2);
        let state =
            State { lines: Vec::new(), recent: HashMap::new(), stored: 0, read_at: never, used_at: never };
        Self { org, state: Mutex::new(state), bell }
    }

    pub fn id(&self) -> OrgId {
        self.org
    }

    pub fn is_empty(&self) -> bool {
        self.lock().lines.is_empty()
    }

    /// Holds the amount in every budget that covers the spender, or in none. None when no budget does.
    pub fn reserve(
        self: &Arc<Self>,
        spender: Spender,
        amount: i64,
        now: Timestamp,
    ) -> Result<Option<Reservation>, Box<Refused>> {
        let mut state = self.lock();
        state.used_at = now;
        state.roll(now);
        let covering = || state.lines.iter().filter(|line| line.budget.covers(&spender));
        if let Some(line) = covering().find(|line| !line.budget.allows(line.spent(), line.reserved)) {
            let is_held = line.budget.allows(line.spent(), 0);
            let refused = Refused { budget: line.budget.clone(), resets_at: line.ends_at, is_held };
            return Err(Box::new(refused));
        }
        let mut lines = Vec::new();
        for line in state.lines.iter_mut().filter(|line| line.budget.covers(&spender)) {
            line.reserved = line.reserved.saturating_add(amount);
            lines.push((line.budget.id, line.starts_at));
        }
        drop(state);
        let held = Reservation { org: Arc::clone(self), spender, amount, lines };
        // One that is dropped here has nothing to give back.
        Ok((!held.lines.is_empty()).then_some(held))
    }

    /// A row is in the store.
    pub fn stored(&self, row: &LogRow, is_fresh: bool, now: Timestamp) {
        let cost = row.cost_usd.map_or(0, cost_units);
        let mut state = self.lock();
        state.roll(now);
        if let Some(recent) = state.recent.get_mut(&row.id) {
            let was_stored = std::mem::replace(&mut recent.is_stored, true);
            state.stored += usize::from(!was_stored);
            return;
        }
        let spender = Spender { key: row.key_id, app: row.app_id, team: row.team_id };
        // A row that was there before is in what was read.
        if is_fresh && cost > 0 {
            state.add(row.id, Recent { spender, cost, is_stored: true });
            self.ring(&state);
        }
    }

    /// The store was read while no row was being written. Calls under way keep what is held for them.
    pub fn replace(&self, read: Read, now: Timestamp) {
        let Read { budgets, whole, parts, told } = read;
        let mut state = self.lock();
        state.roll(now);
        state.recent.retain(|_, recent| !recent.is_stored);
        (state.stored, state.read_at) = (0, now);
        let before: HashMap<BudgetId, (Timestamp, i64)> =
            state.lines.iter().map(|line| (line.budget.id, (line.starts_at, line.reserved))).collect();
        let made = budgets.into_iter().map(|budget| {
            let starts_at = budget.period.start_of(now);
            let spending =
                if matches!(budget.scope, gateway_core::budget::Scope::Org(_)) { &whole } else { &parts };
            let counts = |spend: &&DaySpend| spend.day >= starts_at && budget.covers(&spend.spender);
            let stored =
                spending.iter().filter(counts).fold(0_i64, |sum, spend| sum.saturating_add(spend.cost));
            let is_own = |(notice, period): &&(Notice, String)| {
                notice.budget == budget.id
                    && notice.starts_at == starts_at
                    && period == budget.period.as_str()
            };
            let told = told.iter().filter(is_own).map(|(notice, _)| notice.kind).collect();
            let reserved =
                before.get(&budget.id).filter(|(since, _)| *since == starts_at).map_or(0, |line| line.1);
            Line { starts_at, ends_at: budget.period.end_of(now), stored, recent: 0, reserved, told, budget }
        });
        state.lines = made.collect();
        state.count_recent();
        self.ring(&state);
    }

    /// The limits that were reached and not told of.
    pub fn due(&self, now: Timestamp) -> Vec<Due> {
        let mut state = self.lock();
        state.roll(now);
        state.lines.iter().flat_map(Line::due).collect()
    }

    pub fn told(&self, told: &[Due]) {
        let mut state = self.lock();
        for line in &mut state.lines {
            let own =
                told.iter().filter(|due| due.budget.id == line.budget.id && due.starts_at == line.starts_at);
            line.told.extend(own.map(|due| due.kind));
        }
    }

    /// What was spent in the current period, and when it ends.
    pub fn spent(&self, id: BudgetId, now: Timestamp) -> Option<(Budget, i64)> {
        let mut state = self.lock();
        state.roll(now);
        let line = state.lines.iter().find(|line| line.budget.id == id)?;
        Some((line.budget.clone(), line.spent()))
    }

    /// How long ago the store was read and a call was made, and how many settled rows are stored by now.
    pub fn ages(&self, now: Timestamp) -> (i64, i64, usize) {
        let state = self.lock();
        let since = |then: Timestamp| now.0.saturating_sub(then.0);
        (since(state.read_at), since(state.used_at), state.stored)
    }

    fn ring(&self, state: &State) {
        if state.lines.iter().any(|line| line.due().next().is_some()) {
            self.bell.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A new period begins with nothing spent in it and nothing held: calls of the period before count there.
    fn roll(&mut self, now: Timestamp) {
        let mut rolled = false;
        for line in &mut self.lines {
            let starts_at = line.budget.period.start_of(now);
            if starts_at != line.starts_at {
                (line.starts_at, line.ends_at) = (starts_at, line.budget.period.end_of(now));
                (line.stored, line.reserved) = (0, 0);
                line.told.clear();
                rolled = true;
            }
        }
        if rolled {
            self.count_recent();
        }
    }

    fn add(&mut self, id: i64, row: Recent) {
        let is_full = self.recent.len() >= MOST_RECENT;
        for line in self.lines.iter_mut().filter(|line| line.counts(id, &row)) {
            let sum = if is_full { &mut line.stored } else { &mut line.recent };
            *sum = sum.saturating_add(row.cost);
        }
        if !is_full {
            self.stored += usize::from(row.is_stored);
            self.recent.insert(id, row);
        }
    }

    fn count_recent(&mut self) {
        for line in &mut self.lines {
            let counted = self.recent.iter().filter(|(id, row)| line.counts(**id, row));
            line.recent = counted.fold(0, |sum: i64, (_, row)| sum.saturating_add(row.cost));
        }
    }
}

impl Line {
    fn spent(&self) -> i64 {
        self.stored.saturating_add(self.recent)
    }

    /// A row belongs to the period in which its call began, as it does in the log.
    fn counts(&self, id: i64, row: &Recent) -> bool {
        (self.starts_at..self.ends_at).contains(&log_id_time(id)) && self.budget.covers(&row.spender)
    }

    fn due(&self) -> impl Iterator<Item = Due> {
        let spent = self.spent();
        self.budget.reached(spent).filter(|(kind, _)| !self.told.contains(kind)).map(move |(kind, limit)| {
            Due { budget: self.budget.clone(), starts_at: self.starts_at, kind, limit, spent }
        })
    }
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

#[cfg(test)]
mod tests;
