//! The route of a request below `/compat` that describes it itself: several models, preferences among providers, or a
//! config in the place of a named model. It becomes the targets of one plan, like those of a named model.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use gateway_core::compat::{Fallback, Name, OwnFallbacks, Preferences, Route, TargetInfo};
use gateway_core::llm::providers::SANDBOX;
use gateway_core::models::{BodyFields, Definition, Model, ModelTarget, Selection};
use gateway_core::pricing::Price;
use gateway_core::scopes::Scopes;
use serde_json::Map;

use super::{Facts, NamedModel, check, check_headers, stored_name};
use crate::problem::{ApiResult, Problem};
use crate::proxy::context::RequestContext;
use crate::proxy::directives::Directives;
use crate::proxy::facts::RequestFacts;
use crate::proxy::inbound::Inbound;
use crate::proxy::plan::{AUTO, auto};

/// A model of the request, as the scopes of keys see it.
pub struct RequestedPart {
    /// The named model that the targets are of.
    named: Option<String>,
    /// Providers and models.
    targets: Vec<(String, String)>,
}

impl RequestedPart {
    /// Whether the scopes of a key allow it.
    pub fn is_allowed(&self, scopes: &Scopes) -> bool {
        match &self.named {
            Some(name) => {
                scopes.allow_named(name, self.targets.iter().map(|(provider, _)| provider.as_str()))
            }
            None => self.targets.iter().all(|(provider, model)| scopes.allow(provider, Some(model))),
        }
    }
}

/// The targets of the route. None: it is planned like any other.
pub async fn find(
    context: RequestContext<'_>,
    directives: &mut Directives,
    facts: &RequestFacts,
    (inbound, route): (&mut Inbound, &Route),
) -> ApiResult<Option<NamedModel>> {
    // The answers of the sandbox do not depend on a route.
    if directives.provider == SANDBOX {
        return Ok(None);
    }
    let shown: String = facts.model.as_deref().unwrap_or("config").chars().take(100).collect();
    check_headers(directives, &shown)?;
    inbound.read_prefix(usize::MAX).await?;
    let (body, fields) = (inbound.first_chunk(), OnceCell::new());
    let request = Request { context, directives, facts, route, body, fields };
    let found = match &route.config {
        Some(config) => request.of_config(config)?,
        None => match request.first_name()? {
            Some(name) => request.of_names(&name)?,
            None => return Ok(None),
        },
    };
    let Found { model, mut selection, parts } = found;
    if facts.streams
        && let Some(timeout) = route.first_byte_timeout
    {
        selection.map(|target| target.first_byte_timeout = Some(timeout));
    }
    let (model, stored) =
        model.unwrap_or_else(|| (Arc::new(Model::of_request(selection.targets.clone())), shown.clone()));
    directives.adopt(&model, || stored);
    let name = facts.model.clone().unwrap_or(shown);
    let is_single = route.preferences.is_single();
    let selection = Arc::new(selection);
    Ok(Some(NamedModel { name, model, selection, parts, is_single, star: None }))
}

/// A request with what its route depends on.
struct Request<'r> {
    context: RequestContext<'r>,
    directives: &'r Directives,
    facts: &'r RequestFacts,
    route: &'r Route,
    body: &'r [u8],
    /// The fields of the body that conditions ask about. They are read once for all models.
    fields: OnceCell<BodyFields<'r>>,
}

struct Found {
    /// The named model or config that comes first, and the name that it is stored with.
    model: Option<(Arc<Model>, String)>,
    selection: Selection,
    parts: Vec<RequestedPart>,
}

impl<'r> Request<'r> {
    /// What the request asks for first. None: it names no model.
    fn first_name(&self) -> ApiResult<Option<Name>> {
        let Self { directives, facts, route, .. } = *self;
        let Some(model) = &facts.model else { return Ok(None) };
        if facts.body_model.is_some() && facts.body_model != facts.model {
            let why = "is another one in the body than in the path";
            return Err(Problem::field("model", why));
        }
        if directives.provider == AUTO {
            return Ok(Some(route.requested.clone().unwrap_or_else(|| Name::Bare(model.clone()))));
        }
        Ok(Some(Name::Target { provider: directives.provider.clone(), model: model.clone() }))
    }

