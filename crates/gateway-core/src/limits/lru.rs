//! A bounded map whose least recently used entries leave first.

use std::collections::HashMap;
use std::hash::Hash;

const NONE: usize = usize::MAX;

pub struct Lru<K, V> {
    places: HashMap<K, usize>,
    nodes: Vec<Node<K, V>>,
    /// The most and the least recently used.
    first: usize,
    last: usize,
    capacity: usize,
}

struct Node<K, V> {
    key: K,
    value: V,
    before: usize,
    after: usize,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    pub fn new(capacity: usize) -> Self {
        Self { places: HashMap::new(), nodes: Vec::new(), first: NONE, last: NONE, capacity: capacity.max(1) }
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Holds no more than this, or than it has already.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity.max(1);
    }

    pub fn get<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let place = self.find(key)?;
        self.use_now(place);
        Some(&mut self.nodes[place].value)
    }

    /// Looks without counting it as a use.
    pub fn peek<Q>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.find(key).map(|place| &self.nodes[place].value)
    }

    /// The entry of a key, which is made if it is missing. `is_held` entries are kept if others can leave.
    pub fn entry(&mut self, key: &K, make: impl FnOnce() -> V, is_held: impl Fn(&V) -> bool) -> &mut V {
        let place = self.place(key, make, is_held);
        &mut self.nodes[place].value
    }

    /// The place of the entry, which is valid until the next one is made.
    pub fn place(&mut self, key: &K, make: impl FnOnce() -> V, is_held: impl Fn(&V) -> bool) -> usize {
        if let Some(place) = self.find(key) {
            self.use_now(place);
            return place;
        }
        let place = if self.nodes.len() < self.capacity {
            self.nodes.push(Node { key: key.clone(), value: make(), before: NONE, after: NONE });
            self.nodes.len() - 1
        } else {
            let place = self.victim(is_held);
            self.unlink(place);
            let node = &mut self.nodes[place];
            self.places.remove(&node.key);
            (node.key, node.value) = (key.clone(), make());
            place
        };
        self.places.insert(key.clone(), place);
        self.link_first(place);
        place
    }

    /// The most recently used one is found without a hash.
    fn find<Q>(&self, key: &Q) -> Option<usize>
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        match self.nodes.get(self.first) {
            Some(first) if first.key.borrow() == key => Some(self.first),
            _ => self.places.get(key).copied(),
        }
    }

    /// The entry at a place that `place` returned.
    pub fn at(&mut self, place: usize) -> &mut V {
        &mut self.nodes[place].value
    }

    /// From the most to the least recently used.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let mut place = self.first;
        std::iter::from_fn(move || {
            let node = self.nodes.get(place)?;
            place = node.after;
            Some((&node.key, &node.value))
        })
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.nodes.iter_mut().map(|node| (&node.key, &mut node.value))
    }

    /// Makes the place of the least recently used one free.
    pub fn remove_oldest(&mut self, is_held: impl Fn(&V) -> bool) {
        if self.nodes.is_empty() {
            return;
        }
        let place = self.victim(is_held);
        self.unlink(place);
        self.places.remove(&self.nodes[place].key);
        self.nodes.swap_remove(place);
        let moved = self.nodes.len();
        if place == moved {
            return;
        }
        // The last node has moved to the free place.
        let (before, after) = (self.nodes[place].before, self.nodes[place].after);
        if let Some(known) = self.places.get_mut(&self.nodes[place].key) {
            *known = place;
        }
        match self.nodes.get_mut(before) {
            Some(node) => node.after = place,
            None => self.first = place,
        }
        match self.nodes.get_mut(after) {
            Some(node) => node.before = place,
            None => self.last = place,
        }
    }

    /// The least recently used that is not held, among the last sixteen.
    fn victim(&self, is_held: impl Fn(&V) -> bool) -> usize {
        let mut place = self.last;
        for _ in 0..16 {
            match self.nodes.get(place) {
                Some(node) if is_held(&node.value) => place = node.before,
                Some(_) => return place,
                None => break,
            }
        }
        self.last
    }

    fn use_now(&mut self, place: usize) {
        if place != self.first {
            self.unlink(place);
            self.link_first(place);
        }
    }

    fn unlink(&mut self, place: usize) {
        let (before, after) = (self.nodes[place].before, self.nodes[place].after);
        match self.nodes.get_mut(before) {
            Some(node) => node.after = after,
            None => self.first = after,
        }
        match self.nodes.get_mut(after) {
            Some(node) => node.before = before,
            None => self.last = before,
        }
    }

    fn link_first(&mut self, place: usize) {
        let second = self.first;
        (self.nodes[place].before, self.nodes[place].after) = (NONE, second);
        match self.nodes.get_mut(second) {
            Some(node) => node.before = place,
            None => self.last = place,
        }
        self.first = place;
    }
}
