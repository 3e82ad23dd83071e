//! Budgets on the request path: one ledger in memory for each organization that has budgets, so that most requests do
//! not wait for the database. The rules are in `gateway_core::budget::ledger`; this module does the I/O around it.
//!
//! Spending is read from the log's roll-ups while the log writer stores rows, and neither waits for the other:
//!
//! 1. The writer announces a batch (`write_started`), commits rows and roll-ups in one transaction, and reports the
//!    batch (`stored`). All three steps change the ledger in tasks of the main runtime. A low-priority thread therefore
//!    never holds a lock that a request waits for.
//! 2. A reader opens a snapshot of the log database, reads the roll-ups, and looks up the rows in it whose write has
//!    started and was not reported before the read began. The ledger then knows which rows the roll-ups contain.
//!
//! The snapshot is a read transaction: `REPEATABLE READ` on PostgreSQL, a WAL read transaction on SQLite. Rows of other
//! nodes need no such care, because they are in no ledger of this node.
//!
//! On PostgreSQL several nodes spend from the same budgets. Each node leases what it may have outstanding (`leases`).
//!
//! Each end user that a budget holds for has a ledger too (`users`). A call reserves in the ledger of its organization
//! and in that of its user, or in none.

mod alerts;
mod leases;
mod org;
mod reachability;
mod reader;
mod shared_ledger;
mod user_upkeep;
mod users;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use gateway_core::budget::ledger::{Sharing, SpendRow};
use gateway_core::budget::{Amount, Budget, Charge, EVERY_USER, Scope, Spender, spending_user};
use gateway_core::ids::OrgId;
use gateway_core::logs::{LogRow, LogSource};
use gateway_core::totals::cost_units;
use gateway_store::db::Dialect;
use gateway_store::fair_slots::{FairSlots, Overloaded, Slot, SlotLimits};
use gateway_store::{StoreError, budgets as store, user_budgets};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

pub use gateway_core::budget::ledger::BudgetExceeded;
pub use org::OrgBudgets;
pub use shared_ledger::Reservation;

use crate::problem::Problem;
use crate::services::Services;
use reachability::Reachability;
use shared_ledger::SharedLedger;
use users::UserLedgers;

const TICK: Duration = Duration::from_secs(1);
/// On PostgreSQL, how often spending is read for organizations with recent calls, and for the others.
const BUSY_READ_INTERVAL: Duration = Duration::from_secs(1);
const IDLE_READ_INTERVAL: Duration = Duration::from_secs(10);
/// An organization without a call for this long is idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A read is due when it would remove this many rows from memory.
const MAX_STORED_ROWS: usize = 256;
/// Lease requests that run at the same time. Each uses two connections of the pool.
const LEASES: SlotLimits = SlotLimits { slots: 3, per_org: 2, waiting_per_org: 10_000 };
/// The same for the budgets of users.
const USER_LEASES: SlotLimits = SlotLimits { slots: 3, per_org: 2, waiting_per_org: 1_000 };

/// What leases have to know about the cluster.
pub trait Peers: Send + Sync {
    fn node_name(&self) -> &str;
    /// The number of nodes that are alive, including this one.
    fn alive(&self) -> u64;
}

/// The budgets of all organizations. Clones share one state.
#[derive(Clone)]
pub struct Budgets(Arc<Inner>);

struct Inner {
    services: Arc<Services>,
    peers: Arc<dyn Peers>,
    tracked: RwLock<Tracked>,
    /// Wakes the background task: a limit was reached, or a lease has to be recorded.
    wake: Arc<Notify>,
    lease_slots: Arc<FairSlots>,
    user_lease_slots: Arc<FairSlots>,
    reachability: Reachability,
}

struct Tracked {
    orgs: HashMap<OrgId, Arc<OrgBudgets>>,
    users: Arc<UserLedgers>,
    /// The batch of log rows that is being written, for ledgers that are created during the write.
    writing: Option<Arc<Vec<LogRow>>>,
}

impl Budgets {
    pub fn new(services: Arc<Services>, peers: Arc<dyn Peers>) -> Self {
        let users = Arc::new(UserLedgers::new(sharing(&services)));
        let owners = Arc::clone(services.db.owners());
        Self(Arc::new(Inner {
            services,
            peers,
            tracked: RwLock::new(Tracked { orgs: HashMap::new(), users, writing: None }),
            wake: Arc::default(),
            lease_slots: FairSlots::new(LEASES, &owners),
            user_lease_slots: FairSlots::new(USER_LEASES, &owners),
            reachability: Reachability::default(),
        }))
    }

    /// Reserves the highest possible charge of a call in every budget that covers the spender and its user, or in none.
    /// Returns `None` if no budget does.
    pub async fn reserve(
        &self,
        org: &Arc<OrgBudgets>,
        spender: Spender,
        user: Option<&str>,
        charge: Charge,
    ) -> Result<Option<Reservation>, Refused> {
        let deadline = Instant::now() + leases::MAX_WAIT;
        let of_org = leases::reserve(self, &org.ledger, spender, charge, deadline).await?;
        let of_user = match user {
            Some(user) => {
                timeout_at(deadline, self.user_ledger(org, user)).await.unwrap_or(Err(Unread::Unavailable))?
            }
            None => None,
        };
        let of_user = match of_user {
            Some(ledger) => leases::reserve(self, &ledger, spender, charge, deadline).await?,
            None => None,
        };
        Ok(Reservation::new(of_org, of_user))
    }

