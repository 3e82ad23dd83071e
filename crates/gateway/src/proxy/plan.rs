//! The plan of a request: the targets of its route in order, how the request is adapted to each of them, and whether
//! the response is streamed.

pub mod auto;
mod named;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::llm::WireFormat;
use gateway_core::llm::failure::Refusal;
use gateway_core::llm::paths::Operation;
use gateway_core::models::{BodyEdits, Model, ModelTarget, Selection};
use gateway_core::pricing::Price;
use gateway_core::route::{Group, RouteStrategy, TargetFacts, splitmix64};
use rust_decimal::Decimal;

use super::compat::ForeignRoute;
use super::context::RequestContext;
use super::directives::Directives;
use super::facts::RequestFacts;
use super::headers::PROVIDER;
use super::named_model::RequestedPart;
use super::payload::requests_usage;
use super::translate;
use crate::auth::{Identity, Principal};
use crate::problem::{ApiResult, Problem};
use crate::targets::Target;
use crate::targets::auth::signs_body;

const FALLBACK: &str = "x-gateway-fallback";
pub const AUTO: &str = "auto";

pub struct Plan<'a> {
    pub directives: &'a Directives,
    pub facts: RequestFacts,
    pub stream_mode: StreamMode,
    /// In the order in which they are tried, those that are reserved for a refusal last; never empty.
    pub targets: Vec<RouteTarget>,
    /// The named model that the targets are of.
    pub model: Option<PlannedModel>,
    /// The body refers to state that one provider account keeps, so no other account can serve the request.
    pub is_bound: bool,
}

/// The named model of a plan.
pub struct PlannedModel {
    /// As the caller wrote it.
    pub name: String,
    pub model: Arc<Model>,
    /// What a request of another gateway's client asks for in its place.
    pub parts: Vec<RequestedPart>,
    /// Only the first target is called.
    is_single: bool,
    /// Its targets and how they are ordered, by their `place`.
    selection: Arc<Selection>,
    /// What follows a failed attempt depends on why the provider refused the input.
    pub watches_refusals: bool,
}

/// A provider and model that the request may be sent to.
pub struct RouteTarget {
    pub provider: Arc<Target>,
    pub model: Option<String>,
    pub adaptation: Adaptation,
    pub weight: u32,
    /// The caller named this provider, so a credential in the request may be sent to it.
    pub is_named: bool,
    /// The target has refused the option that requests the usage of a stream.
    pub refuses_usage: bool,
    pub max_retries: u32,
    /// Timeout of each attempt.
    pub timeout: Duration,
    /// Its index before the targets are sorted.
    place: usize,
    /// The target of a named model that it is.
    pub spec: Option<Arc<ModelTarget>>,
}

impl RouteTarget {
    /// A target that headers name.
    fn new(
        directives: &Directives,
        provider: Arc<Target>,
        model: Option<String>,
        adaptation: Adaptation,
    ) -> Self {
        Self {
            provider,
            model,
            adaptation,
            weight: 1,
            is_named: true,
            refuses_usage: false,
            max_retries: directives.max_retries.unwrap_or_default(),
            timeout: directives.timeout,
            place: 0,
            spec: None,
        }
    }

    /// The refusal that it is reserved for.
    pub fn reserved_for(&self) -> Option<Refusal> {
        self.spec.as_ref()?.when
    }

    fn is_reserved(&self) -> bool {
        self.reserved_for().is_some()
    }

    /// The fields that it sets in the body.
    pub fn edits(&self) -> Option<&BodyEdits> {
        self.spec.as_ref().map(|spec| &spec.edits).filter(|edits| !edits.is_empty())
    }
}

/// How the request is changed for a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adaptation {
    Passthrough,
    /// Sent to the path that the provider has for the same operation.
    Path(Cow<'static, str>),
    /// Translated into the provider's format.
    Translate,
}

/// Whether the response must be converted between a stream and one body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamMode {
    /// The response streams if the request asks for it.
    Passthrough,
    /// The caller requested one body; a stream is aggregated.
    Aggregate,
    /// The caller requested a stream; a body is converted to one.
    Synthesize,
}

