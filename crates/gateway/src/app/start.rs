//! Start of the application: opens the databases, creates the components and starts the background tasks.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Instant;

use gateway_core::audit::{Chain, Target};
use gateway_core::cache::CacheKey;
use gateway_core::ids::OrgId;
use gateway_store::cache_purges::Generation;
use gateway_store::db::Dialect;
use gateway_store::redis::RedisClient;
use gateway_store::{Db, audit, orgs};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use tokio::sync::broadcast;

use super::App;
use super::alerts;
use super::housekeeping::{housekeeping, maintain_redis};
use super::log_observer::LogObserver;
use super::wal_checkpoints;
use crate::attempts::AttemptLimits;
use crate::audit::{AuditQueue, system_entry};
use crate::auth::Access;
use crate::auth::passwords::Passwords;
use crate::auth::tokens::Tokens;
use crate::budgets::{Budgets, Peers};
use crate::cache::{Cache, PurgeSource, RedisTier};
use crate::calls_in_progress::CallsInProgress;
use crate::clock::Clock;
use crate::cluster::invalidation::InvalidationHandler;
use crate::cluster::{Cluster, Membership};
use crate::compute::ComputePool;
use crate::config::{Config, ConfigError, DatabaseConnections, load_prices};
use crate::connections::Connections;
use crate::egress::Egress;
use crate::health::HealthCache;
use crate::ids::Ids;
use crate::jobs::{self, JobServices};
use crate::limits::Limits;
use crate::log::quotas::LogQuotas;
use crate::log::spool::Spool;
use crate::log::writer::LogWriter;
use crate::low_priority::LowPriorityRuntime;
use crate::mcp::Mcp;
use crate::memory::MemoryBudget;
use crate::metrics::Metrics;
use crate::outbound::clients::Clients;
use crate::prompts::Prompts;
use crate::proxy::Worker;
use crate::proxy::prompt_cache::PromptCaches;
use crate::proxy::state::ProxyState;
use crate::proxy::target_health::TargetHealth;
use crate::quotas::QuotaUsage;
use crate::services::{Services, StartError, migrate_all};
use crate::shares::Shares;
use crate::targets::OperatorTargets;
use crate::tasks::Tasks;
use crate::vault::{DailyVault, Vault};
use crate::{data_dir, log};

/// How many rows a subscriber of the live tail may lag behind before it has to read from the store.
const TAIL_ROWS: usize = 1024;
const INVALID_MASTER_KEY: &str = "the master key is invalid: GATEWAY_MASTER_KEY must be 64 hex digits";

impl App {
    /// Opens and migrates the database, and starts the background tasks.
    pub async fn start(config: Config, clock: Clock) -> Result<Arc<Self>, StartError> {
        data_dir::create(&config)?;
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| StartError::Crypto("cannot read the OS random source"))?;
        let (services, membership) = open_services(config, clock, u64::from_le_bytes(random)).await?;
        let cluster = Arc::new(Cluster::new(Arc::clone(&services), membership));
        let redis = open_redis(&services.config)?;
        let attempts = Arc::new(AttemptLimits::new(Arc::clone(&services)));
        let proxy = Arc::new(proxy_state(&services, &cluster, &attempts, redis)?);
        let mcp = Mcp::new(Arc::clone(&services), Arc::clone(&proxy), Arc::clone(&cluster));
        let mcp = Arc::new(mcp.ok_or(StartError::Crypto(INVALID_MASTER_KEY))?);
        let jobs = Arc::new(JobServices::new(Arc::clone(&services), Arc::clone(&proxy)));
        let connections =
            Connections::new(*services.config.connection_limits, services.config.trusted_proxies.clone());
        let app = Arc::new(Self {
            quotas: QuotaUsage::new(Arc::clone(&services)),
            log_quotas: Arc::new(LogQuotas::new(Arc::clone(&services))),
            shares: Shares::new(services.logs.readers(), services.db.owners()),
            audit: Arc::clone(&proxy.audit),
            services,
            proxy,
            cluster,
            attempts,
            mcp,
            passwords: Passwords::start().map_err(StartError::Thread)?,
            models: jobs.models.clone(),
            jobs,
            health: HealthCache::default(),
            connections: Arc::new(connections),
        });
        let handler: Arc<dyn InvalidationHandler> = app.clone();
        app.cluster.set_handler(Arc::downgrade(&handler));
        start_tasks(&app).await?;
        record_start(&app).await?;
        Ok(app)
    }
}

