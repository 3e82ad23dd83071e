//! A bounded map by organization and name. The entry that was used least recently leaves first, and an organization
//! with many entries loses its own before it takes the places of others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::ids::OrgId;

/// Entries that are looked at for one that may leave.
const MAX_CANDIDATES: usize = 64;

#[derive(Debug)]
pub struct OrgLru<V> {
    limits: LruLimits,
    orgs: HashMap<OrgId, OrgEntries<V>>,
    /// The organizations by their number of entries.
    by_size: BTreeSet<(usize, OrgId)>,
    len: usize,
    next_use: u64,
}

/// The maximum numbers of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LruLimits {
    pub all: usize,
    pub per_org: usize,
}

#[derive(Debug)]
struct OrgEntries<V> {
    by_name: HashMap<Arc<str>, Entry<V>>,
    by_use: BTreeMap<u64, Arc<str>>,
}

#[derive(Debug)]
struct Entry<V> {
    used: u64,
    value: V,
}

/// No entry may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl<V> OrgLru<V> {
    pub fn new(limits: LruLimits) -> Self {
        Self { limits, orgs: HashMap::new(), by_size: BTreeSet::new(), len: 0, next_use: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Looks an entry up without using it.
    pub fn peek(&self, org: OrgId, name: &str) -> Option<&V> {
        self.orgs.get(&org)?.by_name.get(name).map(|entry| &entry.value)
    }

    /// Looks an entry up and marks it as used.
    pub fn get(&mut self, org: OrgId, name: &str) -> Option<&V> {
        let entries = self.orgs.get_mut(&org)?;
        let entry = entries.by_name.get_mut(name)?;
        if let Some(name) = entries.by_use.remove(&entry.used) {
            entry.used = self.next_use;
            entries.by_use.insert(self.next_use, name);
            self.next_use += 1;
        }
        Some(&entry.value)
    }

    /// Adds an entry that is not in the map. If there is no place, one that may leave is removed.
    pub fn insert(
        &mut self,
        org: OrgId,
        name: Arc<str>,
        value: V,
        may_leave: impl Fn(&V) -> bool,
    ) -> Result<(), Full> {
        let own = self.orgs.get(&org).map_or(0, |entries| entries.by_name.len());
        if own >= self.limits.per_org {
            self.evict(org, &may_leave)?;
        } else if self.len >= self.limits.all {
            let largest = self.by_size.last().map_or(org, |(_, largest)| *largest);
            self.evict(largest, &may_leave).or_else(|_| self.evict(org, &may_leave))?;
        }
        let used = self.next_use;
        self.next_use += 1;
        let entries = self
            .orgs
            .entry(org)
            .or_insert_with(|| OrgEntries { by_name: HashMap::new(), by_use: BTreeMap::new() });
        self.by_size.remove(&(entries.by_name.len(), org));
        entries.by_use.insert(used, Arc::clone(&name));
        if let Some(replaced) = entries.by_name.insert(name, Entry { used, value }) {
            entries.by_use.remove(&replaced.used);
            self.len -= 1;
        }
        self.len += 1;
        self.by_size.insert((entries.by_name.len(), org));
        Ok(())
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.orgs.values().flat_map(|entries| entries.by_name.values().map(|entry| &entry.value))
    }

    /// Removes the other entries.
    pub fn retain(&mut self, stays: impl Fn(&V) -> bool) {
        for entries in self.orgs.values_mut() {
            let by_use = &mut entries.by_use;
            entries.by_name.retain(|_, entry| {
                let stays = stays(&entry.value);
                if !stays {
                    by_use.remove(&entry.used);
                }
                stays
            });
        }
        self.orgs.retain(|_, entries| !entries.by_name.is_empty());
        self.by_size = self.orgs.iter().map(|(org, entries)| (entries.by_name.len(), *org)).collect();
        self.len = self.by_size.iter().map(|(count, _)| count).sum();
    }

    fn evict(&mut self, org: OrgId, may_leave: impl Fn(&V) -> bool) -> Result<(), Full> {
        let entries = self.orgs.get_mut(&org).ok_or(Full)?;
        let mut oldest = entries.by_use.iter().take(MAX_CANDIDATES);
        let leaves = |name: &str| entries.by_name.get(name).is_some_and(|entry| may_leave(&entry.value));
        let (used, name) = oldest.find(|(_, name)| leaves(name)).ok_or(Full)?;
        let (used, name) = (*used, Arc::clone(name));
        self.by_size.remove(&(entries.by_name.len(), org));
        entries.by_use.remove(&used);
        entries.by_name.remove(&name);
        self.len -= 1;
        if entries.by_name.is_empty() {
            self.orgs.remove(&org);
        } else {
            self.by_size.insert((entries.by_name.len(), org));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn org(number: u128) -> OrgId {
        Uuid::from_u128(number).into()
    }

    fn lru(all: usize, per_org: usize) -> OrgLru<u32> {
        OrgLru::new(LruLimits { all, per_org })
    }

    fn add(lru: &mut OrgLru<u32>, of: u128, name: &str) -> Result<(), Full> {
        lru.insert(org(of), name.into(), 1, |_| true)
    }

    fn names(lru: &OrgLru<u32>, of: u128) -> Vec<String> {
        let entries = lru.orgs.get(&org(of));
        let mut names: Vec<String> =
            entries.iter().flat_map(|entries| entries.by_name.keys().map(ToString::to_string)).collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_used_least_recently_leaves_first() {
        let mut lru = lru(10, 3);
        for name in ["a", "b", "c"] {
            add(&mut lru, 1, name).unwrap();
        }
        assert_eq!(lru.get(org(1), "a"), Some(&1));
        // A look does not count as a use.
        assert_eq!(lru.peek(org(1), "b"), Some(&1));
        add(&mut lru, 1, "d").unwrap();
        assert_eq!((names(&lru, 1), lru.len()), (vec!["a".into(), "c".into(), "d".into()], 3));
        assert_eq!(lru.get(org(1), "b"), None);
        assert_eq!(lru.peek(org(2), "a"), None);
    }

    #[test]
    fn the_organization_with_the_most_entries_makes_room_for_others() {
        let mut lru = lru(4, 4);
        for name in ["a", "b", "c", "d"] {
            add(&mut lru, 1, name).unwrap();
        }
        add(&mut lru, 2, "a").unwrap();
        add(&mut lru, 2, "b").unwrap();
        assert_eq!(
            (names(&lru, 1), names(&lru, 2)),
            (vec!["c".into(), "d".into()], vec!["a".into(), "b".into()])
        );
        add(&mut lru, 2, "c").unwrap();
        assert_eq!(lru.len(), 4);
        assert_eq!(names(&lru, 1).len() + names(&lru, 2).len(), 4);
    }

    #[test]
    fn what_may_not_leave_stays() {
        let mut lru = lru(2, 2);
        lru.insert(org(1), "held".into(), 7, |_| true).unwrap();
        add(&mut lru, 1, "free").unwrap();
        lru.insert(org(1), "new".into(), 7, |value| *value != 7).unwrap();
        assert_eq!(names(&lru, 1), ["held", "new"]);
        assert_eq!(lru.insert(org(1), "more".into(), 7, |value| *value != 7), Err(Full));
        assert_eq!(lru.insert(org(2), "other".into(), 7, |value| *value != 7), Err(Full));
        assert_eq!((names(&lru, 1).len(), lru.len(), lru.is_empty()), (2, 2, false));
    }

    #[test]
    fn entries_are_removed_by_a_condition_and_replaced_by_name() {
        let mut lru = lru(10, 10);
        for (of, name, value) in [(1, "a", 1), (1, "b", 2), (2, "a", 3), (2, "a", 4)] {
            lru.insert(org(of), name.into(), value, |_| true).unwrap();
        }
        assert_eq!((lru.len(), lru.peek(org(2), "a")), (3, Some(&4)));
        lru.retain(|value| *value != 4);
        let mut values: Vec<u32> = lru.values().copied().collect();
        values.sort_unstable();
        assert_eq!((values, lru.len(), lru.by_size.len()), (vec![1, 2], 2, 1));
        lru.retain(|_| false);
        assert!(lru.is_empty() && lru.orgs.is_empty() && lru.by_size.is_empty());
    }
}
