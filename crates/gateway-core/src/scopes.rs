//! Key scopes: which providers and models a key may reach, what it may do in the management API, and how several scopes
//! combine.
//!
//! `*` allows everything. `proxy` allows all providers and models, and in the management API only the key's own log rows
//! and usage. `read` allows what a viewer may read. `provider:` and `model:` scopes make the key a member that reads only
//! its own log rows. Scopes of one of these kinds are alternatives. If a key has both provider and model scopes, a request
//! must match one of each. A trailing `*` is a wildcard. `mcp:<server>` and `mcp:<server>/<tool>` allow MCP servers and
//! single tools of them; they allow no model and nothing in the management API.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::access::Role;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Proxy,
    Read,
    Provider(Pattern),
    Model(Pattern),
    /// Whole servers.
    Server(Pattern),
    /// Tools of one server.
    Tool(String, Pattern),
}

/// A name, or a prefix if the pattern ended in `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    text: String,
    open: bool,
}

impl Scope {
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Provider(bound), Self::Provider(pattern)) | (Self::Model(bound), Self::Model(pattern)) => {
                bound.covers(pattern)
            }
            (Self::Server(bound), Self::Server(pattern)) => bound.covers(pattern),
            (Self::Server(bound), Self::Tool(server, _)) => bound.matches(server),
            (Self::Tool(server, bound), Self::Tool(of, pattern)) => server == of && bound.covers(pattern),
            _ => self == other,
        }
    }
}

impl Scope {
    fn allows_whole(&self, server: &str) -> bool {
        match self {
            Self::All => true,
            Self::Server(pattern) => pattern.matches(server),
            _ => false,
        }
    }
}

