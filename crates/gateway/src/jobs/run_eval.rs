//! A run of an eval: takes the items that wait, judges them, and notes what became of each. JobResult again after an
//! interruption it goes on with the items that still wait, so that each is in the results exactly once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use gateway_core::evaluators::{Evaluator, Subject, Verdict};
use gateway_core::logs::LogRow;
use gateway_store::evals::{self as store, ItemOutcome, NewEvalResult, Run, RunEnd, RunItem, RunStatus};
use gateway_store::{StoreError, logs};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::export_verdicts::{self, ExportVerdicts};
use super::{Job, JobContext, JobError, JobResult};
use crate::auth::Identity;
use crate::evals::target::{self, Case, Target};
use crate::evals::{self, NoVerdict};

#[derive(Debug, Serialize, Deserialize)]
pub struct RunEval {
    pub run: i64,
}

/// Items that are judged before they are noted, where no model is asked.
const BATCH: i64 = 250;
/// The same where one is: as many as are asked at once, so that little is asked again after an interruption.
const ASKED_AT_ONCE: usize = 8;
/// How often an item is tried before it counts as an error.
const TRIES: i64 = 3;
const PAUSE: Duration = Duration::from_secs(1);

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
            return Ok(JobResult::Finished);
        };
        let Some(identity) = job_services.models.proxy.access.org_identity(org).await? else {
            return Ok(JobResult::Finished);
        };
        let work = match Work::new(context, &run, identity) {
            Ok(work) => work,
            Err(why) => {
                self.give_up(context, &why).await?;
                return Ok(JobResult::Finished);
            }
        };
        loop {
            if job_services.services.tasks.is_stopping() {
                return Ok(JobResult::Reschedule(Duration::ZERO));
            }
            if export_verdicts::is_behind(job_services).await? {
                return Ok(JobResult::Reschedule(PAUSE));
            }
            let items = store::pending_items(&job_services.services.db, run.id, work.at_once()).await?;
            let Some(first) = items.first() else { break };
            if first.attempts > 0 {
                // Everything that waits has failed before.
                let pause = PAUSE.saturating_mul(u32::try_from(first.attempts).unwrap_or(1));
                let _ = tokio::time::timeout(pause, job_services.services.tasks.stopping()).await;
            }
            let (outcomes, wait) = work.judge(items).await?;
            if !record(context, &run, outcomes).await? {
                return Ok(JobResult::Finished);
            }
            if let Some(wait) = wait {
                return Ok(JobResult::Reschedule(wait));
            }
        }
        finish(context, run.id).await?;
        Ok(JobResult::Finished)
    }

    async fn give_up(&self, context: &JobContext<'_>, why: &str) -> Result<(), StoreError> {
        let job_services = context.job_services;
        let end =
            RunEnd { status: RunStatus::Failed, error: Some(why), at: job_services.services.clock.now() };
        store::finish_run(&job_services.services.db, context.org, self.run, end).await
    }
}

/// Notes what became of items, and has exports told of the verdicts on log rows. False when the run is at its end.
async fn record(context: &JobContext<'_>, run: &Run, outcomes: Vec<ItemOutcome>) -> Result<bool, StoreError> {
    let job_services = context.job_services;
    let judged = outcomes.iter().filter_map(|outcome| match outcome {
        ItemOutcome::Judged(result) => result.log_id.map(|_| result.id),
        ItemOutcome::Retry { .. } | ItemOutcome::Error { .. } => None,
    });
    let told = ExportVerdicts { results: judged.collect(), ..Default::default() };
    let told = told.wanted(job_services, context.org).await?;
    let mut tx = job_services.services.db.begin().await?;
    if !store::record_outcomes(&mut tx, run, outcomes, job_services.services.clock.now()).await? {
        return Ok(false);
    }
    let queued = export_verdicts::enqueue(job_services, &mut tx, context.org, told.as_ref()).await?;
    tx.commit().await?;
    if let Some(queued) = queued {
        queued.notify(job_services);
    }
    Ok(true)
}

/// Everything has been tried: a run that judged nothing has failed, and says why.
async fn finish(context: &JobContext<'_>, id: i64) -> Result<(), StoreError> {
    let (job_services, org) = (context.job_services, context.org);
    let Some(run) = store::find_run(&job_services.services.db, org, id).await? else { return Ok(()) };
    let error = if run.passed + run.failed > 0 {
        None
    } else if run.total == 0 {
        Some("there was nothing to judge: no log row or case fits".to_owned())
    } else {
        let first = store::item_errors(&job_services.services.db, org, id, 1).await?.pop();
        let why = first.map(|first| format!("; the first: {}", first.error)).unwrap_or_default();
        Some(format!("none of {} items could be judged{why}", run.total))
    };
    let status = if error.is_some() { RunStatus::Failed } else { RunStatus::Completed };
    let end = RunEnd { status, error: error.as_deref(), at: job_services.services.clock.now() };
    store::finish_run(&job_services.services.db, org, id, end).await
}

/// What is needed for each item of a run.
struct Work<'a> {
    context: &'a JobContext<'a>,
    identity: Identity,
    evaluator: Arc<Evaluator>,
    target: Option<Target>,
    metadata: Map<String, Value>,
}

/// What came of an item: a verdict, with the log row that it is on.
type Judged = (RunItem, Result<(Verdict, Option<i64>), NoVerdict>);

