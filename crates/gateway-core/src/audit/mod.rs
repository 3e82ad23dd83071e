//! The audit log: who changed what, in a chain of hashes per organization. `routes` says which action a route of the API
//! is recorded as, `changes` what of a change is shown, `chain` how entries are linked, `canonical` what is hashed.

pub mod canonical;
pub mod chain;
pub mod changes;
pub mod checkpoint;
pub mod formats;
pub mod routes;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ids::{AuditId, OrgId};
use crate::time::Timestamp;
pub use canonical::canonical;
pub use changes::Change;

/// Characters of a user agent or a reason that are kept.
const MAX_TEXT: usize = 512;

/// Whose entries form one chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Chain {
    Org(OrgId),
    /// The installation itself: starts of nodes and changes by the operator.
    System,
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Org(org) => org.fmt(f),
            Self::System => f.write_str("system"),
        }
    }
}

macro_rules! names {
    ($(#[$meta:meta])* $name:ident as $schema:literal { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[schemars(rename = $schema)]
        pub enum $name {
            $(#[serde(rename = $text)] $variant,)+
        }

        impl $name {
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

names! {
    ActorType as "AuditActorType" {
        User = "user",
        Key = "key",
        Subject = "subject",
        Scim = "scim",
        Operator = "operator",
        System = "system",
    }
}
names! {
    /// How the actor reached the gateway.
    Via as "AuditVia" {
        Api = "api",
        Console = "console",
        Sso = "sso",
        Scim = "scim",
        Cli = "cli",
        Job = "job",
    }
}
names! {
    Outcome as "AuditOutcome" {
        Success = "success",
        Denied = "denied",
        Failed = "failed",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AuditActor")]
pub struct Actor {
    #[serde(rename = "type")]
    pub kind: ActorType,
    pub id: Option<String>,
    /// The email of a user or the name of a key, as it was at that time.
    pub name: Option<String>,
    pub via: Via,
}

impl Actor {
    pub const SYSTEM: Self = Self { kind: ActorType::System, id: None, name: None, via: Via::Job };
    /// The operator at the command line.
    pub const OPERATOR: Self = Self { kind: ActorType::Operator, id: None, name: None, via: Via::Cli };
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AuditTarget")]
pub struct Target {
    #[serde(rename = "type")]
    pub kind: String,
    pub id: Option<String>,
    pub name: Option<String>,
}

/// An entry of the audit log. Its hash covers everything in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AuditEntry")]
pub struct Entry {
    pub id: AuditId,
    /// Gapless from 1 in each organization. It is the order of entries, not `at`.
    pub seq: i64,
    pub at: Timestamp,
    pub actor: Actor,
    /// Such as `key.create`.
    pub action: String,
    pub target: Target,
    pub outcome: Outcome,
    /// The status of the response.
    pub status: Option<u16>,
    /// Null if nothing was changed.
    pub changes: Option<Vec<Change>>,
    pub reason: Option<String>,
    pub request_id: Option<String>,
    pub ip: Option<String>,
    pub user_agent: Option<String>,
    /// The number of the node that wrote it.
    pub node: i64,
    /// The hash of the entry before it.
    pub prev_hash: String,
}

impl Entry {
    /// What the hash is computed from.
    pub fn canonical(&self) -> String {
        canonical(&json!(self))
    }
}

/// An entry that has no place in the chain yet.
#[derive(Clone, Debug)]
pub struct Draft {
    pub chain: Chain,
    pub id: AuditId,
    pub at: Timestamp,
    pub node: i64,
    pub actor: Actor,
    pub action: String,
    pub target: Target,
    pub outcome: Outcome,
    pub status: Option<u16>,
    pub changes: Vec<Change>,
    pub reason: Option<String>,
    pub request_id: Option<String>,
    pub ip: Option<String>,
    pub user_agent: Option<String>,
}

impl Draft {
    /// Puts the entry behind another one.
    pub fn at(self, seq: i64, prev_hash: String) -> Entry {
        Entry {
            id: self.id,
            seq,
            at: self.at,
            actor: self.actor,
            action: self.action,
            target: self.target,
            outcome: self.outcome,
            status: self.status,
            changes: (!self.changes.is_empty()).then_some(self.changes),
            reason: self.reason.map(|text| shortened(&text)),
            request_id: self.request_id,
            ip: self.ip,
            user_agent: self.user_agent.map(|text| shortened(&text)),
            node: self.node,
            prev_hash,
        }
    }

    #[must_use]
    pub fn target(mut self, id: impl fmt::Display, name: &str) -> Self {
        (self.target.id, self.target.name) = (Some(id.to_string()), Some(shortened(name)));
        self
    }

    /// Names the target that the path identifies.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.target.name = Some(shortened(name));
        self
    }

    /// The target is the actor itself.
    #[must_use]
    pub fn on_actor(mut self) -> Self {
        self.target.id.clone_from(&self.actor.id);
        self
    }

    /// Changes the type of the target.
    #[must_use]
    pub fn kind(mut self, kind: &str) -> Self {
        kind.clone_into(&mut self.target.kind);
        self
    }

    #[must_use]
    pub fn action(mut self, action: &str) -> Self {
        action.clone_into(&mut self.action);
        self
    }

    #[must_use]
    pub fn reason(mut self, reason: &str) -> Self {
        self.reason = Some(reason.to_owned());
        self
    }

    /// The caller belongs to the organization only now, or not at all.
    #[must_use]
    pub fn within(mut self, org: OrgId) -> Self {
        self.chain = Chain::Org(org);
        self
    }

    /// The caller is known only now. The store adds the name.
    #[must_use]
    pub fn by_user_id(mut self, id: impl fmt::Display) -> Self {
        (self.actor.kind, self.actor.id) = (ActorType::User, Some(id.to_string()));
        self
    }

    #[must_use]
    pub fn by_user(mut self, id: impl fmt::Display, email: &str) -> Self {
        self.actor = Actor {
            kind: ActorType::User,
            id: Some(id.to_string()),
            name: Some(shortened(email)),
            via: self.actor.via,
        };
        self
    }

    /// Adds the differences between two states. A state is what the API shows of it.
    #[must_use]
    pub fn changed(mut self, from: &impl Serialize, to: &impl Serialize) -> Self {
        let value = |state: Result<Value, serde_json::Error>| state.unwrap_or_default();
        let (from, to) = (value(serde_json::to_value(from)), value(serde_json::to_value(to)));
        self.changes.extend(changes::differences(&from, &to));
        self
    }

    #[must_use]
    pub fn created(self, state: &impl Serialize) -> Self {
        self.changed(&Value::Null, state)
    }

    #[must_use]
    pub fn deleted(self, state: &impl Serialize) -> Self {
        self.changed(state, &Value::Null)
    }

    /// Adds that a secret was changed.
    #[must_use]
    pub fn secret_if(mut self, is_changed: bool, field: &str) -> Self {
        if is_changed {
            self.changes.push(Change::secret(field));
        }
        self
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> Draft {
        Draft {
            chain: Chain::System,
            id: AuditId(uuid::Uuid::nil()),
            at: Timestamp(0),
            node: 1,
            actor: Actor::SYSTEM,
            action: "key.update".into(),
            target: Target { kind: "key".into(), id: None, name: None },
            outcome: Outcome::Success,
            status: Some(200),
            changes: Vec::new(),
            reason: None,
            request_id: None,
            ip: None,
            user_agent: Some("curl\u{7}\n".into()),
        }
    }

    #[test]
    fn the_canonical_text_contains_everything_that_is_shown() {
        let entry =
            draft().target("k1", "ci").changed(&json!({"a": 1}), &json!({"a": 2.5})).at(7, "00".into());
        assert_eq!(
            entry.canonical(),
            "{\"action\":\"key.update\",\
             \"actor\":{\"id\":null,\"name\":null,\"type\":\"system\",\"via\":\"job\"},\
             \"at\":\"1970-01-01T00:00:00.000Z\",\"changes\":[{\"from\":1,\"path\":\"/a\",\"to\":2.5}],\
             \"id\":\"00000000-0000-0000-0000-000000000000\",\"ip\":null,\"node\":1,\"outcome\":\"success\",\
             \"prev_hash\":\"00\",\"reason\":null,\"request_id\":null,\"seq\":7,\"status\":200,\
             \"target\":{\"id\":\"k1\",\"name\":\"ci\",\"type\":\"key\"},\"user_agent\":\"curl\\u0007\\n\"}"
        );
        let back: Entry = serde_json::from_str(&entry.canonical()).unwrap();
        assert_eq!(back, entry);
    }

    #[test]
    fn an_entry_without_changes_says_null() {
        assert_eq!(draft().at(1, String::new()).changes, None);
        assert_eq!(draft().secret_if(false, "secret").at(1, String::new()).changes, None);
        let changes = draft().secret_if(true, "secret").at(1, String::new()).changes.unwrap();
        assert_eq!(changes, [Change::secret("secret")]);
    }
}