impl Pattern {
    /// Whether it matches every name that the other matches.
    fn covers(&self, other: &Self) -> bool {
        if self.open { other.text.starts_with(&self.text) } else { self == other }
    }

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
    #[error(
        "unknown scope '{0}': expected '*', 'proxy', 'read', 'provider:<name>', 'model:<name>' or \
         'mcp:<server>[/<tool>]'"
    )]
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

    /// The highest role of the key in the management API. `None` if it may not use it but for its own log rows and usage.
    pub fn max_role(&self) -> Option<Role> {
        if self.is_all() {
            Some(Role::Admin)
        } else if self.names_targets() {
            Some(Role::Member)
        } else if self.0.contains(&Scope::Read) {
            Some(Role::Viewer)
        } else {
            None
        }
    }

    /// Whether the key reads log rows, sessions and usage of others.
    pub fn reads_all(&self) -> bool {
        self.0.iter().any(|scope| matches!(scope, Scope::All | Scope::Read))
    }

    /// Whether the scopes depend on the model. Requests with an unknown model must then be rejected.
    pub fn names_models(&self) -> bool {
        !self.reaches_all() && self.0.iter().any(|scope| matches!(scope, Scope::Model(_)))
    }

    /// Whether the provider is allowed for some model.
    pub fn allow_provider(&self, provider: &str) -> bool {
        if self.reaches_all() || !self.names_targets() {
            return self.reaches_all();
        }
        let mut providers = KindMatch::Absent;
        for scope in &self.0 {
            if let Scope::Provider(pattern) = scope {
                providers.record(pattern.matches(provider));
            }
        }
        providers.granted()
    }

    /// `model` is `None` if the request names no model.
    pub fn allow(&self, provider: &str, model: Option<&str>) -> bool {
        if self.reaches_all() || !self.names_targets() {
            return self.reaches_all();
        }
        let (mut providers, mut models) = (KindMatch::Absent, KindMatch::Absent);
        for scope in &self.0 {
            match scope {
                Scope::Provider(pattern) => providers.record(pattern.matches(provider)),
                Scope::Model(pattern) => models.record(model.is_some_and(|model| pattern.matches(model))),
                Scope::All | Scope::Proxy | Scope::Read | Scope::Server(_) | Scope::Tool(..) => {}
            }
        }
        providers.granted() && models.granted()
    }

    /// Whether some MCP server may be within reach.
    pub fn reach_mcp(&self) -> bool {
        self.0.iter().any(|scope| matches!(scope, Scope::All | Scope::Server(_) | Scope::Tool(..)))
    }

    /// Whether the MCP server, or at least one of its tools, is allowed.
    pub fn allow_server(&self, server: &str) -> bool {
        self.0.iter().any(|scope| match scope {
            Scope::All => true,
            Scope::Server(pattern) => pattern.matches(server),
            Scope::Tool(of, _) => of == server,
            _ => false,
        })
    }

    /// Whether the tool of the MCP server is allowed.
    pub fn allow_tool(&self, server: &str, tool: &str) -> bool {
        self.0.iter().any(|scope| match scope {
            Scope::Tool(of, pattern) => of == server && pattern.matches(tool),
            scope => scope.allows_whole(server),
        })
    }

    /// Whether all that the MCP server has is allowed, not only tools.
    pub fn allow_whole_server(&self, server: &str) -> bool {
        self.0.iter().any(|scope| scope.allows_whole(server))
    }

    /// Whether the named model is allowed: its name, and the provider of each of its targets.
    pub fn allow_named<'a>(&self, name: &str, mut providers: impl Iterator<Item = &'a str>) -> bool {
        providers.all(|provider| self.allow(provider, Some(name)))
    }

    /// Whether a key with these scopes can do nothing that one with `bounds` cannot: each scope is covered by one of the
    /// bounds, and where the bounds name providers or models, the scopes name some too.
    pub fn is_within(&self, bounds: &Self) -> bool {
        if bounds.is_all() {
            return true;
        }
        let names = |scopes: &Self, is_kind: fn(&Scope) -> bool| scopes.0.iter().any(is_kind);
        let is_provider = |scope: &Scope| matches!(scope, Scope::Provider(_));
        let is_model = |scope: &Scope| matches!(scope, Scope::Model(_));
        let keeps = |is_kind: fn(&Scope) -> bool| {
            bounds.reaches_all() || !names(bounds, is_kind) || !self.names_targets() || names(self, is_kind)
        };
        keeps(is_provider)
            && keeps(is_model)
            && self.0.iter().all(|scope| bounds.0.iter().any(|bound| bound.covers(scope)))
    }

    /// All providers and models.
    fn reaches_all(&self) -> bool {
        self.0.iter().any(|scope| matches!(scope, Scope::All | Scope::Proxy))
    }

    fn names_targets(&self) -> bool {
        self.0.iter().any(|scope| matches!(scope, Scope::Provider(_) | Scope::Model(_)))
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
    match text {
        "*" => return Ok(Scope::All),
        "proxy" => return Ok(Scope::Proxy),
        "read" => return Ok(Scope::Read),
        _ => {}
    }
    let (kind, name) = text.split_once(':').ok_or_else(unknown)?;
    let well_formed = !name.is_empty()
        && name.len() <= 200
        && !name.contains(|c: char| c.is_whitespace() || c.is_control());
    match kind {
        "provider" if well_formed => Ok(Scope::Provider(Pattern::parse(name))),
        "model" if well_formed => Ok(Scope::Model(Pattern::parse(name))),
        "mcp" if well_formed => match name.split_once('/') {
            None => Ok(Scope::Server(Pattern::parse(name))),
            Some((server, tool)) if !server.is_empty() && !server.contains('*') && !tool.is_empty() => {
                Ok(Scope::Tool(server.to_owned(), Pattern::parse(tool)))
            }
            Some(_) => Err(unknown()),
        },
        _ => Err(unknown()),
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, pattern) = match self {
            Scope::All => return f.write_str("*"),
            Scope::Proxy => return f.write_str("proxy"),
            Scope::Read => return f.write_str("read"),
            Scope::Provider(pattern) => ("provider", pattern),
            Scope::Model(pattern) => ("model", pattern),
            Scope::Server(pattern) => ("mcp", pattern),
            Scope::Tool(server, Pattern { text, open }) => {
                return write!(f, "mcp:{server}/{text}{}", if *open { "*" } else { "" });
            }
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
mod tests;
