//! Cohere's usage. `tokens` counts the tokens that the model processed and `billed_units` those that are charged. The
//! billed units are recorded.

use super::{Usage, UsageReport, take_part};

pub(super) fn usage(report: &UsageReport<'_>) -> Option<Usage> {
    let read = |counts: &UsageReport<'_>| {
        let (input, output) = (counts.count("input_tokens"), counts.count("output_tokens"));
        (input.is_some() || output.is_some()).then(|| (input.unwrap_or(0), output.unwrap_or(0)))
    };
    let (mut input, output) =
        report.object("billed_units").and_then(read).or_else(|| report.object("tokens").and_then(read))?;
    let cache_read = take_part(&mut input, report.count("cached_tokens").unwrap_or(0));
    Some(Usage { input, cache_read, output, ..Usage::default() })
}
