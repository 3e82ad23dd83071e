//! A queue that is fair between groups of keys, and between the keys of each group: the groups take turns, and within its
//! turn a group serves the key whose turn it is. A group with many keys is served no more often than one with a single
//! key.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use crate::fair_queue::FairQueue;

/// How many items may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    pub per_key: usize,
    pub per_group: usize,
    pub all: usize,
}

#[derive(Debug)]
pub struct FairGroups<G, K, T> {
    waiting: HashMap<G, FairQueue<K, T>>,
    /// The groups with waiting items. The first one is served next.
    turns: VecDeque<G>,
    len: usize,
    limits: QueueLimits,
}

impl<G: Copy + Eq + Hash, K: Copy + Eq + Hash, T> FairGroups<G, K, T> {
    pub fn new(limits: QueueLimits) -> Self {
        Self { waiting: HashMap::new(), turns: VecDeque::new(), len: 0, limits }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn len_of(&self, group: G, key: K) -> usize {
        self.waiting.get(&group).map_or(0, |queue| queue.len_of(key))
    }

    /// Adds an item behind those of its key. Returns it if the key, its group or the whole queue is full.
    pub fn push(&mut self, group: G, key: K, item: T) -> Result<(), T> {
        let QueueLimits { per_key, per_group, all } = self.limits;
        // Nothing is kept for a group whose first item is refused.
        if self.len >= all || per_key == 0 || per_group == 0 {
            return Err(item);
        }
        let of_group = self.waiting.entry(group).or_insert_with(|| FairQueue::new(per_key, per_group));
        let was_empty = of_group.is_empty();
        of_group.push(key, item)?;
        if was_empty {
            self.turns.push_back(group);
        }
        self.len += 1;
        Ok(())
    }

    /// Removes the oldest item of the key whose turn it is in the group whose turn it is, among the keys that may be
    /// served.
    pub fn pop(&mut self, may_be_served: impl Fn(G, K) -> bool) -> Option<(G, K, T)> {
        let waiting = &mut self.waiting;
        let (turn, group, (key, item)) = self.turns.iter().enumerate().find_map(|(turn, group)| {
            let popped = waiting.get_mut(group)?.pop(|key| may_be_served(*group, key))?;
            Some((turn, *group, popped))
        })?;
        self.len -= 1;
        self.turns.remove(turn);
        if waiting.get(&group).is_some_and(FairQueue::is_empty) {
            waiting.remove(&group);
        } else {
            self.turns.push_back(group);
        }
        Some((group, key, item))
    }

    /// Removes the items that nobody needs any more.
    pub fn retain(&mut self, is_needed: impl Fn(&T) -> bool) {
        self.waiting.retain(|_, of_group| {
            of_group.retain(&is_needed);
            !of_group.is_empty()
        });
        self.turns.retain(|group| self.waiting.contains_key(group));
        self.len = self.waiting.values().map(FairQueue::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> FairGroups<char, u8, u32> {
        FairGroups::new(QueueLimits { per_key: 3, per_group: 4, all: 6 })
    }

    fn all(queue: &mut FairGroups<char, u8, u32>) -> Vec<(char, u8, u32)> {
        std::iter::from_fn(|| queue.pop(|_, _| true)).collect()
    }

    #[test]
    fn groups_take_turns_and_so_do_the_keys_of_each() {
        let mut queue = queue();
        for (key, item) in [(1, 0), (1, 1), (2, 2), (3, 3)] {
            queue.push('a', key, item).unwrap();
        }
        queue.push('b', 9, 4).unwrap();
        queue.push('b', 9, 5).unwrap();
        let served = all(&mut queue);
        let expected = [('a', 1, 0), ('b', 9, 4), ('a', 2, 2), ('b', 9, 5), ('a', 3, 3), ('a', 1, 1)];
        assert_eq!(served, expected, "many keys give no more turns");
        assert!(queue.is_empty() && queue.waiting.is_empty() && queue.turns.is_empty());
    }

    #[test]
    fn who_may_not_be_served_is_passed_over_and_keeps_the_turn() {
        let mut queue = queue();
        for (group, key, item) in [('a', 1, 0), ('a', 2, 1), ('b', 9, 2), ('b', 9, 3)] {
            queue.push(group, key, item).unwrap();
        }
        assert_eq!(queue.pop(|group, _| group != 'a'), Some(('b', 9, 2)));
        assert_eq!(queue.pop(|_, key| key != 1), Some(('a', 2, 1)));
        assert_eq!(queue.pop(|group, key| group == 'a' && key == 2), None);
        assert_eq!(queue.len(), 2);
        assert_eq!(all(&mut queue), [('b', 9, 3), ('a', 1, 0)]);
    }

    #[test]
    fn keys_groups_and_the_queue_are_bounded() {
        let mut queue = queue();
        for item in 0..3 {
            queue.push('a', 1, item).unwrap();
        }
        assert_eq!(queue.push('a', 1, 3), Err(3), "the key is full");
        queue.push('a', 2, 4).unwrap();
        assert_eq!(queue.push('a', 3, 5), Err(5), "the group is full");
        queue.push('b', 9, 6).unwrap();
        queue.push('c', 9, 7).unwrap();
        assert_eq!(queue.push('d', 9, 8), Err(8), "the queue is full");
        assert_eq!((queue.len(), queue.len_of('a', 1), queue.len_of('d', 9)), (6, 3, 0));
        queue.retain(|item| *item % 2 == 0);
        assert_eq!((queue.len(), queue.len_of('a', 1)), (4, 2));
        assert_eq!(all(&mut queue), [('a', 1, 0), ('b', 9, 6), ('a', 2, 4), ('a', 1, 2)]);
        let mut none = FairGroups::<char, u8, u32>::new(QueueLimits { per_key: 0, per_group: 4, all: 6 });
        assert_eq!(none.push('a', 1, 0), Err(0));
        assert!(none.waiting.is_empty());
    }
}