impl StreamMode {
    /// `X-Gateway-Stream` has no effect on operations without streams.
    fn of(directives: &Directives) -> Self {
        let format = WireFormat::of_response(directives.client_format.native(), directives.operation);
        match directives.stream.filter(|_| format.is_some()) {
            None => Self::Passthrough,
            Some(false) => Self::Aggregate,
            Some(true) => Self::Synthesize,
        }
    }
}

impl<'a> Plan<'a> {
    /// Resolves the targets of the request.
    pub fn new(
        context: RequestContext<'_>,
        directives: &'a Directives,
        facts: RequestFacts,
    ) -> ApiResult<Self> {
        let stream_mode = StreamMode::of(directives);
        let mut plan =
            Self { directives, facts, stream_mode, targets: Vec::new(), model: None, is_bound: false };
        plan.targets.reserve(1 + directives.fallbacks.len());
        let first = plan.first_target(context)?;
        plan.targets.push(first);
        plan.add_fallbacks(context)?;
        plan.find_usage_refusals(context);
        Ok(plan)
    }

    fn find_usage_refusals(&mut self, context: RequestContext<'_>) {
        for index in 0..self.targets.len() {
            if requests_usage(self, &self.targets[index]) {
                let key = context.health_key(&self.targets[index]);
                let refuses_usage = context.state.health.refuses_usage(key, context.now());
                self.targets[index].refuses_usage = refuses_usage;
            }
        }
    }

    /// The request to the provider enables streaming.
    pub fn provider_streams(&self) -> bool {
        self.facts.streams || self.stream_mode == StreamMode::Synthesize
    }

    /// The caller receives a stream.
    pub fn caller_streams(&self) -> bool {
        match self.stream_mode {
            StreamMode::Passthrough => self.facts.streams,
            StreamMode::Aggregate => false,
            StreamMode::Synthesize => true,
        }
    }

    /// The caller receives the usage of a stream.
    pub fn shows_usage(&self) -> bool {
        self.facts.include_usage || self.directives.wants_cost
    }

    /// The request to the provider must enable streaming although the caller's request does not.
    pub fn adds_stream(&self) -> bool {
        self.stream_mode == StreamMode::Synthesize && !self.facts.streams
    }

    pub fn user(&self) -> Option<&str> {
        self.directives.user.as_deref().or(self.facts.user.as_deref())
    }

