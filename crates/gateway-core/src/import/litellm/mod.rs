//! LiteLLM's `config.yaml`: deployments become targets of named models, their addresses and keys become providers.

mod deployment;
mod fields;
mod groups;
mod providers;

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};

use super::assemble::{Level, empty, push, set_targets};
use super::limits::{Amounts, Limits, Owner, Wanted};
use super::providers::Endpoints;
use super::report::{Report, item, join, whole};
use super::{
    Environment, Import, ImportError, Plan, PlannedGuardrail, PlannedLimit, PlannedModel, PlannedSettings,
    PlannedUserBudget, Status, parse,
};
use crate::budget::{Period, limit_units};
use crate::limits::Window;
use crate::llm::failure::Refusal;
use crate::llm::prompt_cache::{PromptCache, PromptCacheMode};
use crate::models::{CacheDefault, CacheDefaultMode, Definition, MAX_TARGETS, Mode};
use deployment::{Deployment, Shared};
use fields::{CACHE_PARAMS, GENERAL, ROOT, ROUTER, SETTINGS};
use groups::{Fallbacks, Group, Meant, Names, group};

pub(super) use deployment::is_address;

/// What LiteLLM does if nothing is set.
const DEFAULT_RETRIES: u32 = 2;
const SHARED_RETRIES: &str = "LiteLLM makes the retries for all deployments of a name together; here each target has \
                              its share of them";
/// LiteLLM follows fallbacks of fallbacks this far.
const MAX_FALLBACK_DEPTH: usize = 5;
const MAX_CACHE_TTL_S: u64 = 2_592_000;
const MAX_NAME_CHARS: usize = 128;

/// An object of the source with its path.
type Section<'a> = (&'static str, &'a Map<String, Value>);

pub fn plan(text: &str, env: Environment<'_>) -> Result<Import, ImportError> {
    let root = parse::yaml(text)?;
    let mut report = Report::default();
    report.fields("", &root, ROOT);
    let none = Map::new();
    let mut section = |name: &'static str| {
        let found = root.get(name).and_then(|value| report.object(name, value));
        (name, found.unwrap_or(&none))
    };
    let (router, settings) = (section("router_settings"), section("litellm_settings"));
    let (general, variables) = (section("general_settings"), section("environment_variables"));
    report.fields(router.0, router.1, ROUTER);
    report.fields(settings.0, settings.1, SETTINGS);
    report.fields(general.0, general.1, GENERAL);
    for name in variables.1.keys() {
        report.set(&join(variables.0, name), Status::Exact, "used where the file refers to it");
    }
    let env =
        |name: &str| variables.1.get(name).and_then(Value::as_str).map(str::to_owned).or_else(|| env(name));
    let credentials = credentials(&mut report, root.get("credential_list"), root.get("model_list"));
    let mut endpoints = Endpoints::default();
    let mut shared = Shared { env: &env, credentials: &credentials, endpoints: &mut endpoints };
    let entries = report.list("model_list", root.get("model_list"));
    let read = |(index, entry): (usize, &Value)| {
        deployment::read(&mut report, &item("model_list", index), entry, &mut shared)
    };
    let deployments: Vec<Deployment> = entries.iter().enumerate().filter_map(read).collect();
    let groups = group(deployments);
    let limits = limits(&mut report, &groups, general);
    let user_budgets = user_budget(&mut report, settings).into_iter().collect();
    let models = models(&mut report, &groups, &endpoints.names(), (router, settings));
    let guardrails = guardrails(root.get("guardrails"), settings.1.get("guardrails"));
    let is_silent = settings.1.get("turn_off_message_logging") == Some(&Value::Bool(true));
    let settings = PlannedSettings { log_bodies: is_silent.then_some(false) };
    let providers = endpoints.into_planned();
    let plan = Plan { providers, models, user_budgets, limits, guardrails, settings, ..Plan::default() };
    Ok(Import { plan, findings: report.into_findings() })
}

