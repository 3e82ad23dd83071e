//! One hostile organization runs every attack at once while another one sends ordinary traffic. Prints what the second
//! one measures with and without the attack, and the peak memory of the gateway.
//!
//! Everything stays on loopback. The attacker is a process of its own with another source address and a low priority,
//! so that its own work does not take the time of the gateway.

mod attacks;
mod victim;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::bench::start_upstream;
use crate::cli::SiegeOptions;
use crate::error::{BenchError, BenchResult, StopFlag};
use crate::gateway::{Account, Gateway, Settings};
use crate::http_client::Api;
use crate::process::{Process, TempDir, command, lines};
use crate::procfs;

pub(crate) use attacks::run as attack;
use victim::{Figures, Victim};

/// The attacker must not win the processor from the gateway.
const ATTACKER_NICE: &str = "15";
const RECOVERY_LIMIT: Duration = Duration::from_secs(10);
const RECOVERY_WINDOW: Duration = Duration::from_secs(2);
/// What the gateway may use beyond its budget for held bodies.
const MEMORY_ALLOWANCE_MIB: u64 = 128;
const PROXIED_FACTOR: f64 = 2.0;
const MANAGEMENT_FACTOR: f64 = 3.0;
/// What is off by default and attacked.
const DIALECTS: &str = "litellm,portkey,helicone,openrouter,bifrost";
const MAX_LOG_DELAY_MS: f64 = 2_000.0;

/// Both databases, with time for setup and recovery.
pub(crate) fn time_limit(options: &SiegeOptions) -> Duration {
    Duration::from_secs(2 * (options.seconds + options.baseline_seconds + 90))
}

pub(crate) fn run(options: &SiegeOptions, stop: &StopFlag) -> BenchResult<bool> {
    attacks::check_names(&options.only)?;
    let mut is_good = Siege::new(options, stop, "SQLite", None)?.run()?;
    if let Some(url) = &options.postgres {
        is_good &= Siege::new(options, stop, "PostgreSQL", Some(url))?.run()?;
    }
    Ok(is_good || !options.strict)
}

struct Siege<'a> {
    options: &'a SiegeOptions,
    stop: &'a StopFlag,
    database: &'static str,
    this_program: PathBuf,
    gateway: Gateway,
    // The order matters: the gateway stops before its upstream and its directory are gone.
    _upstream: Process,
    _folder: TempDir,
}

/// What one database has shown.
struct Outcome {
    before: Figures,
    during: Figures,
    peak_mib: u64,
    recovery: Option<Duration>,
    attacks: Vec<String>,
}

impl<'a> Siege<'a> {
    fn new(
        options: &'a SiegeOptions,
        stop: &'a StopFlag,
        database: &'static str,
        url: Option<&str>,
    ) -> BenchResult<Self> {
        if !options.gateway.is_file() {
            let path = options.gateway.display();
            return Err(BenchError::new(format!(
                "no gateway binary at {path}: build it first, or set --gateway"
            )));
        }
        let this_program = std::env::current_exe()?;
        let folder = TempDir::create(&std::env::temp_dir())?;
        let (upstream, addresses) = start_upstream(&this_program, None, None)?;
        let mut extra = vec![
            format!("GATEWAY_MEMORY_BYTES={}", options.memory_mib << 20),
            format!("GATEWAY_COMPAT={DIALECTS}"),
        ];
        if let Some(url) = url {
            extra.push(format!("GATEWAY_DATABASE_URL={url}"));
            extra.push(format!("GATEWAY_TOKEN_SECRET={}", "5e".repeat(32)));
            extra.push(format!("GATEWAY_MASTER_KEY={}", "a1".repeat(32)));
        }
        let settings = Settings {
            binary: &options.gateway,
            cpus: None,
            data_dir: folder.path().join("data"),
            upstream: addresses.plain,
            extra: &extra,
            wrapper: &[],
        };
        std::fs::create_dir_all(&settings.data_dir)?;
        let gateway = Gateway::start(&settings, stop)?;
        Ok(Self { options, stop, database, this_program, gateway, _upstream: upstream, _folder: folder })
    }

    fn run(self) -> BenchResult<bool> {
        let victim = self.gateway.sign_up_as("victim")?;
        let attacker = self.gateway.sign_up_as("attacker")?;
        let target = self.gateway.target();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let api = Api { addr: target.addr, key: &victim.key };
        api.request(
            "POST",
            "/prompts",
            r#"{"namespace":"main","slug":"greeting","content":"Hello {{name}}"}"#,
        )?;
        let victim = Victim::new(target.addr, victim.key.clone());
        let traffic = |seconds: u64| runtime.block_on(victim.send(Duration::from_secs(seconds), self.stop));
        eprintln!("{}: ordinary traffic for {} s", self.database, self.options.baseline_seconds);
        traffic(3)?;
        let before = traffic(self.options.baseline_seconds)?;
        eprintln!("{}: attack for {} s", self.database, self.options.seconds);
        let memory = MemoryWatch::start(target.pids);
        let mut attack = self.start_attack(target.addr, &attacker)?;
        let said = attack.child().stdout.take().map(lines);
        let during = traffic(self.options.seconds)?;
        let ended = Instant::now();
        attack.wait(self.stop, Duration::from_secs(20))?;
        let recovery = recover(&before, ended, traffic)?;
        let outcome = Outcome {
            before,
            during,
            peak_mib: memory.stop(),
            recovery,
            attacks: said.into_iter().flatten().collect(),
        };
        let is_good = self.report(&outcome);
        self.gateway.stop()?;
        Ok(is_good)
    }

