//! Typed identifiers, so that the compiler rejects an application's id in place of an organization's.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_id {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        /// Only the hyphenated form is accepted, so that one resource has one URL.
        impl FromStr for $name {
            type Err = MalformedId;

            fn from_str(text: &str) -> Result<Self, MalformedId> {
                match Uuid::try_parse(text) {
                    Ok(id) if text.len() == 36 => Ok(Self(id)),
                    _ => Err(MalformedId),
                }
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "format": "uuid"})
            }
        }
    )+};
}

uuid_id! {
    /// An organization: the tenant that everything belongs to.
    OrgId,
    UserId,
    /// Whose organizations have one share of what all use: the account that owns them, or an organization of which no
    /// owner is known.
    OwnerId,
    KeyId,
    TeamId,
    AppId,
    EventId,
    InviteId,
    BudgetId,
    /// A limit of requests, tokens or concurrent calls.
    LimitId,
    /// A rule on log rows that tells when it is met.
    AlertId,
    /// A saved query.
    ViewId,
    /// A background job.
    JobId,
    PromptId,
    /// A named model.
    ModelId,
    DatasetId,
    /// A test case of a dataset.
    CaseId,
    /// A run in the playground, or a comparison of several.
    PlayId,
    WebhookId,
    DeliveryId,
    ExportId,
    /// One issued session token (`jti`).
    TokenId,
    SkillId,
    /// A link from which agents install skills.
    InstallLinkId,
    /// An organization's rubric.
    RubricId,
    /// A verdict on a skill.
    EvaluationId,
    /// A verdict on a log row.
    VerdictId,
    /// An entry of the audit log.
    AuditId,
}

/// The text is not a UUID in the hyphenated form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid id: expected a UUID such as 0192f0c1-2345-7abc-8def-0123456789ab")]
pub struct MalformedId;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hyphenated_form_is_an_id() {
        let text = "0192f0c1-2345-7abc-8def-0123456789ab";
        assert_eq!(text.parse::<OrgId>().map(|id| id.to_string()), Ok(text.to_owned()));
        for bad in ["", "x", "0192f0c123457abc8def0123456789ab", "{0192f0c1-2345-7abc-8def-0123456789ab}"] {
            assert_eq!(bad.parse::<OrgId>(), Err(MalformedId), "{bad}");
        }
    }
}
