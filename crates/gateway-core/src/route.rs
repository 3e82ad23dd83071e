//! Routing: the chain of `X-Gateway-Fallback`, the order that `X-Gateway-Route` asks for, and weighted choices.
//! Randomness is an argument.

use std::cmp::Ordering;

use rust_decimal::Decimal;

pub const MAX_STEPS: usize = 10;
pub const MAX_RETRIES: u32 = 5;
const MAX_WEIGHT: u32 = 1_000;

/// One fallback target: `provider[/model][;w=3]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FallbackStep {
    pub provider: String,
    pub model: Option<String>,
    pub weight: Option<u32>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidChain {
    #[error("must name up to {MAX_STEPS} targets as provider or provider/model, separated by commas")]
    Length,
    #[error("invalid target '{0}': must be provider, provider/model or provider/model;w=1 to {MAX_WEIGHT}")]
    Step(String),
}

/// How the targets of a route are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RouteStrategy {
    /// In the order in which the caller listed them.
    #[default]
    Order,
    Cheapest,
    Fastest,
    Weighted,
}

impl RouteStrategy {
    pub const NAMES: [&str; 4] = ["order", "cheapest", "fastest", "weighted"];

    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "order" => Some(Self::Order),
            "cheapest" => Some(Self::Cheapest),
            "fastest" => Some(Self::Fastest),
            "weighted" => Some(Self::Weighted),
            _ => None,
        }
    }
}

/// The properties of a target that decide its place in the order.
#[derive(Debug, Clone, Copy, Default)]
pub struct TargetFacts {
    /// None if unknown.
    pub price: Option<Decimal>,
    /// Recent time to the start of a response in milliseconds. None if not measured.
    pub latency: Option<f64>,
    /// The session of the request used it before. Its prompt cache is there, so a faster one does not replace it.
    pub is_pinned: bool,
    pub weight: u32,
}

/// Targets and how they are ordered. The targets of headers are one group; those of a named model may be groups within a
/// group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub strategy: RouteStrategy,
    /// In the group around it.
    pub weight: u32,
    pub members: Vec<Member>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Member {
    Target { index: usize, weight: u32 },
    Group(Group),
}

impl Group {
    /// All targets in one group.
    pub fn flat(strategy: RouteStrategy, weights: impl Iterator<Item = u32>) -> Self {
        let members = weights.enumerate().map(|(index, weight)| Member::Target { index, weight }).collect();
        Self { strategy, weight: 1, members }
    }

    /// Whether some targets are ordered by the strategy.
    pub fn uses(&self, strategy: RouteStrategy) -> bool {
        let uses = |member: &Member| matches!(member, Member::Group(group) if group.uses(strategy));
        self.strategy == strategy || self.members.iter().any(uses)
    }

    /// The place of a target in the group, and in the groups within it. None: the group does not have it.
    pub fn path_to(&self, wanted: usize) -> Option<Vec<usize>> {
        self.members.iter().enumerate().find_map(|(place, member)| match member {
            Member::Target { index, .. } => (*index == wanted).then(|| vec![place]),
            Member::Group(group) => {
                let mut path = group.path_to(wanted)?;
                path.insert(0, place);
                Some(path)
            }
        })
    }

    /// Returns the indices of the targets in the order in which they are tried. `facts` are by index; their weights are
    /// not used. Groups are ordered by their best target.
    pub fn order(&self, facts: &[TargetFacts], seed: u64) -> Vec<usize> {
        let mut indices = Vec::with_capacity(facts.len());
        self.append_to(&mut indices, facts, seed);
        indices
    }

    fn append_to(&self, indices: &mut Vec<usize>, facts: &[TargetFacts], seed: u64) {
        let of_members: Vec<TargetFacts> = self.members.iter().map(|member| member.facts(facts)).collect();
        for place in order(self.strategy, &of_members, seed) {
            match &self.members[place] {
                Member::Target { index, .. } => indices.push(*index),
                // Another seed than the group around it, so that the choices do not depend on each other.
                Member::Group(group) => group.append_to(indices, facts, splitmix64(seed)),
            }
        }
    }
}

