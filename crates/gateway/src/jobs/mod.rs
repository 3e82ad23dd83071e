//! Background jobs that survive a restart. A job is a small serializable struct with a name and an idempotent `run`,
//! one file each. It is enqueued in the transaction of the change that causes it, claimed under a lease that is renewed
//! while it runs, and retried with backoff when it fails. If its node dies, another node claims it when the lease
//! expires.

pub mod delete_versions;
pub mod deliver_export;
pub mod deliver_webhook;
pub mod export_verdicts;
pub mod judge_live;
pub mod judge_skill;
pub mod live_evals;
pub mod postponed;
pub mod purge_orgs;
pub mod run_eval;
pub mod run_replay;
mod tracked_tasks;
mod turns;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_core::ids::{JobId, OrgId};
use gateway_store::connection_shares::on_behalf_of;
use gateway_store::db::Dialect;
use gateway_store::faults::{KillPoint, kill_point};
use gateway_store::jobs::{self, ClaimedJob, NewJob, NextJob};
use gateway_store::{Lease, StoreError, Tx};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::compute::ComputeError;
use crate::delivery::DeliveryClient;
use crate::internal_call::InternalCaller;
use crate::proxy::state::ProxyState;
use crate::services::Services;
use live_evals::LiveEvals;

/// Another node may claim a job whose lease was not renewed for this long.
const LEASE: Duration = Duration::from_secs(15);
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// How often a node looks for jobs that another node enqueued.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// How long a running job may continue when the service stops, before it is released.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);

pub trait Job: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The name in the store. It must not change once released.
    const NAME: &'static str;
    /// The maximum number of concurrent jobs of this kind on this node.
    const CONCURRENCY: usize;
    /// The maximum number of concurrent jobs per organization, across all nodes.
    const CONCURRENCY_PER_ORG: i64;
    /// The job is given up after this many attempts.
    const MAX_ATTEMPTS: i64;

    /// A job is not enqueued while one with the same key is pending or running.
    fn dedup_key(&self) -> Option<String> {
        None
    }

    /// Runs the job. It may be interrupted at any await and run again from the start.
    fn run(&self, context: &JobContext<'_>) -> impl Future<Output = Result<JobResult, JobError>> + Send;

    /// Called once after the last failed attempt, to record the failure.
    fn give_up(
        &self,
        context: &JobContext<'_>,
        reason: &str,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The services that jobs use.
pub struct JobServices {
    pub services: Arc<Services>,
    pub models: InternalCaller,
    /// For deliveries on the main runtime.
    pub delivery: DeliveryClient,
    /// Wakes the workers of this node.
    pub notifiers: JobNotifiers,
    /// The evals that sample live traffic.
    pub live_evals: LiveEvals,
    /// Notified when an export was changed on this node, so that a delivery in progress reloads it.
    pub export_changes: watch::Sender<()>,
}

impl JobServices {
    pub fn new(services: Arc<Services>, proxy: Arc<ProxyState>) -> Self {
        Self {
            models: InternalCaller { services: Arc::clone(&services), proxy },
            delivery: DeliveryClient::new(Arc::clone(&services)),
            services,
            notifiers: JobNotifiers::default(),
            live_evals: LiveEvals::default(),
            export_changes: watch::Sender::new(()),
        }
    }
}

/// The context of a running job.
pub struct JobContext<'a> {
    pub job_services: &'a Arc<JobServices>,
    pub org: OrgId,
}

/// How a job ended without a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobResult {
    Finished,
    /// Run again after the delay. Does not count as an attempt.
    Reschedule(Duration),
    /// A job with this payload takes its place after the delay, with all attempts.
    ContinueWith {
        payload: String,
        delay: Duration,
    },
}

/// Why a job is retried.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct JobError(pub String);

impl From<ComputeError> for JobError {
    fn from(error: ComputeError) -> Self {
        Self(error.to_string())
    }
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        Self(error.to_string())
    }
}

