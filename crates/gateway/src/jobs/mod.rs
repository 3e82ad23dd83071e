//! Work in the background that outlives a restart. A job is a small serialisable struct with a name and `run`, which
//! must be safe to do again; one file each. It is enqueued in the transaction of the change that wants it, claimed with
//! a lease that is renewed while it runs, and tried again with back-off when it fails. A job whose node dies is taken
//! by another once its lease ends.

pub mod deliver_export;
pub mod deliver_webhook;
pub mod export_verdicts;
pub mod judge_live;
pub mod judge_skill;
pub mod run_eval;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_core::ids::{JobId, OrgId};
use gateway_core::time::Timestamp;
use gateway_store::db::Dialect;
use gateway_store::jobs::{self, ClaimedJob, NewJob};
use gateway_store::{Lease, StoreError, Tx};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::app::App;

/// A job is another's once its holder has not renewed the lease for this long.
const LEASE: i64 = 15_000;
const RENEW: Duration = Duration::from_secs(5);
/// How often a node looks for jobs that another node enqueued.
const POLL: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// What a job that runs may still take when the service stops, before it is put off until the next start.
const GRACE: Duration = Duration::from_secs(3);

/// A kind of work.
pub trait Job: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// How it is called in the store; never changed once released.
    const NAME: &'static str;
    /// How many may run at once on this node.
    const SLOTS: usize;
    /// How many of one organization may run at once, over all nodes.
    const PER_ORG: i64;
    /// How often it is begun at most before it is given up.
    const ATTEMPTS: i64;

    /// While a job of this key waits or runs, its like is not enqueued.
    fn only_one(&self) -> Option<String> {
        None
    }

    /// Does the work. It may be done again after any step, and dropped at any await.
    fn run(&self, context: &Context<'_>) -> impl Future<Output = Result<Done, Failure>> + Send;

    /// It failed too often: the last chance to tell those who wait for it.
    fn give_up(
        &self,
        context: &Context<'_>,
        why: &str,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// What a job has besides its own fields.
pub struct Context<'a> {
    pub app: &'a Arc<App>,
    pub org: OrgId,
}

/// How a job that did not fail has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    Finished,
    /// There is more to do, but not now. Counts as no attempt.
    Later(Duration),
}

/// Why a job has to be tried again.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self(error.to_string())
    }
}

