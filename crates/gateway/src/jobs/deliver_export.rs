//! Delivers log rows, their verdicts and checkpoints of the audit log to exports. One node at a time holds the lease of an export. Rows stay queued
//! in the store until the destination accepts them, so that neither a restart nor an outage loses or skips a row.
//!
//! A healthy destination receives several batches concurrently. A failing destination receives one batch at a time with
//! exponential backoff. The job runs on low-priority threads, because proxied requests take precedence.

mod filter;
mod watch;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use gateway_core::access::Entitlement;
use gateway_core::exports::{ExportKind, MAX_BATCH_ROWS, retry_delay};
use gateway_core::ids::{ExportId, OrgId};
use gateway_core::logs::LogRow;
use gateway_core::otlp::encode::EvaluationResult;
use gateway_core::query::QueryError;
use gateway_core::time::Timestamp;
use gateway_store::db::Dialect;
use gateway_store::exports::{
    self, BatchResult, Export, ExportClaim, FailedBatch, QueuedContent, QueuedItem,
};
use gateway_store::fair_slots::{FairSlots, SlotLimits};
use gateway_store::faults::{KillPoint, kill_point};
use gateway_store::orgs::{self, Org};
use gateway_store::{Db, Lease, StoreError, logs};

use crate::delivery::batch::{self, Contents};
use crate::delivery::{DeliveryClient, DeliveryResult, random};
use crate::jobs::JobServices;
use crate::jobs::tracked_tasks::TrackedTasks;
use crate::jobs::turns::Turns;
use filter::RowFilter;
use watch::{renew_lease, wait_for_change};

/// How often the queue is polled. Rows that arrive in between share a batch.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The limit per organization keeps slow destinations of one organization from taking all slots.
const MAX_CONCURRENT_EXPORTS: usize = 128;
const MAX_CONCURRENT_EXPORTS_PER_ORG: usize = 8;
/// Concurrent batches to one healthy destination.
const MAX_CONCURRENT_BATCHES: usize = 4;
/// Batches that are loaded and encoded at a time: each can have several megabytes. Organizations take turns.
const ENCODERS: SlotLimits = SlotLimits {
    slots: 4,
    per_org: 2,
    waiting_per_org: MAX_CONCURRENT_EXPORTS_PER_ORG * MAX_CONCURRENT_BATCHES,
};
/// How long an export may keep its slot, however many rows it has.
const TURN: Duration = Duration::from_secs(10);
/// Another node may claim an export whose lease was not renewed for this long.
const LEASE: Duration = Duration::from_secs(30);
/// The size of the bodies in one request. A single larger row is sent alone.
const MAX_BATCH_BYTES: i64 = 4 << 20;
const MAX_ERROR_CHARS: usize = 500;
const SWEEP_INTERVAL: Duration = Duration::from_secs(10 * 60);
const SWEEP_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Runs until the service stops, then waits for the batches in progress.
pub async fn run(job_services: Arc<JobServices>) {
    if job_services.services.logs_low_priority.dialect() == Dialect::Sqlite
        && let Err(error) = exports::release_all(&job_services.services.logs_low_priority).await
    {
        tracing::debug!(%error, "cannot release export leases of the previous run; they expire by themselves");
    }
    let worker = Arc::new(ExportWorker {
        // Its own connections: those of a client belong to the runtime that opens them.
        delivery: DeliveryClient::new(Arc::clone(&job_services.services)),
        lease_owner: job_services.services.ids.new_id::<uuid::Uuid>().to_string(),
        encoders: FairSlots::new(ENCODERS, job_services.services.db.owners()),
        job_services: Arc::clone(&job_services),
    });
    let (mut deliveries, mut waiting) = (TrackedTasks::default(), Turns::default());
    let mut next_sweep = job_services.services.clock.now();
    let mut was_available = true;
    while !job_services.services.tasks.is_stopping() {
        let started = worker.start_due(&mut deliveries, &mut waiting).await;
        match &started {
            Ok(()) => {}
            Err(error) if was_available => tracing::warn!(%error, "cannot read the exports; retrying"),
            Err(error) => tracing::debug!(%error, "cannot read the exports; retrying"),
        }
        was_available = started.is_ok();
        let now = job_services.services.clock.now();
        if now >= next_sweep {
            next_sweep = worker.sweep(now).await;
        }
        worker.delivery.clients.close_expired();
        let next_poll = tokio::time::sleep(POLL_INTERVAL);
        tokio::pin!(next_poll);
        loop {
            tokio::select! {
                () = &mut next_poll => break,
                () = job_services.services.tasks.stopping() => break,
                Some(_) = deliveries.join_next() => {}
            }
        }
    }
    while deliveries.join_next().await.is_some() {}
}

