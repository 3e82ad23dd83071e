//! Applies the tables to the headers and the body of a request. The head is taken before the caller is known, because
//! the key is in it; its values are read afterwards, because they name providers and models of the caller's
//! organization.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::route::{Fallback, Route, fallbacks};
use super::rules::{Given, PROVIDER, Refused, Rule};
use super::{DIALECTS, Dialect, Known, Name};
use crate::models::{TakeMembers, is_object, push_name, visit_members};
use crate::route::MAX_STEPS;

/// The placeholder that Portkey's client sends if the caller has no credential of a provider.
const PLACEHOLDER: &str = "OPENAI_API_KEY";
/// Of the fields that have a rule, together: they are parsed whole, and many small values take a multiple of their text.
const MAX_FIELD_BYTES: usize = 256 << 10;
/// How much longer a body gets, usually: by a named model or a provider before the model.
const MAX_RENAMED_BYTES: usize = 512;
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
    // Nothing is applied before the whole body is known to be valid.
    if !is_object(body) {
        return Ok(None);
    }
    let mut rewrite = Rewrite {
        dialect,
        changes,
        known,
        kept: Vec::with_capacity(body.len() + MAX_RENAMED_BYTES),
        part: Part::Other,
        field_bytes: 0,
        is_changed: false,
        has_model: false,
        refused: None,
    };
    let _ = visit_members(body, &mut rewrite);
    let Rewrite { changes, mut kept, mut is_changed, has_model, refused, .. } = rewrite;
    if let Some(refused) = refused {
        return Err(refused);
    }
    changes.read_fallbacks(dialect, known)?;
    if !has_model && let Some(model) = changes.missing_model() {
        push_name(&mut kept, "model");
        kept.extend_from_slice(Value::from(model).to_string().as_bytes());
        is_changed = true;
    }
    if kept.is_empty() {
        kept.push(b'{');
    }
    kept.push(b'}');
    Ok(is_changed.then_some(kept))
}

/// Takes the fields of the dialect out of a body, in one pass.
struct Rewrite<'r> {
    dialect: &'static Dialect,
    changes: &'r mut Changes,
    known: &'r dyn Known,
    /// The members that stay, without the closing bracket.
    kept: Vec<u8>,
    /// What the member that is being read is.
    part: Part,
    /// The length of the fields with a rule.
    field_bytes: usize,
    is_changed: bool,
    has_model: bool,
    /// Why the request is refused. The rest of the body does not matter then.
    refused: Option<Refused>,
}

#[derive(Clone, Copy)]
enum Part {
    Field(&'static str, Rule),
    Model,
    Stream,
    Other,
}

impl TakeMembers<'_> for Rewrite<'_> {
    fn name(&mut self, name: &str) -> bool {
        if self.refused.is_some() {
            return false;
        }
        let field = self.dialect.fields.iter().find(|(known, _)| *known == name);
        self.part = match (field, name) {
            (Some((name, rule)), _) => Part::Field(name, *rule),
            // A second model stays as it is: the body is refused because of it.
            (None, "model") if !self.has_model => Part::Model,
            (None, "stream") => Part::Stream,
            (None, _) => Part::Other,
        };
        if field.is_none() {
            push_name(&mut self.kept, name);
        }
        true
    }

    fn value(&mut self, raw: &RawValue) {
        match self.part {
            Part::Field(name, rule) => {
                self.is_changed = true;
                self.refused = self.apply(name, rule, raw).err();
                return;
            }
            Part::Model => {
                self.has_model = true;
                if let Some(model) = self.changes.renamed(self.dialect, raw, self.known) {
                    self.is_changed = true;
                    self.kept.extend_from_slice(Value::from(model).to_string().as_bytes());
                    return;
                }
            }
            Part::Stream => self.changes.streams |= raw.get() == "true",
            Part::Other => {}
        }
        self.kept.extend_from_slice(raw.get().as_bytes());
    }
}

impl Rewrite<'_> {
    /// Applies a field of the dialect.
    fn apply(&mut self, name: &'static str, rule: Rule, raw: &RawValue) -> Result<(), Refused> {
        self.field_bytes += raw.get().len();
        if self.field_bytes > MAX_FIELD_BYTES {
            let why = format!("the fields of the dialect must have at most {MAX_FIELD_BYTES} bytes together");
            return Err(Refused::Invalid { name: name.to_owned(), why: why.into() });
        }
        let value = serde_json::from_str(raw.get()).unwrap_or_default();
        let given = Given { name, rule, value: &value, below: None };
        self.changes.apply(self.dialect, given, self.known)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Known for Nobody {
        fn has_model(&self, _name: &str) -> bool {
            false
        }

        fn has_provider(&self, _name: &str) -> bool {
            false
        }

        fn provider_at(&self, _url: &str) -> Option<String> {
            None
        }
    }

    #[test]
    fn only_the_first_of_several_models_is_renamed() {
        let dialect = DIALECTS.iter().find(|dialect| dialect.name == "portkey").unwrap();
        let mut changes = Changes { model: Some("smart/*".to_owned()), ..Changes::default() };
        let text = br#" {"model": "a", "x":[1, 2],"m\u006fdel":"b","x":null} "#;
        let edited = body(dialect, text, &mut changes, &Nobody).unwrap().unwrap();
        assert_eq!(
            String::from_utf8(edited).unwrap(),
            r#"{"model":"smart/a","x":[1, 2],"model":"b","x":null}"#
        );
        let mut untouched = Changes { model: Some("smart".to_owned()), ..Changes::default() };
        assert_eq!(body(dialect, br#"{"model":"a"}x"#, &mut untouched, &Nobody), Ok(None));
        assert_eq!(untouched.route, Route::default());
        assert_eq!(
            body(dialect, b"{ }", &mut untouched, &Nobody),
            Ok(Some(br#"{"model":"smart"}"#.to_vec()))
        );
    }
}
