//! Checks of a definition when it is saved. A rule that can match nothing is refused, because it would look as if it
//! worked.

use std::collections::HashSet;

use super::condition::Query;
use super::definition::{Definition, FallbackCause, Mode, Strategy, Target};
use super::{MAX_DEPTH, MAX_TARGETS};
use crate::llm::failure::{AttemptOutcome, classify};
use crate::route::MAX_RETRIES;

const MAX_WEIGHT: u32 = 1_000;
const MAX_TIMEOUT_MS: u64 = 86_400_000;
const MAX_CONDITIONS: usize = 50;
/// Patterns in the conditions of one list.
const MAX_PATTERNS: usize = 5;
const MAX_FIELDS: usize = 50;
const MAX_DESCRIPTION: usize = 1_000;
const MAX_ID: usize = 64;
const MAX_MODEL: usize = 256;
const MAX_CACHE_TTL_S: u64 = 2_592_000;
const MAX_NAMESPACE: usize = 256;
const MAX_PRICE: f64 = 1_000_000.0;

/// Why a definition is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct InvalidModel {
    pub field: String,
    pub message: String,
    pub severity: Severity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// A value is out of its range.
    Malformed,
    /// The values are fine, but the route that they describe cannot work.
    Unroutable,
}

type Checked = Result<(), InvalidModel>;

fn malformed(field: impl Into<String>, message: impl Into<String>) -> Checked {
    Err(InvalidModel { field: field.into(), message: message.into(), severity: Severity::Malformed })
}

fn unroutable(field: impl Into<String>, message: impl Into<String>) -> Checked {
    Err(InvalidModel { field: field.into(), message: message.into(), severity: Severity::Unroutable })
}

impl Definition {
    /// Checks the definition of the model `name` and gives an id to each target without one. `knows_provider` tells
    /// whether the organization has a provider.
    pub fn checked(
        mut self,
        name: &str,
        knows_provider: &dyn Fn(&str) -> bool,
    ) -> Result<Self, InvalidModel> {
        if self.description.chars().count() > MAX_DESCRIPTION {
            malformed("description", format!("must have at most {MAX_DESCRIPTION} characters"))?;
        }
        check_limits("", self.retries, self.timeout_ms)?;
        check_limits("first_byte_", None, self.first_byte_timeout_ms)?;
        self.check_cache()?;
        if let Some(Err((field, why))) = self.prompt_cache.map(|setting| setting.check()) {
            malformed(format!("prompt_cache.{field}"), why)?;
        }
        for (field, usd) in self.price.iter().flat_map(super::ModelPrice::fields) {
            if usd.is_some_and(|usd| !(0.0..=MAX_PRICE).contains(&usd)) {
                malformed(format!("price.{field}"), format!("must be from 0 to {MAX_PRICE}"))?;
            }
        }
        assign_ids(&mut self.targets, "");
        let mut checker = Checker { is_starred: name.ends_with('*'), knows_provider, ids: HashSet::new() };
        checker.list("", &self.strategy, &self.targets, 1)?;
        Ok(self)
    }

    fn check_cache(&self) -> Checked {
        let Some(cache) = &self.cache else { return Ok(()) };
        if cache.ttl.is_some_and(|ttl| !(1..=MAX_CACHE_TTL_S).contains(&ttl)) {
            malformed("cache.ttl", format!("must be a number of seconds from 1 to {MAX_CACHE_TTL_S}"))?;
        }
        match &cache.namespace {
            Some(namespace) if !(1..=MAX_NAMESPACE).contains(&namespace.len()) => {
                malformed("cache.namespace", format!("must be 1 to {MAX_NAMESPACE} characters long"))
            }
            _ => Ok(()),
        }
    }
}

/// Targets without an id are called by their place, such as `2` or `2.1`.
fn assign_ids(targets: &mut [Target], above: &str) {
    for (target, place) in targets.iter_mut().zip(1..) {
        let place = format!("{above}{place}");
        if let Some(members) = &mut target.targets {
            assign_ids(members, &format!("{place}."));
        }
        target.id.get_or_insert(place);
    }
}

