//! Delivers events to webhooks. A node takes due deliveries under a lease, a few per receiver at a time and some over all
//! receivers, so that a slow one holds up nobody else; when the node dies, another takes them over.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::ids::{OrgId, WebhookId};
use gateway_core::signing;
use gateway_core::time::{DAY, MINUTE, SECOND, Timestamp};
use gateway_core::webhooks::{DISABLE_AFTER, ResponseClass, classify, next_attempt};
use gateway_store::deliveries::{self, AttemptResult, ClaimedDelivery, DeliveryAttempt, NextStep};
use gateway_store::webhooks::{self, Webhook};
use gateway_store::{Lease, StoreError, db::Dialect};
use secrecy::ExposeSecret as _;
use tokio::task::JoinSet;

use crate::delivery::{DeliveryResult, post, random, signed_headers};
use crate::jobs::JobServices;
use crate::vault::encryption_context;

const TICK: Duration = Duration::from_millis(250);
/// Attempts at once to one receiver, to those of one organization, and to all of them: nobody's slow receivers can take all
/// places.
const PER_RECEIVER: usize = 4;
const PER_ORG: usize = 16;
const OVERALL: usize = 256;
/// Longer than an attempt can take.
const LEASE: i64 = 20 * SECOND;
/// Of a receiver's answer, this much is kept.
const ANSWER_BYTES: usize = 1_024;
const KEPT_DAYS: i64 = 30;
const SWEEP_EVERY: i64 = 10 * MINUTE;

/// Runs until the service stops, then waits for the attempts that are under way.
pub async fn run(job_services: Arc<JobServices>) {
    if job_services.services.db.dialect() == Dialect::Sqlite
        && let Err(error) = deliveries::release_all(&job_services.services.db).await
    {
        tracing::debug!(%error, "deliveries of the run before wait for their lease to end");
    }
    let mut node = Node {
        job_services: Arc::clone(&job_services),
        attempts: JoinSet::new(),
        busy: Busy::default(),
        turn: 0,
    };
    let mut next_sweep = job_services.services.clock.now();
    while !job_services.services.tasks.is_stopping() {
        if let Err(error) = node.look().await {
            tracing::debug!(%error, "webhooks wait");
        }
        let now = job_services.services.clock.now();
        if now >= next_sweep {
            next_sweep = sweep(&job_services, now).await;
        }
        node.work_until_next_look().await;
    }
    while node.attempts.join_next().await.is_some() {}
}

struct Node {
    job_services: Arc<JobServices>,
    /// Tasks of their own: one that waits for the database must not wait for this one, which may do so too.
    attempts: JoinSet<(OrgId, WebhookId)>,
    busy: Busy,
    /// Whose turn it is to be first when there are more receivers than places.
    turn: usize,
}

/// Attempts under way.
#[derive(Default)]
struct Busy {
    receivers: HashMap<WebhookId, usize>,
    orgs: HashMap<OrgId, usize>,
}

impl Busy {
    /// How many more there may be to this receiver.
    fn room(&self, org: OrgId, webhook: WebhookId) -> usize {
        let of_receiver = self.receivers.get(&webhook).copied().unwrap_or(0);
        let of_org = self.orgs.get(&org).copied().unwrap_or(0);
        PER_RECEIVER.saturating_sub(of_receiver).min(PER_ORG.saturating_sub(of_org))
    }

    fn begin(&mut self, org: OrgId, webhook: WebhookId) {
        *self.receivers.entry(webhook).or_default() += 1;
        *self.orgs.entry(org).or_default() += 1;
    }

    fn end(&mut self, org: OrgId, webhook: WebhookId) {
        one_less(&mut self.receivers, webhook);
        one_less(&mut self.orgs, org);
    }
}

fn one_less<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

impl Node {
    /// Takes what is due of every receiver that has room.
    async fn look(&mut self) -> Result<(), StoreError> {
        let mut due = deliveries::list_due_webhooks(
            &self.job_services.services.db,
            self.job_services.services.clock.now(),
        )
        .await?;
        if !due.is_empty() {
            self.turn = self.turn.wrapping_add(1);
            let first = self.turn % due.len();
            due.rotate_left(first);
        }
        for (org, webhook) in due {
            self.fill(org, webhook).await?;
        }
        Ok(())
    }

    async fn fill(&mut self, org: OrgId, webhook: WebhookId) -> Result<(), StoreError> {
        let room = self.busy.room(org, webhook).min(OVERALL.saturating_sub(self.attempts.len()));
        if room == 0 {
            return Ok(());
        }
        let now = self.job_services.services.clock.now();
        let lease = self.job_services.services.ids.new_id::<uuid::Uuid>().to_string();
        let most = i64::try_from(room).unwrap_or(1);
        let wanted = Lease { owner: &lease, now, until: now.plus(LEASE) };
        let taken = deliveries::claim(&self.job_services.services.db, webhook, most, &wanted).await?;
        for due in taken {
            self.busy.begin(org, webhook);
            let (job_services, lease) = (Arc::clone(&self.job_services), lease.clone());
            self.attempts.spawn(async move {
                if let Err(error) = attempt(&job_services, &due, &lease).await {
                    tracing::warn!(%error, delivery = %due.id, "an attempt could not be noted; it is made again");
                }
                (due.org_id, due.webhook_id)
            });
        }
        Ok(())
    }