/// Wakes the workers of this node, by job name.
#[derive(Default)]
pub struct JobNotifiers(Mutex<HashMap<&'static str, Arc<Notify>>>);

impl JobNotifiers {
    fn get(&self, name: &'static str) -> Arc<Notify> {
        let mut notifiers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(notifiers.entry(name).or_default())
    }
}

/// A job that was enqueued in a transaction which is not committed yet.
#[must_use = "notify the workers when the transaction is committed"]
#[derive(Debug)]
pub struct Queued {
    name: &'static str,
    /// False if a job with the same key existed already.
    pub added: bool,
}

impl Queued {
    /// Wakes the workers after the commit, so that the job starts before the next poll.
    pub fn notify(self, job_services: &JobServices) {
        job_services.notifiers.get(self.name).notify_one();
    }
}

/// Enqueues a job in the caller's transaction.
pub async fn enqueue<J: Job>(
    job_services: &JobServices,
    tx: &mut Tx,
    org: OrgId,
    job: &J,
) -> Result<Queued, StoreError> {
    let (payload, dedup_key) = serialize(job)?;
    let added = jobs::enqueue(tx, &new_job::<J>(job_services, org, &payload, dedup_key.as_deref())).await?;
    Ok(Queued { name: J::NAME, added })
}

/// Starts the workers of every kind of job. On SQLite this is the only process, so leases of an earlier run are
/// released at once.
pub async fn start(job_services: &Arc<JobServices>) -> Result<(), StoreError> {
    if job_services.services.db.dialect() == Dialect::Sqlite {
        jobs::release_all(&job_services.services.db, job_services.services.clock.now()).await?;
    }
    job_services.services.tasks.spawn(work::<run_eval::RunEval>(Arc::clone(job_services)));
    job_services.services.tasks.spawn(work::<run_replay::RunReplay>(Arc::clone(job_services)));
    job_services.services.tasks.spawn(work::<judge_live::JudgeLive>(Arc::clone(job_services)));
    job_services.services.tasks.spawn(work::<judge_skill::JudgeSkill>(Arc::clone(job_services)));
    job_services.services.tasks.spawn(work::<export_verdicts::ExportVerdicts>(Arc::clone(job_services)));
    job_services.services.tasks.spawn(work::<delete_versions::DeleteVersions>(Arc::clone(job_services)));
    job_services.services.tasks.spawn(judge_skill::schedule(Arc::clone(job_services)));
    job_services.services.tasks.spawn(purge_orgs::run(Arc::clone(job_services)));
    job_services.services.tasks.spawn(deliver_webhook::run(Arc::clone(job_services)));
    job_services.services.tasks.spawn_low_priority(deliver_export::run(Arc::clone(job_services)));
    Ok(())
}

/// Enqueues a job unless `bound` jobs of the kind and organization are pending or running on all nodes. Returns `None`
/// at the bound.
pub async fn enqueue_within<J: Job>(
    job_services: &JobServices,
    tx: &mut Tx,
    org: OrgId,
    job: &J,
    bound: usize,
) -> Result<Option<Queued>, StoreError> {
    let (payload, dedup_key) = serialize(job)?;
    let bound = i64::try_from(bound).unwrap_or(i64::MAX);
    let new = new_job::<J>(job_services, org, &payload, dedup_key.as_deref());
    let added = jobs::enqueue_bounded(tx, &new, bound).await?;
    Ok(added.map(|added| Queued { name: J::NAME, added }))
}

/// The payload and the deduplication key.
fn serialize<J: Job>(job: &J) -> Result<(String, Option<String>), StoreError> {
    let payload = serde_json::to_string(job).map_err(|error| StoreError::Other(error.to_string()))?;
    Ok((payload, job.dedup_key()))
}

fn new_job<'a, J: Job>(
    job_services: &JobServices,
    org: OrgId,
    payload: &'a str,
    dedup_key: Option<&'a str>,
) -> NewJob<'a> {
    let now = job_services.services.clock.now();
    NewJob {
        id: job_services.services.ids.new_id(),
        org,
        name: J::NAME,
        dedup_key,
        payload,
        due_at: now,
        now,
    }
}

