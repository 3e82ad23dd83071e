//! Where several nodes spend of the same money, a node holds only what it has leased from the store. A lease covers what is
//! outstanding here, held for calls or spent and not stored yet, and a little more, so that most calls need not ask.

use std::sync::atomic::Ordering;

use gateway_core::budget::Spender;
use gateway_core::time::{SECOND, Timestamp};
use gateway_store::cluster::budget_leases::{BudgetLease, LeasedAmounts};

use super::{Line, OrgBudgets, Refused, State};

/// One of so many parts of what is left is leased at once, divided by the number of nodes: the less there is, the less lies
/// idle in leases.
const PARTS: i64 = 4;
/// What is leased and not needed is given back when nobody has called for this long.
const IDLE_MS: i64 = 2 * SECOND;
/// How often others are asked to give back at most.
const RECALL_MS: i64 = SECOND / 2;

impl OrgBudgets {
    /// The store cannot be asked: until it can be read again, each of the nodes goes on with an equal part of what was left.
    pub fn goes_alone(&self, nodes: u64) {
        self.alone_among.store(nodes, Ordering::Relaxed);
    }

    pub(super) fn alone_among(&self) -> Option<u64> {
        Some(self.alone_among.load(Ordering::Relaxed)).filter(|nodes| *nodes > 0)
    }

    /// What the store knows of this node's leases may be lost, or of another limit: all are noted anew.
    pub(super) fn store_is_back(&self, state: &mut State) {
        if self.alone_among.swap(0, Ordering::Relaxed) > 0 {
            state.lines.iter_mut().for_each(Line::trim);
        }
        if self.is_shared {
            state.lease_what_is_needed();
        }
    }

    /// Another node needs what this one does not.
    pub fn recall(&self) {
        self.is_recalled.store(true, Ordering::Relaxed);
        self.bell.notify_one();
    }

    /// Shall the others be asked to give back what they do not need?
    pub fn may_recall(&self, now: Timestamp) -> bool {
        let mut state = self.lock();
        let may = now.0.saturating_sub(state.recalled_at.0) >= RECALL_MS;
        if may {
            state.recalled_at = now;
        }
        may
    }

    /// Was there no money left for this spender when somebody read the store after so many readings?
    pub fn refused_after(&self, readings: u64, spender: Spender) -> Option<Box<Refused>> {
        let state = self.lock();
        let (_, budget) = state.refused.filter(|(reading, _)| *reading > readings)?;
        state.covering(spender).find(|line| line.budget.id == budget).map(|line| Box::new(line.refused()))
    }

    /// The leases that this call needs, the store having just been read. What others have leased is spoken for.
    pub fn plan(
        &self,
        spender: Spender,
        amount: i64,
        others: &LeasedAmounts,
        nodes: u64,
        now: Timestamp,
    ) -> Result<Vec<BudgetLease>, Box<Refused>> {
        let mut state = self.lock();
        state.roll(now);
        let short = state.covering(spender).filter(|line| !line.has_leased(amount));
        let planned: Result<Vec<BudgetLease>, Box<Refused>> = short
            .map(|line| line.plan(amount, others, nodes).ok_or_else(|| Box::new(line.refused())))
            .collect();
        if let Err(refused) = &planned {
            state.refused = Some((state.read, refused.budget.id));
        }
        planned
    }

    /// The store has noted these.
    pub fn granted(&self, leases: &[BudgetLease]) {
        let mut state = self.lock();
        for line in &mut state.lines {
            let own =
                |lease: &&BudgetLease| lease.budget == line.budget.id && lease.starts_at == line.starts_at;
            if let Some(lease) = leases.iter().find(own) {
                line.leased = line.leased.max(lease.amount);
            }
        }
    }