/// The limits of the models, and that of all calls together.
fn limits(report: &mut Report, groups: &[Group], (general_at, general): Section<'_>) -> Vec<PlannedLimit> {
    let mut limits = Limits::default();
    for group in groups {
        let amounts = group.amounts();
        let path = group.deployments.first().map_or("model_list", |deployment| deployment.path.as_str());
        if group.name.contains('*') && !amounts.is_nothing() {
            let message = "the limit of a pattern is left out: create one with its models in `models`";
            report.set(path, Status::Manual, message);
            continue;
        }
        let (title, owner) = (format!("model {}", group.name), Owner::Model(group.name.clone()));
        let (models, window) = (None, Window::Minute);
        limits.add(report, path, Wanted { title: &title, owner, models, amounts, window });
    }
    let field = "global_max_parallel_requests";
    let concurrent = report.number(general_at, general, field).map(whole);
    let amounts = Amounts { concurrent, ..Amounts::default() };
    let (title, owner) = ("all calls", Owner::Org);
    let wanted = Wanted { title, owner, models: None, amounts, window: Window::Minute };
    limits.add(report, &join(general_at, field), wanted);
    limits.into_planned()
}

/// The budget that each end user has.
fn user_budget(report: &mut Report, (at, settings): Section<'_>) -> Option<PlannedUserBudget> {
    let field = "max_end_user_budget";
    let usd = report.number(at, settings, field)?;
    if limit_units(usd).is_err() {
        report.set(&join(at, field), Status::Manual, "is no amount that a budget may have; it is left out");
        return None;
    }
    let (user, period) = ("*".to_owned(), Period::Monthly);
    Some(PlannedUserBudget { user, period, soft_limit_usd: None, hard_limit_usd: Some(usd) })
}

/// `credential_list` by name. One that no deployment refers to is named.
fn credentials(report: &mut Report, list: Option<&Value>, models: Option<&Value>) -> Map<String, Value> {
    let referred = |entry: &Value| -> Option<String> {
        Some(entry.get("litellm_params")?.get("litellm_credential_name")?.as_str()?.to_owned())
    };
    let entries = models.and_then(Value::as_array).into_iter().flatten();
    let used: HashSet<String> = entries.filter_map(referred).collect();
    let mut by_name = Map::new();
    for (index, entry) in report.list("credential_list", list).iter().enumerate() {
        let at = item("credential_list", index);
        let Some(entry) = report.object(&at, entry) else { continue };
        report.fields(&at, entry, fields::CREDENTIAL);
        let (name, values) = (report.text(&at, entry, "credential_name"), entry.get("credential_values"));
        if let (Some(name), Some(values @ Value::Object(_))) = (name, values) {
            by_name.insert(name.to_owned(), values.clone());
            if !used.contains(name) {
                let message = "no deployment refers to it; store it with POST /orgs/:orgId/providers";
                report.set(&join(&at, "credential_values"), Status::Manual, message);
            }
        } else {
            report.set(&at, Status::Unsupported, "a credential without a name and values is ignored");
        }
    }
    by_name
}

/// The names and kinds of guardrails: those of the file, and those of older files in `litellm_settings`.
fn guardrails(list: Option<&Value>, older: Option<&Value>) -> Vec<PlannedGuardrail> {
    let short = |text: &str| text.chars().take(MAX_NAME_CHARS).collect::<String>();
    let named = |entry: &Value| {
        let name = short(entry.get("guardrail_name")?.as_str()?);
        let kind = entry.get("litellm_params").and_then(|params| params.get("guardrail")?.as_str());
        Some(PlannedGuardrail { name, kind: kind.map(short) })
    };
    let older = older.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object).flatten();
    let older = older.map(|(name, entry)| {
        let kind = entry.get("callbacks").and_then(|callbacks| callbacks.get(0)?.as_str());
        PlannedGuardrail { name: short(name), kind: kind.map(short) }
    });
    list.and_then(Value::as_array).into_iter().flatten().filter_map(named).chain(older).collect()
}

/// What holds for all models.
struct Defaults {
    mode: Mode,
    retries: u32,
    timeout_ms: Option<u64>,
    first_byte_timeout_ms: Option<u64>,
    cache: Option<CacheDefault>,
}

impl Defaults {
    fn read(report: &mut Report, router: Section<'_>, settings: Section<'_>) -> Self {
        let ((router_at, router), (settings_at, settings)) = (router, settings);
        let retries = report.retries(router_at, router, "num_retries");
        let retries = retries.or_else(|| report.retries(settings_at, settings, "num_retries"));
        let timeout = report.seconds(router_at, router, "timeout");
        Self {
            mode: mode(report, router_at, router),
            retries: retries.unwrap_or(DEFAULT_RETRIES),
            timeout_ms: timeout.or_else(|| report.seconds(settings_at, settings, "request_timeout")),
            first_byte_timeout_ms: report.seconds(router_at, router, "stream_timeout"),
            cache: cache(report, settings_at, settings),
        }
    }
}