/// The exports that are being delivered, with their organizations.
type Deliveries = TrackedTasks<(OrgId, ExportId)>;

fn has_capacity(deliveries: &Deliveries, org: OrgId, id: ExportId) -> bool {
    let of_org = deliveries.keys().filter(|(other, _)| *other == org).count();
    deliveries.len() < MAX_CONCURRENT_EXPORTS
        && of_org < MAX_CONCURRENT_EXPORTS_PER_ORG
        && deliveries.keys().all(|(_, other)| *other != id)
}

struct ExportWorker {
    job_services: Arc<JobServices>,
    delivery: DeliveryClient,
    lease_owner: String,
    encoders: Arc<FairSlots>,
}

/// A claimed export and whether its batches include message content.
struct ClaimedExport {
    claim: ExportClaim,
    export: Arc<Export>,
    content: bool,
    filter: RowFilter,
}

impl ClaimedExport {
    /// The size of the bodies that are loaded for an item.
    fn body_bytes(&self, item: &QueuedItem) -> i64 {
        let is_loaded = match item.content {
            QueuedContent::Row => self.content || self.filter.reads_bodies(),
            QueuedContent::Verdict(_) => self.filter.reads_bodies(),
            QueuedContent::Checkpoint(_) => false,
        };
        if is_loaded { item.size } else { 0 }
    }
}

struct SentBatch {
    items: Vec<QueuedItem>,
    /// The number of items whose rows still existed and matched the query.
    found: i64,
    /// The number of items whose rows did not match.
    skipped: i64,
    /// `None` if there was nothing to send.
    result: Option<DeliveryResult>,
}

struct FailedDelivery {
    result: DeliveryResult,
    batch_length: usize,
}

impl ExportWorker {
    /// Starts the delivery of every due export that has capacity. When there are more exports than slots, organizations
    /// take turns.
    async fn start_due(
        self: &Arc<Self>,
        deliveries: &mut Deliveries,
        waiting: &mut Turns<ExportId>,
    ) -> Result<(), StoreError> {
        let now = self.job_services.services.clock.now();
        waiting.replace(exports::list_due(self.log_db(), &self.lease_owner, now).await?);
        while deliveries.len() < MAX_CONCURRENT_EXPORTS {
            let Some((org, id)) = waiting.next() else { break };
            if has_capacity(deliveries, org, id) {
                let worker = Arc::clone(self);
                deliveries.spawn((org, id), async move { worker.deliver_export(id).await });
            }
        }
        Ok(())
    }

