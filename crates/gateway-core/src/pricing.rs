//! Token prices and costs. A table holds prices per million tokens, looked up by exact name or by a few alias rules,
//! never by similarity. Costs are computed in decimal arithmetic. An unknown price is `None`, not zero.

mod alias;
mod parse;

use std::collections::HashMap;

use rust_decimal::Decimal;
use thiserror::Error;

use crate::llm::usage::Usage;
use crate::time::Timestamp;

/// The date of the built-in prices: 2026-11-15. It changes with `data/model_prices.csv`.
const BUILTIN_AS_OF: Timestamp = Timestamp(1_794_700_800_000);

/// Prices in USD per million tokens. The fields have the names of the price file's columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Price {
    pub mode: Box<str>,
    pub input_per_mtok: Option<Decimal>,
    pub output_per_mtok: Option<Decimal>,
    pub cache_read_per_mtok: Option<Decimal>,
    pub cache_write_per_mtok: Option<Decimal>,
    pub cache_write_1h_per_mtok: Option<Decimal>,
    pub reasoning_per_mtok: Option<Decimal>,
    pub audio_input_per_mtok: Option<Decimal>,
    pub audio_output_per_mtok: Option<Decimal>,
    pub input_above_200k_per_mtok: Option<Decimal>,
    pub output_above_200k_per_mtok: Option<Decimal>,
    pub max_input_tokens: Option<u64>,
    pub max_output_tokens: Option<u64>,
}

/// An invalid line of a price file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {message}")]
pub struct PriceError {
    pub line: u64,
    pub message: String,
}

/// Prices by provider and model.
#[derive(Debug, Clone, Default)]
pub struct PriceTable {
    providers: HashMap<Box<str>, HashMap<Box<str>, Price>>,
    /// The date of the prices, if they are not the built-in ones.
    as_of: Option<Timestamp>,
}

impl PriceTable {
    /// The built-in prices. Parsing is slow; call it once.
    pub fn builtin() -> Result<Self, PriceError> {
        Self::parse(include_str!("../data/model_prices.csv"))
    }

    /// Parses a price file. The first line names the columns; provider, model and input_per_mtok are required.
    pub fn parse(csv: &str) -> Result<Self, PriceError> {
        parse::parse(csv)
    }

    /// Sets the date of the prices.
    pub fn dated(self, as_of: Timestamp) -> Self {
        Self { as_of: Some(as_of), ..self }
    }

    /// The date of the newest prices.
    pub fn as_of(&self) -> Timestamp {
        self.as_of.unwrap_or(BUILTIN_AS_OF).max(BUILTIN_AS_OF)
    }

    /// The table with rows replaced or added by `overrides`. A row replaces the whole row of the same name.
    pub fn merged(mut self, overrides: PriceTable) -> Self {
        self.as_of = self.as_of.max(overrides.as_of);
        for (provider, models) in overrides.providers {
            self.providers.entry(provider).or_default().extend(models);
        }
        self
    }

    /// The price of a model, by its exact name or else by the alias rules.
    pub fn find(&self, provider: &str, model: &str) -> Option<&Price> {
        let models = self.provider(provider)?;
        models.get(model).or_else(|| alias::names(provider, model).find_map(|name| models.get(name)))
    }

    /// The providers with a price for exactly this model name, or else for an alias of it. Model vendors come before
    /// resellers.
    pub fn providers_for_model(&self, model: &str) -> Vec<&str> {
        let names = || self.providers.keys().map(|name| &**name);
        let listed = |name: &&str| self.providers.get(*name).is_some_and(|models| models.contains_key(model));
        let mut found: Vec<&str> = names().filter(listed).collect();
        if found.is_empty() {
            found = names().filter(|name| self.find(name, model).is_some()).collect();
        }
        found.sort_unstable_by_key(|name| (alias::preference(name), *name));
        found
    }

    /// The models of a provider with a price, of these modes or of none, sorted by name.
    pub fn models_of(&self, provider: &str, modes: &[&str]) -> Vec<&str> {
        let models = self.provider(provider).into_iter().flatten();
        let of_mode = models.filter(|(_, price)| price.mode.is_empty() || modes.contains(&&*price.mode));
        let mut names: Vec<&str> = of_mode.map(|(model, _)| &**model).collect();
        names.sort_unstable();
        names
    }

