//! Catalogues in memory, one for each server, or for each caller where lists depend on the caller. They are refreshed
//! beside the requests: a request waits only for a server of which nothing is known yet.

mod refresh;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway_core::ids::OrgId;
use gateway_core::time::{DAY, SECOND, Timestamp};
use gateway_store::mcp_approved_tools::Definitions;
use tokio::sync::watch;

use super::Mcp;
use super::catalogue::{Catalogue, Eras};
use super::upstream::{Failure, FailureKind};
use crate::mcp_servers::Server;
use crate::memory::MemoryAccount;

/// How long a request waits for a server of which nothing is known.
const MAX_WAIT: Duration = Duration::from_secs(3);
const FETCH_TIMEOUT: Duration = Duration::from_secs(15);
/// A server that is down keeps its lists so long, in milliseconds.
const KEPT_MS: i64 = DAY;
/// After a failure the server is not asked again for so long, in milliseconds.
const RETRY_MS: i64 = 5 * SECOND;

/// What is known of a server.
pub struct Entry {
    state: Mutex<State>,
    /// Counts the refreshes that ended.
    done: watch::Sender<u64>,
}

struct State {
    catalogue: Option<Arc<Catalogue>>,
    fetched_at: Timestamp,
    eras: Option<(Eras, Timestamp)>,
    failure: Option<Failure>,
    failed_at: Timestamp,
    is_refreshing: bool,
    /// When the last refresh began.
    asked_at: Timestamp,
    /// The lists have changed since the last refresh began: they are to be read again.
    is_outdated: bool,
    /// Counts how often everything was forgotten: a refresh that began before stores nothing.
    generation: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            catalogue: None,
            fetched_at: Timestamp(0),
            eras: None,
            failure: None,
            failed_at: Timestamp(0),
            is_refreshing: false,
            asked_at: Timestamp(0),
            is_outdated: false,
            generation: 0,
        }
    }
}

/// The lists of a server for one request.
pub struct Lookup {
    pub catalogue: Option<Arc<Catalogue>>,
    /// The server could not be asked when it should have been.
    pub is_stale: bool,
    pub failure: Option<Failure>,
}

/// The state of a server, as this node knows it.
#[derive(Debug, Clone, Default)]
pub struct Status {
    pub state: &'static str,
    pub era: Option<&'static str>,
    pub protocol_version: Option<String>,
    pub tools: Option<usize>,
    pub last_ok_at: Option<Timestamp>,
    pub last_error: Option<String>,
}

/// A request for the catalogue of a server on behalf of a caller.
#[derive(Clone)]
pub struct CatalogueRequest {
    pub org: OrgId,
    pub memory: Arc<MemoryAccount>,
    pub server: Arc<Server>,
    pub caller: String,
}

impl CatalogueRequest {
    /// What the catalogue is kept by.
    pub(super) fn name(&self) -> Arc<str> {
        if self.server.lists_by_caller() {
            name_for(&self.server, &self.caller)
        } else {
            Arc::clone(&self.server.key)
        }
    }
}

/// What the catalogue of one caller is kept by.
fn name_for(server: &Server, caller: &str) -> Arc<str> {
    format!("{}|{caller}", server.key).into()
}

/// Tools as they are approved.
pub struct ApprovedTools {
    /// Their hashes.
    pub pins: BTreeMap<String, String>,
    /// What is compared with when one of them changes.
    pub definitions: Definitions,
}

impl ApprovedTools {
    /// All tools of a server.
    fn all_of(catalogue: &Catalogue) -> Self {
        let tools = || catalogue.tools.iter();
        Self {
            pins: tools().map(|tool| (tool.name.clone(), tool.hash.clone())).collect(),
            definitions: tools().filter_map(|tool| Some((tool.name.clone(), tool.definition()?))).collect(),
        }
    }
}

impl Entry {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_fresh(&self, now: Timestamp) -> bool {
        let ttl = self
            .catalogue
            .as_ref()
            .map(|catalogue| i64::try_from(catalogue.ttl.as_millis()).unwrap_or(i64::MAX));
        ttl.is_some_and(|ttl| now.0 - self.fetched_at.0 < ttl) && !self.is_outdated
    }

    fn may_ask(&self, now: Timestamp) -> bool {
        !self.is_refreshing && (self.failure.is_none() || now.0 - self.failed_at.0 >= RETRY_MS)
    }

    fn lookup(&self, now: Timestamp) -> Lookup {
        let catalogue = self.catalogue.clone().filter(|_| now.0 - self.fetched_at.0 < KEPT_MS);
        let is_stale = self.failure.is_some() || catalogue.is_none();
        Lookup { catalogue, is_stale, failure: self.failure.clone() }
    }
}

impl Mcp {
    fn entry(&self, request: &CatalogueRequest) -> Option<Arc<Entry>> {
        let name = request.name();
        let mut entries = self.catalogue_entries();
        if let Some(entry) = entries.get(request.org, &name) {
            return Some(Arc::clone(entry));
        }
        let entry = Arc::new(Entry { state: Mutex::default(), done: watch::Sender::new(0) });
        entries.insert(request.org, name, Arc::clone(&entry), |_| true).ok()?;
        Some(entry)
    }

    /// The lists of a server: from memory if there are any, else after at most three seconds.
    pub async fn look_up(self: &Arc<Self>, request: &CatalogueRequest) -> Lookup {
        self.look_up_within(request, true).await
    }

