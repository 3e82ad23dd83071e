//! Runs a replay: makes the requests of its rows again in batches, lets the chosen evals judge both answers, and records
//! the outcome of each row. After an interruption it continues with the pending rows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use gateway_core::evaluators::{Evaluator, Subject};
use gateway_core::logs::LogRow;
use gateway_core::replays::{CallFigures, ReplayTarget};
use gateway_core::statuses::RunStatus;
use gateway_core::totals::usd;
use gateway_store::replays::{self as store, Replay, ReplayItem, ReplayOutcome, ReplayScore, Verdict};
use gateway_store::{StoreError, logs};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::run_eval::{HELD_PER_BYTE, reserve_batch};
use super::{Job, JobContext, JobError, JobResult};
use crate::auth::Identity;
use crate::compute::WaitLimits;
use crate::evals::replay::{NotReplayed, replay_row};
use crate::evals::{self, EvalDefinition, ModelCaller, NoVerdict};
use crate::memory::{MemoryExhausted, Reservation};

#[derive(Debug, Serialize, Deserialize)]
pub struct RunReplay {
    pub replay: i64,
}

/// The concurrency of calls, and the batch size, so that an interruption repeats few of them.
const MAX_CONCURRENT_CALLS: usize = 8;
/// A row that failed this often counts as an error.
const MAX_ITEM_ATTEMPTS: i64 = 3;
/// Multiplied by the number of failed attempts.
const ITEM_RETRY_DELAY: Duration = Duration::from_secs(1);
/// While the organization's other requests use up its memory.
const MEMORY_RETRY_DELAY: Duration = Duration::from_secs(1);
/// How often a replay is looked up during a batch, in case it was cancelled.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A verdict is asked for so often: the answer is there already, and would have to be paid for again.
const MAX_VERDICT_ATTEMPTS: u32 = 3;
const MAX_VERDICT_DELAY: Duration = Duration::from_secs(30);

impl Job for RunReplay {
    const NAME: &'static str = "run_replay";
    const CONCURRENCY: usize = 8;
    const CONCURRENCY_PER_ORG: i64 = 1;
    const MAX_ATTEMPTS: i64 = 20;

    async fn run(&self, context: &JobContext<'_>) -> Result<JobResult, JobError> {
        let (job_services, org) = (context.job_services, context.org);
        let services = &job_services.services;
        let Some(replay) = store::start(&services.db, org, self.replay, services.clock.now()).await? else {
            return Ok(JobResult::Finished);
        };
        let Some(identity) = job_services.models.proxy.access.org_identity(org).await? else {
            return Ok(JobResult::Finished);
        };
        let mut runner = match ReplayRunner::new(context, &replay, identity).await? {
            Ok(runner) => runner,
            Err(reason) => {
                self.give_up(context, &reason).await?;
                return Ok(JobResult::Finished);
            }
        };
        loop {
            if services.tasks.is_stopping() {
                return Ok(JobResult::Reschedule(Duration::ZERO));
            }
            // Before the calls: an interruption may have come between the last outcomes and this check.
            if let Some(reason) = runner.over_max_cost().await? {
                self.give_up(context, &format!("stopped: {reason}")).await?;
                return Ok(JobResult::Finished);
            }
            // Credentials, budgets and models that were changed meanwhile count for the next calls.
            let Some(identity) = job_services.models.proxy.access.org_identity(org).await? else {
                return Ok(JobResult::Finished);
            };
            runner.identity = identity;
            let Ok(items) = runner.next_batch().await? else {
                return Ok(JobResult::Reschedule(MEMORY_RETRY_DELAY));
            };
            let Some(items) = items else { break };
            if items.attempts > 0 {
                // Rows with the fewest attempts come first, so all pending rows have failed before.
                let delay = ITEM_RETRY_DELAY.saturating_mul(u32::try_from(items.attempts).unwrap_or(1));
                let _ = tokio::time::timeout(delay, services.tasks.stopping()).await;
            }
            let Some(batch) = runner.replay(items.items).await? else { return Ok(JobResult::Finished) };
            let mut tx = services.db.begin().await?;
            if !store::record_outcomes(&mut tx, replay.id, batch.outcomes).await? {
                return Ok(JobResult::Finished);
            }
            tx.commit().await?;
            if let Some(reason) = batch.over_budget {
                self.give_up(context, &format!("stopped: {reason}")).await?;
                return Ok(JobResult::Finished);
            }
            if let Some(delay) = batch.rate_limited {
                return Ok(JobResult::Reschedule(delay));
            }
        }
        runner.finish().await?;
        Ok(JobResult::Finished)
    }

    async fn give_up(&self, context: &JobContext<'_>, reason: &str) -> Result<(), StoreError> {
        let services = &context.job_services.services;
        let end = (RunStatus::Failed, Some(reason));
        store::finish(&services.db, context.org, self.replay, end, services.clock.now()).await
    }
}

