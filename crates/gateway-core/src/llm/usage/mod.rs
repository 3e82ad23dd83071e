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
mod report;
mod stream;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use super::ProviderFormat;

pub(in crate::llm) use anthropic::Report as MessagesReport;
pub use meter::{Meter, MeterReading};
pub use openai::{is_usage_chunk, with_cost};
use report::UsageReport;

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

/// Parses a provider's usage object.
fn read_usage(format: ProviderFormat, raw: &str) -> Option<Usage> {
    read_report(format, &UsageReport::parse(raw)?).map(|usage| Usage { raw: Some(raw.into()), ..usage })
}

/// Converts a usage object that is parsed already, without keeping it as `raw`.
pub(in crate::llm) fn parse_report(format: ProviderFormat, report: &Map<String, Value>) -> Option<Usage> {
    read_report(format, &UsageReport::from_map(report))
}

/// Converts a report. Many providers respond in the format of another one, and a wrong guess would be billed wrongly.
/// The keys therefore decide on the format, and the provider's format only where keys are shared.
fn read_report(format: ProviderFormat, report: &UsageReport<'_>) -> Option<Usage> {
    let has = |keys: &[&str]| report.has_any(keys);
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

/// Subtracts up to `part` from `rest` and returns the difference, so that the classes of one total never exceed it.
fn take_part(rest: &mut u64, part: u64) -> u64 {
    let taken = part.min(*rest);
    *rest -= taken;
    taken
}
