//! Fields that a target sets in the body of a request.

use std::fmt;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::llm::peek::{RequestPeek, peek};

/// Fields to set, and fields to set only where the caller has not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BodyEdits {
    params: Vec<(String, String)>,
    defaults: Vec<(String, String)>,
    /// What the fields say about limits on the output.
    limits: RequestPeek,
    /// All fields as one text, for the key of cached responses.
    text: String,
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
        let (params, defaults) = (texts(params), texts(defaults));
        let text = if params.is_empty() && defaults.is_empty() {
            String::new()
        } else {
            format!("{params:?} {defaults:?}")
        };
        Self { params, defaults, limits, text }
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

    /// The body with the fields set. None if it is not a JSON object.
    pub fn apply(&self, body: &[u8]) -> Option<Vec<u8>> {
        let members = Members::parse(body)?;
        let has = |name: &str| members.0.iter().any(|(key, _)| key == name);
        let sets = |name: &str| self.params.iter().any(|(key, _)| key == name);
        let kept = members.0.iter().filter(|(name, _)| !sets(name)).map(|(name, raw)| (name, raw.get()));
        let added = self.defaults.iter().filter(|(name, _)| !has(name) && !sets(name));
        let set = added.chain(&self.params).map(|(name, value)| (name, value.as_str()));
        let mut edited = Vec::with_capacity(body.len() + 64);
        for (name, value) in kept.chain(set) {
            edited.push(if edited.is_empty() { b'{' } else { b',' });
            edited.extend_from_slice(serde_json::to_string(name).ok()?.as_bytes());
            edited.push(b':');
            edited.extend_from_slice(value.as_bytes());
        }
        if edited.is_empty() {
            edited.push(b'{');
        }
        edited.push(b'}');
        Some(edited)
    }
}

/// The members of an object in order, their values as they were written.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    fn parse(body: &'a [u8]) -> Option<Self> {
        let mut json = serde_json::Deserializer::from_slice(body);
        let members = json.deserialize_map(MembersVisitor).ok()?;
        json.end().ok()?;
        Some(members)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}
