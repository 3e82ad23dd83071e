//! Delivers log rows, and verdicts on them, to exports. An export is one node's at a time, under a lease; what is owed stands
//! in the store until the destination has it, so neither a restart nor an outage of a destination loses or skips a row.
//!
//! A destination that keeps up is sent several batches at once, a failing one a single batch at ever longer intervals. All of it
//! runs on threads that step back: requests that pass through the proxy come first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use gateway_core::access::Entitlement;
use gateway_core::exports::{ExportKind, MAX_BATCH_ROWS, retry_delay};
use gateway_core::ids::{ExportId, OrgId};
use gateway_core::logs::LogRow;
use gateway_core::time::{MINUTE, SECOND};
use gateway_store::db::Dialect;
use gateway_store::exports::{self, BatchResult, Export, ExportClaim, FailedBatch, QueuedItem};
use gateway_store::{Lease, StoreError, logs, orgs};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::delivery::batch::{self, Contents};
use crate::delivery::{DeliveryResult, random};
use crate::jobs::JobServices;

/// Rows wait for others at most this long before they leave.
const TICK: Duration = Duration::from_millis(500);
/// Destinations served at once, of all organizations and of one: nobody's slow ones can take all places.
const OVERALL: usize = 128;
const PER_ORG: usize = 8;
/// Batches at once to a destination that keeps up.
const WIDEST: usize = 4;
/// Batches that are made at once, since each may be some megabytes long.
const MAKERS: usize = 4;
/// Longer than a batch can take.
const LEASE: i64 = 30 * SECOND;
/// How often a delivery under way looks by itself whether its export was changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Bodies in one request; a single row may be larger.
const BATCH_BYTES: i64 = 4 << 20;
const ERROR_CHARACTERS: usize = 500;
const SWEEP_EVERY: i64 = 10 * MINUTE;

/// Runs until the service stops, then waits for the batches that are under way.
pub async fn run(job_services: Arc<JobServices>) {
    if job_services.services.logs_low_priority.dialect() == Dialect::Sqlite
        && let Err(error) = exports::release_all(&job_services.services.logs_low_priority).await
    {
        tracing::debug!(%error, "exports of the run before wait for their lease to end");
    }
    let lease = job_services.services.ids.new_id::<uuid::Uuid>().to_string();
    let makers = Arc::new(Semaphore::new(MAKERS));
    let mut served = JoinSet::new();
    let mut under_way = HashMap::new();
    let mut next_sweep = job_services.services.clock.now();
    while !job_services.services.tasks.is_stopping() {
        let due = exports::list_due(
            &job_services.services.logs_low_priority,
            &lease,
            job_services.services.clock.now(),
        )
        .await
        .unwrap_or_default();
        for (org, id) in due {
            if has_room(&under_way, org, id) {
                under_way.insert(id, org);
                served.spawn(serve(Arc::clone(&job_services), id, lease.clone(), Arc::clone(&makers)));
            }
        }
        let now = job_services.services.clock.now();
        if now >= next_sweep {
            let _ = exports::sweep(&job_services.services.logs_low_priority).await;
            next_sweep = now.plus(SWEEP_EVERY);
        }
        let pause = tokio::time::sleep(TICK);
        tokio::pin!(pause);
        loop {
            let done = tokio::select! {
                () = &mut pause => break,
                () = job_services.services.tasks.stopping() => break,
                Some(done) = served.join_next() => done,
            };
            if let Ok(id) = done {
                under_way.remove(&id);
            }
        }
        // A task that panicked has not said whose it was.
        if served.is_empty() {
            under_way.clear();
        }
    }
    while served.join_next().await.is_some() {}
}

fn has_room(under_way: &HashMap<ExportId, OrgId>, org: OrgId, id: ExportId) -> bool {
    let of_org = under_way.values().filter(|other| **other == org).count();
    under_way.len() < OVERALL && of_org < PER_ORG && !under_way.contains_key(&id)
}

/// Delivers while there is enough to fill a batch; what is left waits for others to join it.
async fn serve(
    job_services: Arc<JobServices>,
    id: ExportId,
    lease: String,
    makers: Arc<Semaphore>,
) -> ExportId {
    let node = Node { job_services: &job_services, lease: &lease, makers: &makers };
    let mut width = 1;
    while !job_services.services.tasks.is_stopping() {
        match node.deliver(id, width).await {
            Ok(Some(next)) => width = next,
            Ok(None) => break,
            Err(error) => {
                tracing::debug!(%error, export = %id, "an export waits");
                break;
            }
        }
    }
    if let Err(error) = exports::release(&job_services.services.logs_low_priority, id, &lease).await {
        tracing::debug!(%error, export = %id, "an export is another's once its lease has ended");
    }
    id
}

