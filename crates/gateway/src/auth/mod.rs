//! Authentication: from request headers to an identity, from memory once the caller is known.

mod access;
mod cached;
pub mod passwords;
pub mod tokens;

use std::sync::Arc;

use gateway_core::access::Role;
use gateway_core::budget::Spender;
use gateway_core::ids::{KeyId, TeamId, UserId};
use gateway_core::limits::LimitStatus;
use gateway_core::time::Timestamp;
use gateway_store::user_sessions::IssuedToken;
use uuid::Uuid;

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
        /// The team whose budgets the user's calls count against.
        team_id: Option<TeamId>,
    },
    Key(Arc<CachedKey>),
    /// The organization itself, for background work that it has configured.
    Org,
}

/// Which log rows, and sessions and usage made of them, a caller may read through the management API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowAccess {
    /// All of the organization.
    All,
    /// Only those that the key made itself.
    Own(KeyId),
}

impl RowAccess {
    /// The key that a list is restricted to, for a caller that asked for the rows of a key or of all.
    pub fn restrict(self, requested: Option<KeyId>) -> Option<KeyId> {
        match self {
            Self::All => requested,
            // No row has the nil key: others' rows look missing.
            Self::Own(own) => Some(requested.filter(|key| *key != own).map_or(own, |_| KeyId(Uuid::nil()))),
        }
    }

    pub fn includes(self, made_by: Option<KeyId>) -> bool {
        match self {
            Self::All => true,
            Self::Own(own) => made_by == Some(own),
        }
    }
}

impl Identity {
    pub fn row_access(&self) -> RowAccess {
        match &self.principal {
            Principal::Key(key) if !key.scopes.reads_all() => RowAccess::Own(key.id),
            Principal::Key(_) | Principal::User { .. } | Principal::Org => RowAccess::All,
        }
    }

    /// Whether the caller may use the management API beyond its own log rows and usage.
    pub fn may_manage(&self) -> bool {
        !matches!(&self.principal, Principal::Key(key) if key.scopes.max_role().is_none())
    }

    /// The owner of the budgets that its calls count against.
    pub fn spender(&self) -> Spender {
        match &self.principal {
            Principal::Key(key) => Spender { key: Some(key.id), app: key.app_id, team: key.team_id },
            Principal::User { team_id, .. } => Spender { team: *team_id, ..Spender::default() },
            Principal::Org => Spender::default(),
        }
    }

    /// The class of the caller's key.
    pub fn key_class(&self) -> Option<&str> {
        match &self.principal {
            Principal::Key(key) => key.class.as_deref(),
            Principal::User { .. } | Principal::Org => None,
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
