//! The configuration of Helicone's AI gateway: each router becomes a named model.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::assemble::{empty, push, strategy, whole_weights};
use super::limits::{Amounts, Limits, Owner, Wanted};
use super::litellm::is_address;
use super::portkey::kind_of;
use super::report::Fate::{Approximate, Exact, Inner, Manual};
use super::report::{Fate, Known, Report, item, join, whole};
use super::{Import, ImportError, Plan, PlannedModel, PlannedProvider, Status, parse};
use crate::limits::Window;
use crate::models::{CacheDefault, CacheDefaultMode, Mode, Target};

const OPERATOR: Fate = Manual("is a setting of the operator here: see docs/configuration.md");
const CACHE_FATE: Fate =
    Approximate("max-age becomes the ttl of the cache; buckets and stale answers do not exist");

const ROOT: &Known = &[
    ("routers", Inner),
    ("providers", Inner),
    ("global", Inner),
    ("cache-store", OPERATOR),
    ("rate-limit-store", OPERATOR),
    ("helicone", Manual("rows and keys are the gateway's own")),
    ("server", OPERATOR),
    ("telemetry", OPERATOR),
    ("database", OPERATOR),
    ("discover", OPERATOR),
    ("response-headers", OPERATOR),
    ("deployment-target", OPERATOR),
    ("default-model-mapping", Manual("create a named model for each name")),
];
const GLOBAL: &Known = &[
    ("cache", CACHE_FATE),
    ("rate-limit", Inner),
    ("retries", Approximate("max-retries becomes retries of the models; they wait as docs/routing.md says")),
];
const ROUTER: &Known = &[
    ("load-balance", Inner),
    ("cache", CACHE_FATE),
    ("rate-limit", Inner),
    ("retries", Approximate("max-retries becomes retries; they wait as docs/routing.md says")),
    ("model-mappings", Manual("create a named model for each name")),
    ("providers", Manual("the providers of the targets are used")),
    ("prompts", Manual("see docs/prompts.md")),
];
const PROVIDER: &Known = &[
    ("base-url", Exact("becomes the base URL of the provider")),
    ("models", Exact("targets name their models")),
    ("version", Exact("the version that the gateway knows is used")),
];
const BALANCE: &Known = &[
    ("strategy", Exact("becomes the strategy of the model")),
    ("models", Inner),
    ("providers", Inner),
    ("targets", Inner),
];
const WEIGHTED: &Known = &[
    ("model", Exact("becomes a target")),
    ("provider", Exact("becomes a target")),
    ("weight", Exact("becomes the weight of the target")),
];
const RATE_LIMIT: &Known =
    &[("per-api-key", Inner), ("per-user", Inner), ("per-end-user", Inner), ("store", OPERATOR)];
const PER_KEY: &Known = &[
    ("capacity", Exact("becomes the requests of a limit that each key has")),
    ("refill-frequency", Exact("becomes the window of the limit")),
];
const PER_USER: &Known = &[
    (
        "capacity",
        Approximate(
            "becomes the requests of a limit that each user has: the one of X-Gateway-User or Helicone-User-Id, or the \
             member who calls; calls without a user share a bucket",
        ),
    ),
    ("refill-frequency", Exact("becomes the window of the limit")),
];
/// What has a bucket of its own.
const SEGMENTS: [(&str, &Known); 3] =
    [("per-api-key", PER_KEY), ("per-user", PER_USER), ("per-end-user", PER_USER)];
const MAX_CACHE_TTL_S: u64 = 2_592_000;

