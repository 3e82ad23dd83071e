//! The controller: the environment shared by all scenarios, and the sequence of a run.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::cli::{LoadMode, Options};
use crate::error::{BenchError, BenchResult, Context, StopFlag};
use crate::gateway::{self, Gateway};
use crate::load::LoadReport;
use crate::machine::Machine;
use crate::nginx::{self, Nginx};
use crate::pinning::{PinChoice, Pins, assign_cpus, parse_list};
use crate::process::{Process, TempDir, command, find_program, lines};
use crate::procfs::{self, CpuSample};
use crate::report;
use crate::scenarios;
use crate::target::{Target, TargetKind};
use crate::tls;

/// Requests of a block: a few hundredths of a second.
pub(crate) const BLOCK_REQUESTS: u64 = 400;
const BLOCKS_PER_ROUND: usize = 16;

pub(crate) struct Bench {
    pub(crate) options: Options,
    pub(crate) stop: StopFlag,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pins: Option<Pins>,
    nginx: Option<PathBuf>,
    this_program: PathBuf,
    // The order matters: fields are dropped in this order, so the upstream stops before its directory is removed.
    upstream: Process,
    addresses: UpstreamAddresses,
    /// The certificate of the upstream, if one could be made.
    certificate: Option<PathBuf>,
    folder: TempDir,
    made: Cell<u32>,
}

/// Where the upstream listens.
#[derive(Clone, Copy)]
pub(crate) struct UpstreamAddresses {
    pub(crate) plain: SocketAddr,
    tls_http1: SocketAddr,
    tls_http2: SocketAddr,
}

/// How targets call the upstream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Plain,
    /// HTTP/1.1 over TLS.
    Tls,
    /// HTTP/2 over TLS. nginx cannot use it.
    Http2,
}

/// A new gateway with a key, and nginx if it is installed.
pub(crate) struct Pair {
    pub(crate) gateway: Gateway,
    pub(crate) key: String,
    nginx: Option<Nginx>,
    pub(crate) data_dir: PathBuf,
}

/// The load to run against a target.
pub(crate) struct Load<'a> {
    pub(crate) mode: LoadMode,
    pub(crate) request: &'a [u8],
    /// Accepted lengths of a response body.
    pub(crate) lengths: Vec<u64>,
    pub(crate) connections: usize,
    pub(crate) rate: u32,
    pub(crate) requests: u64,
}

/// The result of one measurement.
#[derive(Clone)]
pub(crate) struct Measured {
    pub(crate) load: LoadReport,
    /// CPU time of the target from before the first request until it is idle again, per request. Includes work
    /// deferred until after the window.
    pub(crate) cpu_with_deferred: f64,
    /// Whether the target became idle before the timeout.
    pub(crate) became_idle: bool,
}

impl Measured {
    /// CPU of the threads that serve requests, without work that is put off.
    pub(crate) fn cpu_per_answer(&self) -> f64 {
        self.load.cpu_serving / self.load.completed
    }

    /// CPU of all threads while requests are served.
    pub(crate) fn all_cpu_per_answer(&self) -> f64 {
        self.load.cpu_proxy / self.load.completed
    }

    pub(crate) fn rate(&self) -> f64 {
        self.load.completed / self.load.seconds
    }
}

/// Returns true when the run succeeded and, with `--strict`, met every target.
pub(crate) fn run(options: Options, stop: StopFlag) -> BenchResult<bool> {
    let chosen = scenarios::choose(&options.only)?;
    let bench = Bench::prepare(options, stop)?;
    let machine = Machine::detect();
    if machine.is_busy() {
        eprintln!("the machine is busy (load {}): expect wide ranges", machine.load);
    }
    let setup = bench.setup();
    eprintln!("{setup}");
    let mut sections = Vec::new();
    for scenario in chosen {
        eprintln!("({}) {}", scenario.id, scenario.name);
        let section = (scenario.run)(&bench).context(format!("({}) {}", scenario.id, scenario.name))?;
        sections.push(section);
    }
    report::print(&machine, &setup, &sections);
    if let Some(file) = &bench.options.json {
        let text = format!("{:#}\n", report::to_json(&machine, &setup, &sections));
        std::fs::write(file, text).context(format!("writing {}", file.display()))?;
    }
    if let Some(file) = &bench.options.history {
        report::append_history(file, &machine, &setup, &sections)?;
    }
    Ok(!bench.options.strict || report::all_met(&sections))
}

