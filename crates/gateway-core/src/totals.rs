//! Usage totals of log rows. Totals of disjoint sets of rows can be added, so that hours combine into days and nodes
//! into a cluster. Costs are integers in units of 1e-12 USD, so sums are exact.
//!
//! Latencies are counted in buckets whose bounds grow by a tenth. Below 20 ms a bucket is one millisecond wide. Above,
//! a percentile is off by less than a tenth of its value. It is exact if all rows took the same time.

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive as _;
use sha2::{Digest as _, Sha256};

use crate::logs::LogRow;

/// Decimal places of the unit in which costs are stored.
pub const COST_SCALE: u32 = 12;

/// Upper limits for the values of one row, so that invalid values of a provider cannot overflow a sum.
const MAX_TOKENS: i64 = 1_000_000_000_000;
const MAX_LATENCY_MS: i64 = 1_000_000_000;
const MAX_COST_UNITS: i64 = 1_000_000_000_000_000_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub requests: i64,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
    /// In units of 1e-12 USD.
    pub cost: i64,
    /// Rows that have a cost.
    pub priced: i64,
    /// Rows with tokens of a model without a price.
    pub unpriced: i64,
    pub errors: i64,
    pub cache_hits: i64,
    /// Input that providers read from their prompt caches, and wrote to them.
    pub cached_tokens: i64,
    pub cache_write_tokens: i64,
    /// What that saved, in units of 1e-12 USD. Negative if more was written than read.
    pub cache_saved: i64,
    pub latencies: Latencies,
}

impl Totals {
    pub fn from_row(row: &LogRow) -> Self {
        let mut totals = Self::default();
        totals.add_row(row);
        totals
    }

