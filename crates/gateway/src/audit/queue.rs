//! Entries that belong to no transaction: refused requests, failed logins, reads of bodies. They are written behind the
//! response. Of one organization and action at most a hundred are written in a minute; one entry counts the others.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_core::audit::{Chain, Draft, Target};
use gateway_core::ids::OrgId;
use gateway_core::time::{HOUR, MINUTE, Timestamp};
use gateway_store::{StoreError, audit};
use serde_json::json;
use tokio::sync::mpsc;

use super::system_entry;
use crate::services::Services;

/// Entries that wait for the database.
const MAX_WAITING: usize = 10_000;
/// Entries that one transaction writes.
const BATCH: usize = 100;
/// Entries of one organization and action in a minute.
const MAX_PER_MINUTE: u64 = 100;
/// Pairs of organization and action that are counted at the same time.
const MAX_COUNTED: usize = 10_000;
/// Streams of one organization on this node.
const MAX_STREAMS: usize = 10;
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub struct AuditQueue {
    pub(super) services: Arc<Services>,
    /// When the checkpoints of all chains were last up to date, or the start, in seconds.
    pub(super) last_pass: AtomicI64,
    sender: mpsc::Sender<Draft>,
    /// Taken by the task that writes.
    receiver: Mutex<Option<mpsc::Receiver<Draft>>>,
    counts: Mutex<Counts>,
    /// When a refused call was last recorded, by what was refused.
    denials: Mutex<HashMap<String, Timestamp>>,
    busy: Arc<Mutex<Busy>>,
}

/// What organizations do with their logs right now.
#[derive(Default)]
struct Busy {
    verifying: HashSet<OrgId>,
    streams: HashMap<OrgId, usize>,
}

/// Ends the verification of an organization's log when dropped.
pub struct Verifying(Arc<Mutex<Busy>>, OrgId);

impl Drop for Verifying {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).verifying.remove(&self.1);
    }
}

/// An open stream of entries.
pub struct StreamSlot(Arc<Mutex<Busy>>, OrgId);

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut busy = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = busy.streams.get_mut(&self.1) {
            *open -= 1;
            if *open == 0 {
                busy.streams.remove(&self.1);
            }
        }
    }
}

#[derive(Default)]
struct Counts(HashMap<(Chain, String), Count>);

struct Count {
    /// The start of the minute.
    since: Timestamp,
    entries: u64,
    /// Those for which there was no room.
    lost: u64,
}

impl Counts {
    /// Counts an entry; returns whether it may be written.
    fn admit(&mut self, chain: Chain, action: &str, now: Timestamp) -> bool {
        if self.0.len() >= MAX_COUNTED && !self.0.contains_key(&(chain, action.to_owned())) {
            return false;
        }
        let new = Count { since: now, entries: 0, lost: 0 };
        let count = self.0.entry((chain, action.to_owned())).or_insert(new);
        count.entries += 1;
        count.entries <= MAX_PER_MINUTE
    }

    /// An admitted entry was not written.
    fn lose(&mut self, chain: Chain, action: &str) {
        if let Some(count) = self.0.get_mut(&(chain, action.to_owned())) {
            count.lost += 1;
        }
    }

    /// Ends the minutes that are over; returns what was suppressed in them.
    fn end(&mut self, now: Timestamp) -> Vec<(Chain, String, u64)> {
        let mut suppressed = Vec::new();
        self.0.retain(|(chain, action), count| {
            let is_over = now.0.saturating_sub(count.since.0) >= MINUTE || now < count.since;
            let missing = count.entries.saturating_sub(MAX_PER_MINUTE) + count.lost;
            if is_over && missing > 0 {
                suppressed.push((*chain, action.clone(), missing));
            }
            !is_over
        });
        suppressed
    }
}

