//! Routes that a request describes itself: a config of Portkey, read by the rules of its importer, or a list of
//! addresses.

use serde_json::{Map, Value};

use super::Known;
use super::rules::{Refused, text};
use crate::import::{self, Import, Status};
use crate::llm::failure::{AttemptOutcome, classify};
use crate::models::{Definition, FallbackCause, MAX_BYTES, MAX_TARGETS, Mode, NamedCause, Strategy, Target};

/// Fields that nothing here corresponds to, and without which the answer is the same.
const HARMLESS: [&str; 1] = ["forward_headers"];
/// Fields with what a provider must be stored for.
const OF_PROVIDERS: [&str; 2] = ["api_key", "custom_host"];
/// What targets without a model have for the caller's.
const STAR: &str = "*";

/// The config of a header. Fields that can be left out are added to `dropped`.
pub fn portkey(header: &str, text: &str, dropped: &mut Vec<String>) -> Result<Definition, Refused> {
    if text.len() > MAX_BYTES {
        return Err(Refused::Invalid { name: header.to_owned(), why: "the config is too long".into() });
    }
    let read = import::portkey_config(text);
    let Import { plan, findings } =
        read.map_err(|error| Refused::Invalid { name: header.to_owned(), why: error.to_string().into() })?;
    let at = |path: &str| format!("{header}.{path}");
    let is_field = |path: &str, names: &[&str]| {
        let last = path.rsplit('.').next().unwrap_or_default();
        names.contains(&last)
    };
    if let Some(finding) = findings.iter().find(|finding| is_field(&finding.path, &OF_PROVIDERS)) {
        let remedy = "store a provider with it, and name the provider in the config as @name";
        return Err(Refused::Meaning { name: at(&finding.path), remedy: remedy.into() });
    }
    for finding in findings {
        let is_lost = matches!(finding.status, Status::Manual | Status::Unsupported);
        if is_lost && (finding.message == import::UNKNOWN || is_field(&finding.path, &HARMLESS)) {
            dropped.push(at(&finding.path));
        } else if is_lost && finding.path.contains("guardrails") {
            let remedy = "guardrails are not run here; remove the field".into();
            return Err(Refused::Meaning { name: at(&finding.path), remedy });
        } else if is_lost {
            return Err(Refused::Meaning { name: at(&finding.path), remedy: finding.message.into() });
        }
    }
    let model = plan.models.into_iter().next();
    model
        .map(|model| model.definition)
        .ok_or_else(|| Refused::Invalid { name: header.to_owned(), why: "the config has no target".into() })
}

/// A list of addresses that are tried one after the other: `{"target-url", "bodyKeyOverride", "onCodes"}`.
pub fn addresses(
    (header, text): (&str, &str),
    known: &dyn Known,
    dropped: &mut Vec<String>,
) -> Result<Definition, Refused> {
    let invalid = |why: &'static str| Refused::Invalid { name: header.to_owned(), why: why.into() };
    let list: Vec<Map<String, Value>> =
        serde_json::from_str(text).map_err(|_| invalid("must be a list of objects as JSON"))?;
    if list.len() > MAX_TARGETS {
        return Err(invalid("must have at most 10 addresses"));
    }
    let mut definition = import::empty_definition();
    for (index, entry) in list.iter().enumerate() {
        let target = address(&format!("{header}[{index}]"), entry, known, dropped)?;
        definition.targets.push(target);
    }
    definition
        .checked(STAR, &|_| true)
        .map_err(|error| Refused::Invalid { name: header.to_owned(), why: error.to_string().into() })
}

fn address(
    at: &str,
    entry: &Map<String, Value>,
    known: &dyn Known,
    dropped: &mut Vec<String>,
) -> Result<Target, Refused> {
    let invalid =
        |field: &str, why: &'static str| Refused::Invalid { name: format!("{at}.{field}"), why: why.into() };
    let url = entry.get("target-url").and_then(text).unwrap_or_default();
    let why = "no provider has this address; create a custom provider with this base URL";
    let provider = known.provider_at(url.trim()).ok_or_else(|| invalid("target-url", why))?;
    let mut target = Target { provider: Some(provider), model: Some(STAR.to_owned()), ..Target::default() };
    for (field, value) in entry.iter().filter(|(_, value)| !value.is_null()) {
        match field.as_str() {
            "target-url" | "onCodes" => {}
            "bodyKeyOverride" => {
                let params = value.as_object().ok_or_else(|| invalid(field, "must be an object"))?;
                let mut params = params.clone();
                if let Some(model) = params.remove("model").as_ref().and_then(text) {
                    target.model = Some(model);
                }
                target.params = Some(params).filter(|params| !params.is_empty());
            }
            // The stored credential of the provider is sent.
            _ => dropped.push(format!("{at}.{field}")),
        }
    }
    let Some(codes) = entry.get("onCodes").filter(|codes| !codes.is_null()) else { return Ok(target) };
    let on = causes((&format!("{at}.onCodes"), codes))?;
    Ok(Target {
        strategy: Some(Strategy { mode: Mode::Single, on: Some(on), ..Strategy::default() }),
        targets: Some(vec![target]),
        ..Target::default()
    })
}

/// Statuses after which the next address is tried, and failures without a status.
fn causes((field, codes): (&str, &Value)) -> Result<Vec<FallbackCause>, Refused> {
    let invalid = |why: &'static str| Refused::Invalid { name: field.to_owned(), why: why.into() };
    let is_cause = |code: &u16| {
        (400..=599).contains(code)
            && classify(AttemptOutcome::Status { code: *code }).is_some_and(|failure| failure.next)
    };
    let number = |value: Option<&Value>| u16::try_from(value.and_then(Value::as_u64)?).ok();
    let why = "must be a list of statuses, or of ranges {\"from\", \"to\"}";
    let list = codes.as_array().ok_or_else(|| invalid(why))?;
    let mut statuses = Vec::new();
    for code in list {
        match number(Some(code)) {
            Some(code) if is_cause(&code) => statuses.push(code),
            Some(_) => {
                let remedy = "no other target is tried after this status; leave it out".into();
                return Err(Refused::Meaning { name: field.to_owned(), remedy });
            }
            None => {
                let ends = number(code.get("from")).zip(number(code.get("to")));
                let (from, to) = ends.ok_or_else(|| invalid(why))?;
                statuses.extend((from.max(400)..=to.min(599)).filter(is_cause));
            }
        }
    }
    statuses.sort_unstable();
    statuses.dedup();
    let named = [NamedCause::Timeout, NamedCause::Connect].map(FallbackCause::Named);
    Ok(statuses.into_iter().map(FallbackCause::Status).chain(named).collect())
}