impl Bench {
    fn prepare(options: Options, stop: StopFlag) -> BenchResult<Self> {
        if !options.gateway.is_file() {
            let path = options.gateway.display();
            return Err(BenchError::new(format!(
                "no gateway binary at {path}: build it first, or set --gateway"
            )));
        }
        let pins = choose_pins(&options)?;
        let this_program = std::env::current_exe()?;
        let parent = options.work_dir.clone().unwrap_or_else(std::env::temp_dir);
        let folder = TempDir::create(&parent)?;
        let certificate = tls::create_certificate(folder.path());
        let tls = certificate.as_ref().map(|_| folder.path());
        let (upstream, addresses) =
            start_upstream(&this_program, pins.as_ref().map(|pins| &pins.upstream), tls)?;
        Ok(Self {
            seconds: options.seconds.unwrap_or(if options.quick { 1.0 } else { 1.5 }).clamp(0.2, 600.0),
            rounds: options.rounds.unwrap_or(if options.quick { 2 } else { 6 }).max(1),
            nginx: if options.no_nginx { None } else { find_program("nginx") },
            options,
            stop,
            pins,
            this_program,
            upstream,
            addresses,
            certificate,
            folder,
            made: Cell::new(0),
        })
    }

    /// Describes the setup in one line.
    fn setup(&self) -> String {
        let pins = match &self.pins {
            Some(pins) => format!(
                "proxy on CPU {}, upstream on {}, client on {}",
                pins.proxy, pins.upstream, pins.client
            ),
            None => "nothing pinned".to_owned(),
        };
        let nginx = match (&self.nginx, self.options.no_nginx) {
            (Some(_), _) => "",
            (None, true) => " Without nginx: no ratios.",
            (None, false) => " nginx is not installed: no ratios.",
        };
        let extra = &self.options.gateway_env;
        let extra = if extra.is_empty() { String::new() } else { format!(" With {}.", extra.join(", ")) };
        format!("{} rounds of {} s; {pins}.{nginx}{extra}", self.rounds, self.seconds)
    }

    /// Starts a gateway on an empty directory, signs up, and starts nginx. Scenarios share no state.
    pub(crate) fn start_pair(&self) -> BenchResult<Pair> {
        self.start_pair_over(Wire::Plain)
    }

    pub(crate) fn start_pair_over(&self, wire: Wire) -> BenchResult<Pair> {
        let folder = self.new_folder();
        let data_dir = folder.join("data");
        std::fs::create_dir_all(&data_dir)?;
        let gateway = self.start_gateway_with(&data_dir, &self.provider_settings(wire))?;
        let key = gateway.sign_up()?;
        let nginx = self.nginx.as_deref().filter(|_| wire != Wire::Http2).map(|binary| {
            let settings = nginx::Settings {
                binary,
                cpus: self.pins.as_ref().map(|pins| pins.proxy.as_str()),
                workers: self.options.workers,
                folder: &folder.join("nginx"),
                upstream: if wire == Wire::Tls { self.addresses.tls_http1 } else { self.addresses.plain },
                has_tls: wire == Wire::Tls,
            };
            Nginx::start(&settings, &self.stop)
        });
        Ok(Pair { gateway, key, nginx: nginx.transpose()?, data_dir })
    }

    /// Starts a gateway on an empty directory with extra settings (`NAME=VALUE`), without nginx.
    pub(crate) fn start_alone(&self, settings: &[String]) -> BenchResult<Pair> {
        let data_dir = self.new_folder().join("data");
        std::fs::create_dir_all(&data_dir)?;
        let gateway = self.start_gateway_with(&data_dir, settings)?;
        let key = gateway.sign_up()?;
        Ok(Pair { gateway, key, nginx: None, data_dir })
    }

    /// Settings of a gateway whose provider is reached in this way.
    fn provider_settings(&self, wire: Wire) -> Vec<String> {
        let address = match wire {
            Wire::Plain => return Vec::new(),
            Wire::Tls => self.addresses.tls_http1,
            Wire::Http2 => self.addresses.tls_http2,
        };
        let url = format!("GATEWAY_PROVIDER_OPENAI_BASE_URL=https://localhost:{}", address.port());
        let trusted = self.certificate.iter().map(|file| format!("SSL_CERT_FILE={}", file.display()));
        trusted.chain([url]).collect()
    }

