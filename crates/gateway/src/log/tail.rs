//! What the log streams of an organization share: one task reads new rows, from this node's broadcast and from the
//! store, and all streams of the organization on this node follow it. The number of streams does not change the number
//! of queries.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway_core::ids::OrgId;
use gateway_core::logs::LogRow;
use gateway_core::time::Timestamp;
use gateway_store::StoreError;
use gateway_store::connection_shares::on_behalf_of;
use gateway_store::logs::{self, LogEntry, LogFilter};
use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio::time::Instant;

use crate::memory::Reservation;
use crate::services::Services;

/// Streams that an organization may have open on a node.
pub const MAX_STREAMS_PER_ORG: usize = 20;
/// How often the store is polled for rows of other nodes, and for rows of which the broadcast was missed.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Batches of rows that one poll reads.
const PAGE_BATCHES: i64 = 4;
/// Events that a stream may lag behind before it has to read from the store.
const MAX_LAG: usize = 1_024;
/// What may wait for the streams of an organization, besides what each has ready to send. Beyond it they read from the store.
const MAX_QUEUED_BYTES: usize = 4 << 20;
/// A row without bodies and metadata.
const ROW_BYTES: usize = 2 << 10;
/// A remembered id.
const ID_BYTES: usize = 32;
/// Number of ids of broadcast rows that are kept, so that they are not read from the store as well.
const MAX_REMEMBERED_IDS: usize = 32_768;

/// Streams keep what they have not sent. A row with larger bodies is read from the store, which has them.
const MAX_LIVE_BODIES: usize = 16 << 10;
/// After a row with large bodies the store is read this soon, together with the next ones.
const SOON: Duration = Duration::from_millis(100);

/// What this node has stored.
#[derive(Clone)]
pub enum StoredRow {
    Small(Arc<LogRow>),
    /// A row of this organization with large bodies.
    Large(OrgId),
}

impl StoredRow {
    pub fn of(row: &LogRow) -> Self {
        if row_bytes(row) > ROW_BYTES + MAX_LIVE_BODIES {
            Self::Large(row.org_id)
        } else {
            Self::Small(Arc::new(row.clone()))
        }
    }
}

/// About what a row takes.
pub fn row_bytes(row: &LogRow) -> usize {
    let text = |value: &Value| value.as_str().map_or(0, str::len);
    let metadata: usize = row.metadata.iter().map(|(name, value)| name.len() + text(value)).sum();
    ROW_BYTES + row.request.len() + row.response.len() + metadata
}

/// What a stream is told.
#[derive(Clone)]
pub enum TailEvent {
    /// A row that this node has stored.
    Live(Arc<LogRow>),
    /// Rows that were found in the store.
    Stored(Arc<Vec<LogEntry>>),
    /// Too much waits for the streams: the next rows have to be read from the store.
    Missed,
    /// All rows of the batches up to this one were sent before.
    Polled(i64),
    /// Rows since this time may be missing, because the list of batches does not reach back far enough.
    Incomplete(Timestamp),
}

#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    #[error("the organization has as many log streams as are allowed")]
    TooMany,
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// The organizations with open streams.
#[derive(Default)]
pub struct LogTails {
    senders: Mutex<HashMap<OrgId, Sender<TailEvent>>>,
}

/// A stream's place.
pub struct Subscription {
    pub events: Receiver<TailEvent>,
    /// The rows of later batches are events.
    pub last_batch: i64,
}

impl LogTails {
    /// Subscribes one more stream, and starts the organization's task if it is the first. `live` is this node's
    /// broadcast of stored rows.
    pub async fn subscribe(
        self: &Arc<Self>,
        services: &Arc<Services>,
        live: &Sender<StoredRow>,
        org: OrgId,
    ) -> Result<Subscription, SubscribeError> {
        // Read before the subscription: rows that are stored in between are found by the next poll.
        let last_batch = logs::last_batch(&services.logs).await?;
        let (events, new) = self.take_place(live, org)?;
        if let Some((sender, live_rows)) = new {
            let account = services.memory.account(org);
            let tail = OrgTail {
                tails: Arc::clone(self),
                services: Arc::clone(services),
                org,
                sender,
                live_rows,
                last_batch,
                last_poll: services.clock.now(),
                known: RecentIds::new(account.open()),
                queued: VecDeque::new(),
                memory: account.open(),
            };
            services.tasks.spawn(on_behalf_of(org, tail.run()));
        }
        Ok(Subscription { events, last_batch })
    }

    /// The place of a stream, and what the task needs if it has to be started.
    fn take_place(
        &self,
        live: &Sender<StoredRow>,
        org: OrgId,
    ) -> Result<(Receiver<TailEvent>, Option<NewTail>), SubscribeError> {
        let mut senders = self.lock();
        if let Some(sender) = senders.get(&org) {
            if sender.receiver_count() >= MAX_STREAMS_PER_ORG {
                return Err(SubscribeError::TooMany);
            }
            return Ok((sender.subscribe(), None));
        }
        let (sender, events) = broadcast::channel(MAX_LAG);
        senders.insert(org, sender.clone());
        Ok((events, Some((sender, live.subscribe()))))
    }

