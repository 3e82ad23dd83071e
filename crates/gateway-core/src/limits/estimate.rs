//! What a call will use, estimated before it, and what it has used, counted after it.

use std::hash::{BuildHasher as _, RandomState};

use super::Unit;
use super::account::Demand;
use super::compiled::Limit;
use super::lru::Lru;
use crate::ids::KeyId;

/// As for budgets: the lowest average number of bytes of a token of text.
const BYTES_PER_TOKEN: u64 = 3;
/// The least that is reserved for the output of a call that does not say how much it may be.
const MIN_OUTPUT: u64 = 256;
/// What is reserved while no call of this key and model has ended.
const FIRST_OUTPUT: u64 = 1_024;
/// Keys and models whose averages are kept for an organization.
const MAX_AVERAGES: usize = 10_000;
/// The weight of the latest call in an average is one part of these.
const AVERAGE_PARTS: u64 = 8;
/// Averages have this many parts of a token, so that small ones are not lost by rounding.
const AVERAGE_SCALE: u64 = 16;
const MAX_CHOICES: u64 = 1_024;

/// What is known of a call before it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenFacts {
    /// The length of the body as it is sent, without edits for the target.
    pub body_bytes: u64,
    /// What the model reads and writes at most, if it is known.
    pub max_input: Option<u64>,
    pub max_output: Option<u64>,
    /// What the request allows for output.
    pub max_tokens: Option<u64>,
    pub choices: Option<u64>,
    /// The average output of calls of the same key and model.
    pub average: Option<u64>,
    /// False for embeddings.
    pub generates_text: bool,
}

/// The tokens that a call is expected to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenEstimate {
    pub input: u64,
    pub output: u64,
    /// Answers that the call asks for.
    pub choices: u64,
    /// The request does not say it: at most half of a limit is reserved for the output, so that small limits work.
    pub is_output_guessed: bool,
}

impl TokenEstimate {
    pub fn new(facts: &TokenFacts) -> Self {
        let input = facts.body_bytes.div_ceil(BYTES_PER_TOKEN).min(facts.max_input.unwrap_or(u64::MAX));
        if !facts.generates_text {
            return Self { input, output: 0, choices: 1, is_output_guessed: false };
        }
        let max_output = facts.max_output.unwrap_or(u64::MAX);
        let guessed = || {
            let expected = facts.average.map_or(FIRST_OUTPUT, |average| average.saturating_mul(2));
            expected.min(max_output).max(MIN_OUTPUT)
        };
        let is_output_guessed = facts.max_tokens.is_none();
        let each = facts.max_tokens.map_or_else(guessed, |stated| stated.min(max_output));
        let choices = facts.choices.unwrap_or(1).clamp(1, MAX_CHOICES);
        Self { input, output: each.saturating_mul(choices), choices, is_output_guessed }
    }

    /// What one limit reserves.
    pub fn demand(&self, limit: &Limit) -> Demand {
        let output = |unit| match limit.definition.amount(unit) {
            Some(amount) if self.is_output_guessed => self.output.min((amount / 2).max(1)),
            _ => self.output,
        };
        Demand {
            requests: 1,
            tokens: self.input.saturating_add(output(Unit::Tokens)),
            input_tokens: self.input,
            output_tokens: output(Unit::OutputTokens),
        }
    }
}

/// The tokens that a call has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokensUsed {
    /// All input, including cached tokens.
    pub input: u64,
    pub cached: u64,
    pub output: u64,
}

impl TokensUsed {
    /// What counts in one limit. The request stays counted, however the call ended.
    pub fn demand(&self, limit: &Limit) -> Demand {
        let free = if limit.definition.count_cached { 0 } else { self.cached };
        let input = self.input.saturating_sub(free);
        Demand {
            requests: 1,
            tokens: input.saturating_add(self.output),
            input_tokens: input,
            output_tokens: self.output,
        }
    }

    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cached: self.cached.saturating_add(other.cached),
            output: self.output.saturating_add(other.output),
        }
    }
}

/// The average output by key and model.
pub struct Averages {
    /// By a hash, so that no call makes a text of its key. Two with the same one would share a guess.
    by_call: Lru<u64, u64>,
    hasher: RandomState,
}

impl Default for Averages {
    fn default() -> Self {
        Self { by_call: Lru::new(MAX_AVERAGES), hasher: RandomState::new() }
    }
}

impl Averages {
    pub fn get(&self, key: Option<KeyId>, model: &str) -> Option<u64> {
        let call = self.hasher.hash_one((key, model));
        self.by_call.peek(&call).map(|scaled| scaled.div_ceil(AVERAGE_SCALE))
    }

    pub fn add(&mut self, key: Option<KeyId>, model: &str, output: u64) {
        let scaled = output.saturating_mul(AVERAGE_SCALE);
        let call = self.hasher.hash_one((key, model));
        let average = self.by_call.entry(&call, || scaled, |_| false);
        *average = (*average - *average / AVERAGE_PARTS).saturating_add(scaled / AVERAGE_PARTS);
    }
}
