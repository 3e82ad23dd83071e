//! Checkpoints and retention of audit logs. Every node does both, retention once in each hour; what another node has
//! done already is left out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gateway_core::audit::checkpoint::{Checkpoint, is_due};
use gateway_core::audit::{Chain, Target};
use gateway_core::events::Event;
use gateway_core::ids::OrgId;
use gateway_core::time::{DAY, Interval, Timestamp};
use gateway_store::audit::{self, ChainState, Kind};
use gateway_store::jobs::{self, NewJob};
use gateway_store::{events, exports, orgs};
use serde_json::json;

use super::signing::{SigningError, SigningKey};
use super::{AuditQueue, system_entry};

const INTERVAL: Duration = Duration::from_secs(60);
const PAGE: i64 = 200;
/// Entries that one transaction of retention removes.
const MAX_REMOVED: i64 = 5_000;
/// Transactions of retention for one chain in a pass. The next pass goes on.
const MAX_REMOVALS: usize = 20;

impl AuditQueue {
    /// Makes checkpoints and removes old entries until the service stops.
    pub async fn maintain(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = self.services.tasks.stopping() => return,
            }
            if let Err(error) = self.pass().await {
                tracing::warn!(%error, "cannot sign checkpoints of the audit logs; it is retried every minute");
            }
        }
    }

    /// One pass over all chains.
    pub async fn pass(&self) -> Result<(), SigningError> {
        let db = &self.services.db;
        let key = SigningKey::load(&self.services).await?;
        let hour = Interval::Hour.start_of(self.services.clock.now());
        let is_new_hour = self.last_retention.load(Ordering::Relaxed) != hour.0;
        let (mut after, mut is_complete) = (String::new(), true);
        loop {
            let states = audit::states(db, &after, PAGE).await?;
            let Some(last) = states.last() else { break };
            after = last.chain.to_string();
            for state in &states {
                if self.services.tasks.is_stopping() {
                    return Ok(());
                }
                self.checkpoint(&key, state).await?;
                if let Chain::Org(org) = state.chain
                    && is_new_hour
                {
                    is_complete &= self.remove_old(&key, org).await?;
                }
            }
        }
        if is_complete {
            self.last_retention.store(hour.0, Ordering::Relaxed);
        }
        self.last_pass.store(self.services.clock.now().unix_seconds(), Ordering::Relaxed);
        Ok(())
    }

    async fn checkpoint(&self, key: &SigningKey, state: &ChainState) -> Result<(), SigningError> {
        let (services, now) = (&self.services, self.services.clock.now());
        if !is_due(state.head.seq, state.last, now) {
            return Ok(());
        }
        let org_id = state.chain.to_string();
        let (seq, hash) = (state.head.seq, state.head.hash.clone());
        let signed = key.sign(Checkpoint { org_id, seq, hash, at: now });
        // The exports are in the log database, which is not read within a transaction of the other one.
        let is_exported = match state.chain {
            Chain::Org(org) => exports::has_checkpoint_export(&services.logs, org).await?,
            Chain::System => false,
        };
        let mut tx = services.db.begin().await?;
        if audit::insert_checkpoint(&mut tx, Kind::Checkpoint, &signed).await?
            && let Chain::Org(org) = state.chain
        {
            if !orgs::lock_for_update(&mut tx, org).await? {
                // The organization was deleted.
                return Ok(());
            }
            let event = Event::AuditCheckpoint(json!(signed));
            events::record(&mut tx, org, services.ids.new_id(), &event, now).await?;
            if is_exported {
                // The export queues may be in another database. The workers find the job at their next poll.
                let (name, payload) = (exports::COPY_JOB, json!({"checkpoints": [signed]}).to_string());
                let id = services.ids.new_id();
                let job = NewJob { id, org, name, dedup_key: None, payload: &payload, due_at: now, now };
                jobs::enqueue(&mut tx, &job).await?;
            }
        }
        Ok(tx.commit().await?)
    }

    /// Removes entries that are older than the organization and the operator keep them, in whole hours, oldest first.
    /// Returns whether none is left.
    async fn remove_old(&self, key: &SigningKey, org: OrgId) -> Result<bool, SigningError> {
        let Some(found) = orgs::find(&self.services.db, org).await? else { return Ok(true) };
        let days = i64::from(self.services.config.audit_retention_of(&found.settings));
        let before = Interval::Hour.start_of(self.services.clock.now().plus(-days * DAY));
        for _ in 0..MAX_REMOVALS {
            if self.services.tasks.is_stopping() || !self.remove_before(key, org, before).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes some entries from before a time. Returns whether there may be more.
    async fn remove_before(
        &self,
        key: &SigningKey,
        org: OrgId,
        before: Timestamp,
    ) -> Result<bool, SigningError> {
        let (services, chain, at) = (&self.services, Chain::Org(org), self.services.clock.now());
        let start = audit::start(&services.db, chain).await?;
        let removable = audit::removable(&services.db, chain, (before, start.seq), MAX_REMOVED).await?;
        let Some(anchor) = removable else { return Ok(false) };
        let signed =
            key.sign(Checkpoint { org_id: org.to_string(), seq: anchor.seq, hash: anchor.hash.clone(), at });
        let mut tx = services.db.begin().await?;
        if !audit::insert_checkpoint(&mut tx, Kind::Anchor, &signed).await? {
            return Ok(false);
        }
        let removed = audit::remove(&mut tx, chain, anchor.seq).await?;
        let target = Target { kind: "audit".into(), id: Some(org.to_string()), name: None };
        let facts = json!({"upto_seq": anchor.seq, "hash": anchor.hash, "entries": removed});
        tx.record(system_entry(services, chain, "audit.retention", target).created(&facts));
        tx.commit().await?;
        Ok(anchor.seq - start.seq >= MAX_REMOVED)
    }

    /// How long ago the checkpoints of all chains were last brought up to date, in seconds.
    pub fn seconds_since_pass(&self) -> u64 {
        let last = self.last_pass.load(Ordering::Relaxed);
        u64::try_from(self.services.clock.now().unix_seconds() - last).unwrap_or(0)
    }
}
