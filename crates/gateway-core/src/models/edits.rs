//! Fields that a target sets in the body of a request.

use std::collections::HashMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::fields::{TakeMembers, visit_members};
use crate::llm::peek::{RequestPeek, peek};

/// Fields to set, and fields to set only where the caller has not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BodyEdits {
    params: Vec<(String, String)>,
    /// Without those that `params` sets.
    defaults: Vec<(String, String)>,
    rules: HashMap<String, Rule>,
    /// How much longer the fields make a body, at most.
    added: usize,
    /// What the fields say about limits on the output.
    limits: RequestPeek,
    /// All fields as one text, for the key of cached responses.
    text: String,
}

/// What happens to a member of the body.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Rule {
    /// It is replaced.
    Set,
    /// It replaces the default with this index.
    Keep(usize),
}

impl BodyEdits {
    pub(super) fn new(params: Option<&Map<String, Value>>, defaults: Option<&Map<String, Value>>) -> Self {
        let texts = |fields: Option<&Map<String, Value>>| -> Vec<(String, String)> {
            fields.into_iter().flatten().map(|(name, value)| (name.clone(), value.to_string())).collect()
        };
        let all: Map<String, Value> = defaults
            .into_iter()
            .chain(params)
            .flatten()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let limits = peek(Value::Object(all).to_string().as_bytes()).unwrap_or_default();
        let (params, mut defaults) = (texts(params), texts(defaults));
        let text = if params.is_empty() && defaults.is_empty() {
            String::new()
        } else {
            format!("{params:?} {defaults:?}")
        };
        defaults.retain(|(name, _)| !params.iter().any(|(set, _)| set == name));
        let kept = defaults.iter().enumerate().map(|(index, (name, _))| (name.clone(), Rule::Keep(index)));
        let set = params.iter().map(|(name, _)| (name.clone(), Rule::Set));
        let rules = kept.chain(set).collect();
        let mut all = Vec::new();
        for (name, value) in defaults.iter().chain(&params) {
            push_field(&mut all, name, value);
        }
        // The brackets of an object without members.
        let added = all.len() + 2;
        Self { params, defaults, rules, added, limits, text }
    }

    pub fn is_empty(&self) -> bool {
        self.params.is_empty() && self.defaults.is_empty()
    }

    /// All fields as one text; empty if there are none.
    pub fn as_text(&self) -> &str {
        &self.text
    }

    /// The limit on output tokens of the edited body, at most; `given` is the caller's.
    pub fn max_tokens(&self, given: Option<u64>) -> Option<u64> {
        given.max(self.limits.max_tokens)
    }

    /// The number of completions of the edited body, at most.
    pub fn choices(&self, given: Option<u64>) -> Option<u64> {
        given.max(self.limits.choices)
    }

    /// The length of the edited body, at most.
    pub fn max_length(&self, body: usize) -> usize {
        body.saturating_add(self.added)
    }

    /// The body with the fields set. None if it is not a JSON object.
    pub fn apply(&self, body: &[u8]) -> Option<Vec<u8>> {
        let edited = Vec::with_capacity(self.max_length(body.len()));
        let mut merge = Merge { edits: self, edited, is_given: vec![false; self.defaults.len()] };
        visit_members(body, &mut merge)?;
        let Merge { mut edited, is_given, .. } = merge;
        let defaults = self.defaults.iter().zip(is_given).filter(|(_, is_given)| !is_given);
        for (name, value) in defaults.map(|(field, _)| field).chain(&self.params) {
            push_field(&mut edited, name, value);
        }
        if edited.is_empty() {
            edited.push(b'{');
        }
        edited.push(b'}');
        Some(edited)
    }
}

/// Writes the members of the caller's body that stay.
struct Merge<'a> {
    edits: &'a BodyEdits,
    edited: Vec<u8>,
    /// Which defaults are not needed.
    is_given: Vec<bool>,
}

impl TakeMembers<'_> for Merge<'_> {
    fn name(&mut self, name: &str) -> bool {
        match self.edits.rules.get(name) {
            Some(Rule::Set) => return false,
            Some(Rule::Keep(index)) => {
                if let Some(is_given) = self.is_given.get_mut(*index) {
                    *is_given = true;
                }
            }
            None => {}
        }
        push_name(&mut self.edited, name);
        true
    }

    fn value(&mut self, value: &RawValue) {
        self.edited.extend_from_slice(value.get().as_bytes());
    }
}

fn push_field(object: &mut Vec<u8>, name: &str, value: &str) {
    push_name(object, name);
    object.extend_from_slice(value.as_bytes());
}

/// Begins the next member of an object that is being written.
pub(crate) fn push_name(object: &mut Vec<u8>, name: &str) {
    let before = if object.is_empty() { b'{' } else { b',' };
    object.push(before);
    // A text can always be written to memory.
    let _ = serde_json::to_writer(&mut *object, name);
    object.push(b':');
}
