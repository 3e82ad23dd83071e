//! What a request took of its limits.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

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
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LimitUses(Option<Box<RawValue>>);

impl LimitUses {
    pub fn new(uses: &[LimitUse<'_>]) -> Self {
        Self(if uses.is_empty() { None } else { serde_json::value::to_raw_value(uses).ok() })
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn as_json(&self) -> Option<&str> {
        self.0.as_deref().map(RawValue::get)
    }

    /// What it says, or nothing if it is not a list of uses.
    pub fn list(&self) -> Vec<LimitUse<'static>> {
        self.as_json().and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
    }
}

impl PartialEq for LimitUses {
    fn eq(&self, other: &Self) -> bool {
        self.as_json() == other.as_json()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_read_back_and_old_records_without_any_are_empty() {
        let uses = [
            LimitUse { name: "a \"b\"".into(), reserved: 7, used: 5, waited_ms: 0, would: None },
            LimitUse {
                name: "c".into(),
                reserved: 1,
                used: 1,
                waited_ms: 9,
                would: Some(DryRunVerdict::Refuse),
            },
        ];
        let row = LimitUses::new(&uses);
        assert_eq!(row.list(), uses);
        let spooled = serde_json::to_string(&row).unwrap();
        assert_eq!(serde_json::from_str::<LimitUses>(&spooled).unwrap(), row);
        assert!(LimitUses::new(&[]).is_empty() && LimitUses::default().list().is_empty());
    }
}
