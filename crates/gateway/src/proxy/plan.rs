//! Where a request may go, and in which order: the targets of its chain, the provider that a model belongs to, and how
//! the request has to look at each of them.

use gateway_core::llm::paths::Operation;
use gateway_core::route::{self, RouteStrategy, TargetFacts, splitmix64};
use rust_decimal::Decimal;

use super::call::{Adaptation, Call, RouteTarget};
use super::headers::PROVIDER;
use super::target::{self, Target};
use super::target_health::TargetKey;
use super::translate;
use crate::app::App;
use crate::auth::{Identity, Who};
use crate::problem::{ApiResult, Problem};

const FALLBACK: &str = "x-gateway-fallback";
const AUTO: &str = "auto";

/// Finds out where the request may go.
pub fn plan(app: &App, identity: &Identity, call: &mut Call) -> ApiResult<()> {
    let first = if call.provider == AUTO {
        by_model(app, identity, call)?
    } else {
        let target = target::resolve(app, identity, PROVIDER.as_str(), &call.provider)?;
        let model = call.asked_model.clone();
        // Who does not say what it speaks speaks to the provider as it is.
        let adaptation = if call.format_is_set {
            adapt_request(call, &target, model.as_deref(), PROVIDER.as_str())?
        } else {
            Adaptation::Passthrough
        };
        RouteTarget { target, model, adaptation, weight: 1, named: true }
    };
    call.targets.push(first);
    for step in std::mem::take(&mut call.steps) {
        let target = target::resolve(app, identity, FALLBACK, &step.provider)?;
        let model = step.model.or_else(|| call.targets[0].model.clone());
        let weight = step.weight.unwrap_or(1);
        let known = call.targets.iter_mut().find(|hop| hop.target.name == target.name && hop.model == model);
        if let Some(hop) = known {
            // Named again, as one does to give the first target its weight.
            hop.weight = weight;
            continue;
        }
        let adaptation = adapt_fallback(call, &target, model.as_deref(), FALLBACK)?;
        let named = target.name == call.targets[0].target.name && call.targets[0].named;
        call.targets.push(RouteTarget { target, model, adaptation, weight, named });
    }
    Ok(())
}

/// Puts the targets into the order in which they are tried.
pub fn put_in_order(app: &App, identity: &Identity, call: &mut Call, id: i64) {
    if call.targets.len() < 2 || call.route == RouteStrategy::Order {
        return;
    }
    let now = app.services.clock.now();
    let facts: Vec<TargetFacts> = call
        .targets
        .iter()
        .map(|hop| TargetFacts {
            price: price(app, hop),
            latency: app.proxy.health.latency(key_of(identity, hop), now),
            weight: hop.weight,
        })
        .collect();
    let mut places = route::order(call.route, &facts, seed(identity, call, id));
    if call.route == RouteStrategy::Fastest
        && let Some(session) = &call.session
    {
        // What was the fastest changes from one request to the next; a session's prompt cache is at one provider.
        let stays = |place: &usize| {
            let hop = &call.targets[*place];
            !app.proxy.health.is_pinned(session, key_of(identity, hop), now)
        };
        places.sort_by_key(stays);
    }
    let mut targets: Vec<Option<RouteTarget>> = call.targets.drain(..).map(Some).collect();
    call.targets = places.into_iter().filter_map(|place| targets[place].take()).collect();
}

/// Is there anything that can be tried after a failure? Then the body has to be kept.
pub fn has_choice(call: &Call) -> bool {
    call.retries > 0 || call.targets.len() > 1 || call.targets[0].target.credentials.len() > 1
}

/// The same for all requests of a session, so that they meet the same account and its prompt cache. Answers that can
/// be referred to later (`previous_response_id`) are kept together by the key that made them.
pub fn seed(identity: &Identity, call: &Call, id: i64) -> u64 {
    let key = || match &identity.who {
        Who::Key(key) => key.id.0.as_u128(),
        Who::User { id, .. } => id.0.as_u128(),
        Who::Org => 0,
    };
    let fold = |text: &str| text.bytes().fold(0, |seed, byte| splitmix64(seed ^ u64::from(byte)));
    let half = |number: u128| u64::try_from(number & u128::from(u64::MAX)).unwrap_or(0);
    match &call.session {
        Some(session) => fold(session) ^ half(identity.org.id.0.as_u128()),
        None if call.operation == Operation::Responses => half(key()) ^ call.user.as_deref().map_or(0, fold),
        None => splitmix64(id.cast_unsigned()),
    }
}