/// Claims the node number before anything is written with it.
async fn open_services(
    config: Config,
    clock: Clock,
    process: u64,
) -> Result<(Arc<Services>, Membership), StartError> {
    let DatabaseConnections { requests, authentication, background } = config.database_connections;
    let db = Db::open_with(config.database_url.expose_secret(), requests).await?;
    let logs = migrate_all(&db, clock.now()).await?;
    let low_priority = LowPriorityRuntime::start().map_err(StartError::Thread)?;
    // Only low-priority threads use it, and they use no other: a connection is driven by the runtime that opens it, and
    // SQLite's threads inherit the priority.
    let logs_low_priority = logs.reopen(background);
    let membership = Membership::claim(&db, process).await?;
    let services = Services {
        vault: open_vault(&config)?,
        ids: Ids::new(clock.clone(), process, membership.node),
        egress: Egress::new(&config, orgs::count(&db).await?),
        tasks: Tasks::new(Handle::current(), low_priority),
        memory: MemoryBudget::new(config.memory_bytes).sharing_by(db.owners()),
        calls: CallsInProgress::new(config.max_calls).sharing_by(db.owners()),
        compute: ComputePool::start(db.owners()).map_err(StartError::Thread)?,
        started: Instant::now(),
        config,
        clock,
        db_authentication: db.reserve(authentication),
        db,
        logs,
        logs_low_priority,
    };
    Ok((Arc::new(services), membership))
}

fn proxy_state(
    services: &Arc<Services>,
    cluster: &Arc<Cluster>,
    attempts: &Arc<AttemptLimits>,
    redis: Option<Arc<RedisClient>>,
) -> Result<ProxyState, StartError> {
    let config = &services.config;
    // The last lane is for rows that no worker thread writes.
    let spool = Spool::open(config.data_dir.join("spool"), config.workers + 1, config.spool_bytes).map_err(
        |error| match (config.data_dir.display().to_string(), error) {
            (path, error) if error.kind() == ErrorKind::ResourceBusy => StartError::DataDirInUse(path),
            (path, error) => StartError::DataDir { path, error },
        },
    )?;
    let spool = spool.sharing_by(services.db.owners());
    let budgets = Budgets::new(Arc::clone(services), cluster.clone());
    let limits = Limits::new(Arc::clone(services), cluster.clone(), redis.clone());
    let operator = OperatorTargets::new(&config.providers);
    let providers = Arc::clone(&operator.with_credentials);
    let tokens = Tokens::new(&config.token_secret).accepting(&config.token_secrets_accepted);
    let tokens = Arc::new(tokens);
    let access = Access::new(
        Arc::clone(services),
        Arc::clone(&tokens),
        Arc::clone(attempts),
        (budgets.clone(), limits.clone()),
        operator,
    );
    let access = Arc::new(access);
    Ok(ProxyState {
        budgets,
        limits,
        providers,
        worker: Worker { lane: config.workers, clients: Clients::new() },
        prices: load_prices(config.prices_file.as_deref())?,
        health: TargetHealth::default(),
        prompt_caches: PromptCaches::default(),
        cache: open_cache(services, redis.as_ref(), &access)?,
        access,
        audit: Arc::new(AuditQueue::new(Arc::clone(services))),
        redis,
        spool: Arc::new(spool),
        metrics: Metrics::new(config.workers + 1),
        prompts: Arc::new(Prompts::new(Arc::clone(services), Arc::clone(cluster))),
        tokens,
        tail: broadcast::Sender::new(TAIL_ROWS),
    })
}