/// Wakes this node's workers, by the name of the kind.
#[derive(Default)]
pub struct Bells(Mutex<HashMap<&'static str, Arc<Notify>>>);

impl Bells {
    fn of(&self, name: &'static str) -> Arc<Notify> {
        let mut bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(bells.entry(name).or_default())
    }
}

/// A job that was enqueued in a transaction which is yet to be committed.
#[must_use = "wake the workers when the transaction is committed"]
#[derive(Debug)]
pub struct Queued {
    name: &'static str,
    /// False: its like was there already.
    pub added: bool,
}

impl Queued {
    /// The transaction is committed: the work begins at once instead of at the next look.
    pub fn committed(self, app: &App) {
        app.bells.of(self.name).notify_one();
    }
}

/// Enqueues a job in the caller's transaction.
pub async fn enqueue<J: Job>(app: &App, tx: &mut Tx, org: OrgId, job: &J) -> Result<Queued, StoreError> {
    let (payload, only_one) = written(job)?;
    let added = jobs::enqueue(tx, &new_job::<J>(app, org, &payload, only_one.as_deref())).await?;
    Ok(Queued { name: J::NAME, added })
}

/// Starts the work on every kind of job. On SQLite this process is the only one, so that what is held was left behind by
/// one that is gone, and need not wait for its lease to end.
pub async fn start(app: &Arc<App>) -> Result<(), StoreError> {
    if app.services.db.dialect() == Dialect::Sqlite {
        jobs::release_all(&app.services.db, app.services.clock.now()).await?;
    }
    app.services.tasks.spawn(work::<run_eval::RunEval>(Arc::clone(app)));
    app.services.tasks.spawn(work::<judge_live::JudgeLive>(Arc::clone(app)));
    app.services.tasks.spawn(work::<judge_skill::JudgeSkill>(Arc::clone(app)));
    app.services.tasks.spawn(work::<export_verdicts::ExportVerdicts>(Arc::clone(app)));
    app.services.tasks.spawn(judge_skill::schedule(Arc::clone(app)));
    app.services.tasks.spawn(deliver_webhook::run(Arc::clone(app)));
    app.services.tasks.spawn_low_priority(deliver_export::run(Arc::clone(app)));
    Ok(())
}

/// The same, while fewer than `bound` of the kind wait or run anywhere; none when there are as many.
pub async fn enqueue_within<J: Job>(
    app: &App,
    tx: &mut Tx,
    org: OrgId,
    job: &J,
    bound: usize,
) -> Result<Option<Queued>, StoreError> {
    let (payload, only_one) = written(job)?;
    let bound = i64::try_from(bound).unwrap_or(i64::MAX);
    let new = new_job::<J>(app, org, &payload, only_one.as_deref());
    let added = jobs::enqueue_bounded(tx, &new, bound).await?;
    Ok(added.map(|added| Queued { name: J::NAME, added }))
}

/// The payload, and the key of which there may be one only.
fn written<J: Job>(job: &J) -> Result<(String, Option<String>), StoreError> {
    let payload = serde_json::to_string(job).map_err(|error| StoreError::Other(error.to_string()))?;
    Ok((payload, job.only_one()))
}

fn new_job<'a, J: Job>(app: &App, org: OrgId, payload: &'a str, only_one: Option<&'a str>) -> NewJob<'a> {
    let now = app.services.clock.now();
    NewJob {
        id: app.services.ids.new_id(),
        org,
        name: J::NAME,
        dedup_key: only_one,
        payload,
        due_at: now,
        now,
    }
}

/// Runs the jobs of one kind until the service stops, then waits for those under way.
pub async fn work<J: Job>(app: Arc<App>) {
    let bell = app.bells.of(J::NAME);
    let slots = Arc::new(Semaphore::new(J::SLOTS));
    let mut running = JoinSet::new();
    while let Some(slot) = free_slot(&app, &slots).await {
        match claim::<J>(&app).await {
            Ok(Some((claimed, holder))) => {
                let (own, bell) = (Arc::clone(&app), Arc::clone(&bell));
                while running.try_join_next().is_some() {}
                running.spawn(async move {
                    hold::<J>(&own, &claimed, &holder, slot).await;
                    // Another of the same organization may have waited for this one.
                    bell.notify_one();
                });
            }
            found => {
                drop(slot);
                let wait = match found {
                    Ok(_) => until_due(&app, J::NAME).await,
                    Err(error) => {
                        tracing::warn!(%error, job = J::NAME, "jobs cannot be claimed");
                        POLL
                    }
                };
                tokio::select! {
                    () = bell.notified() => {}
                    () = app.services.tasks.stopping() => {}
                    () = tokio::time::sleep(wait) => {}
                }
            }
        }
    }
    while running.join_next().await.is_some() {}
}

/// None when the service stops.
async fn free_slot(app: &App, slots: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    if app.services.tasks.is_stopping() {
        return None;
    }
    tokio::select! {
        slot = Arc::clone(slots).acquire_owned() => slot.ok(),
        () = app.services.tasks.stopping() => None,
    }
}

async fn claim<J: Job>(app: &App) -> Result<Option<(ClaimedJob, String)>, StoreError> {
    let now = app.services.clock.now();
    // A cheap look first: an idle node writes nothing.
    if jobs::next_due(&app.services.db, J::NAME).await?.is_none_or(|due| due > now) {
        return Ok(None);
    }
    let holder = app.services.ids.new_id::<JobId>().to_string();
    let lease = Lease { owner: &holder, now, until: now.plus(LEASE) };
    let claimed = jobs::claim(&app.services.db, J::NAME, J::PER_ORG, &lease).await?;
    Ok(claimed.map(|claimed| (claimed, holder)))
}

/// How long until there may be something to do.
async fn until_due(app: &App, name: &str) -> Duration {
    let due = jobs::next_due(&app.services.db, name).await.ok().flatten();
    let left = due.map_or(i64::MAX, |due| due.0 - app.services.clock.now().0);
    match u64::try_from(left) {
        Ok(left) if left > 0 => Duration::from_millis(left).min(POLL),
        // Due, but not to be had: its organization has enough under way.
        _ => POLL,
    }
}

/// One job from claim to end, while the lease is renewed beside it.
async fn hold<J: Job>(app: &Arc<App>, claimed: &ClaimedJob, holder: &str, _slot: OwnedSemaphorePermit) {
    let job: J = match serde_json::from_str(&claimed.payload) {
        Ok(job) => job,
        Err(error) => {
            tracing::error!(%error, job = J::NAME, id = %claimed.id, "a job cannot be read and is dropped");
            note(jobs::finish(&app.services.db, claimed.id, holder).await);
            return;
        }
    };
    let context = Context { app, org: claimed.org };
    if claimed.attempts > J::ATTEMPTS {
        // Whoever began it last did not live to see it fail.
        let why = claimed.last_error.as_deref().unwrap_or("it was interrupted too often");
        return give_up(&job, &context, claimed.id, holder, why).await;
    }
    let ended = tokio::select! {
        ended = job.run(&context) => ended,
        () = renewing(app, claimed.id, holder) => {
            tracing::warn!(job = J::NAME, id = %claimed.id, "a job's lease was lost; another has it now");
            return;
        }
        () = overtime(app) => Ok(Done::Later(Duration::ZERO)),
    };
    let now = app.services.clock.now();
    let released = match ended {
        Ok(Done::Finished) => jobs::finish(&app.services.db, claimed.id, holder).await,
        Ok(Done::Later(wait)) => {
            jobs::release(&app.services.db, claimed.id, holder, later(now, wait), None).await
        }
        Err(failure) if claimed.attempts >= J::ATTEMPTS => {
            return give_up(&job, &context, claimed.id, holder, &failure.0).await;
        }
        Err(failure) => {
            tracing::debug!(error = %failure, job = J::NAME, id = %claimed.id, "a job is tried again later");
            let due = later(now, back_off(claimed.attempts));
            jobs::release(&app.services.db, claimed.id, holder, due, Some(&failure.0)).await
        }
    };
    note(released);
}

async fn give_up<J: Job>(job: &J, context: &Context<'_>, id: JobId, holder: &str, why: &str) {
    tracing::error!(error = why, job = J::NAME, %id, "a job failed too often and is given up");
    let db = &context.app.services.db;
    match job.give_up(context, why).await {
        Ok(()) => note(jobs::finish(db, id, holder).await),
        // Nobody was told: that is tried again.
        Err(error) => {
            note(
                jobs::release(
                    db,
                    id,
                    holder,
                    later(context.app.services.clock.now(), LAST_RETRY),
                    Some(&error.to_string()),
                )
                .await,
            );
        }
    }
}

/// Ends only when the lease is lost.
async fn renewing(app: &App, id: JobId, holder: &str) {
    let mut kept_until = app.services.clock.now().plus(LEASE);
    loop {
        tokio::time::sleep(RENEW).await;
        let until = app.services.clock.now().plus(LEASE);
        match jobs::renew(&app.services.db, id, holder, until).await {
            Ok(true) => kept_until = until,
            Ok(false) => return,
            Err(error) => {
                tracing::debug!(%error, "a lease could not be renewed");
                if app.services.clock.now() >= kept_until {
                    return;
                }
            }
        }
    }
}

/// The service stops, and the job has had its time to come to an end.
async fn overtime(app: &App) {
    let mut stopping = pin!(app.services.tasks.stopping());
    stopping.as_mut().await;
    tokio::time::sleep(GRACE).await;
}

/// A job that cannot be put away now is taken up again when its lease ends.
fn note(done: Result<(), StoreError>) {
    if let Err(error) = done {
        tracing::warn!(%error, "the end of a job could not be noted");
    }
}

fn later(now: Timestamp, wait: Duration) -> Timestamp {
    now.plus(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX))
}

fn back_off(attempts: i64) -> Duration {
    let doubled = u32::try_from(attempts.clamp(1, 16) - 1).unwrap_or(0);
    FIRST_RETRY.saturating_mul(1 << doubled).min(LAST_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_waits_longer_than_the_one_before_up_to_a_bound() {
        let waits: Vec<u128> = (1..=9).map(|attempt| back_off(attempt).as_millis()).collect();
        assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(back_off(i64::MAX), LAST_RETRY);
    }
}