fn key_of<'a>(identity: &Identity, hop: &'a RouteTarget) -> TargetKey<'a> {
    TargetKey { org: identity.org.id, provider: &hop.target.name, model: hop.model.as_deref() }
}

/// What the same tokens cost here against elsewhere: most calls read about three times what they write.
fn price(app: &App, hop: &RouteTarget) -> Option<Decimal> {
    let price = app.proxy.prices.find(hop.target.kind.name, hop.model.as_deref()?)?;
    Some(price.input_per_mtok? * Decimal::from(3) + price.output_per_mtok?)
}

/// How a request that came for the first target looks at this one.
fn adapt_fallback(call: &Call, target: &Target, model: Option<&str>, header: &str) -> ApiResult<Adaptation> {
    let first = &call.targets[0];
    let same_kind = target.kind.name == first.target.kind.name;
    let same_model = model == call.asked_model.as_deref();
    if same_kind && first.adaptation == Adaptation::Passthrough && (!call.model_in_path || same_model) {
        return Ok(Adaptation::Passthrough);
    }
    adapt_request(call, target, model, header)
}

/// How a request looks at a target that the caller need not have had in mind.
fn adapt_request(call: &Call, target: &Target, model: Option<&str>, header: &str) -> ApiResult<Adaptation> {
    if translate::is_needed(call, target) {
        return if translate::is_possible(call, target) {
            Ok(Adaptation::Translate)
        } else {
            Err(unsupported(target, header))
        };
    }
    if matches!(call.operation, Operation::Other | Operation::Models) {
        return Ok(Adaptation::Passthrough);
    }
    if !call.caller_is_known && call.targets.first().is_some_and(|first| first.target.format != target.format)
    {
        return Err(unsupported(target, header));
    }
    let path = target.kind.path_for(call.operation, model, call.stream);
    path.map(Adaptation::Path).ok_or_else(|| unsupported(target, header))
}

fn unsupported(target: &Target, header: &str) -> Problem {
    Problem::field(header, format!("{} has no endpoint that takes this request", target.name))
}

/// `X-Gateway-Provider: auto`: the provider that the model belongs to.
fn by_model(app: &App, identity: &Identity, call: &Call) -> ApiResult<RouteTarget> {
    let wrong = |why: String| Problem::field(PROVIDER.as_str(), why);
    let Some(asked) = &call.asked_model else {
        return Err(wrong("'auto' needs a request that names a model".into()));
    };
    let prefixed = asked
        .split_once('/')
        .filter(|(name, model)| !model.is_empty() && target::find(app, identity, name).is_some());
    let (name, model, named) = match prefixed {
        Some((name, model)) => (name, model, true),
        None => (one_for(app, identity, asked)?, asked.as_str(), false),
    };
    let target = target::resolve(app, identity, PROVIDER.as_str(), name)?;
    let adaptation = adapt_request(call, &target, Some(model), PROVIDER.as_str())?;
    Ok(RouteTarget { target, model: Some(model.to_owned()), adaptation, weight: 1, named })
}

/// The one provider that has this model: among those that the organization says have it, else among those with a
/// price for it; with a stored credential rather than without.
fn one_for<'a>(app: &'a App, identity: &'a Identity, model: &str) -> ApiResult<&'a str> {
    let own = identity.org.providers.iter();
    let own: Vec<&str> = own
        .filter(|(_, target)| target.models.iter().any(|has| has == model))
        .map(|(name, _)| name.as_str())
        .collect();
    let mut found = if own.is_empty() { app.proxy.prices.providers_for_model(model) } else { own };
    // Without an address, or with a path that only its user can tell, it is no candidate.
    found.retain(|name| {
        target::find(app, identity, name)
            .is_some_and(|target| target.base.is_some() && !target.kind.chat_path.contains("{project}"))
    });
    let ready =
        |name: &&str| target::find(app, identity, name).is_some_and(|target| !target.credentials.is_empty());
    if found.iter().filter(|name| ready(name)).count() == 1 {
        found.retain(ready);
    }
    let shown: String = model.chars().take(100).collect();
    match *found {
        [one] => Ok(one),
        [] => Err(Problem::field(
            PROVIDER.as_str(),
            format!("'auto' knows no provider of the model '{shown}'; name one, or ask for provider/model"),
        )),
        _ => Err(Problem::field(
            PROVIDER.as_str(),
            format!(
                "'auto' finds the model '{shown}' at several providers: {}; name one, or ask for provider/model",
                found.join(", ")
            ),
        )),
    }
}