impl<'a> Work<'a> {
    fn new(context: &'a JobContext<'a>, run: &Run, identity: Identity) -> Result<Self, String> {
        let text = |name: &str| run.definition.get(name).and_then(Value::as_str).unwrap_or_default();
        let config = run.definition.get("config").unwrap_or(&Value::Null);
        let evaluator =
            Evaluator::parse(text("type"), text("evaluator"), config).map_err(|error| error.to_string())?;
        let target = run.target.clone().map(serde_json::from_value).transpose();
        Ok(Self {
            context,
            identity,
            evaluator: Arc::new(evaluator),
            target: target.map_err(|error| format!("the target cannot be read: {error}"))?,
            metadata: Map::from_iter([
                ("eval_id".to_owned(), json!(run.eval_id)),
                ("eval_run_id".to_owned(), json!(run.id)),
            ]),
        })
    }

    fn asks_models(&self) -> bool {
        self.target.is_some() || evals::asks_models(&self.context.job_services.models, &self.evaluator)
    }

    fn at_once(&self) -> i64 {
        if self.asks_models() { i64::try_from(ASKED_AT_ONCE).unwrap_or(1) } else { BATCH }
    }

    /// What becomes of these items, and how long to wait before more are tried.
    async fn judge(&self, items: Vec<RunItem>) -> Result<(Vec<ItemOutcome>, Option<Duration>), JobError> {
        let judged = if self.asks_models() { self.ask(items).await? } else { self.look(items).await? };
        let mut outcomes = Vec::with_capacity(judged.len());
        let mut wait = None;
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
                Err(NoVerdict::Wait(until)) => wait = Some(until.max(wait.unwrap_or_default())),
                Err(NoVerdict::Again(error)) if item.attempts + 1 < TRIES => {
                    outcomes.push(ItemOutcome::Retry { position, error });
                }
                Err(NoVerdict::Again(error) | NoVerdict::Never(error)) => {
                    outcomes.push(ItemOutcome::Error { position, error });
                }
            }
        }
        Ok((outcomes, wait))
    }

    /// Judges from what is there: on a thread that nobody waits for.
    async fn look(&self, items: Vec<RunItem>) -> Result<Vec<Judged>, JobError> {
        let mut rows = self.rows(&items).await?;
        let evaluator = Arc::clone(&self.evaluator);
        let (job_services, identity, metadata) =
            (Arc::clone(self.context.job_services), self.identity.clone(), self.metadata.clone());
        let seen = tokio::task::spawn_blocking(move || {
            items
                .into_iter()
                .map(|item| {
                    let subject = subject(&evaluator, &item, &mut rows);
                    let verdict = subject.as_ref().ok().and_then(|subject| evaluator.evaluate(subject));
                    (item, subject, verdict)
                })
                .collect::<Vec<_>>()
        });
        let seen = seen.await.map_err(|error| JobError(error.to_string()))?;
        let mut judged = Vec::with_capacity(seen.len());
        for (item, subject, verdict) in seen {
            let log_id = item.log_id;
            let result = match (subject, verdict) {
                (Err(none), _) => Err(none),
                (Ok(_), Some(verdict)) => verdict.map_err(Into::into),
                // The built-in embedding.
                (Ok(subject), None) => {
                    evals::judge(&job_services.models, &identity, &self.evaluator, &subject, &metadata).await
                }
            };
            judged.push((item, result.map(|verdict| (verdict, log_id))));
        }
        Ok(judged)
    }

    /// Judges with the help of models, several items at once.
    async fn ask(&self, items: Vec<RunItem>) -> Result<Vec<Judged>, JobError> {
        let rows = self.rows(&items).await?;
        let one = |item: RunItem| {
            let mut rows: HashMap<i64, LogRow> = item
                .log_id
                .and_then(|id| rows.get(&id).cloned())
                .into_iter()
                .map(|row| (row.id, row))
                .collect();
            async move {
                let result = self.ask_one(&item, &mut rows).await;
                (item, result)
            }
        };
        Ok(futures_util::stream::iter(items).map(one).buffer_unordered(ASKED_AT_ONCE).collect().await)
    }

    async fn ask_one(
        &self,
        item: &RunItem,
        rows: &mut HashMap<i64, LogRow>,
    ) -> Result<(Verdict, Option<i64>), NoVerdict> {
        let job_services = self.context.job_services;
        let (subject, log_id) = match (&self.target, &item.input) {
            (Some(target), Some(input)) => {
                let case = Case { input, expected: expected(item) };
                let asked = target::ask(
                    &job_services.models,
                    &self.identity,
                    target,
                    &self.evaluator.field,
                    case,
                    &self.metadata,
                );
                let (subject, log_id) = asked.await?;
                (subject, Some(log_id))
            }
            _ => (subject(&self.evaluator, item, rows)?, item.log_id),
        };
        let verdict =
            evals::judge(&job_services.models, &self.identity, &self.evaluator, &subject, &self.metadata)
                .await?;
        Ok((verdict, log_id))
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

/// What an item is about: a log row, or a case whose answer is at hand.
fn subject(
    evaluator: &Evaluator,
    item: &RunItem,
    rows: &mut HashMap<i64, LogRow>,
) -> Result<Subject, NoVerdict> {
    if let Some(input) = &item.input {
        let given = item.metadata.as_ref().and_then(|metadata| metadata.get("output"));
        let output = given.or(expected(item));
        return Ok(Subject::from_case(&evaluator.field, input, output, expected(item)));
    }
    let row = item.log_id.and_then(|id| rows.remove(&id));
    let row = row.ok_or_else(|| NoVerdict::Never("the log row is no longer there".into()))?;
    Ok(Subject::from_row(&evaluator.field, &row))
}

fn expected(item: &RunItem) -> Option<&Value> {
    item.expected.as_ref().filter(|expected| !expected.is_null())
}