    /// Ends the organization's entry if it has no streams. Returns whether it has ended.
    fn end_if_unused(&self, org: OrgId) -> bool {
        let mut senders = self.lock();
        let is_unused = senders.get(&org).is_none_or(|sender| sender.receiver_count() == 0);
        if is_unused {
            senders.remove(&org);
        }
        is_unused
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OrgId, Sender<TailEvent>>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type NewTail = (Sender<TailEvent>, Receiver<StoredRow>);

/// The task of an organization.
struct OrgTail {
    tails: Arc<LogTails>,
    services: Arc<Services>,
    org: OrgId,
    sender: Sender<TailEvent>,
    live_rows: Receiver<StoredRow>,
    last_batch: i64,
    last_poll: Timestamp,
    known: RecentIds,
    /// What the latest events take. Those that all streams have received are removed before the next one is sent.
    queued: VecDeque<usize>,
    memory: Reservation,
}

impl OrgTail {
    async fn run(mut self) {
        let services = Arc::clone(&self.services);
        let mut next_poll = Instant::now() + POLL_INTERVAL;
        loop {
            tokio::select! {
                () = services.tasks.stopping() => return,
                row = self.live_rows.recv() => match row {
                    Ok(StoredRow::Small(row)) if row.org_id == self.org => {
                        let (id, bytes) = (row.id, row_bytes(&row));
                        if self.send(TailEvent::Live(row), bytes) {
                            self.known.insert(id);
                        } else {
                            next_poll = next_poll.min(Instant::now() + SOON);
                        }
                        continue;
                    }
                    Ok(StoredRow::Large(org)) if org == self.org => {
                        next_poll = next_poll.min(Instant::now() + SOON);
                        continue;
                    }
                    Ok(_) => continue,
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                },
                () = tokio::time::sleep_until(next_poll) => {}
            }
            if self.tails.end_if_unused(self.org) {
                return;
            }
            if let Err(error) = self.poll().await {
                tracing::debug!(%error, "the log streams of an organization cannot read the store; they retry");
            }
            next_poll = Instant::now() + POLL_INTERVAL;
        }
    }

    /// Sends the rows that were stored since the last poll and were not broadcast.
    async fn poll(&mut self) -> Result<(), StoreError> {
        let services = Arc::clone(&self.services);
        let logs = &services.logs;
        let since = std::mem::replace(&mut self.last_poll, self.services.clock.now());
        loop {
            let batches = logs::batches_after(logs, self.org, self.last_batch, PAGE_BATCHES).await?;
            if batches.is_incomplete {
                self.send(TailEvent::Incomplete(since), 0);
            }
            let unknown: Vec<i64> = batches.ids.into_iter().filter(|id| !self.known.contains(*id)).collect();
            if !unknown.is_empty() {
                let entries = logs::list_these(logs, self.org, &LogFilter::default(), &unknown).await?;
                for id in unknown {
                    self.known.insert(id);
                }
                let bytes = entries
                    .iter()
                    .map(|entry| row_bytes(&entry.row) + entry.preview.as_ref().map_or(0, String::len))
                    .sum();
                if !self.send(TailEvent::Stored(Arc::new(entries)), bytes) {
                    self.send(TailEvent::Missed, 0);
                }
            }
            let has_more = self.last_batch < batches.last;
            self.last_batch = batches.last;
            if !has_more {
                self.send(TailEvent::Polled(self.last_batch), 0);
                return Ok(());
            }
        }
    }

    /// Sends an event that takes so many bytes until all streams have received it. Returns false if too much waits.
    fn send(&mut self, event: TailEvent, bytes: usize) -> bool {
        // The channel drops an event when the last stream has received it.
        let waiting = self.sender.len();
        while self.queued.len() > waiting {
            self.queued.pop_front();
        }
        let queued: usize = self.queued.iter().sum();
        self.memory.shrink_to(queued);
        if bytes > 0 && (queued + bytes > MAX_QUEUED_BYTES || self.memory.resize(queued + bytes).is_err()) {
            return false;
        }
        self.queued.push_back(bytes);
        // An error means that the last stream has ended.
        let _ = self.sender.send(event);
        true
    }
}

/// The latest ids, without duplicates.
pub struct RecentIds {
    ids: HashSet<i64>,
    in_order: VecDeque<i64>,
    memory: Reservation,
}

impl RecentIds {
    pub fn new(memory: Reservation) -> Self {
        Self { ids: HashSet::new(), in_order: VecDeque::new(), memory }
    }

    /// Forgets the oldest id if there are too many.
    pub fn insert(&mut self, id: i64) {
        if !self.ids.insert(id) {
            return;
        }
        self.in_order.push_back(id);
        if self.in_order.len() <= MAX_REMEMBERED_IDS {
            self.memory.charge(ID_BYTES);
        } else if let Some(oldest) = self.in_order.pop_front() {
            self.ids.remove(&oldest);
        }
    }

    pub fn contains(&self, id: i64) -> bool {
        self.ids.contains(&id)
    }
}
