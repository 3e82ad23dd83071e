//! Background jobs: leases, retries, concurrency limits, and recovery when a node dies.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use gateway::app::App;
use gateway::jobs::{self, Job, JobContext, JobError, JobResult};
use gateway_core::ids::{JobId, OrgId};
use gateway_core::time::Timestamp;
use gateway_store::jobs::{self as store, NextJob};
use gateway_store::{Lease, StoreError};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::on_both;
use crate::support::{Account, TestApp};

/// A job controlled by its fields. It records its runs under its marker.
#[derive(Clone, Serialize, Deserialize)]
struct Probe {
    mark: Uuid,
    fails: usize,
    takes_ms: u64,
    key: Option<String>,
}

#[derive(Clone, Default)]
struct Trace {
    begun: usize,
    running: usize,
    most: usize,
    ended: usize,
    given_up: Vec<String>,
}

static TRACES: LazyLock<Mutex<HashMap<Uuid, Trace>>> = LazyLock::new(Mutex::default);

fn trace(mark: Uuid) -> Trace {
    TRACES.lock().unwrap().get(&mark).cloned().unwrap_or_default()
}

fn note<T>(mark: Uuid, change: impl FnOnce(&mut Trace) -> T) -> T {
    change(TRACES.lock().unwrap().entry(mark).or_default())
}

/// Counts as running until dropped.
struct Running(Uuid);

impl Drop for Running {
    fn drop(&mut self) {
        note(self.0, |trace| trace.running -= 1);
    }
}

impl Job for Probe {
    const NAME: &'static str = "probe";
    const CONCURRENCY: usize = 8;
    const CONCURRENCY_PER_ORG: i64 = 2;
    const MAX_ATTEMPTS: i64 = 3;

    fn dedup_key(&self) -> Option<String> {
        self.key.clone()
    }

    async fn run(&self, _: &JobContext<'_>) -> Result<JobResult, JobError> {
        let begun = note(self.mark, |trace| {
            trace.begun += 1;
            trace.running += 1;
            trace.most = trace.most.max(trace.running);
            trace.begun
        });
        let _running = Running(self.mark);
        tokio::time::sleep(Duration::from_millis(self.takes_ms)).await;
        if begun <= self.fails {
            return Err(JobError(format!("failure {begun}")));
        }
        note(self.mark, |trace| trace.ended += 1);
        Ok(JobResult::Finished)
    }

    async fn give_up(&self, _: &JobContext<'_>, why: &str) -> Result<(), StoreError> {
        note(self.mark, |trace| trace.given_up.push(why.to_owned()));
        Ok(())
    }
}

fn probe() -> Probe {
    Probe { mark: Uuid::new_v4(), fails: 0, takes_ms: 0, key: None }
}

fn org(account: &Account) -> OrgId {
    account.org_id.parse().unwrap()
}

fn work(app: &Arc<App>) {
    app.services.tasks.spawn(jobs::work::<Probe>(Arc::clone(&app.jobs)));
}

async fn enqueue(app: &App, org: OrgId, job: &Probe) -> bool {
    let mut tx = app.services.db.begin().await.unwrap();
    let queued = jobs::enqueue(&app.jobs, &mut tx, org, job).await.unwrap();
    let added = queued.added;
    tx.commit().await.unwrap();
    queued.notify(&app.jobs);
    added
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("within 10 s: {what}");
}

/// Waits until the queue is empty.
async fn until_empty(app: &TestApp) {
    for _ in 0..500 {
        if store::next_due(&app.app.services.db, Probe::NAME).await.unwrap().is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("jobs are left after 10 s");
}

fn next_job(per_org: i64) -> NextJob<'static> {
    NextJob { name: Probe::NAME, per_org, after: None }
}

fn lease(owner: &str, now: Timestamp) -> Lease<'_> {
    Lease { owner, now, until: now.plus(30_000) }
}

