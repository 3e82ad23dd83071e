//! The process dies at every named point of the writer, the deliveries, the exports, the evals and the budgets, one
//! after the other on the same data. The next process continues with what it finds, and in the end nothing is missing.

use std::time::{Duration, Instant};

use gateway_store::faults::KillPoint;
use tempfile::TempDir;

use super::world::{Peers, World};
use crate::support::{Backend, GatewayProcess, command, fresh_settings};

const SIGABRT: i32 = 6;
/// How long the process may take to reach a point.
const REACH_TIMEOUT: Duration = Duration::from_secs(60);

/// Points that exist only where several nodes share a database.
const SHARED: [KillPoint; 3] = [KillPoint::LeasePlanned, KillPoint::LeaseCommitted, KillPoint::LeaseReturned];
/// A point of `gateway admin rotate-master-key`, which `rotate_master_key.rs` tests.
const COMMAND: KillPoint = KillPoint::SecretReplaced;
/// Points on the way of a row, where the databases differ most.
const WRITER: [KillPoint; 5] = [
    KillPoint::BatchAnnounced,
    KillPoint::RowsInserted,
    KillPoint::BatchWritten,
    KillPoint::BatchCommitted,
    KillPoint::BatchObserved,
];

struct Home {
    data: TempDir,
    settings: Vec<(String, String)>,
}

impl Home {
    fn start(&self) -> GatewayProcess {
        let mut command = command(self.data.path(), &["serve"]);
        command.envs(self.settings.iter().cloned());
        tokio::task::block_in_place(|| GatewayProcess::start(&mut command))
    }

    /// Starts a process that dies at the point. With work of the previous one it may do so before it is ready.
    fn start_to_die(&self, point: KillPoint) -> Option<GatewayProcess> {
        let mut command = command(self.data.path(), &["serve"]);
        command.envs(self.settings.iter().cloned()).env("TEST_KILL_AT", point.as_str());
        match tokio::task::block_in_place(|| GatewayProcess::try_start(&mut command)) {
            Ok(process) => Some(process),
            Err(early) => {
                assert_eq!(early.signal, Some(SIGABRT), "{point:?}: {}", early.log);
                None
            }
        }
    }
}

async fn survives(backend: Backend, points: &[KillPoint]) {
    let peers = Peers::start().await;
    let data = tempfile::tempdir().unwrap();
    let mut settings = fresh_settings(backend, &data).await;
    settings.extend(peers.settings());
    let home = Home { data, settings };
    let first = home.start();
    let mut world = World::create(first.address, peers).await;
    drop(first);
    for point in points {
        let Some(mut process) = home.start_to_die(*point) else { continue };
        world.address = process.address;
        work_until_death(&mut world, *point).await;
        let code = tokio::task::block_in_place(|| process.wait_for_exit_code());
        assert_eq!(code, None, "killed at {point:?}");
    }
    let last = home.start();
    world.address = last.address;
    world.settle(|| {}).await;
    world.check().await;
}

/// Works on everything until the process is gone.
async fn work_until_death(world: &mut World, point: KillPoint) {
    let began = Instant::now();
    let _ = world.create_small_budget().await;
    while round(world).await.is_some() {
        assert!(began.elapsed() < REACH_TIMEOUT, "{point:?} was not reached");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// `None` when the process is gone.
async fn round(world: &mut World) -> Option<()> {
    world.create_key().await?;
    world.chat().await?;
    world.stream(100).await?;
    world.revoke_key().await?;
    world.start_run().await?;
    world.create_skill().await?;
    Some(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_by_a_kill_at_any_point_on_sqlite() {
    let points: Vec<KillPoint> =
        KillPoint::ALL.iter().copied().filter(|point| !SHARED.contains(point) && *point != COMMAND).collect();
    survives(Backend::Sqlite, &points).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_by_a_kill_of_a_writer_or_lease_holder_on_postgres() {
    survives(Backend::Postgres, &[&SHARED[..], &WRITER[..]].concat()).await;
}
