//! Organization events, as webhooks deliver them. Each event is written to the outbox in the transaction of the change
//! that it describes.

use serde_json::{Value, json};

use crate::access::Role;
use crate::budget::{Amount, Period, Scope};
use crate::ids::{AlertId, AppId, BudgetId, KeyId, LimitId, UserId};
use crate::time::Timestamp;
use crate::totals::usd;

/// Every type that a webhook can subscribe to.
pub const EVENT_TYPES: [&str; 10] = [
    "key.create",
    "key.revoke",
    "key.rotate",
    "user.invite",
    "user.role_change",
    "user.remove",
    "budget.warning",
    "budget.exceeded",
    "app.create",
    "app.delete",
];

/// Types that a webhook receives only if it names them.
pub const NAMED_EVENT_TYPES: [&str; 4] =
    ["audit.checkpoint", "limit.reached", "alert.fired", "alert.resolved"];

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    KeyCreate(KeyEventData),
    KeyRevoke(KeyEventData),
    KeyRotate {
        key_id: KeyId,
        new_key_id: KeyId,
        overlap_hours: i64,
    },
    UserInvite(UserEventData),
    UserRoleChange {
        user: UserEventData,
        previous_role: Role,
    },
    UserRemove(UserEventData),
    AppCreate(AppEventData),
    AppDelete(AppEventData),
    BudgetWarning(BudgetEventData),
    BudgetExceeded(BudgetEventData),
    /// A signed checkpoint of the audit log.
    AuditCheckpoint(Value),
    LimitReached(LimitEventData),
    AlertFired(AlertEventData),
    AlertResolved(AlertEventData),
}

/// `actor` is the id of the user or key that made the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEventData {
    pub key_id: KeyId,
    pub name: String,
    pub key_prefix: String,
    pub app_id: Option<AppId>,
    pub actor: String,
}

/// `user_id` is `None` while an invited address has no account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserEventData {
    pub user_id: Option<UserId>,
    pub email: String,
    pub role: Role,
    pub actor: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppEventData {
    pub app_id: AppId,
    pub name: String,
    pub actor: String,
}

/// Amounts in units of 1e-12 USD. `limit` is the threshold that was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetEventData {
    pub budget_id: BudgetId,
    pub scope: Scope,
    pub period: Period,
    pub limit: Amount,
    pub spent: Amount,
}

/// A limit that refused a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitEventData {
    pub limit_id: LimitId,
    pub name: String,
    pub unit: &'static str,
    pub limit: u64,
    /// What it counts by, such as `user`, and the value that reached it.
    pub per: String,
    pub bucket: Option<String>,
    pub window: &'static str,
}

/// An alert whose measure rose above its threshold, or fell back.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertEventData {
    pub alert_id: AlertId,
    pub name: String,
    pub query: String,
    pub measure: &'static str,
    pub above: f64,
    /// `None` if the window has no rows to measure.
    pub value: Option<f64>,
    pub requests: i64,
    /// Set if there were too many rows to read: only those since this time were measured.
    pub scanned_to: Option<Timestamp>,
    pub window_minutes: u32,
    /// Sent by a test, not by a check.
    pub is_test: bool,
}

