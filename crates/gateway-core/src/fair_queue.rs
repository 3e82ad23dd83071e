//! A queue that is fair between keys: keys with waiting items take turns, so that an item waits for at most one turn of
//! every other key per item of its own key before it, however much the others have queued.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

#[derive(Debug)]
pub struct FairQueue<K, T> {
    waiting: HashMap<K, VecDeque<T>>,
    /// The keys with waiting items. The first one is served next.
    turns: VecDeque<K>,
    len: usize,
    max_per_key: usize,
    max_len: usize,
}

impl<K: Copy + Eq + Hash, T> FairQueue<K, T> {
    pub fn new(max_per_key: usize, max_len: usize) -> Self {
        Self { waiting: HashMap::new(), turns: VecDeque::new(), len: 0, max_per_key, max_len }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn len_of(&self, key: K) -> usize {
        self.waiting.get(&key).map_or(0, VecDeque::len)
    }

    /// Adds an item behind those of its key. Returns it if the key or the whole queue is full.
    pub fn push(&mut self, key: K, item: T) -> Result<(), T> {
        if self.len >= self.max_len || self.len_of(key) >= self.max_per_key {
            return Err(item);
        }
        let of_key = self.waiting.entry(key).or_default();
        if of_key.is_empty() {
            self.turns.push_back(key);
        }
        of_key.push_back(item);
        self.len += 1;
        Ok(())
    }

    /// Removes the oldest item of the key whose turn it is, among the keys that may be served.
    pub fn pop(&mut self, may_be_served: impl Fn(K) -> bool) -> Option<(K, T)> {
        let turn = self.turns.iter().position(|key| may_be_served(*key))?;
        let key = self.turns.remove(turn)?;
        let of_key = self.waiting.get_mut(&key)?;
        let item = of_key.pop_front()?;
        self.len -= 1;
        if of_key.is_empty() {
            self.waiting.remove(&key);
        } else {
            self.turns.push_back(key);
        }
        Some((key, item))
    }

    /// Makes room for an item of a key: removes the newest item of the key with the most items, if that one has at least
    /// two more than this key.
    pub fn displace_for(&mut self, key: K) -> Option<(K, T)> {
        let (longest, most) =
            self.waiting.iter().map(|(key, items)| (*key, items.len())).max_by_key(|(_, len)| *len)?;
        if most < self.len_of(key) + 2 {
            return None;
        }
        let item = self.waiting.get_mut(&longest)?.pop_back()?;
        self.len -= 1;
        Some((longest, item))
    }

    /// Removes the items that nobody needs any more.
    pub fn retain(&mut self, is_needed: impl Fn(&T) -> bool) {
        self.waiting.retain(|_, items| {
            items.retain(&is_needed);
            !items.is_empty()
        });
        self.turns.retain(|key| self.waiting.contains_key(key));
        self.len = self.waiting.values().map(VecDeque::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(queue: &mut FairQueue<u8, u32>) -> Vec<(u8, u32)> {
        std::iter::from_fn(|| queue.pop(|_| true)).collect()
    }

    #[test]
    fn keys_take_turns_and_each_is_served_in_order() {
        let mut queue = FairQueue::new(10, 100);
        for item in 0..4 {
            queue.push(1, item).unwrap();
        }
        queue.push(2, 10).unwrap();
        queue.push(2, 11).unwrap();
        queue.push(3, 20).unwrap();
        assert_eq!(all(&mut queue), [(1, 0), (2, 10), (3, 20), (1, 1), (2, 11), (1, 2), (1, 3)]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_key_at_its_limit_is_passed_over_and_keeps_its_turn() {
        let mut queue = FairQueue::new(10, 100);
        for (key, item) in [(1, 0), (2, 10), (2, 11), (3, 20)] {
            queue.push(key, item).unwrap();
        }
        assert_eq!(queue.pop(|key| key != 1), Some((2, 10)));
        assert_eq!(queue.pop(|_| true), Some((1, 0)));
        assert_eq!(queue.pop(|key| key == 1), None);
        assert_eq!(all(&mut queue), [(3, 20), (2, 11)]);
    }

    #[test]
    fn the_queue_and_the_part_of_each_key_are_bounded() {
        let mut queue = FairQueue::new(2, 3);
        assert!(queue.push(1, 0).is_ok() && queue.push(1, 1).is_ok());
        assert_eq!(queue.push(1, 2), Err(2));
        assert!(queue.push(2, 3).is_ok());
        assert_eq!(queue.push(3, 4), Err(4));
        queue.retain(|item| *item != 0 && *item != 3);
        assert_eq!((queue.len(), queue.len_of(1), queue.len_of(2)), (1, 1, 0));
        assert!(queue.push(3, 4).is_ok());
        assert_eq!(all(&mut queue), [(1, 1), (3, 4)]);
    }

    #[test]
    fn a_key_with_few_items_displaces_the_newest_of_the_one_with_most() {
        let mut queue = FairQueue::new(10, 4);
        for (key, item) in [(1, 0), (1, 1), (1, 2), (2, 10)] {
            queue.push(key, item).unwrap();
        }
        assert_eq!(queue.push(3, 20), Err(20));
        assert_eq!(queue.displace_for(3), Some((1, 2)));
        queue.push(3, 20).unwrap();
        assert_eq!(queue.displace_for(3), None, "nobody has two more");
        assert_eq!(queue.displace_for(1), None);
        assert_eq!(all(&mut queue), [(1, 0), (2, 10), (3, 20), (1, 1)]);
    }

    proptest! {
        /// Compared with a list of the waiting items: each served item is the oldest of its key, and between two items
        /// of a key no other key is served twice more than it was waiting for.
        #[test]
        fn nobody_is_overtaken_twice(steps in proptest::collection::vec((0_u8..5, any::<bool>()), 0..300)) {
            let mut queue = FairQueue::new(1_000, 1_000);
            let mut waiting: Vec<(u8, u32)> = Vec::new();
            // How often each key was served since the front item of another key began to wait at the front.
            let mut served_since: HashMap<u8, HashMap<u8, usize>> = HashMap::new();
            for (number, (key, is_push)) in steps.into_iter().enumerate() {
                let number = u32::try_from(number).unwrap();
                if is_push {
                    queue.push(key, number).unwrap();
                    if waiting.iter().all(|(other, _)| *other != key) {
                        served_since.insert(key, HashMap::new());
                    }
                    waiting.push((key, number));
                } else if let Some((key, item)) = queue.pop(|_| true) {
                    let oldest = waiting.iter().position(|(other, _)| *other == key).unwrap();
                    prop_assert_eq!(waiting.remove(oldest), (key, item));
                    for (other, counts) in &mut served_since {
                        if *other != key {
                            let count = counts.entry(key).or_default();
                            *count += 1;
                            prop_assert!(*count <= 1, "{} was served twice before {}", key, other);
                        }
                    }
                    served_since.remove(&key);
                    if waiting.iter().any(|(other, _)| *other == key) {
                        served_since.insert(key, HashMap::new());
                    }
                } else {
                    prop_assert!(waiting.is_empty());
                }
                prop_assert_eq!(queue.len(), waiting.len());
            }
        }
    }
}
