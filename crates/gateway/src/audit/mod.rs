//! The audit log: what a request says about its entry (`context`), the queue of entries that belong to no transaction
//! (`queue`, `counts`), checkpoints and retention (`maintenance`, `signing`) and the verification of an exported file
//! (`offline`). Entries of changes are written by the transaction of the change (`gateway_store::audit`).

pub mod context;
mod counts;
pub mod maintenance;
pub mod offline;
pub mod queue;
pub mod signing;

pub use context::AuditContext;
pub use queue::AuditQueue;

use gateway_core::audit::{Actor, ActorType, Chain, Draft, Outcome, Target, Via};
use gateway_core::ids::OrgId;

use crate::auth::{Identity, Principal};
use crate::services::Services;

/// An entry of this node about itself.
pub fn system_entry(services: &Services, chain: Chain, action: &str, target: Target) -> Draft {
    Draft {
        chain,
        id: services.ids.new_id(),
        at: services.clock.now(),
        node: services.ids.node(),
        actor: Actor::SYSTEM,
        action: action.to_owned(),
        target,
        outcome: Outcome::Success,
        status: None,
        changes: Vec::new(),
        reason: None,
        request_id: None,
        ip: None,
        user_agent: None,
    }
}

pub fn org_target(org: OrgId) -> Target {
    Target { kind: "org".into(), id: Some(org.to_string()), name: None }
}

/// The caller as an actor. The store adds the name.
pub fn actor_of(identity: &Identity, via: Via) -> Actor {
    let kind = match identity.principal {
        Principal::User { .. } => ActorType::User,
        Principal::Key(_) => ActorType::Key,
        Principal::Org => ActorType::System,
    };
    Actor { kind, id: Some(identity.actor()), name: None, via }
}