    pub fn add_row(&mut self, row: &LogRow) {
        let tokens = row.tokens.unwrap_or_default();
        let cost = row.cost_usd.map(cost_units);
        for (sum, more) in [
            (&mut self.requests, 1),
            (&mut self.prompt_tokens, bounded_tokens(tokens.prompt)),
            (&mut self.completion_tokens, bounded_tokens(tokens.completion)),
            (&mut self.cost, cost.unwrap_or(0)),
            (&mut self.priced, i64::from(cost.is_some())),
            (&mut self.unpriced, i64::from(row.unpriced)),
            (&mut self.errors, i64::from(is_error(row))),
            (&mut self.cache_hits, i64::from(is_cache_hit(row))),
            (&mut self.cached_tokens, bounded_tokens(tokens.cached)),
            (&mut self.cache_write_tokens, bounded_tokens(tokens.cache_write)),
            (&mut self.cache_saved, row.cache_saved_usd.map_or(0, saving_units)),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.latencies.add(row.latency_ms);
    }

    pub fn add(&mut self, other: &Self) {
        let Self {
            requests,
            prompt_tokens,
            completion_tokens,
            cost,
            priced,
            unpriced,
            errors,
            cache_hits,
            cached_tokens,
            cache_write_tokens,
            cache_saved,
            latencies,
        } = other;
        for (sum, more) in [
            (&mut self.requests, requests),
            (&mut self.prompt_tokens, prompt_tokens),
            (&mut self.completion_tokens, completion_tokens),
            (&mut self.cost, cost),
            (&mut self.priced, priced),
            (&mut self.unpriced, unpriced),
            (&mut self.errors, errors),
            (&mut self.cache_hits, cache_hits),
            (&mut self.cached_tokens, cached_tokens),
            (&mut self.cache_write_tokens, cache_write_tokens),
            (&mut self.cache_saved, cache_saved),
        ] {
            *sum = sum.saturating_add(*more);
        }
        self.latencies.merge(latencies);
    }

    /// Packs the totals into a text for `add_packed`. `at` identifies the time interval:
    /// `at requests prompt completion cost priced unpriced errors hits sum min max bucket:count … ~cached written saved`.
    /// What follows the tilde has letters for digits, because versions that do not know it must not take it for buckets.
    /// It is left out if all of it is zero.
    pub fn pack(&self, at: i64) -> String {
        let Self {
            requests,
            prompt_tokens,
            completion_tokens,
            cost,
            priced,
            unpriced,
            errors,
            cache_hits,
            cached_tokens,
            cache_write_tokens,
            cache_saved,
            latencies,
        } = self;
        let Latencies { sum, min, max, counts } = latencies;
        // By hand: a batch of rows packs as many lines as it has rows, and `format!` took most of that.
        let mut text = String::with_capacity(96 + 8 * counts.len());
        push_number(&mut text, at);
        for number in [
            *requests,
            *prompt_tokens,
            *completion_tokens,
            *cost,
            *priced,
            *unpriced,
            *errors,
            *cache_hits,
            *sum,
            *min,
            *max,
        ] {
            text.push(' ');
            push_number(&mut text, number);
        }
        for (bucket, count) in counts {
            text.push(' ');
            push_number(&mut text, i64::from(*bucket));
            text.push(':');
            push_number(&mut text, *count);
        }
        let caching = [*cached_tokens, *cache_write_tokens, *cache_saved];
        if caching != [0; 3] {
            text.push_str(" ~");
            for number in caching {
                push_letters(&mut text, number);
            }
        }
        text
    }

    /// Adds packed totals. An invalid text adds nothing.
    pub fn add_packed(&mut self, text: &str) {
        let (text, caching) = text.split_once('~').unwrap_or((text, ""));
        let mut numbers = Numbers(text.as_bytes());
        let mut sums = [0; 12];
        for sum in &mut sums {
            let Some(number) = numbers.next() else { return };
            *sum = number;
        }
        let [_at, requests, prompt, completion, cost, priced, unpriced, errors, hits, sum, min, max] = sums;
        for (sum, more) in [
            (&mut self.requests, requests),
            (&mut self.prompt_tokens, prompt),
            (&mut self.completion_tokens, completion),
            (&mut self.cost, cost),
            (&mut self.priced, priced),
            (&mut self.unpriced, unpriced),
            (&mut self.errors, errors),
            (&mut self.cache_hits, hits),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.latencies.widen(sum, min, max);
        let mut from = 0;
        while let (Some(bucket), Some(count)) = (numbers.next(), numbers.next()) {
            from = self.latencies.count(from, u16::try_from(bucket).unwrap_or(u16::MAX), count);
        }
        let sums = [&mut self.cached_tokens, &mut self.cache_write_tokens, &mut self.cache_saved];
        for (sum, word) in sums.into_iter().zip(caching.split(' ')) {
            *sum = sum.saturating_add(read_letters(word));
        }
    }

    /// The time interval of a packed text.
    pub fn packed_at(text: &str) -> Option<i64> {
        Numbers(text.as_bytes()).next()
    }

    pub fn total_tokens(&self) -> i64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }

    pub fn cost_usd(&self) -> Option<f64> {
        known_cost(self.cost, self.priced, self.unpriced)
    }
}

/// The known cost. `None` if tokens were used but no row had a price, which is not the same as free.
pub fn known_cost(cost: i64, priced: i64, unpriced: i64) -> Option<f64> {
    (priced > 0 || unpriced == 0).then(|| usd(cost))
}

/// Whether the request failed, before or after its status was sent.
pub fn is_error(row: &LogRow) -> bool {
    row.status >= 400 || row.error_code.is_some()
}

pub fn is_cache_hit(row: &LogRow) -> bool {
    row.cache.as_deref().is_some_and(|cache| cache.eq_ignore_ascii_case("hit"))
}

/// Converts a cost to storage units, rounded.
pub fn cost_units(cost: Decimal) -> i64 {
    let unit = Decimal::from(1_000_000_000_000_i64);
    cost.checked_mul(unit)
        .and_then(|units| units.round().to_i64())
        .unwrap_or(MAX_COST_UNITS)
        .clamp(0, MAX_COST_UNITS)
}

/// Converts a saving, which may be negative, to storage units, rounded.
pub fn saving_units(saving: Decimal) -> i64 {
    let units = cost_units(saving.abs());
    if saving.is_sign_negative() { -units } else { units }
}

fn push_number(text: &mut String, number: i64) {
    text.push_str(itoa::Buffer::new().format(number));
}

/// Appends a number with the letters `a` to `j` for its digits, and a space.
fn push_letters(text: &mut String, number: i64) {
    if number < 0 {
        text.push('-');
    }
    let digits = number.unsigned_abs().to_string();
    text.extend(digits.bytes().map(|digit| char::from(digit - b'0' + b'a')));
    text.push(' ');
}

/// Reads what `push_letters` wrote. An invalid text is zero.
fn read_letters(word: &str) -> i64 {
    let letters = word.strip_prefix('-').unwrap_or(word);
    let digit = |letter: u8| letter.checked_sub(b'a').filter(|digit| *digit < 10).map(i64::from);
    let number = letters
        .bytes()
        .try_fold(0_i64, |number, letter| Some(number.saturating_mul(10).saturating_add(digit(letter)?)));
    let number = number.unwrap_or(0);
    if word.starts_with('-') { -number } else { number }
}

/// Converts a stored cost to an exact decimal.
pub fn cost_decimal(units: impl Into<i128>) -> Decimal {
    Decimal::from_i128_with_scale(units.into(), COST_SCALE).normalize()
}

/// Converts a stored cost to a JSON number.
#[expect(clippy::cast_precision_loss, reason = "the loss is beyond the fifteenth digit")]
pub fn usd(units: impl Into<i128>) -> f64 {
    let units: i128 = units.into();
    units as f64 / 1e12
}

pub fn bounded_tokens(tokens: i64) -> i64 {
    tokens.clamp(0, MAX_TOKENS)
}

pub fn bounded_latency(milliseconds: i64) -> i64 {
    milliseconds.clamp(0, MAX_LATENCY_MS)
}

/// A 63-bit id for a combination of texts, computed from SHA-256 without a database lookup. Among ten million
/// combinations the probability of a collision is 1 in 180,000.
pub fn digest(parts: &[Option<&str>]) -> i64 {
    let mut hash = Sha256::new();
    for part in parts {
        // The length prefix distinguishes "ab" + "c" from "a" + "bc"; u64::MAX marks an absent part.
        hash.update(part.map_or(u64::MAX, |text| text.len() as u64).to_le_bytes());
        hash.update(part.unwrap_or_default());
    }
    let first = hash.finalize().first_chunk().copied().unwrap_or_default();
    i64::from_le_bytes(first) & i64::MAX
}

/// A mergeable histogram of latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    pub sum: i64,
    pub min: i64,
    pub max: i64,
    /// Bucket and count, sorted by bucket, without empty buckets.
    counts: Vec<(u16, i64)>,
}