impl Event {
    pub fn kind(&self) -> &'static str {
        match self {
            Event::KeyCreate(_) => "key.create",
            Event::KeyRevoke(_) => "key.revoke",
            Event::KeyRotate { .. } => "key.rotate",
            Event::UserInvite(_) => "user.invite",
            Event::UserRoleChange { .. } => "user.role_change",
            Event::UserRemove(_) => "user.remove",
            Event::AppCreate(_) => "app.create",
            Event::AppDelete(_) => "app.delete",
            Event::BudgetWarning(_) => "budget.warning",
            Event::BudgetExceeded(_) => "budget.exceeded",
            Event::AuditCheckpoint(_) => "audit.checkpoint",
            Event::LimitReached(_) => "limit.reached",
            Event::AlertFired(_) => "alert.fired",
            Event::AlertResolved(_) => "alert.resolved",
        }
    }

    /// Whether a webhook with these types receives it. An empty list stands for the types of `EVENT_TYPES`.
    pub fn is_wanted(&self, types: &[String]) -> bool {
        let is_named = types.iter().any(|kind| kind == self.kind());
        is_named || (types.is_empty() && EVENT_TYPES.contains(&self.kind()))
    }

    /// The `data` of the delivered payload.
    pub fn data(&self) -> Value {
        match self {
            Event::KeyCreate(facts) | Event::KeyRevoke(facts) => {
                let KeyEventData { key_id, name, key_prefix, app_id, actor } = facts;
                json!({"key_id": key_id, "name": name, "key_prefix": key_prefix, "app_id": app_id, "actor": actor})
            }
            Event::KeyRotate { key_id, new_key_id, overlap_hours } => {
                json!({"key_id": key_id, "new_key_id": new_key_id, "overlap_hours": overlap_hours})
            }
            Event::UserInvite(user) | Event::UserRemove(user) => user_data(user),
            Event::AuditCheckpoint(signed) => signed.clone(),
            Event::LimitReached(facts) => {
                let LimitEventData { limit_id, name, unit, limit, per, bucket, window } = facts;
                json!({
                    "limit_id": limit_id, "name": name, "unit": unit, "limit": limit, "per": per, "bucket": bucket,
                    "window": window,
                })
            }
            Event::AlertFired(facts) | Event::AlertResolved(facts) => {
                let AlertEventData { alert_id, name, query, measure, above, value, .. } = facts;
                json!({
                    "alert_id": alert_id, "name": name, "query": query, "measure": measure, "above": above,
                    "value": value, "requests": facts.requests, "partial": facts.scanned_to.is_some(),
                    "scanned_to": facts.scanned_to, "window_minutes": facts.window_minutes, "test": facts.is_test,
                })
            }
            Event::UserRoleChange { user, previous_role } => {
                let mut data = user_data(user);
                data["previous_role"] = json!(previous_role);
                data
            }
            Event::AppCreate(facts) | Event::AppDelete(facts) => {
                let AppEventData { app_id, name, actor } = facts;
                json!({"app_id": app_id, "name": name, "actor": actor})
            }
            Event::BudgetWarning(facts) | Event::BudgetExceeded(facts) => {
                let BudgetEventData { budget_id, scope, period, limit, spent } = facts;
                json!({
                    "budget_id": budget_id, "scope": scope.name(), "scope_id": scope.id(), "period": period.as_str(),
                    "limit_usd": usd(*limit), "spent_usd": usd(*spent),
                })
            }
        }
    }
}

fn user_data(UserEventData { user_id, email, role, actor }: &UserEventData) -> Value {
    json!({"user_id": user_id, "email": email, "role": role, "actor": actor})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reached_limit_is_sent_only_to_webhooks_that_name_it() {
        let event = Event::LimitReached(LimitEventData {
            limit_id: LimitId(uuid::Uuid::nil()),
            name: "team-tokens".into(),
            unit: "tokens",
            limit: 60_000,
            per: "user".into(),
            bucket: Some("ann".into()),
            window: "minute",
        });
        assert_eq!(event.data()["bucket"], "ann");
        assert!(!event.is_wanted(&[]));
        assert!(event.is_wanted(&["limit.reached".into()]));
    }

    #[test]
    fn a_role_change_includes_the_previous_role() {
        let user = UserEventData {
            user_id: None,
            email: "a@b.c".into(),
            role: Role::Admin,
            actor: "someone".into(),
        };
        let event = Event::UserRoleChange { user, previous_role: Role::Viewer };
        assert_eq!(event.kind(), "user.role_change");
        assert_eq!(
            event.data(),
            json!({"user_id": null, "email": "a@b.c", "role": "admin", "actor": "someone", "previous_role": "viewer"})
        );
    }
}