pub fn plan(text: &str) -> Result<Import, ImportError> {
    let root = parse::yaml(text)?;
    let mut report = Report::default();
    report.fields("", &root, ROOT);
    let none = Map::new();
    let global = root.get("global").and_then(|global| report.object("global", global)).unwrap_or(&none);
    report.fields("global", global, GLOBAL);
    let (mut models, mut limits) = (Vec::new(), Limits::default());
    if let Some(given) = global.get("rate-limit") {
        rate_limit(&mut report, ("global.rate-limit", given), None, &mut limits);
    }
    let routers = root.get("routers").and_then(|routers| report.object("routers", routers));
    for (name, router) in routers.into_iter().flatten() {
        let before = models.len();
        read_router(&mut report, (name.as_str(), router), global, &mut models);
        let path = join(&join("routers", name), "rate-limit");
        let Some(given) = router.get("rate-limit").filter(|given| !given.is_null()) else { continue };
        match models.get(before).map(|model: &PlannedModel| model.name.clone()) {
            Some(model) if !model.ends_with('*') => {
                rate_limit(&mut report, (&path, given), Some(model.as_str()), &mut limits);
            }
            _ => report.set(&path, Status::Manual, "create a limit with `models`: POST /orgs/:orgId/limits"),
        }
    }
    let providers = providers(&mut report, root.get("providers"));
    let limits = limits.into_planned();
    Ok(Import {
        plan: Plan { providers, models, limits, ..Plan::default() },
        findings: report.into_findings(),
    })
}

/// `{per-api-key: {capacity: 1000, refill-frequency: 1m}}`: a bucket for each key that refills in this time. `model`: that
/// of the router.
fn rate_limit(report: &mut Report, (path, given): (&str, &Value), model: Option<&str>, limits: &mut Limits) {
    let Some(given) = report.object(path, given) else { return };
    report.fields(path, given, RATE_LIMIT);
    for (segment, fields) in SEGMENTS {
        let at = join(path, segment);
        let Some(given) = given.get(segment).and_then(|given| report.object(&at, given)) else { continue };
        report.fields(&at, given, fields);
        let requests = report.number(&at, given, "capacity").filter(|count| *count >= 0.0).map(whole);
        let window = match report.text(&at, given, "refill-frequency") {
            Some("1m" | "60s" | "1min") => Some(Window::Minute),
            Some("1h" | "60m" | "3600s") => Some(Window::Hour),
            Some("1d" | "24h" | "86400s") => Some(Window::Day),
            _ => None,
        };
        let (Some(requests), Some(window)) = (requests, window) else {
            let message = "is not a number of requests per minute, hour or day; create a limit by hand";
            report.set(&at, Status::Manual, message);
            continue;
        };
        let is_of_keys = segment == "per-api-key";
        let of_all = if is_of_keys { "each key" } else { "each user" };
        let title = match model {
            None => of_all.to_owned(),
            Some(model) if is_of_keys => format!("model {model}"),
            Some(model) => format!("users of {model}"),
        };
        let model = model.map(str::to_owned);
        let owner = if is_of_keys { Owner::EachKey(model) } else { Owner::EachUser(model) };
        let amounts = Amounts { requests: Some(requests), ..Amounts::default() };
        limits.add(report, &at, Wanted { title: &title, owner, models: None, amounts, window });
    }
}

fn read_router(
    report: &mut Report,
    (name, router): (&str, &Value),
    global: &Map<String, Value>,
    models: &mut Vec<PlannedModel>,
) {
    let path = join("routers", name);
    let Some(router) = report.object(&path, router) else { return };
    report.fields(&path, router, ROUTER);
    let setting = |field: &str| router.get(field).or_else(|| global.get(field));
    let mut definition = empty();
    definition.cache = setting("cache").and_then(cache);
    definition.retries = setting("retries").and_then(retries);
    let at = join(&path, "load-balance");
    let balance = router.get("load-balance").and_then(|balance| report.object(&at, balance));
    for (kind, given) in balance.into_iter().flatten() {
        let at = join(&at, kind);
        if kind != "chat" {
            report.set(&at, Status::Manual, "only the balance of chat is imported");
            continue;
        }
        let Some(given) = report.object(&at, given) else { continue };
        let Balance { mode, targets, takes_model } = read_balance(report, &at, given);
        definition.strategy = strategy(if targets.len() == 1 { Mode::Single } else { mode });
        definition.targets = targets;
        let name = if takes_model { format!("{name}/*") } else { name.to_owned() };
        if takes_model {
            let message = format!("the caller's model is sent to each provider as it is: call it as {name}");
            report.set(&join(&at, "providers"), Status::Approximate, message);
        }
        push(report, &at, models, &name, definition.clone());
    }
}

struct Balance {
    mode: Mode,
    targets: Vec<Target>,
    /// Its targets are providers, which get the model of the caller.
    takes_model: bool,
}

