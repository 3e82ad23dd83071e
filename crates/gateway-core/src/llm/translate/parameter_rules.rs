//! Rules about request parameters that several provider formats share.

use std::collections::HashSet;

use super::super::chat::{ChatRequest, Losses, RequestField, Tool, ToolChoice, TranslationError};

/// For formats that support only the basic parameters. Rejects the request if dropping a parameter would change its
/// meaning, and records the other unsupported parameters as dropped.
pub(super) fn check_common_params(
    request: &ChatRequest,
    losses: &mut Losses,
) -> Result<(), TranslationError> {
    if request.n.is_some_and(|n| n > 1) {
        return Err(losses
            .unsupported(RequestField::N, "this provider returns a single choice; set it to 1 or omit it"));
    }
    if request.logprobs || request.top_logprobs.is_some_and(|top| top > 0) {
        return Err(
            losses.unsupported(RequestField::Logprobs, "this provider does not return log probabilities")
        );
    }
    if request.logit_bias.as_ref().and_then(serde_json::Value::as_object).is_some_and(|bias| !bias.is_empty())
    {
        return Err(losses.unsupported(RequestField::LogitBias, "this provider does not support logit bias"));
    }
    for (is_present, field) in [
        (request.seed.is_some(), RequestField::Seed),
        (request.frequency_penalty.as_ref().is_some_and(is_nonzero), RequestField::FrequencyPenalty),
        (request.presence_penalty.as_ref().is_some_and(is_nonzero), RequestField::PresencePenalty),
        (request.store == Some(true), RequestField::Store),
        (request.service_tier.as_deref().is_some_and(|tier| tier != "auto"), RequestField::ServiceTier),
        (request.prompt_cache_key.is_some(), RequestField::PromptCacheKey),
        (request.verbosity.is_some(), RequestField::Verbosity),
        (
            request.reasoning.as_ref().is_some_and(|reasoning| reasoning.display.is_some()),
            RequestField::ReasoningShow,
        ),
    ] {
        if is_present {
            losses.drop(field);
        }
    }
    Ok(())
}

fn is_nonzero(number: &serde_json::Number) -> bool {
    number.as_f64() != Some(0.0)
}

/// Applies `ToolChoice::Allowed` for formats without a counterpart, by removing all other tools.
pub(super) fn restrict_to_allowed_tools(
    choice: Option<ToolChoice>,
    tools: &mut Vec<Tool>,
) -> Option<ToolChoice> {
    match choice {
        Some(ToolChoice::Allowed { mut names, required }) => {
            let allowed: HashSet<&String> = names.iter().collect();
            tools.retain(|tool| match tool {
                Tool::Function(function) => allowed.contains(&function.name),
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

/// Drops a user name that exceeds OpenAI's length limit. Some clients send whole session keys.
pub(super) fn user_within_limit(user: Option<String>, losses: &mut Losses) -> Option<String> {
    const MAX_USER_CHARS: usize = 64;
    user.filter(|user| {
        let fits = user.chars().count() <= MAX_USER_CHARS;
        if !fits {
            losses.drop(RequestField::User);
        }
        fits
    })
}
