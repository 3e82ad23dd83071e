//! Several nodes as one. What a change makes this node forget, the others must forget too: the change is noted in its own
//! transaction and told at its commit, and every node looks at the notes by itself as well, so that a word that was
//! missed heals within a second. Also here: the number that this node puts into log ids, and limits over all nodes.
//! With SQLite there is one node, and none of it costs anything.

pub mod limits;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gateway_core::cache::CacheKey;
use gateway_core::time::MINUTE;
pub use gateway_store::cluster::invalidations::Invalidation;
use gateway_store::cluster::invalidations::{self, PollPosition, Polled};
use gateway_store::cluster::{budget_leases, node_ids, rate_counts};
use gateway_store::redis::cache::{Purge, PurgeScope};
use gateway_store::{StoreError, Tx};
use tokio::sync::Notify;

use crate::app::App;
use crate::auth::limits::ATTEMPT_WINDOW;
use crate::budgets;
use limits::SharedCounts;

/// How often a node looks for changes by itself. With the time of a question it stays below a second.
const LOOK: Duration = Duration::from_millis(500);
/// How long a look may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Notes older than this may be gone: who has not looked for so long knows nothing for sure.
const TOO_LONG: Duration = invalidations::MAX_POLL_GAP;
const RENEW: Duration = Duration::from_secs(5);
const SWEEP: Duration = Duration::from_secs(60);
/// A lost connection is tried again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// What this node knows of the others.
pub struct Nodes {
    /// A name that no other process has or had.
    pub name: String,
    pub counts: SharedCounts,
    /// How many nodes there are, this one included.
    alive: AtomicU64,
    bell: Notify,
    joined: Notify,
}

impl Nodes {
    pub fn new(process: u64) -> Self {
        let name = format!("{process:016x}");
        Self {
            name,
            counts: SharedCounts::default(),
            alive: AtomicU64::new(1),
            bell: Notify::new(),
            joined: Notify::new(),
        }
    }

    pub fn alive(&self) -> u64 {
        self.alive.load(Ordering::Relaxed).max(1)
    }
}

impl budgets::Peers for Nodes {
    fn node_name(&self) -> &str {
        &self.name
    }

    fn alive(&self) -> u64 {
        self.alive()
    }
}

/// A change that is noted in a transaction which is yet to be committed.
#[must_use = "have it forgotten here when the transaction is committed"]
#[derive(Debug)]
pub struct Told(Invalidation);

/// Notes a change in its transaction, for the other nodes.
pub async fn tell(tx: &mut Tx, change: Invalidation) -> Result<Told, StoreError> {
    invalidations::record(tx, &change).await?;
    Ok(Told(change))
}

/// Tells of a change that has no transaction of its own.
pub async fn say(app: &App, change: Invalidation) -> Result<(), StoreError> {
    let mut tx = app.services.db.begin().await?;
    let told = tell(&mut tx, change).await?;
    tx.commit().await?;
    told.committed(app);
    Ok(())
}

impl Told {
    /// The transaction is committed: this node forgets at once.
    pub fn committed(&self, app: &App) {
        forget(app, &self.0);
    }
}

/// Forgets what a change made untrue.
fn forget(app: &App, change: &Invalidation) {
    match change {
        Invalidation::Key(hash) => app.proxy.access.invalidate_key(*hash),
        Invalidation::OrgKeys(org) => app.proxy.access.invalidate_keys_of(*org),
        Invalidation::Org(org) => app.proxy.access.invalidate_org(*org),
        Invalidation::OrgAll(org) => {
            app.proxy.access.invalidate_all_of(*org);
            app.proxy.prompts.invalidate_all_of(*org);
            app.proxy.cache.purge_local(&Purge { org: *org, scope: PurgeScope::All });
        }
        Invalidation::Member(org, user) => app.proxy.access.invalidate_member(*org, *user),
        Invalidation::Token(token) => app.proxy.access.invalidate_token(*token),
        Invalidation::PromptVersion { org, namespace, slug } => {
            app.proxy.prompts.invalidate_latest(*org, namespace, slug)
        }
        Invalidation::Prompt { org, namespace, slug } => app.proxy.prompts.invalidate(*org, namespace, slug),
        Invalidation::BudgetLeases(org) => app.proxy.budgets.recall(*org),
        Invalidation::LiveEvals => app.live_evals.invalidate(),
        Invalidation::Exports => {
            app.export_changes.send_replace(());
        }
        Invalidation::Nodes => app.nodes.joined.notify_one(),
        Invalidation::CacheEntries { org, namespace, entry } => {
            let scope = match (namespace, entry.as_deref().map(CacheKey::parse)) {
                (_, Some(Some(key))) => PurgeScope::Entry(key),
                (Some(namespace), None) => PurgeScope::Namespace(namespace.clone()),
                _ => PurgeScope::All,
            };
            app.proxy.cache.purge_local(&Purge { org: *org, scope });
        }
    }
}

