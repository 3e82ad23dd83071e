//! Delivers events to webhooks. A node claims due deliveries under a lease. Concurrency is limited per receiver and per
//! organization, so that a slow receiver does not delay others. If the node dies, another node claims its deliveries
//! when the lease expires.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::access::Entitlement;
use gateway_core::ids::{OrgId, WebhookId};
use gateway_core::signing;
use gateway_core::time::{DAY, Timestamp};
use gateway_core::webhooks::{DISABLE_AFTER, ResponseClass, classify, next_attempt};
use gateway_store::deliveries::{self, AttemptResult, ClaimedDelivery, DeliveryAttempt, NextStep};
use gateway_store::faults::{KillPoint, kill_point};
use gateway_store::webhooks::{self, Webhook};
use gateway_store::{Lease, StoreError, db::Dialect, orgs};
use secrecy::ExposeSecret as _;

use crate::delivery::{DeliveryResult, post, random, signed_headers};
use crate::jobs::JobServices;
use crate::jobs::tracked_tasks::TrackedTasks;
use crate::jobs::turns::Turns;
use crate::services::Services;
use crate::vault::encryption_context;

const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The limits per receiver and per organization keep slow receivers from taking all slots.
const MAX_CONCURRENT_ATTEMPTS: usize = 256;
const MAX_CONCURRENT_ATTEMPTS_PER_ORG: usize = 16;
const MAX_CONCURRENT_ATTEMPTS_PER_RECEIVER: usize = 4;
/// Another node may claim a delivery whose lease was not renewed for this long.
const LEASE: Duration = Duration::from_secs(20);
/// Several attempts fit into the time of a lease.
const RENEW_INTERVAL: Duration = Duration::from_secs(6);
/// How much of a receiver's response is stored.
const MAX_RESPONSE_BYTES: usize = 1_024;
const RETENTION_DAYS: i64 = 30;
const SWEEP_INTERVAL: Duration = Duration::from_secs(10 * 60);
const SWEEP_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Runs until the service stops, then waits for the attempts in progress.
pub async fn run(job_services: Arc<JobServices>) {
    if job_services.services.db.dialect() == Dialect::Sqlite
        && let Err(error) = deliveries::release_all(&job_services.services.db).await
    {
        tracing::debug!(%error, "cannot release delivery leases of the previous run; they expire by themselves");
    }
    let mut worker = WebhookWorker {
        job_services: Arc::clone(&job_services),
        attempts: TrackedTasks::default(),
        in_progress: AttemptCounts::default(),
        waiting: Turns::default(),
    };
    let mut next_sweep = job_services.services.clock.now();
    while !job_services.services.tasks.is_stopping() {
        if let Err(error) = worker.claim_due().await {
            tracing::debug!(%error, "cannot claim webhook deliveries; they are retried at the next poll");
        }
        let now = job_services.services.clock.now();
        if now >= next_sweep {
            next_sweep = sweep(&job_services, now).await;
        }
        worker.work_until_next_poll().await;
    }
    while worker.attempts.join_next().await.is_some() {}
}

struct WebhookWorker {
    job_services: Arc<JobServices>,
    /// Spawned tasks: an attempt that waits for a database connection must progress while this worker waits for one.
    attempts: TrackedTasks<(OrgId, WebhookId)>,
    in_progress: AttemptCounts,
    /// The receivers with due deliveries. When there are more than slots, organizations take turns.
    waiting: Turns<WebhookId>,
}

/// The number of attempts in progress.
#[derive(Default)]
struct AttemptCounts {
    receivers: HashMap<WebhookId, usize>,
    orgs: HashMap<OrgId, usize>,
}

impl AttemptCounts {
    /// The number of attempts that may be started for this receiver.
    fn capacity(&self, org: OrgId, webhook: WebhookId) -> usize {
        let of_receiver = self.receivers.get(&webhook).copied().unwrap_or(0);
        let of_org = self.orgs.get(&org).copied().unwrap_or(0);
        MAX_CONCURRENT_ATTEMPTS_PER_RECEIVER
            .saturating_sub(of_receiver)
            .min(MAX_CONCURRENT_ATTEMPTS_PER_ORG.saturating_sub(of_org))
    }

    fn begin(&mut self, org: OrgId, webhook: WebhookId) {
        *self.receivers.entry(webhook).or_default() += 1;
        *self.orgs.entry(org).or_default() += 1;
    }

