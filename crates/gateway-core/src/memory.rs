//! How organizations share the memory for bodies that are held.

/// What is in use of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    pub total: u64,
    /// By all organizations.
    pub used: u64,
    /// By the organization that asks.
    pub own: u64,
}

/// One part of so many is left for organizations that hold little.
const RESERVED_PART: u64 = 4;
/// An organization with at most one part of so many holds little.
const LITTLE_PART: u64 = 64;
/// How many times what is left of the common parts an organization may hold.
const COMMON_FACTOR: u64 = 2;

impl MemoryUse {
    /// Returns true if the organization may hold this many more bytes.
    ///
    /// It may always hold a little while anything is free. More of it must fit into what is left besides the reserved
    /// part: at most twice as much as then stays there. So one organization alone has half of the budget, the second
    /// one finds room of its own, and several that all want more than they get have equal shares.
    pub fn admits(self, bytes: u64) -> bool {
        let (used, own) = (self.used.saturating_add(bytes), self.own.saturating_add(bytes));
        let Some(free) = self.total.checked_sub(used) else { return false };
        let common = free.saturating_sub(self.total / RESERVED_PART);
        own <= self.total / LITTLE_PART || own <= common.saturating_mul(COMMON_FACTOR)
    }
}

/// A value takes about this much for each byte of JSON syntax that begins it or separates it from another.
const BYTES_PER_MARK: usize = 64;

/// Estimates the memory of a JSON text that is parsed into a tree. Long strings take little more than their length,
/// many small values a multiple of it.
pub fn tree_bytes(json: &[u8]) -> usize {
    let marks = json.iter().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
    json.len().saturating_add(marks.saturating_mul(BYTES_PER_MARK))
}

/// The same for a text of which only values down to a depth are taken apart: what is deeper stays text. An object with
/// numbers has depth 1, a list of such objects makes it 2.
pub fn shallow_tree_bytes(json: &[u8], depth: usize) -> usize {
    let (mut marks, mut level, mut in_string, mut is_escaped) = (0_usize, 0_usize, false, false);
    for byte in json {
        if in_string {
            in_string = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                marks += usize::from(level < depth);
                level += 1;
            }
            b']' | b'}' => level = level.saturating_sub(1),
            b',' | b':' => marks += usize::from(level <= depth),
            _ => {}
        }
    }
    json.len().saturating_add(marks.saturating_mul(BYTES_PER_MARK))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOTAL: u64 = 6_400;
    const LITTLE: u64 = 100;

    fn usage(used: u64, own: u64) -> MemoryUse {
        MemoryUse { total: TOTAL, used, own }
    }

    /// What each organization holds when all take as much as they get, in turns.
    fn greedy(organizations: usize, step: u64) -> Vec<u64> {
        let mut held = vec![0; organizations];
        loop {
            let before = held.clone();
            for index in 0..organizations {
                if usage(held.iter().sum(), held[index]).admits(step) {
                    held[index] += step;
                }
            }
            if held == before {
                return held;
            }
        }
    }

    #[test]
    fn an_organization_alone_has_half_and_several_have_equal_shares() {
        assert_eq!(greedy(1, 1), [3_200]);
        assert_eq!(greedy(1, 2_000), [2_000]);
        for (organizations, share) in [(2, 1_920), (3, 1_371), (7, 640)] {
            let held = greedy(organizations, 1);
            assert!(held.iter().all(|held| held.abs_diff(share) <= 2), "{held:?}");
        }
    }

    #[test]
    fn the_next_organization_finds_room() {
        assert!(usage(3_200, 0).admits(1_066) && !usage(3_200, 0).admits(1_068));
        assert!(usage(3_200, 3_200).admits(0) && !usage(3_200, 3_200).admits(1));
        // Beyond the common parts there is still room for those that hold little.
        assert!(usage(4_800, 0).admits(LITTLE) && !usage(4_800, 0).admits(LITTLE + 1));
        assert!(usage(TOTAL - LITTLE, 0).admits(LITTLE) && !usage(TOTAL - LITTLE, 1).admits(LITTLE));
    }

    #[test]
    fn nothing_overflows() {
        assert!(usage(TOTAL, 0).admits(0) && !usage(TOTAL, 0).admits(1) && !usage(TOTAL, 0).admits(u64::MAX));
        assert!(!usage(TOTAL + 1, 0).admits(0));
    }

    proptest! {
        #[test]
        fn those_that_hold_much_never_have_the_reserved_part(
            requests in prop::collection::vec((0usize..8, 1u64..3_000), 0..60)
        ) {
            let mut held = [0u64; 8];
            for (organization, bytes) in requests {
                if usage(held.iter().sum(), held[organization]).admits(bytes) {
                    held[organization] += bytes;
                }
                prop_assert!(held.iter().sum::<u64>() <= TOTAL, "{held:?}");
                let much: u64 = held.iter().filter(|held| **held > LITTLE).sum();
                prop_assert!(much <= TOTAL - TOTAL / RESERVED_PART, "{held:?}");
            }
        }
    }

    #[test]
    fn values_that_stay_text_count_only_their_length() {
        let numbers = format!(r#"{{"result":{{"values":[{}1]}}}}"#, "1,".repeat(10_000));
        let length = numbers.len();
        assert!(shallow_tree_bytes(numbers.as_bytes(), 2) < length + 1_000);
        assert!(shallow_tree_bytes(numbers.as_bytes(), 3) > length + 10_000 * BYTES_PER_MARK);
        assert_eq!(shallow_tree_bytes(numbers.as_bytes(), 9), tree_bytes(numbers.as_bytes()));
        let text = br#"{"a":"[[{,:\",","b":1}"#;
        assert_eq!(shallow_tree_bytes(text, 1), text.len() + 4 * BYTES_PER_MARK);
    }

    #[test]
    fn the_estimate_covers_the_tree() {
        let flat = "x".repeat(10_000);
        assert!(tree_bytes(flat.as_bytes()) < 11_000);
        let messages = r#"{"role":"user","content":""},"#.repeat(100);
        // About 300 bytes for each of them.
        assert!(tree_bytes(messages.as_bytes()) >= 30_000);
    }
}
