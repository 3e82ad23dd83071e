//! Applies the tables to the headers and the body of a request. The head is taken before the caller is known, because
//! the key is in it; its values are read afterwards, because they name providers and models of the caller's
//! organization.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::members::{encoded, members};
use super::route::{Fallback, Route, fallbacks};
use super::rules::{Given, PROVIDER, Refused, Rule};
use super::{DIALECTS, Dialect, Known, Name};
use crate::route::MAX_STEPS;

/// The placeholder that Portkey's client sends if the caller has no credential of a provider.
const PLACEHOLDER: &str = "OPENAI_API_KEY";
/// Of the fields that have a rule, together: they are parsed whole, and many small values take a multiple of their text.
const MAX_FIELD_BYTES: usize = 256 << 10;
const AUTO: &str = "auto";
/// Where keys of this gateway stand. It is accepted below every dialect.
const OWN_KEY: &str = "x-gateway-key";

/// The headers of a request that belong to its dialect.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// The key of the caller.
    pub key: Option<String>,
    /// Headers of the request that are removed.
    pub removed: Vec<String>,
    /// Those with a rule, and their values.
    pub given: Vec<(String, String)>,
    unknown: Vec<String>,
    /// A header of another dialect. It is reported when the values are read: first the caller must be known.
    refused: Option<Refused>,
}

/// What the headers and fields of a request become.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Directives. A later one of the same name replaces an earlier one.
    pub set: Vec<(&'static str, String)>,
    pub metadata: Map<String, Value>,
    /// The named model that takes the place of the model of the body. With a star at its end, the body's model stands
    /// there.
    pub model: Option<String>,
    /// The provider of models that name none.
    pub default_provider: Option<&'static str>,
    /// The path names the provider, so a model is not searched for one.
    pub is_direct: bool,
    pub route: Route,
    /// The body asks for a stream.
    pub streams: bool,
    /// Names of what was lost.
    pub dropped: Vec<String>,
    /// Lists of fallbacks. They are read last, because what they mean depends on the model.
    pub(super) given_fallbacks: Vec<(String, Value)>,
}

/// Takes the key and the dialect's headers from a request. Names are in lower case.
pub fn take_headers<'h>(
    dialect: &'static Dialect,
    headers: impl Iterator<Item = (&'h str, &'h str)>,
) -> Head {
    let mut head = Head::default();
    let mut place = usize::MAX;
    let (mut otherwise, mut has_own_key) = (None, false);
    for (name, value) in headers {
        has_own_key |= name == OWN_KEY;
        if dialect.key_otherwise == Some(name) {
            otherwise = Some((name, value));
        }
        if let Some(at) = dialect.keys.iter().position(|key| *key == name) {
            head.removed.push(name.to_owned());
            if at < place {
                (place, head.key) = (at, Some(without_scheme(value).to_owned()));
            }
        } else if name == "authorization" && without_scheme(value) == PLACEHOLDER {
            head.removed.push(name.to_owned());
        } else if rule_of(dialect, name).is_some() {
            head.removed.push(name.to_owned());
            head.given.push((name.to_owned(), value.to_owned()));
        } else if dialect.owns(name) {
            head.removed.push(name.to_owned());
            head.unknown.push(name.to_owned());
        } else if let Some(other) = DIALECTS.iter().find(|other| other.owns(name)) {
            let (name, path) = (name.to_owned(), dialect.name);
            head.refused.get_or_insert(Refused::OtherDialect { name, dialect: other.name, path });
        }
    }
    if let Some((name, value)) = otherwise.filter(|_| head.key.is_none() && !has_own_key) {
        head.removed.push(name.to_owned());
        head.key = Some(without_scheme(value).to_owned());
    }
    head
}

impl Head {
    /// The value of a header of the dialect.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.given.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }
}

/// Reads the values of the dialect's headers.
pub fn read_head(dialect: &'static Dialect, head: &Head, known: &dyn Known) -> Result<Changes, Refused> {
    if let Some(refused) = &head.refused {
        return Err(refused.clone());
    }
    let mut changes = Changes { dropped: head.unknown.clone(), ..Changes::default() };
    for (name, value) in &head.given {
        let Some((pattern, rule)) = rule_of(dialect, name) else { continue };
        let below = name.get(pattern.len() - 1..).filter(|_| pattern.ends_with('*'));
        let value = Value::from(value.as_str());
        changes.apply(dialect, Given { name, rule, value: &value, below }, known)?;
    }
    Ok(changes)
}

fn rule_of(dialect: &'static Dialect, name: &str) -> Option<(&'static str, Rule)> {
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => name.len() > start.len() && name.starts_with(start),
        None => name == pattern,
    };
    dialect.headers.iter().find(|(pattern, _)| matches(pattern)).copied()
}

fn without_scheme(value: &str) -> &str {
    let value = value.trim();
    match value.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => key.trim(),
        _ => value,
    }
}

