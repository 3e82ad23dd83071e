//! Judges versions of skills. Each version is judged once automatically, and again on request. The job queue of each
//! organization is bounded. The scheduler enqueues versions that did not fit, because unjudged versions are marked in the store.

mod files;
mod model;
mod nearest;

pub use files::{is_safe, scan_version};

use std::sync::Arc;
use std::time::Duration;

use gateway_core::ids::{JobId, OrgId, SkillId};
use gateway_core::skills::SkillSource;
use gateway_core::skills::judge::{self, Judgement, RUBRIC_VERSION};
use gateway_core::skills::rubric::{BUILTIN, Rubric};
use gateway_core::verdicts::INTERNAL_SOURCE;
use gateway_store::faults::{KillPoint, kill_point};
use gateway_store::rubrics::{self, StoredRubric};
use gateway_store::skills::{self, Evaluation, SkillVersion};
use gateway_store::{StoreError, Tx};
use serde::{Deserialize, Serialize};

use self::files::FileFindings;
use super::{Job, JobContext, JobError, JobResult, JobServices, Queued, enqueue_within};
use crate::auth::Identity;
use crate::compute::{Cancellation, WaitLimits};
use crate::services::Services;

/// How often the scheduler looks for versions without a verdict.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The trigger that is stored with the automatic verdict of a version.
const AUTOMATIC_TRIGGER: &str = "auto";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JudgeSkill {
    skill: SkillId,
    version: i64,
    /// Identifies a manual request, so that each request has its own verdict. `None` for the automatic verdict.
    #[serde(default, rename = "asked")]
    request: Option<JobId>,
}

/// A judgement with its latency and token usage.
struct Judged {
    judgement: Judgement,
    provider: String,
    model: String,
    latency_ms: i64,
    prompt_tokens: i64,
    completion_tokens: i64,
}

/// Enqueues the automatic judgement in the transaction that creates the version. Returns `None` if the queue is full;
/// the scheduler retries later.
pub async fn dispatch(
    job_services: &JobServices,
    tx: &mut Tx,
    org: OrgId,
    skill: SkillId,
    version: i64,
) -> Result<Option<Queued>, StoreError> {
    let job = JudgeSkill { skill, version, request: None };
    enqueue_within(job_services, tx, org, &job, job_services.services.config.eval_queue).await
}

/// Enqueues a requested judgement of a version. Returns `None` if the queue is full.
pub async fn dispatch_on_request(
    job_services: &JobServices,
    tx: &mut Tx,
    org: OrgId,
    skill: SkillId,
    version: i64,
) -> Result<Option<Queued>, StoreError> {
    let job = JudgeSkill { skill, version, request: Some(job_services.services.ids.new_id()) };
    enqueue_within(job_services, tx, org, &job, job_services.services.config.eval_queue).await
}

/// The rubric of an organization that has not configured one.
pub fn default_rubric(services: &Services) -> Rubric {
    let defaults = &services.config.judge;
    Rubric::seeded(
        (&defaults.judge_provider, &defaults.judge_model),
        (&defaults.embed_provider, &defaults.embed_model),
        defaults.embed_dims.into(),
    )
}

/// The rubric of an organization.
pub async fn rubric_of(services: &Services, org: OrgId) -> Result<Rubric, StoreError> {
    let stored = rubrics::find(&services.db, org).await?;
    Ok(stored.map_or_else(|| default_rubric(services), |stored| stored.rubric))
}

/// Locks the organization's rubric until the transaction ends. Creates it if it does not exist.
pub async fn lock_rubric(
    job_services: &JobServices,
    tx: &mut Tx,
    org: OrgId,
) -> Result<StoredRubric, StoreError> {
    rubrics::find_or_insert_for_update(
        tx,
        org,
        job_services.services.ids.new_id(),
        &default_rubric(&job_services.services),
        job_services.services.clock.now(),
    )
    .await
}

/// Enqueues jobs for unjudged versions without a job, until the service stops.
pub async fn schedule(job_services: Arc<JobServices>) {
    while tokio::time::timeout(POLL_INTERVAL, job_services.services.tasks.stopping()).await.is_err() {
        if let Err(error) = enqueue_unjudged(&job_services).await {
            tracing::debug!(%error, "cannot enqueue unjudged skill versions; it is retried at the next poll");
        }
    }
}

async fn enqueue_unjudged(job_services: &JobServices) -> Result<(), StoreError> {
    let limit = i64::try_from(job_services.services.config.eval_queue).unwrap_or(i64::MAX);
    for found in skills::unjudged_versions(&job_services.services.db, JudgeSkill::NAME, limit).await? {
        let mut tx = job_services.services.db.begin().await?;
        // The queue of one organization may be full; those of others are not.
        let Some(queued) = dispatch(job_services, &mut tx, found.org, found.skill, found.version).await?
        else {
            continue;
        };
        tx.commit().await?;
        queued.notify(job_services);
    }
    Ok(())
}

impl Job for JudgeSkill {
    const NAME: &'static str = "judge_skill";
    const CONCURRENCY: usize = 8;
    const CONCURRENCY_PER_ORG: i64 = 2;
    const MAX_ATTEMPTS: i64 = 3;

    fn dedup_key(&self) -> Option<String> {
        self.request.is_none().then(|| format!("{}:{}", self.skill, self.version))
    }

