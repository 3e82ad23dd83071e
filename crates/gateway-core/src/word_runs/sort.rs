//! Sorts the postings of a part. The first bits of keys are evenly distributed, because keys are hashes: so postings are
//! distributed by these bits first, and few are left to be compared. Sorting was most of the work of making a run.

use super::{POSTING_BITS, Posting};

/// Postings of a place, on average.
const PER_PLACE: usize = 2;
const MAX_PLACE_BITS: u32 = 16;
/// Longer places are sorted by comparing in `n log n`: somebody may choose words whose keys are near each other.
const MAX_INSERTED: usize = 20;

/// Sorts the postings of one of `parts` parts: the bits that tell its keys from those of other parts are the same in all
/// of them.
pub(super) fn sort(postings: &mut Vec<Posting>, parts: usize) {
    let bits = (postings.len() / PER_PLACE).checked_ilog2().unwrap_or(0).min(MAX_PLACE_BITS);
    if bits == 0 {
        postings.sort_unstable();
        return;
    }
    let same = parts.next_power_of_two().trailing_zeros().min(u64::BITS - POSTING_BITS);
    let place_of =
        |posting: &Posting| usize::try_from((posting.0 << same) >> (u64::BITS - bits)).unwrap_or(0);
    // Where the postings of each place begin, and after the distribution where they end.
    let mut bounds = vec![0_usize; 1 << bits];
    for posting in postings.iter() {
        if let Some(count) = bounds.get_mut(place_of(posting)) {
            *count += 1;
        }
    }
    let mut sum = 0;
    for bound in &mut bounds {
        let count = std::mem::replace(bound, sum);
        sum += count;
    }
    let mut sorted = vec![Posting(0); postings.len()];
    for posting in postings.iter() {
        if let Some(next) = bounds.get_mut(place_of(posting))
            && let Some(to) = sorted.get_mut(*next)
        {
            *to = *posting;
            *next += 1;
        }
    }
    let mut start = 0;
    for end in bounds {
        if let Some(place) = sorted.get_mut(start..end) {
            sort_place(place);
        }
        start = end;
    }
    *postings = sorted;
}

fn sort_place(place: &mut [Posting]) {
    if place.len() > MAX_INSERTED {
        place.sort_unstable();
        return;
    }
    for end in 1..place.len() {
        let (posting, mut at) = (place[end], end);
        while at > 0 && place[at - 1] > posting {
            place[at] = place[at - 1];
            at -= 1;
        }
        place[at] = posting;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::word_runs::{KEY_BITS, part_of};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn postings_are_sorted_by_key_and_row(
            keys in prop::collection::vec((any::<u64>(), any::<u16>()), 0..2_000),
            near in any::<bool>(),
            parts in prop::sample::select(vec![1_usize, 16, 256]),
        ) {
            // All in one place, or anywhere in the part.
            let bits = if near { 12 } else { KEY_BITS - parts.trailing_zeros() };
            let posting = |(key, row): &(u64, u16)| Posting::new(key & ((1 << bits) - 1), *row);
            let mut postings: Vec<Posting> = keys.iter().map(posting).collect();
            prop_assert!(postings.iter().all(|posting| part_of(posting.key(), parts) == 0));
            let mut expected = postings.clone();
            expected.sort_unstable();
            sort(&mut postings, parts);
            prop_assert_eq!(postings, expected);
        }
    }
}
