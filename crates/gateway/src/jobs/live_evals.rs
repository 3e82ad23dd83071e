//! Evals of live traffic: which of the rows that have just been stored are judged, and by which definitions. Chosen by
//! the ids alone, so that a row that comes again is chosen again, and judged once.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gateway_core::evaluators::is_sampled;
use gateway_core::ids::OrgId;
use gateway_core::llm::paths::{Operation, RequestPath};
use gateway_core::logs::{LogRow, LogSource};
use gateway_store::evals::{self, LiveEval};
use gateway_store::{StoreError, jobs as store};

use super::judge_live::{JudgeLive, Rows};
use super::{Job as _, JobServices, enqueue};

/// Read again after this long, in case word of another node's change was missed.
const FRESH: Duration = Duration::from_secs(2);
/// Jobs that may wait; beyond them rows are not judged, and counted.
const MOST_JOBS: i64 = 1_000;
/// Rows in one job, so that a large batch is spread and a failure repeats little.
const ROWS_PER_JOB: usize = 200;

/// The definitions in force, by organization.
type InForce = Arc<HashMap<OrgId, Vec<LiveEval>>>;

#[derive(Default)]
pub struct LiveEvals {
    known: Mutex<Option<(Instant, InForce)>>,
    pub shed: AtomicU64,
}

impl LiveEvals {
    /// A definition was changed.
    pub fn invalidate(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn in_force(&self, job_services: &JobServices) -> Result<InForce, StoreError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, known)) = known
            && at.elapsed() < FRESH
        {
            return Ok(known);
        }
        let mut by_org: HashMap<OrgId, Vec<LiveEval>> = HashMap::new();
        for live in evals::list_live(&job_services.services.db).await? {
            by_org.entry(live.org_id).or_default().push(live);
        }
        let loaded = Arc::new(by_org);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((Instant::now(), Arc::clone(&loaded)));
        Ok(loaded)
    }
}

/// A row that says something of a model. What the gateway asked itself is not judged, or judges would judge judges.
pub fn is_trace(row: &LogRow) -> bool {
    row.source != LogSource::Api
        && !matches!(RequestPath::parse(&row.path).operation(), Operation::Models | Operation::Embeddings)
}

/// Has the rows judged that are drawn.
pub async fn sample(job_services: &JobServices, rows: &[LogRow]) -> Result<(), StoreError> {
    let in_force = job_services.live_evals.in_force(job_services).await?;
    if in_force.is_empty() {
        return Ok(());
    }
    let mut drawn: BTreeMap<OrgId, BTreeMap<i64, Vec<i64>>> = BTreeMap::new();
    for row in rows.iter().filter(|row| is_trace(row)) {
        for live in in_force.get(&row.org_id).into_iter().flatten() {
            if is_sampled(live.id, row.id, live.sample_rate) {
                drawn.entry(row.org_id).or_default().entry(live.id).or_default().push(row.id);
            }
        }
    }
    for (org, by_eval) in drawn {
        let waiting = store::count(&job_services.services.db, JudgeLive::NAME).await?;
        if waiting >= MOST_JOBS {
            let shed: usize = by_eval.values().map(Vec::len).sum();
            job_services.live_evals.shed.fetch_add(shed as u64, Ordering::Relaxed);
            tracing::warn!(%org, rows = shed, "too many evals of live traffic wait; these rows are not judged");
            continue;
        }
        let mut tx = job_services.services.db.begin().await?;
        let mut last = None;
        for (eval, log_ids) in by_eval {
            for log_ids in log_ids.chunks(ROWS_PER_JOB) {
                let job = JudgeLive(vec![Rows { eval, log_ids: log_ids.to_vec() }]);
                last = Some(enqueue(job_services, &mut tx, org, &job).await?);
            }
        }
        tx.commit().await?;
        if let Some(queued) = last {
            queued.notify(job_services);
        }
    }
    Ok(())
}
