//! Runs an eval: judges the pending items in batches and records the outcome of each. After an interruption it
//! continues with the pending items, so that each item has exactly one result. A run whose items were never complete is
//! deleted instead.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use gateway_core::evaluators::{Evaluator, Subject, Verdict};
use gateway_core::logs::LogRow;
use gateway_store::evals::{
    self as store, ItemOutcome, NewEvalResult, PendingSize, Run, RunEnd, RunItem, RunStatus,
};
use gateway_store::faults::{KillPoint, kill_point};
use gateway_store::partial_deletion::RowsToDelete;
use gateway_store::{StoreError, logs};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::export_verdicts::{self, ExportVerdicts};
use super::{Job, JobContext, JobError, JobResult};
use crate::auth::Identity;
use crate::compute::WaitLimits;
use crate::evals::target::{self, Case, Target};
use crate::evals::{self, EvalDefinition, ModelCaller, NoVerdict};
use crate::memory::{MemoryAccount, MemoryExhausted, Reservation};
use crate::slices;

#[derive(Debug, Serialize, Deserialize)]
pub struct RunEval {
    pub run: i64,
}

/// Items per batch if the eval calls no model.
const BATCH_SIZE: i64 = 250;
/// The size of the items and rows in one batch. A single larger one is judged alone.
const MAX_BATCH_BYTES: i64 = 8 << 20;
/// A row is held together with the texts that are judged.
pub(super) const HELD_PER_BYTE: i64 = 2;
/// While the organization's other requests use up its memory.
const MEMORY_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The concurrency of model calls. It is also the batch size of such evals, so that an interruption repeats few calls.
const MAX_CONCURRENT_CALLS: usize = 8;
/// An item that failed this often counts as an error.
const MAX_ITEM_ATTEMPTS: i64 = 3;
const EXPORT_BACKLOG_DELAY: Duration = Duration::from_secs(1);
const DISCARD_RETRY_DELAY: Duration = Duration::from_secs(5);
/// How often a run that takes long is looked up, in case it was cancelled.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Multiplied by the number of failed attempts.
const ITEM_RETRY_DELAY: Duration = Duration::from_secs(1);

impl Job for RunEval {
    const NAME: &'static str = "run_eval";
    const CONCURRENCY: usize = 8;
    const CONCURRENCY_PER_ORG: i64 = 2;
    const MAX_ATTEMPTS: i64 = 20;

    async fn run(&self, context: &JobContext<'_>) -> Result<JobResult, JobError> {
        let (job_services, org) = (context.job_services, context.org);
        let Some(run) =
            store::start_run(&job_services.services.db, org, self.run, job_services.services.clock.now())
                .await?
        else {
            return discard_incomplete(context, self.run).await;
        };
        kill_point(KillPoint::RunStarted);
        let Some(identity) = job_services.models.proxy.access.org_identity(org).await? else {
            return Ok(JobResult::Finished);
        };
        let runner = match EvalRunner::new(context, &run, identity).await? {
            Ok(runner) => runner,
            Err(reason) => {
                self.give_up(context, &reason).await?;
                return Ok(JobResult::Finished);
            }
        };
        loop {
            if job_services.services.tasks.is_stopping() {
                return Ok(JobResult::Reschedule(Duration::ZERO));
            }
            if export_verdicts::is_behind(job_services, org).await? {
                return Ok(JobResult::Reschedule(EXPORT_BACKLOG_DELAY));
            }
            let Ok((count, _memory)) = runner.next_batch(run.id).await? else {
                return Ok(JobResult::Reschedule(MEMORY_RETRY_DELAY));
            };
            if count == 0 {
                break;
            }
            let items = store::pending_items(&job_services.services.db, run.id, count).await?;
            let Some(first) = items.first() else { break };
            if first.attempts > 0 {
                // Items with the fewest attempts come first, so all pending items have failed before.
                let delay = ITEM_RETRY_DELAY.saturating_mul(u32::try_from(first.attempts).unwrap_or(1));
                let _ = tokio::time::timeout(delay, job_services.services.tasks.stopping()).await;
            }
            let Some((outcomes, rate_limited)) = Box::pin(runner.judge(items)).await? else {
                return Ok(JobResult::Finished);
            };
            kill_point(KillPoint::ItemsJudged);
            if !record(context, &run, outcomes).await? {
                return Ok(JobResult::Finished);
            }
            kill_point(KillPoint::ItemsRecorded);
            if let Some(delay) = rate_limited {
                return Ok(JobResult::Reschedule(delay));
            }
        }
        finish(context, run.id).await?;
        kill_point(KillPoint::RunFinished);
        Ok(JobResult::Finished)
    }

