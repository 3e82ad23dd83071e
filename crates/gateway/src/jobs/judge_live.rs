//! Judges rows of live traffic that were drawn. A row that was judged before is passed over, so a job that is done
//! again asks no model twice.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::evaluators::{Evaluator, Subject};
use gateway_core::logs::LogRow;
use gateway_store::evals::{self as store, NewEvalResult};
use gateway_store::{StoreError, logs};
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use super::export_verdicts::{self, ExportVerdicts};
use super::{Job, JobContext, JobError, JobResult};
use crate::evals::{self, NoVerdict};

#[derive(Debug, Serialize, Deserialize)]
pub struct JudgeLive(pub Vec<Rows>);

#[derive(Debug, Serialize, Deserialize)]
pub struct Rows {
    pub eval: i64,
    pub log_ids: Vec<i64>,
}

/// Verdicts are kept as soon as there are so many, so that little is lost.
const AT_ONCE: usize = 50;
const PAUSE: Duration = Duration::from_secs(1);

impl Job for JudgeLive {
    const NAME: &'static str = "judge_live";
    const CONCURRENCY: usize = 4;
    const CONCURRENCY_PER_ORG: i64 = 2;
    const MAX_ATTEMPTS: i64 = 6;

    async fn run(&self, context: &JobContext<'_>) -> Result<JobResult, JobError> {
        for rows in &self.0 {
            let done = judge(context, rows).await?;
            if done != JobResult::Finished {
                return Ok(done);
            }
        }
        Ok(JobResult::Finished)
    }

    async fn give_up(&self, _: &JobContext<'_>, _: &str) -> Result<(), StoreError> {
        Ok(())
    }
}

async fn judge(context: &JobContext<'_>, rows: &Rows) -> Result<JobResult, JobError> {
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
    let Ok(evaluator) = Evaluator::parse(eval.kind.as_str(), &eval.evaluator, &eval.config) else {
        return Ok(JobResult::Finished);
    };
    let judged = store::live_judged_ids(&job_services.services.db, eval.id, &rows.log_ids).await?;
    let left: Vec<i64> = rows.log_ids.iter().copied().filter(|id| !judged.contains(id)).collect();
    let metadata = Map::from_iter([("eval_id".to_owned(), json!(eval.id))]);
    let mut again = None;
    for ids in left.chunks(AT_ONCE) {
        if export_verdicts::is_behind(job_services).await? {
            return Ok(JobResult::Reschedule(PAUSE));
        }
        let mut results = Vec::new();
        let mut wait = None;
        for row in logs::find_many(&job_services.services.logs, org, ids, true).await? {
            let subject = subject(&evaluator, row).await?;
            match evals::judge(&job_services.models, &identity, &evaluator, &subject.0, &metadata).await {
                Ok(verdict) => results.push(NewEvalResult {
                    id: job_services.services.ids.next_row_id(),
                    position: 0,
                    log_id: Some(subject.1),
                    case_id: None,
                    score: verdict.score,
                    passed: verdict.passed,
                    details: verdict.details,
                }),
                Err(NoVerdict::Wait(until)) => {
                    wait = Some(until);
                    break;
                }
                Err(NoVerdict::Again(why)) => again = Some(why),
                Err(NoVerdict::Never(why)) => {
                    tracing::debug!(why, eval = eval.id, log = subject.1, "a row cannot be judged");
                }
            }
        }
        let told = ExportVerdicts {
            results: results.iter().map(|result| result.id).collect(),
            ..Default::default()
        };
        let told = told.wanted(job_services, org).await?;
        let mut tx = job_services.services.db.begin().await?;
        store::insert_live_results(&mut tx, org, eval.id, results, job_services.services.clock.now()).await?;
        let queued = export_verdicts::enqueue(job_services, &mut tx, org, told.as_ref()).await?;
        tx.commit().await?;
        if let Some(queued) = queued {
            queued.notify(job_services);
        }
        if let Some(wait) = wait {
            return Ok(JobResult::Reschedule(wait));
        }
        if job_services.services.tasks.is_stopping() {
            return Ok(JobResult::Reschedule(Duration::ZERO));
        }
    }
    again.map_or(Ok(JobResult::Finished), |why| Err(JobError(why)))
}

/// Bodies can be long: they are looked through where nobody waits for the thread.
async fn subject(evaluator: &Evaluator, row: LogRow) -> Result<(Subject, i64), JobError> {
    let (field, id) = (evaluator.field.clone(), row.id);
    let row = Arc::new(row);
    let subject = tokio::task::spawn_blocking(move || Subject::from_row(&field, &row)).await;
    subject.map(|subject| (subject, id)).map_err(|error| JobError(error.to_string()))
}
