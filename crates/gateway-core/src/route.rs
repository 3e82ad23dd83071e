//! Where a request may go and in which order: the chain of `X-Gateway-Fallback`, the choice of `X-Gateway-Route`, the
//! pauses between attempts, and the spread over weights. Chance comes in as an argument.

use std::cmp::Ordering;
use std::time::Duration;

use rust_decimal::Decimal;

pub const MAX_STEPS: usize = 10;
pub const MAX_RETRIES: u32 = 5;
const MAX_WEIGHT: u32 = 1_000;

/// The first pause before trying the same target again; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// `provider[/model][;w=3]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub provider: String,
    pub model: Option<String>,
    pub weight: Option<u32>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadChain {
    #[error("must name up to {MAX_STEPS} targets as provider or provider/model, separated by commas")]
    Form,
    #[error("'{0}' is not provider, provider/model or provider/model;w=1 to {MAX_WEIGHT}")]
    Step(String),
}

/// In which order the targets of a chain are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Route {
    /// As they were named.
    #[default]
    Order,
    Cheapest,
    Fastest,
    Weighted,
}

impl Route {
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

/// What is known of a target when the order is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    /// None: not known.
    pub price: Option<Decimal>,
    /// Milliseconds until its answers begin, of late. None: not measured.
    pub latency: Option<f64>,
    pub weight: u32,
}

pub fn parse_chain(text: &str) -> Result<Vec<Step>, BadChain> {
    let steps: Vec<Step> = text.split(',').map(|step| parse_step(step.trim())).collect::<Result<_, _>>()?;
    if (1..=MAX_STEPS).contains(&steps.len()) { Ok(steps) } else { Err(BadChain::Form) }
}

pub fn parse_step(text: &str) -> Result<Step, BadChain> {
    let wrong = || BadChain::Step(text.chars().take(100).collect());
    let (name, weight) = match text.split_once(';') {
        None => (text, None),
        Some((name, weight)) => {
            let weight = weight.trim().strip_prefix("w=").and_then(|weight| weight.parse().ok());
            let weight = weight.filter(|weight| (1..=MAX_WEIGHT).contains(weight)).ok_or_else(wrong)?;
            (name.trim_end(), Some(weight))
        }
    };
    let (provider, model) = match name.split_once('/') {
        None => (name, None),
        Some((provider, model)) => (provider, Some(model.to_owned())),
    };
    let odd = |text: &str| text.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control());
    if odd(provider) || model.as_deref().is_some_and(odd) {
        return Err(wrong());
    }
    Ok(Step { provider: provider.to_owned(), model, weight })
}

/// The places of the targets in the order in which they are to be tried. What is not known of a target counts for
/// it where trying will tell (speed), and against it where it will not (price). `seed` is the same for the requests
/// of one session, so that they stay together.
pub fn order(route: Route, facts: &[Facts], seed: u64) -> Vec<usize> {
    let mut places: Vec<usize> = (0..facts.len()).collect();
    match route {
        Route::Order => {}
        Route::Cheapest => places.sort_by(|&a, &b| match (facts[a].price, facts[b].price) {
            (Some(a), Some(b)) => a.cmp(&b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        }),
        Route::Fastest => places.sort_by(|&a, &b| match (facts[a].latency, facts[b].latency) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        }),
        Route::Weighted => {
            let scores = scores(facts.iter().map(|facts| facts.weight), seed);
            places.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        }
    }
    places
}

/// One of several by weight; the same seed chooses the same as long as it is there, and only those that had chosen
/// a missing one choose anew.
pub fn pick(candidates: impl Iterator<Item = (u64, u32)>, seed: u64) -> Option<usize> {
    candidates
        .enumerate()
        .map(|(place, (name, weight))| (place, score(mix(seed ^ mix(name)), weight)))
        .min_by(|(_, a), (_, b)| a.partial_cmp(b).unwrap_or(Ordering::Equal))
        .map(|(place, _)| place)
}

/// The pause before attempt `again` (from 1) at the same target. `chance` is from 0 to 1.
pub fn pause(again: u32, chance: f64) -> Duration {
    let full = FIRST_PAUSE.saturating_mul(1 << again.saturating_sub(1).min(10)).min(LONGEST_PAUSE);
    full.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
}

fn scores(weights: impl Iterator<Item = u32>, seed: u64) -> Vec<f64> {
    weights.zip(1..).map(|(weight, place)| score(mix(seed ^ mix(place)), weight)).collect()
}

/// Smaller is better; the smallest of several is each one's with a chance in proportion to its weight.
fn score(hash: u64, weight: u32) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let unit = ((hash >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
    -unit.ln() / f64::from(weight.max(1))
}

/// Spreads the bits of a number (the finalizer of SplitMix64).
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(provider: &str, model: Option<&str>, weight: Option<u32>) -> Step {
        Step { provider: provider.to_owned(), model: model.map(ToOwned::to_owned), weight }
    }

    #[test]
    fn chains_are_read_in_every_form() {
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
        assert!(parse_chain(&["a"; MAX_STEPS].join(",")).is_ok());
        assert_eq!(parse_chain(&["a"; MAX_STEPS + 1].join(",")), Err(BadChain::Form));
    }

    #[test]
    fn what_is_cheaper_comes_first_and_what_has_no_price_last() {
        let facts = [None, Some(3), Some(1), None, Some(2)]
            .map(|price| Facts { price: price.map(Decimal::from), ..Facts::default() });
        assert_eq!(order(Route::Cheapest, &facts, 0), [2, 4, 1, 0, 3]);
        assert_eq!(order(Route::Order, &facts, 0), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn what_is_faster_comes_first_but_what_was_never_measured_before_it() {
        let facts = [Some(80.0), None, Some(20.0)].map(|latency| Facts { latency, ..Facts::default() });
        assert_eq!(order(Route::Fastest, &facts, 0), [1, 2, 0]);
    }

    #[test]
    fn weights_are_kept_in_proportion_and_a_seed_chooses_the_same_again() {
        let facts = [1, 3].map(|weight| Facts { weight, ..Facts::default() });
        let heavy = (0..10_000).filter(|&seed| order(Route::Weighted, &facts, seed)[0] == 1).count();
        assert!((7_300..7_700).contains(&heavy), "{heavy} of 10000 went to the one of weight 3");
        assert_eq!(order(Route::Weighted, &facts, 7), order(Route::Weighted, &facts, 7));
        let all = [(11, 1), (22, 3)];
        let heavy = (0..10_000).filter(|&seed| pick(all.into_iter(), seed) == Some(1)).count();
        assert!((7_300..7_700).contains(&heavy), "{heavy} of 10000");
    }

    #[test]
    fn who_had_not_chosen_the_missing_one_stays_where_it_was() {
        let all = [(11, 1), (22, 1), (33, 1)];
        for seed in 0..1_000 {
            let before = all[pick(all.into_iter(), seed).unwrap()].0;
            let left: Vec<_> = all.into_iter().filter(|(name, _)| *name != 22).collect();
            let after = left[pick(left.iter().copied(), seed).unwrap()].0;
            assert!(before == 22 || before == after);
        }
        assert_eq!(pick(std::iter::empty(), 1), None);
    }

    #[test]
    fn pauses_double_within_bounds() {
        let ms = |again, chance| pause(again, chance).as_millis();
        assert_eq!([ms(1, 0.0), ms(1, 1.0), ms(2, 1.0), ms(5, 1.0)], [100, 200, 400, 3_200]);
        assert_eq!(ms(u32::MAX, 1.0), 8_000);
    }
}