impl AuditQueue {
    pub fn new(services: Arc<Services>) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        Self {
            last_pass: AtomicI64::new(services.clock.now().unix_seconds()),
            services,
            sender,
            receiver: Mutex::new(Some(receiver)),
            counts: Mutex::default(),
            denials: Mutex::default(),
            busy: Arc::default(),
        }
    }

    /// Whether the same was not refused in the last hour. What is beyond the bound counts as refused before.
    pub fn is_first_denial(&self, what: String, now: Timestamp) -> bool {
        let mut denials = self.denials.lock().unwrap_or_else(PoisonError::into_inner);
        if denials.get(&what).is_some_and(|at| now.0.saturating_sub(at.0) < HOUR) {
            return false;
        }
        if denials.len() >= MAX_COUNTED {
            denials.retain(|_, at| now.0.saturating_sub(at.0) < HOUR);
        }
        if denials.len() >= MAX_COUNTED {
            return false;
        }
        denials.insert(what, now);
        true
    }

    /// `None` if the log of the organization is being verified already.
    pub fn begin_verification(&self, org: OrgId) -> Option<Verifying> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.verifying.insert(org).then(|| Verifying(Arc::clone(&self.busy), org))
    }

    /// `None` if the organization has too many streams open.
    pub fn open_stream(&self, org: OrgId) -> Option<StreamSlot> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let open = busy.streams.entry(org).or_default();
        if *open >= MAX_STREAMS {
            return None;
        }
        *open += 1;
        Some(StreamSlot(Arc::clone(&self.busy), org))
    }

    /// Adds an entry, which is written soon. Entries beyond the bounds are counted instead.
    pub fn push(&self, entry: Draft) {
        let (chain, action) = (entry.chain, entry.action.clone());
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.admit(chain, &action, entry.at) && self.sender.try_send(entry).is_err() {
            counts.lose(chain, &action);
        }
    }

    /// Writes entries until the service stops and all of them are written.
    pub async fn run(self: Arc<Self>) {
        let taken = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut receiver) = taken else { return };
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                received = receiver.recv_many(&mut batch, BATCH) => if received == 0 { return },
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                () = self.services.tasks.drained() => {
                    receiver.close();
                    while let Ok(entry) = receiver.try_recv() {
                        batch.push(entry);
                    }
                    batch.extend(self.suppressed(self.services.clock.now().plus(MINUTE)));
                    self.write(batch).await;
                    return;
                }
            }
            batch.extend(self.suppressed(self.services.clock.now()));
            self.write(batch).await;
        }
    }

    /// Entries about what was suppressed in the minutes that are over at this time.
    fn suppressed(&self, now: Timestamp) -> Vec<Draft> {
        let ended = self.counts.lock().unwrap_or_else(PoisonError::into_inner).end(now);
        let entry = |(chain, action, count): (Chain, String, u64)| {
            let target = Target { kind: "action".into(), id: Some(action.clone()), name: None };
            system_entry(&self.services, chain, "audit.suppressed", target)
                .created(&json!({"action": action, "count": count}))
        };
        ended.into_iter().map(entry).collect()
    }

    /// Writes a batch, and tries again while the database is away.
    async fn write(&self, batch: Vec<Draft>) {
        if batch.is_empty() {
            return;
        }
        while let Err(error) = audit::write_if_exists(&self.services.db, &batch).await {
            let is_transient = matches!(error, StoreError::Unavailable(_));
            if !is_transient || self.services.tasks.is_drained() {
                tracing::error!(%error, entries = batch.len(), "audit entries could not be written");
                return;
            }
            tracing::debug!(%error, "cannot write audit entries yet; it is retried");
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_entries_a_minute_pass_and_the_others_are_counted() {
        let mut counts = Counts::default();
        let start = Timestamp(1_000_000);
        let passed = (0..250).filter(|_| counts.admit(Chain::System, "key.create", start)).count();
        assert_eq!(passed, 100);
        assert!(counts.admit(Chain::System, "key.update", start));
        assert!(counts.end(start.plus(MINUTE - 1)).is_empty());
        assert_eq!(counts.end(start.plus(MINUTE)), [(Chain::System, "key.create".to_owned(), 150)]);
        assert!(counts.0.is_empty());
        assert!(counts.admit(Chain::System, "key.delete", start));
        counts.lose(Chain::System, "key.delete");
        assert_eq!(counts.end(start.plus(MINUTE)), [(Chain::System, "key.delete".to_owned(), 1)]);
        assert!(counts.admit(Chain::System, "key.create", start.plus(MINUTE)));
    }
}
