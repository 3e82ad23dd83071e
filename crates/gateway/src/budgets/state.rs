//! One organization's budgets in memory: what is stored as spent, what was settled since, what is held for calls under
//! way, and what of it this node has leased from the store where other nodes spend too (`lease`).

mod lease;
mod reservation;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gateway_core::budget::{Budget, Kind, Spender};
use gateway_core::ids::{BudgetId, OrgId};
use gateway_core::logs::{LogRow, LogSource, log_id_time};
use gateway_core::time::Timestamp;
use gateway_core::totals::cost_units;
use gateway_store::budgets::LimitNotice;
use gateway_store::logs::DaySpend;
use tokio::sync::Notify;

pub use reservation::Reservation;

/// Rows that are remembered one by one; more of them are only added up.
const MOST_RECENT: usize = 100_000;

pub struct OrgBudgets {
    org: OrgId,
    state: Mutex<State>,
    bell: Arc<Notify>,
    /// Other nodes spend of the same money: what is outstanding here must be leased.
    is_shared: bool,
    /// The store could not be asked for a lease when there were so many nodes. 0: it can.
    alone_among: AtomicU64,
    /// Another node needs what is leased here and not needed.
    is_recalled: AtomicBool,
}

struct State {
    lines: Vec<Line>,
    /// Rows that were settled since the spending was read, by id.
    recent: HashMap<i64, Recent>,
    /// How many of them are in the store by now.
    stored: usize,
    read_at: Timestamp,
    used_at: Timestamp,
    /// Readings of the store: how many were begun, and the last that was finished.
    begun: u64,
    read: u64,
    /// The last reading that found no money left, and of which budget.
    refused: Option<(u64, BudgetId)>,
    /// When other nodes were last asked to give back what they do not need.
    recalled_at: Timestamp,
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
    /// Of `recent`, what is not in the store yet.
    unstored: i64,
    /// How much may be outstanding here, and whether the store has been told that it is less or more by now.
    leased: i64,
    is_noted: bool,
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
    pub told: Vec<(LimitNotice, String)>,
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

/// Why nothing was held.
pub enum Denied {
    Refused(Box<Refused>),
    /// What is leased does not cover it: the store has to be asked.
    Short,
}

impl From<Box<Refused>> for Denied {
    fn from(refused: Box<Refused>) -> Self {
        Self::Refused(refused)
    }
}

impl OrgBudgets {
    pub fn new(org: OrgId, bell: Arc<Notify>, is_shared: bool) -> Self {
        let never = Timestamp(i64::MIN / 2);
        let state = State {
            lines: Vec::new(),
            recent: HashMap::new(),
            stored: 0,
            read_at: never,
            used_at: never,
            begun: 0,
            read: 0,
            refused: None,
            recalled_at: never,
        };
        Self {
            org,
            state: Mutex::new(state),
            bell,
            is_shared,
            alone_among: AtomicU64::default(),
            is_recalled: AtomicBool::default(),
        }
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
    ) -> Result<Option<Reservation>, Denied> {
        let mut state = self.lock();
        state.check(spender, now)?;
        match self.alone_among() {
            Some(nodes) => state.check_part(spender, nodes)?,
            None if self.is_shared && state.covering(spender).any(|line| !line.has_leased(amount)) => {
                return Err(Denied::Short);
            }
            None => {}
        }
        Ok(self.hold(&mut state, spender, amount))
    }

    /// The same by what is known here, as one of so many nodes.
    pub fn reserve_alone(
        self: &Arc<Self>,
        spender: Spender,
        amount: i64,
        nodes: u64,
        now: Timestamp,
    ) -> Result<Option<Reservation>, Box<Refused>> {
        let mut state = self.lock();
        state.check(spender, now)?;
        state.check_part(spender, nodes)?;
        Ok(self.hold(&mut state, spender, amount))
    }

    fn hold(self: &Arc<Self>, state: &mut State, spender: Spender, amount: i64) -> Option<Reservation> {
        let mut lines = Vec::new();
        for line in state.lines.iter_mut().filter(|line| line.budget.covers(&spender)) {
            line.reserved = line.reserved.saturating_add(amount);
            lines.push((line.budget.id, line.starts_at));
        }
        (!lines.is_empty()).then(|| Reservation { org: Arc::clone(self), spender, amount, lines })
    }

    /// A row is in the store. What others report of calls made elsewhere is no spending of ours: whoever may report could
    /// otherwise use up a budget.
    pub fn stored(&self, row: &LogRow, is_fresh: bool, now: Timestamp) {
        if row.source == LogSource::Otel {
            return;
        }
        let cost = row.cost_usd.map_or(0, cost_units);
        let mut state = self.lock();
        state.roll(now);
        if state.is_stored_now(row.id) {
            if self.is_shared {
                self.bell.notify_one();
            }
            return;
        }
        let spender = Spender { key: row.key_id, app: row.app_id, team: row.team_id };
        // A row that was there before is in what was read.
        if is_fresh && cost > 0 {
            state.add(row.id, Recent { spender, cost, is_stored: true });
            self.ring(&state);
        }
    }

