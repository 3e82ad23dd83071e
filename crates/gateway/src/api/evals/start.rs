//! The start of a run: the run, its items and its job. Few items are stored in one transaction. The cases of a large
//! dataset are copied in several, so that the changes of others do not wait for all of them; the run becomes visible in
//! the last one. If the process is killed before, the job of the run deletes what there is of it.

use std::time::Instant;

use gateway_core::audit::Draft;
use gateway_core::ids::DatasetId;
use gateway_core::logs::PromptVersionRef;
use gateway_core::quotas::Quota;
use gateway_store::datasets::{self, Dataset, Edition};
use gateway_store::evals::{self, CaseCopy, Eval, NewRun, Run};
use gateway_store::orgs;
use serde_json::{Value, json};

use super::runs::stored;
use crate::api::audited::Audited;
use crate::app::App;
use crate::auth::Identity;
use crate::jobs::postponed::Postponed;
use crate::jobs::run_eval::RunEval;
use crate::jobs::{self, Queued};
use crate::problem::{ApiResult, Problem};
use crate::{quotas, slices};

/// Unfinished runs of one organization.
const MAX_UNFINISHED: i64 = 100;

/// The dataset of a run, with its version, and the target that is called first.
#[derive(Clone, Copy, Default)]
pub(super) struct RunInput<'a> {
    pub dataset: Option<(DatasetId, Option<i64>)>,
    pub target: Option<&'a Value>,
    /// The prompt of the target.
    pub prompt: Option<&'a PromptVersionRef>,
}

/// What a run judges.
pub(super) enum NewItems {
    LogRows(Vec<i64>),
    Cases(DatasetId, Edition),
}

/// Stores a run with its items and enqueues its job.
pub(super) async fn start_run(
    app: &Audited,
    caller: &Identity,
    eval: &Eval,
    RunInput { dataset, target, prompt }: RunInput<'_>,
    items: NewItems,
) -> ApiResult<Run> {
    let (org, id) = (caller.org.id, app.services.ids.next_row_id());
    let definition = json!({"type": eval.kind, "evaluator": eval.evaluator, "config": eval.config});
    let entry = app.entry().target(eval.id, &eval.name).created(&json!({"run_id": id}));
    let mut tx = app.services.db.begin().await?;
    // The lock keeps concurrent requests from exceeding the limit.
    orgs::lock_for_update(&mut tx, org).await?;
    if evals::count_unfinished(&mut tx, org).await? >= MAX_UNFINISHED {
        return Err(Problem::conflict(format!(
            "the organization already has {MAX_UNFINISHED} unfinished runs; wait until some finish"
        )));
    }
    quotas::check(&app.services, &mut tx, &caller.org, Quota::EvalRuns).await?;
    let run = NewRun {
        id,
        org,
        eval_id: eval.id,
        dataset,
        begun_by: if dataset.is_some() { "dataset" } else { "manual" },
        definition: &definition,
        target,
        prompt,
        created_by: &caller.actor(),
        now: app.services.clock.now(),
    };
    evals::insert_run(&mut tx, &run).await?;
    match items {
        NewItems::LogRows(rows) => evals::add_log_items(&mut tx, id, &rows).await?,
        NewItems::Cases(dataset, edition) => {
            // The lock makes the items a consistent snapshot of the cases.
            let locked = datasets::find_for_update(&mut tx, org, dataset).await?;
            let locked = locked.ok_or_else(Problem::not_found)?;
            let mut copy = CaseCopy::new(id, dataset, edition);
            if !copy.copy_some(&mut tx).await? {
                copy.suspend(&mut tx).await?;
                let job = Postponed::enqueue(&app.jobs, &mut tx, org, &RunEval { run: id }).await?;
                tx.commit().await?;
                let large = LargeRun { app, caller, id, dataset: locked, edition, job };
                return Box::pin(large.complete(copy, entry)).await;
            }
            if !copy.finish(&mut tx).await? {
                return Err(too_late());
            }
        }
    }
    tx.record(entry);
    let queued = jobs::enqueue(&app.jobs, &mut tx, org, &RunEval { run: id }).await?;
    tx.commit().await?;
    started(app, caller, id, queued).await
}

fn too_late() -> Problem {
    Problem::overloaded("the copy of the cases took too long; try again shortly")
}

async fn started(app: &App, caller: &Identity, id: i64, queued: Queued) -> ApiResult<Run> {
    let run = stored(app, caller, id).await?;
    // After the read, so that the response shows the run before its job started.
    queued.notify(&app.jobs);
    Ok(run)
}

/// A run over a large dataset, whose first cases are copied.
struct LargeRun<'a> {
    app: &'a App,
    caller: &'a Identity,
    id: i64,
    /// As it was when the first cases were copied.
    dataset: Dataset,
    edition: Edition,
    job: Postponed,
}

impl LargeRun<'_> {
    async fn complete(self, copy: CaseCopy, entry: Draft) -> ApiResult<Run> {
        match self.copy_rest(copy, entry).await {
            Ok(queued) => started(self.app, self.caller, self.id, queued).await,
            Err(problem) => {
                self.give_up().await;
                Err(problem)
            }
        }
    }

    async fn copy_rest(&self, mut copy: CaseCopy, entry: Draft) -> ApiResult<Queued> {
        let (db, jobs) = (&self.app.services.db, &self.app.jobs);
        let cases = self.case_count().await?;
        let mut began = Instant::now();
        let mut is_copied = false;
        while !is_copied {
            slices::pause(began).await;
            let mut tx = db.begin().await?;
            began = Instant::now();
            if !self.job.postpone(jobs, &mut tx).await? {
                return Err(too_late());
            }
            is_copied = copy.copy_some(&mut tx).await?;
            tx.commit().await?;
        }
        let mut tx = db.begin().await?;
        let locked = datasets::find_for_update(&mut tx, self.caller.org.id, self.dataset.id).await?;
        let locked = locked.ok_or_else(Problem::not_found)?;
        // A version does not change.
        if self.edition == Edition::Working && !locked.is_unchanged_since(&self.dataset) {
            return Err(Problem::conflict(
                "the dataset was changed while its cases were copied; try again, or freeze a version and run that",
            ));
        }
        if copy.copied() != cases {
            return Err(Problem::conflict("cases of the dataset were deleted while they were copied"));
        }
        if !copy.finish(&mut tx).await? {
            return Err(too_late());
        }
        tx.record(entry);
        let queued = self.job.start(jobs, &mut tx).await?.ok_or_else(too_late)?;
        tx.commit().await?;
        Ok(queued)
    }

    /// How many cases there are to copy. The deletion of the dataset may have begun with them.
    async fn case_count(&self) -> ApiResult<i64> {
        let Edition::Frozen(number) = self.edition else { return Ok(self.dataset.case_count) };
        let (db, org) = (&self.app.services.db, self.caller.org.id);
        let version = datasets::find_version(db, org, self.dataset.id, number).await?;
        Ok(version.ok_or_else(Problem::not_found)?.case_count)
    }

    /// Lets the job delete the run now. If that fails, it does so later.
    async fn give_up(&self) {
        let start = async {
            let mut tx = self.app.services.db.begin().await?;
            let queued = self.job.start(&self.app.jobs, &mut tx).await?;
            tx.commit().await.map(|()| queued)
        };
        match start.await {
            Ok(queued) => {
                if let Some(queued) = queued {
                    queued.notify(&self.app.jobs);
                }
            }
            Err(error) => tracing::debug!(%error, run = self.id, "an incomplete run is deleted later"),
        }
    }
}