async fn start_tasks(app: &Arc<App>) -> Result<(), StartError> {
    let tasks = &app.services.tasks;
    if app.services.db.dialect() == Dialect::Postgres {
        tasks.spawn(Arc::clone(&app.cluster).run());
        tasks.spawn(Arc::clone(&app.attempts).run());
        tasks.spawn(app.proxy.limits.clone().run_plan_exchange());
    }
    tasks.spawn(Arc::clone(&app.audit).run());
    tasks.spawn(Arc::clone(&app.audit).maintain());
    tasks.spawn(housekeeping(Arc::clone(app)));
    tasks.spawn(wal_checkpoints::run(Arc::clone(&app.services)));
    let writer = LogWriter {
        services: Arc::clone(&app.services),
        spool: Arc::clone(&app.proxy.spool),
        observer: Arc::new(LogObserver::new(Arc::clone(app))),
        quotas: Arc::clone(&app.log_quotas),
    };
    tasks.spawn(writer.run());
    let log_maintenance = log::maintenance::run(Arc::clone(&app.services), Arc::clone(&app.proxy.spool));
    tasks.spawn_low_priority(log_maintenance);
    tasks.spawn(alerts::run(Arc::clone(app)));
    tasks.spawn(app.proxy.budgets.clone().run());
    tasks.spawn(app.proxy.limits.clone().run());
    tasks.spawn(app.proxy.budgets.clone().run_users());
    if app.proxy.redis.is_some() {
        tasks.spawn(maintain_redis(Arc::clone(app)));
    }
    jobs::start(&app.jobs).await?;
    Ok(())
}

/// Records the start of the node, with the settings in force as a hash.
async fn record_start(app: &App) -> Result<(), StartError> {
    let services = &app.services;
    if let Err(error) = audit::ensure_partitions(&services.db, services.clock.now()).await {
        tracing::debug!(%error, "cannot create a partition of the audit log yet; the default one takes its entries");
    }
    let target = Target { kind: "node".into(), id: Some(services.ids.node().to_string()), name: None };
    // Secrets are not part of their debug form.
    let fingerprint = hex::encode(Sha256::digest(format!("{:?}", services.config)));
    let facts = json!({"version": env!("CARGO_PKG_VERSION"), "settings_sha256": fingerprint});
    let entry = system_entry(services, Chain::System, "node.start", target).created(&facts);
    Ok(audit::write(&services.db, vec![entry]).await?)
}

pub fn open_vault(config: &Config) -> Result<Vault, StartError> {
    Vault::new(&config.master_key)
        .and_then(|vault| vault.accepting(&config.master_keys_accepted))
        .ok_or(StartError::Crypto(INVALID_MASTER_KEY))
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
    services: &Services,
    redis: Option<&Arc<RedisClient>>,
    access: &Arc<Access>,
) -> Result<Arc<Cache>, StartError> {
    let Services { config, clock, .. } = services;
    let redis_tier = redis
        .map(|redis| {
            let vault =
                DailyVault::new(&config.master_key, "cache").ok_or(StartError::Crypto(INVALID_MASTER_KEY))?;
            let purges: Arc<dyn PurgeSource> = access.clone();
            Ok::<_, StartError>(RedisTier::new(Arc::clone(redis), vault, purges))
        })
        .transpose()?;
    Ok(Arc::new(Cache::new(config.cache_bytes, clock.clone(), redis_tier)))
}

impl PurgeSource for Access {
    fn generation(&self, org: OrgId, namespace: &str, key: CacheKey) -> Option<Generation> {
        self.cache_generation(org, namespace, key)
    }
}

impl Peers for Cluster {
    fn node_name(&self) -> &str {
        Cluster::node_name(self)
    }

    fn alive(&self) -> u64 {
        self.live_nodes()
    }
}
