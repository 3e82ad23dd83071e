//! Judges sampled rows of live traffic. Rows with a verdict are skipped, so that a repeated job calls no model twice.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::evaluators::{Evaluator, Subject};
use gateway_store::evals::{self as store, NewEvalResult};
use gateway_store::faults::{KillPoint, kill_point};
use gateway_store::{StoreError, logs};
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use super::export_verdicts::{self, ExportVerdicts};
use super::run_eval::{HELD_PER_BYTE, reserve_batch};
use super::{Job, JobContext, JobError, JobResult};
use crate::compute::WaitLimits;
use crate::evals::{self, EvalDefinition, ModelCaller, NoVerdict};

#[derive(Debug, Serialize, Deserialize)]
pub struct JudgeLive(pub Vec<SampledRows>);

#[derive(Debug, Serialize, Deserialize)]
pub struct SampledRows {
    pub eval: i64,
    pub log_ids: Vec<i64>,
}

/// Verdicts are stored in batches of at most this size, so that an interruption loses few.
const BATCH_SIZE: usize = 50;
/// While the organization's requests use up its memory.
const MEMORY_DELAY: Duration = Duration::from_secs(1);
const EXPORT_BACKLOG_DELAY: Duration = Duration::from_secs(1);

impl Job for JudgeLive {
    const NAME: &'static str = "judge_live";
    const CONCURRENCY: usize = 4;
    const CONCURRENCY_PER_ORG: i64 = 2;
    const MAX_ATTEMPTS: i64 = 6;

    async fn run(&self, context: &JobContext<'_>) -> Result<JobResult, JobError> {
        for rows in &self.0 {
            let result = judge(context, rows).await?;
            if result != JobResult::Finished {
                return Ok(result);
            }
        }
        Ok(JobResult::Finished)
    }

    async fn give_up(&self, _: &JobContext<'_>, _: &str) -> Result<(), StoreError> {
        Ok(())
    }
}

async fn judge(context: &JobContext<'_>, rows: &SampledRows) -> Result<JobResult, JobError> {
    let (job_services, org) = (context.job_services, context.org);
    let Some(eval) = store::find(&job_services.services.db, org, rows.eval).await? else {
        return Ok(JobResult::Finished);
    };
    let Some(identity) = job_services.models.proxy.access.org_identity(org).await? else {
        return Ok(JobResult::Finished);
    };
    if !eval.enabled || eval.sample_rate <= 0.0 {
        return Ok(JobResult::Finished);
    }
    let definition = EvalDefinition {
        kind: eval.kind.as_str().to_owned(),
        evaluator: eval.evaluator.clone(),
        config: eval.config.clone(),
    };
    let compiled = evals::compile(&job_services.services.compute, org, WaitLimits::JOB, definition).await?;
    let evaluator = match compiled {
        Ok(evaluator) => Arc::new(evaluator),
        // It was valid when it was stored; the limits have changed since.
        Err(error) => {
            tracing::warn!(%error, eval = eval.id, "a live eval has an invalid definition; it judges nothing");
            return Ok(JobResult::Finished);
        }
    };
    let judged = store::live_judged_ids(&job_services.services.db, eval.id, &rows.log_ids).await?;
    let pending: Vec<i64> = rows.log_ids.iter().copied().filter(|id| !judged.contains(id)).collect();
    let metadata = Map::from_iter([("eval_id".to_owned(), json!(eval.id))]);
    let mut retry_reason = None;
    let caller = ModelCaller { models: &job_services.models, identity: &identity, metadata: &metadata };
    let mut pending = &pending[..];
    while !pending.is_empty() {
        let first = pending.get(..BATCH_SIZE).unwrap_or(pending);
        let sizes = logs::body_sizes(&job_services.services.logs, first).await?;
        let sizes: Vec<i64> = first.iter().map(|id| sizes.get(id).copied().unwrap_or(0)).collect();
        let Ok((count, _memory)) = reserve_batch(&identity.org.memory, &sizes, HELD_PER_BYTE) else {
            return Ok(JobResult::Reschedule(MEMORY_DELAY));
        };
        let (ids, rest) = pending.split_at(usize::try_from(count).unwrap_or(1));
        pending = rest;
        if export_verdicts::is_behind(job_services, org).await? {
            return Ok(JobResult::Reschedule(EXPORT_BACKLOG_DELAY));
        }
        let mut results = Vec::new();
        let mut rate_limited = None;
        for row in logs::find_many(&job_services.services.logs, org, ids, true).await? {
            let log_id = row.id;
            let subject = move |evaluator: &Evaluator| Ok(Subject::from_row(&evaluator.field, &row));
            match evals::judge(&caller, &evaluator, subject).await {
                Ok(verdict) => results.push(NewEvalResult {
                    id: job_services.services.ids.next_row_id(),
                    position: 0,
                    log_id: Some(log_id),
                    case_id: None,
                    score: verdict.score,
                    passed: verdict.passed,
                    details: verdict.details,
                }),
                Err(NoVerdict::RateLimited(delay)) => {
                    rate_limited = Some(delay);
                    break;
                }
                Err(NoVerdict::Retry(reason)) => retry_reason = Some(reason),
                Err(NoVerdict::Permanent(reason)) => {
                    tracing::debug!(reason, eval = eval.id, log = log_id, "cannot judge a log row");
                }
            }
        }
        let export_job = ExportVerdicts {
            results: results.iter().map(|result| result.id).collect(),
            ..Default::default()
        };
        let export_job = export_job.if_needed(job_services, org).await?;
        let mut tx = job_services.services.db.begin().await?;
        store::insert_live_results(&mut tx, org, eval.id, results, job_services.services.clock.now()).await?;
        let queued = export_verdicts::enqueue(job_services, &mut tx, org, export_job.as_ref()).await?;
        kill_point(KillPoint::LiveRowsJudged);
        tx.commit().await?;
        kill_point(KillPoint::LiveRowsRecorded);
        if let Some(queued) = queued {
            queued.notify(job_services);
        }
        if let Some(delay) = rate_limited {
            return Ok(JobResult::Reschedule(delay));
        }
        if job_services.services.tasks.is_stopping() {
            return Ok(JobResult::Reschedule(Duration::ZERO));
        }
    }
    retry_reason.map_or(Ok(JobResult::Finished), |reason| Err(JobError(reason)))
}