fn check_limits(prefix: &str, retries: Option<u32>, timeout_ms: Option<u64>) -> Checked {
    if retries.is_some_and(|retries| retries > MAX_RETRIES) {
        malformed(format!("{prefix}retries"), format!("must be from 0 to {MAX_RETRIES}"))?;
    }
    if timeout_ms.is_some_and(|ms| !(1..=MAX_TIMEOUT_MS).contains(&ms)) {
        malformed(format!("{prefix}timeout_ms"), format!("must be from 1 to {MAX_TIMEOUT_MS}"))?;
    }
    Ok(())
}

struct Checker<'a> {
    /// The name of the model ends in a star.
    is_starred: bool,
    knows_provider: &'a dyn Fn(&str) -> bool,
    ids: HashSet<String>,
}

impl Checker<'_> {
    /// A list of targets with its strategy. `at` is the path of what has both, empty or with a trailing dot.
    fn list(&mut self, at: &str, strategy: &Strategy, targets: &[Target], depth: usize) -> Checked {
        let field = format!("{at}targets");
        if !(1..=MAX_TARGETS).contains(&targets.len()) {
            malformed(&field, format!("must have 1 to {MAX_TARGETS} targets"))?;
        }
        for (index, target) in targets.iter().enumerate() {
            self.target(&format!("{field}[{index}]."), target, depth)?;
        }
        let ordinary: Vec<&Target> = targets.iter().filter(|target| target.when.is_none()).collect();
        if ordinary.is_empty() {
            unroutable(&field, "must have a target without `when`")?;
        }
        let mode = strategy.mode;
        if mode == Mode::Single && ordinary.len() > 1 {
            unroutable(&field, "mode single has one target; use order to try several one after the other")?;
        }
        if mode == Mode::Weighted && ordinary.iter().all(|target| target.weight == Some(0)) {
            unroutable(&field, "no target has a weight above 0, so none would be chosen")?;
        }
        check_causes(&format!("{at}strategy.on"), strategy)?;
        check_conditions(at, strategy, targets)
    }

    fn target(&mut self, at: &str, target: &Target, depth: usize) -> Checked {
        let id = target.id();
        let is_valid_id = (1..=MAX_ID).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:/@-".contains(&byte));
        if !is_valid_id {
            malformed(format!("{at}id"), format!("must be 1 to {MAX_ID} letters, digits or . _ : / @ -"))?;
        }
        if !self.ids.insert(id.to_owned()) {
            unroutable(format!("{at}id"), format!("'{id}' is the id of another target too"))?;
        }
        if target.weight.is_some_and(|weight| weight > MAX_WEIGHT) {
            malformed(format!("{at}weight"), format!("must be from 0 to {MAX_WEIGHT}"))?;
        }
        if target.is_group() { self.group(at, target, depth) } else { self.leaf(at, target) }
    }

    fn group(&mut self, at: &str, group: &Target, depth: usize) -> Checked {
        let foreign = [
            ("provider", group.provider.is_some()),
            ("model", group.model.is_some()),
            ("params", group.params.is_some()),
            ("defaults", group.defaults.is_some()),
            ("timeout_ms", group.timeout_ms.is_some()),
            ("retries", group.retries.is_some()),
        ];
        if let Some((field, _)) = foreign.iter().find(|(_, is_set)| *is_set) {
            malformed(format!("{at}{field}"), "a group with `targets` has none; set it in its targets")?;
        }
        if depth >= MAX_DEPTH {
            unroutable(format!("{at}targets"), "a group must not have groups")?;
        }
        let targets = group.targets.as_deref().unwrap_or_default();
        if group.when.is_some() && targets.iter().any(|target| target.when.is_some()) {
            unroutable(format!("{at}when"), "must be set on the group or on its targets, not on both")?;
        }
        self.list(at, &group.strategy.clone().unwrap_or_default(), targets, depth + 1)
    }

    fn leaf(&self, at: &str, target: &Target) -> Checked {
        if target.strategy.is_some() {
            malformed(format!("{at}strategy"), "only a group with `targets` has a strategy")?;
        }
        let Some(provider) = &target.provider else {
            return malformed(format!("{at}provider"), "is required, or `targets` for a group");
        };
        if !(self.knows_provider)(provider) {
            let shown: String = provider.chars().take(64).collect();
            unroutable(
                format!("{at}provider"),
                format!("unknown provider '{shown}'; name a built-in provider or create it first"),
            )?;
        }
        let model = target.model.as_deref().unwrap_or_default();
        let is_valid = (1..=MAX_MODEL).contains(&model.len())
            && !model.contains(|c: char| c.is_whitespace() || c.is_control());
        if !is_valid {
            malformed(format!("{at}model"), "is required: the provider's name of the model, without spaces")?;
        }
        if model.ends_with('*') && !self.is_starred {
            unroutable(format!("{at}model"), "a star needs a model whose own name ends in *")?;
        }
        check_limits(at, target.retries, target.timeout_ms)?;
        for (field, values) in [("params", &target.params), ("defaults", &target.defaults)] {
            let Some(values) = values else { continue };
            if values.len() > MAX_FIELDS {
                malformed(format!("{at}{field}"), format!("must have at most {MAX_FIELDS} fields"))?;
            }
            if let Some(reserved) = ["model", "stream"].iter().find(|name| values.contains_key(**name)) {
                malformed(format!("{at}{field}.{reserved}"), "must not be set here: the route decides it")?;
            }
        }
        Ok(())
    }
}

