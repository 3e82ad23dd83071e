//! The MCP gateway: one endpoint in front of the MCP servers of an organization. It speaks the revision of each caller
//! and of each server, shows callers only what they may use, and records every call. Lists come from catalogues in
//! memory, so that a server that is slow or down delays nobody.

mod access;
mod builtin;
mod call;
mod catalogue;
mod catalogues;
mod credentials;
mod follow;
mod identity;
mod listen;
mod lists;
mod record;
mod reply;
mod serve;
mod session;
mod sse;
mod upstream;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gateway_core::ids::OrgId;
use gateway_core::mcp::Transport;
use gateway_core::org_lru::{LruLimits, OrgLru};
use gateway_store::fair_slots::{FairSlots, SlotLimits};
use http::HeaderMap;

use crate::cluster::Cluster;
use crate::mcp_servers::Server;
use crate::memory::MemoryAccount;
use crate::outbound::clients::Clients;
use crate::proxy::state::ProxyState;
use crate::services::Services;
use crate::vault::DailyVault;
use builtin::CachedManifest;
use catalogues::Entry;
use credentials::Token;
use follow::{SharedStreams, Subscribed};
use identity::IdentityKey;
use session::KeptSession;
use upstream::Peer;

pub use access::{caller_by_headers, caller_of};
pub use catalogue::{Catalogue, Tool};
pub use catalogues::{CatalogueRequest, Lookup, Status};
pub use credentials::seal_headers;
pub use identity::PublicKey;
pub use serve::{McpRequest, Target};
pub use upstream::Failure;

const CATALOGUES: LruLimits = LruLimits { all: 20_000, per_org: 2_000 };
const TOKENS: LruLimits = LruLimits { all: 20_000, per_org: 400 };
const KEPT_SESSIONS: LruLimits = LruLimits { all: 100_000, per_org: 5_000 };
const ENDED_SESSIONS: LruLimits = LruLimits { all: 100_000, per_org: 5_000 };
/// Callers of older revisions with subscriptions to resources, by server.
const SUBSCRIBED: LruLimits = LruLimits { all: 20_000, per_org: 1_000 };
/// Of the built-in server: variables of prompts, and what is known of versions of skills.
const PROMPT_VARIABLES: LruLimits = LruLimits { all: 20_000, per_org: 2_000 };
const SKILL_MANIFESTS: LruLimits = LruLimits { all: 10_000, per_org: 1_000 };
/// Calls that run at the same time.
const CALLS: SlotLimits = SlotLimits { slots: 4_000, per_org: 200, waiting_per_org: 200 };
/// Sessions with servers that are being begun for `initialize`.
const OPENINGS: SlotLimits = SlotLimits { slots: 1_000, per_org: 50, waiting_per_org: 400 };
/// Streams of list changes.
const STREAMS: SlotLimits = SlotLimits { slots: 10_000, per_org: 200, waiting_per_org: 0 };

/// Streams of servers that are read while callers listen.
const FOLLOWED: SlotLimits = SlotLimits { slots: 5_000, per_org: 100, waiting_per_org: 0 };

pub struct Mcp {
    services: Arc<Services>,
    proxy: Arc<ProxyState>,
    cluster: Arc<Cluster>,
    session_vault: DailyVault,
    identity: IdentityKey,
    catalogues: Mutex<OrgLru<Arc<Entry>>>,
    tokens: Mutex<OrgLru<Arc<Token>>>,
    kept_sessions: Mutex<OrgLru<Arc<KeptSession>>>,
    ended_sessions: Mutex<OrgLru<()>>,
    prompt_variables: Mutex<OrgLru<Arc<[String]>>>,
    skill_manifests: Mutex<OrgLru<Arc<CachedManifest>>>,
    calls: Arc<FairSlots>,
    openings: Arc<FairSlots>,
    streams: Arc<FairSlots>,
    followed: Arc<FairSlots>,
    shared_streams: SharedStreams,
    subscribed: Mutex<OrgLru<Arc<Subscribed>>>,
    running: call::Running,
}

impl Mcp {
    /// `None` if the master key is invalid.
    pub fn new(services: Arc<Services>, proxy: Arc<ProxyState>, cluster: Arc<Cluster>) -> Option<Self> {
        let config = &services.config;
        let (master_key, accepted) = (&config.master_key, &config.master_keys_accepted);
        let owners = Arc::clone(services.db.owners());
        Some(Self {
            identity: IdentityKey::new(master_key, accepted, config.public_url.clone())?,
            session_vault: DailyVault::new(&services.config.master_key, "mcp-session")?,
            services,
            proxy,
            cluster,
            catalogues: Mutex::new(OrgLru::new(CATALOGUES)),
            tokens: Mutex::new(OrgLru::new(TOKENS)),
            kept_sessions: Mutex::new(OrgLru::new(KEPT_SESSIONS)),
            ended_sessions: Mutex::new(OrgLru::new(ENDED_SESSIONS)),
            prompt_variables: Mutex::new(OrgLru::new(PROMPT_VARIABLES)),
            skill_manifests: Mutex::new(OrgLru::new(SKILL_MANIFESTS)),
            calls: FairSlots::new(CALLS, &owners),
            openings: FairSlots::new(OPENINGS, &owners),
            streams: FairSlots::new(STREAMS, &owners),
            followed: FairSlots::new(FOLLOWED, &owners),
            shared_streams: SharedStreams::default(),
            subscribed: Mutex::new(OrgLru::new(SUBSCRIBED)),
            running: call::Running::default(),
        })
    }

    /// The keys that verify the identities of callers.
    pub fn public_keys(&self) -> Vec<PublicKey> {
        self.identity.public_keys()
    }

    fn clients(&self) -> &Clients {
        &self.proxy.worker.clients
    }

    /// A server, reached with these headers.
    fn peer<'a>(
        &'a self,
        org: OrgId,
        server: &'a Server,
        headers: HeaderMap,
        memory: &'a Arc<MemoryAccount>,
    ) -> Peer<'a> {
        let is_sse = server.definition.transport == Transport::Sse;
        Peer { services: &self.services, clients: self.clients(), org, server, headers, memory, is_sse }
    }

    fn catalogue_entries(&self) -> MutexGuard<'_, OrgLru<Arc<Entry>>> {
        self.catalogues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tokens(&self) -> MutexGuard<'_, OrgLru<Arc<Token>>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept_sessions(&self) -> MutexGuard<'_, OrgLru<Arc<KeptSession>>> {
        self.kept_sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prompt_variables(&self) -> MutexGuard<'_, OrgLru<Arc<[String]>>> {
        self.prompt_variables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn skill_manifests(&self) -> MutexGuard<'_, OrgLru<Arc<CachedManifest>>> {
        self.skill_manifests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribed(&self) -> MutexGuard<'_, OrgLru<Arc<Subscribed>>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended_sessions(&self) -> MutexGuard<'_, OrgLru<()>> {
        self.ended_sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
