//! Targets of Portkey's configs: a provider and a model, with parameters.

use serde_json::{Map, Value};

use super::super::litellm::is_address;
use super::super::providers::{Endpoint, split_version};
use super::super::report::{join, whole};
use super::super::{Secret, Status};
use super::fields::{CACHE, RETRY};
use super::{Importer, kind_of};
use crate::accounts::slugify;
use crate::models::{CacheDefault, CacheDefaultMode, Target};

const MAX_CACHE_TTL_S: u64 = 2_592_000;
const MAX_FIELDS: usize = 50;

impl Importer {
    /// A provider and model.
    pub(super) fn leaf(&mut self, path: &str, config: &Map<String, Value>) -> Option<Target> {
        // A strategy says nothing about a single target, but its fields are named.
        self.strategy(path, config, 1);
        let params_at = join(path, "override_params");
        let none = Map::new();
        let params = config.get("override_params").and_then(|params| self.report.object(&params_at, params));
        let params = params.unwrap_or(&none);
        let model = self.report.text(&params_at, params, "model");
        let model = model.or_else(|| self.report.text(path, config, "model")).map(str::to_owned);
        // A model may name its provider: @slug/model.
        let (slug, model) = match model.as_deref().and_then(|model| model.strip_prefix('@')?.split_once('/'))
        {
            Some((slug, model)) => (Some(slugify(slug)), Some(model.to_owned())),
            None => (None, model),
        };
        let provider = match slug {
            Some(slug) => Some(slug),
            None => self.provider(path, config),
        };
        let Some(provider) = provider else {
            let message = "names no provider that the gateway has; the target is left out";
            self.report.set(if path.is_empty() { "provider" } else { path }, Status::Unsupported, message);
            self.set_params(&params_at, params);
            return None;
        };
        Some(Target {
            id: self.report.text(path, config, "name").map(id_of),
            provider: Some(provider),
            model: Some(model.unwrap_or_else(|| "*".to_owned())),
            params: Some(self.set_params(&params_at, params)).filter(|params| !params.is_empty()),
            timeout_ms: self.timeout(path, config),
            retries: self.retries(path, config),
            ..Target::default()
        })
    }

    /// The name of the provider of a target: that of a virtual key, or the place of an endpoint.
    fn provider(&mut self, path: &str, config: &Map<String, Value>) -> Option<String> {
        if let Some(slug) = self.report.text(path, config, "virtual_key") {
            return Some(slugify(slug)).filter(|slug| !slug.is_empty());
        }
        let name = self.report.text(path, config, "provider")?;
        if let Some(slug) = name.strip_prefix('@') {
            return Some(slugify(slug)).filter(|slug| !slug.is_empty());
        }
        let mut endpoint = Endpoint::of(kind_of(name)?);
        if let Some(host) = self.report.text(path, config, "custom_host") {
            if !is_address(host) {
                let message = "must be a URL such as https://api.example.com; the target is left out";
                self.report.set(&join(path, "custom_host"), Status::Unsupported, message);
                return None;
            }
            let (base, prefix) = split_version(host);
            (endpoint.base_url, endpoint.path_prefix) = (Some(base), prefix);
        }
        if let Some(key) = self.report.text(path, config, "api_key") {
            (endpoint.credential, endpoint.api_key) = (Some(key.to_owned()), Some(Secret::new(key)));
            let message = "the key is in the file in plain text: it is imported and stored encrypted; replace it at the \
                           provider";
            self.report.set(&join(path, "api_key"), Status::Approximate, message);
        }
        // Named when all endpoints are known.
        Some(format!("{ENDPOINT}{}", self.endpoints.place(endpoint)))
    }

    fn set_params(&mut self, path: &str, params: &Map<String, Value>) -> Map<String, Value> {
        let mut set = Map::new();
        for (name, value) in params {
            let at = join(path, name);
            match name.as_str() {
                "model" => self.report.set(&at, Status::Exact, "is the model of the target"),
                "stream" => {
                    self.report.set(&at, Status::Unsupported, "the caller decides whether a call streams");
                }
                _ if set.len() == MAX_FIELDS => {
                    self.report.set(&at, Status::Unsupported, "too many parameters");
                }
                _ => {
                    self.report.set(&at, Status::Exact, "becomes a parameter of the target");
                    set.insert(name.clone(), value.clone());
                }
            }
        }
        set
    }

    pub(super) fn cache(&mut self, path: &str, config: &Map<String, Value>) -> Option<CacheDefault> {
        let at = join(path, "cache");
        let given = config.get("cache").and_then(|cache| self.report.object(&at, cache))?;
        self.report.fields(&at, given, CACHE);
        let mode = match self.report.text(&at, given, "mode") {
            Some("semantic") => CacheDefaultMode::Semantic,
            _ => CacheDefaultMode::Exact,
        };
        let ttl = self.report.number(&at, given, "max_age").map(|age| whole(age).clamp(1, MAX_CACHE_TTL_S));
        Some(CacheDefault { mode, ttl, namespace: None })
    }

    pub(super) fn retries(&mut self, path: &str, config: &Map<String, Value>) -> Option<u32> {
        let at = join(path, "retry");
        let given = config.get("retry").and_then(|retry| self.report.object(&at, retry))?;
        self.report.fields(&at, given, RETRY);
        self.report.retries(&at, given, "attempts")
    }

    /// Portkey's timeouts are in milliseconds.
    pub(super) fn timeout(&mut self, path: &str, config: &Map<String, Value>) -> Option<u64> {
        let milliseconds = whole(self.report.number(path, config, "request_timeout")?);
        (1..=86_400_000).contains(&milliseconds).then_some(milliseconds)
    }
}

/// Before the place of an endpoint, until it has its name. No provider has such a name.
const ENDPOINT: &str = "\u{0}";

pub fn name_endpoints(target: &mut Target, names: &[String]) {
    let place =
        target.provider.as_deref().and_then(|name| name.strip_prefix(ENDPOINT)?.parse::<usize>().ok());
    if let Some(name) = place.and_then(|place| names.get(place)) {
        target.provider = Some(name.clone());
    }
    for target in target.targets.iter_mut().flatten() {
        name_endpoints(target, names);
    }
}

pub fn takes_callers_model(target: &Target) -> bool {
    target.model.as_deref() == Some("*") || target.targets.iter().flatten().any(takes_callers_model)
}

/// The id of a target with this name.
pub fn id_of(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '/' | '@' | '-');
    name.chars().take(64).map(|c| if plain(c) { c } else { '-' }).collect()
}
