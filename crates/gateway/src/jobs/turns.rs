//! The order in which the deliveries of several organizations start: they take turns, and each round begins behind the
//! organization that was served last.

use std::collections::BTreeMap;

use gateway_core::fair_queue::FairQueue;
use gateway_core::ids::OrgId;

/// What waits for a slot. It is replaced at each poll, so it holds what the store says is due.
pub struct Turns<T> {
    waiting: FairQueue<OrgId, T>,
    served_last: Option<OrgId>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { waiting: FairQueue::new(usize::MAX, usize::MAX), served_last: None }
    }
}

impl<T> Turns<T> {
    /// Replaces what waits by what is due now.
    pub fn replace(&mut self, due: Vec<(OrgId, T)>) {
        let mut by_org: BTreeMap<OrgId, Vec<T>> = BTreeMap::new();
        for (org, item) in due {
            by_org.entry(org).or_default().push(item);
        }
        let (mut waiting, mut before) = (FairQueue::new(usize::MAX, usize::MAX), Vec::new());
        for (org, items) in by_org {
            if self.served_last.is_some_and(|last| org <= last) {
                before.push((org, items));
            } else {
                push_all(&mut waiting, org, items);
            }
        }
        for (org, items) in before {
            push_all(&mut waiting, org, items);
        }
        self.waiting = waiting;
    }

    /// Adds one more item behind the others of its organization.
    pub fn push(&mut self, org: OrgId, item: T) {
        push_all(&mut self.waiting, org, vec![item]);
    }

    /// The next item of the organization whose turn it is.
    pub fn next(&mut self) -> Option<(OrgId, T)> {
        let next = self.waiting.pop(|_| true)?;
        self.served_last = Some(next.0);
        Some(next)
    }
}

fn push_all<T>(queue: &mut FairQueue<OrgId, T>, org: OrgId, items: Vec<T>) {
    for item in items {
        // The queue has no bound of its own: the store limits what an organization can have.
        let _ = queue.push(org, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn org(number: u128) -> OrgId {
        OrgId(uuid::Uuid::from_u128(number))
    }

    #[test]
    fn a_round_goes_on_behind_the_organization_that_was_served_last() {
        let mut turns = Turns::default();
        let due = || vec![(org(1), 'a'), (org(1), 'b'), (org(2), 'c'), (org(3), 'd'), (org(3), 'e')];
        turns.replace(due());
        assert_eq!([turns.next(), turns.next()], [Some((org(1), 'a')), Some((org(2), 'c'))]);
        turns.replace(due());
        let all: Vec<char> = std::iter::from_fn(|| turns.next()).map(|(_, item)| item).collect();
        assert_eq!(all, ['d', 'a', 'c', 'e', 'b']);
        turns.push(org(2), 'f');
        assert_eq!(turns.next(), Some((org(2), 'f')));
        assert_eq!(turns.next(), None);
    }
}
