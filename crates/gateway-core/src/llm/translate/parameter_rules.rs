//! Rules that several providers' formats share.

use super::super::chat::{ChatRequest, Losses, RequestField, Tool, ToolChoice, TranslationError};

/// For formats with no more than the plain parameters: refuses what would change the meaning if it were left out, and
/// notes what would not.
pub(super) fn check_common_params(
    request: &ChatRequest,
    losses: &mut Losses,
) -> Result<(), TranslationError> {
    if request.n.is_some_and(|n| n > 1) {
        return Err(losses.unsupported(RequestField::N, "this provider gives one answer at a time"));
    }
    if request.logprobs || request.top_logprobs.is_some_and(|top| top > 0) {
        return Err(losses.unsupported(RequestField::Logprobs, "this provider tells no log probabilities"));
    }
    if request.logit_bias.as_ref().and_then(serde_json::Value::as_object).is_some_and(|bias| !bias.is_empty())
    {
        return Err(losses.unsupported(RequestField::LogitBias, "this provider cannot bias tokens"));
    }
    for (there, field) in [
        (request.seed.is_some(), RequestField::Seed),
        (request.frequency_penalty.as_ref().is_some_and(is_set), RequestField::FrequencyPenalty),
        (request.presence_penalty.as_ref().is_some_and(is_set), RequestField::PresencePenalty),
        (request.store == Some(true), RequestField::Store),
        (request.service_tier.as_deref().is_some_and(|tier| tier != "auto"), RequestField::ServiceTier),
        (request.prompt_cache_key.is_some(), RequestField::PromptCacheKey),
        (request.verbosity.is_some(), RequestField::Verbosity),
        (
            request.reasoning.as_ref().is_some_and(|reasoning| reasoning.show.is_some()),
            RequestField::ReasoningShow,
        ),
    ] {
        if there {
            losses.drop(field);
        }
    }
    Ok(())
}

fn is_set(number: &serde_json::Number) -> bool {
    number.as_f64() != Some(0.0)
}

/// Does what `Allowed` asks for where a format has no word for it: the other tools are left out.
pub(super) fn restrict_to_allowed_tools(
    choice: Option<ToolChoice>,
    tools: &mut Vec<Tool>,
) -> Option<ToolChoice> {
    match choice {
        Some(ToolChoice::Allowed { mut names, required }) => {
            tools.retain(|tool| match tool {
                Tool::Function(function) => names.contains(&function.name),
                Tool::Other(_) => true,
            });
            match (required, names.len()) {
                (true, 1) => names.pop().map(ToolChoice::Tool),
                (true, _) => Some(ToolChoice::Required),
                (false, _) => Some(ToolChoice::Auto),
            }
        }
        other => other,
    }
}

/// OpenAI takes no longer names of users than this; some clients send whole session keys.
pub(super) fn user_within_limit(user: Option<String>, losses: &mut Losses) -> Option<String> {
    const LONGEST: usize = 64;
    user.filter(|user| {
        let fits = user.chars().count() <= LONGEST;
        if !fits {
            losses.drop(RequestField::User);
        }
        fits
    })
}
