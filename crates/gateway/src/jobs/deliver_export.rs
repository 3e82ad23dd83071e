//! Delivers log rows to exports. One batch at a time per destination, under a lease; what is owed stands in the store until
//! the destination has it, so neither a restart nor an outage of a destination loses or skips a row.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::access::Entitlement;
use gateway_core::exports::{BATCH_ROWS, wait_after};
use gateway_core::ids::ExportId;
use gateway_core::time::{MINUTE, SECOND, Timestamp};
use gateway_store::db::Dialect;
use gateway_store::exports::{self, Progress, Turn};
use gateway_store::{StoreError, logs, orgs};
use tokio::task::JoinSet;

use crate::app::App;
use crate::outgoing::{ANSWER_BYTES, Sent, batch, post, random};

/// Rows wait for others at most this long before they leave.
const TICK: Duration = Duration::from_millis(500);
/// Destinations served at once.
const OVERALL: usize = 64;
/// Longer than a batch can take.
const LEASE: i64 = 30 * SECOND;
/// How often a delivery under way looks by itself whether its export was changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Bodies in one request; a single row may be larger.
const BATCH_BYTES: i64 = 4 << 20;
const ERROR_CHARACTERS: usize = 500;
const SWEEP_EVERY: i64 = 10 * MINUTE;

/// Runs until the service stops, then waits for the batches that are under way.
pub async fn run(app: Arc<App>) {
    if app.logs.dialect() == Dialect::Sqlite
        && let Err(error) = exports::release_all(&app.logs).await
    {
        tracing::debug!(%error, "exports of the run before wait for their lease to end");
    }
    let lease = app.new_id::<uuid::Uuid>().to_string();
    let mut batches = JoinSet::new();
    let mut running = HashSet::new();
    let mut next_sweep = app.clock.now();
    while !app.is_stopping() {
        let due = exports::due(&app.logs, &lease, app.clock.now()).await.unwrap_or_default();
        for id in due {
            if running.len() < OVERALL && running.insert(id) {
                batches.spawn(serve(Arc::clone(&app), id, lease.clone()));
            }
        }
        let now = app.clock.now();
        if now >= next_sweep {
            let _ = exports::sweep(&app.logs).await;
            next_sweep = now.plus(SWEEP_EVERY);
        }
        let pause = tokio::time::sleep(TICK);
        tokio::pin!(pause);
        loop {
            let served = tokio::select! {
                () = &mut pause => break,
                () = app.stopping() => break,
                Some(served) = batches.join_next() => served,
            };
            if let Ok(id) = served {
                running.remove(&id);
            }
        }
        // A task that panicked has not said whose it was.
        if batches.is_empty() {
            running.clear();
        }
    }
    while batches.join_next().await.is_some() {}
}

/// Delivers batch after batch while full ones are waiting; what is left waits for others to join it.
async fn serve(app: Arc<App>, id: ExportId, lease: String) -> ExportId {
    while !app.is_stopping() {
        match deliver(&app, id, &lease).await {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                tracing::debug!(%error, export = %id, "an export waits");
                break;
            }
        }
    }
    id
}

