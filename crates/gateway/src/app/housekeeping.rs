//! Periodic tasks: record the last use of keys, remove expired cache entries and counters, and reconnect to Redis.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::ids::OrgId;
use gateway_core::time::{HOUR, MINUTE, Timestamp};
use gateway_store::db::Dialect;
use gateway_store::prompt_cache_pauses::{self, Pause};
use gateway_store::{StoreError, audit, cache_purges, invites, orgs, sign_ins, user_sessions};

use super::App;
use crate::attempts::KNOWN_ADDRESS_AGE;
use crate::cluster::invalidation::{self, Invalidation};
use crate::proxy::prompt_cache::Loss;
use crate::services::Services;

const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);

pub async fn housekeeping(app: Arc<App>) {
    let Services { clock, db, tasks, .. } = &*app.services;
    let mut last_sweep = clock.now();
    let mut seen = HashMap::new();
    loop {
        let is_last = tokio::time::timeout(HOUSEKEEPING_INTERVAL, tasks.drained()).await.is_ok();
        app.proxy.access.record_last_uses().await;
        pause_prompt_caches(&app).await;
        if is_last {
            return;
        }
        let now = clock.now();
        if db.dialect() == Dialect::Sqlite {
            invalidate_changed(&app, &mut seen, now).await;
        }
        if now.0 - last_sweep.0 >= MINUTE {
            if now.0.div_euclid(HOUR) != last_sweep.0.div_euclid(HOUR)
                && let Err(error) = audit::ensure_partitions(db, now).await
            {
                tracing::debug!(%error, "cannot create the next partition of the audit log");
            }
            last_sweep = now;
            app.proxy.limits.sweep_plan_counters(now);
            app.proxy.cache.sweep(now);
            app.proxy.worker.clients.close_expired();
            app.jobs.delivery.clients.close_expired();
            if let Err(error) = user_sessions::sweep(db, now).await {
                tracing::debug!(%error, "cannot remove expired sessions");
            }
            if let Err(error) = sign_ins::sweep(db, now.plus(-KNOWN_ADDRESS_AGE), now).await {
                tracing::debug!(%error, "cannot remove old sign-in addresses");
            }
            if let Err(error) = invites::sweep(db, now).await {
                tracing::debug!(%error, "cannot remove expired invitations");
            }
            if let Err(error) = cache_purges::sweep(db, now).await {
                tracing::debug!(%error, "cannot remove old cache purges");
            }
        }
    }
}

/// Pauses prompt caching where it lost money. A pause that cannot be stored is found again after a hundred calls.
async fn pause_prompt_caches(app: &App) {
    for loss in app.proxy.prompt_caches.take_losses() {
        match store_pause(app, &loss).await {
            Ok(()) => {
                tracing::info!(org = %loss.org, key = ?loss.key, model = ?loss.model, "prompt caching lost money over 100 calls of a key; it is paused for the key");
            }
            Err(error) => tracing::debug!(%error, "cannot pause prompt caching that lost money"),
        }
    }
}

async fn store_pause(app: &App, loss: &Loss) -> Result<(), StoreError> {
    let Loss { org, key, model, saved } = loss.clone();
    let pause = Pause { key_id: key, model, saved, paused_at: app.services.clock.now() };
    let mut tx = app.services.db.begin().await?;
    prompt_cache_pauses::insert(&mut tx, org, &pause).await?;
    let pending = invalidation::record(&mut tx, Invalidation::Org(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await
}

/// Keeps the connection to Redis open, and the cache tier that depends on it running.
pub async fn maintain_redis(app: Arc<App>) {
    let Some(redis) = app.proxy.redis.clone() else { return };
    let log_change = |up| {
        if up {
            tracing::info!("connected to Redis");
        } else {
            tracing::warn!("Redis is unreachable; limits and cache continue without it");
        }
    };
    tokio::select! {
        () = redis.run(log_change) => {}
        () = app.proxy.cache.run() => {}
        () = app.services.tasks.drained() => {}
    }
}

/// Invalidates organizations that another process changed, for example `gateway admin set-plan`. SQLite has no
/// notifications, so this polls. The range overlaps the previous one because a change becomes visible only at its
/// commit.
async fn invalidate_changed(app: &App, seen: &mut HashMap<OrgId, Timestamp>, now: Timestamp) {
    let changed = match orgs::changed_since(&app.services.db, now.plus(-MINUTE)).await {
        Ok(changed) => changed,
        Err(error) => {
            tracing::debug!(%error, "cannot look for organizations that another process changed; retrying");
            return;
        }
    };
    for (org, at) in &changed {
        if seen.get(org) != Some(at) {
            app.proxy.access.invalidate_all_of(*org);
            app.proxy.prompts.invalidate_all_of(*org);
        }
    }
    *seen = changed.into_iter().collect();
}
