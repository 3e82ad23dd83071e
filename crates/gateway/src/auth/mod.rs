//! Authentication: from request headers to an identity, from memory once the caller is known.

mod access;
mod cached;
pub mod passwords;
pub mod tokens;

use std::sync::Arc;

use gateway_core::access::Role;
use gateway_core::budget::Spender;
use gateway_core::ids::UserId;
use gateway_core::limits::LimitStatus;
use gateway_core::time::Timestamp;
use gateway_store::user_sessions::IssuedToken;

pub use access::Access;
pub use cached::{CachedKey, CachedOrg};

pub const KEY_HEADER: &str = "x-gateway-key";

/// An authenticated caller and its permissions.
#[derive(Clone)]
pub struct Identity {
    pub org: Arc<CachedOrg>,
    pub role: Role,
    pub principal: Principal,
    /// `None` if the plan has no rate limit.
    pub rate: Option<LimitStatus>,
}

#[derive(Clone)]
pub enum Principal {
    User {
        id: UserId,
        token: IssuedToken,
        expires_at: Timestamp,
    },
    Key(Arc<CachedKey>),
    /// The organization itself, for background work that it has configured.
    Org,
}

impl Identity {
    /// The owner of the budgets that its calls count against.
    pub fn spender(&self) -> Spender {
        match &self.principal {
            Principal::Key(key) => Spender { key: Some(key.id), app: key.app_id, team: key.team_id },
            Principal::User { .. } | Principal::Org => Spender::default(),
        }
    }

    /// The id of the actor in events and records.
    pub fn actor(&self) -> String {
        match &self.principal {
            Principal::User { id, .. } => id.to_string(),
            Principal::Key(key) => key.id.to_string(),
            Principal::Org => self.org.id.to_string(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The request has no credential.
    Missing,
    /// The credential is invalid, expired or revoked.
    Invalid,
    /// The address sent too many invalid credentials.
    TooMany(LimitStatus),
    /// The caller is not cached, and the database is unreachable.
    Unavailable,
}
