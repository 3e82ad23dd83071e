//! Usage of OpenAI and compatible providers: totals, and details that list parts of the totals. Several providers
//! deviate from OpenAI's rules.

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Usage, UsageReport, take_part};
use crate::json::{ObjectScan, ScanStatus, skip_space};

/// Whether a stream event is the extra chunk that a provider sends only on `include_usage`: without choices and with a
/// usage object. Azure's first chunk has no choices either, but no usage.
pub fn is_usage_chunk(event_data: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Chunk<'a> {
        #[serde(borrow)]
        choices: Option<&'a RawValue>,
        #[serde(borrow)]
        usage: Option<&'a RawValue>,
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    if !has_usage_object(event_data) {
        return false;
    }
    let Ok(Chunk { choices, usage, error }) = serde_json::from_slice(event_data) else { return false };
    let no_choices = choices.is_some_and(|choices| {
        let inside = choices.get().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        inside.is_some_and(|inside| inside.trim().is_empty())
    });
    no_choices && error.is_none() && usage.is_some_and(|usage| usage.get().starts_with('{'))
}

/// The data of a stream event with a cost in its usage, which is that of a chunk or of a whole response. None if it has
/// none. `cost` is a number as text; None if it is not known.
pub fn with_cost(event_data: &[u8], cost: impl FnOnce() -> Option<String>) -> Option<Vec<u8>> {
    static OUTER: [&str; 2] = ["usage", "response"];
    static USAGE: [&str; 1] = ["usage"];
    static COST: [&str; 1] = ["cost"];
    if !has_usage_object(event_data) {
        return None;
    }
    let outer = ObjectScan::new(&OUTER, event_data);
    let is_object = |range: &Range<usize>| event_data.get(range.start) == Some(&b'{');
    let usage = outer.range("usage").filter(is_object).or_else(|| {
        let response = outer.range("response")?;
        let usage = ObjectScan::new(&USAGE, event_data.get(response.clone())?).range("usage")?;
        Some(response.start + usage.start..response.start + usage.end).filter(is_object)
    })?;
    let scan = ObjectScan::new(&COST, &event_data[usage.clone()]);
    if scan.status() != ScanStatus::Complete {
        return None;
    }
    let cost = cost()?;
    let (at, end, text) = if let Some(own) = scan.range("cost") {
        (usage.start + own.start, usage.start + own.end, cost)
    } else {
        let at = usage.start + scan.closing()?;
        let comma = if scan.has_members() { "," } else { "" };
        (at, at, format!("{comma}\"cost\":{cost}"))
    };
    Some([&event_data[..at], text.as_bytes(), &event_data[end..]].concat())
}

/// Whether the event seems to have a usage object, without parsing. With `include_usage`, all other chunks have `null`.
fn has_usage_object(event: &[u8]) -> bool {
    static KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"usage\""));
    KEY.find_iter(event).any(|start| {
        let colon = skip_space(event, start + KEY.needle().len());
        event.get(colon) == Some(&b':') && event.get(skip_space(event, colon + 1)) == Some(&b'{')
    })
}

/// Chat completions, completions, embeddings, responses, images and transcriptions.
pub(super) fn usage(report: &UsageReport<'_>) -> Option<Usage> {
    const INPUT: &[&str] = &["prompt_tokens_details", "input_tokens_details", "input_token_details"];
    const OUTPUT: &[&str] = &["completion_tokens_details", "output_tokens_details", "output_token_details"];
    let total = report.count("total_tokens");
    let output = report.first_count(&["completion_tokens", "output_tokens"]);
    let prompt = report
        .first_count(&["prompt_tokens", "input_tokens"])
        .or_else(|| Some(total?.saturating_sub(output.unwrap_or(0))))
        .or(output.map(|_| 0))?;
    let output = output.unwrap_or(0);

    let cached = report
        .nested_count(INPUT, "cached_tokens")
        .or_else(|| report.first_count(&["prompt_cache_hit_tokens", "cached_tokens"]))
        .unwrap_or(0);
    let written = report
        .nested_count(INPUT, "cache_write_tokens")
        .or_else(|| report.count("cache_creation_input_tokens"))
        .unwrap_or(0);
    let spoken = report.nested_count(INPUT, "audio_tokens").unwrap_or(0);
    let reasoning = report
        .nested_count(OUTPUT, "reasoning_tokens")
        .or_else(|| report.count("reasoning_tokens"))
        .unwrap_or(0);
    let speech = report.nested_count(OUTPUT, "audio_tokens").unwrap_or(0);

    // xAI counts reasoning in addition to the output, which only its total shows. Perplexity's deep research reports
    // more reasoning than output.
    let extra = total.map_or(0, |total| total.saturating_sub(prompt.saturating_add(output)));
    let reasoning_is_extra = reasoning > 0 && (extra == reasoning || reasoning > output);
    let cache_is_extra = !reasoning_is_extra && extra > 0 && extra == cached.saturating_add(written);

    let mut rest = if cache_is_extra { prompt.saturating_add(extra) } else { prompt };
    let cache_read = take_part(&mut rest, cached);
    let cache_write = take_part(&mut rest, written);
    let audio_input = take_part(&mut rest, spoken);
    // Perplexity bills citations as input and includes them in no total.
    let input = rest.saturating_add(report.count("citation_tokens").unwrap_or(0));

    let mut rest = output;
    let reasoning = if reasoning_is_extra {
        reasoning
    } else if cache_is_extra {
        take_part(&mut rest, reasoning)
    } else {
        // Gemini's OpenAI-compatible endpoint reports reasoning only as the part of the total beyond input and output.
        take_part(&mut rest, reasoning).saturating_add(extra)
    };
    let audio_output = take_part(&mut rest, speech);
    Some(Usage {
        input,
        cache_read,
        cache_write,
        output: rest,
        reasoning,
        audio_input,
        audio_output,
        ..Usage::default()
    })
}