fn mode(report: &mut Report, path: &str, router: &Map<String, Value>) -> Mode {
    let at = join(path, "routing_strategy");
    match report.text(path, router, "routing_strategy") {
        None | Some("simple-shuffle") => Mode::Weighted,
        Some("latency-based-routing") => Mode::Fastest,
        Some("cost-based-routing") => Mode::Cheapest,
        Some("least-busy" | "usage-based-routing" | "usage-based-routing-v2") => {
            report.set(
                &at,
                Status::Approximate,
                "calls are distributed by weight, whatever a target does now",
            );
            Mode::Weighted
        }
        Some(_) => {
            report.set(
                &at,
                Status::Approximate,
                "the strategy is not known; calls are distributed by weight",
            );
            Mode::Weighted
        }
    }
}

fn cache(report: &mut Report, path: &str, settings: &Map<String, Value>) -> Option<CacheDefault> {
    let at = join(path, "cache_params");
    let none = Map::new();
    let params = settings.get("cache_params").and_then(|params| report.object(&at, params)).unwrap_or(&none);
    report.fields(&at, params, CACHE_PARAMS);
    let is_on = settings.get("cache").and_then(Value::as_bool).unwrap_or(false);
    let ttl = report.number(&at, params, "ttl").map(whole);
    let is_semantic = report.text(&at, params, "type").is_some_and(|kind| kind.ends_with("-semantic"));
    is_on.then(|| CacheDefault {
        mode: if is_semantic { CacheDefaultMode::Semantic } else { CacheDefaultMode::Exact },
        ttl: ttl.map(|ttl| ttl.clamp(1, MAX_CACHE_TTL_S)),
        namespace: report.text(&at, params, "namespace").map(|text| text.chars().take(64).collect()),
    })
}

/// The routing of all models.
struct Routing<'a> {
    groups: &'a [Group],
    providers: &'a [String],
    defaults: Defaults,
    names: Names,
    fallbacks: Fallbacks,
    refusals: [(Refusal, Fallbacks); 2],
}

fn models(
    report: &mut Report,
    groups: &[Group],
    providers: &[String],
    (router, settings): (Section<'_>, Section<'_>),
) -> Vec<PlannedModel> {
    let aliases = aliases(report, router, settings);
    let targets = aliases.iter().map(|alias| (alias.name.clone(), alias.model.clone())).collect();
    let names = Names::new(groups, targets);
    let mut read = |field: &str| {
        let mut fallbacks = Fallbacks::default();
        for (at, section) in [router, settings] {
            fallbacks.read(report, &join(at, field), section.get(field), &names);
        }
        fallbacks
    };
    let (context, filter) = (read("context_window_fallbacks"), read("content_policy_fallbacks"));
    let mut fallbacks = read("fallbacks");
    for (at, section) in [settings, router] {
        let field = "default_fallbacks";
        fallbacks.read_default(report, &join(at, field), section.get(field), &names);
    }
    let defaults = Defaults::read(report, router, settings);
    let refusals = [(Refusal::Context, context), (Refusal::ContentFilter, filter)];
    let routing = Routing { groups, providers, defaults, names, fallbacks, refusals };
    let mut models = Vec::with_capacity(groups.len() + aliases.len());
    for group in groups {
        let path = group.deployments.first().map_or("model_list", |deployment| deployment.path.as_str());
        let Some(meant) = routing.names.group(&group.name) else { continue };
        let definition = routing.definition(report, path, &meant);
        push(report, path, &mut models, &group.name, definition);
    }
    if groups.iter().any(Group::shares_retries) {
        for (at, section) in [router, settings] {
            if section.contains_key("num_retries") {
                report.set(&join(at, "num_retries"), Status::Approximate, SHARED_RETRIES);
            }
        }
    }
    let mut taken: HashSet<String> = groups.iter().map(|group| group.name.clone()).collect();
    for alias in aliases {
        match routing.names.find(&alias.name) {
            Some(_) if taken.contains(&alias.name) => {
                report.set(&alias.path, Status::Unsupported, "model_list has a model of this name");
            }
            Some(meant) => {
                let mut definition = routing.definition(report, &alias.path, &meant);
                definition.hidden = alias.hidden;
                push(report, &alias.path, &mut models, &alias.name, definition);
            }
            None => report.set(&alias.path, Status::Unsupported, "model_list has no such model"),
        }
        taken.insert(alias.name);
    }
    // A name that only a pattern serves is a model of its own if it has fallbacks of its own.
    for (name, path) in routing.names_with_fallbacks().into_iter().filter(|(name, _)| !taken.contains(*name))
    {
        if let Some(meant) = routing.names.find(name) {
            let definition = routing.definition(report, path, &meant);
            push(report, path, &mut models, name, definition);
        } else {
            report.set(path, Status::Unsupported, "model_list has no such model; the list is not used");
        }
    }
    models
}

