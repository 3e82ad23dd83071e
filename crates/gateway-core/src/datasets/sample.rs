//! Reproducible samples. The rank of a case is the SHA-256 of `seed:id`; the sample is the cases with the lowest ranks,
//! in order of rank. Sampling is without replacement and verifiable. A larger sample starts with the smaller one, and
//! added or removed cases do not reshuffle the others.

use std::collections::BinaryHeap;

use sha2::{Digest as _, Sha256};

use crate::ids::CaseId;

/// The largest integer that JavaScript represents exactly.
pub const MAX_SEED: u64 = (1 << 53) - 1;
pub const MAX_SAMPLE: usize = 10_000;

/// Collects the sample while all cases are offered once.
pub struct Sampler {
    seed: u64,
    size: usize,
    /// The highest rank is on top.
    kept: BinaryHeap<([u8; 32], CaseId)>,
}

impl Sampler {
    pub fn new(seed: u64, size: usize) -> Self {
        Self { seed, size, kept: BinaryHeap::new() }
    }

    pub fn offer(&mut self, id: CaseId) {
        let ranked = (rank(self.seed, id), id);
        if self.kept.len() < self.size {
            self.kept.push(ranked);
        } else if let Some(mut highest) = self.kept.peek_mut()
            && ranked < *highest
        {
            *highest = ranked;
        }
    }

    pub fn finish(self) -> Vec<CaseId> {
        self.kept.into_sorted_vec().into_iter().map(|(_, id)| id).collect()
    }
}

fn rank(seed: u64, id: CaseId) -> [u8; 32] {
    Sha256::digest(format!("{seed}:{id}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use uuid::Uuid;

    fn ids(count: u128) -> Vec<CaseId> {
        (0..count).map(|n| CaseId(Uuid::from_u128(n))).collect()
    }

    fn draw(seed: u64, size: usize, ids: &[CaseId]) -> Vec<CaseId> {
        let mut sampler = Sampler::new(seed, size);
        for id in ids {
            sampler.offer(*id);
        }
        sampler.finish()
    }

    #[test]
    fn the_same_seed_draws_the_same_cases_whatever_their_order() {
        let all = ids(500);
        let backwards: Vec<_> = all.iter().rev().copied().collect();
        let sample = draw(7, 20, &all);
        assert_eq!(sample, draw(7, 20, &backwards));
        assert_eq!(sample.iter().collect::<HashSet<_>>().len(), 20);
        assert_ne!(sample, draw(8, 20, &all));
        assert_eq!(sample[..5], draw(7, 5, &all));
    }

    #[test]
    fn more_than_there_is_draws_all() {
        assert_eq!(draw(1, 100, &ids(9)).len(), 9);
        assert!(draw(1, 100, &[]).is_empty());
        assert!(draw(1, 0, &ids(3)).is_empty());
    }

    #[test]
    fn the_rule_is_the_documented_one() {
        let all = ids(50);
        let mut by_hand = all.clone();
        by_hand.sort_by_key(|id| hex::encode(Sha256::digest(format!("42:{id}").as_bytes())));
        assert_eq!(draw(42, 10, &all), by_hand[..10]);
    }

    #[test]
    fn every_case_has_about_the_same_chance() {
        let all = ids(100);
        let mut hits = vec![0; 100];
        for seed in 0..400 {
            for id in draw(seed, 10, &all) {
                hits[usize::try_from(id.0.as_u128()).unwrap()] += 1;
            }
        }
        // 40 are expected of each; six standard deviations are 36.
        assert!(hits.iter().all(|hit| (4..=76).contains(hit)), "{hits:?}");
    }
}
