//! Bedrock's usage. Converse counts like Anthropic: `inputTokens` is only the uncached part. The invoke calls respond
//! in the format of the model's vendor, and their streams end with Bedrock's own metrics.

use serde_json::{Map, Value};

use super::{Usage, count, fields::Fields, first_count};

pub(super) fn converse_usage(report: &Map<String, Value>) -> Option<Usage> {
    let input = count(report, "inputTokens");
    let output = count(report, "outputTokens");
    if input.is_none() && output.is_none() {
        return None;
    }
    let written = first_count(report, &["cacheWriteInputTokens", "cacheWriteInputTokenCount"]).unwrap_or(0);
    let long = written.min(cache_write_1h(report));
    Some(Usage {
        input: input.unwrap_or(0),
        cache_read: first_count(report, &["cacheReadInputTokens", "cacheReadInputTokenCount"]).unwrap_or(0),
        cache_write: written - long,
        cache_write_1h: long,
        output: output.unwrap_or(0),
        ..Usage::default()
    })
}

/// `amazon-bedrock-invocationMetrics`, in the last event of an invoke stream.
pub(super) fn invocation_metrics(report: &Map<String, Value>) -> Option<Usage> {
    let input = count(report, "inputTokenCount");
    let output = count(report, "outputTokenCount");
    if input.is_none() && output.is_none() {
        return None;
    }
    Some(Usage {
        input: input.unwrap_or(0),
        cache_read: count(report, "cacheReadInputTokenCount").unwrap_or(0),
        cache_write: count(report, "cacheWriteInputTokenCount").unwrap_or(0),
        output: output.unwrap_or(0),
        ..Usage::default()
    })
}

/// Counts in the body's top level: Llama and Titan on Bedrock, and Ollama's native API.
pub(super) fn top_level_counts(fields: &Fields) -> Option<Usage> {
    let number = |key: &str| std::str::from_utf8(fields.get(key)?).ok()?.parse::<u64>().ok();
    let of = |input: Option<u64>, output: Option<u64>| {
        (input.is_some() || output.is_some())
            .then(|| Usage::from_totals(input.unwrap_or(0), output.unwrap_or(0)))
    };
    of(number("prompt_token_count"), number("generation_token_count"))
        .or_else(|| of(number("prompt_eval_count"), number("eval_count")))
        .or_else(|| of(number("inputTextTokenCount"), titan_output(fields)))
}

fn titan_output(fields: &Fields) -> Option<u64> {
    let results: Vec<Map<String, Value>> = serde_json::from_slice(fields.get("results")?).ok()?;
    results.iter().filter_map(|result| count(result, "tokenCount")).reduce(u64::saturating_add)
}

fn cache_write_1h(report: &Map<String, Value>) -> u64 {
    let details = report.get("cacheDetails").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    details
        .iter()
        .filter_map(Value::as_object)
        .filter(|detail| detail.get("ttl").and_then(Value::as_str) == Some("1h"))
        .filter_map(|detail| count(detail, "inputTokens"))
        .fold(0, u64::saturating_add)
}