/// Runs the jobs of one kind until the service stops, then waits for the running ones.
pub async fn work<J: Job>(job_services: Arc<JobServices>) {
    let notifier = job_services.notifiers.get(J::NAME);
    let slots = Arc::new(Semaphore::new(J::CONCURRENCY));
    let mut running = JoinSet::new();
    let mut served_last = None;
    while let Some(slot) = free_slot(&job_services, &slots).await {
        match claim::<J>(&job_services, served_last).await {
            Ok(Some((claimed, holder))) => {
                served_last = Some(claimed.org);
                kill_point(KillPoint::JobClaimed);
                let (own, notifier) = (Arc::clone(&job_services), Arc::clone(&notifier));
                while running.try_join_next().is_some() {}
                running.spawn(async move {
                    run_claimed::<J>(&own, &claimed, &holder, slot).await;
                    // Another job of the organization may have waited for this one.
                    notifier.notify_one();
                });
            }
            idle => {
                drop(slot);
                let delay = match idle {
                    Ok(_) => time_until_due(&job_services, J::NAME).await,
                    Err(error) => {
                        tracing::warn!(%error, job = J::NAME, "cannot claim jobs");
                        POLL_INTERVAL
                    }
                };
                tokio::select! {
                    () = notifier.notified() => {}
                    () = job_services.services.tasks.stopping() => {}
                    () = tokio::time::sleep(delay) => {}
                }
            }
        }
    }
    while running.join_next().await.is_some() {}
}

/// `None` when the service stops.
async fn free_slot(job_services: &JobServices, slots: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    if job_services.services.tasks.is_stopping() {
        return None;
    }
    tokio::select! {
        slot = Arc::clone(slots).acquire_owned() => slot.ok(),
        () = job_services.services.tasks.stopping() => None,
    }
}

/// Claims a job of the organization whose turn it is after the one that was served last.
async fn claim<J: Job>(
    job_services: &JobServices,
    served_last: Option<OrgId>,
) -> Result<Option<(ClaimedJob, String)>, StoreError> {
    let now = job_services.services.clock.now();
    // A read first, so that an idle node writes nothing.
    if jobs::next_due(&job_services.services.db, J::NAME).await?.is_none_or(|due| due > now) {
        return Ok(None);
    }
    let holder = job_services.services.ids.new_id::<JobId>().to_string();
    let lease = Lease { owner: &holder, now, until: now.after(LEASE) };
    let next = NextJob { name: J::NAME, per_org: J::CONCURRENCY_PER_ORG, after: served_last };
    let claimed = jobs::claim(&job_services.services.db, next, &lease).await?;
    Ok(claimed.map(|claimed| (claimed, holder)))
}

/// The time until the next job is due.
async fn time_until_due(job_services: &JobServices, name: &str) -> Duration {
    let due = jobs::next_due(&job_services.services.db, name).await.unwrap_or_else(|error| {
        tracing::debug!(%error, job = name, "cannot read when the next job is due");
        None
    });
    let left = due.map_or(i64::MAX, |due| due.0 - job_services.services.clock.now().0);
    match u64::try_from(left) {
        Ok(left) if left > 0 => Duration::from_millis(left).min(POLL_INTERVAL),
        // Due, but its organization is at its limit of concurrent jobs.
        _ => POLL_INTERVAL,
    }
}

/// What the job uses counts against the owner of the organization, which nobody may have loaded in this process. Without
/// the database the job will fail anyway.
async fn learn_owner(services: &Services, org: OrgId) {
    if let Err(error) = services.db.owners().ensure(&services.db, org).await {
        tracing::debug!(%error, %org, "cannot read who owns an organization");
    }
}

