//! Checkpoints and retention of audit logs. Every node does both; what another node has done already is left out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gateway_core::audit::checkpoint::{Checkpoint, is_due};
use gateway_core::audit::{Chain, Target};
use gateway_core::events::Event;
use gateway_core::ids::OrgId;
use gateway_core::time::{DAY, Interval};
use gateway_store::audit::{self, ChainState, Kind};
use gateway_store::{events, orgs};
use serde_json::json;

use super::signing::{SigningError, SigningKey};
use super::{AuditQueue, system_entry};

const INTERVAL: Duration = Duration::from_secs(60);
const PAGE: i64 = 200;
/// Entries that one transaction of retention removes.
const MAX_REMOVED: i64 = 5_000;

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
        let mut after = String::new();
        loop {
            let states = audit::states(db, &after, PAGE).await?;
            let Some(last) = states.last() else { break };
            after = last.chain.to_string();
            for state in &states {
                if self.services.tasks.is_stopping() {
                    return Ok(());
                }
                self.checkpoint(&key, state).await?;
                if let Chain::Org(org) = state.chain {
                    self.remove_old(&key, org).await?;
                }
            }
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
        }
        Ok(tx.commit().await?)
    }

    /// Removes entries that are older than the organization keeps them, in whole hours, oldest first.
    async fn remove_old(&self, key: &SigningKey, org: OrgId) -> Result<(), SigningError> {
        let (services, chain) = (&self.services, Chain::Org(org));
        let Some(found) = orgs::find(&services.db, org).await? else { return Ok(()) };
        let days = i64::from(found.settings.audit_retention_days);
        let at = services.clock.now();
        let before = Interval::Hour.start_of(at.plus(-days * DAY));
        let start = audit::start(&services.db, chain).await?;
        let removable = audit::removable(&services.db, chain, (before, start.seq), MAX_REMOVED).await?;
        let Some(anchor) = removable else { return Ok(()) };
        let signed =
            key.sign(Checkpoint { org_id: org.to_string(), seq: anchor.seq, hash: anchor.hash.clone(), at });
        let mut tx = services.db.begin().await?;
        if !audit::insert_checkpoint(&mut tx, Kind::Anchor, &signed).await? {
            return Ok(());
        }
        let removed = audit::remove(&mut tx, chain, anchor.seq).await?;
        let target = Target { kind: "audit".into(), id: Some(org.to_string()), name: None };
        let facts = json!({"upto_seq": anchor.seq, "hash": anchor.hash, "entries": removed});
        tx.record(system_entry(services, chain, "audit.retention", target).created(&facts));
        Ok(tx.commit().await?)
    }

    /// How long ago the checkpoints of all chains were last brought up to date, in seconds.
    pub fn seconds_since_pass(&self) -> u64 {
        let last = self.last_pass.load(Ordering::Relaxed);
        u64::try_from(self.services.clock.now().unix_seconds() - last).unwrap_or(0)
    }
}
