//! How organizations share the connections of a database. Each may use a part of them at the same time, and those that
//! wait take turns, so that one with many requests delays the others by one statement or change at a time. SQLite has
//! one writer.

use std::sync::Arc;

use gateway_core::ids::OrgId;

use crate::StoreError;
use crate::db::ACQUIRE_TIMEOUT;
use crate::fair_slots::{FairSlots, Slot, SlotLimits};
use crate::org_owners::OrgOwners;

tokio::task_local! {
    static ORG: OrgId;
}

/// Runs work whose statements and transactions belong to an organization.
pub async fn on_behalf_of<T>(org: OrgId, work: impl Future<Output = T>) -> T {
    ORG.scope(org, work).await
}

/// None for work of the gateway itself, such as leases.
type User = Option<OrgId>;

/// The use of a connection, until it is dropped.
pub(crate) type Share = Slot<User>;

/// Statements or transactions of one organization that may wait.
const MAX_WAITING: usize = 1_000;

#[derive(Clone)]
pub(crate) struct ConnectionShares {
    /// Transactions. A transaction may wait for a statement that reads, but not the reverse, so these are separate.
    writes: Arc<FairSlots<User>>,
    reads: Arc<FairSlots<User>>,
    /// Transactions of the gateway itself take turns with the others.
    has_one_writer: bool,
}

impl ConnectionShares {
    pub fn of_sqlite(readers: u32, owners: &Arc<OrgOwners>) -> Self {
        let writes = SlotLimits { slots: 1, per_org: 1, waiting_per_org: MAX_WAITING };
        let reads = reads(count(readers), owners);
        Self { writes: FairSlots::new(writes, owners), reads, has_one_writer: true }
    }

    /// A third of the connections is left for statements that read, and half of the rest for other organizations.
    pub fn of_postgres(connections: u32, owners: &Arc<OrgOwners>) -> Self {
        let slots = (count(connections) * 2 / 3).max(1);
        let writes = SlotLimits { slots, per_org: slots.div_ceil(2), waiting_per_org: MAX_WAITING };
        // One is left for the gateway itself.
        let reads = reads(count(connections).saturating_sub(1).max(1), owners);
        Self { writes: FairSlots::new(writes, owners), reads, has_one_writer: false }
    }

    /// Waits until the organization whose work this is may begin a transaction.
    pub async fn write(&self) -> Result<Option<Share>, StoreError> {
        match current() {
            None if !self.has_one_writer => Ok(None),
            user => share(&self.writes, user).await.map(Some),
        }
    }

    /// Waits until the organization whose work this is may execute a statement that reads.
    pub async fn read(&self) -> Result<Option<Share>, StoreError> {
        match current() {
            None => Ok(None),
            user => share(&self.reads, user).await.map(Some),
        }
    }
}

fn reads(slots: usize, owners: &Arc<OrgOwners>) -> Arc<FairSlots<User>> {
    FairSlots::new(SlotLimits { slots, per_org: (slots / 2).max(1), waiting_per_org: MAX_WAITING }, owners)
}

fn count(connections: u32) -> usize {
    usize::try_from(connections).unwrap_or(usize::MAX)
}

fn current() -> User {
    ORG.try_with(|org| *org).ok()
}

async fn share(slots: &Arc<FairSlots<User>>, user: User) -> Result<Share, StoreError> {
    let share = slots.acquire(user, Some(ACQUIRE_TIMEOUT)).await;
    share.map_err(|_| StoreError::timed_out("no connection to the database was free"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::task::JoinHandle;

    use super::*;

    fn org(number: u128) -> OrgId {
        OrgId(uuid::Uuid::from_u128(number))
    }

    /// Starts a task that waits for its share and writes its name.
    #[expect(clippy::disallowed_methods, reason = "the test waits for its tasks")]
    fn writer(shares: &ConnectionShares, of: Option<OrgId>, name: &'static str, log: &Log) -> JoinHandle<()> {
        let (shares, log) = (shares.clone(), Arc::clone(log));
        let write = async move {
            let _share = shares.write().await.unwrap();
            log.lock().unwrap().push(name);
        };
        match of {
            Some(org) => tokio::spawn(on_behalf_of(org, write)),
            None => tokio::spawn(write),
        }
    }

    type Log = Arc<Mutex<Vec<&'static str>>>;

    #[tokio::test]
    async fn organizations_and_the_gateway_take_shares() {
        let (shares, log) = (ConnectionShares::of_sqlite(6, &Arc::default()), Log::default());
        let held = on_behalf_of(org(1), shares.write()).await.unwrap();
        let mut tasks = Vec::new();
        for (of, name) in [
            (Some(org(1)), "a1"),
            (Some(org(1)), "a2"),
            (Some(org(1)), "a3"),
            (Some(org(2)), "b1"),
            (None, "own"),
            (Some(org(2)), "b2"),
        ] {
            tasks.push(writer(&shares, of, name, &log));
            // The order in which they begin to wait.
            tokio::task::yield_now().await;
        }
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*log.lock().unwrap(), ["a1", "b1", "own", "a2", "b2", "a3"]);
    }

    #[tokio::test]
    async fn on_postgres_an_organization_leaves_connections_to_others() {
        let shares = ConnectionShares::of_postgres(9, &Arc::default());
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(on_behalf_of(org(1), shares.write()).await.unwrap());
        }
        let log = Log::default();
        let fourth = writer(&shares, Some(org(1)), "fourth", &log);
        tokio::task::yield_now().await;
        writer(&shares, Some(org(2)), "other", &log).await.unwrap();
        assert!(shares.write().await.unwrap().is_none(), "the gateway itself does not wait");
        assert_eq!(*log.lock().unwrap(), ["other"]);
        drop(held);
        fourth.await.unwrap();
    }

    #[tokio::test]
    async fn an_organization_leaves_readers_to_others_and_reads_while_it_waits_to_write() {
        let owners = Arc::default();
        for shares in [ConnectionShares::of_sqlite(6, &owners), ConnectionShares::of_postgres(6, &owners)] {
            let mut held = Vec::new();
            loop {
                let read =
                    tokio::time::timeout(Duration::from_millis(20), on_behalf_of(org(1), shares.read()));
                let Ok(share) = read.await else { break };
                held.push(share.unwrap());
            }
            assert!((2..=3).contains(&held.len()), "{}", held.len());
            assert!(on_behalf_of(org(2), shares.read()).await.unwrap().is_some());
            assert!(shares.read().await.unwrap().is_none(), "the gateway itself does not wait");
            assert!(on_behalf_of(org(1), shares.write()).await.unwrap().is_some());
        }
    }
}
