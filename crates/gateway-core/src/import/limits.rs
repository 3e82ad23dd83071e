//! Limits of a source: their names, and whether they can be had here.

use std::collections::{BTreeMap, HashSet};

use super::report::Report;
use super::{PlannedLimit, Status};
use crate::accounts::slugify;
use crate::limits::{Definition, MAX_LIMITS, Missing, Mode, Per, Scope, Window};

const MAX_NAME: usize = 40;
/// Replaces the id of a key that is not created yet.
const KEY_TO_BE: &str = "key";

/// What a limit allows in its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub requests: Option<u64>,
    pub tokens: Option<u64>,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub concurrent: Option<u64>,
}

impl Amounts {
    fn all(&self) -> [Option<u64>; 5] {
        [self.requests, self.tokens, self.input_tokens, self.output_tokens, self.concurrent]
    }

    pub fn is_nothing(&self) -> bool {
        self.all().iter().all(Option::is_none)
    }

    fn has_zero(&self) -> bool {
        self.all().contains(&Some(0))
    }
}

/// Whose calls a limit counts.
pub enum Owner {
    /// The name of a model.
    Model(String),
    /// The places of keys in the plan, which share the limit.
    Keys(Vec<usize>),
    /// Each key on its own: its calls of the model with this name, or all of them.
    EachKey(Option<String>),
    /// Each end user on its own: its calls of the model with this name, or all of them.
    EachUser(Option<String>),
    Org,
}

pub struct Wanted<'a> {
    /// What the name of the limit is made of.
    pub title: &'a str,
    pub owner: Owner,
    pub models: Option<Vec<String>>,
    pub amounts: Amounts,
    pub window: Window,
}

/// The limits of a plan.
#[derive(Default)]
pub struct Limits {
    planned: Vec<PlannedLimit>,
    names: HashSet<String>,
}

impl Limits {
    /// Adds a limit. One that cannot be had here is named in a finding about the path.
    pub fn add(&mut self, report: &mut Report, path: &str, wanted: Wanted<'_>) {
        if wanted.amounts.is_nothing() {
            return;
        }
        if wanted.amounts.has_zero() {
            let message = "a limit of 0 refuses every call: revoke the key or disable the model instead";
            report.set(path, Status::Manual, message);
            return;
        }
        if self.planned.len() >= MAX_LIMITS {
            let message = format!("the limit is left out: an organization has at most {MAX_LIMITS}");
            report.set(path, Status::Manual, message);
            return;
        }
        let Wanted { title, owner, models, amounts, window } = wanted;
        let per = match &owner {
            Owner::EachKey(_) => Per::Key,
            Owner::EachUser(_) => Per::User,
            Owner::Model(_) | Owner::Keys(_) | Owner::Org => Per::None,
        };
        let (scope, scope_id, keys) = match owner {
            Owner::Model(name) | Owner::EachKey(Some(name)) | Owner::EachUser(Some(name)) => {
                (Scope::Model, Some(name), Vec::new())
            }
            Owner::Keys(keys) => (Scope::Key, None, keys),
            Owner::Org | Owner::EachKey(None) | Owner::EachUser(None) => (Scope::Org, None, Vec::new()),
        };
        let definition = Definition {
            name: self.free_name(title),
            scope,
            scope_id,
            models,
            per,
            requests: amounts.requests,
            tokens: amounts.tokens,
            input_tokens: amounts.input_tokens,
            output_tokens: amounts.output_tokens,
            concurrent: amounts.concurrent,
            window,
            reserve: BTreeMap::new(),
            count_cached: true,
            missing: Missing::Shared,
            mode: Mode::Enforce,
            enabled: true,
        };
        let mut checked = definition.clone();
        if scope == Scope::Key {
            checked.scope_id = Some(KEY_TO_BE.to_owned());
        }
        match checked.check() {
            Ok(()) => {
                self.names.insert(definition.name.clone());
                self.planned.push(PlannedLimit { definition, keys });
            }
            Err((field, why)) => {
                report.set(path, Status::Manual, format!("the limit is left out: {field} {why}"));
            }
        }
    }

    /// A name that no other limit of the plan has. The same source always gets the same names.
    fn free_name(&self, title: &str) -> String {
        let slug = slugify(title);
        let slug = if slug.is_empty() { "limit".to_owned() } else { slug };
        if !self.names.contains(&slug) {
            return slug;
        }
        let numbered = (2..).map(|number: u32| {
            let suffix = format!("-{number}");
            let kept = slug.len().min(MAX_NAME - suffix.len());
            format!("{}{suffix}", slug[..kept].trim_end_matches('-'))
        });
        numbered.into_iter().find(|name| !self.names.contains(name)).unwrap_or(slug)
    }

    pub fn into_planned(self) -> Vec<PlannedLimit> {
        self.planned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(title: &str, requests: u64) -> Wanted<'_> {
        Wanted {
            title,
            owner: Owner::Keys(vec![0]),
            models: None,
            amounts: Amounts { requests: Some(requests), ..Amounts::default() },
            window: Window::Minute,
        }
    }

    #[test]
    fn names_are_valid_and_different() {
        let (mut limits, mut report) = (Limits::default(), Report::default());
        let long = "Key of the Department of Very Long Names indeed";
        for title in ["Key CI/1", "key ci 1", "Key CI/1", "äöü", long, long] {
            limits.add(&mut report, "x", wanted(title, 1));
        }
        let names: Vec<String> =
            limits.into_planned().into_iter().map(|limit| limit.definition.name).collect();
        assert_eq!(names[..4], ["key-ci-1", "key-ci-1-2", "key-ci-1-3", "limit"]);
        assert_eq!(
            names[4..],
            ["key-of-the-department-of-very-long-names", "key-of-the-department-of-very-long-nam-2"]
        );
        assert!(report.into_findings().is_empty());
    }

    #[test]
    fn what_cannot_be_had_is_named() {
        let (mut limits, mut report) = (Limits::default(), Report::default());
        limits.add(&mut report, "zero", wanted("a", 0));
        limits.add(&mut report, "much", wanted("a", u64::MAX));
        for _ in 0..=MAX_LIMITS {
            limits.add(&mut report, "many", wanted("a", 1));
        }
        assert_eq!(limits.into_planned().len(), MAX_LIMITS);
        let findings: Vec<_> = report.into_findings().into_iter().map(|one| (one.path, one.status)).collect();
        let manual = ["zero", "much", "many"].map(|path| (path.to_owned(), Status::Manual));
        assert_eq!(findings, manual);
    }
}
