//! When marks do not pay: a prompt that begins differently in every call is only written and never read.

/// The number of calls after which a setting that loses money is paused.
pub const PAUSE_AFTER_CALLS: u32 = 100;

/// How the latest two calls of a session began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeadHistory {
    latest: [Option<u64>; 2],
}

impl HeadHistory {
    /// Records how a call begins. Returns whether it can read what an earlier call has written: false if both of the
    /// latest two calls began differently, as with a time of day in the system prompt.
    pub fn observe(&mut self, head: u64) -> bool {
        let is_new = self.latest.contains(&None);
        let is_repeated = self.latest.contains(&Some(head));
        self.latest = [self.latest[1], Some(head)];
        is_new || is_repeated
    }
}

/// What marks saved or cost over a number of calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SavingLedger {
    calls: u32,
    saved: i64,
}

impl SavingLedger {
    /// Adds the saving of a call, in any unit. Returns the sum if it is negative over the last hundred calls.
    pub fn add(&mut self, saved: i64) -> Option<i64> {
        self.calls += 1;
        self.saved = self.saved.saturating_add(saved);
        if self.calls < PAUSE_AFTER_CALLS {
            return None;
        }
        let Self { saved, .. } = std::mem::take(self);
        (saved < 0).then_some(saved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_changes_with_every_call_is_noticed_at_the_third() {
        let mut history = HeadHistory::default();
        let observed: Vec<bool> = [1, 2, 3, 4, 4, 4].map(|head| history.observe(head)).into();
        assert_eq!(observed, [true, true, false, false, true, true]);
    }

    #[test]
    fn a_head_that_changes_once_is_marked_again_with_the_next_call() {
        let mut history = HeadHistory::default();
        let observed: Vec<bool> = [1, 1, 1, 2, 2, 1].map(|head| history.observe(head)).into();
        assert_eq!(observed, [true, true, true, false, true, false]);
    }

    #[test]
    fn a_hundred_calls_that_lose_money_are_reported_once() {
        let mut ledger = SavingLedger::default();
        let lost = |ledger: &mut SavingLedger, saved: i64| (0..99).any(|_| ledger.add(saved).is_some());
        assert!(!lost(&mut ledger, -2));
        assert_eq!(ledger.add(-2), Some(-200));
        assert!(!lost(&mut ledger, -1));
        assert_eq!(ledger.add(99), None);
        assert!(!lost(&mut ledger, i64::MIN));
        assert_eq!(ledger.add(0), Some(i64::MIN));
    }
}