    fn of_config(&self, config: &Definition) -> ApiResult<Found> {
        let model = Model::compile(config).map_err(|error| Problem::unprocessable(error.to_string()))?;
        let mut selection = self.select(&model);
        selection.map(|target| target.fill_star(self.facts.model.as_deref()));
        if selection.targets.iter().any(|target| target.has_star()) {
            let why = "is required, because a target of the config takes the model of the request";
            return Err(Problem::field("model", why));
        }
        let parts = vec![direct_part(&selection)];
        Ok(Found { model: Some((Arc::new(model), "config".to_owned())), selection, parts })
    }

    fn of_names(&self, first: &Name) -> ApiResult<Found> {
        let none = Map::new();
        let fallbacks = self.route.fallbacks.iter().filter(|_| !self.route.is_without_fallbacks);
        let fallbacks = fallbacks.map(|Fallback { name, params }| (name, params));
        let mut model = None;
        let (mut selections, mut parts) = (Vec::new(), Vec::new());
        let mut refused = None;
        for (place, (name, params)) in [(first, &none)].into_iter().chain(fallbacks).enumerate() {
            let found = match name {
                Name::Model(name) => self.of_named(name)?,
                Name::Target { provider, model } => self.of_target(provider, model, params),
                Name::Bare(model) => {
                    let preferred = self.route.preferences.first_choice();
                    let preferred = preferred.filter(|name| self.context.find_provider(name).is_some());
                    let provider = match preferred {
                        Some(provider) => provider,
                        None => auto::only_provider_of(self.context, model)?,
                    };
                    self.of_target(provider, model, params)
                }
            };
            if place == 0 {
                model = found.model;
            }
            let info = Targets { context: self.context };
            match self.route.preferences.apply(found.selection, &info) {
                Some(selection) => {
                    selections.push(selection);
                    parts.extend(found.parts);
                }
                None => refused = refused.or_else(|| Some(name.text())),
            }
        }
        if let Some(name) = refused.filter(|_| selections.is_empty()) {
            let shown: String = name.chars().take(100).collect();
            return Err(Problem::unprocessable(format!(
                "provider: no target of the model '{shown}' is left; allow another provider or a higher price, or store a provider with no_retention"
            )));
        }
        let mut selection = Selection::in_order(selections);
        if self.route.is_without_fallbacks {
            selection.keep_first(false);
        }
        Ok(Found { model, selection, parts })
    }

    fn select(&self, model: &Model) -> Selection {
        let none = BodyFields::default();
        let asks = model.params().next().is_some();
        let fields = if asks { self.fields.get_or_init(|| self.read_fields(model)) } else { &none };
        let Self { context, directives, facts, body, .. } = *self;
        let facts = Facts { context, directives, request: facts, fields, body_bytes: body.len() };
        Arc::unwrap_or_clone(model.select(&facts))
    }