impl Routing<'_> {
    /// Names with fallbacks of their own, and the paths of their lists.
    fn names_with_fallbacks(&self) -> BTreeMap<&str, &str> {
        let refusals = self.refusals.iter().flat_map(|(_, fallbacks)| fallbacks.names());
        refusals.chain(self.fallbacks.names()).collect()
    }

    /// The definition of a name. Its fallbacks are those of the name itself, also if it is an alias.
    fn definition(&self, report: &mut Report, path: &str, meant: &Meant) -> Definition {
        let group = &self.groups[meant.place];
        let Defaults { mode: _, retries, timeout_ms, first_byte_timeout_ms, cache } = &self.defaults;
        let deployments = &group.deployments;
        let mut definition = empty();
        definition.retries = Some(*retries);
        definition.timeout_ms = *timeout_ms;
        let first_byte = deployments.iter().find_map(|deployment| deployment.first_byte_timeout_ms);
        definition.first_byte_timeout_ms = first_byte.or(*first_byte_timeout_ms);
        definition.cache.clone_from(cache);
        if deployments.iter().any(|deployment| deployment.has_cache_marks) {
            let mode = PromptCacheMode::Auto;
            definition.prompt_cache = Some(PromptCache { mode, ..PromptCache::default() });
        }
        definition.price = deployments.iter().find_map(|deployment| deployment.price.clone());
        if deployments.iter().any(|deployment| deployment.price != definition.price) {
            let message =
                "a model has one price for all its targets: that of the first deployment that has one";
            report.set(path, Status::Approximate, message);
        }
        let description = deployments.iter().find_map(|deployment| deployment.description.clone());
        definition.description = description.unwrap_or_default();
        let mut levels = self.levels(meant);
        let mut visited = vec![meant.name.as_str(), group.name.as_str()];
        self.follow(self.fallbacks.of(&meant.name), MAX_FALLBACK_DEPTH, &mut visited, &mut levels);
        let refusals = self.refusals.iter().flat_map(|(refusal, fallbacks)| {
            fallbacks.of(&meant.name).iter().map(move |meant| (*refusal, self.first_level(meant)))
        });
        set_targets(report, path, &mut definition, levels, refusals.collect());
        definition
    }

    /// Appends fallbacks, each with its own fallbacks behind it.
    fn follow<'s>(
        &'s self,
        list: &'s [Meant],
        depth: usize,
        visited: &mut Vec<&'s str>,
        levels: &mut Vec<Level>,
    ) {
        if depth == 0 {
            return;
        }
        for meant in list {
            if levels.len() > MAX_TARGETS || visited.contains(&meant.name.as_str()) {
                continue;
            }
            visited.push(&meant.name);
            levels.extend(self.levels(meant));
            self.follow(self.fallbacks.after(&meant.name), depth - 1, visited, levels);
        }
    }

    fn levels(&self, meant: &Meant) -> Vec<Level> {
        let Defaults { mode, retries, .. } = self.defaults;
        meant.fill(self.groups[meant.place].levels((mode, retries), self.providers))
    }

    fn first_level(&self, meant: &Meant) -> Level {
        self.levels(meant).into_iter().next().unwrap_or_default()
    }
}

/// Another name of a model.
struct Alias {
    path: String,
    name: String,
    model: String,
    hidden: bool,
}

fn aliases(report: &mut Report, router: Section<'_>, settings: Section<'_>) -> Vec<Alias> {
    let mut aliases = Vec::new();
    let fields = [(router, "model_group_alias"), (settings, "model_group_alias_map")];
    for ((at, section), field) in fields {
        let path = join(at, field);
        let Some(map) = section.get(field).and_then(|value| report.object(&path, value)) else { continue };
        for (name, value) in map {
            let path = join(&path, name);
            let model = value.as_str().or_else(|| value.get("model").and_then(Value::as_str));
            let hidden = value.get("hidden").and_then(Value::as_bool).unwrap_or(false);
            match model {
                Some(model) => {
                    aliases.push(Alias { path, name: name.clone(), model: model.to_owned(), hidden });
                }
                None => report.set(&path, Status::Unsupported, "an alias names one model"),
            }
        }
    }
    aliases
}
