//! Dialects: what clients of other gateways send, as tables. Each header and field of another gateway is mapped to a
//! directive of this one or to a part of the route, dropped with a notice, or refused if its loss would change what a
//! call means. Below `/compat/{dialect}` a request is rewritten by its table and goes on like any other.

mod answer;
mod config;
mod names;
mod preferences;
mod rewrite;
mod route;
mod rules;
mod tables;

pub use answer::{Answer, AnswerFacts, CostPlace, StreamErrors};
pub use names::{Known, ModelStyle, Name};
pub use preferences::{Preference, Preferences, TargetInfo};
pub use rewrite::{Changes, Head, body, read_head, take_headers};
pub use route::{Fallback, OwnFallbacks, Route};
pub use rules::{PathRule, Refused, Rule};
pub use tables::DIALECTS;

use crate::route::RouteStrategy;

/// A gateway whose clients are served.
#[derive(Debug)]
pub struct Dialect {
    pub name: &'static str,
    /// Headers with one of these beginnings are the dialect's own; unknown ones are dropped.
    pub prefixes: &'static [&'static str],
    /// Where its clients put the key. The first that is present counts, and all are removed.
    pub keys: &'static [&'static str],
    /// Where the key is if none of `keys` is present. Beside them, it has a credential of a provider.
    pub key_otherwise: Option<&'static str>,
    pub headers: &'static [(&'static str, Rule)],
    pub fields: &'static [(&'static str, Rule)],
    /// How it writes the provider of a model.
    pub models: ModelStyle,
    /// Its names of providers, where they differ from the gateway's.
    pub providers: &'static [(&'static str, &'static str)],
    /// A provider that a request names gets it in the provider's own format.
    pub translates: bool,
    /// Endings of model names, with the order of targets that they ask for.
    pub suffixes: &'static [(&'static str, RouteStrategy)],
    /// Beginnings of paths and what stands in their place. The first that matches counts.
    pub paths: &'static [(&'static str, PathRule)],
    /// Headers of answers.
    pub answers: &'static [(&'static str, Answer)],
    pub cost: CostPlace,
    pub stream_errors: StreamErrors,
}

/// The dialect of a path, and the rest of the path. None: the path is not below `/compat`.
pub fn find(path: &str) -> Option<(Option<&'static Dialect>, &str)> {
    let below = path.strip_prefix("/compat/")?;
    let (name, rest) = below.split_at(below.find('/').unwrap_or(below.len()));
    Some((named(name), rest))
}

pub fn named(name: &str) -> Option<&'static Dialect> {
    DIALECTS.iter().find(|dialect| dialect.name == name)
}

/// What a path below a dialect means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    pub path: String,
    /// The provider that gets the request, whatever its model is.
    pub provider: Option<&'static str>,
    /// The provider of models that name none.
    pub default_provider: Option<&'static str>,
}

impl Dialect {
    pub fn path(&self, rest: &str) -> Rewritten {
        let is_below = |start: &str| {
            rest.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
        };
        let rewritten = |path: String| Rewritten { path, provider: None, default_provider: None };
        match self.paths.iter().find(|(start, _)| is_below(start)) {
            Some((start, PathRule::Replace(by))) => rewritten(format!("{by}{}", &rest[start.len()..])),
            Some((start, PathRule::Provider(name))) => {
                Rewritten { provider: Some(name), ..rewritten(rest[start.len()..].to_owned()) }
            }
            Some((start, PathRule::Default(name))) => {
                Rewritten { default_provider: Some(name), ..rewritten(rest[start.len()..].to_owned()) }
            }
            None => rewritten(rest.to_owned()),
        }
    }

    /// Whether a header belongs to this dialect.
    pub fn owns(&self, header: &str) -> bool {
        self.prefixes.iter().any(|prefix| header.starts_with(prefix))
    }
}

#[cfg(test)]
mod tests;
