//! The application: everything that handlers, proxy and jobs share, and the tasks that it started.

use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gateway_core::ids::OrgId;
use gateway_core::logs::LogRow;
use gateway_core::pricing::PriceTable;
use gateway_core::time::{MINUTE, Timestamp};
use gateway_store::db::Dialect;
use gateway_store::nodes::{changes, ids};
use gateway_store::shared::Shared;
use gateway_store::{Db, Part, StoreError, accounts, keys, orgs};
use http::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;
use uuid::{ContextV7, Uuid};

use crate::auth::Access;
use crate::auth::limits::Attempts;
use crate::auth::passwords::Passwords;
use crate::auth::tokens::Tokens;
use crate::background::Background;
use crate::budgets::{self, Budgets};
use crate::cache::{Cache, Second};
use crate::clock::Clock;
use crate::config::{Config, ConfigError};
use crate::evals::live::LiveEvals;
use crate::jobs::{self, Bells};
use crate::log;
use crate::log::ids::LogIds;
use crate::log::spool::Spool;
use crate::metrics::Metrics;
use crate::nodes::{self, Nodes};
use crate::prompts::Prompts;
use crate::proxy::clients::Clients;
use crate::proxy::pulse::Pulses;
use crate::proxy::{Worker, target};
use crate::vault::Vault;

pub struct App {
    pub config: Config,
    pub clock: Clock,
    pub db: Db,
    /// Log rows, apart from the rest.
    pub logs: Db,
    /// The same, over connections that step back behind those of callers.
    pub quiet_logs: Db,
    pub access: Access,
    pub attempts: Attempts,
    /// What may still be spent, for the organizations that have budgets.
    pub budgets: Budgets,
    pub tokens: Tokens,
    pub passwords: Passwords,
    pub vault: Vault,
    pub started: Instant,
    /// Where everything runs that may wait for the database.
    pub runtime: Handle,
    /// Where everything runs that nobody waits for.
    background: Background,
    /// The built-in providers as the operator set them up.
    pub providers: target::Operators,
    /// For calls to providers that no worker thread makes.
    pub worker: Worker,
    pub prices: PriceTable,
    /// How targets have been doing.
    pub pulses: Pulses,
    /// What nodes share besides the database, when it is configured.
    pub shared: Option<Arc<Shared>>,
    pub cache: Arc<Cache>,
    pub log_ids: LogIds,
    pub spool: Spool,
    pub metrics: Metrics,
    /// Templates, ready to be rendered.
    pub prompts: Prompts,
    /// Rows as the writer has stored them, for those who follow.
    pub tail: broadcast::Sender<Arc<LogRow>>,
    /// The evals that judge new rows.
    pub live_evals: LiveEvals,
    /// The other nodes on the same database.
    pub nodes: Nodes,
    /// Wakes those who wait for jobs.
    pub bells: Bells,
    /// Told when an export was changed here, so that a delivery under way looks again.
    pub export_changes: watch::Sender<()>,
    ids: Mutex<ContextV7>,
    numbers: LogIds,
    process: u64,
    requests: AtomicU64,
    stopping: watch::Sender<bool>,
    drained: watch::Sender<bool>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error(
        "cannot use the data directory {path}: {error}. Set GATEWAY_DATA_DIR to a directory that can be written"
    )]
    DataDir { path: String, error: std::io::Error },
    #[error("cannot listen on {address}: {why}")]
    Listen { address: String, why: String },
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Crypto(&'static str),
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    #[error(
        "31 nodes use this database already, which is as many as there can be: stop one, or wait 30 s for the lease of one \
         that was killed"
    )]
    TooManyNodes,
}

/// Rows that a follower may be behind before it has to ask the store.
const TAIL_ROWS: usize = 1024;
/// How often a running node notes which keys were used, and forgets what is over or was changed elsewhere.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