/// Each cause must be one after which another target can help.
fn check_causes(field: &str, strategy: &Strategy) -> Checked {
    let Some(causes) = &strategy.on else { return Ok(()) };
    if causes.is_empty() {
        return malformed(field, "must name a cause; leave it out for the usual ones");
    }
    for (index, cause) in causes.iter().enumerate() {
        let FallbackCause::Status(code) = *cause else { continue };
        let is_failure = (400..=599).contains(&code)
            && classify(AttemptOutcome::Status { code }).is_some_and(|failure| failure.next);
        if !is_failure {
            unroutable(
                format!("{field}[{index}]"),
                format!(
                    "{code} is not a failure of a target, so no other is tried after it; possible are 401 to 404, 408 to \
                     410, 429, 500 to 599, 5xx, timeout, connect, context and content_filter"
                ),
            )?;
        }
    }
    Ok(())
}

fn check_conditions(at: &str, strategy: &Strategy, targets: &[Target]) -> Checked {
    let field = format!("{at}strategy.conditions");
    let conditions = strategy.conditions.as_deref().unwrap_or_default();
    if strategy.mode != Mode::Conditional {
        if strategy.conditions.is_some() || strategy.default.is_some() {
            return malformed(field, "conditions and default are for mode conditional");
        }
        return Ok(());
    }
    if let Some(index) = targets.iter().position(|target| target.when.is_some()) {
        let message = "the choice of a condition stands alone; put targets with `when` into a group";
        return unroutable(format!("{at}targets[{index}].when"), message);
    }
    if !(1..=MAX_CONDITIONS).contains(&conditions.len()) {
        return malformed(field, format!("must have 1 to {MAX_CONDITIONS} conditions"));
    }
    let is_target = |id: &str| targets.iter().any(|target| target.id() == id);
    let mut patterns = 0;
    for (index, condition) in conditions.iter().enumerate() {
        if !is_target(&condition.then) {
            return unroutable(format!("{field}[{index}].then"), "names no target of this list");
        }
        match Query::parse(&condition.query) {
            Ok(query) => patterns += query.patterns(),
            Err((query_field, why)) => {
                let dot = if query_field.is_empty() { "" } else { "." };
                return unroutable(format!("{field}[{index}].query{dot}{query_field}"), why);
            }
        }
        if patterns > MAX_PATTERNS {
            return malformed(field, format!("must have at most {MAX_PATTERNS} patterns ($regex) together"));
        }
    }
    match &strategy.default {
        Some(id) if is_target(id) => {}
        Some(_) => return unroutable(format!("{at}strategy.default"), "names no target of this list"),
        None => {
            let message = "is required: a request that no condition matches would have no target";
            return unroutable(format!("{at}strategy.default"), message);
        }
    }
    let is_chosen = |id: &str| {
        strategy.default.as_deref() == Some(id) || conditions.iter().any(|condition| condition.then == id)
    };
    match targets.iter().position(|target| !is_chosen(target.id())) {
        Some(index) => unroutable(format!("{at}targets[{index}]"), "no condition chooses this target"),
        None => Ok(()),
    }
}
