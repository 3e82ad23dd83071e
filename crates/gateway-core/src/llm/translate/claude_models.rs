//! Differences between generations of Claude models: how thinking is configured, which parameters are rejected, and the
//! output limit. Two formats use this, since Claude is served by Anthropic and by Bedrock.

use super::super::chat::{
    ChatRequest, Content, FieldLocation, Losses, Message, Reasoning, RequestField, Role, ToolChoice,
};

/// Reads the generation from a model name, such as (4, 6). Returns None for models that are not Claude.
pub(in crate::llm) fn generation(model: &str) -> Option<(u32, u32)> {
    let (_, name) = model.split_once("claude-")?;
    // Longer numbers are dates.
    let mut numbers = name
        .split(['-', '.', '@', ':'])
        .filter(|word| word.len() <= 2)
        .filter_map(|word| word.parse::<u32>().ok());
    match numbers.next() {
        // A name without a number is assumed to be newer than all known ones.
        None => Some((u32::MAX, 0)),
        Some(major) => Some((major, numbers.next().unwrap_or(0))),
    }
}

/// The default for `max_tokens`, which Anthropic requires.
pub(super) fn default_max_tokens(generation: (u32, u32)) -> u64 {
    match generation {
        (..3, _) | (3, 0) => 4_096,
        (3, ..7) => 8_192,
        _ => 32_000,
    }
}

/// The thinking configuration of a request in Anthropic's terms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ThinkingConfig {
    pub(super) mode: Option<ThinkingMode>,
    pub(super) effort: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThinkingMode {
    Budget(u64),
    Adaptive,
    Disabled,
}

/// Derives the thinking configuration of a request that was sent in another format.
pub(super) fn thinking(
    request: &ChatRequest,
    generation: (u32, u32),
    max_tokens: u64,
    losses: &mut Losses,
) -> ThinkingConfig {
    let Some(reasoning) = &request.reasoning else { return ThinkingConfig::default() };
    losses.drop_extra(FieldLocation::Reasoning, &reasoning.extra);
    if reasoning.resolved_effort() == Some("none") {
        // From this generation on, thinking is on by default.
        let mode = (generation >= (5, 0)).then_some(ThinkingMode::Disabled);
        return ThinkingConfig { mode, effort: None };
    }
    if generation >= (4, 6) {
        let effort =
            reasoning.resolved_effort().map(|effort| supported_effort(effort, generation).to_owned());
        return ThinkingConfig { mode: Some(ThinkingMode::Adaptive), effort };
    }
    let mode = budget(request, reasoning, generation, max_tokens).map(ThinkingMode::Budget);
    if mode.is_none() {
        losses.drop(RequestField::Reasoning);
    }
    ThinkingConfig { mode, effort: None }
}

fn budget(
    request: &ChatRequest,
    reasoning: &Reasoning,
    generation: (u32, u32),
    max_tokens: u64,
) -> Option<u64> {
    const MIN_BUDGET: u64 = 1_024;
    let tool_use_is_forced = matches!(
        request.tool_choice,
        Some(ToolChoice::Required | ToolChoice::Tool(_) | ToolChoice::Allowed { required: true, .. })
    );
    if generation < (3, 7) || tool_use_is_forced || !has_signed_thinking(&request.messages) {
        return None;
    }
    let requested = reasoning.resolved_budget().unwrap_or(8_192).max(MIN_BUDGET);
    let budget = requested.min(max_tokens.saturating_sub(1));
    (budget >= MIN_BUDGET).then_some(budget)
}

/// Returns whether the tool calls that the last message responds to are preceded by signed thinking. With thinking on,
/// Claude rejects the request otherwise.
fn has_signed_thinking(messages: &[Message]) -> bool {
    let ends_with_tool_result = messages.last().is_some_and(|last| {
        last.role == Role::Tool
            || last.parts.iter().any(|part| matches!(part.content, Content::ToolResult(_)))
    });
    let calling_message = messages.iter().rev().find(|message| message.role == Role::Assistant);
    let signed = |message: &Message| {
        message.parts.iter().any(|part| {
            matches!(part.content, Content::Thinking { signature: Some(_), .. } | Content::Redacted(_))
        })
    };
    !ends_with_tool_result || calling_message.is_none_or(signed)
}

fn supported_effort(effort: &str, generation: (u32, u32)) -> &str {
    match effort {
        "minimal" => "low",
        "xhigh" if generation < (4, 7) => "max",
        other => other,
    }
}

/// Drops the sampling parameters that the generation or the thinking mode does not allow.
pub(super) fn limit_sampling_params(
    request: &mut ChatRequest,
    generation: (u32, u32),
    mode: Option<ThinkingMode>,
    losses: &mut Losses,
) {
    let rejects_sampling = generation >= (4, 7) || mode.is_some_and(|mode| mode != ThinkingMode::Disabled);
    if rejects_sampling && request.temperature.take().is_some() {
        losses.drop(RequestField::Temperature);
    }
    if rejects_sampling && request.top_k.take().is_some() {
        losses.drop(RequestField::TopK);
    }
    let rejects_both = generation >= (4, 1) && request.temperature.is_some();
    if (rejects_sampling || rejects_both) && request.top_p.take().is_some() {
        losses.drop(RequestField::TopP);
    }
    // Claude's maximum is 1; OpenAI and Gemini allow up to 2.
    if let Some(temperature) = &mut request.temperature
        && temperature.as_f64().is_some_and(|value| value > 1.0)
    {
        *temperature = 1.into();
        losses.drop(RequestField::Temperature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_parsed_from_model_names() {
        for (model, expected) in [
            ("claude-3-opus-20240229", Some((3, 0))),
            ("claude-3-5-haiku-latest", Some((3, 5))),
            ("claude-3-7-sonnet-20250219", Some((3, 7))),
            ("claude-sonnet-4-20250514", Some((4, 0))),
            ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", Some((4, 5))),
            ("anthropic.claude-opus-4-6-v1", Some((4, 6))),
            ("anthropic/claude-opus-4.7", Some((4, 7))),
            ("claude-opus-4@20250514", Some((4, 0))),
            ("claude-opus-5", Some((5, 0))),
            ("claude-mythos-preview", Some((u32::MAX, 0))),
            ("amazon.nova-pro-v1:0", None),
        ] {
            assert_eq!(generation(model), expected, "{model}");
        }
    }
}
