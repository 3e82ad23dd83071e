//! Queues verdicts on log rows and checkpoints of the audit log for the exports that receive them. These and the export
//! queues are in two databases, so the job is enqueued in the transaction that stores them and copies them. A crash in
//! between delays them but loses none.

use std::collections::HashMap;
use std::time::Duration;

use gateway_core::audit::checkpoint::SignedCheckpoint;
use gateway_core::ids::{OrgId, VerdictId};
use gateway_core::logs::{LogSource, log_id_time};
use gateway_core::otlp::encode::EvaluationResult;
use gateway_store::faults::{KillPoint, kill_point};
use gateway_store::verdicts::{self, LogVerdict};
use gateway_store::{StoreError, Tx, evals, exports, jobs as store, logs};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Job, JobContext, JobError, JobResult, JobServices, Queued};

/// A log row is stored asynchronously after its request. A row that is missing for longer than this was deleted.
const MISSING_ROW_TIMEOUT: Duration = Duration::from_secs(10 * 60);
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// The number of pending jobs of an organization from which its evaluations are paused.
const MAX_PENDING_JOBS: i64 = 1_000;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportVerdicts {
    /// Ids of eval results.
    pub results: Vec<i64>,
    /// Ids of verdicts of external evaluators.
    pub verdicts: Vec<VerdictId>,
    pub checkpoints: Vec<SignedCheckpoint>,
}

impl ExportVerdicts {
    /// Returns the job if it has verdicts and the organization has an export that receives them. It reads the log
    /// database, so it must be called before a transaction begins.
    pub async fn if_needed(self, job_services: &JobServices, org: OrgId) -> Result<Option<Self>, StoreError> {
        let is_empty = self.results.is_empty() && self.verdicts.is_empty();
        Ok((!is_empty && exports::has_verdict_export(&job_services.services.logs, org).await?)
            .then_some(self))
    }
}

/// Whether too many jobs of the organization are pending, so that its producers of verdicts must pause.
pub async fn is_behind(job_services: &JobServices, org: OrgId) -> Result<bool, StoreError> {
    Ok(store::count(&job_services.services.db, org, ExportVerdicts::NAME).await? >= MAX_PENDING_JOBS)
}

/// Enqueues the job, if any, in the transaction of the verdicts.
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
    const NAME: &'static str = exports::COPY_JOB;
    const CONCURRENCY: usize = 4;
    const CONCURRENCY_PER_ORG: i64 = 2;
    /// Unlimited, because a given-up job would lose verdicts.
    const MAX_ATTEMPTS: i64 = i64::MAX;

    async fn run(&self, context: &JobContext<'_>) -> Result<JobResult, JobError> {
        let (job_services, org) = (context.job_services, context.org);
        if !self.checkpoints.is_empty() {
            exports::enqueue_checkpoints(&job_services.services.logs, org, &self.checkpoints).await?;
        }
        let mut found = evals::results_for_export(&job_services.services.db, org, &self.results).await?;
        for id in &self.verdicts {
            found.extend(verdicts::find(&job_services.services.db, org, *id).await?.map(external_result));
        }
        let ids: Vec<i64> = found.iter().map(|(log_id, _)| *log_id).collect();
        let rows = logs::find_many(&job_services.services.logs, org, &ids, false).await?;
        let sources: HashMap<i64, LogSource> = rows.iter().map(|row| (row.id, row.source)).collect();
        let now = job_services.services.clock.now();
        if ids.iter().any(|id| !sources.contains_key(id) && now.since(log_id_time(*id)) < MISSING_ROW_TIMEOUT)
        {
            return Ok(JobResult::Reschedule(RETRY_DELAY));
        }
        let queue: Vec<_> = found
            .into_iter()
            .filter_map(|(log_id, result)| Some((log_id, *sources.get(&log_id)?, result)))
            .collect();
        exports::enqueue_verdicts(&job_services.services.logs, org, &queue).await?;
        kill_point(KillPoint::VerdictsQueued);
        Ok(JobResult::Finished)
    }

    async fn give_up(&self, _: &JobContext<'_>, _: &str) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Converts a verdict of an external evaluator. The evaluator's name becomes the name of the result.
fn external_result(verdict: LogVerdict) -> (i64, EvaluationResult) {
    let LogVerdict { id, org_id: _, log_id, source, score, passed, details, external_ref, created_at } =
        verdict;
    let text = ["explanation", "reason"].iter().find_map(|name| details.get(*name)?.as_str());
    let explanation = match text {
        Some(text) => text.to_owned(),
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
    (log_id, result.with_explanation(&explanation))
}
