//! Entries in the formats of other tools: OCSF 1.9, ECS, CSV and syslog (RFC 5424).

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{ActorType, Entry, Outcome};
use crate::csv_text;

/// The version of OCSF.
const OCSF: &str = "1.9.0";
const PRODUCT: &str = "gateway";
/// Facility 13 of syslog: log audit.
const FACILITY: u8 = 13;

/// An entry as it is exported.
#[derive(Clone, Copy, Debug)]
pub struct Exported<'a> {
    pub org_id: &'a str,
    pub entry: &'a Entry,
    pub hash: &'a str,
}

impl Exported<'_> {
    /// The entry as the API shows it.
    pub fn jsonl(&self) -> Value {
        let mut value = json!(self.entry);
        value["hash"] = self.hash.into();
        value
    }

    pub fn ocsf(&self) -> Value {
        let Entry { actor, target, .. } = self.entry;
        let class = OcsfClass::of(&self.entry.action);
        let activity = class.activity(&self.entry.action);
        let is_success = self.entry.outcome == Outcome::Success;
        let user = json!({"uid": actor.id, "name": actor.name, "type": actor.kind.as_str()});
        let mut event = json!({
            "metadata": {
                "version": OCSF,
                "product": {"name": PRODUCT, "vendor_name": PRODUCT},
                "uid": self.entry.id,
                "original_event_uid": self.entry.id,
                "event_code": self.entry.action,
                "tenant_uid": self.org_id,
                "sequence": self.entry.seq,
                "correlation_uid": self.entry.request_id,
            },
            "time": self.entry.at.0,
            "class_uid": class.uid(),
            "category_uid": class.uid() / 1000,
            "activity_id": activity,
            "type_uid": class.uid() * 100 + activity,
            "severity_id": if is_success { 1 } else { 2 },
            "status_id": if is_success { 1 } else { 2 },
            "status_code": self.entry.status.map(|status| status.to_string()),
            "status_detail": self.entry.reason,
            "actor": {"user": user, "application": {"name": actor.via.as_str()}},
            "src_endpoint": {"ip": self.entry.ip},
            "http_request": {"user_agent": self.entry.user_agent, "uid": self.entry.request_id},
            "unmapped": {"node": self.entry.node, "prev_hash": self.entry.prev_hash, "hash": self.hash},
        });
        let named = json!({"uid": target.id, "name": target.name, "type": target.kind});
        match class {
            OcsfClass::Authentication => event["user"] = if target.id.is_some() { named } else { user },
            OcsfClass::UserAccess => {
                event["user"] = named;
                event["privileges"] = json!([self.entry.action]);
            }
            OcsfClass::Group => event["group"] = named,
            OcsfClass::Entity => event["entity"] = named,
            OcsfClass::Api => {
                event["api"] = json!({"operation": self.entry.action});
                event["resources"] = json!([named]);
            }
        }
        remove_nulls(&mut event);
        if let Some(changes) = &self.entry.changes {
            event["unmapped"]["changes"] = json!(changes);
        }
        event
    }

    pub fn ecs(&self) -> Value {
        let Entry { actor, target, .. } = self.entry;
        let (category, kind) = match self.entry.action.split_once('.') {
            Some(("auth", _)) => ("authentication", "info"),
            Some(("member" | "team" | "org", verb)) => ("iam", ecs_type(verb)),
            Some((_, verb)) => ("configuration", ecs_type(verb)),
            None => ("configuration", "info"),
        };
        let email = actor.name.as_ref().filter(|_| actor.kind == ActorType::User);
        let mut event = json!({
            "@timestamp": self.entry.at,
            "ecs": {"version": "8.17.0"},
            "event": {
                "id": self.entry.id,
                "kind": "event",
                "action": self.entry.action,
                "category": [category],
                "type": [if self.entry.outcome == Outcome::Denied { "denied" } else { kind }],
                "outcome": if self.entry.outcome == Outcome::Success { "success" } else { "failure" },
                "dataset": "gateway.audit",
                "sequence": self.entry.seq,
                "hash": self.hash,
                "reason": self.entry.reason,
            },
            "user": {"id": actor.id, "name": actor.name, "email": email, "roles": [actor.kind.as_str()]},
            "source": {"ip": self.entry.ip},
            "user_agent": {"original": self.entry.user_agent},
            "organization": {"id": self.org_id},
            "http": {
                "request": {"id": self.entry.request_id}, "response": {"status_code": self.entry.status},
            },
            "gateway": {
                "via": actor.via.as_str(), "target": target,
                "node": self.entry.node, "prev_hash": self.entry.prev_hash,
            },
        });
        remove_nulls(&mut event);
        if let Some(changes) = &self.entry.changes {
            event["gateway"]["changes"] = json!(changes);
        }
        event
    }

    /// A row of CSV with the columns of `csv_header`. A cell that a spreadsheet would compute begins with an apostrophe.
    pub fn csv(&self) -> Vec<u8> {
        let Entry { actor, target, .. } = self.entry;
        let changes = self.entry.changes.as_ref().map(|changes| super::canonical(&json!(changes)));
        let fields = [
            Some(self.entry.seq.to_string()),
            Some(self.entry.id.to_string()),
            Some(self.entry.at.to_string()),
            Some(actor.kind.as_str().to_owned()),
            actor.id.clone(),
            actor.name.clone(),
            Some(actor.via.as_str().to_owned()),
            Some(self.entry.action.clone()),
            Some(target.kind.clone()),
            target.id.clone(),
            target.name.clone(),
            Some(self.entry.outcome.as_str().to_owned()),
            self.entry.status.map(|status| status.to_string()),
            changes,
            self.entry.reason.clone(),
            self.entry.request_id.clone(),
            self.entry.ip.clone(),
            self.entry.user_agent.clone(),
            Some(self.entry.node.to_string()),
            Some(self.entry.prev_hash.clone()),
            Some(self.hash.to_owned()),
        ];
        csv_text::row(fields.into_iter().map(Option::unwrap_or_default))
    }

    /// One line of RFC 5424 with one structured-data element.
    pub fn syslog(&self) -> String {
        let Entry { actor, target, .. } = self.entry;
        let severity = if self.entry.outcome == Outcome::Success { 6 } else { 4 };
        let mut line = format!(
            "<{}>1 {} - {PRODUCT} - {} [audit@32473",
            FACILITY * 8 + severity,
            self.entry.at,
            self.entry.action
        );
        let (seq, node) = (self.entry.seq.to_string(), self.entry.node.to_string());
        let id = self.entry.id.to_string();
        for (name, value) in [
            ("org", Some(self.org_id)),
            ("seq", Some(seq.as_str())),
            ("id", Some(id.as_str())),
            ("actorType", Some(actor.kind.as_str())),
            ("actorId", actor.id.as_deref()),
            ("actorName", actor.name.as_deref()),
            ("via", Some(actor.via.as_str())),
            ("targetType", Some(target.kind.as_str())),
            ("targetId", target.id.as_deref()),
            ("targetName", target.name.as_deref()),
            ("outcome", Some(self.entry.outcome.as_str())),
            ("requestId", self.entry.request_id.as_deref()),
            ("ip", self.entry.ip.as_deref()),
            ("userAgent", self.entry.user_agent.as_deref()),
            ("node", Some(node.as_str())),
            ("prevHash", Some(self.entry.prev_hash.as_str())),
            ("hash", Some(self.hash)),
        ] {
            if let Some(value) = value {
                let _ = write!(line, " {name}=\"{}\"", syslog_value(value));
            }
        }
        let reason = self.entry.reason.as_deref().unwrap_or_default();
        let _ = write!(line, "] {}", one_line(&format!("{} {reason}", self.entry.action)).trim_end());
        line
    }
}

