//! Instructions per request, counted by callgrind. Unlike times they are the same on a busy machine, and they tell which
//! function they belong to. What the kernel does is not counted, and copies of long bodies count more than they cost.

mod profile;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::start_upstream;
use crate::cli::InstructionsOptions;
use crate::error::{BenchError, BenchResult, Context as _, StopFlag};
use crate::exchange::Client;
use crate::gateway::{Gateway, Settings};
use crate::process::{TempDir, find_program};
use crate::procfs;
use crate::request;
use crate::responses::ResponseScript;
use crate::scenarios::limits::create_limited_keys;
use profile::Profile;

/// Requests that fill caches and pools before any is counted.
const WARMUP: u32 = 100;
/// The most for a plain request of 2 KB.
const TARGET: u64 = 90_000;
/// Work that is put off is counted if it is done within this time.
const DEFERRED_LIMIT: Duration = Duration::from_secs(20);

/// A kind of request.
struct Kind {
    name: &'static str,
    request: Vec<u8>,
    target: Option<u64>,
}

/// A gateway that runs under callgrind.
struct Traced<'a> {
    gateway: Gateway,
    folder: PathBuf,
    options: &'a InstructionsOptions,
    stop: &'a StopFlag,
}

/// What one kind of request costs, per request.
struct Cost {
    serving: u64,
    /// The writer of the log and everything else beside the serving threads.
    others: u64,
    functions: Vec<(String, u64)>,
}

/// Prints the figures. Returns whether the target is met, or need not be.
pub(crate) fn run(options: &InstructionsOptions, stop: &StopFlag) -> BenchResult<bool> {
    for program in ["valgrind", "callgrind_control"] {
        if find_program(program).is_none() {
            return Err(BenchError::new(format!("{program} is not installed: install the package valgrind")));
        }
    }
    if !options.gateway.is_file() {
        let path = options.gateway.display();
        return Err(BenchError::new(format!(
            "no gateway binary at {path}: build it with --profile profiling"
        )));
    }
    let folder = TempDir::create(&std::env::temp_dir())?;
    let (_upstream, addresses) = start_upstream(&std::env::current_exe()?, None, None)?;
    let profiles = options.keep.clone().unwrap_or_else(|| folder.path().join("profiles"));
    std::fs::create_dir_all(&profiles)?;
    let wrapper = [
        "valgrind".to_owned(),
        "--tool=callgrind".to_owned(),
        "--instr-atstart=no".to_owned(),
        "--separate-threads=yes".to_owned(),
        format!("--callgrind-out-file={}", profiles.join("callgrind.out").display()),
    ];
    let settings = Settings {
        binary: &options.gateway,
        cpus: None,
        data_dir: folder.path().join("data"),
        upstream: addresses.plain,
        extra: &[],
        wrapper: &wrapper,
    };
    std::fs::create_dir_all(&settings.data_dir)?;
    let gateway = Gateway::start(&settings, stop)?;
    let traced = Traced { gateway, folder: profiles, options, stop };
    let kinds = kinds(&traced.gateway)?;
    println!("{:<36} {:>15} {:>15}", "instructions per request", "serving thread", "other threads");
    let mut is_met = true;
    for (number, kind) in kinds.iter().enumerate() {
        if !options.only.is_empty() && !options.only.contains(&number) {
            continue;
        }
        let cost = traced.measure(kind, number)?;
        let verdict = kind.target.map(|target| if cost.serving <= target { "met" } else { "missed" });
        let verdict = verdict.zip(kind.target).map(|(verdict, target)| format!("  <= {target}: {verdict}"));
        is_met &= kind.target.is_none_or(|target| cost.serving <= target);
        let (name, verdict) = (format!("{number} {}", kind.name), verdict.unwrap_or_default());
        println!("{name:<36} {:>15} {:>15}{verdict}", cost.serving, cost.others);
        for (name, count) in cost.functions {
            println!("    {count:>10} {name}");
        }
    }
    traced.gateway.stop()?;
    Ok(is_met || !options.strict)
}