    async fn give_up(&self, context: &JobContext<'_>, reason: &str) -> Result<(), StoreError> {
        discard(context, self.run).await?;
        let job_services = context.job_services;
        let end =
            RunEnd { status: RunStatus::Failed, error: Some(reason), at: job_services.services.clock.now() };
        store::finish_run(&job_services.services.db, context.org, self.run, end).await
    }
}

/// Deletes a run if its items were not complete when the request that made it ended.
async fn discard(context: &JobContext<'_>, run: i64) -> Result<(), StoreError> {
    let (services, org) = (&context.job_services.services, context.org);
    if store::doom_incomplete(&services.db, org, run, services.clock.now()).await? {
        slices::delete_rows(&services.db, org, RowsToDelete::EvalRun(run)).await?;
        store::delete_incomplete(&services.db, org, run).await?;
    }
    Ok(())
}

/// A failure to delete an incomplete run does not count as an attempt, because nothing else deletes it.
async fn discard_incomplete(context: &JobContext<'_>, run: i64) -> Result<JobResult, JobError> {
    if let Err(error) = discard(context, run).await {
        tracing::debug!(%error, run, "cannot delete an incomplete run yet");
        return Ok(JobResult::Reschedule(DISCARD_RETRY_DELAY));
    }
    Ok(JobResult::Finished)
}

/// Records the outcomes and enqueues the export of verdicts on log rows. Returns false if the run has already ended.
async fn record(context: &JobContext<'_>, run: &Run, outcomes: Vec<ItemOutcome>) -> Result<bool, StoreError> {
    let job_services = context.job_services;
    let judged = outcomes.iter().filter_map(|outcome| match outcome {
        ItemOutcome::Judged(result) => result.log_id.map(|_| result.id),
        ItemOutcome::Retry { .. } | ItemOutcome::Error { .. } => None,
    });
    let export_job = ExportVerdicts { results: judged.collect(), ..Default::default() };
    let export_job = export_job.if_needed(job_services, context.org).await?;
    let mut tx = job_services.services.db.begin().await?;
    if !store::record_outcomes(&mut tx, run, outcomes, job_services.services.clock.now()).await? {
        return Ok(false);
    }
    let queued = export_verdicts::enqueue(job_services, &mut tx, context.org, export_job.as_ref()).await?;
    tx.commit().await?;
    if let Some(queued) = queued {
        queued.notify(job_services);
    }
    Ok(true)
}

/// Ends the run when no items are pending. A run without any verdict has failed.
async fn finish(context: &JobContext<'_>, id: i64) -> Result<(), StoreError> {
    let (job_services, org) = (context.job_services, context.org);
    let Some(run) = store::find_run(&job_services.services.db, org, id).await? else { return Ok(()) };
    let error = if run.passed + run.failed > 0 {
        None
    } else if run.total == 0 {
        Some("nothing to judge: no log row or case matches".to_owned())
    } else {
        let first = store::item_errors(&job_services.services.db, org, id, 1).await?.pop();
        let detail = first.map(|first| format!("; first error: {}", first.error)).unwrap_or_default();
        Some(format!("none of {} items could be judged{detail}", run.total))
    };
    let status = if error.is_some() { RunStatus::Failed } else { RunStatus::Completed };
    let end = RunEnd { status, error: error.as_deref(), at: job_services.services.clock.now() };
    store::finish_run(&job_services.services.db, org, id, end).await
}