/// Rewrites the fields of a JSON body. None: the body stays as it is. A body that is no object is left to the provider.
pub fn body(
    dialect: &'static Dialect,
    body: &[u8],
    changes: &mut Changes,
    known: &dyn Known,
) -> Result<Option<Vec<u8>>, Refused> {
    let Some(fields) = members(body) else { return Ok(None) };
    let mut kept = Vec::with_capacity(fields.len());
    let (mut is_changed, mut field_bytes) = (false, 0);
    for (name, raw) in fields {
        let rule = dialect.fields.iter().find(|(known, _)| *known == name).map(|(_, rule)| *rule);
        let Some(rule) = rule else {
            changes.streams |= name == "stream" && raw.get() == "true";
            let model = if name == "model" { changes.renamed(dialect, raw, known) } else { None };
            is_changed |= model.is_some();
            kept.push((
                name,
                model.map_or_else(|| raw.get().to_owned(), |model| Value::from(model).to_string()),
            ));
            continue;
        };
        is_changed = true;
        field_bytes += raw.get().len();
        if field_bytes > MAX_FIELD_BYTES {
            let why = format!("the fields of the dialect must have at most {MAX_FIELD_BYTES} bytes together");
            return Err(Refused::Invalid { name, why: why.into() });
        }
        let value = serde_json::from_str(raw.get()).unwrap_or_default();
        changes.apply(dialect, Given { name: &name, rule, value: &value, below: None }, known)?;
    }
    changes.read_fallbacks(dialect, known)?;
    let has_model = kept.iter().any(|(name, _)| name == "model");
    if !has_model && let Some(model) = changes.missing_model() {
        kept.push(("model".to_owned(), Value::from(model).to_string()));
        is_changed = true;
    }
    Ok(is_changed.then(|| encoded(&kept)))
}

impl Changes {
    /// The model of a body under its name here, if that differs: with the gateway's name of its provider, without a
    /// suffix, or below the named model of a header.
    fn renamed(&mut self, dialect: &'static Dialect, raw: &RawValue, known: &dyn Known) -> Option<String> {
        let given: String = serde_json::from_str(raw.get()).ok()?;
        if let Some(named) = &self.model {
            let name =
                named.strip_suffix('*').map_or_else(|| named.clone(), |start| format!("{start}{given}"));
            self.route.requested = Some(Name::Model(name.clone()));
            return Some(name);
        }
        let is_direct = self.is_direct || self.set.iter().any(|(name, _)| *name == PROVIDER);
        if given.starts_with('@') && matches!(dialect.name(&given, known), Name::Target { .. }) {
            // The provider of the model counts, whatever a header says.
            self.set.push((PROVIDER, AUTO.to_owned()));
        } else if is_direct {
            self.route.requested = Some(Name::Bare(given));
            return None;
        }
        let mut names = dialect.split_models(&given).take(MAX_STEPS + 2);
        let mut first = names.next().unwrap_or_default();
        self.route
            .fallbacks
            .extend(names.map(|name| Fallback { name: dialect.name(name, known), params: Map::new() }));
        // A model may really have such a name.
        let suffix = dialect.suffixes.iter().find(|(suffix, _)| first.ends_with(suffix));
        if let Some((suffix, strategy)) = suffix
            && !known.has_model(first)
        {
            first = &first[..first.len() - suffix.len()];
            self.route.preferences.sort.get_or_insert(*strategy);
        }
        let name = match (dialect.name(first, known), self.default_provider) {
            (Name::Bare(model), Some(provider)) => Name::Target { provider: provider.to_owned(), model },
            (name, _) => name,
        };
        let text = name.text();
        self.route.requested = Some(name);
        (text != given).then_some(text)
    }

    fn read_fallbacks(&mut self, dialect: &'static Dialect, known: &dyn Known) -> Result<(), Refused> {
        let requested = self.route.requested.as_ref().map(Name::text);
        for (field, value) in std::mem::take(&mut self.given_fallbacks) {
            let listed = fallbacks(dialect, (&field, &value), requested.as_deref(), known)?;
            self.route.fallbacks.extend(listed);
        }
        if self.route.fallbacks.len() > MAX_STEPS {
            let why = "a request must have at most 10 models after the first".into();
            return Err(Refused::Invalid { name: "model".to_owned(), why });
        }
        if self.model.is_some() {
            // A named model has providers of its own.
            self.set.push((PROVIDER, AUTO.to_owned()));
        }
        Ok(())
    }

    /// The model of a body that names none: the named model of a header, or the first of a list.
    fn missing_model(&mut self) -> Option<String> {
        if let Some(named) = &self.model {
            return Some(named.clone()).filter(|named| !named.ends_with('*'));
        }
        if self.route.fallbacks.first().is_none_or(|first| !first.params.is_empty()) {
            return None;
        }
        let first = self.route.fallbacks.remove(0);
        let text = first.name.text();
        self.route.requested = Some(first.name);
        Some(text)
    }
}