    fn end(&mut self, org: OrgId, webhook: WebhookId) {
        decrement(&mut self.receivers, webhook);
        decrement(&mut self.orgs, org);
    }
}

fn decrement<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

impl WebhookWorker {
    /// Claims the due deliveries of every receiver below its limit.
    async fn claim_due(&mut self) -> Result<(), StoreError> {
        let Services { db, clock, .. } = &*self.job_services.services;
        let due = deliveries::list_due_webhooks(db, clock.now()).await?;
        self.waiting.replace(due);
        self.fill_slots().await
    }

    /// Starts attempts while there are free slots and receivers that wait.
    async fn fill_slots(&mut self) -> Result<(), StoreError> {
        while self.attempts.len() < MAX_CONCURRENT_ATTEMPTS {
            let Some((org, webhook)) = self.waiting.next() else { break };
            self.start_attempts(org, webhook).await?;
        }
        Ok(())
    }

    async fn start_attempts(&mut self, org: OrgId, webhook: WebhookId) -> Result<(), StoreError> {
        let free = MAX_CONCURRENT_ATTEMPTS.saturating_sub(self.attempts.len());
        let capacity = self.in_progress.capacity(org, webhook).min(free);
        if capacity == 0 {
            return Ok(());
        }
        let now = self.job_services.services.clock.now();
        let lease_owner = self.job_services.services.ids.new_id::<uuid::Uuid>().to_string();
        let limit = i64::try_from(capacity).unwrap_or(1);
        let lease = Lease { owner: &lease_owner, now, until: now.after(LEASE) };
        let claimed = deliveries::claim(&self.job_services.services.db, webhook, limit, &lease).await?;
        if !claimed.is_empty() {
            kill_point(KillPoint::DeliveryClaimed);
        }
        for delivery in claimed {
            self.in_progress.begin(org, webhook);
            let (job_services, lease_owner) = (Arc::clone(&self.job_services), lease_owner.clone());
            self.attempts.spawn((org, webhook), async move {
                tokio::select! {
                    recorded = attempt(&job_services, &delivery, &lease_owner) => match recorded {
                        Ok(true) => {}
                        Ok(false) => {
                            tracing::debug!(delivery = %delivery.id, "a delivery was deleted or taken over meanwhile");
                        }
                        Err(error) => {
                            tracing::warn!(%error, delivery = %delivery.id, "cannot record a delivery attempt; it is repeated");
                        }
                    },
                    () = renew_lease(&job_services, &delivery, &lease_owner) => {
                        tracing::warn!(delivery = %delivery.id, "the lease of a delivery was lost; another node makes it");
                    }
                }
            });
        }
        Ok(())
    }

    /// Waits for attempts until the next poll. A finished attempt starts the next one without delay: of a receiver that
    /// waits for a slot, or else of its own.
    async fn work_until_next_poll(&mut self) {
        let job_services = Arc::clone(&self.job_services);
        let next_poll = tokio::time::sleep(POLL_INTERVAL);
        tokio::pin!(next_poll);
        loop {
            let (org, webhook) = tokio::select! {
                () = &mut next_poll => return,
                () = job_services.services.tasks.stopping() => return,
                Some(finished) = self.attempts.join_next() => finished,
            };
            self.in_progress.end(org, webhook);
            self.waiting.push(org, webhook);
            if let Err(error) = self.fill_slots().await {
                tracing::debug!(%error, "cannot claim the deliveries of a webhook; they are retried at the next poll");
            }
        }
    }
}

/// Makes an attempt and records it. False if the delivery was deleted, or another node holds it.
async fn attempt(
    job_services: &JobServices,
    delivery: &ClaimedDelivery,
    lease_owner: &str,
) -> Result<bool, StoreError> {
    let db = &job_services.services.db;
    // A deleted webhook has no deliveries either.
    let Some(webhook) = webhooks::find(db, delivery.org_id, delivery.webhook_id).await? else {
        return Ok(false);
    };
    let started_at = job_services.services.clock.now();
    let org = orgs::find(db, delivery.org_id).await?;
    if !org.is_some_and(|org| org.plan.includes(Entitlement::Webhooks)) {
        let discarded = discarded(&webhook, started_at, "the plan does not include webhooks");
        return deliveries::record_attempt(db, delivery, lease_owner, &discarded).await;
    }
    let result = match signing_keys(job_services, &webhook, started_at) {
        Some(keys) => {
            let headers = signed_headers(
                &job_services.delivery,
                &keys,
                &delivery.event_id.to_string(),
                delivery.payload.as_bytes(),
            );
            post(
                &job_services.delivery,
                &webhook.url,
                headers,
                delivery.payload.clone().into(),
                MAX_RESPONSE_BYTES,
            )
            .await
        }
        None => DeliveryResult::failed("cannot decrypt the signing secret; rotate it"),
    };
    let now = job_services.services.clock.now();
    let recorded = attempt_result(&webhook, delivery, started_at, now, result);
    kill_point(KillPoint::DeliveryPosted);
    let is_recorded = deliveries::record_attempt(db, delivery, lease_owner, &recorded).await?;
    kill_point(KillPoint::DeliveryRecorded);
    Ok(is_recorded)
}