/// Judges the items of one run.
struct EvalRunner<'a> {
    context: &'a JobContext<'a>,
    run: i64,
    identity: Identity,
    evaluator: Arc<Evaluator>,
    target: Option<Target>,
    metadata: Map<String, Value>,
}

/// An item with its verdict and the judged log row.
type JudgedItem = (RunItem, Result<(Verdict, Option<i64>), NoVerdict>);

/// The outcomes of a batch, and the delay if the organization reached its rate limit.
type Outcomes = (Vec<ItemOutcome>, Option<Duration>);

impl<'a> EvalRunner<'a> {
    /// The inner error is the reason why the run fails.
    async fn new(
        context: &'a JobContext<'a>,
        run: &Run,
        identity: Identity,
    ) -> Result<Result<Self, String>, JobError> {
        let text =
            |name: &str| run.definition.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let config = run.definition.get("config").cloned().unwrap_or(Value::Null);
        let definition = EvalDefinition { kind: text("type"), evaluator: text("evaluator"), config };
        let compute = &context.job_services.services.compute;
        let evaluator = match evals::compile(compute, context.org, WaitLimits::JOB, definition).await? {
            Ok(evaluator) => Arc::new(evaluator),
            Err(error) => return Ok(Err(error.to_string())),
        };
        let target = match run.target.clone().map(serde_json::from_value).transpose() {
            Ok(target) => target,
            Err(error) => return Ok(Err(format!("invalid target: {error}"))),
        };
        let metadata = Map::from_iter([
            ("eval_id".to_owned(), json!(run.eval_id)),
            ("eval_run_id".to_owned(), json!(run.id)),
        ]);
        Ok(Ok(Self { context, run: run.id, identity, evaluator, target, metadata }))
    }

    fn calls_models(&self) -> bool {
        self.target.is_some() || evals::calls_models(&self.context.job_services.models, &self.evaluator)
    }

    fn batch_size(&self) -> i64 {
        if self.calls_models() { i64::try_from(MAX_CONCURRENT_CALLS).unwrap_or(1) } else { BATCH_SIZE }
    }

    /// How many of the pending items are judged next, 0 when none is pending, and the memory that they take.
    async fn next_batch(&self, run: i64) -> Result<Result<(i64, Reservation), MemoryExhausted>, StoreError> {
        let services = &self.context.job_services.services;
        let pending = store::pending_sizes(&services.db, run, self.batch_size()).await?;
        let ids: Vec<i64> = pending.iter().filter_map(|item| item.log_id).collect();
        let bodies =
            if ids.is_empty() { HashMap::new() } else { logs::body_sizes(&services.logs, &ids).await? };
        let body = |item: &PendingSize| item.log_id.and_then(|id| bodies.get(&id)).copied().unwrap_or(0);
        let sizes: Vec<i64> = pending.iter().map(|item| item.size + body(item)).collect();
        Ok(reserve_batch(&self.identity.org.memory, &sizes, HELD_PER_BYTE))
    }