    /// Delivers while the queue holds full batches and the turn lasts, then releases the export. Remaining rows wait for
    /// the next poll.
    async fn deliver_export(&self, id: ExportId) {
        let (mut concurrency, started) = (1, Instant::now());
        while !self.job_services.services.tasks.is_stopping() && started.elapsed() < TURN {
            match Box::pin(self.deliver(id, concurrency)).await {
                Ok(Some(next)) => concurrency = next,
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, export = %id, "cannot deliver an export; it is retried at the next poll");
                    break;
                }
            }
        }
        if let Err(error) = exports::release(self.log_db(), id, &self.lease_owner).await {
            tracing::debug!(%error, export = %id, "cannot release the lease of an export; it expires by itself");
        }
    }

    /// Deletes queued rows of deleted exports. Returns the time of the next sweep.
    async fn sweep(&self, now: Timestamp) -> Timestamp {
        match exports::sweep(self.log_db()).await {
            // A sweep deletes a bounded number, so more may be left.
            Ok(removed) if removed > 0 => now,
            Ok(_) => now.after(SWEEP_INTERVAL),
            Err(error) => {
                tracing::warn!(%error, "cannot delete the queues of deleted exports; the sweep is retried");
                now.after(SWEEP_RETRY_DELAY)
            }
        }
    }

    fn log_db(&self) -> &Db {
        &self.job_services.services.logs_low_priority
    }

    /// Reads the organization on the main runtime, whose connections to the state database requests use as well.
    async fn find_org(&self, id: OrgId) -> Result<Option<Org>, StoreError> {
        let services = Arc::clone(&self.job_services.services);
        let find = async move {
            // What the batches take counts against the owner.
            services.db.owners().ensure(&services.db, id).await?;
            orgs::find(&services.db, id).await
        };
        let found = self.job_services.services.tasks.runtime.spawn(find);
        found.await.map_err(|error| StoreError::Other(error.to_string()))?
    }

    /// Reads the names in its query on the main runtime, as the organization.
    async fn filter_of(&self, export: &Export) -> Result<Result<RowFilter, QueryError>, StoreError> {
        let services = Arc::clone(&self.job_services.services);
        let (org, query) = (export.org_id, export.query.clone());
        let runtime = &self.job_services.services.tasks.runtime;
        let filter = runtime.spawn(async move { RowFilter::new(&services.db, org, &query).await });
        filter.await.map_err(|error| StoreError::Other(error.to_string()))?
    }

    /// Delivers up to `concurrency` batches concurrently. Returns the concurrency of the next call, or `None` if
    /// nothing more can be sent now.
    async fn deliver(&self, id: ExportId, concurrency: usize) -> Result<Option<usize>, StoreError> {
        let services = &self.job_services.services;
        let now = services.clock.now();
        let lease = Lease { owner: &self.lease_owner, now, until: now.after(LEASE) };
        let Some(claim) = exports::claim(self.log_db(), id, &lease).await? else {
            return Ok(None);
        };
        kill_point(KillPoint::ExportClaimed);
        let Some(org) = self.find_org(claim.export.org_id).await? else {
            let mut tx = self.log_db().begin().await?;
            exports::delete_by_org(&mut tx, claim.export.org_id).await?;
            tx.commit().await?;
            return Ok(None);
        };
        if !org.plan.includes(Entitlement::Integrations) {
            let reason = "the plan does not include exports";
            exports::discard_queue(self.log_db(), id, &self.lease_owner, reason).await?;
            return Ok(None);
        }
        let filter = match self.filter_of(&claim.export).await? {
            Ok(filter) => filter,
            // All rows would be too many: they wait until the query is changed.
            Err(error) => {
                let error = format!("the query of the export cannot be used, change it: {error}");
                let retry_at = now.after(retry_delay(claim.tries + 1, None, random()));
                let failed = FailedBatch { error: &error, retry_at, next_batch: claim.batch };
                exports::record_failure(self.log_db(), id, &self.lease_owner, failed).await?;
                return Ok(None);
            }
        };
        let limit = claim.batch * i64::try_from(concurrency).unwrap_or(1);
        let queued = exports::queued(self.log_db(), id, limit).await?;
        let content = org.settings.log_bodies && services.config.log_bodies;
        let claimed = ClaimedExport { export: Arc::new(claim.export.clone()), claim, content, filter };
        let mut has_more = count(queued.len()) >= limit;
        let mut batches = split_into_batches(&claimed, queued);
        has_more |= batches.len() > concurrency;
        batches.truncate(concurrency);
        let sending = async {
            let mut results = futures_util::stream::iter(batches)
                .map(|batch| self.send(&claimed, batch))
                .buffer_unordered(concurrency);
            let mut failure = None;
            while let Some(sent) = results.next().await {
                if let Some(failed) = self.record_batch(&claimed, sent?).await? {
                    failure.get_or_insert(failed);
                }
            }
            Ok::<_, StoreError>(failure)
        };
        let failure = tokio::select! {
            failure = sending => failure?,
            // An export that was deleted, disabled or changed must not send another byte with its old settings.
            () = wait_for_change(&self.job_services, id, claimed.claim.export.revision) => return Ok(None),
            () = renew_lease(&self.job_services, id, &self.lease_owner) => {
                tracing::warn!(export = %id, "the lease of an export was lost; another node delivers it now");
                return Ok(None);
            }
        };
        match failure {
            None => Ok(has_more.then_some((concurrency * 2).min(MAX_CONCURRENT_BATCHES))),
            Some(failed) => Ok(self.record_failure(&claimed, &failed).await?.then_some(1)),
        }
    }

    async fn send(&self, claimed: &ClaimedExport, items: Vec<QueuedItem>) -> Result<SentBatch, StoreError> {
        let bytes = items.iter().map(|item| claimed.body_bytes(item)).sum::<i64>();
        // The rows, and then their encoded form.
        let mut memory = self.job_services.services.memory.account(claimed.export.org_id).open();
        memory.charge(usize::try_from(bytes.saturating_mul(2)).unwrap_or(0));
        let (message, found, skipped) = {
            let org = claimed.export.org_id;
            let Ok(_slot) = self.encoders.acquire(org, None).await else {
                return Err(StoreError::Other("too many batches of the organization wait".to_owned()));
            };
            let loaded = self.load(claimed, &items).await?;
            let compute = &self.job_services.services.compute;
            let (contents, skipped) = match claimed.filter.apply(compute, org, loaded).await {
                Ok(filtered) => filtered,
                Err(error) => {
                    let error = format!("the rows were not compared with the query of the export: {error}");
                    let result = Some(DeliveryResult::failed(error));
                    return Ok(SentBatch { items, found: 0, skipped: 0, result });
                }
            };
            let (found, skipped) = (count(contents.len()), count(skipped));
            if found == 0 {
                return Ok(SentBatch { items, found, skipped, result: None });
            }
            (batch::encode(&self.delivery, &claimed.export, contents).await, found, skipped)
        };
        let result = match message {
            Err(reason) => DeliveryResult::failed(reason),
            Ok(message) => message.send(&self.delivery).await,
        };
        kill_point(KillPoint::ExportSent);
        Ok(SentBatch { items, found, skipped, result: Some(result) })
    }

    /// Loads what is queued. Items whose row was deleted meanwhile are skipped.
    async fn load(&self, claimed: &ClaimedExport, items: &[QueuedItem]) -> Result<Contents, StoreError> {
        let (logs, org) = (self.log_db(), claimed.export.org_id);
        let (mut ids, mut judged, mut checkpoints) = (Vec::new(), Vec::new(), Vec::new());
        for QueuedItem { log_id, content, .. } in items {
            match content {
                QueuedContent::Row => ids.push(*log_id),
                QueuedContent::Verdict(verdict) => judged.push((*log_id, verdict)),
                QueuedContent::Checkpoint(signed) => checkpoints.push((*log_id, signed.clone())),
            }
        }
        let reads_bodies = claimed.filter.reads_bodies();
        let rows = logs::find_many(logs, org, &ids, claimed.content || reads_bodies).await?;
        let mut verdicts = Vec::new();
        // Only the OpenTelemetry format has a representation for verdicts.
        if !judged.is_empty() && claimed.export.kind == ExportKind::Otlp {
            let ids: Vec<i64> = judged.iter().map(|(id, _)| *id).collect();
            let found = logs::find_many(logs, org, &ids, reads_bodies).await?;
            let found: HashMap<i64, LogRow> = found.into_iter().map(|row| (row.id, row)).collect();
            let with_row =
                |(id, verdict): (i64, &EvaluationResult)| Some((found.get(&id)?.clone(), verdict.clone()));
            verdicts.extend(judged.into_iter().filter_map(with_row));
        }
        Ok(Contents { rows, verdicts, checkpoints, content: claimed.content })
    }

    /// Removes a batch from the queue if it was delivered or can never be. Returns the failure if it must be retried.
    async fn record_batch(
        &self,
        claimed: &ClaimedExport,
        sent: SentBatch,
    ) -> Result<Option<FailedDelivery>, StoreError> {
        let SentBatch { items, found, skipped, result } = sent;
        let (id, length) = (claimed.export.id, count(items.len()));
        let mut progress =
            BatchResult { done: &items, skipped, next_batch: claimed.claim.batch, ..BatchResult::default() };
        let error;
        match result {
            // Retention deleted the rows before they were delivered.
            None => progress.dropped = length - skipped,
            Some(result) if result.is_success() => {
                let rejected;
                (rejected, error) = batch::rejected(claimed.export.kind, &result.body);
                (progress.delivered, progress.dropped) = (found, length - found - skipped + rejected);
                progress.error = error.as_deref();
                progress.next_batch = (claimed.claim.batch * 2).min(MAX_BATCH_ROWS);
            }
            // A single row that is too large cannot be split. It is dropped so that it does not block the queue.
            Some(result) if result.status == Some(413) && length == 1 => {
                error = Some(error_text(&result));
                (progress.dropped, progress.error) = (1, error.as_deref());
            }
            Some(result) => return Ok(Some(FailedDelivery { result, batch_length: items.len() })),
        }
        let now = self.job_services.services.clock.now();
        if !exports::record_batch(self.log_db(), id, &self.lease_owner, &progress, now).await? {
            tracing::warn!(export = %id, "the lease of an export was lost; its rows are sent again by another node");
        }
        kill_point(KillPoint::ExportRecorded);
        Ok(None)
    }

    /// Schedules the retry. Returns true if a smaller batch can be sent without delay.
    async fn record_failure(
        &self,
        claimed: &ClaimedExport,
        failed: &FailedDelivery,
    ) -> Result<bool, StoreError> {
        let ExportClaim { export, tries, batch } = &claimed.claim;
        let FailedDelivery { result, batch_length } = failed;
        let too_large = result.status == Some(413);
        let delay =
            if too_large { Duration::ZERO } else { retry_delay(tries + 1, result.retry_after, random()) };
        let next_batch = if too_large { (count(*batch_length) / 2).max(1) } else { *batch };
        let retry_at = self.job_services.services.clock.now().after(delay);
        let error = error_text(result);
        let failed = FailedBatch { error: &error, retry_at, next_batch };
        exports::record_failure(self.log_db(), export.id, &self.lease_owner, failed).await?;
        Ok(too_large)
    }
}

/// Splits queued items into batches that each fit into one request.
fn split_into_batches(claimed: &ClaimedExport, items: Vec<QueuedItem>) -> Vec<Vec<QueuedItem>> {
    let max_rows = claimed.claim.batch;
    let (mut batches, mut batch, mut bytes_left) = (Vec::new(), Vec::new(), MAX_BATCH_BYTES);
    for item in items {
        let size = claimed.body_bytes(&item);
        if !batch.is_empty() && (size > bytes_left || count(batch.len()) >= max_rows) {
            batches.push(std::mem::take(&mut batch));
            bytes_left = MAX_BATCH_BYTES;
        }
        bytes_left -= size;
        batch.push(item);
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

/// The error and the start of the response body.
fn error_text(result: &DeliveryResult) -> String {
    let error = result.error.clone().unwrap_or_default();
    let body: String = String::from_utf8_lossy(&result.body)
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_ERROR_CHARS)
        .collect();
    if body.trim().is_empty() { error } else { format!("{error}: {}", body.trim()) }
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