    fn start_attack(&self, addr: SocketAddr, attacker: &Account) -> BenchResult<Process> {
        let mut command = command(Path::new("nice"), None);
        command.args(["-n", ATTACKER_NICE]).arg(&self.this_program).arg("attack");
        command.args(["--addr", &addr.to_string(), "--key", &attacker.key, "--org", &attacker.org]);
        command.args(["--seconds", &self.options.seconds.to_string()]);
        if !self.options.only.is_empty() {
            command.args(["--only", &self.options.only.join(",")]);
        }
        Process::start("the attacker", command.stdout(Stdio::piped()))
    }

    fn report(&self, outcome: &Outcome) -> bool {
        let Outcome { before, during, peak_mib, recovery, attacks } = outcome;
        println!("\n{}: {} s of attack", self.database, self.options.seconds);
        println!("  {:<28} {:>12} {:>12} {:>14}", "the other organization", "before", "attacked", "target");
        let mut is_good = true;
        let mut line = |name: &str, before: String, during: String, target: String, met: bool| {
            is_good &= met;
            let mark = if met { "" } else { "  missed" };
            println!("  {name:<28} {before:>12} {during:>12} {target:>14}{mark}");
        };
        for (name, before, during, factor) in [
            ("proxied calls", &before.proxied, &during.proxied, PROXIED_FACTOR),
            ("management calls", &before.management, &during.management, MANAGEMENT_FACTOR),
        ] {
            let (limit, found) = (factor * before.p99(), during.p99());
            line(
                &format!("{name}, count"),
                before.calls.to_string(),
                during.calls.to_string(),
                String::new(),
                true,
            );
            line(
                &format!("{name}, errors"),
                before.errors.to_string(),
                during.errors.to_string(),
                "0".into(),
                during.errors == 0,
            );
            line(&format!("{name}, p50"), ms(before.p50()), ms(during.p50()), String::new(), true);
            line(
                &format!("{name}, p99"),
                ms(before.p99()),
                ms(found),
                format!("<= {}", ms(limit)),
                found <= limit,
            );
        }
        let delay = during.log_delay_ms;
        line(
            "log delay, longest",
            ms(before.log_delay_ms),
            ms(delay),
            "< 2 s".into(),
            delay < MAX_LOG_DELAY_MS,
        );
        let limit = self.options.memory_mib + MEMORY_ALLOWANCE_MIB;
        line(
            "resident memory, peak",
            String::new(),
            format!("{peak_mib} MiB"),
            format!("< {limit} MiB"),
            *peak_mib < limit,
        );
        let back = recovery.map_or("not".to_owned(), |time| format!("{:.0} s", time.as_secs_f64()));
        line("back to normal after", String::new(), back, "<= 10 s".into(), recovery.is_some());
        for example in during.examples() {
            println!("  error: {example}");
        }
        println!("  answers to the attacker:");
        for attack in attacks {
            println!("    {attack}");
        }
        is_good
    }
}

/// The time from the end of the attack until a window is as good as the targets demand.
fn recover(
    before: &Figures,
    ended: Instant,
    traffic: impl Fn(u64) -> BenchResult<Figures>,
) -> BenchResult<Option<Duration>> {
    while ended.elapsed() < RECOVERY_LIMIT {
        let began = ended.elapsed();
        let now = traffic(RECOVERY_WINDOW.as_secs())?;
        let is_normal = now.errors() == 0
            && now.proxied.p99() <= PROXIED_FACTOR * before.proxied.p99()
            && now.management.p99() <= MANAGEMENT_FACTOR * before.management.p99();
        if is_normal {
            return Ok(Some(began));
        }
    }
    Ok(None)
}

fn ms(milliseconds: f64) -> String {
    format!("{milliseconds:.1} ms")
}

/// Samples the resident memory of the gateway on a thread of its own.
struct MemoryWatch {
    is_over: Arc<AtomicBool>,
    peak_kib: Arc<AtomicU64>,
}

impl MemoryWatch {
    fn start(pids: Vec<u32>) -> Self {
        let watch = Self { is_over: Arc::new(AtomicBool::new(false)), peak_kib: Arc::new(AtomicU64::new(0)) };
        let (is_over, peak) = (Arc::clone(&watch.is_over), Arc::clone(&watch.peak_kib));
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                peak.fetch_max(procfs::memory(&pids).resident_kib, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        watch
    }

    /// The peak in MiB.
    fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.peak_kib.load(Ordering::Relaxed) >> 10
    }
}
