//! Bedrock's usage. Converse counts like Anthropic: `inputTokens` is only the uncached part. The invoke calls respond
//! in the format of the model's vendor, and their streams end with Bedrock's own metrics.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use super::{
    Usage, UsageReport,
    body::{Field, ObjectFields},
};

pub(super) fn converse_usage(report: &UsageReport<'_>) -> Option<Usage> {
    let input = report.count("inputTokens");
    let output = report.count("outputTokens");
    if input.is_none() && output.is_none() {
        return None;
    }
    let written = report.first_count(&["cacheWriteInputTokens", "cacheWriteInputTokenCount"]).unwrap_or(0);
    let long = written.min(cache_write_1h(report));
    Some(Usage {
        input: input.unwrap_or(0),
        cache_read: report.first_count(&["cacheReadInputTokens", "cacheReadInputTokenCount"]).unwrap_or(0),
        cache_write: written - long,
        cache_write_1h: long,
        output: output.unwrap_or(0),
        ..Usage::default()
    })
}

/// `amazon-bedrock-invocationMetrics`, in the last event of an invoke stream.
pub(super) fn invocation_metrics(report: &UsageReport<'_>) -> Option<Usage> {
    let input = report.count("inputTokenCount");
    let output = report.count("outputTokenCount");
    if input.is_none() && output.is_none() {
        return None;
    }
    Some(Usage {
        input: input.unwrap_or(0),
        cache_read: report.count("cacheReadInputTokenCount").unwrap_or(0),
        cache_write: report.count("cacheWriteInputTokenCount").unwrap_or(0),
        output: output.unwrap_or(0),
        ..Usage::default()
    })
}

/// Counts in the body's top level: Llama and Titan on Bedrock, and Ollama's native API.
pub(super) fn top_level_counts(fields: &ObjectFields) -> Option<Usage> {
    let number = |field: Field| std::str::from_utf8(fields.get(field)?).ok()?.parse::<u64>().ok();
    let of = |input: Option<u64>, output: Option<u64>| {
        (input.is_some() || output.is_some())
            .then(|| Usage::from_totals(input.unwrap_or(0), output.unwrap_or(0)))
    };
    of(number(Field::PromptTokenCount), number(Field::GenerationTokenCount))
        .or_else(|| of(number(Field::PromptEvalCount), number(Field::EvalCount)))
        .or_else(|| of(number(Field::InputTextTokenCount), titan_output(fields)))
}

fn titan_output(fields: &ObjectFields) -> Option<u64> {
    serde_json::from_slice::<TitanOutput>(fields.get(Field::Results)?).ok()?.0
}

/// The sum of the tokens of all results. They are added while they are read: a list of them would take many times the
/// memory of their text.
struct TitanOutput(Option<u64>);

impl<'de> Deserialize<'de> for TitanOutput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(TitanOutputVisitor)
    }
}

struct TitanOutputVisitor;

impl<'de> Visitor<'de> for TitanOutputVisitor {
    type Value = TitanOutput;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of results")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut results: A) -> Result<Self::Value, A::Error> {
        let mut sum = None;
        while let Some(result) = results.next_element::<UsageReport<'_>>()? {
            if let Some(count) = result.count("tokenCount") {
                sum = Some(sum.unwrap_or(0_u64).saturating_add(count));
            }
        }
        Ok(TitanOutput(sum))
    }
}

fn cache_write_1h(report: &UsageReport<'_>) -> u64 {
    let details = report.list("cacheDetails").iter().filter(|detail| detail.text("ttl") == Some("1h"));
    details.filter_map(|detail| detail.count("inputTokens")).fold(0, u64::saturating_add)
}