fn forget_everything(app: &App) {
    app.proxy.access.invalidate_all();
    app.proxy.prompts.invalidate_all();
    app.live_evals.invalidate();
}

/// Keeps this node in step with the others, also while it finishes what is in flight.
pub async fn run(app: Arc<App>, place: PollPosition) {
    say_nodes_changed(&app).await;
    tokio::select! {
        () = app.services.tasks.drained() => {}
        () = hear(&app) => {}
        () = follow(&app, place) => {}
        () = keep_number(&app) => {}
        () = limits::run(&app) => {}
    }
}

/// Gives this node's number back, when nothing is done in its name any more.
pub async fn leave(app: &App) {
    if let Err(error) = node_ids::release(&app.services.db, app.services.ids.node(), &app.nodes.name).await {
        tracing::debug!(%error, "this node's number stays taken until its lease ends");
    }
    say_nodes_changed(app).await;
}

/// Has all nodes count each other again, for their slices of limits. Those who miss it do so within seconds anyway.
async fn say_nodes_changed(app: &App) {
    if let Err(error) = say(app, Invalidation::Nodes).await {
        tracing::debug!(%error, "the other nodes will notice by themselves");
    }
}

async fn hear(app: &App) {
    loop {
        if let Err(error) = invalidations::listen(&app.services.db, || app.nodes.bell.notify_one()).await {
            tracing::debug!(%error, "changes of other nodes are not heard, only looked for");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn follow(app: &App, mut place: PollPosition) {
    let grace = app.services.config.outage_grace;
    let (mut looked, mut swept) = (Instant::now(), Instant::now());
    loop {
        let _ = tokio::time::timeout(LOOK, app.nodes.bell.notified()).await;
        match tokio::time::timeout(PATIENCE, invalidations::poll(&app.services.db, &mut place)).await {
            Ok(Ok(Polled::Invalidations(changes))) if looked.elapsed() < TOO_LONG => {
                for change in &changes {
                    forget(app, change);
                }
                looked = Instant::now();
            }
            Ok(Ok(_)) => {
                tracing::warn!("too much was changed elsewhere; everything is looked up again");
                forget_everything(app);
                looked = Instant::now();
            }
            // What is known may be served for a while, but not for ever: a key may have been revoked.
            _ if looked.elapsed() >= grace => forget_everything(app),
            _ => {}
        }
        if swept.elapsed() >= SWEEP {
            swept = Instant::now();
            sweep(app).await;
        }
    }
}

async fn sweep(app: &App) {
    let now = app.services.clock.now();
    let swept = async {
        invalidations::sweep(&app.services.db).await?;
        budget_leases::sweep(&app.services.db).await?;
        rate_counts::sweep(&app.services.db, now.0.div_euclid(MINUTE) - 1, now.plus(-ATTEMPT_WINDOW)).await
    };
    if let Err(error) = swept.await {
        tracing::debug!(%error, "what nodes told each other is removed later");
    }
}

/// Renews the lease of this node's number. When it is another's by now, a new one is taken.
async fn keep_number(app: &App) {
    let mut wait = Duration::ZERO;
    loop {
        let _ = tokio::time::timeout(wait, app.nodes.joined.notified()).await;
        wait = match renewed(app).await {
            Ok(()) => RENEW,
            Err(error) => {
                tracing::debug!(%error, "this node's number could not be renewed");
                AGAIN
            }
        };
    }
}

async fn renewed(app: &App) -> Result<(), StoreError> {
    let name = &app.nodes.name;
    if let Some(alive) = node_ids::renew(&app.services.db, app.services.ids.node(), name).await? {
        app.nodes.alive.store(alive.cast_unsigned(), Ordering::Relaxed);
        return Ok(());
    }
    if let Some(number) = node_ids::claim(&app.services.db, name).await? {
        tracing::warn!(number, "this node's number was given to another; it has a new one now");
        app.services.ids.set_node(number);
    } else {
        tracing::error!("this node's number was given to another, and none is free");
    }
    Ok(())
}
