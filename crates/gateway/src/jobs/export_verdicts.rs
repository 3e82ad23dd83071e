//! Has verdicts on log rows told to the exports that want them. Verdicts and what exports are owed lie in two databases, so
//! the job is written with the verdicts and moves them over: a crash in between delays them, and loses none.

use std::collections::HashMap;
use std::time::Duration;

use gateway_core::ids::{OrgId, VerdictId};
use gateway_core::logs::{LogSource, log_id_time};
use gateway_core::otlp::encode::EvaluationResult;
use gateway_core::time::MINUTE;
use gateway_store::verdicts::{self, LogVerdict};
use gateway_store::{StoreError, Tx, evals, exports, jobs as store, logs};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Job, JobContext, JobError, JobResult, JobServices, Queued};

/// A row appears in the log a moment after its request ended, later when much is going on.
const APPEARS_WITHIN: i64 = 10 * MINUTE;
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Jobs that may wait, over all organizations, before those who judge have to wait too.
const MOST_JOBS: i64 = 10_000;

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ExportVerdicts {
    /// Of evals.
    pub results: Vec<i64>,
    /// Of evaluators outside.
    pub verdicts: Vec<VerdictId>,
}

impl ExportVerdicts {
    /// None when there is nothing to tell, or nobody to tell it to. To be asked before a transaction is begun.
    pub async fn wanted(self, job_services: &JobServices, org: OrgId) -> Result<Option<Self>, StoreError> {
        let is_empty = self.results.is_empty() && self.verdicts.is_empty();
        Ok((!is_empty && exports::has_verdict_export(&job_services.services.logs, org).await?)
            .then_some(self))
    }
}

/// More verdicts are made than can be moved: whoever makes them is to stop for a while.
pub async fn is_behind(job_services: &JobServices) -> Result<bool, StoreError> {
    Ok(store::count(&job_services.services.db, ExportVerdicts::NAME).await? >= MOST_JOBS)
}

/// Enqueues the job in the transaction of the verdicts, where there is one.
pub async fn enqueue(
    job_services: &JobServices,
    tx: &mut Tx,
    org: OrgId,
    job: Option<&ExportVerdicts>,
) -> Result<Option<Queued>, StoreError> {
    match job {
        Some(job) => super::enqueue(job_services, tx, org, job).await.map(Some),
        None => Ok(None),
    }
}

impl Job for ExportVerdicts {
    const NAME: &'static str = "export_verdicts";
    const CONCURRENCY: usize = 4;
    const CONCURRENCY_PER_ORG: i64 = 2;
    /// What a destination is owed is never given up.
    const MAX_ATTEMPTS: i64 = i64::MAX;

    async fn run(&self, context: &JobContext<'_>) -> Result<JobResult, JobError> {
        let (job_services, org) = (context.job_services, context.org);
        let mut found = evals::results_for_export(&job_services.services.db, org, &self.results).await?;
        for id in &self.verdicts {
            found.extend(verdicts::find(&job_services.services.db, org, *id).await?.map(of_others));
        }
        let ids: Vec<i64> = found.iter().map(|(log_id, _)| *log_id).collect();
        let rows = logs::find_many(&job_services.services.logs, org, &ids, false).await?;
        let sources: HashMap<i64, LogSource> = rows.iter().map(|row| (row.id, row.source)).collect();
        let now = job_services.services.clock.now();
        if ids.iter().any(|id| !sources.contains_key(id) && now.0 - log_id_time(*id).0 < APPEARS_WITHIN) {
            return Ok(JobResult::Reschedule(LOOK_AGAIN));
        }
        let told: Vec<_> = found
            .into_iter()
            .filter_map(|(log_id, result)| Some((log_id, *sources.get(&log_id)?, result)))
            .collect();
        exports::enqueue_verdicts(&job_services.services.logs, org, &told).await?;
        Ok(JobResult::Finished)
    }

    async fn give_up(&self, _: &JobContext<'_>, _: &str) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A verdict of an evaluator outside goes by the evaluator's name.
fn of_others(verdict: LogVerdict) -> (i64, EvaluationResult) {
    let LogVerdict { id, org_id: _, log_id, source, score, passed, details, external_ref, created_at } =
        verdict;
    let said = ["explanation", "reason"].iter().find_map(|name| details.get(*name)?.as_str());
    let why = match said {
        Some(said) => said.to_owned(),
        None if details.is_empty() => external_ref,
        None => Value::Object(details).to_string(),
    };
    let result = EvaluationResult {
        id: id.to_string(),
        name: source,
        score,
        passed,
        explanation: None,
        at: created_at,
    };
    (log_id, result.with_explanation(&why))
}