    /// The user of the log row, whose budgets apply. A member is the end user of its own calls. Calls of the organization
    /// itself have none: a request that is made again must not use up the budget of the user that it names.
    pub fn end_user(&self, identity: &Identity) -> Option<Cow<'_, str>> {
        match &identity.principal {
            Principal::User { id, .. } => {
                Some(self.user().map_or_else(|| id.to_string().into(), Cow::Borrowed))
            }
            Principal::Key(_) => self.user().map(Cow::Borrowed),
            Principal::Org => None,
        }
    }

    pub fn has_fallbacks(&self) -> bool {
        self.targets.len() > 1
    }

    /// The format of a response that does not come from a target. None for operations without streams.
    pub fn client_wire_format(&self) -> Option<WireFormat> {
        let Directives { client_format, operation, .. } = *self.directives;
        if !self.directives.is_format_known() {
            return WireFormat::of_response(self.targets[0].provider.format, operation);
        }
        WireFormat::of_response(client_format.native(), operation).map(|_| match operation {
            Operation::Completions => WireFormat::OpenAiCompletions,
            _ => client_format.into(),
        })
    }

    /// The number of targets that are not reserved for a refusal. They come first.
    pub fn unreserved(&self) -> usize {
        self.targets.iter().filter(|target| !target.is_reserved()).count()
    }

    /// What follows a failed attempt depends on why the provider refused the input.
    pub fn watches_refusals(&self) -> bool {
        self.model.as_ref().is_some_and(|model| model.watches_refusals)
    }

    /// Some targets are ordered by their latency.
    pub fn prefers_fast(&self) -> bool {
        match &self.model {
            Some(model) => model.selection.route.uses(RouteStrategy::Fastest),
            None => self.directives.strategy == Some(RouteStrategy::Fastest),
        }
    }

    /// The price of a target: that of the named model, or else the known one.
    pub fn price<'p>(&'p self, context: RequestContext<'p>, target: &'p RouteTarget) -> Option<&'p Price> {
        if let Some(own) = target.spec.as_ref().and_then(|spec| spec.price.as_deref()) {
            return Some(own);
        }
        let model = target.model.as_deref().or(self.facts.body_model.as_deref())?;
        context.state.prices.find(target.provider.kind.name, model)
    }

    /// Sorts the targets into the order in which they are tried.
    pub fn sort_targets(&mut self, context: RequestContext<'_>, log_id: i64) {
        let strategy = self.directives.strategy.unwrap_or_default();
        if !self.has_fallbacks() || (self.model.is_none() && strategy == RouteStrategy::Order) {
            return;
        }
        let prefers_fast = self.prefers_fast();
        let (health, now) = (&context.state.health, context.now());
        let is_pinned = |target: &RouteTarget| {
            let conversation = self.directives.conversation();
            conversation.is_some_and(|text| health.is_pinned(text, context.health_key(target), now))
        };
        let places = self.targets.iter().map(|target| target.place + 1).max().unwrap_or_default();
        let mut facts = vec![TargetFacts::default(); places];
        for target in &self.targets {
            facts[target.place] = TargetFacts {
                price: self.relative_price(context, target),
                latency: health.latency(context.health_key(target), now),
                is_pinned: prefers_fast && is_pinned(target),
                weight: target.weight,
            };
        }
        let seed = self.seed(context.identity, log_id);
        let order = match &self.model {
            Some(model) => model.selection.route.order(&facts, seed),
            None => {
                Group::flat(strategy, self.targets.iter().map(|target| target.weight)).order(&facts, seed)
            }
        };
        // Reserved targets are not in the order, so they stay last.
        let rank = |place: usize| order.iter().position(|ordered| *ordered == place).unwrap_or(usize::MAX);
        self.targets.sort_by_key(|target| rank(target.place));
        if self.model.as_ref().is_some_and(|model| model.is_single) {
            self.targets.truncate(1);
        }
    }

    /// The place of a target in the route and in its groups; empty for the only one.
    pub fn option_of(&self, target: &RouteTarget) -> Vec<usize> {
        match &self.model {
            _ if !self.has_fallbacks() => Vec::new(),
            Some(model) => model.selection.route.path_to(target.place).unwrap_or_default(),
            None => vec![target.place],
        }
    }

    /// The relative price of a target. Most requests read about three times as many tokens as they write.
    fn relative_price(&self, context: RequestContext<'_>, target: &RouteTarget) -> Option<Decimal> {
        let price = self.price(context, target)?;
        Some(price.input_per_mtok? * Decimal::from(3) + price.output_per_mtok?)
    }

    /// Seeds the choice of targets and credentials. Requests of a session share it, so that they use the same account
    /// and its prompt cache. Responses that can be referred to later (`previous_response_id`) share it per key.
    pub fn seed(&self, identity: &Identity, log_id: i64) -> u64 {
        let caller = || match &identity.principal {
            Principal::Key(key) => key.id.0.as_u128(),
            Principal::User { id, .. } => id.0.as_u128(),
            Principal::Org => 0,
        };
        let hash = |text: &str| text.bytes().fold(0, |hash, byte| splitmix64(hash ^ u64::from(byte)));
        let low_half = |number: u128| u64::try_from(number & u128::from(u64::MAX)).unwrap_or(0);
        match self.directives.conversation() {
            Some(conversation) => hash(conversation) ^ low_half(identity.org.id.0.as_u128()),
            None if self.directives.operation == Operation::Responses => {
                low_half(caller()) ^ self.user().map_or(0, hash)
            }
            None => splitmix64(log_id.cast_unsigned()),
        }
    }

    /// Returns true if the body must be buffered, because it is edited or may be sent more than once.
    pub fn needs_whole_body(&self) -> bool {
        let is_edited = |target: &RouteTarget| {
            target.provider.is_sandbox()
                || target.model != self.facts.model
                || target.adaptation == Adaptation::Translate
                || requests_usage(self, target)
                || target.edits().is_some()
                || self.directives.prompt_cache.applies_to(target)
                || signs_body(&target.provider)
        };
        self.has_alternatives()
            || self.directives.cache.is_some()
            || self.adds_stream()
            || self.targets.iter().any(is_edited)
    }

    fn has_alternatives(&self) -> bool {
        self.has_fallbacks()
            || self.targets[0].max_retries > 0
            || self.targets[0].provider.credentials.len() > 1
    }

    /// Restricts the route to the first provider if the body refers to state that only its account has.
    pub fn bind_to_account(&mut self, body: &[u8]) {
        if !refers_to_account_state(self.directives.operation, body) {
            return;
        }
        self.is_bound = true;
        let first = Arc::clone(&self.targets[0].provider);
        self.targets.retain(|target| target.provider.name == first.name);
    }

    fn first_target(&self, context: RequestContext<'_>) -> ApiResult<RouteTarget> {
        if self.directives.provider == AUTO {
            return auto::target(context, self);
        }
        let provider = context.resolve_provider(PROVIDER.as_str(), &self.directives.provider)?;
        let model = self.facts.model.clone();
        // Without X-Gateway-Format the request is forwarded unchanged, unless the caller's dialect has it otherwise.
        let is_translated = || {
            let route = context.head.extensions.get::<ForeignRoute>();
            route.is_some_and(|ForeignRoute(route)| route.is_translated)
                && translate::is_needed(self.directives, &provider)
        };
        let adaptation = if self.directives.is_format_declared() || is_translated() {
            self.adapt_request(&provider, model.as_deref(), PROVIDER.as_str())?
        } else {
            Adaptation::Passthrough
        };
        Ok(RouteTarget::new(self.directives, provider, model, adaptation))
    }

    fn add_fallbacks(&mut self, context: RequestContext<'_>) -> ApiResult<()> {
        for step in &self.directives.fallbacks {
            let provider = context.resolve_provider(FALLBACK, &step.provider)?;
            let model = step.model.clone().or_else(|| self.targets[0].model.clone());
            let weight = step.weight.unwrap_or(1);
            let is_same =
                |target: &&mut RouteTarget| target.provider.name == provider.name && target.model == model;
            if let Some(target) = self.targets.iter_mut().find(is_same) {
                // Listing the first target again is how a caller gives it a weight.
                target.weight = weight;
                continue;
            }
            let adaptation = self.adapt_fallback(&provider, model.as_deref())?;
            let is_named = provider.name == self.targets[0].provider.name && self.targets[0].is_named;
            let target = RouteTarget::new(self.directives, provider, model, adaptation);
            let place = self.targets.len();
            self.targets.push(RouteTarget { weight, is_named, place, ..target });
        }
        Ok(())
    }

    /// How the request is adapted to a fallback target.
    fn adapt_fallback(&self, provider: &Target, model: Option<&str>) -> ApiResult<Adaptation> {
        let first = &self.targets[0];
        let same_kind = provider.kind.name == first.provider.kind.name;
        let same_model = model == self.facts.model.as_deref();
        if same_kind
            && first.adaptation == Adaptation::Passthrough
            && (!self.facts.model_in_path || same_model)
        {
            return Ok(Adaptation::Passthrough);
        }
        self.adapt_request(provider, model, FALLBACK)
    }

    /// How the request is adapted to a provider that it may not have been written for. `header` named the provider.
    fn adapt_request(&self, provider: &Target, model: Option<&str>, header: &str) -> ApiResult<Adaptation> {
        let unsupported =
            || Problem::field(header, format!("{} has no endpoint for this request", provider.name));
        if translate::is_needed(self.directives, provider) {
            return if translate::is_possible(self, provider) {
                Ok(Adaptation::Translate)
            } else {
                Err(unsupported())
            };
        }
        let operation = self.directives.operation;
        if matches!(operation, Operation::Other | Operation::Models) {
            return Ok(Adaptation::Passthrough);
        }
        let differs = |first: &RouteTarget| first.provider.format != provider.format;
        if !self.directives.is_format_known() && self.targets.first().is_some_and(differs) {
            return Err(unsupported());
        }
        let path = provider.kind.path_for(operation, model, self.provider_streams());
        path.map(Adaptation::Path).ok_or_else(unsupported)
    }
}

fn refers_to_account_state(operation: Operation, body: &[u8]) -> bool {
    let starts_string = |after: &[u8]| {
        let value = after.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        value.is_some_and(|value| value.starts_with(b"\""))
    };
    let has_string = |key: &[u8]| {
        memchr::memmem::find_iter(body, key).any(|at| body.get(at + key.len()..).is_some_and(starts_string))
    };
    operation == Operation::Responses
        && (has_string(b"\"previous_response_id\"") || has_string(b"\"encrypted_content\""))
}

#[cfg(test)]
mod tests;