/// The columns of the CSV format.
const CSV_HEADER: [&str; 21] = [
    "seq",
    "id",
    "at",
    "actor_type",
    "actor_id",
    "actor_name",
    "via",
    "action",
    "target_type",
    "target_id",
    "target_name",
    "outcome",
    "status",
    "changes",
    "reason",
    "request_id",
    "ip",
    "user_agent",
    "node",
    "prev_hash",
    "hash",
];

/// The first line of a CSV export.
pub fn csv_header() -> Vec<u8> {
    csv_text::row(CSV_HEADER.map(str::to_owned))
}

/// Removes members that are null, and objects that have nothing else.
fn remove_nulls(value: &mut Value) {
    if let Value::Object(members) = value {
        members.values_mut().for_each(remove_nulls);
        members.retain(|_, member| {
            !member.is_null() && member.as_object().is_none_or(|inner| !inner.is_empty())
        });
    }
}

fn syslog_value(text: &str) -> String {
    one_line(text).replace('\\', "\\\\").replace('"', "\\\"").replace(']', "\\]")
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn ecs_type(verb: &str) -> &'static str {
    match verb {
        "create" | "add" | "invite" | "adopt" | "submit" => "creation",
        "delete" | "remove" | "revoke" | "purge" => "deletion",
        "read" | "read_bodies" | "test" | "verify" => "access",
        _ => "change",
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OcsfClass {
    Authentication,
    Entity,
    UserAccess,
    Group,
    Api,
}

impl OcsfClass {
    fn of(action: &str) -> Self {
        match action.split_once('.').map_or(action, |(area, _)| area) {
            "auth" => Self::Authentication,
            "member" => Self::UserAccess,
            "team" => Self::Group,
            "access" | "audit" | "log" | "scope_denied" | "node" => Self::Api,
            _ => Self::Entity,
        }
    }

    fn uid(self) -> u32 {
        match self {
            Self::Authentication => 3002,
            Self::Entity => 3004,
            Self::UserAccess => 3005,
            Self::Group => 3006,
            Self::Api => 6003,
        }
    }

    /// 99 is an activity that the class does not name.
    fn activity(self, action: &str) -> u32 {
        let verb = action.split_once('.').map_or("", |(_, verb)| verb);
        match (self, verb) {
            (Self::Authentication, "login" | "login_failed")
            | (Self::UserAccess, "invite" | "add" | "role") => 1,
            (Self::Authentication, "logout" | "logout_all") | (Self::UserAccess, "remove") => 2,
            (Self::Group, "create") => 6,
            (Self::Group, "delete") => 5,
            (Self::Entity | Self::Api, _) => match ecs_type(verb) {
                "creation" => 1,
                "access" => 2,
                "deletion" => 4,
                _ if verb == "update" || verb == "plan" => 3,
                _ => 99,
            },
            _ => 99,
        }
    }
}

#[cfg(test)]
mod tests;
