//! How many entries of each chain and action came in the current minute.

use std::collections::HashMap;

use gateway_core::audit::Chain;
use gateway_core::time::{MINUTE, Timestamp};

/// Entries of one organization and action in a minute.
const MAX_PER_MINUTE: u64 = 100;
/// Actions of one chain that are counted separately; the others are counted together.
const MAX_ACTIONS: usize = 64;
/// Chains that are counted at the same time. What is beyond is counted in the chain of the installation.
const MAX_CHAINS: usize = 5_000;
/// Stands for all other actions.
const OTHERS: &str = "*";

#[derive(Default)]
pub(super) struct Counts(HashMap<Chain, HashMap<String, Count>>);

struct Count {
    /// The start of the minute.
    since: Timestamp,
    entries: u64,
    /// Those for which there was no room.
    lost: u64,
}

impl Counts {
    /// Counts an entry; returns whether it may be written.
    pub fn admit(&mut self, chain: Chain, action: &str, now: Timestamp) -> bool {
        if self.0.len() >= MAX_CHAINS && !self.0.contains_key(&chain) && chain != Chain::System {
            let others = self.count(Chain::System, OTHERS, now);
            (others.entries, others.lost) = (others.entries + 1, others.lost + 1);
            return false;
        }
        let count = self.count(chain, action, now);
        count.entries += 1;
        count.entries <= MAX_PER_MINUTE
    }

    /// An admitted entry was not written.
    pub fn lose(&mut self, chain: Chain, action: &str) {
        let Some(actions) = self.0.get_mut(&chain) else { return };
        let name = if actions.contains_key(action) { action } else { OTHERS };
        if let Some(count) = actions.get_mut(name) {
            count.lost += 1;
        }
    }

    fn count(&mut self, chain: Chain, action: &str, now: Timestamp) -> &mut Count {
        let actions = self.0.entry(chain).or_default();
        let name = if actions.len() < MAX_ACTIONS || actions.contains_key(action) { action } else { OTHERS };
        actions.entry(name.to_owned()).or_insert(Count { since: now, entries: 0, lost: 0 })
    }

    /// Ends the minutes that are over; returns what was suppressed in them.
    pub fn end(&mut self, now: Timestamp) -> Vec<(Chain, String, u64)> {
        let mut suppressed = Vec::new();
        self.0.retain(|chain, actions| {
            actions.retain(|action, count| {
                let is_over = now.0.saturating_sub(count.since.0) >= MINUTE || now < count.since;
                let missing = count.missing();
                if is_over && missing > 0 {
                    suppressed.push((*chain, action.clone(), missing));
                }
                !is_over
            });
            !actions.is_empty()
        });
        suppressed
    }
}

impl Count {
    fn missing(&self) -> u64 {
        (self.entries.saturating_sub(MAX_PER_MINUTE) + self.lost).min(self.entries)
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::ids::OrgId;
    use uuid::Uuid;

    use super::*;

    const START: Timestamp = Timestamp(1_000_000);

    fn chain(number: usize) -> Chain {
        Chain::Org(OrgId(Uuid::from_u128(number as u128)))
    }

    #[test]
    fn a_hundred_entries_a_minute_pass_and_the_others_are_counted() {
        let mut counts = Counts::default();
        let passed = (0..250).filter(|_| counts.admit(Chain::System, "key.create", START)).count();
        assert_eq!(passed, 100);
        assert!(counts.admit(Chain::System, "key.update", START));
        assert!(counts.end(START.plus(MINUTE - 1)).is_empty());
        assert_eq!(counts.end(START.plus(MINUTE)), [(Chain::System, "key.create".to_owned(), 150)]);
        assert!(counts.0.is_empty());
        assert!(counts.admit(Chain::System, "key.delete", START));
        counts.lose(Chain::System, "key.delete");
        assert_eq!(counts.end(START.plus(MINUTE)), [(Chain::System, "key.delete".to_owned(), 1)]);
        assert!(counts.admit(Chain::System, "key.create", START.plus(MINUTE)));
    }

    #[test]
    fn many_actions_of_one_organization_take_nothing_from_another() {
        let mut counts = Counts::default();
        let passed = (0..1_000).filter(|n| counts.admit(chain(1), &format!("a.{n}"), START)).count();
        assert_eq!(passed, MAX_ACTIONS + 100);
        assert!(counts.admit(chain(2), "key.create", START));
        let left = 1_000 - u64::try_from(passed).unwrap();
        assert_eq!(counts.end(START.plus(MINUTE)), [(chain(1), OTHERS.to_owned(), left)]);
    }

    #[test]
    fn what_is_beyond_the_number_of_chains_is_counted_too() {
        let mut counts = Counts::default();
        let passed = (0..MAX_CHAINS + 7).filter(|n| counts.admit(chain(*n), "key.create", START)).count();
        assert_eq!(passed, MAX_CHAINS);
        assert!(counts.admit(Chain::System, "key.create", START));
        assert_eq!(counts.end(START.plus(MINUTE)), [(Chain::System, OTHERS.to_owned(), 7)]);
    }
}
