//! OpenRouter's presets and request bodies: each becomes a named model whose targets are models of OpenRouter, with its
//! preferences of providers as defaults.

use serde_json::{Map, Value};

use super::assemble::{empty, push, strategy};
use super::report::Fate::{Exact, Inner, Manual};
use super::report::{Fate, Known, Report, item, join};
use super::{Import, ImportError, Plan, PlannedModel, Status, parse};
use crate::accounts::slugify;
use crate::models::{MAX_TARGETS, Mode, Target};

const PROVIDER: &str = "openrouter";
const MAX_FIELDS: usize = 50;
const INFORMATION: Fate = Exact("is information that the gateway does not need");

const PRESET: &Known = &[
    ("slug", Exact("is the name of the model")),
    ("name", Exact("becomes the description of the model")),
    ("description", INFORMATION),
    ("config", Inner),
    ("system_prompt", Manual("store it as a prompt: see docs/prompts.md")),
    ("id", INFORMATION),
    ("version", INFORMATION),
    ("created_at", INFORMATION),
    ("updated_at", INFORMATION),
];

/// Fields of a body that belong to one call.
const OF_A_CALL: [&str; 6] = ["messages", "prompt", "stream", "user", "session_id", "metadata"];

pub fn plan(text: &str) -> Result<Import, ImportError> {
    let mut report = Report::default();
    let mut models = Vec::new();
    match parse::json(text)? {
        Value::Object(root) if root.contains_key("presets") => {
            report.fields("", &root, &[("presets", Inner)]);
            for (index, preset) in report.list("presets", root.get("presets")).iter().enumerate() {
                read_preset(&mut report, &item("presets", index), preset, &mut models);
            }
        }
        Value::Object(body) => {
            let name = report.text("", &body, "model").unwrap_or("openrouter").to_owned();
            read_body(&mut report, "", (name.as_str(), ""), &body, &mut models);
        }
        Value::Array(bodies) => {
            for (index, body) in bodies.iter().enumerate() {
                let at = item("bodies", index);
                let Some(body) = report.object(&at, body) else { continue };
                let name = report.text(&at, body, "model").unwrap_or("openrouter").to_owned();
                read_body(&mut report, &at, (name.as_str(), ""), body, &mut models);
            }
        }
        _ => {
            let message = "the JSON must be a request body, a list of them, or {\"presets\": […]}";
            return Err(ImportError::Malformed(message.to_owned()));
        }
    }
    if !models.is_empty() {
        let message = "the key of OpenRouter is not in the file: store it with POST /orgs/:orgId/providers";
        report.set(PROVIDER, Status::Manual, message);
    }
    Ok(Import { plan: Plan { models, ..Plan::default() }, findings: report.into_findings() })
}

fn read_preset(report: &mut Report, path: &str, preset: &Value, models: &mut Vec<PlannedModel>) {
    let Some(preset) = report.object(path, preset) else { return };
    report.fields(path, preset, PRESET);
    let title = report.text(path, preset, "name").unwrap_or_default();
    let name = report.text(path, preset, "slug").map_or_else(|| slugify(title), str::to_owned);
    let at = join(path, "config");
    match preset.get("config").and_then(|config| report.object(&at, config)) {
        Some(config) => read_body(report, &at, (name.as_str(), title), config, models),
        None => report.set(path, Status::Unsupported, "a preset without config is ignored"),
    }
}

fn read_body(
    report: &mut Report,
    path: &str,
    (name, title): (&str, &str),
    body: &Map<String, Value>,
    models: &mut Vec<PlannedModel>,
) {
    let mut ids: Vec<String> = report.text(path, body, "model").map(str::to_owned).into_iter().collect();
    let at = join(path, "models");
    for (index, id) in report.list(&at, body.get("models")).iter().enumerate() {
        match id.as_str() {
            Some(id) if ids.iter().any(|known| known == id) => {}
            Some(id) if ids.len() < MAX_TARGETS => ids.push(id.to_owned()),
            Some(_) => {
                let message = format!("a model has at most {MAX_TARGETS} targets");
                report.set(&item(&at, index), Status::Unsupported, message);
            }
            None => report.set(&item(&at, index), Status::Unsupported, "must be the id of a model"),
        }
    }
    let defaults = defaults(report, path, body);
    let mut definition = empty();
    definition.description = title.chars().take(1_000).collect();
    definition.strategy = strategy(if ids.len() == 1 { Mode::Single } else { Mode::Order });
    let target = |id: String| Target {
        provider: Some(PROVIDER.to_owned()),
        model: Some(id),
        defaults: Some(defaults.clone()).filter(|defaults| !defaults.is_empty()),
        ..Target::default()
    };
    definition.targets = ids.into_iter().map(target).collect();
    push(report, if path.is_empty() { "model" } else { path }, models, name, definition);
}

/// Everything else goes to OpenRouter with each call, unless the caller sets it.
fn defaults(report: &mut Report, path: &str, body: &Map<String, Value>) -> Map<String, Value> {
    let mut defaults = Map::new();
    for (name, value) in body.iter().filter(|(_, value)| !value.is_null()) {
        let at = join(path, name);
        match name.as_str() {
            "model" => report.set(&at, Status::Exact, "becomes the first target"),
            "models" => report.set(&at, Status::Exact, "become the targets, in order"),
            _ if OF_A_CALL.contains(&name.as_str()) => {
                report.set(&at, Status::Exact, "belongs to a single call; it is not stored");
            }
            "system_prompt" => report.set(&at, Status::Manual, "store it as a prompt: see docs/prompts.md"),
            _ if defaults.len() == MAX_FIELDS => report.set(&at, Status::Unsupported, "too many parameters"),
            _ => {
                report.set(&at, Status::Exact, "becomes a default of the targets");
                defaults.insert(name.clone(), value.clone());
            }
        }
    }
    defaults
}
