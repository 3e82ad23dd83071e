//! The definition of a limit as it is written and stored.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Unit;
use crate::time::{DAY, HOUR, MINUTE};

/// A limit. At least one of `requests`, `tokens`, `input_tokens`, `output_tokens` and `concurrent` is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LimitDefinition")]
pub struct Definition {
    /// `^[a-z0-9-]{1,40}$`, unique in the organization.
    pub name: String,
    #[serde(default)]
    pub scope: Scope,
    /// The id of the team, application or key, or the name of the model. Absent for the whole organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope_id: Option<String>,
    /// Names of models; `*` stands for any text. All models that match share one bucket. Absent: every model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<String>>,
    /// What has a bucket of its own.
    #[serde(default)]
    pub per: Per,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000_000_u64))]
    pub requests: Option<u64>,
    /// Input and output together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000_000_u64))]
    pub tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000_000_u64))]
    pub input_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000_000_u64))]
    pub output_tokens: Option<u64>,
    /// Calls that run at the same time, until the last byte of their answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_u64))]
    pub concurrent: Option<u64>,
    /// The time in which an empty bucket refills.
    #[serde(default)]
    pub window: Window,
    /// Shares that are kept for the keys of a class, such as `{"prod": 0.7}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reserve: BTreeMap<String, f64>,
    /// Whether input that the provider read from its cache counts.
    #[serde(default = "yes")]
    pub count_cached: bool,
    /// What becomes of calls without the value that `per` names.
    #[serde(default)]
    pub missing: Missing,
    #[serde(default)]
    pub mode: Mode,
    #[serde(default = "yes")]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}

/// Whose calls a limit is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "LimitScope")]
pub enum Scope {
    #[default]
    Org,
    Team,
    App,
    Key,
    Model,
}

impl Scope {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Org => "org",
            Self::Team => "team",
            Self::App => "app",
            Self::Key => "key",
            Self::Model => "model",
        }
    }
}

/// What has a bucket of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Per {
    /// One bucket for all.
    #[default]
    None,
    Key,
    /// `X-Gateway-User`, or the member that calls.
    User,
    /// The member that calls; callers with a key have none.
    Subject,
    /// `X-Gateway-Session`
    Session,
    /// A member of `X-Gateway-Metadata`.
    Metadata(String),
}

impl Per {
    /// The header in which a caller sends the value.
    pub fn header(&self) -> Option<&'static str> {
        match self {
            Self::None | Self::Key | Self::Subject => None,
            Self::User => Some("X-Gateway-User"),
            Self::Session => Some("X-Gateway-Session"),
            Self::Metadata(_) => Some("X-Gateway-Metadata"),
        }
    }
}

impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Key => f.write_str("key"),
            Self::User => f.write_str("user"),
            Self::Subject => f.write_str("subject"),
            Self::Session => f.write_str("session"),
            Self::Metadata(name) => write!(f, "metadata.{name}"),
        }
    }
}

impl From<Per> for String {
    fn from(per: Per) -> Self {
        per.to_string()
    }
}

impl TryFrom<String> for Per {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match &*text {
            "none" => Ok(Self::None),
            "key" => Ok(Self::Key),
            "user" => Ok(Self::User),
            "subject" => Ok(Self::Subject),
            "session" => Ok(Self::Session),
            _ => match text.strip_prefix("metadata.") {
                Some(name) if (1..=64).contains(&name.len()) => Ok(Self::Metadata(name.to_owned())),
                _ => Err("per must be none, key, user, subject, session or metadata.<name>"),
            },
        }
    }
}

impl JsonSchema for Per {
    fn schema_name() -> Cow<'static, str> {
        "LimitPer".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^(none|key|user|subject|session|metadata\\..{1,64})$",
            "description": "What has a bucket of its own: none, key, user (X-Gateway-User), subject (the member that \
                            calls), session, or metadata.<name>.",
        })
    }
}

/// The time in which an empty bucket refills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "LimitWindow")]
pub enum Window {
    #[default]
    Minute,
    Hour,
    Day,
}

impl Window {
    /// In milliseconds.
    pub fn millis(self) -> i64 {
        match self {
            Self::Minute => MINUTE,
            Self::Hour => HOUR,
            Self::Day => DAY,
        }
    }

    pub fn length(self) -> Duration {
        Duration::from_millis(self.millis().unsigned_abs())
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }
}

/// What becomes of calls without the value that `per` names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "LimitMissing")]
pub enum Missing {
    /// They share one bucket.
    #[default]
    Shared,
    Refuse,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "LimitMode")]
pub enum Mode {
    #[default]
    Enforce,
    /// Counts, and notes what it would have refused.
    DryRun,
}

impl Definition {
    /// The number of a unit.
    pub fn amount(&self, unit: Unit) -> Option<u64> {
        match unit {
            Unit::Requests => self.requests,
            Unit::Tokens => self.tokens,
            Unit::InputTokens => self.input_tokens,
            Unit::OutputTokens => self.output_tokens,
            Unit::Concurrent => self.concurrent,
        }
    }
}
