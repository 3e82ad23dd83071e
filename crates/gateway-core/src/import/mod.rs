//! Importers: the configuration of another gateway becomes a plan of providers, named models, keys, budgets and limits.
//! Nothing is read or written here. Every field of the source is named in a finding that says what became of it, so that nothing
//! is lost without a notice.

mod assemble;
mod helicone;
mod limits;
mod litellm;
mod litellm_customers;
mod litellm_keys;
mod litellm_limits;
mod openrouter;
mod parse;
mod portkey;
mod providers;
mod report;
mod table;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::accounts::KeyHash;
use crate::budget::Period;
use crate::models::Definition;
use crate::time::Timestamp;

/// The longest source, in bytes.
pub const MAX_SOURCE_BYTES: usize = 8 << 20;
/// What one import may create or compare: it is one transaction, for which the changes of others wait on SQLite.
pub const MAX_PLANNED: usize = 2_000;

/// What is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "ImportSource")]
pub enum Source {
    /// The `config.yaml` of LiteLLM's proxy.
    Litellm,
    /// The table `LiteLLM_VerificationToken` as CSV, JSON or an SQL dump.
    LitellmKeys,
    /// Saved configs and virtual keys of Portkey as JSON.
    Portkey,
    /// Request bodies or presets of OpenRouter as JSON.
    Openrouter,
    /// The `config.yaml` of Helicone's AI gateway.
    Helicone,
}

impl Source {
    pub const ALL: [Self; 5] =
        [Self::Litellm, Self::LitellmKeys, Self::Portkey, Self::Openrouter, Self::Helicone];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Litellm => "litellm",
            Self::LitellmKeys => "litellm-keys",
            Self::Portkey => "portkey",
            Self::Openrouter => "openrouter",
            Self::Helicone => "helicone",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == name)
    }
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What an import would create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ImportPlan")]
pub struct Plan {
    pub providers: Vec<PlannedProvider>,
    pub models: Vec<PlannedModel>,
    pub keys: Vec<PlannedKey>,
    pub budgets: Vec<PlannedBudget>,
    /// Budgets of end users.
    pub user_budgets: Vec<PlannedUserBudget>,
    pub limits: Vec<PlannedLimit>,
    /// Guardrails of the source. They are set up by hand, as the findings say.
    pub guardrails: Vec<PlannedGuardrail>,
    pub settings: PlannedSettings,
}

impl Plan {
    /// How many things it has.
    pub fn count(&self) -> usize {
        let named = self.providers.len() + self.models.len() + self.keys.len();
        named + self.budgets.len() + self.user_budgets.len() + self.limits.len()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ImportedProvider")]
pub struct PlannedProvider {
    pub name: String,
    /// The built-in provider whose wire format and authentication it uses.
    pub kind: String,
    pub base_url: Option<String>,
    pub path_prefix: Option<String>,
    /// Whether the source has its credential.
    #[serde(rename = "has_api_key", serialize_with = "is_some")]
    #[schemars(with = "bool")]
    pub api_key: Option<Secret>,
    /// The names of headers that are sent with each call.
    #[serde(serialize_with = "names")]
    #[schemars(with = "Vec<String>")]
    pub headers: BTreeMap<String, Secret>,
}

#[expect(clippy::ref_option, reason = "the signature that serde asks for")]
fn is_some<S: Serializer>(secret: &Option<Secret>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(secret.is_some())
}

fn names<S: Serializer>(headers: &BTreeMap<String, Secret>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(headers.keys())
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ImportedModel")]
pub struct PlannedModel {
    pub name: String,
    /// As `PUT /orgs/{orgId}/models/{name}` takes it.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub definition: Definition,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ImportedKey")]
pub struct PlannedKey {
    pub name: String,
    /// What the source shows of the key.
    pub key_prefix: String,
    pub scopes: Vec<String>,
    pub expires_at: Option<Timestamp>,
    /// A key that the source has blocked is imported as a revoked one.
    pub revoked: bool,
    /// SHA-256 of the key.
    #[serde(skip)]
    pub hash: KeyHash,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ImportedBudget")]
pub struct PlannedBudget {
    /// The place of its key in `keys`.
    pub key: usize,
    pub period: Period,
    pub soft_limit_usd: Option<f64>,
    pub hard_limit_usd: Option<f64>,
    /// What the source counted in its current period. It counts in the first period here.
    pub opening_usd: Option<f64>,
    /// The end of that period. Afterwards it counts no longer.
    pub opening_until: Option<Timestamp>,
}

impl PlannedBudget {
    /// What counts in the first period of a budget that is created at this time.
    pub fn opening_at(&self, now: Timestamp) -> Option<f64> {
        self.opening_usd.filter(|_| self.opening_until.is_none_or(|end| end > now))
    }
}

/// A budget of an end user.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ImportedUserBudget")]
pub struct PlannedUserBudget {
    /// The user, or `*` for each that has none of its own.
    pub user: String,
    pub period: Period,
    pub soft_limit_usd: Option<f64>,
    pub hard_limit_usd: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ImportedLimit")]
pub struct PlannedLimit {
    /// As `POST /orgs/{orgId}/limits` takes it. The `scope_id` of a limit of keys is set when they are created.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub definition: crate::limits::Definition,
    /// The places in `keys` of the keys that share it.
    pub keys: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ImportedGuardrail")]
pub struct PlannedGuardrail {
    pub name: String,
    /// What the source calls its kind, such as `presidio`.
    pub kind: Option<String>,
}

/// Settings of the organization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ImportedSettings")]
pub struct PlannedSettings {
    /// False: bodies of requests and answers are not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_bodies: Option<bool>,
}

/// What became of a field of the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ImportFinding")]
pub struct Finding {
    /// The field, such as `model_list[0].litellm_params.api_base`. It stands for all fields below it.
    pub path: String,
    pub status: Status,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ImportStatus")]
pub enum Status {
    /// It means the same here.
    Exact,
    /// It was imported, but differs in what the message says.
    Approximate,
    /// It was not imported; the message says what to do by hand.
    Manual,
    /// The gateway has nothing like it.
    Unsupported,
}

/// The result of reading a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    pub plan: Plan,
    pub findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("the source is longer than {MAX_SOURCE_BYTES} bytes")]
    TooLong,
    #[error("the source cannot be read: {0}")]
    Malformed(String),
}

pub(crate) use assemble::empty as empty_definition;
pub(crate) use portkey::{PROVIDERS as PORTKEY_PROVIDERS, config as portkey_config};
pub(crate) use report::UNKNOWN;

/// The value of a variable of the environment that the source refers to. None: it is not set, or must not be read.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads a source and plans what it becomes.
pub fn plan(source: Source, text: &str, env: Environment<'_>) -> Result<Import, ImportError> {
    if text.len() > MAX_SOURCE_BYTES {
        return Err(ImportError::TooLong);
    }
    match source {
        Source::Litellm => litellm::plan(text, env),
        Source::LitellmKeys => litellm_keys::plan(text),
        Source::Portkey => portkey::plan(text),
        Source::Openrouter => openrouter::plan(text),
        Source::Helicone => helicone::plan(text),
    }
}

#[cfg(test)]
mod tests;
