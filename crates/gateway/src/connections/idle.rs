//! Which connections are idle, and since when. A request changes only atomics of its own connection; the longest idle
//! connection is searched for when one must be closed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::Version;
use tokio::sync::Notify;

/// Searching all connections finds this many to close, one after the other.
const MAX_CANDIDATES: usize = 64;
/// While no connection is idle, all of them are searched at most this often.
const SEARCH_INTERVAL: Duration = Duration::from_millis(10);
/// In `idle_since`: a request is in progress.
const BUSY: u64 = 0;

pub struct ConnectionState {
    epoch: Instant,
    requests: AtomicU32,
    /// Milliseconds since the epoch, or `BUSY`.
    idle_since: AtomicU64,
    /// Request heads that have arrived.
    heads: AtomicU32,
    /// Bytes of the next head have arrived.
    is_head_open: AtomicBool,
    /// Bytes on an idle connection belong to the protocol, not to a head.
    is_http2: AtomicBool,
    /// It was chosen to make room for another connection.
    is_chosen: AtomicBool,
    is_close_requested: AtomicBool,
    close: Notify,
}

impl ConnectionState {
    pub(super) fn new(epoch: Instant) -> Self {
        let state = Self {
            epoch,
            requests: AtomicU32::new(0),
            idle_since: AtomicU64::new(BUSY),
            heads: AtomicU32::new(0),
            is_head_open: AtomicBool::new(false),
            is_http2: AtomicBool::new(false),
            is_chosen: AtomicBool::new(false),
            is_close_requested: AtomicBool::new(false),
            close: Notify::new(),
        };
        state.idle_since.store(state.now(), Ordering::Relaxed);
        state
    }

    /// The head of a request has arrived. The connection is busy until the returned value is dropped.
    pub fn begin_request(self: &Arc<Self>, version: Version) -> ActiveRequest {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.idle_since.store(BUSY, Ordering::Relaxed);
        self.heads.fetch_add(1, Ordering::Relaxed);
        self.is_head_open.store(false, Ordering::Relaxed);
        self.is_http2.store(version == Version::HTTP_2, Ordering::Relaxed);
        ActiveRequest(Arc::clone(self))
    }

    /// A complete request head has arrived at some time.
    pub fn had_request(&self) -> bool {
        self.heads.load(Ordering::Relaxed) > 0
    }

    /// Bytes have arrived. On an idle connection of HTTP/1.1 they begin a request head.
    pub fn note_bytes(&self) {
        let is_idle = self.idle_since.load(Ordering::Relaxed) != BUSY;
        if is_idle && !self.is_http2.load(Ordering::Relaxed) {
            self.is_head_open.store(true, Ordering::Relaxed);
        }
    }

    /// Which head has begun and is not complete: the number of those before it.
    pub fn open_head(&self) -> Option<u32> {
        self.is_head_open.load(Ordering::Relaxed).then(|| self.heads.load(Ordering::Relaxed))
    }

    /// How long the connection has had no request in progress.
    pub fn idle_time(&self) -> Option<Duration> {
        let since = self.idle_since.load(Ordering::Relaxed);
        (since != BUSY).then(|| Duration::from_millis(self.now().saturating_sub(since)))
    }

    /// Asks the connection to close once its requests have ended.
    pub fn request_close(&self) {
        self.is_close_requested.store(true, Ordering::Relaxed);
        // The permit is kept until somebody waits for it.
        self.close.notify_one();
    }

    pub fn is_close_requested(&self) -> bool {
        self.is_close_requested.load(Ordering::Relaxed)
    }

    /// Resolves when the connection shall close.
    pub async fn close_requested(&self) {
        self.close.notified().await;
    }

    pub(super) fn was_chosen(&self) -> bool {
        self.is_chosen.load(Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }
}

/// A request in progress.
pub struct ActiveRequest(Arc<ConnectionState>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let state = &self.0;
        if state.requests.fetch_sub(1, Ordering::Relaxed) == 1 {
            state.idle_since.store(state.now(), Ordering::Relaxed);
        }
    }
}

/// Connections to close next, in the order of the time since which they are idle.
#[derive(Default)]
pub(super) struct IdleConnections {
    candidates: VecDeque<(u64, Arc<ConnectionState>)>,
    searched: Option<Instant>,
}

impl IdleConnections {
    /// Asks the connection that has been idle for longest to close. Returns false if none is idle.
    pub(super) fn close_longest<'a>(&mut self, open: impl Iterator<Item = &'a Arc<ConnectionState>>) -> bool {
        if self.close_candidate() {
            return true;
        }
        if self.searched.is_some_and(|searched| searched.elapsed() < SEARCH_INTERVAL) {
            return false;
        }
        self.search(open);
        let is_closed = self.close_candidate();
        self.searched = (!is_closed).then(Instant::now);
        is_closed
    }

    fn search<'a>(&mut self, open: impl Iterator<Item = &'a Arc<ConnectionState>>) {
        let mut idle: Vec<(u64, &Arc<ConnectionState>)> = open
            .filter(|state| !state.was_chosen())
            .map(|state| (state.idle_since.load(Ordering::Relaxed), state))
            .filter(|(since, _)| *since != BUSY)
            .collect();
        if idle.len() > MAX_CANDIDATES {
            idle.select_nth_unstable_by_key(MAX_CANDIDATES, |(since, _)| *since);
            idle.truncate(MAX_CANDIDATES);
        }
        idle.sort_unstable_by_key(|(since, _)| *since);
        self.candidates = idle.into_iter().map(|(since, state)| (since, Arc::clone(state))).collect();
    }

    fn close_candidate(&mut self) -> bool {
        while let Some((since, state)) = self.candidates.pop_front() {
            // It may have had a request since, or have closed by itself.
            let is_idle = state.idle_since.load(Ordering::Relaxed) == since && Arc::strong_count(&state) > 1;
            if is_idle && !state.is_chosen.swap(true, Ordering::Relaxed) {
                state.request_close();
                return true;
            }
        }
        false
    }
}
