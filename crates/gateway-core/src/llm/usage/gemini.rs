//! Gemini's usage. Thoughts are usually counted in addition to the candidates' tokens and sometimes as part of them;
//! only the total shows which.

use super::{Usage, UsageReport, take_part};

pub(super) fn usage(report: &UsageReport<'_>) -> Option<Usage> {
    let total = report.count("totalTokenCount");
    let thoughts = report.count("thoughtsTokenCount").unwrap_or(0);
    let tool_prompt = report.count("toolUsePromptTokenCount").unwrap_or(0);
    let prompt = report.count("promptTokenCount");
    let candidates = report.first_count(&["candidatesTokenCount", "responseTokenCount"]);
    // Zero counts are omitted, and some chunks omit more. The missing count follows from the total.
    let remaining = |known: Option<u64>| {
        let known = known.unwrap_or(0).saturating_add(tool_prompt).saturating_add(thoughts);
        total.map(|total| total.saturating_sub(known))
    };
    let prompt = prompt.or_else(|| remaining(candidates))?;
    let candidates = candidates.or_else(|| remaining(Some(prompt))).unwrap_or(0);

    let plain = prompt.saturating_add(candidates);
    let inside =
        thoughts <= candidates && (total == Some(plain) || total == Some(plain.saturating_add(tool_prompt)));
    let counted_tools = if total == Some(plain.saturating_add(if inside { 0 } else { thoughts })) {
        // The total does not add the tool prompt, so it is part of the prompt count already.
        0
    } else {
        tool_prompt
    };

    let mut rest = prompt;
    let cached = report.count("cachedContentTokenCount").unwrap_or(0);
    let cache_read = take_part(&mut rest, cached);
    let spoken = audio(report, "promptTokensDetails").saturating_sub(audio(report, "cacheTokensDetails"));
    let audio_input = take_part(&mut rest, spoken);
    let input = rest.saturating_add(counted_tools);

    let mut rest = candidates;
    let reasoning = if inside { take_part(&mut rest, thoughts) } else { thoughts };
    let speech = audio(report, "candidatesTokensDetails").max(audio(report, "responseTokensDetails"));
    let audio_output = take_part(&mut rest, speech);
    Some(Usage { input, cache_read, output: rest, reasoning, audio_input, audio_output, ..Usage::default() })
}

fn audio(report: &UsageReport<'_>, details: &str) -> u64 {
    let parts = report.list(details).iter().filter(|part| part.text("modality") == Some("AUDIO"));
    parts.filter_map(|part| part.count("tokenCount")).fold(0, u64::saturating_add)
}