/// This node, as the one that delivers.
struct Node<'a> {
    job_services: &'a Arc<JobServices>,
    lease: &'a str,
    makers: &'a Semaphore,
}

/// An export's turn, and how its batches are made.
struct Task {
    turn: ExportClaim,
    export: Arc<Export>,
    /// With what was said.
    content: bool,
}

/// What became of a batch.
struct Delivered {
    taken: Vec<QueuedItem>,
    /// How many of them were still there.
    found: i64,
    /// None: there was nothing to send.
    sent: Option<DeliveryResult>,
}

impl Node<'_> {
    /// Delivers up to `width` batches at once. Answers how many the next time, when more is waiting and can be sent now.
    async fn deliver(&self, id: ExportId, width: usize) -> Result<Option<usize>, StoreError> {
        let (job_services, now) = (self.job_services, self.job_services.services.clock.now());
        let lease = Lease { owner: self.lease, now, until: now.plus(LEASE) };
        let Some(turn) = exports::claim(&job_services.services.logs_low_priority, id, &lease).await? else {
            return Ok(None);
        };
        let Some(org) = orgs::find(&job_services.services.db, turn.export.org_id).await? else {
            let mut tx = job_services.services.logs_low_priority.begin().await?;
            exports::delete_by_org(&mut tx, turn.export.org_id).await?;
            tx.commit().await?;
            return Ok(None);
        };
        if !org.plan.includes(Entitlement::Integrations) {
            exports::discard_queue(
                &job_services.services.logs_low_priority,
                id,
                "the plan does not include exports",
            )
            .await?;
            return Ok(None);
        }
        let most = turn.batch * i64::try_from(width).unwrap_or(1);
        let waiting = exports::queued(&job_services.services.logs_low_priority, id, most).await?;
        let content = org.settings.log_bodies && job_services.services.config.log_bodies;
        let task = Task { export: Arc::new(turn.export.clone()), turn, content };
        let mut is_more = count(waiting.len()) >= most;
        let mut batches = cut(&task, waiting);
        is_more |= batches.len() > width;
        batches.truncate(width);
        let sending = async {
            let mut sent = futures_util::stream::iter(batches)
                .map(|batch| self.send(&task, batch))
                .buffer_unordered(width);
            let mut failure = None;
            while let Some(delivered) = sent.next().await {
                if let Some(failed) = self.settle(&task, delivered?).await? {
                    failure.get_or_insert(failed);
                }
            }
            Ok::<_, StoreError>(failure)
        };
        let failure = tokio::select! {
            failure = sending => failure?,
            // Deleted, switched off or changed: whoever asked for it must not see another byte.
            () = changed(job_services, id, task.turn.export.revision) => return Ok(None),
        };
        match failure {
            None => Ok(is_more.then_some((width * 2).min(WIDEST))),
            Some(failed) => Ok(self.note_failure(&task, &failed).await?.then_some(1)),
        }
    }

    async fn send(&self, task: &Task, taken: Vec<QueuedItem>) -> Result<Delivered, StoreError> {
        let (message, found) = {
            // Never closed; and a batch more at once would be no harm.
            let _place = self.makers.acquire().await.ok();
            let contents = self.read(task, &taken).await?;
            let found = count(contents.rows.len() + contents.verdicts.len());
            if found == 0 {
                return Ok(Delivered { taken, found, sent: None });
            }
            (batch::encode(&self.job_services.delivery, &task.export, contents).await, found)
        };
        let sent = match message {
            Err(why) => DeliveryResult::failed(why),
            Ok(message) => message.send(&self.job_services.delivery).await,
        };
        Ok(Delivered { taken, found, sent: Some(sent) })
    }

    /// The rows as far as they are still there, and the verdicts whose rows are.
    async fn read(&self, task: &Task, taken: &[QueuedItem]) -> Result<Contents, StoreError> {
        let (logs, org) = (&self.job_services.services.logs_low_priority, task.export.org_id);
        let ids = rows_of(taken);
        let rows = logs::find_many(logs, org, &ids, task.content).await?;
        let judged: Vec<i64> =
            taken.iter().filter(|owed| owed.verdict.is_some()).map(|owed| owed.log_id).collect();
        let mut verdicts = Vec::new();
        // Only conventions of OpenTelemetry have a place for them.
        if !judged.is_empty() && task.export.kind == ExportKind::Otlp {
            let found = logs::find_many(logs, org, &judged, false).await?;
            let found: HashMap<i64, LogRow> = found.into_iter().map(|row| (row.id, row)).collect();
            verdicts.extend(
                taken
                    .iter()
                    .filter_map(|owed| Some((found.get(&owed.log_id)?.clone(), owed.verdict.clone()?))),
            );
        }
        Ok(Contents { rows, verdicts, content: task.content })
    }

    /// Takes off the queue what has arrived, or never will; answers what has to be sent again.
    async fn settle(
        &self,
        task: &Task,
        delivered: Delivered,
    ) -> Result<Option<(DeliveryResult, usize)>, StoreError> {
        let Delivered { taken, found, sent } = delivered;
        let (id, asked) = (task.export.id, count(taken.len()));
        let mut progress =
            BatchResult { done: &taken, next_batch: task.turn.batch, ..BatchResult::default() };
        let complaint;
        match sent {
            // The retention was over before the destination took them.
            None => progress.dropped = asked,
            Some(sent) if sent.is_success() => {
                let rejected;
                (rejected, complaint) = batch::rejected(task.export.kind, &sent.body);
                (progress.delivered, progress.dropped) = (found, asked - found + rejected);
                progress.error = complaint.as_deref();
                progress.next_batch = (task.turn.batch * 2).min(MAX_BATCH_ROWS);
            }
            // It will not become smaller, and the others must not wait for it for ever.
            Some(sent) if sent.status == Some(413) && asked == 1 => {
                complaint = Some(said(&sent));
                (progress.dropped, progress.error) = (1, complaint.as_deref());
            }
            Some(sent) => return Ok(Some((sent, taken.len()))),
        }
        exports::record_batch(
            &self.job_services.services.logs_low_priority,
            id,
            &progress,
            self.job_services.services.clock.now(),
        )
        .await?;
        Ok(None)
    }

    /// True when smaller batches can be sent at once.
    async fn note_failure(
        &self,
        task: &Task,
        (sent, length): &(DeliveryResult, usize),
    ) -> Result<bool, StoreError> {
        let ExportClaim { export, tries, batch } = &task.turn;
        let too_large = sent.status == Some(413);
        let delay =
            if too_large { Duration::ZERO } else { retry_delay(tries + 1, sent.retry_after, random()) };
        let next_batch = if too_large { (count(*length) / 2).max(1) } else { *batch };
        let retry_at = self.job_services.services.clock.now().after(delay);
        let error = said(sent);
        let failed = FailedBatch { error: &error, retry_at, next_batch };
        exports::record_failure(&self.job_services.services.logs_low_priority, export.id, self.lease, failed)
            .await?;
        Ok(too_large)
    }
}

