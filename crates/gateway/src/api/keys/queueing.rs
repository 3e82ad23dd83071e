//! The fields of a key that say how its calls wait for limits: class, waiting time and priority.

use gateway_core::access::Role;
use gateway_core::limits::{MAX_PRIORITY, MAX_WAIT_MS, is_valid_class};
use gateway_store::keys::Key;

use crate::auth::Identity;
use crate::problem::{ApiResult, Problem};

/// Absent fields stay unchanged.
pub struct Change {
    pub class: Option<Option<String>>,
    pub wait_ms: Option<Option<i64>>,
    pub max_priority: Option<Option<i64>>,
}

impl Change {
    /// A class has a share of the limits that others cannot use, so that only admins give it. A priority that was lowered
    /// is raised only by them.
    pub fn apply(self, identity: &Identity, key: &mut Key) -> ApiResult<()> {
        let is_admin = identity.role >= Role::Admin;
        if let Some(class) = self.class.filter(|class| *class != key.class) {
            if class.as_deref().is_some_and(|class| !is_valid_class(class)) {
                return Err(Problem::field("class", "must be 1 to 40 lower-case letters, digits or '-'"));
            }
            if !is_admin {
                return Err(Problem::forbidden("only an admin can change the class of a key"));
            }
            key.class = class;
        }
        if let Some(wait) = self.wait_ms {
            if wait.is_some_and(|wait| !(0..=i64::from(MAX_WAIT_MS)).contains(&wait)) {
                return Err(Problem::field("wait_ms", format!("must be from 0 to {MAX_WAIT_MS}")));
            }
            key.wait_ms = wait;
        }
        if let Some(priority) = self.max_priority.filter(|priority| *priority != key.max_priority) {
            if priority.is_some_and(|priority| !(0..=i64::from(MAX_PRIORITY)).contains(&priority)) {
                return Err(Problem::field("max_priority", format!("must be from 0 to {MAX_PRIORITY}")));
            }
            let before = key.max_priority.unwrap_or_else(|| i64::from(MAX_PRIORITY));
            let after = priority.unwrap_or_else(|| i64::from(MAX_PRIORITY));
            if !is_admin && after > before {
                return Err(Problem::forbidden("only an admin can raise the priority of a key"));
            }
            key.max_priority = priority;
        }
        Ok(())
    }
}
