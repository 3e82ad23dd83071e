//! Gemini's usage: thoughts usually stand beside the candidates' tokens, sometimes inside, and only the total tells.

use serde_json::{Map, Value};

use super::{Usage, carve, count, first_count};

pub(super) fn usage(report: &Map<String, Value>) -> Option<Usage> {
    let total = count(report, "totalTokenCount");
    let thoughts = count(report, "thoughtsTokenCount").unwrap_or(0);
    let tool_prompt = count(report, "toolUsePromptTokenCount").unwrap_or(0);
    let prompt = count(report, "promptTokenCount");
    let candidates = first_count(report, &["candidatesTokenCount", "responseTokenCount"]);
    // Either is left out when it is zero, and some chunks leave out more: the total tells what they were.
    let left = |known: Option<u64>| {
        let known = known.unwrap_or(0).saturating_add(tool_prompt).saturating_add(thoughts);
        total.map(|total| total.saturating_sub(known))
    };
    let prompt = prompt.or_else(|| left(candidates))?;
    let candidates = candidates.or_else(|| left(Some(prompt))).unwrap_or(0);

    let plain = prompt.saturating_add(candidates);
    let inside =
        thoughts <= candidates && (total == Some(plain) || total == Some(plain.saturating_add(tool_prompt)));
    let counted_tools = if total == Some(plain.saturating_add(if inside { 0 } else { thoughts })) {
        // The total leaves the tools' prompt out, so it is already part of the prompt.
        0
    } else {
        tool_prompt
    };

    let mut rest = prompt;
    let cached = count(report, "cachedContentTokenCount").unwrap_or(0);
    let cache_read = carve(&mut rest, cached);
    let spoken = audio(report, "promptTokensDetails").saturating_sub(audio(report, "cacheTokensDetails"));
    let audio_input = carve(&mut rest, spoken);
    let input = rest.saturating_add(counted_tools);

    let mut rest = candidates;
    let reasoning = if inside { carve(&mut rest, thoughts) } else { thoughts };
    let speech = audio(report, "candidatesTokensDetails").max(audio(report, "responseTokensDetails"));
    let audio_output = carve(&mut rest, speech);
    Some(Usage { input, cache_read, output: rest, reasoning, audio_input, audio_output, ..Usage::default() })
}

fn audio(report: &Map<String, Value>, details: &str) -> u64 {
    let parts = report.get(details).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    parts
        .iter()
        .filter_map(Value::as_object)
        .filter(|part| part.get("modality").and_then(Value::as_str) == Some("AUDIO"))
        .filter_map(|part| count(part, "tokenCount"))
        .fold(0, u64::saturating_add)
}