    /// Has the store to be told of a lease?
    pub fn has_to_note(&self, now: Timestamp) -> bool {
        if !self.is_shared {
            return false;
        }
        let state = self.lock();
        let gives_back = self.is_recalled.load(Ordering::Relaxed) || state.is_idle(now);
        state.lines.iter().any(|line| !line.is_noted || (gives_back && line.has_idle_money()))
    }

    /// The leases that the store has to be told of, without what is not needed when that is wanted elsewhere or has not been
    /// needed for a while.
    pub fn to_note(&self, now: Timestamp) -> Vec<BudgetLease> {
        let mut state = self.lock();
        state.roll(now);
        if self.is_recalled.swap(false, Ordering::Relaxed) || state.is_idle(now) {
            state.lines.iter_mut().filter(|line| line.has_idle_money()).for_each(Line::trim);
        }
        let mut leases = Vec::new();
        for line in state.lines.iter_mut().filter(|line| !line.is_noted) {
            line.is_noted = true;
            leases.push(line.lease());
        }
        leases
    }

    /// The store could not be told of these.
    pub fn not_noted(&self, leases: &[BudgetLease]) {
        let mut state = self.lock();
        let is_one = |line: &&mut Line| leases.iter().any(|lease| lease.budget == line.budget.id);
        state.lines.iter_mut().filter(is_one).for_each(|line| line.is_noted = false);
    }
}

impl State {
    /// What is outstanding is leased in any case: a call may cost more than was held for it.
    pub(super) fn lease_what_is_needed(&mut self) {
        let is_short =
            |line: &&mut Line| line.budget.hard_limit.is_some() && line.outstanding() > line.leased;
        self.lines.iter_mut().filter(is_short).for_each(Line::trim);
    }

    /// Has this node something left of its part of what was left when the store was read?
    pub(super) fn check_part(&self, spender: Spender, nodes: u64) -> Result<(), Box<Refused>> {
        let nodes = i64::try_from(nodes).unwrap_or(i64::MAX);
        let is_spent = |line: &&Line| {
            let mine = line.recent.saturating_add(line.reserved);
            !line.budget.allows(line.stored, mine.saturating_mul(nodes))
        };
        let spent = self.covering(spender).find(is_spent);
        spent.map_or(Ok(()), |line| Err(Box::new(line.refused())))
    }

    fn is_idle(&self, now: Timestamp) -> bool {
        now.0.saturating_sub(self.used_at.0) >= IDLE_MS
    }
}

impl Line {
    /// A lease that has room for the amount. None when all the money is spoken for.
    fn plan(&self, amount: i64, others: &LeasedAmounts, nodes: u64) -> Option<BudgetLease> {
        let of_others = others.get(&(self.budget.id, self.starts_at)).copied().unwrap_or(0);
        let spoken_for = self.spent().saturating_add(self.reserved).saturating_add(of_others);
        // As everywhere: while any money is left that is not spoken for, one more call may begin.
        let left = self.budget.remaining(spoken_for).filter(|left| *left > 0)?;
        let part = left / PARTS / i64::try_from(nodes).unwrap_or(i64::MAX).max(1);
        let wanted = self.outstanding().saturating_add(amount.max(1).max(part));
        Some(BudgetLease { amount: wanted.max(self.leased), ..self.lease() })
    }

    fn outstanding(&self) -> i64 {
        self.unstored.saturating_add(self.reserved)
    }

    /// Is there room for the amount? Without a limit there always is.
    pub(super) fn has_leased(&self, amount: i64) -> bool {
        self.budget.hard_limit.is_none() || self.outstanding().saturating_add(amount.max(1)) <= self.leased
    }

    fn has_idle_money(&self) -> bool {
        self.leased > self.outstanding()
    }

    /// Leases exactly what is needed.
    fn trim(&mut self) {
        (self.leased, self.is_noted) = (self.outstanding(), false);
    }

    fn lease(&self) -> BudgetLease {
        BudgetLease { budget: self.budget.id, starts_at: self.starts_at, amount: self.leased }
    }
}