impl Member {
    fn facts(&self, facts: &[TargetFacts]) -> TargetFacts {
        match self {
            Self::Target { index, weight } => {
                TargetFacts { weight: *weight, ..facts.get(*index).copied().unwrap_or_default() }
            }
            Self::Group(group) => {
                let all = || group.members.iter().map(|member| member.facts(facts));
                TargetFacts {
                    price: all().filter_map(|facts| facts.price).min(),
                    latency: all().filter_map(|facts| facts.latency).min_by(f64::total_cmp),
                    is_pinned: all().any(|facts| facts.is_pinned),
                    weight: group.weight,
                }
            }
        }
    }
}

pub fn parse_chain(text: &str) -> Result<Vec<FallbackStep>, InvalidChain> {
    let steps: Vec<FallbackStep> =
        text.split(',').map(|step| parse_step(step.trim())).collect::<Result<_, _>>()?;
    if (1..=MAX_STEPS).contains(&steps.len()) { Ok(steps) } else { Err(InvalidChain::Length) }
}

pub fn parse_step(text: &str) -> Result<FallbackStep, InvalidChain> {
    let invalid = || InvalidChain::Step(text.chars().take(100).collect());
    let (name, weight) = match text.split_once(';') {
        None => (text, None),
        Some((name, weight)) => {
            let weight = weight.trim().strip_prefix("w=").and_then(|weight| weight.parse().ok());
            let weight = weight.filter(|weight| (1..=MAX_WEIGHT).contains(weight)).ok_or_else(invalid)?;
            (name.trim_end(), Some(weight))
        }
    };
    let (provider, model) = match name.split_once('/') {
        None => (name, None),
        Some((provider, model)) => (provider, Some(model.to_owned())),
    };
    let is_malformed =
        |text: &str| text.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control());
    if is_malformed(provider) || model.as_deref().is_some_and(is_malformed) {
        return Err(invalid());
    }
    Ok(FallbackStep { provider: provider.to_owned(), model, weight })
}

/// Returns the indices of the targets in the order in which they are tried. A target without a measured latency comes
/// first, because trying it measures it; a target without a price comes last, and so does one of weight 0. Requests of
/// one session share a `seed`, so that a weighted order is stable within the session.
fn order(strategy: RouteStrategy, facts: &[TargetFacts], seed: u64) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..facts.len()).collect();
    match strategy {
        RouteStrategy::Order => {}
        RouteStrategy::Cheapest => indices.sort_by(|&a, &b| match (facts[a].price, facts[b].price) {
            (Some(a), Some(b)) => a.cmp(&b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        }),
        RouteStrategy::Fastest => indices.sort_by(|&a, &b| {
            let by_latency = match (facts[a].latency, facts[b].latency) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            };
            facts[b].is_pinned.cmp(&facts[a].is_pinned).then(by_latency)
        }),
        RouteStrategy::Weighted => {
            let scores = scores(facts.iter().map(|facts| facts.weight), seed);
            indices.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        }
    }
    indices
}

/// Picks one candidate `(hash, weight)` by weighted rendezvous hashing: the same seed picks the same candidate, and
/// removing a candidate only affects the seeds that had picked it.
pub fn pick_weighted(candidates: impl Iterator<Item = (u64, u32)>, seed: u64) -> Option<usize> {
    candidates
        .enumerate()
        .map(|(index, (hash, weight))| (index, score(splitmix64(seed ^ splitmix64(hash)), weight)))
        .min_by(|(_, a), (_, b)| a.partial_cmp(b).unwrap_or(Ordering::Equal))
        .map(|(index, _)| index)
}

fn scores(weights: impl Iterator<Item = u32>, seed: u64) -> Vec<f64> {
    let score_of = |(weight, place): (u32, u64)| match weight {
        0 => f64::INFINITY,
        weight => score(splitmix64(seed ^ splitmix64(place)), weight),
    };
    weights.zip(1..).map(score_of).collect()
}