/// Runs a claimed job to its end while its lease is renewed.
async fn run_claimed<J: Job>(
    job_services: &Arc<JobServices>,
    claimed: &ClaimedJob,
    holder: &str,
    _slot: OwnedSemaphorePermit,
) {
    let job: J = match serde_json::from_str(&claimed.payload) {
        Ok(job) => job,
        Err(error) => {
            tracing::error!(%error, job = J::NAME, id = %claimed.id, "cannot decode a job; it is dropped");
            log_failure(jobs::finish(&job_services.services.db, claimed.id, holder).await);
            return;
        }
    };
    let context = JobContext { job_services, org: claimed.org };
    if claimed.attempts > J::MAX_ATTEMPTS {
        // The node of the last attempt died before it could record a failure.
        let reason = claimed.last_error.as_deref().unwrap_or("the job was interrupted too often");
        return give_up(&job, &context, claimed.id, holder, reason).await;
    }
    let run = async {
        learn_owner(&job_services.services, claimed.org).await;
        job.run(&context).await
    };
    let result = tokio::select! {
        result = on_behalf_of(claimed.org, run) => result,
        () = renew_lease(job_services, claimed.id, holder) => {
            tracing::warn!(job = J::NAME, id = %claimed.id, "the lease of a job was lost; another node runs it now");
            return;
        }
        () = shutdown_grace(job_services) => Ok(JobResult::Reschedule(Duration::ZERO)),
    };
    let now = job_services.services.clock.now();
    let released = match result {
        Ok(JobResult::Finished) => {
            let finished = jobs::finish(&job_services.services.db, claimed.id, holder).await;
            kill_point(KillPoint::JobFinished);
            finished
        }
        Ok(JobResult::Reschedule(delay)) => {
            jobs::release(&job_services.services.db, claimed.id, holder, now.after(delay), None).await
        }
        Ok(JobResult::ContinueWith { payload, delay }) => {
            let due = now.after(delay);
            jobs::continue_with(&job_services.services.db, claimed.id, holder, &payload, due).await
        }
        Err(failure) if claimed.attempts >= J::MAX_ATTEMPTS => {
            return give_up(&job, &context, claimed.id, holder, &failure.0).await;
        }
        Err(failure) => {
            tracing::debug!(error = %failure, job = J::NAME, id = %claimed.id, "a job failed and is retried");
            let due = now.after(retry_delay(claimed.attempts));
            jobs::release(&job_services.services.db, claimed.id, holder, due, Some(&failure.0)).await
        }
    };
    log_failure(released);
}

async fn give_up<J: Job>(job: &J, context: &JobContext<'_>, id: JobId, holder: &str, reason: &str) {
    tracing::error!(error = reason, job = J::NAME, %id, "a job failed too often and is given up");
    let db = &context.job_services.services.db;
    match job.give_up(context, reason).await {
        Ok(()) => log_failure(jobs::finish(db, id, holder).await),
        // The failure could not be recorded, so that is retried.
        Err(error) => {
            log_failure(
                jobs::release(
                    db,
                    id,
                    holder,
                    context.job_services.services.clock.now().after(MAX_RETRY_DELAY),
                    Some(&error.to_string()),
                )
                .await,
            );
        }
    }
}

/// Renews the lease. Returns only when it is lost.
async fn renew_lease(job_services: &JobServices, id: JobId, holder: &str) {
    let mut expires_at = job_services.services.clock.now().after(LEASE);
    loop {
        tokio::time::sleep(RENEW_INTERVAL).await;
        let until = job_services.services.clock.now().after(LEASE);
        match jobs::renew(&job_services.services.db, id, holder, until).await {
            Ok(true) => expires_at = until,
            Ok(false) => return,
            Err(error) => {
                tracing::debug!(%error, "cannot renew a lease");
                if job_services.services.clock.now() >= expires_at {
                    return;
                }
            }
        }
    }
}

/// Resolves when the service stops and the grace period is over.
async fn shutdown_grace(job_services: &JobServices) {
    let mut stopping = pin!(job_services.services.tasks.stopping());
    stopping.as_mut().await;
    tokio::time::sleep(SHUTDOWN_GRACE).await;
}

/// Logs a failed update. The job runs again when its lease expires.
fn log_failure(result: Result<(), StoreError>) {
    if let Err(error) = result {
        tracing::warn!(%error, "cannot record the end of a job");
    }
}

fn retry_delay(attempts: i64) -> Duration {
    let doublings = u32::try_from(attempts.clamp(1, 16) - 1).unwrap_or(0);
    FIRST_RETRY_DELAY.saturating_mul(1 << doublings).min(MAX_RETRY_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_retry_delay_doubles_up_to_a_maximum() {
        let delays: Vec<u128> = (1..=9).map(|attempt| retry_delay(attempt).as_millis()).collect();
        assert_eq!(delays, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(retry_delay(i64::MAX), MAX_RETRY_DELAY);
    }
}
