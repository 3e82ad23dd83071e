//! Budgets as requests meet them: held in memory for each organization that has any, so that no request waits for the
//! database.
//!
//! What was spent is what the log's roll-ups say, plus what has been settled here and is not in them yet. Reading the
//! roll-ups and writing rows take turns (`gate`), so that a row is never missed or counted twice in between. On
//! PostgreSQL other nodes spend too: each leases from the store what it may have outstanding (`leases`).

mod leases;
mod state;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use gateway_core::budget::{Budget, Kind, Scope};
use gateway_core::events::{BudgetEventData, Event};
use gateway_core::ids::OrgId;
use gateway_core::logs::LogRow;
use gateway_core::time::{MINUTE, SECOND, Timestamp};
use gateway_store::budgets::LimitNotice;
use gateway_store::db::Dialect;
use gateway_store::{Db, StoreError, budgets as store, events, logs};
use tokio::sync::{Mutex, Notify};

use crate::app::App;
pub use leases::hold;
use state::{Due, Read};
pub use state::{OrgBudgets, Refused, Reservation};

const TICK: Duration = Duration::from_secs(1);
/// On PostgreSQL, what others spent is read this often for organizations that are calling, and for the rest.
const BUSY_MS: i64 = SECOND;
const IDLE_MS: i64 = 10 * SECOND;
const BUSY_FOR_MS: i64 = MINUTE;
/// As many settled rows are looked up again at once, so that memory stays small.
const MANY_STORED: usize = 256;

/// The budgets of all organizations that have any.
#[derive(Default)]
pub struct Budgets {
    known: RwLock<HashMap<OrgId, Arc<OrgBudgets>>>,
    /// Held while rows are written, and while what was spent is read.
    gate: Mutex<()>,
    /// A limit was reached, or a lease has to be noted.
    bell: Arc<Notify>,
}

impl Budgets {
    fn known(&self, org: OrgId) -> Option<Arc<OrgBudgets>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(&org).cloned()
    }

    fn is_empty(&self) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn all(&self) -> Vec<Arc<OrgBudgets>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Another node needs money of this organization's budgets that may lie idle here.
    pub fn recall(&self, org: OrgId) {
        if let Some(org) = self.known(org) {
            org.recall();
        }
    }

    fn entry(&self, org: OrgId, is_shared: bool) -> Arc<OrgBudgets> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(OrgBudgets::new(org, Arc::clone(&self.bell), is_shared));
        Arc::clone(known.entry(org).or_insert_with(new))
    }

    /// Drops those that are of no more use to anybody.
    fn prune(&self) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, org| !org.is_empty() || Arc::strong_count(org) > 1);
    }

    /// Rows are in the store; those in `fresh` were not there before.
    fn stored(&self, rows: &[LogRow], fresh: &[i64], now: Timestamp) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let fresh: HashSet<i64> = fresh.iter().copied().collect();
        for row in rows {
            if let Some(org) = known.get(&row.org_id) {
                org.stored(row, fresh.contains(&row.id), now);
            }
        }
    }
}

/// Writes rows to the store, and counts what they cost.
pub async fn write(app: &Arc<App>, logs: &Db, rows: &Arc<Vec<LogRow>>) -> Result<(), StoreError> {
    let _turn = app.proxy.budgets.gate.lock().await;
    let fresh = logs::write_batch(logs, rows).await?;
    if app.proxy.budgets.is_empty() {
        return Ok(());
    }
    // Requests wait for the locks that this takes, and a thread that steps back may be kept from giving one back.
    let (this, rows) = (Arc::clone(app), Arc::clone(rows));
    let counted = app
        .services
        .tasks
        .runtime
        .spawn_blocking(move || this.proxy.budgets.stored(&rows, &fresh, this.services.clock.now()));
    counted.await.map_err(|error| StoreError::Other(error.to_string()))
}

/// Reads the organization's budgets and what was spent from the store. None when it has no budgets.
pub async fn load(app: &App, org: OrgId) -> Result<Option<Arc<OrgBudgets>>, StoreError> {
    if app.proxy.budgets.known(org).is_none() && !store::exist(&app.services.db, org).await? {
        return Ok(None);
    }
    let readings = app.proxy.budgets.known(org).map_or(0, |known| known.readings());
    let _turn = app.proxy.budgets.gate.lock().await;
    let known = app.proxy.budgets.entry(org, app.services.logs.dialect() == Dialect::Postgres);
    // Many who come at once read once.
    if !known.was_read_after(readings) {
        known.begins_reading();
        known.replace(read(app, org).await?, app.services.clock.now());
    }
    Ok((!known.is_empty()).then_some(known))
}

