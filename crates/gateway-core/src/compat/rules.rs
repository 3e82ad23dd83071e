//! What becomes of a header or field.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::Value;

use super::{Changes, Dialect, Known, OwnFallbacks, Preference, config, preferences};
use crate::llm::providers::SANDBOX;
use crate::route::MAX_RETRIES;

pub(super) const PROVIDER: &str = "x-gateway-provider";
const RETRY: &str = "x-gateway-retry";
/// What the dialect's user is called in its metadata.
const USER_FIELD: &str = "_user";
const USER: &str = "x-gateway-user";
const MAX_CACHE_TTL_S: u64 = 2_592_000;
const MAX_SECONDS: f64 = 86_400.0;

/// What becomes of a header or field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The value of a directive.
    To(&'static str),
    /// A duration in seconds, for a directive in milliseconds.
    Seconds(&'static str),
    /// A duration such as `30s` or `5m`, or a number of seconds, for a directive in seconds.
    Lifetime(&'static str),
    /// A number of retries, of which there are at most five.
    Retries,
    /// The directive has the second text if the value is the first one. Other values mean nothing.
    If(&'static str, &'static str, &'static str),
    /// The directive has the second text of the pair that begins with the value.
    OneOf(&'static str, &'static [(&'static str, &'static str)]),
    /// The directive has the text if nothing else sets it. With an expected value, only for that value.
    Default(Option<&'static str>, &'static str, &'static str),
    /// Several rules for one value.
    All(&'static [Rule]),
    /// The answer of the sandbox.
    Mock,
    /// The seconds of `max-age`.
    MaxAge(&'static str),
    /// The provider: its name, or `@` and its name.
    Provider,
    /// The provider with this base URL.
    Address,
    /// A named model that takes the place of the model of the body, or the config that one is made of.
    Model,
    /// A list of models that follow the first, and the targets of a named model.
    Fallbacks,
    /// A list of models that follow the first, in the place of those that named models have.
    FallbacksInstead,
    /// A list of addresses with bodies and statuses.
    Addresses,
    /// No model follows the first one.
    WithoutFallbacks,
    /// A preference among the providers of the models.
    Prefers(Preference),
    /// How many seconds a stream may take until it starts.
    FirstByteTimeout,
    /// A value of the metadata under this name.
    Metadata(&'static str),
    /// Fields of the metadata, as an object or its JSON.
    MetadataFields,
    /// Fields of an object, each with a rule of its own.
    Fields(&'static [(&'static str, Rule)]),
    /// Removed, because nothing here corresponds to it and the answer is the same without it.
    Dropped,
    /// Removed without a notice: information about the client.
    Ignored,
    /// Refused, with a remedy.
    Refused(&'static str),
}

/// What becomes of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathRule {
    /// The beginning is replaced.
    Replace(&'static str),
    /// The beginning names a provider, which gets the rest of the path.
    Provider(&'static str),
    /// The beginning names the provider of models that name none.
    Default(&'static str),
}

/// Why a request cannot be rewritten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It would mean something else without this header or field.
    #[error("{name}: {remedy}")]
    Meaning { name: String, remedy: Cow<'static, str> },
    #[error("{name} is a header of the dialect {dialect}; this path is below /compat/{path}")]
    OtherDialect { name: String, dialect: &'static str, path: &'static str },
    #[error("{name}: {why}")]
    Invalid { name: String, why: Cow<'static, str> },
}

/// A header or field with its rule.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub name: &'a str,
    pub rule: Rule,
    pub value: &'a Value,
    /// What the star of its name stands for.
    pub below: Option<&'a str>,
}

impl Given<'_> {
    fn invalid(&self, why: &'static str) -> Refused {
        Refused::Invalid { name: self.name.to_owned(), why: why.into() }
    }

    fn meaning(&self, remedy: &'static str) -> Refused {
        Refused::Meaning { name: self.name.to_owned(), remedy: remedy.into() }
    }

    fn text(&self, why: &'static str) -> Result<String, Refused> {
        text(self.value).ok_or_else(|| self.invalid(why))
    }

    fn is(&self, expected: &str) -> bool {
        text(self.value).is_some_and(|text| text.trim().eq_ignore_ascii_case(expected))
    }

    fn seconds(&self) -> Result<f64, Refused> {
        let seconds: Option<f64> = text(self.value).and_then(|text| text.trim().parse().ok());
        let seconds = seconds.filter(|seconds| *seconds > 0.0 && *seconds <= MAX_SECONDS);
        seconds.ok_or_else(|| self.invalid("must be a number of seconds of at most a day"))
    }
}

impl Changes {
    /// Applies the rule of a header or field.
    pub(super) fn apply(
        &mut self,
        dialect: &'static Dialect,
        given: Given<'_>,
        known: &dyn Known,
    ) -> Result<(), Refused> {
        let Given { name, rule, value, .. } = given;
        if value.is_null() {
            return Ok(());
        }
        match rule {
            Rule::All(rules) => {
                for rule in rules {
                    self.apply(dialect, Given { rule: *rule, ..given }, known)?;
                }
            }
            Rule::Fields(rules) => {
                let Value::Object(fields) = value else { return Err(given.invalid("must be an object")) };
                for (field, value) in fields {
                    let path = format!("{name}.{field}");
                    match rules.iter().find(|(known, _)| known == field) {
                        Some(&(_, rule)) => {
                            self.apply(dialect, Given { name: &path, rule, value, below: None }, known)?;
                        }
                        None => self.dropped.push(path),
                    }
                }
            }
            Rule::Address => {
                let url = given.text("must be a URL")?;
                let why = "no provider has this address; create a custom provider with this base URL";
                let provider = known.provider_at(url.trim()).ok_or_else(|| given.invalid(why))?;
                self.set.push((PROVIDER, provider));
            }
            Rule::Provider => {
                let text = given.text("must be the name of a provider")?;
                // The error of an unknown one lists those that exist.
                let unknown = || text.trim().trim_start_matches('@').to_owned();
                self.set.push((PROVIDER, dialect.provider(&text, known).unwrap_or_else(unknown)));
            }
            Rule::Model => {
                let model = given.text("must be the slug of a named model, or a config")?;
                if model.trim_start().starts_with('{') {
                    self.route.config = Some(Box::new(config::portkey(name, &model, &mut self.dropped)?));
                } else {
                    self.model = Some(model.trim().to_owned());
                }
            }
            Rule::Fallbacks => self.given_fallbacks.push((name.to_owned(), value.clone())),
            Rule::FallbacksInstead => {
                self.route.own_fallbacks = OwnFallbacks::beside(value);
                self.given_fallbacks.push((name.to_owned(), value.clone()));
            }
            Rule::Addresses => {
                let text = given.text("must be a list as JSON")?;
                let config = config::addresses((name, &text), known, &mut self.dropped)?;
                self.route.config = Some(Box::new(config));
            }
            Rule::WithoutFallbacks => self.route.is_without_fallbacks |= given.is("true"),
            Rule::Prefers(preference) => {
                let resolve = |provider: &str| dialect.provider(provider, known);
                preferences::read(preference, &mut self.route.preferences, (value, name), &resolve)?;
            }
            Rule::FirstByteTimeout => {
                self.route.first_byte_timeout = Some(Duration::from_secs_f64(given.seconds()?));
            }
            _ => self.direct(&given)?,
        }
        Ok(())
    }

    /// Applies a rule for a directive, for metadata, or for what is left out.
    fn direct(&mut self, given: &Given<'_>) -> Result<(), Refused> {
        let value = given.value;
        match given.rule {
            Rule::To(header) => self.set.push((header, given.text("must be a text")?)),
            Rule::Seconds(header) => {
                let milliseconds = (given.seconds()? * 1_000.0).max(1.0);
                self.set.push((header, format!("{milliseconds:.0}")));
            }
            Rule::Lifetime(header) => {
                let why = "must be a duration such as 30s, 5m or 1h, or a number of seconds";
                let seconds =
                    text(value).and_then(|text| lifetime(&text)).ok_or_else(|| given.invalid(why))?;
                self.set.push((header, seconds.clamp(1, MAX_CACHE_TTL_S).to_string()));
            }
            Rule::Retries => {
                let retries: Option<u64> = text(value).and_then(|text| text.trim().parse().ok());
                let retries = retries.ok_or_else(|| given.invalid("must be a number of retries"))?;
                self.set.push((RETRY, retries.min(u64::from(MAX_RETRIES)).to_string()));
            }
            Rule::If(expected, header, set) if given.is(expected) => self.set.push((header, set.to_owned())),
            Rule::OneOf(header, values) => {
                let found = values.iter().find(|(theirs, _)| given.is(theirs)).map(|(_, ours)| *ours);
                let ours = found.ok_or_else(|| given.invalid("has a value that is not known here"))?;
                self.set.push((header, ours.to_owned()));
            }
            // A later one of the same name replaces an earlier one.
            Rule::Default(expected, header, set) if expected.is_none_or(|expected| given.is(expected)) => {
                self.set.insert(0, (header, set.to_owned()));
            }
            Rule::Mock => {
                self.set.push((PROVIDER, SANDBOX.to_owned()));
                self.set.push(("x-sandbox-reply", given.text("must be a text")?));
            }
            Rule::MaxAge(header) => {
                let text = text(value).unwrap_or_default();
                let mut ages = text
                    .split(',')
                    .filter_map(|part| part.trim().strip_prefix("max-age=")?.parse::<u64>().ok());
                if let Some(age) = ages.next_back().filter(|age| *age > 0) {
                    self.set.push((header, age.min(MAX_CACHE_TTL_S).to_string()));
                }
            }
            Rule::Metadata(field) => {
                let field = if field == "*" { given.below.unwrap_or_default() } else { field };
                self.metadata.insert(field.to_owned(), value.clone());
            }
            Rule::MetadataFields => self.add_metadata(given)?,
            Rule::Dropped => self.dropped.push(given.name.to_owned()),
            Rule::Refused(remedy) => return Err(given.meaning(remedy)),
            _ => {}
        }
        Ok(())
    }

    fn add_metadata(&mut self, given: &Given<'_>) -> Result<(), Refused> {
        let parsed = match given.value {
            Value::String(text) => serde_json::from_str(text).ok(),
            value => Some(value.clone()),
        };
        let Some(Value::Object(mut fields)) = parsed else {
            return Err(given.invalid("must be a JSON object"));
        };
        if let Some(user) = fields.remove(USER_FIELD).as_ref().and_then(text) {
            self.set.push((USER, user));
        }
        self.metadata.extend(fields);
        Ok(())
    }
}

/// A scalar as text.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A duration in whole seconds.
fn lifetime(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let number: u64 = number.trim().parse().ok()?;
    match unit {
        "ms" => Some(number.div_ceil(1_000)),
        "" | "s" => Some(number),
        "m" => number.checked_mul(60),
        "h" => number.checked_mul(3_600),
        "d" => number.checked_mul(86_400),
        _ => None,
    }
}