    /// All rows as provider, model and price, sorted by name.
    pub fn rows(&self) -> Vec<(&str, &str, &Price)> {
        let mut rows: Vec<_> = self
            .providers
            .iter()
            .flat_map(|(provider, models)| models.iter().map(|(model, price)| (&**provider, &**model, price)))
            .collect();
        rows.sort_unstable_by_key(|(provider, model, _)| (*provider, *model));
        rows
    }

    fn provider(&self, name: &str) -> Option<&HashMap<Box<str>, Price>> {
        self.providers.get(name).or_else(|| self.providers.get(alias::provider(name)?))
    }
}

/// The cost of a request in USD at full precision. Each token class has its own rate, or else the rate of its parent
/// class. Returns `None` if tokens were used for which there is no rate.
///
/// A prompt of more than 200,000 tokens moves the whole request to the higher rates, if the row has them. Rates without
/// a higher form rise in the same proportion, as with Anthropic and Google.
pub fn cost(price: &Price, usage: &Usage) -> Option<Decimal> {
    const LONG_PROMPT: u64 = 200_000;
    let long = usage.prompt_tokens() > LONG_PROMPT;
    let input = Rates::of(price.input_per_mtok, price.input_above_200k_per_mtok, long);
    let output = Rates::of(price.output_per_mtok, price.output_above_200k_per_mtok, long);
    let written = price.cache_write_per_mtok;
    let classes = [
        (usage.input, input.base()),
        (usage.cache_read, input.part(price.cache_read_per_mtok)),
        (usage.cache_write, input.part(written)),
        (usage.cache_write_1h, input.part(price.cache_write_1h_per_mtok.or(written))),
        (usage.audio_input, input.part(price.audio_input_per_mtok)),
        (usage.output, output.base()),
        (usage.reasoning, output.part(price.reasoning_per_mtok)),
        (usage.audio_output, output.part(price.audio_output_per_mtok)),
    ];
    let one_token = Decimal::new(1, 6);
    classes.into_iter().filter(|(tokens, _)| *tokens > 0).try_fold(Decimal::ZERO, |sum, (tokens, rate)| {
        sum.checked_add(Decimal::from(tokens).checked_mul(rate?)?.checked_mul(one_token)?)
    })
}

/// What the provider's prompt cache saved on the input of a request, in USD: negative if more was written than read.
/// `None` if the cache was not used, or there is no rate.
pub fn cache_saving(price: &Price, usage: &Usage) -> Option<Decimal> {
    let Usage { input, cache_read, cache_write, cache_write_1h, audio_input, .. } = *usage;
    if [cache_read, cache_write, cache_write_1h] == [0; 3] {
        return None;
    }
    let cached = Usage { input, cache_read, cache_write, cache_write_1h, audio_input, ..Usage::default() };
    let all = [input, cache_read, cache_write, cache_write_1h].into_iter().fold(0, u64::saturating_add);
    let uncached = Usage { input: all, audio_input, ..Usage::default() };
    cost(price, &uncached)?.checked_sub(cost(price, &cached)?)
}

/// The base rate of input or output, and the raised rate of a long prompt.
struct Rates {
    usual: Option<Decimal>,
    raised: Option<Decimal>,
}

impl Rates {
    fn of(usual: Option<Decimal>, above: Option<Decimal>, long: bool) -> Self {
        Rates { usual, raised: above.filter(|_| long) }
    }

    fn base(&self) -> Option<Decimal> {
        self.raised.or(self.usual)
    }

    fn part(&self, own: Option<Decimal>) -> Option<Decimal> {
        let Some(own) = own else { return self.base() };
        match (self.raised, self.usual) {
            (Some(raised), Some(usual)) if !usual.is_zero() => own.checked_mul(raised)?.checked_div(usual),
            _ => Some(own),
        }
    }
}

#[cfg(test)]
mod tests;