/// An eval as it was when the replay was created.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReplayEval {
    pub id: i64,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub evaluator: String,
    pub config: Value,
}

/// Rows to replay next, the memory that they take, and how often they failed.
struct Pending {
    items: Vec<ReplayItem>,
    attempts: i64,
    _memory: Reservation,
}

/// What became of a batch.
struct Batch {
    outcomes: Vec<ReplayOutcome>,
    rate_limited: Option<Duration>,
    over_budget: Option<String>,
}

struct ReplayRunner<'a> {
    context: &'a JobContext<'a>,
    id: i64,
    max_cost: Option<i64>,
    identity: Identity,
    target: ReplayTarget,
    evals: Vec<(i64, Arc<Evaluator>)>,
    metadata: Map<String, Value>,
}

impl<'a> ReplayRunner<'a> {
    /// The inner error is the reason why the replay fails.
    async fn new(
        context: &'a JobContext<'a>,
        replay: &Replay,
        identity: Identity,
    ) -> Result<Result<Self, String>, JobError> {
        let read = serde_json::from_value::<ReplayTarget>(replay.target.clone());
        let definitions = serde_json::from_value::<Vec<ReplayEval>>(replay.evals.clone());
        let (target, definitions) = match (read, definitions) {
            (Ok(target), Ok(definitions)) => (target, definitions),
            (Err(error), _) | (_, Err(error)) => return Ok(Err(format!("invalid definition: {error}"))),
        };
        let compute = &context.job_services.services.compute;
        let mut evals = Vec::with_capacity(definitions.len());
        for ReplayEval { id, name, kind, evaluator, config } in definitions {
            let definition = EvalDefinition { kind, evaluator, config };
            match evals::compile(compute, context.org, WaitLimits::JOB, definition).await? {
                Ok(evaluator) => evals.push((id, Arc::new(evaluator))),
                Err(error) => return Ok(Err(format!("eval {name}: {error}"))),
            }
        }
        let metadata = Map::from_iter([("replay_id".to_owned(), json!(replay.id))]);
        let (id, max_cost) = (replay.id, replay.max_cost);
        Ok(Ok(Self { context, id, max_cost, identity, target, evals, metadata }))
    }

    /// `None` when no row is pending.
    async fn next_batch(&self) -> Result<Result<Option<Pending>, MemoryExhausted>, StoreError> {
        let services = &self.context.job_services.services;
        let limit = i64::try_from(MAX_CONCURRENT_CALLS).unwrap_or(1);
        let mut items = store::pending_items(&services.db, self.id, limit).await?;
        let Some(first) = items.first() else { return Ok(Ok(None)) };
        let attempts = first.attempts;
        let ids: Vec<i64> = items.iter().map(|item| item.log_id).collect();
        let sizes = logs::body_sizes(&services.logs, &ids).await?;
        let sizes: Vec<i64> = ids.iter().map(|id| sizes.get(id).copied().unwrap_or(0)).collect();
        // A row is held twice: as it was, and with its new answer.
        let reserved = reserve_batch(&self.identity.org.memory, &sizes, 2 * HELD_PER_BYTE);
        Ok(reserved.map(|(count, memory)| {
            items.truncate(usize::try_from(count).unwrap_or(1));
            Some(Pending { items, attempts, _memory: memory })
        }))
    }

    /// `None` if the replay was cancelled meanwhile.
    async fn replay(&self, items: Vec<ReplayItem>) -> Result<Option<Batch>, JobError> {
        let ids: Vec<i64> = items.iter().map(|item| item.log_id).collect();
        let services = &self.context.job_services.services;
        let rows = logs::find_many(&services.logs, self.context.org, &ids, true).await?;
        let mut rows: HashMap<i64, LogRow> = rows.into_iter().map(|row| (row.id, row)).collect();
        let work: Vec<_> = items.into_iter().map(|item| (rows.remove(&item.log_id), item)).collect();
        let calls = futures_util::stream::iter(work)
            .map(|(row, item)| self.replay_item(item, row))
            .buffer_unordered(MAX_CONCURRENT_CALLS)
            .collect::<Vec<_>>();
        let replayed = tokio::select! {
            replayed = calls => replayed,
            () = self.cancelled() => return Ok(None),
        };
        let mut batch = Batch { outcomes: Vec::new(), rate_limited: None, over_budget: None };
        for (item, result) in replayed {
            let position = item.position;
            match result {
                Ok(outcome) => batch.outcomes.push(outcome),
                Err(NotReplayed::Budget(reason)) => batch.over_budget = Some(reason),
                Err(NotReplayed::Item(NoVerdict::RateLimited(delay))) => {
                    batch.rate_limited = batch.rate_limited.max(Some(delay));
                }
                Err(NotReplayed::Item(NoVerdict::Retry(error))) if item.attempts + 1 < MAX_ITEM_ATTEMPTS => {
                    batch.outcomes.push(ReplayOutcome::Retry { position, error });
                }
                Err(NotReplayed::Item(NoVerdict::Retry(error) | NoVerdict::Permanent(error))) => {
                    batch.outcomes.push(ReplayOutcome::Error { position, error });
                }
            }
        }
        Ok(Some(batch))
    }