fn read_balance(report: &mut Report, path: &str, given: &Map<String, Value>) -> Balance {
    report.fields(path, given, BALANCE);
    let mode = match report.text(path, given, "strategy") {
        Some("weighted" | "provider-weighted" | "model-weighted") => Mode::Weighted,
        Some("latency" | "provider-latency" | "model-latency") => Mode::Fastest,
        _ => {
            report.set(
                &join(path, "strategy"),
                Status::Approximate,
                "is not known; the fastest target comes first",
            );
            Mode::Fastest
        }
    };
    let (mut targets, mut weights, mut takes_model) = (Vec::new(), Vec::new(), false);
    for field in ["models", "providers", "targets"] {
        let at = join(path, field);
        for (index, entry) in report.list(&at, given.get(field)).iter().enumerate() {
            let at = item(&at, index);
            let (text, weight) = match entry {
                Value::String(text) => (Some(text.as_str()), None),
                Value::Object(fields) => {
                    report.fields(&at, fields, WEIGHTED);
                    let text =
                        report.text(&at, fields, "model").or_else(|| report.text(&at, fields, "provider"));
                    (text, report.number(&at, fields, "weight"))
                }
                _ => (None, None),
            };
            let (provider, model) = text.map_or(("", None), |text| match text.split_once('/') {
                Some((provider, model)) => (provider, Some(model)),
                None => (text, None),
            });
            let Some(kind) = kind_of(provider) else {
                report.set(
                    &at,
                    Status::Unsupported,
                    "names no provider that the gateway has; it is left out",
                );
                continue;
            };
            report.set(&at, Status::Exact, "becomes a target");
            takes_model |= model.is_none();
            targets.push(Target {
                provider: Some(kind.to_owned()),
                model: Some(model.unwrap_or("*").to_owned()),
                ..Target::default()
            });
            weights.push(weight.unwrap_or(1.0));
        }
    }
    if mode == Mode::Weighted
        && let Some(weights) = whole_weights(&weights)
    {
        for (target, weight) in targets.iter_mut().zip(weights) {
            target.weight = Some(weight);
        }
    }
    Balance { mode, targets, takes_model }
}

/// `{directive: "max-age=3600, max-stale=1800"}`
fn cache(given: &Value) -> Option<CacheDefault> {
    let is_off = given.get("enabled").and_then(Value::as_bool) == Some(false);
    let directive = given.get("directive").and_then(Value::as_str).filter(|_| !is_off)?;
    let mut ages = directive
        .split(',')
        .filter_map(|part| part.trim().strip_prefix("max-age=")?.trim().parse::<u64>().ok());
    let ttl = ages.next_back().map(|age| age.clamp(1, MAX_CACHE_TTL_S));
    Some(CacheDefault { mode: CacheDefaultMode::Exact, ttl, namespace: None })
}

fn retries(given: &Value) -> Option<u32> {
    let count = given.get("max-retries").and_then(Value::as_f64).filter(|count| *count >= 0.0)?;
    Some(u32::try_from(whole(count)).unwrap_or(u32::MAX).min(crate::route::MAX_RETRIES))
}

/// Providers with an address of their own.
fn providers(report: &mut Report, given: Option<&Value>) -> Vec<PlannedProvider> {
    let mut planned = Vec::new();
    let given = given.and_then(|given| report.object("providers", given));
    for (name, fields) in given.into_iter().flatten() {
        let at = join("providers", name);
        let Some(fields) = report.object(&at, fields) else { continue };
        report.fields(&at, fields, PROVIDER);
        let url = report.text(&at, fields, "base-url").map(|url| url.trim_end_matches('/'));
        match (kind_of(name), url.filter(|url| is_address(url))) {
            (Some(kind), Some(url)) => planned.push(PlannedProvider {
                name: kind.to_owned(),
                kind: kind.to_owned(),
                base_url: Some(url.to_owned()),
                path_prefix: None,
                api_key: None,
                headers: BTreeMap::new(),
            }),
            (Some(_), None) => {}
            (None, _) => report.set(&at, Status::Unsupported, "the gateway has no such provider"),
        }
    }
    planned
}