/// The result of a delivery that must not be sent.
fn discarded(webhook: &Webhook, at: Timestamp, reason: &str) -> AttemptResult {
    let attempt = DeliveryAttempt {
        at,
        status_code: None,
        latency_ms: 0,
        error: Some(reason.to_owned()),
        response_body: None,
    };
    AttemptResult { revision: webhook.revision, attempt, next: NextStep::Discarded, deactivate: None }
}

/// Renews the lease of a slow attempt. Returns only when another node has it.
async fn renew_lease(job_services: &JobServices, delivery: &ClaimedDelivery, owner: &str) {
    loop {
        tokio::time::sleep(RENEW_INTERVAL).await;
        let until = job_services.services.clock.now().after(LEASE);
        match deliveries::renew(&job_services.services.db, delivery.id, owner, until).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::debug!(%error, delivery = %delivery.id, "cannot renew the lease of a delivery");
            }
        }
    }
}

/// The current signing key, and the previous one until it expires. `None` if a secret cannot be decrypted.
fn signing_keys(job_services: &JobServices, webhook: &Webhook, now: Timestamp) -> Option<Vec<Vec<u8>>> {
    let previous =
        webhook.previous_secret.iter().filter(|_| webhook.previous_until.is_some_and(|until| now < until));
    let context = encryption_context(webhook.org_id, &format!("webhook/{}", webhook.id), "secret");
    [&webhook.secret]
        .into_iter()
        .chain(previous)
        .map(|encrypted| {
            let secret = job_services.services.vault.open(&context, encrypted).ok()?;
            signing::decode_secret(secret.expose_secret()).ok()
        })
        .collect()
}

fn attempt_result(
    webhook: &Webhook,
    delivery: &ClaimedDelivery,
    started_at: Timestamp,
    now: Timestamp,
    result: DeliveryResult,
) -> AttemptResult {
    let class = classify(result.status);
    let attempts = usize::try_from(delivery.tries).unwrap_or(0) + 1;
    let retry_at = next_attempt(now, attempts, result.retry_after, random());
    let next = match (class, retry_at) {
        (ResponseClass::Delivered, _) => NextStep::Delivered,
        (ResponseClass::Retry, Some(at)) => NextStep::RetryAt(at),
        (ResponseClass::Retry, None) | (ResponseClass::Gone, _) => NextStep::Failed,
    };
    let expired = webhook.failing_since.is_some_and(|since| now.since(since) >= DISABLE_AFTER);
    let deactivate = match class {
        ResponseClass::Gone => Some("the receiver returned 410 Gone"),
        ResponseClass::Retry if expired => Some("every delivery failed for 5 days"),
        _ => None,
    };
    let body = String::from_utf8_lossy(&result.body).replace('\0', " ");
    let response_body = result.status.map(|_| body.chars().take(MAX_RESPONSE_BYTES).collect());
    let attempt = DeliveryAttempt {
        at: started_at,
        status_code: result.status,
        latency_ms: result.latency_ms,
        error: result.error,
        response_body,
    };
    AttemptResult { revision: webhook.revision, attempt, next, deactivate }
}

/// Deletes deliveries past their retention. Returns the time of the next sweep.
async fn sweep(job_services: &JobServices, now: Timestamp) -> Timestamp {
    match deliveries::sweep(&job_services.services.db, now.plus(-RETENTION_DAYS * DAY)).await {
        // A sweep deletes a bounded number, so more may be left.
        Ok(removed) if removed > 0 => now,
        Ok(_) => now.after(SWEEP_INTERVAL),
        Err(error) => {
            tracing::debug!(%error, "cannot delete old deliveries; the sweep is retried");
            now.after(SWEEP_RETRY_DELAY)
        }
    }
}