    /// Reads the organization's budgets and spending from the store. Returns `None` if it has no budgets.
    pub async fn load(&self, id: OrgId) -> Result<Option<Arc<OrgBudgets>>, StoreError> {
        let known = self.find(id);
        if known.is_none() && !store::exist(&self.0.services.db, id).await? {
            return Ok(None);
        }
        let reads = known.map_or(0, |known| known.ledger.lock().reads_begun());
        let org = self.entry(id);
        let guard = org.ledger.read_lock.lock().await;
        // Concurrent callers share one read.
        let is_current = org.ledger.lock().was_read_after(reads);
        if !is_current {
            reader::reload(&self.0.services, &org.ledger).await?;
        }
        org.set_user_budgets(user_budgets::list_all(&self.0.services.db, id).await?);
        drop(guard);
        Ok((!org.is_empty()).then_some(org))
    }

    /// What was spent in the current period of a budget. None for a default of all users, who spend each for
    /// themselves.
    pub async fn spent(&self, org: &OrgBudgets, budget: &Budget) -> Result<Option<Amount>, Unread> {
        let now = self.0.services.clock.now();
        let amount = |ledger: &SharedLedger| ledger.spent(budget.id, now).map_or(0, |(_, spent)| spent);
        match &budget.scope {
            Scope::User(user) if &**user == EVERY_USER => Ok(None),
            Scope::User(user) => {
                Ok(Some(self.user_ledger(org, user).await?.map_or(0, |ledger| amount(&ledger))))
            }
            Scope::Org(_) | Scope::Team(_) | Scope::App(_) | Scope::Key(_) => Ok(Some(amount(&org.ledger))),
        }
    }

    /// The budgets that hold for a user, each with what the user has spent in its current period.
    pub async fn of_user(&self, org: &OrgBudgets, user: &str) -> Result<Vec<(Budget, Amount)>, Unread> {
        let now = self.0.services.clock.now();
        let Some(ledger) = self.user_ledger(org, user).await? else { return Ok(Vec::new()) };
        let budgets = org.user_rules().budgets.of(&spending_user(user).into());
        let spent = |budget: Budget| ledger.spent(budget.id, now).unwrap_or((budget, 0));
        Ok(budgets.into_iter().map(spent).collect())
    }

    /// Another node needs the unused part of this node's leases.
    pub fn recall(&self, org: OrgId) {
        if let Some(org) = self.find(org) {
            org.ledger.lock().recall();
            self.0.wake.notify_one();
        }
    }

    /// The same for the budgets of one user. They are recorded with the next tick.
    pub fn recall_user(&self, org: OrgId, user: &str) {
        if let Some(ledger) = self.users().find(org, user) {
            ledger.lock().recall();
        }
    }

    /// The log writer is about to store these rows. Must not be called on a low-priority thread.
    pub fn write_started(&self, rows: &Arc<Vec<LogRow>>) {
        let mut tracked = self.write();
        tracked.writing = Some(Arc::clone(rows));
        for (org, row) in rows.iter().filter_map(spend_row) {
            if let Some(org) = tracked.orgs.get(&org) {
                org.ledger.lock().write_started(&row);
            }
        }
        tracked.users.for_each(rows, |ledger, row| {
            if let Some((_, row)) = spend_row(row) {
                ledger.lock().write_started(&row);
            }
        });
    }

    /// The log writer has stored these rows; `new` are the ids that were not in the store before. Must not be called on
    /// a low-priority thread.
    pub fn stored(&self, rows: &[LogRow], new: &[i64]) {
        let now = self.0.services.clock.now();
        let new: HashSet<i64> = new.iter().copied().collect();
        let mut tracked = self.write();
        tracked.writing = None;
        for (org, row) in rows.iter().filter_map(spend_row) {
            if let Some(org) = tracked.orgs.get(&org) {
                org.ledger.stored(&row, new.contains(&row.id), now);
            }
        }
        tracked.users.for_each(rows, |ledger, row| {
            if let Some((_, row)) = spend_row(row) {
                ledger.stored(&row, new.contains(&row.id), now);
            }
        });
    }

    /// Sends alerts, records leases and reads spending again, until the service has drained.
    pub async fn run(self) {
        let tasks = &self.0.services.tasks;
        let mut is_loaded = false;
        loop {
            let woken = async {
                tokio::select! {
                    () = self.0.wake.notified() => {}
                    () = tasks.drained() => {}
                }
            };
            let _ = tokio::time::timeout(TICK, woken).await;
            // A limit may have been reached before a crash without an alert.
            is_loaded = is_loaded || self.load_all().await.is_ok();
            for org in self.all() {
                self.maintain(&org).await;
            }
            self.prune();
            if tasks.is_drained() {
                return;
            }
        }
    }

