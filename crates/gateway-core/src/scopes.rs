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
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn scopes_within_bounds_reach_nothing_beyond_them() {
        let is_within = |scopes: &[&str], bounds: &[&str]| {
            Scopes::parse(scopes).unwrap().is_within(&Scopes::parse(bounds).unwrap())
        };
        for (scopes, bounds, expected) in [
            (&["*"][..], &["*"][..], true),
            (&["proxy"], &["*"], true),
            (&["*"], &["proxy"], false),
            (&["proxy"], &["proxy"], true),
            (&["model:gpt-4o"], &["model:gpt-*"], true),
            (&["model:gpt-*"], &["model:gpt-4o"], false),
            (&["model:*"], &["model:gpt-*"], false),
            (&["provider:openai", "model:gpt-4o"], &["provider:openai", "model:gpt-*"], true),
            // Without a model, all models of the provider would be allowed.
            (&["provider:openai"], &["provider:openai", "model:gpt-*"], false),
            (&["model:gpt-4o"], &["provider:openai", "model:gpt-*"], false),
            (&["provider:openai"], &["provider:openai"], true),
            (&["read"], &["proxy"], false),
            (&["read"], &["proxy", "read"], true),
            (&["read"], &["read", "model:a"], true),
        ] {
            assert_eq!(is_within(scopes, bounds), expected, "{scopes:?} within {bounds:?}");
        }
    }

    #[test]
    fn a_named_model_needs_its_name_and_all_its_providers() {
        for (scopes, allowed) in [
            (&["*"][..], true),
            (&["proxy"], true),
            (&["read"], false),
            (&["model:smart"], true),
            (&["model:sm*"], true),
            (&["model:gpt-4o"], false),
            (&["provider:openai"], false),
            (&["provider:openai", "provider:groq"], true),
            (&["provider:openai", "provider:groq", "model:smart"], true),
            (&["provider:openai", "model:smart"], false),
        ] {
            let scopes = Scopes::parse(scopes).unwrap();
            let providers = ["openai", "groq"].into_iter();
            assert_eq!(scopes.allow_named("smart", providers), allowed, "{scopes:?}");
        }
    }

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
            (&["proxy"], "groq", None, true),
            (&["proxy", "model:gpt-4o"], "groq", None, true),
            (&["read"], "openai", Some("gpt-4o"), false),
            (&["read"], "openai", None, false),
            (&["read", "proxy"], "openai", None, true),
            (&["read", "provider:openai"], "openai", None, true),
            (&["read", "provider:openai"], "groq", None, false),
        ];
        for (texts, provider, model, expected) in cases {
            let scopes = Scopes::parse(texts).unwrap();
            assert_eq!(scopes.allow(provider, *model), *expected, "{texts:?} {provider} {model:?}");
        }
    }

    #[test]
    fn mcp_scopes_allow_servers_and_tools_and_nothing_else() {
        for (texts, server, tool, expected) in [
            (&["*"][..], "git", "a", true),
            (&["mcp:git"], "git", "a", true),
            (&["mcp:git"], "other", "a", false),
            (&["mcp:g*"], "git", "a", true),
            (&["mcp:git/get_*"], "git", "get_user", true),
            (&["mcp:git/get_*"], "git", "delete", false),
            (&["mcp:git/a", "mcp:other"], "git", "b", false),
            (&["proxy"], "git", "a", false),
            (&["read", "model:a"], "git", "a", false),
        ] {
            let scopes = Scopes::parse(texts).unwrap();
            assert_eq!(scopes.allow_tool(server, tool), expected, "{texts:?} {server}/{tool}");
            assert_eq!(Vec::<String>::from(scopes), texts);
        }
        let only = Scopes::parse(&["mcp:git/a"]).unwrap();
        assert!(only.reach_mcp() && only.allow_server("git") && !only.allow_whole_server("git"));
        assert!(!only.allow("openai", Some("gpt-4o")) && !only.allow_provider("openai"));
        assert_eq!((only.max_role(), only.reads_all()), (None, false));
        assert!(!Scopes::parse(&["proxy"]).unwrap().reach_mcp());
        for bad in ["mcp:", "mcp:/a", "mcp:git/", "mcp:g*/a"] {
            assert!(Scopes::parse(&[bad]).is_err(), "{bad}");
        }
        let within = |inner: &str, outer: &str| {
            Scopes::parse(&[inner]).unwrap().is_within(&Scopes::parse(&[outer]).unwrap())
        };
        assert!(
            within("mcp:git/a", "mcp:git") && within("mcp:git/a", "mcp:git/*") && within("mcp:a", "mcp:*")
        );
        assert!(!within("mcp:git", "mcp:git/*") && !within("mcp:git/a", "mcp:other"));
    }

    #[test]
    fn unknown_forms_are_rejected() {
        for bad in [
            "",
            "**",
            "all",
            "Proxy",
            "proxy:",
            "read:x",
            "read*",
            "provider",
            "provider:",
            "model:",
            "Provider:x",
            "team:x",
            "model:a b",
        ] {
            assert_eq!(Scopes::parse(&[bad]), Err(InvalidScope::Unknown(bad.to_owned())), "{bad}");
        }
        for bad in ["provider:a b", "provider:a\u{7f}", "model:a\u{7f}", "model:a\u{a0}"] {
            assert_eq!(Scopes::parse(&[bad]), Err(InvalidScope::Unknown(bad.to_owned())), "{bad:?}");
        }
        assert_eq!(Scopes::parse::<&str>(&[]), Err(InvalidScope::Empty));
    }

    #[test]
    fn scopes_are_limited_in_length_and_number() {
        for kind in ["provider", "model"] {
            assert!(Scopes::parse(&[format!("{kind}:{}", "x".repeat(200))]).is_ok());
            let long = format!("{kind}:{}", "x".repeat(201));
            let InvalidScope::Unknown(shown) = Scopes::parse(&[&long]).unwrap_err() else { panic!() };
            assert_eq!(shown, long[..100], "a long text is cut in the message");
        }
        assert!(Scopes::parse(&["model:a"; 100]).is_ok());
        assert_eq!(Scopes::parse(&["model:a"; 101]), Err(InvalidScope::TooMany));
    }

    #[test]
    fn full_access_is_one_star_among_the_scopes() {
        let is_all = |texts: &[&str]| Scopes::parse(texts).unwrap().is_all();
        assert!(Scopes::all().is_all() && is_all(&["*"]) && is_all(&["model:a", "*"]));
        assert!(!is_all(&["model:*", "provider:*"]));
        assert_eq!(Vec::<String>::from(Scopes::all()), ["*"]);
    }

    #[test]
    fn the_model_must_be_known_if_a_scope_names_one() {
        for (texts, expected) in [
            (&["model:a"][..], true),
            (&["provider:a", "model:a*"], true),
            (&["provider:a"], false),
            (&["*"], false),
            (&["model:a", "*"], false),
            (&["model:a", "proxy"], false),
            (&["model:a", "read"], true),
            (&["read"], false),
        ] {
            assert_eq!(Scopes::parse(texts).unwrap().names_models(), expected, "{texts:?}");
        }
    }

    #[test]
    fn scopes_decide_on_the_role_and_on_what_is_read() {
        for (texts, role, reads_all) in [
            (&["*"][..], Some(Role::Admin), true),
            (&["*", "proxy"], Some(Role::Admin), true),
            (&["proxy"], None, false),
            (&["read"], Some(Role::Viewer), true),
            (&["proxy", "read"], Some(Role::Viewer), true),
            (&["provider:a"], Some(Role::Member), false),
            (&["model:a", "proxy"], Some(Role::Member), false),
            (&["model:a", "read"], Some(Role::Member), true),
        ] {
            let scopes = Scopes::parse(texts).unwrap();
            assert_eq!((scopes.max_role(), scopes.reads_all()), (role, reads_all), "{texts:?}");
        }
    }

    #[test]
    fn scopes_read_back_as_they_were_written() {
        let texts = ["provider:openai", "model:gpt-4o*", "model:a:b", "proxy", "read"];
        assert_eq!(Vec::<String>::from(Scopes::parse(&texts).unwrap()), texts);
        let json = r#"["provider:openai","model:gpt-4o*"]"#;
        let scopes: Scopes = serde_json::from_str(json).unwrap();
        assert!(scopes.allow("openai", Some("gpt-4o-mini")) && !scopes.allow("groq", Some("gpt-4o-mini")));
        assert_eq!(serde_json::to_string(&scopes).unwrap(), json);
        for bad in ["[]", r#"["all"]"#, r#""*""#] {
            assert!(serde_json::from_str::<Scopes>(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_request_matches_one_scope_of_each_kind(
            texts in prop::collection::vec("\\*|proxy|read|(provider|model):([ab]{1,2}\\*?|\\*)", 1..5),
            provider in "[ab]{1,3}",
            model in prop::option::of("[ab]{1,3}"),
        ) {
            let fits = |kind: &str, name: Option<&str>| {
                let mut patterns = texts.iter().filter_map(|text| text.strip_prefix(kind)).peekable();
                patterns.peek().is_none()
                    || patterns.any(|pattern| name.is_some_and(|name| match pattern.split_once('*') {
                        Some((start, _)) => name.starts_with(start),
                        None => name == pattern,
                    }))
            };
            let all = texts.iter().any(|text| text == "*" || text == "proxy");
            let reads_only = texts.iter().all(|text| text == "read");
            let by_provider = all || (!reads_only && fits("provider:", Some(&provider)));
            let scopes = Scopes::parse(&texts).unwrap();
            prop_assert_eq!(scopes.allow_provider(&provider), by_provider);
            let expected = all || (by_provider && fits("model:", model.as_deref()));
            prop_assert_eq!(scopes.allow(&provider, model.as_deref()), expected);
        }
    }
}
