//! Rate limits of virtual keys. A limit here counts calls by model, so that it is of the models that the configs call
//! through the virtual key.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::limits::{Amounts, Limits, Owner, Wanted};
use super::super::report::{Report, item, whole};
use super::super::{PlannedLimit, PlannedModel, Status};
use crate::limits::Window;
use crate::models::Target;

/// The limits of virtual keys, each with its path and the name of its provider.
pub fn planned(
    report: &mut Report,
    given: &[(String, String, Vec<Value>)],
    models: &[PlannedModel],
) -> Vec<PlannedLimit> {
    let mut limits = Limits::default();
    for (path, provider, list) in given {
        let mut called = BTreeSet::new();
        let mut takes_any = false;
        for model in models {
            collect(&model.definition.targets, provider, &mut called, &mut takes_any);
        }
        for (index, limit) in list.iter().enumerate() {
            let at = item(path, index);
            let Some((amounts, window)) = read(limit) else {
                let message = "is not a limit of requests or tokens per minute, hour or day; it is left out";
                report.set(&at, Status::Manual, message);
                continue;
            };
            if takes_any || called.is_empty() {
                let message =
                    "no config names the models that are called through it: create a limit with `models`";
                report.set(&at, Status::Manual, message);
                continue;
            }
            let title = format!("provider {provider}");
            let models = Some(called.iter().cloned().collect());
            limits.add(report, &at, Wanted { title: &title, owner: Owner::Org, models, amounts, window });
        }
    }
    limits.into_planned()
}

/// The models that are called at the provider.
fn collect(targets: &[Target], provider: &str, called: &mut BTreeSet<String>, takes_any: &mut bool) {
    for target in targets {
        if target.provider.as_deref() == Some(provider) {
            match target.model.as_deref() {
                None | Some("*") => *takes_any = true,
                Some(model) => {
                    called.insert(model.to_owned());
                }
            }
        }
        collect(target.targets.as_deref().unwrap_or_default(), provider, called, takes_any);
    }
}

/// `{type: requests | tokens, unit: rpm | rph | rpd, value}`
fn read(limit: &Value) -> Option<(Amounts, Window)> {
    let text = |name: &str| limit.get(name).and_then(Value::as_str);
    let value = limit.get("value").and_then(Value::as_f64).filter(|value| *value >= 0.0).map(whole)?;
    let window = match text("unit")? {
        "rpm" | "tpm" => Window::Minute,
        "rph" | "tph" => Window::Hour,
        "rpd" | "tpd" => Window::Day,
        _ => return None,
    };
    let amounts = match text("type")? {
        "requests" => Amounts { requests: Some(value), ..Amounts::default() },
        "tokens" => Amounts { tokens: Some(value), ..Amounts::default() },
        _ => return None,
    };
    Some((amounts, window))
}
