//! Entries that belong to no transaction: refused requests, failed logins, reads of bodies. They are written behind the
//! response. Of one organization and action at most a hundred are written in a minute; one entry counts the others.
//! Organizations have equal shares of the queue: what one of them floods it with displaces no entry of another.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway_core::audit::{Chain, Draft, Target};
use gateway_core::fair_queue::FairQueue;
use gateway_core::ids::OrgId;
use gateway_core::time::{HOUR, MINUTE, Timestamp};
use gateway_store::{StoreError, audit};
use serde_json::json;
use tokio::sync::Notify;

use super::counts::Counts;
use super::system_entry;
use crate::services::Services;

/// Entries that wait for the database.
const MAX_WAITING: usize = 10_000;
const MAX_WAITING_PER_CHAIN: usize = 2_000;
/// Entries that one transaction writes.
const BATCH: usize = 100;
/// Refused calls that are remembered.
const MAX_DENIALS: usize = 50_000;
const MAX_DENIALS_PER_ORG: usize = 1_000;
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub struct AuditQueue {
    pub(super) services: Arc<Services>,
    /// When the checkpoints of all chains were last up to date, or the start, in seconds.
    pub(super) last_pass: AtomicI64,
    /// The hour in which retention was last complete.
    pub(super) last_retention: AtomicI64,
    waiting: Mutex<Waiting>,
    arrived: Notify,
    denials: Mutex<Denials>,
}

struct Waiting {
    entries: FairQueue<Chain, Draft>,
    counts: Counts,
}

/// When a refused call was last recorded, by what was refused.
#[derive(Default)]
struct Denials {
    by_org: HashMap<OrgId, HashMap<String, Timestamp>>,
    len: usize,
    /// When those of all organizations were last removed that are older than an hour.
    pruned_at: Option<Timestamp>,
}

impl Denials {
    /// Whether the same was not refused in the last hour. What is beyond the bounds is not remembered: it is recorded
    /// again, and limited like any other entry.
    fn is_first(&mut self, org: OrgId, what: String, now: Timestamp) -> bool {
        let is_recent = |at: &Timestamp| now.0.saturating_sub(at.0) < HOUR;
        if self.by_org.get(&org).and_then(|of_org| of_org.get(&what)).is_some_and(is_recent) {
            return false;
        }
        // Not for every refused call: it takes as long as there are denials.
        let may_prune = self.pruned_at.is_none_or(|at| now.0.abs_diff(at.0) >= MINUTE.unsigned_abs());
        if self.len >= MAX_DENIALS && may_prune {
            self.pruned_at = Some(now);
            self.by_org.retain(|_, of_org| {
                of_org.retain(|_, at| is_recent(at));
                !of_org.is_empty()
            });
            self.len = self.by_org.values().map(HashMap::len).sum();
        }
        let of_org = self.by_org.entry(org).or_default();
        if of_org.len() >= MAX_DENIALS_PER_ORG {
            let before = of_org.len();
            of_org.retain(|_, at| is_recent(at));
            self.len -= before - of_org.len();
        }
        if self.len < MAX_DENIALS && of_org.len() < MAX_DENIALS_PER_ORG {
            self.len += usize::from(of_org.insert(what, now).is_none());
        }
        true
    }
}

impl AuditQueue {
    pub fn new(services: Arc<Services>) -> Self {
        let entries = FairQueue::new(MAX_WAITING_PER_CHAIN, MAX_WAITING);
        Self {
            last_pass: AtomicI64::new(services.clock.now().unix_seconds()),
            last_retention: AtomicI64::new(i64::MIN),
            services,
            waiting: Mutex::new(Waiting { entries, counts: Counts::default() }),
            arrived: Notify::new(),
            denials: Mutex::default(),
        }
    }

    /// Whether the same was not refused in the last hour.
    pub fn is_first_denial(&self, org: OrgId, what: String, now: Timestamp) -> bool {
        self.denials.lock().unwrap_or_else(PoisonError::into_inner).is_first(org, what, now)
    }