impl Latencies {
    pub fn add(&mut self, milliseconds: i64) {
        let milliseconds = bounded_latency(milliseconds);
        self.widen(milliseconds, milliseconds, milliseconds);
        self.count(0, bucket_of(milliseconds), 1);
    }

    pub fn merge(&mut self, other: &Self) {
        if other.counts.is_empty() {
            return;
        }
        self.widen(other.sum, other.min, other.max);
        let mut from = 0;
        for (bucket, count) in &other.counts {
            from = self.count(from, *bucket, *count);
        }
    }

    /// The latency that the given share of rows does not exceed (0.5 is the median), interpolated within its bucket.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "an estimate in milliseconds"
    )]
    pub fn percentile(&self, share: f64) -> Option<i64> {
        let all: i64 = self.counts.iter().map(|(_, count)| count).sum();
        if all == 0 {
            return None;
        }
        let rank = (share * all as f64).ceil().max(1.0);
        let mut below = 0.0;
        for (bucket, count) in &self.counts {
            let count = *count as f64;
            if below + count >= rank {
                let (low, high) = bounds_of(*bucket);
                let inside = (rank - below - 0.5) / count;
                let value = low as f64 + inside * (high - low) as f64;
                return Some((value as i64).clamp(self.min, self.max));
            }
            below += count;
        }
        Some(self.max)
    }

    fn widen(&mut self, sum: i64, min: i64, max: i64) {
        if self.counts.is_empty() {
            (self.min, self.max) = (min, max);
        }
        self.sum = self.sum.saturating_add(sum);
        self.min = self.min.min(min);
        self.max = self.max.max(max);
    }

    /// Adds to a bucket at index `from` or later and returns its index. Callers add buckets in order, so each search
    /// can start where the previous one ended.
    fn count(&mut self, from: usize, bucket: u16, more: i64) -> usize {
        let from = from.min(self.counts.len());
        match self.counts[from..].binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => {
                let count = &mut self.counts[from + at].1;
                *count = count.saturating_add(more);
                from + at
            }
            Err(at) => {
                self.counts.insert(from + at, (bucket, more));
                from + at
            }
        }
    }
}

/// Iterates over the whole numbers in a text. A hand-written parser, because one query reads many thousands of them.
struct Numbers<'a>(&'a [u8]);

impl Iterator for Numbers<'_> {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        let mut rest = self.0;
        let mut number = 0_i64;
        let mut digits = 0;
        while let [byte, after @ ..] = rest {
            let digit = byte.wrapping_sub(b'0');
            if digit < 10 {
                number = number.wrapping_mul(10).wrapping_add(i64::from(digit));
                digits += 1;
            } else if digits > 0 {
                break;
            }
            rest = after;
        }
        self.0 = rest;
        (digits > 0).then_some(number)
    }
}

const BUCKETS: usize = 208;
/// The smallest latency of each bucket.
const BOUNDS: [i64; BUCKETS] = {
    let mut bounds = [0; BUCKETS];
    let mut at = 1;
    while at < BUCKETS {
        let before: i64 = bounds[at - 1];
        let grown = before + before / 10;
        bounds[at] = if grown > before { grown } else { before + 1 };
        at += 1;
    }
    bounds
};

fn bucket_of(milliseconds: i64) -> u16 {
    let above = BOUNDS.partition_point(|bound| *bound <= milliseconds);
    u16::try_from(above.saturating_sub(1)).unwrap_or(u16::MAX)
}

fn bounds_of(bucket: u16) -> (i64, i64) {
    let bound = |bucket: usize| BOUNDS.get(bucket).copied().unwrap_or(MAX_LATENCY_MS);
    (bound(bucket.into()), bound(usize::from(bucket) + 1))
}

#[cfg(test)]
mod tests;
