//! What is done for the ledgers of users in the background, many at once: alerts, the record of leases, and reads of
//! what other nodes have spent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::budget::ledger::{BudgetLease, Sharing};
use gateway_core::ids::OrgId;
use gateway_core::time::{DAY, Timestamp};
use gateway_store::cluster::budget_leases::{self, LeaseOwner};
use gateway_store::{StoreError, user_budgets};

use super::org::UserRules;
use super::shared_ledger::{LedgerUser, SharedLedger};
use super::{Budgets, TICK, alerts, reader};

/// Ledgers per transaction.
const BATCH: usize = 200;
/// How often spending is read for users with recent calls where other nodes spend too.
const READ_INTERVAL: Duration = Duration::from_secs(10);
/// A user without a call for this long is idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A read is due when it would remove this many rows from memory.
const MAX_STORED_ROWS: usize = 16;
/// How often notices of past periods are deleted, in ticks.
const SWEEP_TICKS: u64 = 3_600;
/// Longer than the longest period.
const NOTICE_RETENTION: i64 = 62 * DAY;

/// Ledgers of one organization that are read with the same rules.
struct DueReads {
    rules: Arc<UserRules>,
    ledgers: Vec<Arc<SharedLedger>>,
}

impl Budgets {
    /// Takes care of the ledgers of users, until the service has drained.
    pub async fn run_users(self) {
        let tasks = &self.0.services.tasks;
        let mut ticks = 0_u64;
        loop {
            let _ = tokio::time::timeout(TICK, tasks.drained()).await;
            let all = self.users().all();
            self.send_alerts(&all).await;
            if self.sharing() == Sharing::Leased {
                self.record_leases(&all).await;
            }
            self.read_due(&all).await;
            drop(all);
            let now = self.0.services.clock.now();
            self.users().prune(now);
            if ticks.is_multiple_of(SWEEP_TICKS)
                && let Err(error) =
                    user_budgets::sweep_notices(&self.0.services.db, now.plus(-NOTICE_RETENTION)).await
            {
                tracing::debug!(%error, "cannot delete old notices of budgets; it is retried");
            }
            ticks += 1;
            if tasks.is_drained() {
                return;
            }
        }
    }

    async fn send_alerts(&self, all: &[Arc<SharedLedger>]) {
        let due: Vec<&Arc<SharedLedger>> =
            all.iter().filter(|ledger| ledger.lock().has_pending_alerts()).collect();
        for batch in due.chunks(BATCH) {
            if let Err(error) = alerts::send(&self.0.services, batch).await {
                tracing::debug!(%error, "cannot record budget alerts of users; they are retried");
            }
        }
    }

    async fn record_leases(&self, all: &[Arc<SharedLedger>]) {
        let now = self.0.services.clock.now();
        let due: Vec<&Arc<SharedLedger>> =
            all.iter().filter(|ledger| ledger.lock().has_lease_changes(now)).collect();
        for batch in due.chunks(BATCH) {
            // Not during a lease request, whose result would be overwritten. It comes again with the next tick.
            let locked = batch.iter().filter_map(|ledger| Some((*ledger, ledger.read_lock.try_lock().ok()?)));
            let locked: Vec<_> = locked.collect();
            let changes: Vec<(&Arc<SharedLedger>, Vec<BudgetLease>)> =
                locked.iter().map(|(ledger, _)| (*ledger, ledger.lock().take_lease_changes(now))).collect();
            if let Err(error) = self.write_leases(&changes).await {
                tracing::debug!(%error, "cannot record budget leases of users; it is retried");
                for (ledger, leases) in &changes {
                    ledger.lock().lease_changes_failed(leases);
                }
            }
        }
    }

    async fn write_leases(
        &self,
        changes: &[(&Arc<SharedLedger>, Vec<BudgetLease>)],
    ) -> Result<(), StoreError> {
        let leases: Vec<(LeaseOwner<'_>, BudgetLease)> = changes
            .iter()
            .flat_map(|(ledger, leases)| leases.iter().map(|lease| (ledger.lease_owner(), *lease)))
            .collect();
        let mut tx = self.0.services.db.begin().await?;
        budget_leases::upsert(&mut tx, self.0.peers.node_name(), &leases).await?;
        tx.commit().await
    }

    /// Reads the spending of users whose ledger is stale, has many rows, or was not read for a while.
    async fn read_due(&self, all: &[Arc<SharedLedger>]) {
        let now = self.0.services.clock.now();
        let mut due: BTreeMap<(OrgId, u64), DueReads> = BTreeMap::new();
        for ledger in all.iter().filter(|ledger| self.is_user_read_due(ledger, now)) {
            let Some(rules) = ledger.user().map(LedgerUser::rules) else { continue };
            // A ledger that was never read is read by the call that created it.
            if rules.revision > 0 {
                let reads = due.entry((ledger.org(), rules.revision));
                let reads = reads.or_insert_with(|| DueReads { rules, ledgers: Vec::new() });
                reads.ledgers.push(Arc::clone(ledger));
            }
        }
        for DueReads { rules, ledgers } in due.into_values() {
            for batch in ledgers.chunks(BATCH) {
                let locked =
                    batch.iter().filter_map(|ledger| Some((ledger, ledger.read_lock.try_lock().ok()?)));
                // A call may have read it with newer rules since.
                let locked: Vec<_> =
                    locked.filter(|(ledger, _)| revision(ledger) == rules.revision).collect();
                let batch: Vec<Arc<SharedLedger>> =
                    locked.iter().map(|(ledger, _)| Arc::clone(ledger)).collect();
                if let Err(error) = reader::reload_users(&self.0.services, &rules, &batch).await {
                    tracing::debug!(%error, "cannot read the spending of users; it is retried");
                }
            }
        }
    }

    fn is_user_read_due(&self, ledger: &SharedLedger, now: Timestamp) -> bool {
        let ledger = ledger.lock();
        let is_old = ledger.read_age(now) >= READ_INTERVAL;
        let is_shared = self.sharing() == Sharing::Leased && ledger.idle_for(now) < IDLE_TIMEOUT;
        ledger.is_stale()
            || ledger.stored_rows() >= MAX_STORED_ROWS
            || (is_old && (is_shared || ledger.stored_rows() > 0))
    }
}

/// Of the rules with which the ledger was read.
fn revision(ledger: &SharedLedger) -> u64 {
    ledger.user().map_or(0, |user| user.rules().revision)
}
