//! What a request took of its limits.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// The JSON text of one use is mostly shorter.
const USE_CAPACITY: usize = 96;

/// What a request took of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitUse<'a> {
    pub name: Cow<'a, str>,
    /// Taken before the call: tokens, or calls of a limit without tokens.
    pub reserved: u64,
    /// What the call used in the end.
    pub used: u64,
    pub waited_ms: u64,
    /// What a limit in dry run would have done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would: Option<DryRunVerdict>,
}

/// What a limit in dry run would have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DryRunVerdict {
    Refuse,
}

/// What a request took of all limits that applied. It is a JSON text, because the spool and the database store it as
/// such and only the API reads it: a row is not parsed and encoded again on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitUses(Option<Box<str>>);

impl LimitUses {
    /// Every request with limits makes one, so the text is written by hand.
    pub fn new<'a>(uses: impl ExactSizeIterator<Item = LimitUse<'a>>) -> Self {
        if uses.len() == 0 {
            return Self::default();
        }
        let mut text = String::with_capacity(uses.len() * USE_CAPACITY);
        let mut digits = itoa::Buffer::new();
        for one in uses {
            text.push_str(if text.is_empty() { "[{\"name\":" } else { ",{\"name\":" });
            push_json(&mut text, &one.name);
            text.push_str(",\"reserved\":");
            text.push_str(digits.format(one.reserved));
            text.push_str(",\"used\":");
            text.push_str(digits.format(one.used));
            if one.waited_ms == 0 && one.would.is_none() {
                text.push_str(",\"waited_ms\":0}");
                continue;
            }
            text.push_str(",\"waited_ms\":");
            text.push_str(digits.format(one.waited_ms));
            text.push_str(match one.would {
                Some(DryRunVerdict::Refuse) => ",\"would\":\"refuse\"}",
                None => "}",
            });
        }
        text.push(']');
        Self(Some(text.into()))
    }

    /// A text that `as_json` returned.
    pub(super) fn from_json(text: String) -> Self {
        Self(Some(text.into()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn as_json(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// What it says, or nothing if it is not a list of uses.
    pub fn list(&self) -> Vec<LimitUse<'static>> {
        self.as_json().and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
    }
}

/// Names of limits need no escapes, but rows of other versions may have other names.
fn push_json(text: &mut String, name: &str) {
    let needs_escapes = name.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\');
    if needs_escapes {
        text.push_str(&serde_json::Value::from(name).to_string());
    } else {
        text.push('"');
        text.push_str(name);
        text.push('"');
    }
}

/// In the JSON rows of earlier versions.
impl<'de> Deserialize<'de> for LimitUses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<Box<RawValue>>::deserialize(deserializer)?;
        Ok(Self(text.map(|text| text.get().into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses() -> [LimitUse<'static>; 3] {
        let a_use = |name: &'static str| LimitUse {
            name: name.into(),
            reserved: 7,
            used: u64::MAX,
            waited_ms: 0,
            would: None,
        };
        [
            a_use("team-tokens"),
            a_use("a \"b\" \u{1} é"),
            LimitUse { waited_ms: 9, would: Some(DryRunVerdict::Refuse), ..a_use("c") },
        ]
    }

    #[test]
    fn uses_read_back_and_equal_what_serde_writes() {
        let row = LimitUses::new(uses().into_iter());
        assert_eq!(row.list(), uses());
        assert_eq!(row.as_json().unwrap(), serde_json::to_string(&uses()).unwrap());
        assert!(LimitUses::new([].into_iter()).is_empty() && LimitUses::default().list().is_empty());
    }

    #[test]
    fn rows_of_earlier_versions_read_the_same() {
        let row = LimitUses::new(uses().into_iter());
        let text = row.as_json().unwrap();
        assert_eq!(serde_json::from_str::<LimitUses>(text).unwrap(), row);
        assert!(serde_json::from_str::<LimitUses>("null").unwrap().is_empty());
    }
}