fn kinds(gateway: &Gateway) -> BenchResult<Vec<Kind>> {
    let (key, limited) = (gateway.sign_up()?, create_limited_keys(gateway)?);
    let (plain, stream) =
        (ResponseScript::default(), ResponseScript { chunks: 50, ..ResponseScript::default() });
    let kind = |name, request| Kind { name, request, target: None };
    let small = request::chat(2048, plain, &key);
    Ok(vec![
        Kind { target: Some(TARGET), ..kind("2 KB prompt", small.clone()) },
        kind("16 KB prompt", request::chat(16_384, plain, &key)),
        kind("stream of 50 chunks", request::chat(2048, stream, &key)),
        kind("cache hit", request::with_headers(&small, "X-Gateway-Cache: true\r\n")),
        kind("limits that do not apply", request::chat(2048, plain, &limited.unlimited)),
        kind("ten limits", request::chat(2048, plain, &limited.single)),
        kind("ten limits of three numbers", request::chat(2048, plain, &limited.triple)),
    ])
}

impl Traced<'_> {
    fn measure(&self, kind: &Kind, number: usize) -> BenchResult<Cost> {
        self.send(&kind.request, WARMUP)?;
        self.wait_until_idle()?;
        // The start of counting is not counted.
        self.control(&["-i", "on"])?;
        self.control(&["-z"])?;
        self.send(&kind.request, self.options.requests)?;
        self.wait_until_idle()?;
        self.control(&["--dump"])?;
        self.control(&["-i", "off"])?;
        let (mut serving, mut others) = (Profile::default(), 0);
        for file in self.new_profiles()? {
            let text = std::fs::read(&file).context(format!("reading {}", file.display()))?;
            let profile = Profile::parse(&String::from_utf8_lossy(&text));
            if profile.is_of_serving_thread() {
                serving.add(profile);
            } else {
                others += profile.total();
            }
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let kept = name.replacen("callgrind.out", &format!("kind-{number}"), 1);
            std::fs::rename(&file, self.folder.join(kept))?;
        }
        if serving.total() == 0 {
            let path = self.options.gateway.display();
            return Err(BenchError::new(format!(
                "{path} has no symbols, so its threads cannot be told apart: build it with --profile profiling"
            )));
        }
        let requests = u64::from(self.options.requests.max(1));
        let top = serving.top(self.options.functions);
        let functions = top.into_iter().map(|(name, count)| (name, count / requests)).collect();
        Ok(Cost { serving: serving.total() / requests, others: others / requests, functions })
    }

    /// Sends requests one after the other.
    fn send(&self, request: &[u8], count: u32) -> BenchResult<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut client = Client::new(self.gateway.target().addr);
        runtime.block_on(async {
            for _ in 0..count {
                self.stop.check()?;
                let reply = client.send(request).await?;
                if reply.status != 200 {
                    let body = String::from_utf8_lossy(&reply.body);
                    return Err(BenchError::new(format!("a request was answered {} {body}", reply.status)));
                }
            }
            Ok(())
        })
    }

    /// Waits until the gateway has stored its log rows.
    fn wait_until_idle(&self) -> BenchResult<()> {
        let (step, until) = (Duration::from_millis(500), Instant::now() + DEFERRED_LIMIT);
        let pids = [self.gateway.pid()];
        let mut quiet = 0;
        while quiet < 3 && Instant::now() < until {
            let before = procfs::cpu(&pids);
            self.stop.sleep(step)?;
            // Timers alone use more under callgrind than they do otherwise.
            let is_quiet = procfs::cpu_between(&before, &procfs::cpu(&pids)) < 0.15 * step.as_micros() as f64;
            quiet = if is_quiet { quiet + 1 } else { 0 };
        }
        Ok(())
    }

    fn control(&self, arguments: &[&str]) -> BenchResult<()> {
        let mut command = Command::new("callgrind_control");
        command.args(arguments).arg(self.gateway.pid().to_string());
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        match status.context("running callgrind_control")? {
            status if status.success() => Ok(()),
            status => {
                Err(BenchError::new(format!("callgrind_control {} ended: {status}", arguments.join(" "))))
            }
        }
    }

    fn new_profiles(&self) -> BenchResult<Vec<PathBuf>> {
        let is_new = |path: &Path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with("callgrind.out"))
        };
        let entries = std::fs::read_dir(&self.folder)?.flatten().map(|entry| entry.path());
        Ok(entries.filter(|path| is_new(path)).collect())
    }
}