    /// Works on what is under way; a receiver that has answered is given its next delivery at once.
    async fn work_until_next_look(&mut self) {
        let job_services = Arc::clone(&self.job_services);
        let pause = tokio::time::sleep(TICK);
        tokio::pin!(pause);
        loop {
            let finished = tokio::select! {
                () = &mut pause => return,
                () = job_services.services.tasks.stopping() => return,
                Some(finished) = self.attempts.join_next() => finished,
            };
            let Ok((org, webhook)) = finished else {
                // One that panicked has not said whose it was.
                self.busy = Busy::default();
                continue;
            };
            self.busy.end(org, webhook);
            if let Err(error) = self.fill(org, webhook).await {
                tracing::debug!(%error, "a webhook waits");
            }
        }
    }
}

async fn attempt(job_services: &JobServices, due: &ClaimedDelivery, lease: &str) -> Result<(), StoreError> {
    // Gone in this moment, and its deliveries with it.
    let Some(webhook) = webhooks::find(&job_services.services.db, due.org_id, due.webhook_id).await? else {
        return Ok(());
    };
    let at = job_services.services.clock.now();
    let sent = match keys(job_services, &webhook, at) {
        Some(keys) => {
            let headers = signed_headers(
                &job_services.delivery,
                &keys,
                &due.event_id.to_string(),
                due.payload.as_bytes(),
            );
            post(&job_services.delivery, &webhook.url, headers, due.payload.clone().into(), ANSWER_BYTES)
                .await
        }
        None => DeliveryResult::failed("its signing secret cannot be opened; rotate it"),
    };
    let finished = finished(&webhook, due, at, job_services.services.clock.now(), sent);
    deliveries::record_attempt(&job_services.services.db, due, lease, &finished).await.map(|_| ())
}

/// The keys to sign with: the present one, and the one before while it still counts.
fn keys(job_services: &JobServices, webhook: &Webhook, now: Timestamp) -> Option<Vec<Vec<u8>>> {
    let previous =
        webhook.previous_secret.iter().filter(|_| webhook.previous_until.is_some_and(|until| now < until));
    let place = encryption_context(webhook.org_id, &format!("webhook/{}", webhook.id), "secret");
    [&webhook.secret]
        .into_iter()
        .chain(previous)
        .map(|sealed| {
            let secret = job_services.services.vault.open(&place, sealed).ok()?;
            signing::decode_secret(secret.expose_secret()).ok()
        })
        .collect()
}

fn finished(
    webhook: &Webhook,
    due: &ClaimedDelivery,
    at: Timestamp,
    now: Timestamp,
    sent: DeliveryResult,
) -> AttemptResult {
    let verdict = classify(sent.status);
    let again = next_attempt(now, usize::try_from(due.tries).unwrap_or(0) + 1, sent.retry_after, random());
    let next = match (verdict, again) {
        (ResponseClass::Delivered, _) => NextStep::Delivered,
        (ResponseClass::Retry, Some(at)) => NextStep::RetryAt(at),
        (ResponseClass::Retry, None) | (ResponseClass::Gone, _) => NextStep::Failed,
    };
    let too_long = webhook.failing_since.is_some_and(|since| now.since(since) >= DISABLE_AFTER);
    let deactivate = match verdict {
        ResponseClass::Gone => Some("the receiver answered 410 Gone"),
        ResponseClass::Retry if too_long => Some("every delivery has failed for 5 days"),
        _ => None,
    };
    let said = String::from_utf8_lossy(&sent.body).replace('\0', " ");
    let response_body = sent.status.map(|_| said.chars().take(ANSWER_BYTES).collect());
    let attempt = DeliveryAttempt {
        at,
        status_code: sent.status,
        latency_ms: sent.latency_ms,
        error: sent.error,
        response_body,
    };
    AttemptResult { attempt, next, deactivate }
}

/// Removes what is too old to be of use; answers when to look again.
async fn sweep(job_services: &JobServices, now: Timestamp) -> Timestamp {
    match deliveries::sweep(&job_services.services.db, now.plus(-KEPT_DAYS * DAY)).await {
        // There may be more.
        Ok(removed) if removed > 0 => now,
        Ok(_) => now.plus(SWEEP_EVERY),
        Err(error) => {
            tracing::debug!(%error, "old deliveries stay until later");
            now.plus(MINUTE)
        }
    }
}