async fn read(app: &App, org: OrgId) -> Result<Read, StoreError> {
    let budgets = store::list_all(&app.services.db, org).await?;
    let now = app.services.clock.now();
    let starts = budgets.iter().map(|budget| budget.period.start_of(now)).min().unwrap_or(now);
    let has_whole = budgets.iter().any(|budget| matches!(budget.scope, Scope::Org(_)));
    let whole =
        if has_whole { logs::org_daily_spend(&app.services.logs, org, starts).await? } else { Vec::new() };
    let ids = ids(&budgets);
    let parts = if ids.is_empty() {
        Vec::new()
    } else {
        logs::daily_spend(&app.services.logs, org, starts, &ids).await?
    };
    let told = store::list_notices(&app.services.db, org, starts).await?;
    Ok(Read { budgets, whole, parts, told })
}

/// Those whose spending is told apart.
fn ids(budgets: &[Budget]) -> Vec<String> {
    let of = |budget: &Budget| match budget.scope {
        Scope::Org(_) => Vec::new(),
        Scope::Team(_) | Scope::App(_) => vec![budget.scope.id()],
        Scope::Key(_) => budget.keys.iter().map(ToString::to_string).collect(),
    };
    budgets.iter().flat_map(of).collect()
}

/// Tells of limits that were reached, gives idle money back, and keeps memory close to the store.
pub async fn run(app: Arc<App>) {
    let mut is_loaded = false;
    loop {
        let bell = async {
            tokio::select! {
                () = app.proxy.budgets.bell.notified() => {}
                () = app.services.tasks.drained() => {}
            }
        };
        let _ = tokio::time::timeout(TICK, bell).await;
        // After a crash a limit may have been reached that nobody was told of.
        is_loaded = is_loaded || load_all(&app).await.is_ok();
        for org in app.proxy.budgets.all() {
            if let Err(error) = tell(&app, &org).await {
                tracing::debug!(%error, "a budget's event waits");
            }
            if let Err(error) = leases::note(&app, &org).await {
                tracing::debug!(%error, "a lease of money could not be noted");
            }
            if is_due(&app, &org)
                && let Err(error) = load(&app, org.id()).await
            {
                tracing::debug!(%error, "spending could not be read");
            }
        }
        app.proxy.budgets.prune();
        if app.services.tasks.is_drained() {
            return;
        }
    }
}

async fn load_all(app: &App) -> Result<(), StoreError> {
    for org in store::list_orgs(&app.services.db).await? {
        load(app, org).await?;
    }
    Ok(())
}

fn is_due(app: &App, org: &OrgBudgets) -> bool {
    let (read, used, stored) = org.ages(app.services.clock.now());
    let shared = app.services.logs.dialect() == Dialect::Postgres;
    let every = if used < BUSY_FOR_MS { BUSY_MS } else { IDLE_MS };
    stored >= MANY_STORED || (shared && read >= every)
}

/// Writes the events of limits that were reached, each once in a period.
async fn tell(app: &App, org: &OrgBudgets) -> Result<(), StoreError> {
    let due = org.due(app.services.clock.now());
    if due.is_empty() {
        return Ok(());
    }
    let mut tx = app.services.db.begin().await?;
    for Due { budget, starts_at, kind, limit, spent } in &due {
        let notice = LimitNotice { budget: budget.id, starts_at: *starts_at, kind: *kind };
        if !store::record_notice(&mut tx, org.id(), &notice, budget.period.as_str()).await? {
            continue;
        }
        let facts = BudgetEventData {
            budget_id: budget.id,
            scope: budget.scope,
            period: budget.period,
            limit: *limit,
            spent: *spent,
        };
        let event = match kind {
            Kind::Warning => Event::BudgetWarning(facts),
            Kind::Exceeded => Event::BudgetExceeded(facts),
        };
        events::record(&mut tx, org.id(), app.services.ids.new_id(), &event, app.services.clock.now())
            .await?;
    }
    tx.commit().await?;
    org.told(&due);
    Ok(())
}