/// Delivers one batch; true when more is waiting and can be sent at once.
async fn deliver(app: &Arc<App>, id: ExportId, lease: &str) -> Result<bool, StoreError> {
    let now = app.clock.now();
    let Some(turn) = exports::claim(&app.logs, id, lease, now, now.plus(LEASE)).await? else {
        return Ok(false);
    };
    let export = &turn.export;
    let Some(org) = orgs::find(&app.db, export.org_id).await? else {
        let mut tx = app.logs.begin().await?;
        exports::delete_all_of(&mut tx, export.org_id).await?;
        tx.commit().await?;
        return Ok(false);
    };
    if !org.plan.includes(Entitlement::Integrations) {
        exports::discard_waiting(&app.logs, id, "the plan does not include exports").await?;
        return Ok(false);
    }
    let content = org.settings.log_bodies && app.config.log_bodies;
    let waiting = exports::waiting(&app.logs, id, turn.batch).await?;
    let all = waiting.len();
    let taken = fitting(app, &turn, waiting, content).await?;
    let more = count(all) >= turn.batch || taken.len() < all;
    let rows = logs::of_ids(&app.logs, export.org_id, &taken, content).await?;
    let (found, asked) = (count(rows.len()), count(taken.len()));
    if found == 0 {
        // Their retention was over before the destination took them.
        let progress =
            Progress { done: &taken, dropped: asked, next_batch: turn.batch, ..Progress::default() };
        exports::progressed(&app.logs, id, lease, &progress, app.clock.now()).await?;
        return Ok(more && asked > 0);
    }
    let message = batch::encode(app, export.clone(), rows, content).await;
    let sent = match message {
        Err(why) => Sent::failed(why),
        Ok(message) => tokio::select! {
            sent = post(app, &message.url, message.headers, message.body, ANSWER_BYTES) => sent,
            // Deleted, switched off or changed: whoever asked for it must not see another byte.
            () = changed(app, id, export.revision) => return Ok(false),
        },
    };
    let now = app.clock.now();
    if sent.is_success() {
        let (rejected, complaint) = batch::rejected(export.kind, &sent.body);
        let next_batch = (turn.batch * 2).min(BATCH_ROWS);
        let progress = Progress {
            done: &taken,
            delivered: found,
            dropped: asked - found + rejected,
            error: complaint.as_deref(),
            next_batch,
        };
        exports::progressed(&app.logs, id, lease, &progress, now).await?;
        return Ok(more);
    }
    refused(app, &turn, lease, &sent, &taken, now).await
}

/// As many of the rows as may go into one request.
async fn fitting(app: &App, turn: &Turn, waiting: Vec<i64>, content: bool) -> Result<Vec<i64>, StoreError> {
    if !content {
        return Ok(waiting);
    }
    let sizes = logs::body_sizes(&app.logs, turn.export.org_id, &waiting).await?;
    let mut room = BATCH_BYTES;
    let too_much = sizes.iter().skip_while(|(_, size)| {
        room -= size;
        room > 0
    });
    let first_id = sizes.first().map(|(id, _)| *id);
    let end = too_much.map(|(id, _)| *id).find(|id| Some(*id) != first_id);
    Ok(match end {
        None => waiting,
        Some(end) => waiting.into_iter().take_while(|id| *id < end).collect(),
    })
}

async fn refused(
    app: &App,
    turn: &Turn,
    lease: &str,
    sent: &Sent,
    taken: &[i64],
    now: Timestamp,
) -> Result<bool, StoreError> {
    let id = turn.export.id;
    let error = complaint(sent);
    let too_large = sent.status == Some(413);
    if too_large && taken.len() == 1 {
        // It will not become smaller, and the others must not wait for it for ever.
        let dropped = Progress {
            done: taken,
            dropped: 1,
            error: Some(&error),
            next_batch: turn.batch,
            ..Progress::default()
        };
        exports::progressed(&app.logs, id, lease, &dropped, now).await?;
        return Ok(true);
    }
    let wait = if too_large { 0 } else { wait_after(turn.tries + 1, sent.retry_after_ms, random()) };
    let next_batch = if too_large { (count(taken.len()) / 2).max(1) } else { turn.batch };
    exports::failed(&app.logs, id, lease, &error, now.plus(wait), next_batch).await?;
    Ok(too_large)
}

/// What went wrong, with what the destination said about it.
fn complaint(sent: &Sent) -> String {
    let error = sent.error.clone().unwrap_or_default();
    let said: String = String::from_utf8_lossy(&sent.body)
        .chars()
        .filter(|c| !c.is_control())
        .take(ERROR_CHARACTERS)
        .collect();
    if said.trim().is_empty() { error } else { format!("{error}: {}", said.trim()) }
}

/// Returns once the export is no longer what it was.
async fn changed(app: &App, id: ExportId, revision: i64) {
    let mut here = app.export_changes.subscribe();
    loop {
        // Changes are told; should word of one be missed, it is found.
        let _ = tokio::time::timeout(LOOK_EVERY, here.changed()).await;
        match exports::revision(&app.logs, id).await {
            Ok(Some(found)) if found == revision => {}
            Ok(_) => return,
            Err(error) => tracing::debug!(%error, "a delivery goes on unwatched"),
        }
    }
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