/// What waits, cut into batches that may each go into one request.
fn cut(task: &Task, waiting: Vec<QueuedItem>) -> Vec<Vec<QueuedItem>> {
    let most = task.turn.batch;
    let (mut batches, mut batch, mut room) = (Vec::new(), Vec::new(), BATCH_BYTES);
    for owed in waiting {
        let size = if task.content { owed.size } else { 0 };
        if !batch.is_empty() && (size > room || count(batch.len()) >= most) {
            batches.push(std::mem::take(&mut batch));
            room = BATCH_BYTES;
        }
        room -= size;
        batch.push(owed);
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

fn rows_of(owed: &[QueuedItem]) -> Vec<i64> {
    owed.iter().filter(|owed| owed.verdict.is_none()).map(|owed| owed.log_id).collect()
}

/// What went wrong, with what the destination said about it.
fn said(sent: &DeliveryResult) -> String {
    let error = sent.error.clone().unwrap_or_default();
    let answer: String = String::from_utf8_lossy(&sent.body)
        .chars()
        .filter(|c| !c.is_control())
        .take(ERROR_CHARACTERS)
        .collect();
    if answer.trim().is_empty() { error } else { format!("{error}: {}", answer.trim()) }
}

/// Returns once the export is no longer what it was.
async fn changed(job_services: &JobServices, id: ExportId, revision: i64) {
    let mut here = job_services.export_changes.subscribe();
    loop {
        // Changes are told; should word of one be missed, it is found.
        let _ = tokio::time::timeout(LOOK_EVERY, here.changed()).await;
        match exports::revision(&job_services.services.logs_low_priority, id).await {
            Ok(Some(found)) if found == revision => {}
            Ok(_) => return,
            Err(error) => tracing::debug!(%error, "a delivery goes on unwatched"),
        }
    }
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