    async fn run(&self, context: &JobContext<'_>) -> Result<JobResult, JobError> {
        let JobContext { job_services, org } = context;
        let Some((version, rubric)) = self.load(job_services, *org).await? else {
            return Ok(JobResult::Finished);
        };
        let Some(identity) = job_services.models.proxy.access.org_identity(*org).await? else {
            return Ok(JobResult::Finished);
        };
        let files = files::read(&job_services.services, *org, self.skill, &version.files).await?;
        let request = JudgeRequest {
            identity: &identity,
            job: self,
            source: &version.source,
            files: &files,
            rubric: &rubric.rubric,
        };
        let judged = judge(job_services, &request).await?;
        kill_point(KillPoint::SkillJudged);
        if self.record(context, &version, &rubric, judged).await? {
            Ok(JobResult::Finished)
        } else {
            // The rubric was changed meanwhile, so the verdict is outdated.
            Ok(JobResult::Reschedule(Duration::ZERO))
        }
    }

    async fn give_up(&self, context: &JobContext<'_>, reason: &str) -> Result<(), StoreError> {
        let JobContext { job_services, org } = context;
        loop {
            let Some((version, rubric)) = self.load(job_services, *org).await? else { return Ok(()) };
            if self.record(context, &version, &rubric, failed(&rubric.rubric, reason)).await? {
                return Ok(());
            }
        }
    }
}

impl JudgeSkill {
    /// `None` if the version does not exist or needs no verdict.
    async fn load(
        &self,
        job_services: &JobServices,
        org: OrgId,
    ) -> Result<Option<(SkillVersion, StoredRubric)>, StoreError> {
        let found = skills::find_version(&job_services.services.db, org, self.skill, self.version).await?;
        let Some(version) = found.filter(|version| self.request.is_some() || !version.judged) else {
            return Ok(None);
        };
        if let Some(rubric) = rubrics::find(&job_services.services.db, org).await? {
            return Ok(Some((version, rubric)));
        }
        let mut tx = job_services.services.db.begin().await?;
        let rubric = lock_rubric(job_services, &mut tx, org).await?;
        tx.commit().await?;
        Ok(Some((version, rubric)))
    }

    /// Stores the verdict. Returns false without storing it if the rubric has changed since.
    async fn record(
        &self,
        context: &JobContext<'_>,
        version: &SkillVersion,
        rubric: &StoredRubric,
        judged: Judged,
    ) -> Result<bool, StoreError> {
        let JobContext { job_services, org } = *context;
        let mut tx = job_services.services.db.begin().await?;
        if !skills::lock_for_update(&mut tx, org, self.skill).await? {
            return Ok(true);
        }
        if lock_rubric(job_services, &mut tx, org).await?.revision != rubric.revision {
            return Ok(false);
        }
        let Judged { judgement, provider, model, latency_ms, prompt_tokens, completion_tokens } = judged;
        let evaluation = Evaluation {
            id: job_services.services.ids.new_id(),
            org_id: org,
            skill_id: self.skill,
            skill_version: self.version,
            content_hash: version.content_hash.clone(),
            rubric_config_id: Some(rubric.id),
            axes: judgement.axes,
            overall_score: judgement.overall_score,
            passed: judgement.passed,
            judge_provider: provider,
            judge_model: model,
            latency_ms,
            prompt_tokens,
            completion_tokens,
            source: INTERNAL_SOURCE.to_owned(),
            external_ref: String::new(),
            created_at: job_services.services.clock.now(),
        };
        let request = self.request.map(|request| request.to_string());
        skills::insert_evaluation(&mut tx, &evaluation, request.as_deref().unwrap_or(AUTOMATIC_TRIGGER))
            .await?;
        skills::mark_judged(&mut tx, self.skill, self.version).await?;
        tx.commit().await?;
        kill_point(KillPoint::SkillRecorded);
        Ok(true)
    }
}

/// What is judged, by which rubric, and in whose name models are called.
struct JudgeRequest<'a> {
    identity: &'a Identity,
    job: &'a JudgeSkill,
    source: &'a SkillSource,
    files: &'a FileFindings,
    rubric: &'a Rubric,
}

async fn judge(job_services: &Arc<JobServices>, request: &JudgeRequest<'_>) -> Result<Judged, JobError> {
    let started_at = job_services.services.clock.now();
    let nearest = nearest::find(job_services, request).await?;
    if request.rubric.judge_provider != BUILTIN {
        return model::judge(job_services, request, nearest.as_ref()).await;
    }
    let (source, rubric) = (request.source.clone(), request.rubric.clone());
    let files = request.files.findings.clone();
    let compute = &job_services.services.compute;
    let judging = move |_: &Cancellation| judge::builtin(&source, &files, nearest.as_ref(), &rubric);
    let judgement = compute.run(request.identity.org.id, WaitLimits::JOB, judging).await?;
    Ok(Judged {
        judgement,
        provider: BUILTIN.to_owned(),
        model: RUBRIC_VERSION.to_owned(),
        latency_ms: (job_services.services.clock.now().0 - started_at.0).max(0),
        prompt_tokens: 0,
        completion_tokens: 0,
    })
}

fn failed(rubric: &Rubric, reason: &str) -> Judged {
    Judged {
        judgement: judge::failed(&format!("The judge returned no verdict: {reason}.")),
        provider: rubric.judge_provider.clone(),
        model: rubric.judge_model.clone(),
        latency_ms: 0,
        prompt_tokens: 0,
        completion_tokens: 0,
    }
}
