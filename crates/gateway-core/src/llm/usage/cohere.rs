//! Cohere's usage: `tokens` is what the model saw, `billed_units` what is paid for, and the bill is what we account.

use serde_json::{Map, Value};

use super::{Usage, carve, count};

pub(super) fn usage(report: &Map<String, Value>) -> Option<Usage> {
    let part = |name: &str| report.get(name).and_then(Value::as_object);
    let read = |counts: &Map<String, Value>| {
        let (input, output) = (count(counts, "input_tokens"), count(counts, "output_tokens"));
        (input.is_some() || output.is_some()).then(|| (input.unwrap_or(0), output.unwrap_or(0)))
    };
    let (mut input, output) =
        part("billed_units").and_then(read).or_else(|| part("tokens").and_then(read))?;
    let cache_read = carve(&mut input, count(report, "cached_tokens").unwrap_or(0));
    Some(Usage { input, cache_read, output, ..Usage::default() })
}
