//! What a request of another gateway's client says about its route.

use std::time::Duration;

use serde_json::{Map, Value};

use super::rules::{Refused, text};
use super::{Dialect, Known, Name, Preferences};
use crate::models::Definition;
use crate::route::MAX_STEPS;

/// The key of the fallbacks of models that have none.
const ANY_MODEL: &str = "*";

/// The parts of a route that no directive has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Route {
    /// What the body asks for.
    pub requested: Option<Name>,
    /// Tried after it, in this order.
    pub fallbacks: Vec<Fallback>,
    /// A route of its own in the place of a named model.
    pub config: Option<Box<Definition>>,
    pub preferences: Preferences,
    /// No other model is tried after the first one.
    pub is_without_fallbacks: bool,
    /// What is used of the fallbacks of named models.
    pub own_fallbacks: OwnFallbacks,
    /// A provider that the request names gets it in the provider's own format.
    pub is_translated: bool,
    /// Of streams.
    pub first_byte_timeout: Option<Duration>,
}

/// What a request that lists fallbacks leaves of those of named models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnFallbacks {
    #[default]
    All,
    /// Only targets that are reserved for a refusal.
    AfterRefusals,
    None,
}

impl OwnFallbacks {
    /// A list of names takes the place of all fallbacks. Lists by model say nothing about refusals.
    pub(super) fn beside(listed: &Value) -> Self {
        let is_by_model = |item: &Value| item.as_object().is_some_and(|item| !item.contains_key("model"));
        match listed {
            Value::Array(items) if items.iter().all(is_by_model) => Self::AfterRefusals,
            _ => Self::None,
        }
    }
}

/// A model that is tried after others.
#[derive(Clone, Debug, PartialEq)]
pub struct Fallback {
    pub name: Name,
    /// Fields of the body that are set for it.
    pub params: Map<String, Value>,
}

impl Route {
    /// The request can be planned without it.
    pub fn is_plain(&self) -> bool {
        self.fallbacks.is_empty()
            && self.config.is_none()
            && self.preferences.is_empty()
            && !self.is_without_fallbacks
            && self.own_fallbacks == OwnFallbacks::All
            && self.first_byte_timeout.is_none()
    }
}

/// Reads a list of fallbacks: names of models, `{"provider", "model"}`, a model with fields of the body, or lists of
/// names by the model that they are for. `requested` is the model of the body.
pub fn fallbacks(
    dialect: &Dialect,
    (field, value): (&str, &Value),
    requested: Option<&str>,
    known: &dyn Known,
) -> Result<Vec<Fallback>, Refused> {
    let invalid = |why: &'static str| Refused::Invalid { name: field.to_owned(), why: why.into() };
    let items: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::String(_) => vec![value],
        _ => return Err(invalid("must be a list of models")),
    };
    let plain = |name: &str| Fallback { name: dialect.name(name, known), params: Map::new() };
    let mut fallbacks = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        match item {
            Value::String(name) if !name.trim().is_empty() => fallbacks.push(plain(name)),
            Value::Object(item) if item.contains_key("model") => {
                fallbacks.push(detailed(dialect, (&format!("{field}[{index}]"), item), known)?);
            }
            Value::Object(by_model) => {
                let of_requested = requested.and_then(|requested| by_model.get(requested));
                let of_requested = of_requested.or_else(|| by_model.get(ANY_MODEL));
                for name in of_requested.and_then(Value::as_array).into_iter().flatten() {
                    let name = name.as_str().ok_or_else(|| invalid("must be a list of models"))?;
                    fallbacks.push(plain(name));
                }
            }
            _ => return Err(invalid("must be a list of models")),
        }
    }
    // The body's model may be the first of the list.
    let is_requested = |fallback: &Fallback| {
        fallback.params.is_empty()
            && requested.is_some_and(|model| dialect.name(model, known) == fallback.name)
    };
    fallbacks.retain(|fallback| !is_requested(fallback));
    if fallbacks.len() > MAX_STEPS {
        return Err(invalid("must have at most 10 models"));
    }
    Ok(fallbacks)
}

fn detailed(
    dialect: &Dialect,
    (field, item): (&str, &Map<String, Value>),
    known: &dyn Known,
) -> Result<Fallback, Refused> {
    let invalid = |why: &'static str| Refused::Invalid { name: field.to_owned(), why: why.into() };
    let model = item.get("model").and_then(text).filter(|model| !model.trim().is_empty());
    let model = model.ok_or_else(|| invalid("must name a model"))?;
    let name = match item.get("provider").and_then(Value::as_str) {
        Some(provider) => {
            let found = dialect.provider(provider, known);
            Name::Target { provider: found.ok_or_else(|| invalid("names an unknown provider"))?, model }
        }
        None => dialect.name(&model, known),
    };
    let is_param = |name: &&String| !matches!(name.as_str(), "model" | "provider");
    let params: Map<String, Value> = item
        .iter()
        .filter(|(name, _)| is_param(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if params.contains_key("stream") {
        return Err(invalid("must not set stream: the call decides it"));
    }
    if !params.is_empty() && matches!(name, Name::Model(_)) {
        return Err(Refused::Meaning {
            name: field.to_owned(),
            remedy: "a named model has fields of its own; set them there".into(),
        });
    }
    Ok(Fallback { name, params })
}