impl App {
    /// Opens the database, brings its schema up to date and starts the background tasks.
    pub async fn start(config: Config, clock: Clock) -> Result<Arc<Self>, StartError> {
        make_data_dir(&config)?;
        let db = Db::open(config.database_url.expose_secret()).await?;
        let logs = migrate_all(&db, clock.now()).await?;
        let background = Background::start().map_err(StartError::Thread)?;
        let quiet_logs = open_quietly(&background, &logs).await?;
        let prices = crate::config::load_prices(config.prices_file.as_deref())?;
        // The last lane is for rows that are not a worker's.
        let spool = Spool::open(config.data_dir.join("spool"), config.workers + 1, config.spool_bytes)
            .map_err(|error| StartError::DataDir { path: config.data_dir.display().to_string(), error })?;
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| StartError::Crypto("there are no random numbers"))?;
        let process = u64::from_le_bytes(random);
        // Taken before anything else is done in this node's name. Nothing is in memory yet, so that what other nodes change
        // from here on is all that there is to hear of.
        let nodes = Nodes::new(process);
        let (node, place) = match db.dialect() {
            Dialect::Sqlite => (i64::from(random[0]), None),
            Dialect::Postgres => {
                let node = ids::claim(&db, &nodes.name).await?.ok_or(StartError::TooManyNodes)?;
                (node, Some(changes::begin(&db).await?))
            }
        };
        let shared = shared(&config)?;
        let cache = cache(&config, &clock, shared.as_ref(), process)?;
        let app = Arc::new(Self {
            shared,
            cache,
            runtime: Handle::current(),
            background,
            providers: target::operators(&config.providers),
            worker: Worker { lane: config.workers, clients: Clients::new() },
            prices,
            pulses: Pulses::default(),
            log_ids: LogIds::new(node),
            spool,
            metrics: Metrics::default(),
            prompts: Prompts::default(),
            tail: broadcast::Sender::new(TAIL_ROWS),
            export_changes: watch::Sender::new(()),
            tokens: Tokens::new(&config.token_secret),
            vault: Vault::new(&config.master_key)
                .ok_or(StartError::Crypto("the master key cannot be used"))?,
            passwords: Passwords::new(),
            access: Access::default(),
            attempts: Attempts::default(),
            budgets: Budgets::default(),
            started: Instant::now(),
            bells: Bells::default(),
            ids: Mutex::new(ContextV7::new()),
            process,
            numbers: LogIds::new(node),
            nodes,
            live_evals: LiveEvals::default(),
            requests: AtomicU64::new(0),
            stopping: watch::Sender::new(false),
            drained: watch::Sender::new(false),
            tasks: Mutex::default(),
            config,
            clock,
            db,
            logs,
            quiet_logs,
        });
        if let Some(place) = place {
            app.spawn(nodes::run(Arc::clone(&app), place));
        }
        app.spawn(housekeeping(Arc::clone(&app)));
        app.spawn_behind(log::writer::run(Arc::clone(&app)));
        app.spawn_behind(log::upkeep::run(Arc::clone(&app)));
        app.spawn(budgets::run(Arc::clone(&app)));
        if app.shared.is_some() {
            app.spawn(stay_connected(Arc::clone(&app)));
        }
        jobs::start(&app).await?;
        Ok(app)
    }

    /// A new time-ordered id. Ids made by one node ascend, also within one millisecond.
    pub fn new_id<T: From<Uuid>>(&self) -> T {
        let now = self.clock.now().0.max(0).cast_unsigned();
        let context = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let nanoseconds = u32::try_from(now % 1_000).unwrap_or(0) * 1_000_000;
        T::from(Uuid::new_v7(uuid::Timestamp::from_unix(&*context, now / 1_000, nanoseconds)))
    }

    /// A new time-ordered number that fits into 53 bits, for what has no UUID.
    pub fn new_number(&self) -> i64 {
        self.numbers.next(self.clock.now())
    }

    /// Log ids and numbers carry this node's number from now on.
    pub fn set_node(&self, node: i64) {
        self.log_ids.set_node(node);
        self.numbers.set_node(node);
    }

    /// A new request id: this process's random number and a count, so that it costs no system call.
    pub fn new_request_id(&self) -> HeaderValue {
        let count = self.requests.fetch_add(1, Ordering::Relaxed);
        HeaderValue::try_from(Uuid::from_u64_pair(self.process, count).to_string())
            .unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    }

    /// Starts a task on the main runtime that stopping waits for.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_on(&self.runtime, task);
    }

    /// The same for what nobody waits for.
    pub fn spawn_behind(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_on(&self.background.handle, task);
    }

    fn spawn_on(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(task, runtime);
    }

    /// Resolves when the service is asked to stop.
    pub async fn stopping(&self) {
        let mut stopping = self.stopping.subscribe();
        // An error means that the sender is gone, and so is the app.
        let _ = stopping.wait_for(|stop| *stop).await;
    }

    /// Resolves when the service has answered its last request.
    pub async fn drained(&self) {
        let mut drained = self.drained.subscribe();
        let _ = drained.wait_for(|drained| *drained).await;
    }

    pub fn is_drained(&self) -> bool {
        *self.drained.borrow()
    }

    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Asks every task to end.
    pub fn begin_stop(&self) {
        self.stopping.send_replace(true);
    }

    /// The last request is answered: those may end as well who waited for that.
    pub fn note_drained(&self) {
        self.begin_stop();
        self.drained.send_replace(true);
    }

    /// Waits for the tasks (a while), then closes the database.
    pub async fn finish_stop(&self, patience: Duration) {
        self.note_drained();
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, all).await.is_err() {
            tracing::warn!("some background tasks did not end in time");
        }
        if self.db.dialect() == Dialect::Postgres
            && tokio::time::timeout(patience, nodes::leave(self)).await.is_err()
        {
            tracing::warn!("the database does not answer; the other nodes are not told that this one leaves");
        }
        self.quiet_logs.close().await;
        self.logs.close().await;
        self.db.close().await;
    }
}

