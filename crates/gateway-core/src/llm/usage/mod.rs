//! Token usage of responses, read from the provider's bytes while they are forwarded. Providers count differently:
//! cached input may be part of the input or not, reasoning part of the output or not. Every report is therefore
//! converted into disjoint classes, each with its own price.

mod anthropic;
mod bedrock;
mod body;
mod cohere;
mod fields;
mod gemini;
mod meter;
mod openai;
mod stream;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use super::ProviderFormat;

pub(in crate::llm) use anthropic::Report as MessagesReport;
pub use meter::{Meter, MeterReading};
pub use openai::{is_usage_chunk, with_cost};

/// Token counts in disjoint classes. Their sum is the provider's total.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    /// Text input that was neither read from a cache nor written to one.
    pub input: u64,
    pub cache_read: u64,
    /// Input written to a cache with the default, short lifetime.
    pub cache_write: u64,
    pub cache_write_1h: u64,
    /// Output other than reasoning and audio.
    pub output: u64,
    pub reasoning: u64,
    pub audio_input: u64,
    pub audio_output: u64,
    /// The provider's report, unchanged.
    pub raw: Option<Box<str>>,
}

impl Usage {
    /// All input, including cached and audio input.
    pub fn prompt_tokens(&self) -> u64 {
        [self.input, self.cache_read, self.cache_write, self.cache_write_1h, self.audio_input]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// All output, including reasoning and audio.
    pub fn completion_tokens(&self) -> u64 {
        self.output.saturating_add(self.reasoning).saturating_add(self.audio_output)
    }

    /// Input that was read from a cache.
    pub fn cached_tokens(&self) -> u64 {
        self.cache_read
    }

    pub fn total(&self) -> u64 {
        self.prompt_tokens().saturating_add(self.completion_tokens())
    }

    /// Usage of which only the totals are known, such as those in Bedrock's response headers.
    pub fn from_totals(input: u64, output: u64) -> Self {
        Usage { input, output, ..Usage::default() }
    }
}

/// Parses a provider's usage object. Many providers respond in the format of another one, and a wrong guess would be
/// billed wrongly. The keys therefore decide on the format, and the provider's format only where keys are shared.
fn read_usage(format: ProviderFormat, raw: &str) -> Option<Usage> {
    let Ok(Value::Object(report)) = serde_json::from_str(raw) else { return None };
    parse_report(format, &report).map(|usage| Usage { raw: Some(raw.into()), ..usage })
}

/// Converts a usage object, without keeping it as `raw`.
pub(in crate::llm) fn parse_report(format: ProviderFormat, report: &Map<String, Value>) -> Option<Usage> {
    let has = |keys: &[&str]| keys.iter().any(|key| report.contains_key(*key));
    if has(&["promptTokenCount", "totalTokenCount"]) {
        gemini::usage(report)
    } else if has(&["inputTokens", "outputTokens"]) {
        bedrock::converse_usage(report)
    } else if has(&["inputTokenCount", "outputTokenCount"]) {
        bedrock::invocation_metrics(report)
    } else if has(&["billed_units", "tokens"]) {
        cohere::usage(report)
    } else if has(&["prompt_tokens", "completion_tokens", "total_tokens"]) {
        openai::usage(report)
    } else if has(&["cache_read_input_tokens", "cache_creation_input_tokens"])
        || format != ProviderFormat::OpenAi
    {
        anthropic::Report::read(report).usage()
    } else {
        openai::usage(report)
    }
}

/// A count. Some providers send it as a float (`12.0`), some as null.
fn count(report: &Map<String, Value>, key: &str) -> Option<u64> {
    let number = report.get(key)?.as_number()?;
    number.as_u64().or_else(|| {
        let float = number.as_f64().filter(|float| *float >= 0.0)?;
        format!("{float:.0}").parse().ok()
    })
}

fn first_count(report: &Map<String, Value>, keys: &[&str]) -> Option<u64> {
    keys.iter().find_map(|key| count(report, key))
}

/// A count inside one of several nested objects.
fn nested_count(report: &Map<String, Value>, objects: &[&str], key: &str) -> Option<u64> {
    objects.iter().find_map(|object| count(report.get(*object)?.as_object()?, key))
}

/// Subtracts up to `part` from `rest` and returns the difference, so that the classes of one total never exceed it.
fn take_part(rest: &mut u64, part: u64) -> u64 {
    let taken = part.min(*rest);
    *rest -= taken;
    taken
}