    async fn maintain(&self, org: &OrgBudgets) {
        if let Err(error) = alerts::send(&self.0.services, &[&org.ledger]).await {
            tracing::debug!(%error, "cannot record a budget alert; it is retried");
        }
        if let Err(error) = leases::record_changes(self, &org.ledger).await {
            tracing::debug!(%error, "cannot record a budget lease; it is retried");
        }
        if self.is_read_due(org)
            && let Err(error) = self.read_again(org).await
        {
            tracing::debug!(%error, "cannot read spending; it is retried");
        }
    }

    /// The budgets of users are not read again: each change of them is announced.
    async fn read_again(&self, org: &OrgBudgets) -> Result<(), StoreError> {
        let _guard = org.ledger.read_lock.lock().await;
        reader::reload(&self.0.services, &org.ledger).await
    }

    async fn load_all(&self) -> Result<(), StoreError> {
        for org in store::list_orgs(&self.0.services.db).await? {
            self.load(org).await?;
        }
        Ok(())
    }

    fn is_read_due(&self, org: &OrgBudgets) -> bool {
        let now = self.0.services.clock.now();
        let ledger = org.ledger.lock();
        let interval =
            if ledger.idle_for(now) < IDLE_TIMEOUT { BUSY_READ_INTERVAL } else { IDLE_READ_INTERVAL };
        ledger.is_stale()
            || ledger.stored_rows() >= MAX_STORED_ROWS
            || (self.sharing() == Sharing::Leased && ledger.read_age(now) >= interval)
    }

    fn sharing(&self) -> Sharing {
        sharing(&self.0.services)
    }

    /// A slot for a lease request. Organizations take turns, and users do not delay organizations.
    async fn lease_slot(&self, ledger: &SharedLedger) -> Result<Slot, Overloaded> {
        let slots = if ledger.user().is_some() { &self.0.user_lease_slots } else { &self.0.lease_slots };
        slots.acquire(ledger.org(), None).await
    }

    fn users(&self) -> Arc<UserLedgers> {
        Arc::clone(&self.read().users)
    }

    fn find(&self, org: OrgId) -> Option<Arc<OrgBudgets>> {
        self.read().orgs.get(&org).cloned()
    }

    fn all(&self) -> Vec<Arc<OrgBudgets>> {
        self.read().orgs.values().cloned().collect()
    }

    /// The organization's ledger. A new ledger is initialized with its rows that are being written.
    fn entry(&self, id: OrgId) -> Arc<OrgBudgets> {
        let mut tracked = self.write();
        if let Some(org) = tracked.orgs.get(&id) {
            return Arc::clone(org);
        }
        let org = Arc::new(OrgBudgets::new(id, Arc::clone(&self.0.wake), self.sharing()));
        for (owner, row) in tracked.writing.iter().flat_map(|rows| rows.iter()).filter_map(spend_row) {
            if owner == id {
                org.ledger.lock().write_started(&row);
            }
        }
        tracked.orgs.insert(id, Arc::clone(&org));
        org
    }

    /// Removes ledgers without budgets that are not in use.
    fn prune(&self) {
        self.write().orgs.retain(|_, org| Arc::strong_count(org) > 1 || !org.is_empty());
    }

    fn read(&self) -> RwLockReadGuard<'_, Tracked> {
        self.0.tracked.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tracked> {
        self.0.tracked.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sharing(services: &Services) -> Sharing {
    match services.logs.dialect() {
        Dialect::Sqlite => Sharing::SingleNode,
        Dialect::Postgres => Sharing::Leased,
    }
}

/// Why nothing was reserved for a call.
#[derive(Debug)]
pub enum Refused {
    Exceeded(Box<BudgetExceeded>),
    Unread(Unread),
}

/// Why it is not known what is left: the spending of a user, or what other nodes have leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// The store cannot be read, or does not answer in time.
    Unavailable,
    /// Too many users of the organization have calls that are not stored yet.
    TooManyUsers,
}

impl From<Unread> for Refused {
    fn from(unread: Unread) -> Self {
        Self::Unread(unread)
    }
}

impl From<Unread> for Problem {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Unavailable => Self::unavailable(),
            Unread::TooManyUsers => Self::overloaded(
                "too many end users of the organization have calls at the same time; try again shortly",
            ),
        }
    }
}

impl From<Box<BudgetExceeded>> for Refused {
    fn from(exceeded: Box<BudgetExceeded>) -> Self {
        Self::Exceeded(exceeded)
    }
}

/// The spending that a log row adds to budgets. Spans received over OTLP are not spending of this gateway: anyone who
/// may send them could otherwise use up a budget.
fn spend_row(row: &LogRow) -> Option<(OrgId, SpendRow)> {
    if row.source == LogSource::Otel {
        return None;
    }
    let spender = Spender { key: row.key_id, app: row.app_id, team: row.team_id };
    Some((row.org_id, SpendRow { id: row.id, spender, charge: charge_of(row) }))
}

/// What a log row counts in budgets.
pub fn charge_of(row: &LogRow) -> Charge {
    let cost = row.cost_usd.map_or(0, |cost| cost_units(cost).into());
    Charge { cost, is_unpriced: row.unpriced }
}