/// Makes the data directory, readable by its owner only: it holds secrets and what callers sent.
pub fn make_data_dir(config: &Config) -> Result<(), StartError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
        .create(&config.data_dir)
        .map_err(|error| StartError::DataDir { path: config.data_dir.display().to_string(), error })
}

/// Brings both parts of the database up to date; answers the one with the log rows.
pub async fn migrate_all(db: &Db, now: Timestamp) -> Result<Db, StoreError> {
    let logs = db.open_logs().await?;
    for (part, db) in [(Part::State, db), (Part::Logs, &logs)] {
        let migrated = db.migrate(part, now).await?;
        let gateway_store::Migrated { from, to } = migrated;
        if to > part.version() {
            tracing::warn!(?part, schema = to, "a newer version has added to the schema; this one serves on");
        } else if from != to {
            tracing::info!(?part, from, to, "schema brought up to date");
        }
    }
    Ok(logs)
}

/// The log's database once more, opened by a thread that steps back.
async fn open_quietly(background: &Background, logs: &Db) -> Result<Db, StoreError> {
    let logs = logs.clone();
    let opened = background.handle.spawn(async move { logs.again().await }).await;
    opened.unwrap_or_else(|error| Err(StoreError::Other(error.to_string())))
}

async fn housekeeping(app: Arc<App>) {
    let mut last_sweep = app.clock.now();
    let mut seen = HashMap::new();
    loop {
        let stop = tokio::time::timeout(HOUSEKEEPING, app.drained()).await.is_ok();
        note_used_keys(&app).await;
        if stop {
            return;
        }
        let now = app.clock.now();
        if app.db.dialect() == Dialect::Sqlite {
            forget_changed(&app, &mut seen, now).await;
        }
        if now.0 - last_sweep.0 >= MINUTE {
            last_sweep = now;
            app.access.sweep(now);
            app.cache.sweep(now);
            if let Err(error) = accounts::sweep_tokens(&app.db, now).await {
                tracing::debug!(%error, "expired revocations stay until later");
            }
        }
    }
}

fn shared(config: &Config) -> Result<Option<Arc<Shared>>, StartError> {
    let open = |url: &SecretString| Shared::new(url.expose_secret()).map(Arc::new);
    config
        .redis_url
        .as_ref()
        .map(open)
        .transpose()
        .map_err(|error| StartError::Config(ConfigError(format!("bad value for GATEWAY_REDIS_URL: {error}"))))
}

fn cache(
    config: &Config,
    clock: &Clock,
    shared: Option<&Arc<Shared>>,
    process: u64,
) -> Result<Arc<Cache>, StartError> {
    let second = |shared: &Arc<Shared>| {
        let vault = Vault::derived(&config.master_key, "cache")?;
        Some(Second::new(Arc::clone(shared), vault, format!("{process:016x}")))
    };
    let second = shared
        .map(|shared| second(shared).ok_or(StartError::Crypto("the master key cannot be used")))
        .transpose()?;
    Ok(Arc::new(Cache::new(config.cache_bytes, clock.clone(), second)))
}

/// Keeps the connection to Redis and what depends on it going.
async fn stay_connected(app: Arc<App>) {
    let Some(shared) = app.shared.clone() else { return };
    let told = |up| {
        if up {
            tracing::info!("connected to Redis");
        } else {
            tracing::warn!("Redis is away; limits and cache go on without it");
        }
    };
    tokio::select! {
        () = shared.run(told) => {}
        () = app.cache.run() => {}
        () = app.drained() => {}
    }
}

/// Forgets organizations that another process changed, as `gateway admin set-plan` does on SQLite, which has no other
/// way to tell. Looks back a little further than the last time, because a change becomes visible only when it is
/// committed.
async fn forget_changed(app: &App, seen: &mut HashMap<OrgId, Timestamp>, now: Timestamp) {
    let Ok(changed) = orgs::changed_since(&app.db, now.plus(-MINUTE)).await else { return };
    for (org, at) in &changed {
        if seen.get(org) != Some(at) {
            app.access.forget_all_of(*org);
            app.prompts.forget_all_of(*org);
        }
    }
    *seen = changed.into_iter().collect();
}

async fn note_used_keys(app: &App) {
    let mut used = Vec::new();
    app.access.take_used(&mut used);
    if used.is_empty() {
        return;
    }
    // A fixed order keeps two nodes from waiting for each other.
    used.sort_by_key(|(id, _)| *id);
    if let Err(error) = keys::touch(&app.db, &used).await {
        tracing::debug!(%error, "last use of keys could not be noted");
    }
}
