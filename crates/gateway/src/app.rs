//! The application: builds all components, starts the background tasks, and stops them.

mod log_observer;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::ids::OrgId;
use gateway_core::time::{MINUTE, Timestamp};
use gateway_store::cluster::{invalidations, node_ids};
use gateway_store::db::Dialect;
use gateway_store::redis::RedisClient;
use gateway_store::{Db, accounts, keys, orgs};
use secrecy::{ExposeSecret, SecretString};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, watch};

use crate::auth::Access;
use crate::auth::limits::Attempts;
use crate::auth::passwords::Passwords;
use crate::auth::tokens::Tokens;
use crate::budgets::Budgets;
use crate::cache::{Cache, RedisTier};
use crate::clock::Clock;
use crate::config::{Config, ConfigError};
use crate::evals::live::LiveEvals;
use crate::ids::Ids;
use crate::jobs::{self, Bells};
use crate::log;
use crate::log::spool::Spool;
use crate::log::writer::LogWriter;
use crate::low_priority::LowPriorityRuntime;
use crate::metrics::Metrics;
use crate::nodes::{self, Nodes};
use crate::proxy::clients::Clients;
use crate::proxy::state::ProxyState;
use crate::proxy::target_health::TargetHealth;
use crate::proxy::{Worker, target};
use crate::services::{Services, StartError, create_data_dir, migrate_all, open_low_priority};
use crate::tasks::Tasks;
use crate::vault::Vault;
use log_observer::LogObserver;

pub struct App {
    pub services: Arc<Services>,
    /// Everything that the request path of the proxy uses.
    pub proxy: Arc<ProxyState>,
    pub attempts: Attempts,
    pub passwords: Passwords,
    /// The evals that judge new log rows.
    pub live_evals: LiveEvals,
    /// The other nodes on the same database.
    pub nodes: Arc<Nodes>,
    /// Wakes the job workers.
    pub bells: Bells,
    /// Notified when an export was changed on this node, so that a delivery in progress reloads it.
    pub export_changes: watch::Sender<()>,
}

/// How many rows a subscriber of the live tail may lag behind before it has to read from the store.
const TAIL_ROWS: usize = 1024;
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);

impl App {
    /// Opens and migrates the database, and starts the background tasks.
    pub async fn start(config: Config, clock: Clock) -> Result<Arc<Self>, StartError> {
        create_data_dir(&config)?;
        let db = Db::open(config.database_url.expose_secret()).await?;
        let logs = migrate_all(&db, clock.now()).await?;
        let low_priority = LowPriorityRuntime::start().map_err(StartError::Thread)?;
        let logs_low_priority = open_low_priority(&low_priority, &logs).await?;
        let prices = crate::config::load_prices(config.prices_file.as_deref())?;
        // The last lane is for rows that no worker thread writes.
        let spool = Spool::open(config.data_dir.join("spool"), config.workers + 1, config.spool_bytes)
            .map_err(|error| StartError::DataDir { path: config.data_dir.display().to_string(), error })?;
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| StartError::Crypto("cannot read the OS random source"))?;
        let process = u64::from_le_bytes(random);
        // The node number is claimed before anything is written in this node's name. No cache is filled yet, so only
        // changes after this position have to be read.
        let nodes = Arc::new(Nodes::new(process));
        let (node, place) = match db.dialect() {
            Dialect::Sqlite => (i64::from(random[0]), None),
            Dialect::Postgres => {
                let node = node_ids::claim(&db, &nodes.name).await?.ok_or(StartError::TooManyNodes)?;
                (node, Some(invalidations::start_position(&db).await?))
            }
        };
        let redis = open_redis(&config)?;
        let cache = open_cache(&config, &clock, redis.as_ref(), process)?;
        let vault = Vault::new(&config.master_key).ok_or(StartError::Crypto(BAD_MASTER_KEY))?;
        let tokens = Tokens::new(&config.token_secret);
        let services = Arc::new(Services {
            ids: Ids::new(clock.clone(), process, node),
            tasks: Tasks::new(Handle::current(), low_priority),
            started: Instant::now(),
            config,
            clock,
            db,
            logs,
            logs_low_priority,
            vault,
        });
        let proxy = ProxyState {
            access: Access::default(),
            budgets: Budgets::new(Arc::clone(&services), nodes.clone()),
            providers: target::operators(&services.config.providers),
            worker: Worker { lane: services.config.workers, clients: Clients::new() },
            prices,
            health: TargetHealth::default(),
            redis,
            cache,
            spool: Arc::new(spool),
            metrics: Metrics::new(services.config.workers + 1),
            prompts: Arc::default(),
            tokens,
            tail: broadcast::Sender::new(TAIL_ROWS),
        };
        let app = Arc::new(Self {
            services,
            proxy: Arc::new(proxy),
            export_changes: watch::Sender::new(()),
            passwords: Passwords::new(),
            attempts: Attempts::default(),
            bells: Bells::default(),
            nodes,
            live_evals: LiveEvals::default(),
        });
        let tasks = &app.services.tasks;
        if let Some(place) = place {
            tasks.spawn(nodes::run(Arc::clone(&app), place));
        }
        tasks.spawn(housekeeping(Arc::clone(&app)));
        tasks.spawn_low_priority(log_writer(&app).run());
        let log_maintenance = log::maintenance::run(Arc::clone(&app.services), Arc::clone(&app.proxy.spool));
        tasks.spawn_low_priority(log_maintenance);
        tasks.spawn(app.proxy.budgets.clone().run());
        if app.proxy.redis.is_some() {
            tasks.spawn(maintain_redis(Arc::clone(&app)));
        }
        jobs::start(&app).await?;
        Ok(app)
    }

    /// Waits for the tasks until the timeout, then closes the databases.
    pub async fn finish_stop(&self, timeout: Duration) {
        let tasks = &self.services.tasks;
        tasks.set_drained();
        tasks.join(timeout).await;
        if self.services.db.dialect() == Dialect::Postgres
            && tokio::time::timeout(timeout, nodes::leave(self)).await.is_err()
        {
            tracing::warn!(
                "the database does not respond; the other nodes are not notified that this node stops"
            );
        }
        self.services.close().await;
    }
}