    /// Whether the upstream speaks TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.certificate.is_some()
    }

    pub(crate) fn start_gateway(&self, data_dir: &Path) -> BenchResult<Gateway> {
        self.start_gateway_with(data_dir, &[])
    }

    fn start_gateway_with(&self, data_dir: &Path, settings: &[String]) -> BenchResult<Gateway> {
        // Settings from the command line take precedence.
        let extra = [settings, self.options.gateway_env.as_slice()].concat();
        let settings = gateway::Settings {
            binary: &self.options.gateway,
            cpus: self.pins.as_ref().map(|pins| pins.proxy.as_str()),
            data_dir: data_dir.to_owned(),
            upstream: self.addresses.plain,
            extra: &extra,
            wrapper: &[],
        };
        Gateway::start(&settings, &self.stop)
    }

    pub(crate) fn direct(&self) -> Target {
        Target { kind: TargetKind::Direct, addr: self.addresses.plain, pids: Vec::new() }
    }

    /// Runs a load against a target, then waits until the target has finished deferred work.
    pub(crate) fn measure(&self, target: &Target, load: &Load<'_>) -> BenchResult<Measured> {
        self.wait_for_idle_machine()?;
        let (report, before) = self.run_load(target, load)?;
        let timeout = Duration::from_secs_f64((4.0 * report.seconds).max(10.0));
        let became_idle = self.wait_until_idle(target, timeout)?;
        let all = procfs::cpu_between(&before, &procfs::cpu(&target.pids));
        Ok(Measured { cpu_with_deferred: all / report.total.max(1.0), became_idle, load: report })
    }

    /// Runs a load against a target that has other work, without waiting for the target to become idle.
    pub(crate) fn measure_without_idle_wait(
        &self,
        target: &Target,
        load: &Load<'_>,
    ) -> BenchResult<Measured> {
        let (report, before) = self.run_load(target, load)?;
        let all = procfs::cpu_between(&before, &procfs::cpu(&target.pids));
        Ok(Measured { cpu_with_deferred: all / report.total.max(1.0), became_idle: false, load: report })
    }

    /// Runs several requests in turn, in short blocks. Returns the serving threads' CPU per request, by request and block.
    pub(crate) fn measure_blocks(
        &self,
        target: &Target,
        requests: &[&[u8]],
        lengths: Vec<u64>,
    ) -> BenchResult<Vec<Vec<f64>>> {
        self.wait_for_idle_machine()?;
        let load = Load {
            mode: LoadMode::Blocks,
            request: &[],
            lengths,
            connections: self.options.connections,
            rate: 0,
            requests: BLOCK_REQUESTS,
        };
        let process = self.start_load_of(target, &load, requests)?;
        let report = self.read_report(process, target, &load)?;
        serde_json::from_value(report).map_err(|error| BenchError::new(error.to_string()))
    }

    /// Runs the load generator. Returns its report and the CPU sample from before.
    fn run_load(&self, target: &Target, load: &Load<'_>) -> BenchResult<(LoadReport, CpuSample)> {
        let before = procfs::cpu(&target.pids);
        let process = self.start_load(target, load)?;
        let report = self.read_report(process, target, load)?;
        let report = LoadReport::from_json(&report)
            .ok_or_else(|| BenchError::new(format!("invalid report of the load generator: {report}")))?;
        Ok((report, before))
    }

    /// Waits for the load generator and reads what it printed.
    fn read_report(
        &self,
        mut process: Process,
        target: &Target,
        load: &Load<'_>,
    ) -> BenchResult<serde_json::Value> {
        let said = process.child().stdout.take().map(lines);
        let errors = process.child().stderr.take().map(lines);
        let status = process.wait(&self.stop, self.load_limit(load) + Duration::from_secs(2));
        let status = status.context(format!("load on {}", target.kind.name()))?;
        if !status.success() {
            let errors: Vec<String> = errors.into_iter().flatten().collect();
            return Err(BenchError::new(format!("load on {}: {}", target.kind.name(), errors.join("\n"))));
        }
        let line = said.into_iter().flatten().next().unwrap_or_default();
        serde_json::from_str(&line).map_err(|error| {
            BenchError::new(format!("invalid report of the load generator: {line}: {error}"))
        })
    }

    /// Starts a load generator. The caller reads its output and waits for it.
    pub(crate) fn start_load(&self, target: &Target, load: &Load<'_>) -> BenchResult<Process> {
        self.start_load_of(target, load, &[load.request])
    }

    fn start_load_of(&self, target: &Target, load: &Load<'_>, requests: &[&[u8]]) -> BenchResult<Process> {
        let cpus = self.pins.as_ref().map(|pins| &pins.client);
        let join = |pids: &[u32]| pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let window_ms = (self.seconds * 1000.0) as u64;
        let mut command = command(&self.this_program, cpus.map(String::as_str));
        command.arg("load");
        for request in requests {
            let file = self.new_folder().with_extension("request");
            std::fs::write(&file, request).context("writing the request")?;
            command.arg("--request").arg(&file);
        }
        let mut option = |name: &str, value: String| {
            command.arg(format!("--{name}")).arg(value);
        };
        option("addr", target.addr.to_string());
        option("mode", load.mode.name().to_owned());
        option("connections", load.connections.to_string());
        option("rate", load.rate.to_string());
        option("requests", load.requests.to_string());
        option("blocks", self.blocks().to_string());
        option("warmup-ms", warmup_ms(window_ms).to_string());
        option("window-ms", window_ms.to_string());
        option("limit-ms", self.load_limit(load).as_millis().to_string());
        option("threads", threads(cpus));
        option("upstream-pids", self.upstream.pid().to_string());
        if !target.pids.is_empty() {
            option("proxy-pids", join(&target.pids));
        }
        for length in &load.lengths {
            option("accept-length", length.to_string());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Process::start("the load generator", &mut command)
    }

    /// Waits until the target has used almost no CPU for 750 ms. Returns false on timeout.
    pub(crate) fn wait_until_idle(&self, target: &Target, timeout: Duration) -> BenchResult<bool> {
        if target.kind != TargetKind::Gateway {
            self.stop.sleep(Duration::from_millis(50))?;
            return Ok(true);
        }
        let step = Duration::from_millis(250);
        let until = Instant::now() + timeout;
        let mut quiet = 0;
        while quiet < 3 {
            if Instant::now() > until {
                return Ok(false);
            }
            let before = procfs::cpu(&target.pids);
            self.stop.sleep(step)?;
            let used = procfs::cpu_between(&before, &procfs::cpu(&target.pids));
            quiet = if used < 0.03 * step.as_micros() as f64 { quiet + 1 } else { 0 };
        }
        Ok(true)
    }

    /// Waits for other programs on the machine to become idle, for at most `--calm` seconds.
    fn wait_for_idle_machine(&self) -> BenchResult<()> {
        let step = Duration::from_millis(300);
        let until = Instant::now() + Duration::from_secs(self.options.calm);
        while Instant::now() < until {
            let before = procfs::machine_busy();
            self.stop.sleep(step)?;
            if procfs::machine_busy() - before < 0.1 * step.as_micros() as f64 {
                break;
            }
        }
        Ok(())
    }

    fn new_folder(&self) -> PathBuf {
        self.made.set(self.made.get() + 1);
        self.folder.path().join(self.made.get().to_string())
    }

    /// Timeout of a load: ample for a working target, short enough for one that hangs.
    /// How many blocks of each request are measured.
    fn blocks(&self) -> usize {
        self.rounds * BLOCKS_PER_ROUND
    }

    fn load_limit(&self, load: &Load<'_>) -> Duration {
        let window = Duration::from_secs_f64(self.seconds);
        match load.mode {
            LoadMode::Count => Duration::from_secs(20 + load.requests / 1000),
            LoadMode::Hold => Duration::from_mins(1),
            LoadMode::Blocks => Duration::from_mins(4),
            LoadMode::Closed | LoadMode::Open => window * 2 + Duration::from_secs(10),
        }
    }
}

