//! Samples new log rows for evals of live traffic and enqueues the jobs that judge them. The sample depends only on the
//! ids, so that a row that is stored again is sampled again and judged once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gateway_core::evaluators::is_sampled;
use gateway_core::ids::OrgId;
use gateway_core::llm::paths::{Operation, RequestPath};
use gateway_core::logs::{LogRow, LogSource};
use gateway_store::evals::{self, LiveEval};
use gateway_store::faults::{KillPoint, kill_point};
use gateway_store::{StoreError, jobs as store};

use super::judge_live::{JudgeLive, SampledRows};
use super::{Job as _, JobServices, enqueue};

/// The cache expires after this time, in case the invalidation by another node was missed.
const CACHE_TTL: Duration = Duration::from_secs(2);
/// Sampled rows are dropped while this many jobs of their organization are pending or running.
const MAX_PENDING_JOBS: i64 = 1_000;
/// Small jobs distribute a large batch over the workers and repeat little after a failure.
const MAX_ROWS_PER_JOB: usize = 200;

/// The enabled live evals by organization.
type EnabledEvals = Arc<HashMap<OrgId, Vec<LiveEval>>>;

/// A cache of the enabled live evals.
#[derive(Default)]
pub struct LiveEvals {
    cached: Mutex<Option<(Instant, EnabledEvals)>>,
}

impl LiveEvals {
    /// Drops the cache after an eval was changed.
    pub fn invalidate(&self) {
        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn enabled(&self, job_services: &JobServices) -> Result<EnabledEvals, StoreError> {
        let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((loaded_at, evals)) = cached
            && loaded_at.elapsed() < CACHE_TTL
        {
            return Ok(evals);
        }
        let mut by_org: HashMap<OrgId, Vec<LiveEval>> = HashMap::new();
        for live in evals::list_live(&job_services.services.db).await? {
            by_org.entry(live.org_id).or_default().push(live);
        }
        let loaded = Arc::new(by_org);
        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((Instant::now(), Arc::clone(&loaded)));
        Ok(loaded)
    }
}

/// Whether a row is a model call that evals may judge. Internal calls are excluded, because the calls of judges would
/// be judged as well.
pub fn is_trace(row: &LogRow) -> bool {
    !matches!(row.source, LogSource::Api | LogSource::Mcp | LogSource::Replay)
        && !matches!(RequestPath::parse(&row.path).operation(), Operation::Models | Operation::Embeddings)
}

/// What sampling needs of a log row.
#[derive(Clone, Debug)]
pub struct Trace {
    org: OrgId,
    id: i64,
}

impl Trace {
    /// None for rows that evals do not judge.
    pub fn of(row: &LogRow) -> Option<Self> {
        is_trace(row).then_some(Self { org: row.org_id, id: row.id })
    }
}

/// Enqueues jobs for the sampled rows.
pub async fn sample(job_services: &JobServices, rows: &[Trace]) -> Result<(), StoreError> {
    let enabled = job_services.live_evals.enabled(job_services).await?;
    if enabled.is_empty() {
        return Ok(());
    }
    let mut sampled: BTreeMap<OrgId, BTreeMap<i64, Vec<i64>>> = BTreeMap::new();
    for row in rows {
        for live in enabled.get(&row.org).into_iter().flatten() {
            if is_sampled(live.id, row.id, live.sample_rate) {
                sampled.entry(row.org).or_default().entry(live.id).or_default().push(row.id);
            }
        }
    }
    for (org, by_eval) in sampled {
        let jobs = by_eval.into_iter().flat_map(|(eval, log_ids)| jobs_of(eval, &log_ids));
        let jobs: Vec<JudgeLive> = jobs.collect();
        let dropped = enqueue_within_bound(job_services, org, &jobs).await?;
        if dropped > 0 {
            tracing::warn!(%org, rows = dropped, "too many pending live evals; sampled rows are not judged");
        }
    }
    Ok(())
}

fn jobs_of(eval: i64, log_ids: &[i64]) -> Vec<JudgeLive> {
    let rows = log_ids.chunks(MAX_ROWS_PER_JOB).map(<[i64]>::to_vec);
    rows.map(|log_ids| JudgeLive(vec![SampledRows { eval, log_ids, failures: 0 }])).collect()
}

/// Enqueues as many of the jobs as the organization's queue has room for. Returns the number of rows that are left out.
async fn enqueue_within_bound(
    job_services: &JobServices,
    org: OrgId,
    jobs: &[JudgeLive],
) -> Result<usize, StoreError> {
    let db = &job_services.services.db;
    // A full queue is usually found without a transaction, for which others would have to wait.
    if store::count(db, org, JudgeLive::NAME).await? >= MAX_PENDING_JOBS {
        return Ok(row_count(jobs));
    }
    let mut tx = db.begin().await?;
    // Several nodes, and several batches of a node, sample rows of the organization at the same time.
    let room = store::room(&mut tx, org, JudgeLive::NAME, MAX_PENDING_JOBS).await?;
    let (admitted, dropped) = jobs.split_at(jobs.len().min(usize::try_from(room).unwrap_or(0)));
    let mut last = None;
    for job in admitted {
        last = Some(enqueue(job_services, &mut tx, org, job).await?);
    }
    kill_point(KillPoint::RowsSampled);
    tx.commit().await?;
    if let Some(queued) = last {
        queued.notify(job_services);
    }
    Ok(row_count(dropped))
}

fn row_count(jobs: &[JudgeLive]) -> usize {
    jobs.iter().flat_map(|job| &job.0).map(|rows| rows.log_ids.len()).sum()
}
