//! `X-Gateway-Provider: auto` for a model that is not a named one: finds the provider that has it.

use super::{AUTO, Plan, RouteTarget};
use crate::problem::{ApiResult, Problem};
use crate::proxy::context::RequestContext;
use crate::proxy::headers::PROVIDER;

pub fn target(context: RequestContext<'_>, plan: &Plan<'_>) -> ApiResult<RouteTarget> {
    let Some(requested) = &plan.facts.model else {
        return Err(invalid(format!("'{AUTO}' needs a request that names a model")));
    };
    let prefixed = requested
        .split_once('/')
        .filter(|(name, model)| !model.is_empty() && context.find_provider(name).is_some());
    let (name, model, is_named) = match prefixed {
        Some((name, model)) => (name, model, true),
        None => (only_provider_of(context, requested)?, requested.as_str(), false),
    };
    let provider = context.resolve_provider(PROVIDER.as_str(), name)?;
    let adaptation = plan.adapt_request(&provider, Some(model), PROVIDER.as_str())?;
    let model = Some(model.to_owned());
    Ok(RouteTarget { is_named, ..RouteTarget::new(plan.directives, provider, model, adaptation) })
}

/// The one provider of a model: among those for which the organization lists the model, else among those with a price
/// for it. If several have it, the only one with a stored credential.
pub fn only_provider_of<'a>(context: RequestContext<'a>, model: &str) -> ApiResult<&'a str> {
    let own = context.identity.org.providers.own().iter();
    let own: Vec<&str> = own
        .filter(|(_, target)| target.models.iter().any(|listed| listed == model))
        .map(|(name, _)| name.as_str())
        .collect();
    let mut found = if own.is_empty() { context.state.prices.providers_for_model(model) } else { own };
    // A provider needs an address, and a path without parts that only the caller knows.
    found.retain(|name| {
        context
            .find_provider(name)
            .is_some_and(|target| target.has_address() && !target.kind.chat_path.contains("{project}"))
    });
    let has_credential =
        |name: &&str| context.find_provider(name).is_some_and(|target| !target.credentials.is_empty());
    if found.iter().filter(|name| has_credential(name)).count() == 1 {
        found.retain(has_credential);
    }
    let shown: String = model.chars().take(100).collect();
    match *found {
        [name] => Ok(name),
        [] => Err(invalid(format!(
            "'{AUTO}' knows no provider of the model '{shown}'; name one, or ask for provider/model"
        ))),
        _ => Err(invalid(format!(
            "'{AUTO}' finds the model '{shown}' at several providers: {}; name one, or ask for provider/model",
            found.join(", ")
        ))),
    }
}

fn invalid(message: String) -> Problem {
    Problem::field(PROVIDER.as_str(), message)
}