    /// Adds an entry, which is written soon. Entries beyond the bounds are counted instead.
    pub fn push(&self, entry: Draft) {
        self.waiting().push(entry);
        self.arrived.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes entries until the service stops and all of them are written.
    pub async fn run(self: Arc<Self>) {
        loop {
            let is_last = tokio::select! {
                () = self.arrived.notified() => false,
                () = tokio::time::sleep(CHECK_INTERVAL) => false,
                () = self.services.tasks.drained() => true,
            };
            loop {
                let batch = self.waiting().take(BATCH);
                if batch.is_empty() {
                    break;
                }
                self.write(batch).await;
            }
            let now = self.services.clock.now();
            // The last minute is over early.
            self.write(self.suppressed(if is_last { now.plus(MINUTE) } else { now })).await;
            if is_last {
                return;
            }
        }
    }

    /// Entries about what was suppressed in the minutes that are over at this time.
    fn suppressed(&self, now: Timestamp) -> Vec<Draft> {
        let ended = self.waiting().counts.end(now);
        let entry = |(chain, action, count): (Chain, String, u64)| {
            let target = Target { kind: "action".into(), id: Some(action.clone()), name: None };
            system_entry(&self.services, chain, "audit.suppressed", target)
                .created(&json!({"action": action, "count": count}))
        };
        ended.into_iter().map(entry).collect()
    }

    /// Writes a batch. If a chain cannot be written, for example because its head is damaged, the others are.
    async fn write(&self, batch: Vec<Draft>) {
        let Err(error) = self.write_once(&batch).await else { return };
        let mut by_chain: BTreeMap<Chain, Vec<Draft>> = BTreeMap::new();
        for entry in batch {
            by_chain.entry(entry.chain).or_default().push(entry);
        }
        let is_alone = by_chain.len() == 1;
        for (chain, entries) in by_chain {
            let failed = if is_alone {
                Some(error.to_string())
            } else {
                self.write_once(&entries).await.err().map(|error| error.to_string())
            };
            if let Some(error) = failed {
                tracing::error!(%error, %chain, entries = entries.len(), "audit entries could not be written");
            }
        }
    }

    /// Writes entries in one transaction, and tries again while the database is away.
    async fn write_once(&self, entries: &[Draft]) -> Result<(), StoreError> {
        if entries.is_empty() {
            return Ok(());
        }
        loop {
            match audit::write_if_exists(&self.services.db, entries).await {
                Err(error @ StoreError::Unavailable(_)) if !self.services.tasks.is_drained() => {
                    tracing::debug!(%error, "cannot write audit entries yet; it is retried");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                written => return written,
            }
        }
    }
}

impl Waiting {
    fn push(&mut self, entry: Draft) {
        let (chain, action) = (entry.chain, entry.action.clone());
        if !self.counts.admit(chain, &action, entry.at) {
            return;
        }
        let Err(entry) = self.entries.push(chain, entry) else { return };
        let displaced = if self.entries.len_of(chain) < MAX_WAITING_PER_CHAIN {
            self.entries.displace_for(chain)
        } else {
            None
        };
        match displaced {
            Some((other, lost)) => {
                self.counts.lose(other, &lost.action);
                // There is room now.
                let _ = self.entries.push(chain, entry);
            }
            None => self.counts.lose(chain, &action),
        }
    }

    fn take(&mut self, most: usize) -> Vec<Draft> {
        std::iter::from_fn(|| self.entries.pop(|_| true).map(|(_, entry)| entry)).take(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::audit::{Actor, Outcome};
    use uuid::Uuid;

    use super::*;

    fn org(number: u128) -> OrgId {
        OrgId(Uuid::from_u128(number))
    }

    fn entry(of: u128, action: usize) -> Draft {
        Draft {
            chain: Chain::Org(org(of)),
            id: gateway_core::ids::AuditId(Uuid::from_u128(1)),
            at: Timestamp(1_000_000),
            node: 1,
            actor: Actor::SYSTEM,
            action: format!("action.{action}"),
            target: Target { kind: "key".into(), id: None, name: None },
            outcome: Outcome::Denied,
            status: None,
            changes: Vec::new(),
            reason: None,
            request_id: None,
            ip: None,
            user_agent: None,
        }
    }

    #[test]
    fn floods_of_others_displace_no_entry_and_what_is_lost_is_counted() {
        let entries = FairQueue::new(MAX_WAITING_PER_CHAIN, MAX_WAITING);
        let mut waiting = Waiting { entries, counts: Counts::default() };
        for of in 1..=10 {
            for number in 0..5_000 {
                waiting.push(entry(of, number / 100));
            }
        }
        assert_eq!(waiting.entries.len(), MAX_WAITING);
        for number in 0..50 {
            waiting.push(entry(99, number));
        }
        assert_eq!(waiting.entries.len_of(Chain::Org(org(99))), 50);
        let mut written = 0;
        loop {
            let batch = waiting.take(BATCH);
            if batch.is_empty() {
                break;
            }
            written += batch.len();
        }
        let lost: u64 =
            waiting.counts.end(Timestamp(1_000_000 + MINUTE)).iter().map(|(_, _, count)| count).sum();
        assert_eq!(u64::try_from(written).unwrap() + lost, 10 * 5_000 + 50);
    }

    #[test]
    fn a_denial_is_recorded_once_in_an_hour_and_never_forgotten_for_lack_of_room() {
        let (mut denials, now) = (Denials::default(), Timestamp(HOUR));
        assert!(denials.is_first(org(1), "key".into(), now));
        assert!(!denials.is_first(org(1), "key".into(), now.plus(HOUR - 1)));
        assert!(denials.is_first(org(1), "key".into(), now.plus(HOUR)));
        for number in 0..2 * MAX_DENIALS_PER_ORG {
            assert!(denials.is_first(org(1), number.to_string(), now.plus(HOUR)));
        }
        assert_eq!(denials.len, MAX_DENIALS_PER_ORG);
        assert!(denials.is_first(org(2), "key".into(), now.plus(HOUR)));
        assert!(!denials.is_first(org(2), "key".into(), now.plus(HOUR)));
        assert!(denials.is_first(org(2), "key".into(), now.plus(3 * HOUR)));
        for (of, number) in (3..=MAX_DENIALS / MAX_DENIALS_PER_ORG + 3)
            .flat_map(|of| (0..MAX_DENIALS_PER_ORG).map(move |number| (of, number)))
        {
            denials.is_first(org(of as u128), number.to_string(), now.plus(3 * HOUR));
        }
        assert!(!denials.by_org.contains_key(&org(1)), "those that are over are removed");
        assert_eq!(denials.len, MAX_DENIALS);
        let kept: usize = denials.by_org.values().map(HashMap::len).sum();
        assert_eq!(kept, MAX_DENIALS);
    }
}