/// The candidate with the smallest score wins; the probability to win is proportional to the weight.
fn score(hash: u64, weight: u32) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let unit = ((hash >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
    -unit.ln() / f64::from(weight.max(1))
}

/// The SplitMix64 finalizer: a fast hash of a number.
pub fn splitmix64(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(provider: &str, model: Option<&str>, weight: Option<u32>) -> FallbackStep {
        FallbackStep { provider: provider.to_owned(), model: model.map(ToOwned::to_owned), weight }
    }

    #[test]
    fn chains_are_parsed_in_every_form() {
        assert_eq!(
            parse_chain("openai/gpt-4o;w=3, groq ,openrouter/meta-llama/llama-3 ; w=12"),
            Ok(vec![
                step("openai", Some("gpt-4o"), Some(3)),
                step("groq", None, None),
                step("openrouter", Some("meta-llama/llama-3"), Some(12)),
            ])
        );
        for bad in ["", ",", "a,,b", "a/", "/b", "a b", "a;w=0", "a;w=x", "a;w=1001", "a;x=1", "a;"] {
            assert!(parse_chain(bad).is_err(), "{bad:?}");
        }
        for good in ["a;w=1", "a;w=1000"] {
            assert!(parse_chain(good).is_ok(), "{good}");
        }
        for bad in ["a\u{7f}", "a/b\u{7f}", "a/b c", "a /b"] {
            assert_eq!(parse_step(bad), Err(InvalidChain::Step(bad.to_owned())), "{bad:?}");
        }
        assert!(parse_chain(&["a"; MAX_STEPS].join(",")).is_ok());
        assert_eq!(parse_chain(&["a"; MAX_STEPS + 1].join(",")), Err(InvalidChain::Length));
    }

    #[test]
    fn every_strategy_has_a_name() {
        let all = RouteStrategy::NAMES.map(|name| RouteStrategy::parse(name).unwrap());
        let expected =
            [RouteStrategy::Order, RouteStrategy::Cheapest, RouteStrategy::Fastest, RouteStrategy::Weighted];
        assert_eq!(all, expected);
        assert_eq!(RouteStrategy::parse("Order"), None);
    }

    #[test]
    fn cheaper_targets_come_first_and_unpriced_ones_last() {
        let facts = [None, Some(3), Some(1), None, Some(2)]
            .map(|price| TargetFacts { price: price.map(Decimal::from), ..TargetFacts::default() });
        assert_eq!(order(RouteStrategy::Cheapest, &facts, 0), [2, 4, 1, 0, 3]);
        assert_eq!(order(RouteStrategy::Order, &facts, 0), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn faster_targets_come_first_after_unmeasured_ones() {
        let facts =
            [Some(80.0), None, Some(20.0)].map(|latency| TargetFacts { latency, ..TargetFacts::default() });
        assert_eq!(order(RouteStrategy::Fastest, &facts, 0), [1, 2, 0]);
    }

    #[test]
    fn the_target_of_a_session_comes_before_faster_and_unmeasured_ones() {
        let facts = [Some(80.0), None, Some(20.0)].map(|latency| TargetFacts {
            latency,
            is_pinned: latency == Some(80.0),
            ..TargetFacts::default()
        });
        assert_eq!(order(RouteStrategy::Fastest, &facts, 0), [0, 1, 2]);
        assert_eq!(order(RouteStrategy::Order, &facts, 0), [0, 1, 2]);
    }

    fn target(index: usize, weight: u32) -> Member {
        Member::Target { index, weight }
    }

    fn group(strategy: RouteStrategy, weight: u32, members: Vec<Member>) -> Group {
        Group { strategy, weight, members }
    }

    #[test]
    fn a_group_is_ordered_by_its_best_target_and_then_by_its_own_strategy() {
        let facts =
            [5, 3, 9, 1].map(|price| TargetFacts { price: Some(price.into()), ..TargetFacts::default() });
        let inner = group(RouteStrategy::Order, 1, vec![target(2, 1), target(3, 1)]);
        let outer = group(RouteStrategy::Cheapest, 1, vec![target(0, 1), target(1, 1), Member::Group(inner)]);
        assert_eq!(outer.order(&facts, 0), [2, 3, 1, 0]);
        assert_eq!([1, 3, 4].map(|index| outer.path_to(index)), [Some(vec![1]), Some(vec![2, 1]), None]);
        assert!(outer.uses(RouteStrategy::Order) && !outer.uses(RouteStrategy::Fastest));
        let latencies = [Some(50.0), None, Some(10.0), None]
            .map(|latency| TargetFacts { latency, ..TargetFacts::default() });
        let inner = group(RouteStrategy::Fastest, 1, vec![target(2, 1), target(3, 1)]);
        let outer = group(RouteStrategy::Fastest, 1, vec![target(0, 1), Member::Group(inner)]);
        assert_eq!(outer.order(&latencies, 0), [3, 2, 0], "the fastest of the group counts");
    }

    #[test]
    fn a_weight_of_a_group_is_its_share_and_a_weight_of_0_comes_last() {
        let inner = group(RouteStrategy::Weighted, 3, vec![target(0, 1), target(1, 1)]);
        let outer = group(RouteStrategy::Weighted, 1, vec![Member::Group(inner), target(2, 1), target(3, 0)]);
        let facts = [TargetFacts::default(); 4];
        let orders: Vec<Vec<usize>> = (0..10_000).map(|seed| outer.order(&facts, splitmix64(seed))).collect();
        let first = |index| orders.iter().filter(|order| order[0] == index).count();
        assert!((2_350..2_650).contains(&first(2)), "{}", first(2));
        assert!((3_550..3_950).contains(&first(0)) && (3_550..3_950).contains(&first(1)), "{}", first(0));
        assert!(orders.iter().all(|order| order[3] == 3));
    }

    #[test]
    fn choices_are_proportional_to_weight_and_stable_per_seed() {
        let facts = [1, 3].map(|weight| TargetFacts { weight, ..TargetFacts::default() });
        let heavy = (0..10_000).filter(|&seed| order(RouteStrategy::Weighted, &facts, seed)[0] == 1).count();
        assert!((7_300..7_700).contains(&heavy), "{heavy} of 10000 picked the target of weight 3");
        let heavy = (0..10_000)
            .filter(|&seed| order(RouteStrategy::Weighted, &facts, u64::MAX - seed)[0] == 1)
            .count();
        assert!((7_300..7_700).contains(&heavy), "{heavy} of 10000 of the largest seeds");
        assert_eq!(order(RouteStrategy::Weighted, &facts, 7), order(RouteStrategy::Weighted, &facts, 7));
        let all = [(11, 1), (22, 3)];
        let heavy = (0..10_000).filter(|&seed| pick_weighted(all.into_iter(), seed) == Some(1)).count();
        assert!((7_300..7_700).contains(&heavy), "{heavy} of 10000");
    }

    #[test]
    fn a_score_is_exponentially_distributed_with_the_weight_as_its_rate() {
        let ln_2 = std::f64::consts::LN_2;
        for (hash, weight, expected) in [
            (u64::MAX, 1, 0.0),
            ((1 << 63) - 1, 1, ln_2),
            ((1 << 63) - 1, 4, ln_2 / 4.0),
            ((1 << 62) - 1, 1, 2.0 * ln_2),
            (0, 1, 53.0 * ln_2),
            (0, 0, 53.0 * ln_2),
        ] {
            let score = score(hash, weight);
            assert!((score - expected).abs() < 1e-9, "{hash:x} {weight}: {score}");
        }
    }

    /// The first outputs of the reference implementation with the state 0, which adds the constant before each.
    #[test]
    fn the_hash_is_splitmix64() {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        assert_eq!(
            [0, STEP, STEP.wrapping_mul(2)].map(splitmix64),
            [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]
        );
    }

    #[test]
    fn removing_a_candidate_affects_only_the_seeds_that_picked_it() {
        let all = [(11, 1), (22, 1), (33, 1)];
        for seed in 0..1_000 {
            let before = all[pick_weighted(all.into_iter(), seed).unwrap()].0;
            let left: Vec<_> = all.into_iter().filter(|(name, _)| *name != 22).collect();
            let after = left[pick_weighted(left.iter().copied(), seed).unwrap()].0;
            assert!(before == 22 || before == after);
        }
        assert_eq!(pick_weighted(std::iter::empty(), 1), None);
    }
}
