//! Key scopes: which providers and models a key may reach, and how several scopes combine.
//!
//! `*` allows everything. Provider scopes are alternatives of each other, so are model scopes; where both kinds
//! stand on one key a request must match one of each. A trailing `*` is a wildcard.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Provider(Pattern),
    Model(Pattern),
}

/// A name, or the beginning of one when it ended in `*`.
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

/// The scopes of one key, checked. Serialises as the list of texts that it was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Scopes(Vec<Scope>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidScope {
    #[error("scopes must not be empty: leave the field out for full access, or name at least one scope")]
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

    /// Full access: such a key acts as an admin of its organization.
    pub fn is_all(&self) -> bool {
        self.0.contains(&Scope::All)
    }

    /// Does the outcome depend on the model? Then a request whose model cannot be told must be refused.
    pub fn names_models(&self) -> bool {
        !self.is_all() && self.0.iter().any(|scope| matches!(scope, Scope::Model(_)))
    }

    /// Is the provider allowed, whatever the model?
    pub fn allow_provider(&self, provider: &str) -> bool {
        let mut providers = Wanted::None;
        for scope in &self.0 {
            match scope {
                Scope::All => return true,
                Scope::Provider(pattern) => providers.see(pattern.matches(provider)),
                Scope::Model(_) => {}
            }
        }
        providers.granted()
    }

    /// `model` is None when the request names none.
    pub fn allow(&self, provider: &str, model: Option<&str>) -> bool {
        if self.is_all() {
            return true;
        }
        let (mut providers, mut models) = (Wanted::None, Wanted::None);
        for scope in &self.0 {
            match scope {
                Scope::All => return true,
                Scope::Provider(pattern) => providers.see(pattern.matches(provider)),
                Scope::Model(pattern) => models.see(model.is_some_and(|model| pattern.matches(model))),
            }
        }
        providers.granted() && models.granted()
    }
}

/// Was a scope of this kind seen, and did one match?
enum Wanted {
    None,
    Missed,
    Met,
}

impl Wanted {
    fn see(&mut self, matched: bool) {
        if matched {
            *self = Wanted::Met;
        } else if matches!(self, Wanted::None) {
            *self = Wanted::Missed;
        }
    }

    fn granted(&self) -> bool {
        !matches!(self, Wanted::Missed)
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
    fn unknown_forms_are_refused() {
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
