//! Judges sampled rows of live traffic. Rows with a verdict are skipped, so that a repeated job calls no model twice.
//!
//! A job has a turn, because the places for such jobs are few and a judge may be slow or silent. What is left at its end,
//! and what failed, is the work of a job that takes its place, behind those of other organizations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::evaluators::{Evaluator, Subject};
use gateway_store::evals::{self as store, NewEvalResult};
use gateway_store::faults::{KillPoint, kill_point};
use gateway_store::{StoreError, logs};
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use super::export_verdicts::{self, ExportVerdicts};
use super::run_eval::{HELD_PER_BYTE, reserve_batch};
use super::{Job, JobContext, JobError, JobResult, retry_delay, serialize};
use crate::compute::WaitLimits;
use crate::evals::{self, EvalDefinition, ModelCaller, NoVerdict};

#[derive(Debug, Serialize, Deserialize)]
pub struct JudgeLive(pub Vec<SampledRows>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledRows {
    pub eval: i64,
    pub log_ids: Vec<i64>,
    /// How often judging them has failed.
    #[serde(default)]
    pub failures: i64,
}

/// Verdicts are stored in batches of at most this size, so that an interruption loses few.
const BATCH_SIZE: usize = 50;
/// How long a job keeps its place, however many rows it has. The judgement that is in progress then is completed.
const TURN: Duration = Duration::from_secs(30);
/// A row that failed this often is not judged.
const MAX_FAILURES: i64 = 6;
/// While the organization's requests use up its memory.
const MEMORY_DELAY: Duration = Duration::from_secs(1);
const EXPORT_BACKLOG_DELAY: Duration = Duration::from_secs(1);

impl Job for JudgeLive {
    const NAME: &'static str = "judge_live";
    const CONCURRENCY: usize = 4;
    const CONCURRENCY_PER_ORG: i64 = 2;
    const MAX_ATTEMPTS: i64 = 6;

    async fn run(&self, context: &JobContext<'_>) -> Result<JobResult, JobError> {
        let ends_at = Instant::now() + TURN;
        let mut next = Vec::new();
        let mut groups = self.0.iter();
        let mut interrupted = Duration::ZERO;
        while let Some(rows) = groups.next() {
            match judge(context, rows, ends_at).await? {
                Judged::Ended(left) => rows.add_left(left, &mut next),
                Judged::Interrupted(delay, left) => {
                    rows.add_left(left, &mut next);
                    next.extend(groups.by_ref().cloned());
                    interrupted = delay;
                }
            }
        }
        Ok(continue_with(next, interrupted)?)
    }

    async fn give_up(&self, _: &JobContext<'_>, _: &str) -> Result<(), StoreError> {
        Ok(())
    }
}

/// How judging some rows ended.
enum Judged {
    Ended(Left),
    /// What is left waits for the delay, and so do the groups behind these rows.
    Interrupted(Duration, Left),
}

/// Rows without a verdict.
#[derive(Default)]
struct Left {
    /// The turn ended before them, or was interrupted.
    untried: Vec<i64>,
    failed: Vec<i64>,
}

impl SampledRows {
    /// Adds what another job goes on with.
    fn add_left(&self, left: Left, next: &mut Vec<Self>) {
        let Left { untried, failed } = left;
        for (log_ids, failures) in [(untried, self.failures), (failed, self.failures + 1)] {
            if log_ids.is_empty() || failures >= MAX_FAILURES {
                continue;
            }
            // One group for each number of failures, because each group reads and compiles its eval.
            let same = next.iter_mut().find(|rows| rows.eval == self.eval && rows.failures == failures);
            match same {
                Some(rows) => rows.log_ids.extend(log_ids),
                None => next.push(Self { eval: self.eval, log_ids, failures }),
            }
        }
    }
}

/// What is left of a job takes its place, so the queue does not grow.
fn continue_with(rows: Vec<SampledRows>, interrupted: Duration) -> Result<JobResult, StoreError> {
    // Rows that have failed wait, unless others are ready.
    let Some(failures) = rows.iter().map(|rows| rows.failures).min() else {
        return Ok(JobResult::Finished);
    };
    let retry = if failures == 0 { Duration::ZERO } else { retry_delay(failures) };
    let (payload, _) = serialize(&JudgeLive(rows))?;
    Ok(JobResult::ContinueWith { payload, delay: interrupted.max(retry) })
}

/// Judges rows until the turn ends.
async fn judge(context: &JobContext<'_>, rows: &SampledRows, ends_at: Instant) -> Result<Judged, JobError> {
    let nothing_left = || Ok(Judged::Ended(Left::default()));
    let (job_services, org) = (context.job_services, context.org);
    let Some(eval) = store::find(&job_services.services.db, org, rows.eval).await? else {
        return nothing_left();
    };
    let Some(identity) = job_services.models.proxy.access.org_identity(org).await? else {
        return nothing_left();
    };
    if !eval.enabled || eval.sample_rate <= 0.0 {
        return nothing_left();
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
            return nothing_left();
        }
    };
    let judged = store::live_judged_ids(&job_services.services.db, eval.id, &rows.log_ids).await?;
    let pending: Vec<i64> = rows.log_ids.iter().copied().filter(|id| !judged.contains(id)).collect();
    let metadata = Map::from_iter([("eval_id".to_owned(), json!(eval.id))]);
    let mut left = Left::default();
    let caller = ModelCaller { models: &job_services.models, identity: &identity, metadata: &metadata };
    let mut pending = &pending[..];
    while !pending.is_empty() {
        if Instant::now() >= ends_at {
            left.untried.extend_from_slice(pending);
            break;
        }
        if export_verdicts::is_behind(job_services, org).await? {
            left.untried.extend_from_slice(pending);
            return Ok(Judged::Interrupted(EXPORT_BACKLOG_DELAY, left));
        }
        let first = pending.get(..BATCH_SIZE).unwrap_or(pending);
        let sizes = logs::body_sizes(&job_services.services.logs, first).await?;
        let sizes: Vec<i64> = first.iter().map(|id| sizes.get(id).copied().unwrap_or(0)).collect();
        let Ok((count, _memory)) = reserve_batch(&identity.org.memory, &sizes, HELD_PER_BYTE) else {
            left.untried.extend_from_slice(pending);
            return Ok(Judged::Interrupted(MEMORY_DELAY, left));
        };
        let (ids, rest) = pending.split_at(usize::try_from(count).unwrap_or(1));
        pending = rest;
        let mut results = Vec::new();
        let mut interrupted: Option<Duration> = None;
        for row in logs::find_many(&job_services.services.logs, org, ids, true).await? {
            let log_id = row.id;
            if interrupted.is_some() || Instant::now() >= ends_at {
                left.untried.push(log_id);
                continue;
            }
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
                    interrupted = Some(delay);
                    left.untried.push(log_id);
                }
                Err(NoVerdict::Retry(reason)) => {
                    tracing::debug!(reason, eval = eval.id, log = log_id, "cannot judge a log row now");
                    left.failed.push(log_id);
                }
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
        if job_services.services.tasks.is_stopping() {
            interrupted = interrupted.or(Some(Duration::ZERO));
        }
        if let Some(delay) = interrupted {
            left.untried.extend_from_slice(pending);
            return Ok(Judged::Interrupted(delay, left));
        }
    }
    Ok(Judged::Ended(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_keeps_its_failures_and_what_failed_has_one_more() {
        let rows = |log_ids: &[i64], failures| SampledRows { eval: 7, log_ids: log_ids.to_vec(), failures };
        let left =
            |untried: &[i64], failed: &[i64]| Left { untried: untried.to_vec(), failed: failed.to_vec() };
        let mut next = Vec::new();
        rows(&[1, 2, 3, 4], 0).add_left(left(&[2, 3], &[1]), &mut next);
        assert_eq!(next, [rows(&[2, 3], 0), rows(&[1], 1)]);
        rows(&[5, 6, 7], 1).add_left(left(&[6], &[5]), &mut next);
        assert_eq!(next, [rows(&[2, 3], 0), rows(&[1, 6], 1), rows(&[5], 2)]);
        let mut last = Vec::new();
        rows(&[1, 2], MAX_FAILURES - 1).add_left(left(&[2], &[1]), &mut last);
        assert_eq!(last, [rows(&[2], MAX_FAILURES - 1)], "what failed too often is given up");
        rows(&[1], 0).add_left(Left::default(), &mut last);
        assert_eq!(last.len(), 1);
    }

    #[test]
    fn a_job_continues_with_what_is_left_after_the_longer_delay() {
        let rows = |failures| SampledRows { eval: 7, log_ids: vec![1], failures };
        let delay = |failures: &[i64], interrupted| {
            let left: Vec<_> = failures.iter().copied().map(rows).collect();
            match continue_with(left.clone(), interrupted).unwrap() {
                JobResult::ContinueWith { payload, delay } => {
                    let JudgeLive(next) = serde_json::from_str(&payload).unwrap();
                    assert_eq!(next, left);
                    Some(delay)
                }
                JobResult::Finished | JobResult::Reschedule(_) => None,
            }
        };
        let second = Duration::from_secs(1);
        assert_eq!(delay(&[], second), None);
        assert_eq!(delay(&[1, 0], Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(delay(&[1, 0], second), Some(second));
        assert_eq!(delay(&[2, 1], Duration::ZERO), Some(retry_delay(1)));
        assert_eq!(delay(&[MAX_FAILURES - 1], second), Some(retry_delay(MAX_FAILURES - 1)));
    }

    #[test]
    fn jobs_of_earlier_versions_have_not_failed() {
        let JudgeLive(rows) = serde_json::from_str(r#"[{"eval": 1, "log_ids": [2]}]"#).unwrap();
        assert_eq!(rows, [SampledRows { eval: 1, log_ids: vec![2], failures: 0 }]);
    }
}