on_both!(a_job_runs_once_its_transaction_is_committed_and_not_before, |app| async move {
    let ada = app.signup("acme").await;
    work(&app.app);
    let (kept, undone) = (probe(), probe());
    let mut tx = app.app.services.db.begin().await.unwrap();
    let queued = jobs::enqueue(&app.app.jobs, &mut tx, org(&ada), &undone).await.unwrap();
    drop(tx);
    queued.notify(&app.app.jobs);
    assert!(enqueue(&app.app, org(&ada), &kept).await);
    until("the job has run", || trace(kept.mark).ended == 1).await;
    until_empty(&app).await;
    assert_eq!((trace(kept.mark).begun, trace(undone.mark).begun), (1, 0));
});

on_both!(a_failed_job_is_retried_up_to_its_limit_and_then_abandoned, |app| async move {
    let ada = app.signup("acme").await;
    work(&app.app);
    let recovers = Probe { fails: 1, ..probe() };
    let hopeless = Probe { fails: usize::MAX, ..probe() };
    enqueue(&app.app, org(&ada), &recovers).await;
    enqueue(&app.app, org(&ada), &hopeless).await;
    until("both are through", || {
        trace(recovers.mark).ended == 1 && !trace(hopeless.mark).given_up.is_empty()
    })
    .await;
    until_empty(&app).await;
    assert_eq!(trace(recovers.mark).begun, 2);
    assert!(trace(recovers.mark).given_up.is_empty());
    assert_eq!(trace(hopeless.mark).begun, 3);
    assert_eq!(trace(hopeless.mark).given_up, ["failure 3"]);
});

on_both!(no_more_jobs_of_one_organization_run_at_once_than_allowed, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    work(&app.app);
    let (many, few) = (Probe { takes_ms: 60, ..probe() }, Probe { takes_ms: 60, ..probe() });
    for _ in 0..6 {
        enqueue(&app.app, org(&ada), &many).await;
    }
    enqueue(&app.app, org(&eve), &few).await;
    until("the other organization is served beside", || trace(few.mark).ended == 1).await;
    assert!(trace(many.mark).ended < 6, "a queue of one organization held up another");
    until("all have run", || trace(many.mark).ended == 6).await;
    assert_eq!(trace(many.mark).most, 2);
});

on_both!(what_may_be_there_only_once_is_not_enqueued_twice, |app| async move {
    let ada = app.signup("acme").await;
    let job = Probe { key: Some("k".into()), ..probe() };
    assert!(enqueue(&app.app, org(&ada), &job).await);
    assert!(!enqueue(&app.app, org(&ada), &job).await);
    assert!(enqueue(&app.app, org(&ada), &Probe { key: Some("other".into()), ..job.clone() }).await);
    work(&app.app);
    until_empty(&app).await;
    assert_eq!(trace(job.mark).ended, 2);
    assert!(enqueue(&app.app, org(&ada), &job).await, "once it is done, its like may come again");
});

on_both!(a_job_of_a_dead_owner_is_claimed_when_the_lease_expires, |app| async move {
    let ada = app.signup("acme").await;
    let job = probe();
    enqueue(&app.app, org(&ada), &job).await;
    let now = app.app.services.clock.now();
    let db = &app.app.services.db;
    let first = store::claim(db, next_job(2), &lease("gone", now)).await.unwrap().unwrap();
    assert_eq!(first.attempts, 1);
    assert_eq!(store::claim(db, next_job(2), &lease("other", now)).await.unwrap(), None);
    work(&app.app);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(trace(job.mark).begun, 0, "the lease is not over");
    app.app.services.clock.advance(30_001);
    until("it was taken over", || trace(job.mark).ended == 1).await;
    until_empty(&app).await;
    assert!(!store::renew(db, first.id, "gone", now).await.unwrap());
});

