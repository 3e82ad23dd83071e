//! The limits of an organization, ready to be matched with calls.

use std::borrow::Cow;
use std::sync::Arc;

use rust_decimal::prelude::ToPrimitive as _;
use serde_json::{Map, Value};

use super::Unit;
use super::definition::{Definition, Missing, Mode, Per, Scope};
use super::headers::policy_item;
use crate::budget::Spender;
use crate::ids::{AppId, KeyId, LimitId, TeamId};

/// Longer values of metadata are cut; those of users and sessions are not longer.
const MAX_SUBJECT: usize = 256;

/// The limits that are enabled.
#[derive(Default)]
pub struct LimitSet {
    pub limits: Vec<Limit>,
    /// Some limit counts tokens, so that the whole body must be known.
    pub counts_tokens: bool,
}

pub struct Limit {
    pub id: LimitId,
    /// Its place in the set.
    pub index: usize,
    /// The first limit of the set with a bucket for the same: a call counts in buckets of one name in both.
    subject: usize,
    pub definition: Definition,
    owner: Owner,
    /// Shares of classes, in millionths.
    pub reserve: Vec<(Box<str>, u64)>,
    /// What headers call it, by unit.
    policy_names: [Arc<str>; Unit::ALL.len()],
    /// What `RateLimit-Policy` says of it, by unit.
    policy_items: [Arc<str>; Unit::ALL.len()],
}

enum Owner {
    Anyone,
    Team(Option<TeamId>),
    App(Option<AppId>),
    /// The key and those that it was rotated to.
    Keys(Vec<KeyId>),
    Model(String),
}

/// What decides which limits a call counts against.
#[derive(Clone, Copy)]
pub struct CallFacts<'a> {
    pub spender: Spender,
    pub user: Option<&'a str>,
    /// The member that calls.
    pub subject: Option<&'a str>,
    pub session: Option<&'a str>,
    pub metadata: &'a Map<String, Value>,
    /// The named model that was asked for.
    pub named_model: Option<&'a str>,
    /// The model of the target.
    pub model: Option<&'a str>,
}

/// A call lacks the value that a limit needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingSubject {
    pub limit: String,
    pub per: Per,
}

impl LimitSet {
    /// Compiles the enabled limits; with the keys of those of scope `key`.
    pub fn new(stored: impl IntoIterator<Item = (LimitId, Definition, Vec<KeyId>)>) -> Self {
        let limits = stored.into_iter().filter(|(_, definition, _)| definition.enabled);
        let mut limits: Vec<Limit> = limits
            .enumerate()
            .map(|(index, (id, definition, keys))| Limit { index, ..Limit::new(id, definition, keys) })
            .collect();
        for index in 0..limits.len() {
            let Definition { per, missing, .. } = &limits[index].definition;
            let is_same =
                |limit: &Limit| limit.definition.per == *per && limit.definition.missing == *missing;
            limits[index].subject = limits.iter().position(is_same).unwrap_or(index);
        }
        let counts_tokens = limits.iter().any(Limit::counts_tokens);
        Self { limits, counts_tokens }
    }

    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Whether a limit of tokens may apply to calls of this spender, whatever model they name.
    pub fn counts_tokens_of(&self, spender: Spender) -> bool {
        self.counts_tokens
            && self.limits.iter().any(|limit| limit.counts_tokens() && limit.may_apply_to(spender))
    }

    /// Whether any limit applies.
    pub fn applies_to(&self, call: &CallFacts<'_>) -> bool {
        self.limits.iter().any(|limit| limit.applies_to(call))
    }

    pub fn find(&self, id: LimitId) -> Option<&Limit> {
        self.limits.iter().find(|limit| limit.id == id)
    }
}

impl Limit {
    fn new(id: LimitId, definition: Definition, mut keys: Vec<KeyId>) -> Self {
        let scope_id = definition.scope_id.as_deref().unwrap_or_default();
        let owner = match definition.scope {
            Scope::Org => Owner::Anyone,
            Scope::Team => Owner::Team(scope_id.parse().ok()),
            Scope::App => Owner::App(scope_id.parse().ok()),
            Scope::Key => {
                keys.extend(scope_id.parse::<KeyId>());
                Owner::Keys(keys)
            }
            Scope::Model => Owner::Model(scope_id.to_owned()),
        };
        let share = |share: &f64| (share * 1_000_000.0).round().to_u64().unwrap_or(0);
        let reserve = definition.reserve.iter().map(|(class, part)| (class.as_str().into(), share(part)));
        let has_several = Unit::ALL.into_iter().filter(|unit| definition.amount(*unit).is_some()).count() > 1;
        let policy_names = Unit::ALL.map(|unit| policy_name(&definition.name, unit, has_several));
        let item = |unit: Unit| {
            let (name, amount) = (&policy_names[unit as usize], definition.amount(unit).unwrap_or_default());
            policy_item(name, unit, amount, definition.window.millis()).into()
        };
        let policy_items = Unit::ALL.map(item);
        Self {
            id,
            index: 0,
            subject: 0,
            reserve: reserve.collect(),
            owner,
            policy_names,
            policy_items,
            definition,
        }
    }

    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// The name in headers.
    pub fn policy_name(&self, unit: Unit) -> &Arc<str> {
        &self.policy_names[unit as usize]
    }

