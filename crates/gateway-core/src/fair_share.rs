//! How organizations share something that all of them use: memory for bodies, calls in progress, space in the log spool.
//! How much one may use depends on how much of it is free. All organizations of one account have the share of one, because
//! nothing else keeps an account from creating as many as it needs to use up everything.

/// What is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    pub total: u64,
    /// By all organizations.
    pub used: u64,
    /// By the organization that asks.
    pub own: u64,
    /// By all organizations of its owner, this one included.
    pub of_owner: u64,
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

/// An organization that uses little finds room until those of its owner use so many times the share of one: what some of
/// them use up must not keep the others from working.
const SHARES_WITH_LITTLE: u64 = 2;

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
    ///
    /// What the organizations of one owner use counts together. Only one that uses little may exceed their share, and only
    /// while the common parts have room: the reserved part is for owners that use little.
    pub fn admits(self, current: Use, amount: u64) -> bool {
        let Use { total, used, own, of_owner } = current;
        let Some(free) = total.checked_sub(used.saturating_add(amount)) else { return false };
        let (own, of_owner) = (own.saturating_add(amount), of_owner.saturating_add(amount));
        let common = free.saturating_sub(total / self.reserved_part);
        let (little, share) = (total / self.little_part, common.saturating_mul(self.common_factor));
        let limit = if own <= little { little.max(share.saturating_mul(SHARES_WITH_LITTLE)) } else { share };
        of_owner <= limit
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOTAL: u64 = 6_400;
    const LITTLE: u64 = 100;

    fn admits(used: u64, own: u64, amount: u64) -> bool {
        ShareRule::BODIES.admits(Use { total: TOTAL, used, own, of_owner: own }, amount)
    }

    /// What the organizations of each owner use.
    type Held = Vec<Vec<u64>>;

    fn use_of(held: &[Vec<u64>], owner: usize, org: usize) -> Use {
        let used = held.iter().flatten().sum();
        Use { total: TOTAL, used, own: held[owner][org], of_owner: held[owner].iter().sum() }
    }

    /// The same when all take as much as they get, in turns.
    fn greedy_by_owner(rule: ShareRule, mut held: Held, step: u64) -> Held {
        loop {
            let before = held.clone();
            for owner in 0..held.len() {
                for org in 0..held[owner].len() {
                    if rule.admits(use_of(&held, owner, org), step) {
                        held[owner][org] += step;
                    }
                }
            }
            if held == before {
                return held;
            }
        }
    }

    /// Each organization has an owner of its own.
    fn greedy(rule: ShareRule, organizations: usize, step: u64) -> Vec<u64> {
        greedy_by_owner(rule, vec![vec![0]; organizations], step).concat()
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
    fn the_organizations_of_one_owner_have_the_share_of_one() {
        for (rule, alone) in [(ShareRule::BODIES, 3_200), (ShareRule::CALLS, 4_480)] {
            for organizations in [2, 10] {
                let held = greedy_by_owner(rule, vec![vec![0; organizations]], 1).concat();
                assert_eq!(held.iter().sum::<u64>(), alone, "{held:?}");
                assert!(held.iter().max().unwrap() - held.iter().min().unwrap() <= 1, "{held:?}");
            }
        }
    }

    #[test]
    fn an_owner_of_many_organizations_leaves_room_to_others() {
        for (rule, most, left) in [(ShareRule::BODIES, 3_840, 640), (ShareRule::CALLS, 4_978, 497)] {
            // The first one takes its share, and the others a little each as long as they get it.
            let mut held = greedy_by_owner(rule, vec![vec![0]], 1);
            held[0].extend([0; 99]);
            let held = greedy_by_owner(rule, held, 1);
            let of_owner: u64 = held[0].iter().sum();
            assert!((most - 2..=most).contains(&of_owner), "{of_owner}");
            let next = greedy_by_owner(rule, vec![held.concat(), vec![0]], 1);
            assert!(next[1][0].abs_diff(left) <= 2, "{}", next[1][0]);
        }
    }

    #[test]
    fn one_organization_does_not_keep_the_others_of_its_owner_from_working() {
        let held = vec![vec![3_200, 0, 0]];
        for org in [1, 2] {
            assert!(ShareRule::BODIES.admits(use_of(&held, 0, org), LITTLE));
            assert!(!ShareRule::BODIES.admits(use_of(&held, 0, org), LITTLE + 1));
        }
        assert!(!ShareRule::BODIES.admits(use_of(&held, 0, 0), 1));
        // Beyond the common parts there is room only for owners that use little.
        let full = vec![vec![3_200, 0], vec![1_600, 0], vec![0]];
        assert!(!ShareRule::BODIES.admits(use_of(&full, 0, 1), 1));
        assert!(!ShareRule::BODIES.admits(use_of(&full, 1, 1), 1));
        assert!(ShareRule::BODIES.admits(use_of(&full, 2, 0), LITTLE));
    }

    #[test]
    fn nothing_overflows() {
        assert!(admits(TOTAL, 0, 0) && !admits(TOTAL, 0, 1) && !admits(TOTAL, 0, u64::MAX));
        assert!(!admits(TOTAL + 1, 0, 0));
    }

    proptest! {
        #[test]
        fn those_that_use_much_never_have_the_reserved_part(
            requests in prop::collection::vec((0usize..8, 0usize..3, 1u64..3_000), 0..60)
        ) {
            let mut held = vec![vec![0_u64; 3]; 8];
            for (owner, org, amount) in requests {
                if ShareRule::BODIES.admits(use_of(&held, owner, org), amount) {
                    held[owner][org] += amount;
                }
                prop_assert!(held.iter().flatten().sum::<u64>() <= TOTAL, "{held:?}");
                let of_owners = held.iter().map(|orgs| orgs.iter().sum::<u64>());
                let much: u64 = of_owners.filter(|held| *held > LITTLE).sum();
                prop_assert!(much <= TOTAL - TOTAL / 4, "{held:?}");
            }
        }
    }
}