    async fn replay_item(
        &self,
        item: ReplayItem,
        row: Option<LogRow>,
    ) -> (ReplayItem, Result<ReplayOutcome, NotReplayed>) {
        let Some(row) = row else {
            let gone = NoVerdict::Permanent("the log row was deleted".into());
            return (item, Err(NotReplayed::Item(gone)));
        };
        let after = match replay_row(&self.caller(), &self.target, &row).await {
            Ok(after) => after,
            Err(error) => return (item, Err(error)),
        };
        let figures = CallFigures::of(&after);
        let (before, after) = (Arc::new(row), Arc::new(after));
        let mut scores = Vec::with_capacity(self.evals.len());
        for (eval_id, evaluator) in &self.evals {
            let (old, new) = (self.verdict(evaluator, &before).await, self.verdict(evaluator, &after).await);
            let error = old.as_ref().err().or(new.as_ref().err()).cloned();
            let (before, after) = (old.ok(), new.ok());
            scores.push(ReplayScore { position: item.position, eval_id: *eval_id, before, after, error });
        }
        let (position, replay_log_id) = (item.position, after.id);
        (item, Ok(ReplayOutcome::Done { position, replay_log_id, after: figures, scores }))
    }

    /// The verdict of an eval, or why there is none.
    async fn verdict(&self, evaluator: &Arc<Evaluator>, row: &Arc<LogRow>) -> Result<Verdict, String> {
        let mut attempts = 0;
        loop {
            let row = Arc::clone(row);
            let subject = move |evaluator: &Evaluator| Ok(Subject::from_row(&evaluator.field, &row));
            attempts += 1;
            let (delay, reason) = match evals::judge(&self.caller(), evaluator, subject).await {
                Ok(verdict) => return Ok(Verdict { score: verdict.score, passed: verdict.passed }),
                Err(NoVerdict::Permanent(reason)) => return Err(reason),
                Err(NoVerdict::Retry(reason)) => (ITEM_RETRY_DELAY * attempts, reason),
                Err(NoVerdict::RateLimited(delay)) => {
                    (delay.min(MAX_VERDICT_DELAY), "the rate limit of the organization was reached".into())
                }
            };
            if attempts >= MAX_VERDICT_ATTEMPTS {
                return Err(reason);
            }
            tokio::time::sleep(delay).await;
        }
    }

    /// Why the replay must stop, if its calls cost as much as they may.
    async fn over_max_cost(&self) -> Result<Option<String>, StoreError> {
        let Some(max_cost) = self.max_cost else { return Ok(None) };
        let db = &self.context.job_services.services.db;
        let Some(replay) = store::find(db, self.context.org, self.id).await? else { return Ok(None) };
        let is_over = replay.spent >= max_cost && replay.done + replay.errors < replay.total;
        Ok(is_over.then(|| {
            let (spent, max) = (usd(replay.spent), usd(max_cost));
            format!("the calls cost {spent} USD so far, and max_cost_usd is {max}")
        }))
    }

    /// Ends the replay when no row is pending. A replay without any new answer has failed.
    async fn finish(&self) -> Result<(), StoreError> {
        let services = &self.context.job_services.services;
        let Some(replay) = store::find(&services.db, self.context.org, self.id).await? else { return Ok(()) };
        let mut error = None;
        if replay.done == 0 {
            let first = store::list_items(&services.db, &replay, -1, 1).await?.pop();
            let reason = first.and_then(|item| item.error).unwrap_or_else(|| "there was none".into());
            error = Some(format!("none of {} rows could be replayed; first error: {reason}", replay.total));
        }
        let status = if error.is_some() { RunStatus::Failed } else { RunStatus::Completed };
        let end = (status, error.as_deref());
        store::finish(&services.db, self.context.org, self.id, end, services.clock.now()).await
    }

    /// Resolves when the replay was cancelled or deleted.
    async fn cancelled(&self) {
        let db = &self.context.job_services.services.db;
        loop {
            tokio::time::sleep(CANCEL_CHECK_INTERVAL).await;
            match store::find(db, self.context.org, self.id).await {
                Ok(Some(replay)) if replay.status == RunStatus::Running => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::debug!(%error, replay = self.id, "cannot check whether a replay was cancelled");
                }
            }
        }
    }

    fn caller(&self) -> ModelCaller<'_> {
        ModelCaller {
            models: &self.context.job_services.models,
            identity: &self.identity,
            metadata: &self.metadata,
        }
    }
}