    /// What `RateLimit-Policy` says of it.
    pub(super) fn policy_item(&self, unit: Unit) -> &Arc<str> {
        &self.policy_items[unit as usize]
    }

    /// Whether a call that has a value for both counts in buckets of one name.
    pub fn has_subject_of(&self, other: &Self) -> bool {
        self.subject == other.subject
    }

    pub fn window(&self) -> i64 {
        self.definition.window.millis()
    }

    pub fn is_enforced(&self) -> bool {
        self.definition.mode == Mode::Enforce
    }

    /// Whether a share is kept for the keys of a class.
    pub fn keeps_for(&self, class: &str) -> bool {
        self.reserve.iter().any(|(name, _)| **name == *class)
    }

    pub fn counts_tokens(&self) -> bool {
        let Definition { tokens, input_tokens, output_tokens, .. } = &self.definition;
        tokens.is_some() || input_tokens.is_some() || output_tokens.is_some()
    }

    /// Whether it may apply to one target of a call and not to another.
    pub fn depends_on_model(&self) -> bool {
        self.definition.models.is_some() || self.definition.scope == Scope::Model
    }

    /// Whether it applies to calls of this spender, of some model at least.
    pub fn may_apply_to(&self, spender: Spender) -> bool {
        match &self.owner {
            Owner::Anyone | Owner::Model(_) => true,
            Owner::Team(team) => team.is_some() && *team == spender.team,
            Owner::App(app) => app.is_some() && *app == spender.app,
            Owner::Keys(keys) => spender.key.is_some_and(|key| keys.contains(&key)),
        }
    }

    pub fn applies_to(&self, call: &CallFacts<'_>) -> bool {
        let is_owner = match &self.owner {
            Owner::Model(name) => call.model == Some(name) || call.named_model == Some(name),
            _ => self.may_apply_to(call.spender),
        };
        let matches = |model: &str| {
            self.definition.models.iter().flatten().any(|pattern| matches_pattern(pattern, model))
        };
        let names = [call.model, call.named_model];
        is_owner && (self.definition.models.is_none() || names.into_iter().flatten().any(matches))
    }

    /// Whose bucket the call counts in. Empty: that of all, or of those without the value.
    pub fn bucket_of<'c>(&self, call: &CallFacts<'c>) -> Result<Cow<'c, str>, MissingSubject> {
        let found: Option<Cow<'c, str>> = match &self.definition.per {
            Per::None => return Ok("".into()),
            // Without the machinery of formats: many calls have such a limit.
            Per::Key => call.spender.key.map(|key| {
                let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
                let text: &str = key.0.hyphenated().encode_lower(&mut text);
                text.to_owned().into()
            }),
            Per::User => call.user.or(call.subject).map(Into::into),
            Per::Subject => call.subject.map(Into::into),
            Per::Session => call.session.map(Into::into),
            Per::Metadata(name) => match call.metadata.get(name) {
                None | Some(Value::Null) => None,
                Some(Value::String(text)) => Some(cut(text).into()),
                Some(other) => Some(cut(&other.to_string()).to_owned().into()),
            },
        };
        match found.filter(|subject| !subject.is_empty()) {
            Some(subject) => Ok(subject),
            None if self.definition.missing == Missing::Shared => Ok("".into()),
            None => Err(MissingSubject { limit: self.name().to_owned(), per: self.definition.per.clone() }),
        }
    }
}

/// Names of limits have no dot.
fn policy_name(limit: &str, unit: Unit, has_several: bool) -> Arc<str> {
    if has_several { format!("{limit}.{}", unit.as_str()).into() } else { limit.into() }
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_SUBJECT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Whether a pattern, in which `*` stands for any text, matches. Takes time in proportion to both lengths at most.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(part) = last.replace(part) {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
    }
    match last {
        None => rest.is_empty(),
        Some(part) => rest.ends_with(part),
    }
}
