//! Runs of many seeds. A seed that fails is printed with its plan, and `FAULT_SEED` repeats it.

use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::plan::{Plan, Step};
use super::schedule::Schedule;
use super::world::{Peers, World};
use crate::support::{TestApp, migrated_config};
use crate::upstream::Reply;

/// Seeds of an ordinary test run.
const SEEDS: u64 = 200;
/// Runs mostly wait, so several run at the same time.
const CONCURRENT_RUNS: usize = 6;
/// How far the clock moves in each poll of a run that settles.
const TICK_MS: i64 = 20_000;
/// The clock is set back at most this far. Exports and budgets are older, and rows are older than the final checks.
const MAX_SET_BACK_MS: i64 = 15 * 60_000;

/// How long the writer may take to remove a segment that it has stored.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(60);
/// Files of the spool that are not rows.
const OWN_FILES: [&str; 2] = ["lock", "marker"];

/// One run of a plan.
struct Run {
    app: Option<TestApp>,
    world: World,
    schedule: Schedule,
    /// Milliseconds by which the clock was set back in all.
    set_back: i64,
}

impl Run {
    async fn start(plan: &Plan) -> Self {
        let peers = Peers::start().await;
        let data = Arc::new(tempfile::tempdir().unwrap());
        let settings = peers.settings();
        let settings: Vec<(&str, &str)> =
            settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let app = TestApp::start(migrated_config(plan.backend, &data, &settings).await, data).await;
        let world = World::create(app.address, peers).await;
        let schedule = Schedule::default();
        schedule.install(&app);
        app.app.services.clock.advance(MAX_SET_BACK_MS);
        Self { app: Some(app), world, schedule, set_back: 0 }
    }

    fn app(&self) -> &TestApp {
        self.app.as_ref().unwrap()
    }

    async fn take(&mut self, step: Step) {
        trace(|| format!("{step:?}"));
        let world = &mut self.world;
        match step {
            Step::Chat => drop(world.chat().await),
            Step::FailingChat => drop(world.failing_chat().await),
            Step::Stream(bytes) => drop(world.stream(bytes).await),
            Step::CreateKey => drop(world.create_key().await),
            Step::RevokeKey => drop(world.revoke_key().await),
            Step::StartRun => drop(world.start_run().await),
            Step::CreateSkill => drop(world.create_skill().await),
            Step::CreateSmallBudget => drop(world.create_small_budget().await),
            Step::FailEvent => world.peers.events.push(Reply::new(500)),
            Step::FailRows => {
                world.peers.rows.push(Reply::new(503));
                world.peers.spans.push(Reply::new(503));
            }
            Step::Inject(rule) => self.schedule.add(rule),
            Step::Wait(time) => tokio::time::sleep(time).await,
            Step::MoveClock(milliseconds) => self.move_clock(milliseconds),
            Step::Restart => self.restart().await,
        }
    }

    fn move_clock(&mut self, milliseconds: i64) {
        let set_back = self.set_back + (-milliseconds).max(0);
        if set_back < MAX_SET_BACK_MS {
            self.set_back = set_back;
            self.app().app.services.clock.advance(milliseconds);
        }
    }

    /// Stops as SIGTERM does, while faults continue. Rows that are only in memory need one of disk and database.
    async fn restart(&mut self) {
        if self.app().app.proxy.spool.has_unspooled() {
            self.schedule.clear();
        }
        let app = self.app.take().unwrap();
        let clock = app.app.services.clock.clone();
        let (config, data) = app.stop().await;
        self.schedule.clear();
        let app = TestApp::start_at(config, data, clock).await;
        self.schedule.install(&app);
        self.world.address = app.address;
        self.app = Some(app);
    }

    /// Ends the faults, waits until nothing is pending, and checks the invariants.
    async fn check(&mut self) {
        trace(|| "check".into());
        self.schedule.clear();
        let clock = self.app().app.services.clock.clone();
        clock.advance(MAX_SET_BACK_MS);
        self.world.settle(|| clock.advance(TICK_MS)).await;
        self.world.check().await;
        let spool = &self.app().app.proxy.spool;
        assert_eq!(spool.shed_rows.load(Ordering::Relaxed), 0, "a row was dropped");
        assert!(
            !spool.has_unspooled() && spool.backlog() == 0,
            "{} bytes are left in the spool",
            spool.backlog()
        );
    }

    /// The spool after a restart has nothing but the segments in use, and nothing was set aside.
    async fn check_spool(&self) {
        let began = Instant::now();
        let spool = &self.app().app.proxy.spool;
        while spool.segments().unwrap().iter().any(|segment| !segment.is_open) {
            assert!(began.elapsed() < REMOVE_TIMEOUT, "closed segments: {:?}", spool.segments());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let names = std::fs::read_dir(self.app().data.path().join("spool")).unwrap();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !OWN_FILES.contains(&name.as_str()) && name.strip_suffix(".seg").is_none());
        assert_eq!(names, [""; 0], "files that nobody will read");
    }
}

async fn run(seed: u64) {
    let plan = Plan::new(seed);
    let mut run = Run::start(&plan).await;
    for step in &plan.steps {
        run.take(*step).await;
    }
    run.check().await;
    run.world.check_reservations().await;
    run.restart().await;
    run.check().await;
    run.check_spool().await;
}

/// Runs the seeds until the deadline. Returns how many ran, and the failed ones with their reasons.
async fn run_all(seeds: impl Iterator<Item = u64>, deadline: Instant) -> (u64, Vec<(u64, String)>) {
    let slots = Arc::new(Semaphore::new(CONCURRENT_RUNS));
    let (mut running, mut count, mut failed) = (JoinSet::new(), 0, Vec::new());
    for seed in seeds {
        let slot = Arc::clone(&slots).acquire_owned().await.unwrap();
        if Instant::now() >= deadline {
            break;
        }
        count += 1;
        running.spawn(async move {
            let result = tokio::spawn(run(seed)).await;
            drop(slot);
            result.err().map(|error| (seed, reason(error.into_panic().as_ref())))
        });
        while let Some(done) = running.try_join_next() {
            failed.extend(done.unwrap());
        }
    }
    while let Some(done) = running.join_next().await {
        failed.extend(done.unwrap());
    }
    (count, failed)
}

fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// Tells what happens while one seed is repeated.
#[expect(clippy::print_stderr, reason = "a failing seed is printed to be repeated")]
pub fn trace(text: impl FnOnce() -> String) {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    if number("FAULT_SEED").is_some() {
        eprintln!("{:8.3} s: {}", BEGAN.elapsed().as_secs_f64(), text());
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().expect(variable))
}

/// `FAULT_SEED` runs one seed. `FAULT_SECONDS` runs new seeds for this time, from `FAULT_FIRST_SEED` on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_invariants_hold_whatever_fails() {
    let never = Instant::now() + Duration::from_secs(365 * 86_400);
    let (count, failed) = match (number("FAULT_SEED"), number("FAULT_SECONDS")) {
        (Some(seed), _) => run_all(seed..=seed, never).await,
        (None, Some(seconds)) => {
            let first = number("FAULT_FIRST_SEED").unwrap_or(SEEDS);
            run_all(first.., Instant::now() + Duration::from_secs(seconds)).await
        }
        (None, None) => run_all(0..SEEDS, never).await,
    };
    println!("{count} seeds, {} failed", failed.len());
    let report: Vec<String> = failed
        .iter()
        .map(|(seed, reason)| format!("FAULT_SEED={seed}: {reason}\n{:#?}", Plan::new(*seed).steps))
        .collect();
    assert!(failed.is_empty(), "{}", report.join("\n\n"));
}