fn log_writer(app: &Arc<App>) -> LogWriter {
    LogWriter {
        services: Arc::clone(&app.services),
        spool: Arc::clone(&app.proxy.spool),
        observer: Arc::new(LogObserver(Arc::clone(app))),
    }
}

const BAD_MASTER_KEY: &str = "the master key is not usable: GATEWAY_MASTER_KEY must be 64 hex digits";

async fn housekeeping(app: Arc<App>) {
    let mut last_sweep = app.services.clock.now();
    let mut seen = HashMap::new();
    loop {
        let stop = tokio::time::timeout(HOUSEKEEPING_INTERVAL, app.services.tasks.drained()).await.is_ok();
        record_used_keys(&app).await;
        if stop {
            return;
        }
        let now = app.services.clock.now();
        if app.services.db.dialect() == Dialect::Sqlite {
            invalidate_changed(&app, &mut seen, now).await;
        }
        if now.0 - last_sweep.0 >= MINUTE {
            last_sweep = now;
            app.proxy.access.sweep(now);
            app.proxy.cache.sweep(now);
            if let Err(error) = accounts::sweep_tokens(&app.services.db, now).await {
                tracing::debug!(%error, "cannot remove expired token revocations");
            }
        }
    }
}

fn open_redis(config: &Config) -> Result<Option<Arc<RedisClient>>, StartError> {
    let open = |url: &SecretString| RedisClient::new(url.expose_secret()).map(Arc::new);
    config
        .redis_url
        .as_ref()
        .map(open)
        .transpose()
        .map_err(|error| StartError::Config(ConfigError(format!("bad value for GATEWAY_REDIS_URL: {error}"))))
}

fn open_cache(
    config: &Config,
    clock: &Clock,
    redis: Option<&Arc<RedisClient>>,
    process: u64,
) -> Result<Arc<Cache>, StartError> {
    let redis_tier = |shared: &Arc<RedisClient>| {
        let vault = Vault::derived(&config.master_key, "cache")?;
        Some(RedisTier::new(Arc::clone(shared), vault, format!("{process:016x}")))
    };
    let redis_tier =
        redis.map(|redis| redis_tier(redis).ok_or(StartError::Crypto(BAD_MASTER_KEY))).transpose()?;
    Ok(Arc::new(Cache::new(config.cache_bytes, clock.clone(), redis_tier)))
}

/// Keeps the connection to Redis open, and the cache tier that depends on it running.
async fn maintain_redis(app: Arc<App>) {
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
/// notifications, so this polls. The range overlaps the previous one because a change becomes visible only at its commit.
async fn invalidate_changed(app: &App, seen: &mut HashMap<OrgId, Timestamp>, now: Timestamp) {
    let Ok(changed) = orgs::changed_since(&app.services.db, now.plus(-MINUTE)).await else { return };
    for (org, at) in &changed {
        if seen.get(org) != Some(at) {
            app.proxy.access.invalidate_all_of(*org);
            app.proxy.prompts.invalidate_all_of(*org);
        }
    }
    *seen = changed.into_iter().collect();
}

async fn record_used_keys(app: &App) {
    let mut used = Vec::new();
    app.proxy.access.take_used(&mut used);
    if used.is_empty() {
        return;
    }
    // Rows are locked in a fixed order, so that two nodes cannot deadlock.
    used.sort_by_key(|(id, _)| *id);
    if let Err(error) = keys::touch(&app.services.db, &used).await {
        tracing::debug!(%error, "cannot record the last use of keys");
    }
}