    /// The fields that the conditions of this model ask about, and those of the named models that come after it.
    fn read_fields(&self, model: &Model) -> BodyFields<'r> {
        let models = &self.context.identity.org.models;
        let mut names: BTreeSet<String> = model.params().map(ToOwned::to_owned).collect();
        for Fallback { name, .. } in &self.route.fallbacks {
            if let Name::Model(name) = name
                && let Ok(Some((model, _))) = models.find(name)
            {
                names.extend(model.params().map(ToOwned::to_owned));
            }
        }
        BodyFields::read(self.body, names.iter().map(String::as_str))
    }

    fn of_named(&self, name: &str) -> ApiResult<Found> {
        let shown: String = name.chars().take(100).collect();
        let Some((model, star)) = self.context.identity.org.models.find(name)? else {
            return Err(Problem::field("model", format!("there is no named model '{shown}'")));
        };
        check(self.context, self.directives, self.facts, &model, &shown)?;
        let mut selection = self.select(&model);
        if self.route.own_fallbacks != OwnFallbacks::All {
            selection.keep_first(self.route.own_fallbacks == OwnFallbacks::AfterRefusals);
        }
        selection.map(|target| target.fill_star(star));
        let targets = model.targets().iter().map(|target| (target.provider.clone(), target.model(star)));
        let part = RequestedPart { named: Some(name.to_owned()), targets: targets.collect() };
        Ok(Found { model: Some((model, stored_name(name, star))), selection, parts: vec![part] })
    }

    /// A model of a provider, and of others if the request has preferences among providers.
    fn of_target(&self, provider: &str, model: &str, params: &Map<String, serde_json::Value>) -> Found {
        let candidates = candidates(self.context, &self.route.preferences, (provider, model));
        let target = |(provider, model): (String, String)| {
            let target = ModelTarget::direct(provider, model);
            if params.is_empty() { target } else { target.with_params(params) }
        };
        let selection = Selection::of(candidates.into_iter().map(target).collect());
        let parts = vec![direct_part(&selection)];
        Found { model: None, selection, parts }
    }
}

fn direct_part(selection: &Selection) -> RequestedPart {
    let targets = selection.targets.iter().map(|target| (target.provider.clone(), target.model(None)));
    RequestedPart { named: None, targets: targets.collect() }
}

/// The provider that a request names with its model, those of its preferences, and others that are ready for it.
fn candidates(
    context: RequestContext<'_>,
    preferences: &Preferences,
    (provider, model): (&str, &str),
) -> Vec<(String, String)> {
    let named = [(provider.to_owned(), model.to_owned())];
    if preferences.is_empty() {
        return named.into();
    }
    let full = format!("{provider}/{model}");
    // Resellers call models by the vendor and the model.
    let at = |name: &str| {
        let has = |target: &crate::targets::Target, model: &str| {
            target.models.iter().any(|listed| listed == model)
                || context.state.prices.find(target.kind.name, model).is_some()
        };
        let is_full =
            context.find_provider(name).is_some_and(|target| !has(target, model) && has(target, &full));
        (name.to_owned(), if is_full { full.clone() } else { model.to_owned() })
    };
    let mut found: Vec<(String, String)> = Vec::new();
    let preferred = preferences.order.iter().chain(&preferences.only);
    for name in preferred.filter(|name| context.find_provider(name).is_some() && **name != provider) {
        if !found.iter().any(|(known, _)| known == name) {
            found.push(at(name));
        }
    }
    let is_ready = |name: &str| {
        let target = context.find_provider(name);
        target.is_some_and(|target| !target.credentials.is_empty() && target.base.is_some())
    };
    if preferences.admits_others() {
        let own = context.identity.org.providers.own().iter();
        let own =
            own.filter(|(_, target)| target.models.iter().any(|listed| listed == model || *listed == full));
        let priced = context.state.prices.providers_for_model(model).into_iter();
        let others: BTreeSet<&str> = own.map(|(name, _)| name.as_str()).chain(priced).collect();
        for name in others.into_iter().filter(|name| *name != provider && is_ready(name)) {
            if !found.iter().any(|(known, _)| known == name) {
                found.push(at(name));
            }
        }
    }
    let is_preferred =
        |name: &str| preferences.order.iter().chain(&preferences.only).any(|other| other == name);
    if !found.is_empty() && !is_ready(provider) && !is_preferred(provider) {
        return found;
    }
    let mut all: Vec<(String, String)> = named.into();
    all.append(&mut found);
    all
}

struct Targets<'r> {
    context: RequestContext<'r>,
}

impl TargetInfo for Targets<'_> {
    fn kind(&self, provider: &str) -> Option<&str> {
        self.context.find_provider(provider).map(|target| target.kind.name)
    }

    fn keeps_nothing(&self, provider: &str) -> bool {
        self.context.find_provider(provider).is_some_and(|target| target.no_retention)
    }

    fn price(&self, target: &ModelTarget) -> Option<&Price> {
        let kind = self.kind(&target.provider)?;
        self.context.state.prices.find(kind, &target.model(None))
    }
}
