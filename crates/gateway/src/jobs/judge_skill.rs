//! Judging one version of a skill. A version is judged once by itself, however many nodes and restarts there are, and
//! again whenever somebody asks. The buffer of jobs has a bound; what found no room is found by the scheduler, because
//! a version that was not judged says so itself.

mod model;
mod nearest;

use std::sync::Arc;
use std::time::Duration;

use gateway_core::ids::{JobId, OrgId, SkillId};
use gateway_core::skills::judge::{self, Judgement, RUBRIC_V1};
use gateway_core::skills::rubric::{BUILTIN, Rubric};
use gateway_core::verdicts::INTERNAL_SOURCE;
use gateway_store::rubrics::{self, StoredRubric};
use gateway_store::skills::{self, Evaluation, SkillVersion};
use gateway_store::{StoreError, Tx};
use serde::{Deserialize, Serialize};

use super::{Job, JobContext, JobError, JobResult, JobServices, Queued, enqueue_within};
use crate::auth::Identity;

/// How often the scheduler looks for versions that nobody has judged.
const LOOK: Duration = Duration::from_secs(2);
/// What brings the verdict about that every version gets.
const BY_ITSELF: &str = "auto";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JudgeSkill {
    skill: SkillId,
    version: i64,
    /// Somebody asked for it: names the request, so that each has its own verdict.
    #[serde(default)]
    asked: Option<JobId>,
}

/// A judgement and what it cost.
struct Judged {
    judgement: Judgement,
    provider: String,
    model: String,
    latency_ms: i64,
    prompt_tokens: i64,
    completion_tokens: i64,
}

/// Sends a new version to the judge, in the transaction that made it. When the buffer is full the scheduler will.
pub async fn dispatch(
    job_services: &JobServices,
    tx: &mut Tx,
    org: OrgId,
    skill: SkillId,
    version: i64,
) -> Result<Option<Queued>, StoreError> {
    let job = JudgeSkill { skill, version, asked: None };
    enqueue_within(job_services, tx, org, &job, job_services.services.config.eval_queue).await
}

/// Sends a version to the judge once more. None when the buffer is full.
pub async fn dispatch_again(
    job_services: &JobServices,
    tx: &mut Tx,
    org: OrgId,
    skill: SkillId,
    version: i64,
) -> Result<Option<Queued>, StoreError> {
    let job = JudgeSkill { skill, version, asked: Some(job_services.services.ids.new_id()) };
    enqueue_within(job_services, tx, org, &job, job_services.services.config.eval_queue).await
}

/// What an organization without a rubric starts with.
pub fn seed(job_services: &JobServices) -> Rubric {
    let defaults = &job_services.services.config.judge;
    Rubric::seeded(
        (&defaults.judge_provider, &defaults.judge_model),
        (&defaults.embed_provider, &defaults.embed_model),
        defaults.embed_dims.into(),
    )
}

/// The organization's rubric, held until the transaction ends and made if there is none.
pub async fn lock_rubric(
    job_services: &JobServices,
    tx: &mut Tx,
    org: OrgId,
) -> Result<StoredRubric, StoreError> {
    rubrics::find_or_insert_for_update(
        tx,
        org,
        job_services.services.ids.new_id(),
        &seed(job_services),
        job_services.services.clock.now(),
    )
    .await
}

/// Until the service stops, finds versions that were not judged and have no job, and gives them one.
pub async fn schedule(job_services: Arc<JobServices>) {
    while tokio::time::timeout(LOOK, job_services.services.tasks.stopping()).await.is_err() {
        if let Err(error) = fill_buffer(&job_services).await {
            tracing::debug!(%error, "versions that wait for a judge are looked for later");
        }
    }
}

async fn fill_buffer(job_services: &JobServices) -> Result<(), StoreError> {
    let limit = i64::try_from(job_services.services.config.eval_queue).unwrap_or(i64::MAX);
    for found in skills::unjudged_versions(&job_services.services.db, JudgeSkill::NAME, limit).await? {
        let mut tx = job_services.services.db.begin().await?;
        let Some(queued) = dispatch(job_services, &mut tx, found.org, found.skill, found.version).await?
        else {
            break;
        };
        tx.commit().await?;
        queued.notify(job_services);
    }
    Ok(())
}

