//! The OpenAI family's usage: totals with their parts listed beside them, with the departures of those who copied it.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::{Usage, carve, count, first_count, json::skip_space, nested_count};

/// Whether this stream event is the extra chunk that a provider sends only when usage was asked for: no choices, and
/// a usage object. Azure's first chunk has no choices either, but carries no usage.
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
    if !names_usage(event_data) {
        return false;
    }
    let Ok(Chunk { choices, usage, error }) = serde_json::from_slice(event_data) else { return false };
    let no_choices = choices.is_some_and(|choices| {
        let inside = choices.get().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        inside.is_some_and(|inside| inside.trim().is_empty())
    });
    no_choices && error.is_none() && usage.is_some_and(|usage| usage.get().starts_with('{'))
}

/// Whether a usage object seems to be there, without parsing: with usage asked for, every other chunk says `null`.
fn names_usage(event: &[u8]) -> bool {
    static KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"usage\""));
    KEY.find_iter(event).any(|place| {
        let colon = skip_space(event, place + KEY.needle().len());
        event.get(colon) == Some(&b':') && event.get(skip_space(event, colon + 1)) == Some(&b'{')
    })
}

/// Chat completions, completions, embeddings, responses, images and transcriptions.
pub(super) fn usage(report: &Map<String, Value>) -> Option<Usage> {
    const INPUT: &[&str] = &["prompt_tokens_details", "input_tokens_details", "input_token_details"];
    const OUTPUT: &[&str] = &["completion_tokens_details", "output_tokens_details", "output_token_details"];
    let total = count(report, "total_tokens");
    let output = first_count(report, &["completion_tokens", "output_tokens"]);
    let prompt = first_count(report, &["prompt_tokens", "input_tokens"])
        .or_else(|| Some(total?.saturating_sub(output.unwrap_or(0))))
        .or(output.map(|_| 0))?;
    let output = output.unwrap_or(0);

    let cached = nested_count(report, INPUT, "cached_tokens")
        .or_else(|| first_count(report, &["prompt_cache_hit_tokens", "cached_tokens"]))
        .unwrap_or(0);
    let written = nested_count(report, INPUT, "cache_write_tokens")
        .or_else(|| count(report, "cache_creation_input_tokens"))
        .unwrap_or(0);
    let spoken = nested_count(report, INPUT, "audio_tokens").unwrap_or(0);
    let reasoning = nested_count(report, OUTPUT, "reasoning_tokens")
        .or_else(|| count(report, "reasoning_tokens"))
        .unwrap_or(0);
    let speech = nested_count(report, OUTPUT, "audio_tokens").unwrap_or(0);

    // xAI counts reasoning beside the output and says so only by its total; Perplexity's deep research reports more
    // reasoning than output.
    let beside = total.map_or(0, |total| total.saturating_sub(prompt.saturating_add(output)));
    let reasoning_beside = reasoning > 0 && (beside == reasoning || reasoning > output);
    let cache_beside = !reasoning_beside && beside > 0 && beside == cached.saturating_add(written);

    let mut rest = if cache_beside { prompt.saturating_add(beside) } else { prompt };
    let cache_read = carve(&mut rest, cached);
    let cache_write = carve(&mut rest, written);
    let audio_input = carve(&mut rest, spoken);
    // Perplexity bills the citations that it read as input, outside every total.
    let input = rest.saturating_add(count(report, "citation_tokens").unwrap_or(0));

    let mut rest = output;
    let reasoning = if reasoning_beside {
        reasoning
    } else if cache_beside {
        carve(&mut rest, reasoning)
    } else {
        // What a total holds beyond input and output is reasoning too: so Gemini's OpenAI-compatible endpoint reports it.
        carve(&mut rest, reasoning).saturating_add(beside)
    };
    let audio_output = carve(&mut rest, speech);
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
