//! The buckets of a limit that are used most. A limit may have a hundred thousand, so that only the names of those are
//! copied that are kept.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashSet};

use gateway_core::limits::{Reading, Unit};

use super::{BucketUsage, used};

pub struct MostUsed {
    count: usize,
    /// The one that is used least is the greatest.
    kept: BinaryHeap<Ranked>,
}

/// In the order in which buckets are shown.
struct Ranked(BucketUsage);

/// The part that is used, in millionths and the largest first; then the name.
type Rank<'a> = (Reverse<u64>, &'a str, Unit);

fn rank(bucket: &str, unit: Unit, limit: u64, used: u64) -> Rank<'_> {
    (Reverse(used.saturating_mul(1_000_000) / limit.max(1)), bucket, unit)
}

impl Ranked {
    fn rank(&self) -> Rank<'_> {
        rank(&self.0.bucket, self.0.unit, self.0.limit, self.0.used)
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl MostUsed {
    /// Keeps no more than this.
    pub fn new(count: usize) -> Self {
        Self { count, kept: BinaryHeap::new() }
    }

    /// Keeps a bucket if it is among the most used ones. `credit`: what the node has taken of it and not used.
    pub fn offer(&mut self, bucket: &str, reading: &Reading, credit: i64) {
        let Reading { unit, limit, left, resets_in } = *reading;
        let remaining = left.saturating_add(credit);
        if self.is_among(&rank(bucket, unit, limit, used(limit, remaining))) {
            self.keep(BucketUsage::new(bucket, unit, limit, remaining, resets_in));
        }
    }

    pub fn keep(&mut self, usage: BucketUsage) {
        self.kept.push(Ranked(usage));
        if self.kept.len() > self.count {
            self.kept.pop();
        }
    }

    fn is_among(&self, rank: &Rank<'_>) -> bool {
        self.kept.len() < self.count || self.kept.peek().is_some_and(|last| *rank < last.rank())
    }

    /// The one that is used most is the first.
    pub fn into_sorted(self) -> Vec<BucketUsage> {
        let sorted = self.kept.into_sorted_vec().into_iter().map(|Ranked(usage)| usage);
        // A bucket that got another place meanwhile may have been looked at twice.
        let mut seen = HashSet::new();
        sorted.filter(|usage| seen.insert((usage.bucket.clone(), usage.unit))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn offer(most_used: &mut MostUsed, bucket: &str, unit: Unit, left: i64) {
        let limit = if unit == Unit::Tokens { 1_000 } else { 100 };
        most_used.offer(bucket, &Reading { unit, limit, left, resets_in: Duration::ZERO }, 0);
    }

    #[test]
    fn the_largest_parts_are_kept_in_order_and_once() {
        let mut most_used = MostUsed::new(4);
        for (bucket, left) in [("ann", 50), ("bob", 90), ("cat", 10), ("dan", 50), ("cat", 10), ("eve", 99)] {
            offer(&mut most_used, bucket, Unit::Requests, left);
        }
        // Ninety of a thousand are less than fifty of a hundred.
        offer(&mut most_used, "bob", Unit::Tokens, 910);
        offer(&mut most_used, "ann", Unit::Tokens, -1);
        let kept = most_used.into_sorted();
        let kept: Vec<_> = kept.iter().map(|one| (&*one.bucket, one.unit, one.used)).collect();
        let expected =
            [("ann", Unit::Tokens, 1_001), ("cat", Unit::Requests, 90), ("ann", Unit::Requests, 50)];
        assert_eq!(kept, expected, "the second reading of cat took a place");
    }

    #[test]
    fn what_a_node_has_in_advance_is_not_used() {
        let mut most_used = MostUsed::new(1);
        let reading = Reading { unit: Unit::Requests, limit: 100, left: 60, resets_in: Duration::ZERO };
        most_used.offer("ann", &reading, 15);
        assert_eq!(most_used.into_sorted()[0].used, 25);
    }
}