    /// Returns the outcomes of the items, and the delay if the organization reached its rate limit. `None` if the run
    /// was cancelled meanwhile.
    async fn judge(&self, items: Vec<RunItem>) -> Result<Option<Outcomes>, JobError> {
        let judging = async {
            if self.calls_models() {
                self.judge_with_models(items).await
            } else {
                self.judge_locally(items).await
            }
        };
        let judged = tokio::select! {
            judged = judging => judged?,
            () = self.cancelled() => return Ok(None),
        };
        let mut outcomes = Vec::with_capacity(judged.len());
        let mut rate_limited: Option<Duration> = None;
        for (item, result) in judged {
            let position = item.position;
            match result {
                Ok((verdict, log_id)) => outcomes.push(ItemOutcome::Judged(NewEvalResult {
                    id: self.context.job_services.services.ids.next_row_id(),
                    position,
                    log_id,
                    case_id: item.case_id,
                    score: verdict.score,
                    passed: verdict.passed,
                    details: verdict.details,
                })),
                Err(NoVerdict::RateLimited(delay)) => rate_limited = rate_limited.max(Some(delay)),
                Err(NoVerdict::Retry(error)) if item.attempts + 1 < MAX_ITEM_ATTEMPTS => {
                    outcomes.push(ItemOutcome::Retry { position, error });
                }
                Err(NoVerdict::Retry(error) | NoVerdict::Permanent(error)) => {
                    outcomes.push(ItemOutcome::Error { position, error });
                }
            }
        }
        Ok(Some((outcomes, rate_limited)))
    }

    /// Resolves when the run was cancelled or deleted.
    async fn cancelled(&self) {
        let db = &self.context.job_services.services.db;
        loop {
            tokio::time::sleep(CANCEL_CHECK_INTERVAL).await;
            match store::find_run(db, self.context.org, self.run).await {
                Ok(Some(run)) if run.status == RunStatus::Running => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::debug!(%error, run = self.run, "cannot check whether a run was cancelled");
                }
            }
        }
    }

    /// Judges without model calls, item by item, so that other organizations have their turns in between.
    async fn judge_locally(&self, items: Vec<RunItem>) -> Result<Vec<JudgedItem>, JobError> {
        let mut rows = self.rows(&items).await?;
        let mut judged = Vec::with_capacity(items.len());
        for item in items {
            let row = item.log_id.and_then(|id| rows.remove(&id));
            let (item, result) = self.judge_item(item, row).await;
            judged.push((item, result));
        }
        Ok(judged)
    }

    /// Judges a log row, or a case with a given output.
    async fn judge_item(&self, item: RunItem, row: Option<LogRow>) -> JudgedItem {
        let log_id = item.log_id;
        let item = Arc::new(item);
        let shared = Arc::clone(&item);
        let subject = move |evaluator: &Evaluator| subject(evaluator, &shared, row.as_ref());
        let verdict = evals::judge(&self.caller(), &self.evaluator, subject).await;
        (Arc::unwrap_or_clone(item), verdict.map(|verdict| (verdict, log_id)))
    }

    /// Judges with model calls, several items concurrently.
    async fn judge_with_models(&self, items: Vec<RunItem>) -> Result<Vec<JudgedItem>, JobError> {
        let rows = self.rows(&items).await?;
        let judge_item = |item: RunItem| {
            let row = item.log_id.and_then(|id| rows.get(&id).cloned());
            self.judge_with_model(item, row)
        };
        Ok(futures_util::stream::iter(items)
            .map(judge_item)
            .buffer_unordered(MAX_CONCURRENT_CALLS)
            .collect()
            .await)
    }

    async fn judge_with_model(&self, item: RunItem, row: Option<LogRow>) -> JudgedItem {
        let (Some(target), Some(input)) = (&self.target, &item.input) else {
            return self.judge_item(item, row).await;
        };
        let (caller, case) = (self.caller(), Case { input, expected: expected(&item) });
        let result = async {
            let (subject, log_id) = target::call_target(&caller, target, &self.evaluator.field, case).await?;
            let verdict = evals::judge(&caller, &self.evaluator, move |_| Ok(subject)).await?;
            Ok((verdict, Some(log_id)))
        };
        let result = result.await;
        (item, result)
    }

    fn caller(&self) -> ModelCaller<'_> {
        ModelCaller {
            models: &self.context.job_services.models,
            identity: &self.identity,
            metadata: &self.metadata,
        }
    }

    async fn rows(&self, items: &[RunItem]) -> Result<HashMap<i64, LogRow>, StoreError> {
        let ids: Vec<i64> = items.iter().filter_map(|item| item.log_id).collect();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let rows =
            logs::find_many(&self.context.job_services.services.logs, self.context.org, &ids, true).await?;
        Ok(rows.into_iter().map(|row| (row.id, row)).collect())
    }
}

