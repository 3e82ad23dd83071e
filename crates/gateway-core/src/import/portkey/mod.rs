//! Portkey's saved configs and virtual keys: each config becomes a named model that is called by its slug, each virtual
//! key a provider of its name. The values of virtual keys cannot be exported, so they are stored by hand.

mod fields;
mod limits;
mod strategy;
mod target;

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};

use super::assemble::{empty, push, strategy, whole_weights};
use super::providers::Endpoints;
use super::report::{Report, item, join};
use super::{
    Import, ImportError, Plan, PlannedGuardrail, PlannedModel, PlannedProvider, Secret, Status, parse,
};
use crate::accounts::slugify;
use crate::models::{Mode, Strategy, Target};
use fields::{CONFIG, ROOT, SAVED, VIRTUAL_KEY};
use target::{id_of, name_endpoints, takes_callers_model};

/// Portkey's names of providers, where they differ from the gateway's.
pub const PROVIDERS: [(&str, &str); 9] = [
    ("google", "gemini"),
    ("mistral-ai", "mistral"),
    ("together-ai", "together"),
    ("fireworks-ai", "fireworks"),
    ("x-ai", "xai"),
    ("perplexity-ai", "perplexity"),
    ("azure", "azure-openai"),
    ("aws-bedrock", "bedrock"),
    ("lm-studio", "lmstudio"),
];
/// Fields of a target that a config with targets, or a group, does not have.
const OF_TARGETS: [&str; 6] =
    ["override_params", "provider", "virtual_key", "api_key", "custom_host", "model"];

const MAX_NAME_CHARS: usize = 128;
const GUARDRAILS: [&str; 6] = [
    "input_guardrails",
    "output_guardrails",
    "default_input_guardrails",
    "default_output_guardrails",
    "before_request_hooks",
    "after_request_hooks",
];

/// The built-in provider that Portkey calls by this name.
pub fn kind_of(name: &str) -> Option<&'static str> {
    let name = PROVIDERS.iter().find(|(theirs, _)| *theirs == name).map_or(name, |(_, ours)| *ours);
    crate::llm::providers::builtin(name).map(|provider| provider.name).filter(|name| *name != "vertex")
}

pub fn plan(text: &str) -> Result<Import, ImportError> {
    let root = parse::object(parse::json(text)?, "JSON")?;
    let mut import = Importer::default();
    if root.contains_key("configs") || root.contains_key("virtual_keys") {
        import.report.fields("", &root, ROOT);
        import.virtual_keys(root.get("virtual_keys"));
        for (index, saved) in import.report.list("configs", root.get("configs")).iter().enumerate() {
            import.saved(&item("configs", index), saved);
        }
    } else {
        import.config("", "imported", "", &root);
    }
    Ok(import.finish())
}

/// A single config, as requests have it.
pub fn config(text: &str) -> Result<Import, ImportError> {
    let root = parse::object(parse::json(text)?, "JSON")?;
    let mut import = Importer::default();
    import.config("", "imported", "", &root);
    Ok(import.finish())
}

#[derive(Default)]
struct Importer {
    report: Report,
    endpoints: Endpoints,
    providers: Vec<PlannedProvider>,
    models: Vec<PlannedModel>,
    guardrails: Vec<PlannedGuardrail>,
    /// Path, virtual key and limits of it.
    rate_limits: Vec<(String, String, Vec<Value>)>,
}

impl Importer {
    fn finish(mut self) -> Import {
        let names = self.endpoints.names();
        for target in self.models.iter_mut().flat_map(|model| &mut model.definition.targets) {
            name_endpoints(target, &names);
        }
        let limits = limits::planned(&mut self.report, &self.rate_limits, &self.models);
        self.providers.extend(self.endpoints.into_planned());
        let Self { providers, models, guardrails, .. } = self;
        let plan = Plan { providers, models, limits, guardrails, ..Plan::default() };
        Import { plan, findings: self.report.into_findings() }
    }

    fn virtual_keys(&mut self, list: Option<&Value>) {
        let mut names = HashSet::new();
        for (index, entry) in self.report.list("virtual_keys", list).iter().enumerate() {
            let at = item("virtual_keys", index);
            let Some(entry) = self.report.object(&at, entry) else { continue };
            self.report.fields(&at, entry, VIRTUAL_KEY);
            let slug = self.report.text(&at, entry, "slug").map(slugify).unwrap_or_default();
            let kind = self.report.text(&at, entry, "provider");
            let kind = kind.or_else(|| self.report.text(&at, entry, "ai_provider_name")).and_then(kind_of);
            let api_key = self.report.text(&at, entry, "key").map(Secret::new);
            match kind {
                Some(kind) if !slug.is_empty() && slug != "auto" && names.insert(slug.clone()) => {
                    if api_key.is_none() {
                        let message = format!(
                            "Portkey does not export its value: store it with PUT /orgs/:orgId/providers/{slug}"
                        );
                        self.report.set(&at, Status::Manual, message);
                    }
                    self.endpoints.reserve(&slug);
                    let limits_at = join(&at, "rate_limits");
                    let limits = self.report.list(&limits_at, entry.get("rate_limits")).to_vec();
                    self.rate_limits.push((limits_at, slug.clone(), limits));
                    let kind = kind.to_owned();
                    let (base_url, path_prefix, headers) = (None, None, BTreeMap::new());
                    self.providers.push(PlannedProvider {
                        name: slug,
                        kind,
                        base_url,
                        path_prefix,
                        api_key,
                        headers,
                    });
                }
                _ => {
                    let message = "a virtual key needs a slug of its own and a provider that the gateway has";
                    self.report.set(&at, Status::Unsupported, message);
                }
            }
        }
    }