    /// Like `look_up`, for lists of many servers: one that has failed, or that was waited for long enough, is not waited
    /// for again.
    pub(super) async fn look_up_briefly(self: &Arc<Self>, request: &CatalogueRequest) -> Lookup {
        self.look_up_within(request, false).await
    }

    async fn look_up_within(self: &Arc<Self>, request: &CatalogueRequest, is_patient: bool) -> Lookup {
        let Some(entry) = self.entry(request) else {
            return Lookup { catalogue: None, is_stale: true, failure: None };
        };
        let mut done = entry.done.subscribe();
        let now = self.services.clock.now();
        let (has_lists, has_failed, asked_at) = {
            let state = entry.lock();
            if state.is_fresh(now) && !request.server.awaits_pins() {
                return state.lookup(now);
            }
            let has_lists = state.lookup(now).catalogue.is_some();
            (has_lists, state.failure.is_some(), state.is_refreshing.then_some(state.asked_at))
        };
        let is_started = self.start_refresh(&entry, request);
        let is_asked = is_started || asked_at.is_some();
        if !has_lists && is_asked && (is_patient || !has_failed) {
            let waited = asked_at.filter(|_| !is_patient).map_or(0, |at| now.0 - at.0);
            let waited = Duration::from_millis(u64::try_from(waited).unwrap_or(0));
            let _ = tokio::time::timeout(MAX_WAIT.saturating_sub(waited), done.changed()).await;
        }
        entry.lock().lookup(self.services.clock.now())
    }

    /// The lists of a server that are in memory. They are read again beside it if it is time to.
    pub(super) fn glance(self: &Arc<Self>, request: &CatalogueRequest) -> Option<Arc<Catalogue>> {
        let entry = self.entry(request)?;
        let now = self.services.clock.now();
        let is_fresh = entry.lock().is_fresh(now);
        if !is_fresh || request.server.awaits_pins() {
            self.start_refresh(&entry, request);
        }
        entry.lock().lookup(now).catalogue
    }

    /// Asks the server now, and waits for its answer.
    pub async fn refresh(self: &Arc<Self>, request: &CatalogueRequest) -> Lookup {
        let Some(entry) = self.entry(request) else {
            return Lookup { catalogue: None, is_stale: true, failure: None };
        };
        // A refresh that runs already may have asked before the caller did.
        for _ in 0..2 {
            let mut done = entry.done.subscribe();
            {
                let mut state = entry.lock();
                (state.failure, state.eras) = (None, None);
                if !state.is_refreshing {
                    state.asked_at = Timestamp(0);
                }
            }
            let is_started = self.start_refresh(&entry, request);
            let _ = tokio::time::timeout(FETCH_TIMEOUT * 2, done.changed()).await;
            if is_started {
                break;
            }
        }
        entry.lock().lookup(self.services.clock.now())
    }

    /// The caller has another credential for the server, or none any more: the server is asked again with it.
    pub fn forget_caller(&self, org: OrgId, server: &Server, caller: &str) {
        let entry = self.catalogue_entries().peek(org, &name_for(server, caller)).cloned();
        if let Some(entry) = entry {
            {
                let mut state = entry.lock();
                *state = State { generation: state.generation + 1, ..State::default() };
            }
            entry.done.send_modify(|count| *count += 1);
        }
    }

    /// The tools that a server has for all callers, if they are known.
    pub fn current_tools(&self, org: OrgId, key: &str) -> Option<ApprovedTools> {
        let entry = self.catalogue_entries().peek(org, key).cloned()?;
        let catalogue = entry.lock().lookup(self.services.clock.now()).catalogue?;
        Some(ApprovedTools::all_of(&catalogue))
    }

    /// The lists of a server have changed, or it does not behave as its catalogue says.
    pub(super) fn mark_outdated(self: &Arc<Self>, request: &CatalogueRequest) {
        if let Some(entry) = self.entry(request) {
            entry.lock().is_outdated = true;
            self.start_refresh(&entry, request);
        }
    }

    /// What is known of a server for all callers.
    pub fn status(&self, org: OrgId, server: &Server) -> Status {
        let entry = self.catalogue_entries().peek(org, &server.key).cloned();
        let Some(entry) = entry else { return Status { state: "stale", ..Status::default() } };
        let state = entry.lock();
        let failure = state.failure.as_ref();
        let has_changed = state.catalogue.as_ref().is_some_and(|catalogue| {
            catalogue.tools.iter().any(|tool| !server.approves(&tool.name, &tool.hash))
        });
        Status {
            state: match (failure.map(|failure| failure.kind), &state.catalogue) {
                (Some(FailureKind::Refused | FailureKind::SignIn), _) => "auth_required",
                (Some(_), _) => "down",
                (None, None) => "stale",
                (None, Some(_)) if has_changed => "changed",
                (None, Some(_)) if !state.is_fresh(self.services.clock.now()) => "stale",
                (None, Some(_)) => "ok",
            },
            era: state
                .catalogue
                .as_ref()
                .map(|catalogue| if catalogue.eras.is_modern { "modern" } else { "legacy" }),
            protocol_version: state
                .catalogue
                .as_ref()
                .map(|catalogue| catalogue.protocol_version().to_owned()),
            tools: state.catalogue.as_ref().map(|catalogue| catalogue.tools.len()),
            last_ok_at: state.catalogue.as_ref().map(|_| state.fetched_at),
            last_error: failure.map(|failure| failure.message.clone()),
        }
    }
}
