//! How organizations share something that all of them use: memory for bodies, calls in progress, space in the log spool.
//! How much one may use depends on how much of it is free.

/// What is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    pub total: u64,
    /// By all organizations.
    pub used: u64,
    /// By the organization that asks.
    pub own: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareRule {
    /// One part of so many is left for organizations that use little.
    reserved_part: u64,
    /// An organization with at most one part of so many uses little.
    little_part: u64,
    /// How many times what is left of the common parts an organization may use.
    common_factor: u64,
}

impl ShareRule {
    /// Memory for bodies that are held. One organization alone has half of it, and each of two three tenths.
    pub const BODIES: Self = Self { reserved_part: 4, little_part: 64, common_factor: 2 };
    /// Calls in progress. One organization alone has seven tenths, and each of two nearly four tenths: a call takes its
    /// place for at most the timeout of calls, and most clients have a limit of their own.
    pub const CALLS: Self = Self { reserved_part: 8, little_part: 64, common_factor: 4 };

    /// Bodies of log rows that are not stored yet, while several organizations have some. The common parts are what one
    /// organization alone may fill, so the reserved part is still free when another one finds them full.
    pub const SPOOLED_BODIES: Self = Self { reserved_part: 8, little_part: 32, common_factor: 4 };

    /// Returns true if the organization may use this much more.
    ///
    /// It may always use a little while anything is free. More of it must fit into what is left besides the reserved
    /// part: at most `common_factor` times as much as then stays there. So one organization alone has most of the common
    /// parts, the second one finds room of its own, and several that all want more than they get have equal shares.
    pub fn admits(self, current: Use, amount: u64) -> bool {
        let Use { total, used, own } = current;
        let (used, own) = (used.saturating_add(amount), own.saturating_add(amount));
        let Some(free) = total.checked_sub(used) else { return false };
        let common = free.saturating_sub(total / self.reserved_part);
        own <= total / self.little_part || own <= common.saturating_mul(self.common_factor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOTAL: u64 = 6_400;
    const LITTLE: u64 = 100;

    fn admits(used: u64, own: u64, amount: u64) -> bool {
        ShareRule::BODIES.admits(Use { total: TOTAL, used, own }, amount)
    }

    /// What each organization uses when all take as much as they get, in turns.
    fn greedy(rule: ShareRule, organizations: usize, step: u64) -> Vec<u64> {
        let mut held = vec![0; organizations];
        loop {
            let before = held.clone();
            for index in 0..organizations {
                let current = Use { total: TOTAL, used: held.iter().sum(), own: held[index] };
                if rule.admits(current, step) {
                    held[index] += step;
                }
            }
            if held == before {
                return held;
            }
        }
    }

    #[test]
    fn an_organization_alone_has_most_and_several_have_equal_shares() {
        let bodies = ShareRule::BODIES;
        assert_eq!(greedy(bodies, 1, 1), [3_200]);
        assert_eq!(greedy(bodies, 1, 2_000), [2_000]);
        for (rule, organizations, share) in
            [(bodies, 2, 1_920), (bodies, 3, 1_371), (bodies, 7, 640), (ShareRule::CALLS, 2, 2_488)]
        {
            let held = greedy(rule, organizations, 1);
            assert!(held.iter().all(|held| held.abs_diff(share) <= 2), "{held:?}");
        }
        assert_eq!(greedy(ShareRule::CALLS, 1, 1), [4_480]);
    }

    #[test]
    fn the_next_organization_finds_room() {
        assert!(admits(3_200, 0, 1_066) && !admits(3_200, 0, 1_068));
        assert!(admits(3_200, 3_200, 0) && !admits(3_200, 3_200, 1));
        // Beyond the common parts there is still room for those that use little.
        assert!(admits(4_800, 0, LITTLE) && !admits(4_800, 0, LITTLE + 1));
        assert!(admits(TOTAL - LITTLE, 0, LITTLE) && !admits(TOTAL - LITTLE, 1, LITTLE));
    }

    #[test]
    fn nothing_overflows() {
        assert!(admits(TOTAL, 0, 0) && !admits(TOTAL, 0, 1) && !admits(TOTAL, 0, u64::MAX));
        assert!(!admits(TOTAL + 1, 0, 0));
    }

    proptest! {
        #[test]
        fn those_that_use_much_never_have_the_reserved_part(
            requests in prop::collection::vec((0usize..8, 1u64..3_000), 0..60)
        ) {
            let mut held = [0u64; 8];
            for (organization, amount) in requests {
                if admits(held.iter().sum(), held[organization], amount) {
                    held[organization] += amount;
                }
                prop_assert!(held.iter().sum::<u64>() <= TOTAL, "{held:?}");
                let much: u64 = held.iter().filter(|held| **held > LITTLE).sum();
                prop_assert!(much <= TOTAL - TOTAL / 4, "{held:?}");
            }
        }
    }
}