on_both!(what_is_left_of_a_job_takes_its_place, |app| async move {
    let ada = app.signup("acme").await;
    let job = probe();
    enqueue(&app.app, org(&ada), &job).await;
    let (db, now) = (&app.app.services.db, app.app.services.clock.now());
    let first = store::claim(db, next_job(2), &lease("a", now)).await.unwrap().unwrap();
    store::release(db, first.id, "a", now, Some("failed")).await.unwrap();
    let second = store::claim(db, next_job(2), &lease("b", now)).await.unwrap().unwrap();
    assert_eq!((second.attempts, second.last_error.as_deref()), (2, Some("failed")));
    store::continue_with(db, first.id, "a", "lost", now).await.unwrap();
    store::continue_with(db, first.id, "b", "rest", now.plus(1_000)).await.unwrap();
    assert_eq!(store::count(db, org(&ada), Probe::NAME).await.unwrap(), 1);
    assert_eq!(store::claim(db, next_job(2), &lease("c", now)).await.unwrap(), None, "not due yet");
    let later = now.plus(1_000);
    let next = store::claim(db, next_job(2), &lease("c", later)).await.unwrap().unwrap();
    assert_eq!((next.id, next.payload.as_str()), (first.id, "rest"));
    assert_eq!((next.attempts, next.last_error), (1, None));
});

on_both!(organizations_take_turns_however_many_jobs_they_have, |app| async move {
    let (eve, ada, bob) = (app.signup("evil").await, app.signup("acme").await, app.signup("bobs").await);
    for (account, count) in [(&eve, 30), (&ada, 2), (&bob, 1)] {
        for _ in 0..count {
            enqueue(&app.app, org(account), &probe()).await;
        }
    }
    let (db, now) = (&app.app.services.db, app.app.services.clock.now());
    let (mut served, mut after) = (Vec::new(), None);
    for _ in 0..6 {
        let next = NextJob { after, ..next_job(10) };
        let claimed = store::claim(db, next, &lease("h", now)).await.unwrap().unwrap();
        after = Some(claimed.org);
        served.push(claimed.org);
    }
    let mut first_round = served[..3].to_vec();
    first_round.sort();
    let mut all = vec![org(&eve), org(&ada), org(&bob)];
    all.sort();
    assert_eq!(first_round, all, "each has a turn before anybody has another");
    assert_eq!(served.iter().filter(|served| **served == org(&eve)).count(), 3);
    // An organization with enough running jobs is passed over.
    for _ in 0..7 {
        store::claim(db, next_job(10), &lease("h", now)).await.unwrap().unwrap();
    }
    assert_eq!(store::claim(db, next_job(10), &lease("h", now)).await.unwrap(), None);
    assert_eq!(store::count(db, org(&eve), Probe::NAME).await.unwrap(), 30);
    assert_eq!(store::count(db, org(&ada), Probe::NAME).await.unwrap(), 2);
});

on_both!(of_many_who_claim_at_once_each_gets_another_job, |app| async move {
    let ada = app.signup("acme").await;
    for _ in 0..5 {
        enqueue(&app.app, org(&ada), &probe()).await;
    }
    let now = app.app.services.clock.now();
    let claims = (0..12).map(|number| {
        let db = app.app.services.db.clone();
        tokio::spawn(async move {
            let owner = format!("h{number}");
            store::claim(&db, next_job(100), &lease(&owner, now)).await.unwrap()
        })
    });
    let mut ids: Vec<JobId> = Vec::new();
    for claim in claims.collect::<Vec<_>>() {
        ids.extend(claim.await.unwrap().map(|claimed| claimed.id));
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5);
});

on_both!(a_job_that_stopping_cut_short_is_done_after_the_next_start, |app| async move {
    let ada = app.signup("acme").await;
    work(&app.app);
    let (short, long) = (Probe { takes_ms: 500, ..probe() }, Probe { takes_ms: 60_000, ..probe() });
    enqueue(&app.app, org(&ada), &short).await;
    enqueue(&app.app, org(&ada), &long).await;
    until("both are under way", || trace(short.mark).running + trace(long.mark).running == 2).await;
    let (config, data) = app.stop().await;
    assert_eq!(trace(short.mark).ended, 1, "what is nearly done is let finish");
    assert_eq!((trace(long.mark).running, trace(long.mark).ended), (0, 0));
    let again = TestApp::start(config, data).await;
    work(&again.app);
    until("it was begun again at once", || trace(long.mark).begun == 2).await;
    let claimed = store::next_due(&again.app.services.db, Probe::NAME).await.unwrap();
    assert!(claimed.is_some_and(|due| due > again.app.services.clock.now()), "it is held again");
});