    fn saved(&mut self, path: &str, saved: &Value) {
        let Some(saved) = self.report.object(path, saved) else { return };
        let mut saved = saved.clone();
        let at = join(path, "config");
        // The API of Portkey has the config as a text.
        if let Some(Value::String(text)) = saved.get("config")
            && let Ok(config @ Value::Object(_)) = serde_json::from_str(text)
        {
            self.report.set(&at, Status::Exact, "is the definition of the model");
            saved.insert("config".to_owned(), config);
        }
        self.report.fields(path, &saved, SAVED);
        let title = self.report.text(path, &saved, "name").unwrap_or_default().to_owned();
        let slug = self.report.text(path, &saved, "slug");
        let name = slug.map_or_else(|| slugify(&title), str::to_owned);
        match saved.get("config") {
            Some(Value::Object(config)) => self.config(&at, &name, &title, config),
            _ => self.report.set(&at, Status::Unsupported, "must be a config; the model is left out"),
        }
    }

    /// Guardrails are named by their ids, or written out as checks.
    fn guardrails(&mut self, config: &Map<String, Value>) {
        for field in GUARDRAILS {
            for entry in config.get(field).and_then(Value::as_array).into_iter().flatten() {
                let name = entry.as_str().or_else(|| entry.as_object()?.keys().next().map(String::as_str));
                let name = name.map(|name| name.chars().take(MAX_NAME_CHARS).collect());
                let kind = Some(field.to_owned());
                self.guardrails.extend(name.map(|name| PlannedGuardrail { name, kind }));
            }
        }
    }

    /// Fields that Portkey hands down to targets.
    fn not_inherited(&mut self, path: &str, config: &Map<String, Value>, fields: &[&str]) {
        for field in fields.iter().filter(|field| config.get(**field).is_some_and(|value| !value.is_null())) {
            let message = "targets do not inherit it here; set it on each of them";
            self.report.set(&join(path, field), Status::Unsupported, message);
        }
    }

    fn config(&mut self, path: &str, name: &str, title: &str, config: &Map<String, Value>) {
        let mut definition = empty();
        definition.description = title.chars().take(1_000).collect();
        definition.cache = self.cache(path, config);
        definition.timeout_ms = self.timeout(path, config);
        definition.retries = self.retries(path, config);
        let has_targets = config.get("targets").is_some_and(|targets| !targets.is_null());
        if has_targets {
            self.not_inherited(path, config, &OF_TARGETS);
            let (strategy, targets) = self.list(path, config);
            (definition.strategy, definition.targets) = (strategy, targets);
        } else {
            definition.strategy = strategy(Mode::Single);
            definition.targets.extend(self.leaf(path, config));
            // What holds for the only target is set on the model.
            for target in &mut definition.targets {
                (target.timeout_ms, target.retries, target.weight) = (None, None, None);
            }
        }
        self.report.fields(path, config, CONFIG);
        self.guardrails(config);
        let takes_model = definition.targets.iter().any(takes_callers_model);
        let name = if takes_model { format!("{name}/*") } else { name.to_owned() };
        let at = if path.is_empty() { "targets" } else { path };
        if takes_model {
            let message = format!("targets without a model take the caller's: it is called as {name}");
            self.report.set(at, Status::Approximate, message);
        }
        push(&mut self.report, at, &mut self.models, &name, definition);
    }

    /// The strategy and targets of a config or of a group.
    fn list(&mut self, path: &str, config: &Map<String, Value>) -> (Strategy, Vec<Target>) {
        let at = join(path, "targets");
        let given = self.report.list(&at, config.get("targets"));
        let mut weights = Vec::new();
        let mut targets = Vec::new();
        for (index, target) in given.iter().enumerate() {
            let at = item(&at, index);
            let Some(target) = self.report.object(&at, target) else { continue };
            self.report.fields(&at, target, CONFIG);
            self.guardrails(target);
            let weight = self.report.number(&at, target, "weight");
            let is_group = target.get("targets").is_some_and(|targets| !targets.is_null());
            if is_group {
                targets.push(self.group(&at, target));
            } else {
                if target.get("cache").is_some_and(|cache| !cache.is_null()) {
                    self.report.set(
                        &join(&at, "cache"),
                        Status::Unsupported,
                        "the cache is set on the model",
                    );
                }
                targets.extend(self.leaf(&at, target));
            }
            weights.push(weight.unwrap_or(1.0));
        }
        let strategy = self.strategy(path, config, targets.len());
        if strategy.mode == Mode::Weighted
            && let Some(weights) = whole_weights(&weights).filter(|weights| weights.len() == targets.len())
        {
            for (target, weight) in targets.iter_mut().zip(weights) {
                target.weight = Some(weight);
            }
        }
        (strategy, targets)
    }

    fn group(&mut self, path: &str, config: &Map<String, Value>) -> Target {
        self.not_inherited(path, config, &OF_TARGETS);
        self.not_inherited(path, config, &["retry", "cache", "request_timeout"]);
        let (strategy, targets) = self.list(path, config);
        let id = self.report.text(path, config, "name").map(id_of);
        Target { id, strategy: Some(strategy), targets: Some(targets), ..Target::default() }
    }
}