impl Pair {
    /// Returns the gateway, and nginx if it runs.
    pub(crate) fn targets(&self) -> Vec<Target> {
        [self.gateway.target()].into_iter().chain(self.nginx.as_ref().map(Nginx::target)).collect()
    }
}

/// Starts the upstream as a process of its own and returns its addresses. `tls`: the directory with its certificate.
pub(crate) fn start_upstream(
    program: &Path,
    cpus: Option<&String>,
    tls: Option<&Path>,
) -> BenchResult<(Process, UpstreamAddresses)> {
    let mut command = command(program, cpus.map(String::as_str));
    command.arg("upstream").args(["--threads", &threads(cpus)]);
    if let Some(folder) = tls {
        command.arg("--tls").arg(folder);
    }
    let mut upstream = Process::start("the upstream", command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
    let said = upstream.child().stdout.take().map(lines);
    let line = said.and_then(|said| said.recv_timeout(Duration::from_secs(5)).ok()).unwrap_or_default();
    let addresses: Vec<SocketAddr> = line.split(' ').filter_map(|address| address.parse().ok()).collect();
    match addresses[..] {
        [plain, tls_http1, tls_http2] => Ok((upstream, UpstreamAddresses { plain, tls_http1, tls_http2 })),
        _ => Err(BenchError::new(format!("the upstream printed no addresses: {line}"))),
    }
}

fn warmup_ms(window_ms: u64) -> u64 {
    (window_ms / 4).clamp(400, 1000)
}

/// One thread per CPU in the list; one when nothing is pinned.
fn threads(cpus: Option<&String>) -> String {
    let count = cpus.and_then(|cpus| parse_list(cpus)).map_or(1, |cpus| cpus.len());
    count.max(1).to_string()
}

fn choose_pins(options: &Options) -> BenchResult<Option<Pins>> {
    let has_taskset = find_program("taskset").is_some();
    match &options.pin {
        PinChoice::Off => Ok(None),
        PinChoice::Auto if !has_taskset => Ok(None),
        PinChoice::Auto => {
            let allowed = procfs::status_line("Cpus_allowed_list:").and_then(|list| parse_list(&list));
            Ok(assign_cpus(&allowed.unwrap_or_default(), options.workers))
        }
        PinChoice::Lists(_) if !has_taskset => {
            Err(BenchError::new("pinning needs taskset, which is not installed"))
        }
        PinChoice::Lists(pins) => Ok(Some(pins.clone())),
    }
}