/// Reserves the memory of a batch: as many of the first items as there is room for, at least one. Less room makes
/// smaller batches, not a run that waits.
pub fn reserve_batch(
    memory: &Arc<MemoryAccount>,
    sizes: &[i64],
    held_per_byte: i64,
) -> Result<(i64, Reservation), MemoryExhausted> {
    let mut max_bytes = MAX_BATCH_BYTES;
    loop {
        let (count, bytes) = batch_within(sizes, max_bytes);
        let held = usize::try_from(bytes.saturating_mul(held_per_byte)).unwrap_or(0);
        match memory.reserve(held) {
            Ok(reservation) => return Ok((count, reservation)),
            Err(exhausted) if count <= 1 => return Err(exhausted),
            Err(_) => max_bytes = bytes / 2,
        }
    }
}

/// How many of the first items have at most so many bytes, at least one, and their size.
fn batch_within(sizes: &[i64], max_bytes: i64) -> (i64, i64) {
    let (mut count, mut bytes) = (0, 0_i64);
    for &size in sizes {
        if count > 0 && bytes.saturating_add(size) > max_bytes {
            break;
        }
        (count, bytes) = (count + 1, bytes.saturating_add(size));
    }
    (count, bytes)
}

/// The subject of an item: a log row, or a case with a given output.
fn subject(evaluator: &Evaluator, item: &RunItem, row: Option<&LogRow>) -> Result<Subject, NoVerdict> {
    if let Some(input) = &item.input {
        let given = item.metadata.as_ref().and_then(|metadata| metadata.get("output"));
        let output = given.or(expected(item));
        return Ok(Subject::from_case(&evaluator.field, input, output, expected(item)));
    }
    let row = row.ok_or_else(|| NoVerdict::Permanent("the log row was deleted".into()))?;
    Ok(Subject::from_row(&evaluator.field, row))
}

fn expected(item: &RunItem) -> Option<&Value> {
    item.expected.as_ref().filter(|expected| !expected.is_null())
}

#[cfg(test)]
mod tests {
    use gateway_core::ids::OrgId;

    use super::*;
    use crate::memory::MemoryBudget;

    #[test]
    fn a_batch_is_bounded_by_its_bytes() {
        let mebibytes = |sizes: &[i64]| {
            let sizes: Vec<i64> = sizes.iter().map(|size| size << 20).collect();
            batch_within(&sizes, MAX_BATCH_BYTES)
        };
        assert_eq!(mebibytes(&[]), (0, 0));
        assert_eq!(mebibytes(&[3, 3, 3]), (2, 6 << 20));
        assert_eq!(mebibytes(&[4, 4, 1]), (2, 8 << 20));
        assert_eq!(mebibytes(&[20, 1]), (1, 20 << 20));
        assert_eq!(batch_within(&[10; 250], MAX_BATCH_BYTES), (250, 2_500));
    }

    #[test]
    fn a_batch_is_smaller_when_there_is_less_room() {
        let budget = MemoryBudget::new(2 << 20);
        let account = budget.account(OrgId(uuid::Uuid::from_u128(1)));
        // Half of the budget is the share of one organization.
        let (count, memory) = reserve_batch(&account, &[100 << 10; 50], HELD_PER_BYTE).unwrap();
        assert!((1..=5).contains(&count), "{count}");
        assert_eq!(memory.bytes(), usize::try_from(count * HELD_PER_BYTE * (100 << 10)).unwrap());
        let refused = reserve_batch(&account, &[2 << 20, 10], HELD_PER_BYTE);
        assert!(refused.is_err(), "one item that never fits");
        assert_eq!(reserve_batch(&account, &[], HELD_PER_BYTE).unwrap().0, 0);
    }
}