impl Job for JudgeSkill {
    const NAME: &'static str = "judge_skill";
    const CONCURRENCY: usize = 4;
    const CONCURRENCY_PER_ORG: i64 = 4;
    const MAX_ATTEMPTS: i64 = 3;

    fn dedup_key(&self) -> Option<String> {
        self.asked.is_none().then(|| format!("{}:{}", self.skill, self.version))
    }

    async fn run(&self, context: &JobContext<'_>) -> Result<JobResult, JobError> {
        let JobContext { job_services, org } = context;
        let Some((version, rubric)) = self.load(job_services, *org).await? else {
            return Ok(JobResult::Finished);
        };
        let Some(identity) = job_services.models.proxy.access.org_identity(*org).await? else {
            return Ok(JobResult::Finished);
        };
        let judged = judge(job_services, &identity, self, &version, &rubric.rubric).await?;
        if self.record(job_services, *org, &version, &rubric, judged).await? {
            Ok(JobResult::Finished)
        } else {
            // The rubric was changed meanwhile: what was judged by the old one must not stand.
            Ok(JobResult::Reschedule(Duration::ZERO))
        }
    }

    async fn give_up(&self, context: &JobContext<'_>, why: &str) -> Result<(), StoreError> {
        let JobContext { job_services, org } = context;
        loop {
            let Some((version, rubric)) = self.load(job_services, *org).await? else { return Ok(()) };
            if self.record(job_services, *org, &version, &rubric, failed(&rubric.rubric, why)).await? {
                return Ok(());
            }
        }
    }
}

impl JudgeSkill {
    /// None when there is nothing (more) to judge.
    async fn load(
        &self,
        job_services: &JobServices,
        org: OrgId,
    ) -> Result<Option<(SkillVersion, StoredRubric)>, StoreError> {
        let found = skills::find_version(&job_services.services.db, org, self.skill, self.version).await?;
        let Some(version) = found.filter(|version| self.asked.is_some() || !version.judged) else {
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

    /// Keeps the verdict, unless the rubric is no longer the one that it was made by: then answers false.
    async fn record(
        &self,
        job_services: &JobServices,
        org: OrgId,
        version: &SkillVersion,
        rubric: &StoredRubric,
        judged: Judged,
    ) -> Result<bool, StoreError> {
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
        let asked = self.asked.map(|asked| asked.to_string());
        skills::insert_evaluation(&mut tx, &evaluation, asked.as_deref().unwrap_or(BY_ITSELF)).await?;
        skills::mark_judged(&mut tx, self.skill, self.version).await?;
        tx.commit().await?;
        Ok(true)
    }
}

async fn judge(
    job_services: &Arc<JobServices>,
    identity: &Identity,
    job: &JudgeSkill,
    version: &SkillVersion,
    rubric: &Rubric,
) -> Result<Judged, JobError> {
    let began = job_services.services.clock.now();
    let nearest = nearest::find(job_services, identity, job.skill, &version.source, rubric).await?;
    if rubric.judge_provider != BUILTIN {
        return model::judge(job_services, identity, job, &version.source, nearest.as_ref(), rubric).await;
    }
    let (source, rubric) = (version.source.clone(), rubric.clone());
    // A long text takes a while to read.
    let read = tokio::task::spawn_blocking(move || judge::builtin(&source, nearest.as_ref(), &rubric));
    let judgement = read.await.map_err(|error| JobError(error.to_string()))?;
    Ok(Judged {
        judgement,
        provider: BUILTIN.to_owned(),
        model: RUBRIC_V1.to_owned(),
        latency_ms: (job_services.services.clock.now().0 - began.0).max(0),
        prompt_tokens: 0,
        completion_tokens: 0,
    })
}

fn failed(rubric: &Rubric, why: &str) -> Judged {
    Judged {
        judgement: judge::failed(&format!("The judge gave no verdict: {why}.")),
        provider: rubric.judge_provider.clone(),
        model: rubric.judge_model.clone(),
        latency_ms: 0,
        prompt_tokens: 0,
        completion_tokens: 0,
    }
}
