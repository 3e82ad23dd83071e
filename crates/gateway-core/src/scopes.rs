//! Key scopes: which providers and models a key may reach, and how several scopes combine.
//!
//! `*` allows everything. Scopes of the same kind are alternatives. If a key has both provider and model scopes, a
//! request must match one of each. A trailing `*` is a wildcard.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Provider(Pattern),
    Model(Pattern),
}

/// A name, or a prefix if the pattern ended in `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    text: String,
    open: bool,
}

impl Pattern {
    fn parse(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(start) => Self { text: start.to_owned(), open: true },
            None => Self { text: text.to_owned(), open: false },
        }
    }

    fn matches(&self, name: &str) -> bool {
        if self.open { name.starts_with(&self.text) } else { name == self.text }
    }
}

/// The validated scopes of one key. Serializes as the original list of texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Scopes(Vec<Scope>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidScope {
    #[error("scopes must not be empty: omit the field for full access, or name at least one scope")]
    Empty,
    #[error("unknown scope '{0}': expected '*', 'provider:<name>' or 'model:<name>'")]
    Unknown(String),
    #[error("too many scopes: at most 100")]
    TooMany,
}

impl Scopes {
    pub fn all() -> Self {
        Self(vec![Scope::All])
    }

    pub fn parse<S: AsRef<str>>(texts: &[S]) -> Result<Self, InvalidScope> {
        if texts.is_empty() {
            return Err(InvalidScope::Empty);
        }
        if texts.len() > 100 {
            return Err(InvalidScope::TooMany);
        }
        texts.iter().map(|text| parse_one(text.as_ref())).collect::<Result<_, _>>().map(Self)
    }

    /// Full access. Such a key acts as an admin of its organization.
    pub fn is_all(&self) -> bool {
        self.0.contains(&Scope::All)
    }

    /// Whether the scopes depend on the model. Requests with an unknown model must then be rejected.
    pub fn names_models(&self) -> bool {
        !self.is_all() && self.0.iter().any(|scope| matches!(scope, Scope::Model(_)))
    }

    /// Whether the provider is allowed for some model.
    pub fn allow_provider(&self, provider: &str) -> bool {
        let mut providers = KindMatch::Absent;
        for scope in &self.0 {
            match scope {
                Scope::All => return true,
                Scope::Provider(pattern) => providers.record(pattern.matches(provider)),
                Scope::Model(_) => {}
            }
        }
        providers.granted()
    }

    /// `model` is `None` if the request names no model.
    pub fn allow(&self, provider: &str, model: Option<&str>) -> bool {
        if self.is_all() {
            return true;
        }
        let (mut providers, mut models) = (KindMatch::Absent, KindMatch::Absent);
        for scope in &self.0 {
            match scope {
                Scope::All => return true,
                Scope::Provider(pattern) => providers.record(pattern.matches(provider)),
                Scope::Model(pattern) => models.record(model.is_some_and(|model| pattern.matches(model))),
            }
        }
        providers.granted() && models.granted()
    }
}

/// Whether there is a scope of one kind, and whether one matched.
enum KindMatch {
    Absent,
    Unmatched,
    Matched,
}

impl KindMatch {
    fn record(&mut self, matched: bool) {
        if matched {
            *self = KindMatch::Matched;
        } else if matches!(self, KindMatch::Absent) {
            *self = KindMatch::Unmatched;
        }
    }

    fn granted(&self) -> bool {
        !matches!(self, KindMatch::Unmatched)
    }
}

fn parse_one(text: &str) -> Result<Scope, InvalidScope> {
    let unknown = || InvalidScope::Unknown(text.chars().take(100).collect());
    if text == "*" {
        return Ok(Scope::All);
    }
    let (kind, name) = text.split_once(':').ok_or_else(unknown)?;
    let well_formed = !name.is_empty()
        && name.len() <= 200
        && !name.contains(|c: char| c.is_whitespace() || c.is_control());
    match kind {
        "provider" if well_formed => Ok(Scope::Provider(Pattern::parse(name))),
        "model" if well_formed => Ok(Scope::Model(Pattern::parse(name))),
        _ => Err(unknown()),
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, pattern) = match self {
            Scope::All => return f.write_str("*"),
            Scope::Provider(pattern) => ("provider", pattern),
            Scope::Model(pattern) => ("model", pattern),
        };
        write!(f, "{kind}:{}{}", pattern.text, if pattern.open { "*" } else { "" })
    }
}

impl From<Scopes> for Vec<String> {
    fn from(scopes: Scopes) -> Self {
        scopes.0.iter().map(ToString::to_string).collect()
    }
}

impl TryFrom<Vec<String>> for Scopes {
    type Error = InvalidScope;

    fn try_from(texts: Vec<String>) -> Result<Self, InvalidScope> {
        Self::parse(&texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_scopes_combine_by_kind() {
        let cases: &[(&[&str], &str, Option<&str>, bool)] = &[
            (&["*"], "openai", None, true),
            (&["provider:openai"], "openai", Some("gpt-4o"), true),
            (&["provider:openai"], "openai", None, true),
            (&["provider:openai"], "anthropic", Some("gpt-4o"), false),
            (&["provider:openai", "provider:anthropic"], "anthropic", None, true),
            (&["model:gpt-4o"], "azure-openai", Some("gpt-4o"), true),
            (&["model:gpt-4o"], "openai", Some("gpt-4o-mini"), false),
            (&["model:gpt-4o"], "openai", None, false),
            (&["model:gpt-4o*"], "openai", Some("gpt-4o-mini"), true),
            (&["model:*"], "openai", Some("x"), true),
            (&["model:*"], "openai", None, false),
            (&["provider:openai", "model:gpt-4o"], "openai", Some("gpt-4o"), true),
            (&["provider:openai", "model:gpt-4o"], "openai", Some("o1"), false),
            (&["provider:openai", "model:gpt-4o"], "groq", Some("gpt-4o"), false),
            (&["provider:openai", "*"], "groq", None, true),
        ];
        for (texts, provider, model, expected) in cases {
            let scopes = Scopes::parse(texts).unwrap();
            assert_eq!(scopes.allow(provider, *model), *expected, "{texts:?} {provider} {model:?}");
        }
    }

    #[test]
    fn unknown_forms_are_rejected() {
        for bad in ["", "**", "all", "provider", "provider:", "model:", "Provider:x", "team:x", "model:a b"] {
            assert_eq!(Scopes::parse(&[bad]), Err(InvalidScope::Unknown(bad.to_owned())), "{bad}");
        }
        assert_eq!(Scopes::parse::<&str>(&[]), Err(InvalidScope::Empty));
    }

    #[test]
    fn scopes_read_back_as_they_were_written() {
        let texts = ["provider:openai", "model:gpt-4o*", "model:a:b"];
        assert_eq!(Vec::<String>::from(Scopes::parse(&texts).unwrap()), texts);
    }
}
