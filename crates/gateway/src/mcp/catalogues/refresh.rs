//! The refresh of a catalogue: one at a time for each server, at most once a second, beside the requests.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::time::{DAY, SECOND, Timestamp};
use gateway_store::connection_shares::on_behalf_of;
use gateway_store::{mcp_approved_tools, mcp_servers};

use super::{ApprovedTools, CatalogueRequest, Entry, FETCH_TIMEOUT};
use crate::cluster::invalidation::{self, Invalidation};
use crate::mcp::Mcp;
use crate::mcp::catalogue::{Catalogue, Eras, fetch};
use crate::mcp::upstream::{Failure, FailureKind};
use crate::mcp_servers::key_of;
use crate::problem::ApiResult;

/// The least time between the beginnings of two refreshes of a server, in milliseconds. Changes that are announced
/// meanwhile count as one.
const INTERVAL_MS: i64 = SECOND;
/// The revisions of a server are found again after this time, in milliseconds.
const ERAS_MS: i64 = DAY;

/// A refresh that runs. However it ends, the next one can begin.
struct Refresh {
    entry: Arc<Entry>,
    generation: u64,
    has_lists: bool,
}

impl Refresh {
    /// What the server is asked for from now on includes all changes that were announced before. False if the refresh is
    /// no longer wanted.
    fn begin(&self) -> bool {
        let mut state = self.entry.lock();
        let is_wanted = state.generation == self.generation;
        if is_wanted {
            state.is_outdated = false;
        }
        is_wanted
    }

    /// Keeps what the server answered, unless everything was forgotten since the refresh began.
    fn store(&mut self, fetched: Result<Catalogue, Failure>, eras_at: Option<Timestamp>, now: Timestamp) {
        let mut state = self.entry.lock();
        if state.generation != self.generation {
            return;
        }
        match fetched {
            Ok(catalogue) => {
                state.eras = Some((catalogue.eras.clone(), eras_at.unwrap_or(now)));
                (state.catalogue, state.fetched_at) = (Some(Arc::new(catalogue)), now);
                state.failure = None;
                self.has_lists = true;
            }
            Err(failure) => (state.failure, state.failed_at) = (Some(failure), now),
        }
    }
}

impl Drop for Refresh {
    fn drop(&mut self) {
        {
            let mut state = self.entry.lock();
            if state.generation != self.generation {
                return;
            }
            state.is_refreshing = false;
            state.is_outdated |= !self.has_lists;
        }
        self.entry.done.send_modify(|count| *count += 1);
    }
}

impl Mcp {
    /// Starts a refresh unless one runs, or the server failed just now.
    pub(super) fn start_refresh(self: &Arc<Self>, entry: &Arc<Entry>, request: &CatalogueRequest) -> bool {
        let now = self.services.clock.now();
        let (known, generation, wait) = {
            let mut state = entry.lock();
            if !state.may_ask(now) {
                return false;
            }
            let wait = (state.asked_at.0 + INTERVAL_MS - now.0).clamp(0, INTERVAL_MS);
            (state.is_refreshing, state.asked_at) = (true, Timestamp(now.0 + wait));
            let has_failed = state.failure.is_some();
            let known = state.eras.clone().filter(|(_, at)| !has_failed && now.0 - at.0 < ERAS_MS);
            (known, state.generation, Duration::from_millis(wait.unsigned_abs()))
        };
        let refresh = Refresh { entry: Arc::clone(entry), generation, has_lists: false };
        let (mcp, org, request) = (Arc::clone(self), request.org, request.clone());
        self.services.tasks.spawn(on_behalf_of(org, async move {
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            Box::pin(mcp.run_refresh(refresh, &request, known)).await;
        }));
        true
    }

    async fn run_refresh(
        self: &Arc<Self>,
        mut refresh: Refresh,
        request: &CatalogueRequest,
        known: Option<(Eras, Timestamp)>,
    ) {
        if !refresh.begin() {
            return;
        }
        let (eras, eras_at) = known.unzip();
        let fetched = self.fetch(request, eras).await;
        match &fetched {
            Ok(catalogue) => self.pin_first(request, catalogue).await,
            Err(failure) => {
                let server = &request.server.name;
                tracing::debug!(%server, org = %request.org, error = %failure.message, "an MCP server cannot be read");
            }
        }
        refresh.store(fetched, eras_at, self.services.clock.now());
        let (entry, has_lists) = (Arc::clone(&refresh.entry), refresh.has_lists);
        drop(refresh);
        // A change that was announced while the lists were read.
        let is_outdated = entry.lock().is_outdated;
        if has_lists && is_outdated && !self.services.tasks.is_stopping() {
            self.start_refresh(&entry, request);
        }
    }

    async fn fetch(&self, request: &CatalogueRequest, known: Option<Eras>) -> Result<Catalogue, Failure> {
        let CatalogueRequest { org, memory, server, caller } = request;
        let headers = self.credentials(*org, server, caller, None).await?;
        let peer = self.peer(*org, server, headers, memory);
        let timeout = FETCH_TIMEOUT.min(server.timeout());
        let fetched = fetch(peer, *org, known, timeout).await;
        if fetched.as_ref().is_err_and(|failure| failure.kind == FailureKind::Refused) {
            self.forget_token(*org, server);
        }
        fetched
    }

    /// The tools that a pinned server has at first are approved.
    async fn pin_first(&self, request: &CatalogueRequest, catalogue: &Catalogue) {
        if !request.server.awaits_pins() {
            return;
        }
        if let Err(problem) = self.store_first_pins(request, catalogue).await {
            tracing::warn!(error = %problem.message, "the tools of an MCP server could not be pinned");
        }
    }

    async fn store_first_pins(&self, request: &CatalogueRequest, catalogue: &Catalogue) -> ApiResult<()> {
        let (org, server) = (request.org, &request.server);
        let mut tx = self.services.db.begin().await?;
        let Some(mut stored) = mcp_servers::find_for_update(&mut tx, org, &server.name).await? else {
            return Ok(());
        };
        // The definition may have changed while the tools were read.
        if stored.pins.is_some() || !stored.definition.pin || key_of(&stored) != server.key {
            return Ok(());
        }
        let ApprovedTools { pins, definitions } = ApprovedTools::all_of(catalogue);
        stored.pins = Some(pins);
        mcp_servers::update(&mut tx, org, &stored).await?;
        mcp_approved_tools::replace(&mut tx, org, &server.name, &definitions).await?;
        let pending = invalidation::record(&mut tx, Invalidation::Org(org)).await?;
        Ok(invalidation::commit(tx, [pending], &self.cluster).await?)
    }
}