    /// How many readings of the store were begun so far.
    pub fn readings(&self) -> u64 {
        self.lock().begun
    }

    pub fn begins_reading(&self) {
        self.lock().begun += 1;
    }

    /// Was the store read by somebody who began after so many readings?
    pub fn was_read_after(&self, readings: u64) -> bool {
        self.lock().read > readings
    }

    /// The store was read while no row was being written. Calls under way keep what is held for them.
    pub fn replace(&self, read: Read, now: Timestamp) {
        let Read { budgets, whole, parts, told } = read;
        let mut state = self.lock();
        state.roll(now);
        state.recent.retain(|_, recent| !recent.is_stored);
        (state.stored, state.read_at, state.read) = (0, now, state.begun);
        let mut before: HashMap<(BudgetId, Timestamp), Line> = std::mem::take(&mut state.lines)
            .into_iter()
            .map(|line| ((line.budget.id, line.starts_at), line))
            .collect();
        let made = budgets.into_iter().map(|budget| {
            let starts_at = budget.period.start_of(now);
            let spending =
                if matches!(budget.scope, gateway_core::budget::Scope::Org(_)) { &whole } else { &parts };
            let counts = |spend: &&DaySpend| spend.day >= starts_at && budget.covers(&spend.spender);
            let stored =
                spending.iter().filter(counts).fold(0_i64, |sum, spend| sum.saturating_add(spend.cost));
            let is_own = |(notice, period): &&(LimitNotice, String)| {
                notice.budget == budget.id
                    && notice.starts_at == starts_at
                    && period == budget.period.as_str()
            };
            let told = told.iter().filter(is_own).map(|(notice, _)| notice.kind).collect();
            let before = before.remove(&(budget.id, starts_at));
            let same_limit = before.as_ref().is_some_and(|line| line.budget.hard_limit == budget.hard_limit);
            Line {
                starts_at,
                ends_at: budget.period.end_of(now),
                stored,
                recent: 0,
                reserved: before.as_ref().map_or(0, |line| line.reserved),
                unstored: 0,
                // What was leased of another limit may be more than there is now.
                leased: before.as_ref().filter(|_| same_limit).map_or(0, |line| line.leased),
                is_noted: before.as_ref().is_none_or(|line| same_limit && line.is_noted),
                told,
                budget,
            }
        });
        state.lines = made.collect();
        state.count_recent();
        self.store_is_back(&mut state);
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
    fn covering(&self, spender: Spender) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.budget.covers(&spender))
    }

    /// May this one begin another call, by what is known?
    fn check(&mut self, spender: Spender, now: Timestamp) -> Result<(), Box<Refused>> {
        self.used_at = now;
        self.roll(now);
        let spent = self.covering(spender).find(|line| !line.budget.allows(line.spent(), line.reserved));
        spent.map_or(Ok(()), |line| Err(Box::new(line.refused())))
    }

    /// A new period begins with nothing spent in it and nothing held: calls of the period before count there.
    fn roll(&mut self, now: Timestamp) {
        let mut rolled = false;
        for line in &mut self.lines {
            let starts_at = line.budget.period.start_of(now);
            if starts_at != line.starts_at {
                (line.starts_at, line.ends_at) = (starts_at, line.budget.period.end_of(now));
                (line.stored, line.reserved, line.leased) = (0, 0, 0);
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
            if !row.is_stored && !is_full {
                line.unstored = line.unstored.saturating_add(row.cost);
            }
        }
        if !is_full {
            self.stored += usize::from(row.is_stored);
            self.recent.insert(id, row);
        }
    }

    fn count_recent(&mut self) {
        for line in &mut self.lines {
            let counted =
                || self.recent.iter().filter(|(id, row)| line.counts(**id, row)).map(|(_, row)| row);
            let sum = |sum: i64, row: &Recent| sum.saturating_add(row.cost);
            let (recent, unstored) =
                (counted().fold(0, sum), counted().filter(|row| !row.is_stored).fold(0, sum));
            (line.recent, line.unstored) = (recent, unstored);
        }
    }

    /// A row that was settled here is in the store by now: it is no longer outstanding. False when it was not.
    fn is_stored_now(&mut self, id: i64) -> bool {
        let Some(recent) = self.recent.get_mut(&id) else { return false };
        if std::mem::replace(&mut recent.is_stored, true) {
            return true;
        }
        self.stored += 1;
        for line in self.lines.iter_mut().filter(|line| line.counts(id, recent)) {
            line.unstored = line.unstored.saturating_sub(recent.cost);
            line.leased = line.leased.saturating_sub(recent.cost).max(0);
            line.is_noted = false;
        }
        true
    }
}

impl Line {
    fn spent(&self) -> i64 {
        self.stored.saturating_add(self.recent)
    }

    fn refused(&self) -> Refused {
        let is_held = self.budget.allows(self.spent(), 0);
        Refused { budget: self.budget.clone(), resets_at: self.ends_at, is_held }
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

#[cfg(test)]
mod tests;
