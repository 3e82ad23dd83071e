//! The cached facts about API keys and organizations.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gateway_core::access::{Plan, Role};
use gateway_core::accounts::OrgSettings;
use gateway_core::ids::{AppId, KeyId, OrgId, TeamId, UserId};
use gateway_core::scopes::Scopes;
use gateway_core::time::Timestamp;
use gateway_store::cache_purges::CachePurges;
use gateway_store::keys::KeyAccess;

use crate::budgets::OrgBudgets;
use crate::calls_in_progress::OrgCalls;
use crate::limits::{OrgLimits, WindowCounter};
use crate::mcp_servers::OrgMcpServers;
use crate::memory::MemoryAccount;
use crate::models::OrgModels;
use crate::targets::OrgProviders;

pub struct CachedOrg {
    pub id: OrgId,
    pub slug: String,
    pub name: String,
    pub plan: Plan,
    pub settings: OrgSettings,
    pub providers: OrgProviders,
    pub models: OrgModels,
    pub mcp_servers: OrgMcpServers,
    /// Keys, and named models or the organization's own setting, for which prompt caching is paused.
    pub prompt_cache_pauses: HashSet<(Option<KeyId>, Option<String>)>,
    /// The purges of its cached responses.
    pub(super) cache_purges: CachePurges,
    /// `None` if the organization has no budgets.
    pub budgets: Option<Arc<OrgBudgets>>,
    /// `None` if no limit is enabled.
    pub limits: Option<Arc<OrgLimits>>,
    /// What its requests hold of bodies.
    pub memory: Arc<MemoryAccount>,
    pub calls: Arc<OrgCalls>,
}

/// What is known of a session token.
pub struct CachedSession {
    pub user: UserId,
    pub is_ended: bool,
}

pub struct CachedKey {
    pub id: KeyId,
    pub org_id: OrgId,
    pub app_id: Option<AppId>,
    pub team_id: Option<TeamId>,
    pub scopes: Scopes,
    pub role: Role,
    /// The class whose reserved share of limits it may use.
    pub class: Option<Arc<str>>,
    /// How long its calls wait for their limits if they do not say it.
    pub wait_ms: Option<u32>,
    /// The highest priority that its calls may ask for.
    pub max_priority: Option<u8>,
    pub expires_at: Option<Timestamp>,
    pub(super) counter: Arc<WindowCounter>,
    /// The time of the last use that is not recorded yet, in milliseconds; 0 if there is none.
    last_used: AtomicI64,
    evicted_uses: EvictedUses,
}

/// Uses of keys that are no longer cached, or that could not be recorded yet.
pub(super) type EvictedUses = Arc<Mutex<HashMap<KeyId, Timestamp>>>;

impl CachedKey {
    pub(super) fn new(access: KeyAccess, counter: Arc<WindowCounter>, evicted_uses: &EvictedUses) -> Self {
        Self {
            id: access.key.id,
            org_id: access.key.org_id,
            app_id: access.key.app_id,
            team_id: access.team_id,
            scopes: access.key.scopes,
            role: access.key.role,
            class: access.key.class.map(Arc::from),
            wait_ms: access.key.wait_ms.and_then(|wait| u32::try_from(wait).ok()),
            max_priority: access.key.max_priority.and_then(|priority| u8::try_from(priority).ok()),
            expires_at: access.key.expires_at,
            counter,
            last_used: 0.into(),
            evicted_uses: Arc::clone(evicted_uses),
        }
    }

    pub(super) fn mark_used(&self, now: Timestamp) {
        self.last_used.store(now.0, Ordering::Relaxed);
    }

    /// Returns the last use if it was not taken before.
    pub(super) fn take_last_use(&self) -> Option<(KeyId, Timestamp)> {
        let at = self.last_used.swap(0, Ordering::Relaxed);
        (at != 0).then_some((self.id, Timestamp(at)))
    }
}

/// The last use of a key that is invalidated right afterwards, for example because it was revoked, is still recorded.
impl Drop for CachedKey {
    fn drop(&mut self) {
        if let Some(last_use) = self.take_last_use() {
            self.evicted_uses.lock().unwrap_or_else(PoisonError::into_inner).extend([last_use]);
        }
    }
}
