//! Cohere's usage. `tokens` counts the tokens that the model processed and `billed_units` those that are charged. The
//! billed units are recorded.

use serde_json::{Map, Value};

use super::{Usage, count, take_part};

pub(super) fn usage(report: &Map<String, Value>) -> Option<Usage> {
    let part = |name: &str| report.get(name).and_then(Value::as_object);
    let read = |counts: &Map<String, Value>| {
        let (input, output) = (count(counts, "input_tokens"), count(counts, "output_tokens"));
        (input.is_some() || output.is_some()).then(|| (input.unwrap_or(0), output.unwrap_or(0)))
    };
    let (mut input, output) =
        part("billed_units").and_then(read).or_else(|| part("tokens").and_then(read))?;
    let cache_read = take_part(&mut input, count(report, "cached_tokens").unwrap_or(0));
    Some(Usage { input, cache_read, output, ..Usage::default() })
}
