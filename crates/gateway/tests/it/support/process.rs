//! The built binary as a separate process: its output, exit code and log.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::Value;

use super::client::TestRequest;

/// Upper bound for the start and the exit of the process.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// `gateway` with these arguments. Its environment has only a data directory and a free port.
pub fn command(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    command.args(arguments).env_clear().stdin(Stdio::null()).current_dir(data);
    command.env("GATEWAY_DATA_DIR", data.join("data")).env("GATEWAY_LISTEN", "127.0.0.1:0");
    command
}

/// `gateway serve` for which `GatewayProcess::fill_disk` can be used.
pub fn limited_command(data: &Path) -> Command {
    // An ignored signal stays ignored in the program that the shell becomes.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" serve", env!("CARGO_BIN_EXE_gateway")]);
    command.env_clear().stdin(Stdio::null()).current_dir(data);
    command
}

#[derive(Debug)]
pub struct ProcessOutput {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command until it exits.
pub fn run(command: &mut Command) -> ProcessOutput {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).unwrap();
        text
    });
    let output = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        text
    });
    let code = wait_for_exit(&mut child);
    ProcessOutput { code, stdout: output.join().unwrap(), stderr: errors.join().unwrap() }
}

/// The end of a process that was never ready.
pub struct EarlyEnd {
    pub signal: Option<i32>,
    pub log: String,
}

/// A running `gateway serve` that accepts requests. Killed on drop.
pub struct GatewayProcess {
    child: Child,
    pub address: SocketAddr,
    /// The log line that announced readiness.
    pub ready: Value,
    log: Option<JoinHandle<String>>,
}

impl GatewayProcess {
    pub fn start(command: &mut Command) -> Self {
        Self::try_start(command)
            .unwrap_or_else(|early| panic!("the service did not become ready: {}", early.log))
    }

    /// Starts a process that may end before it is ready.
    pub fn try_start(command: &mut Command) -> Result<Self, EarlyEnd> {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        let log = std::thread::spawn(move || {
            let mut whole = String::new();
            for line in stderr.lines().map_while(Result::ok) {
                whole.push_str(&line);
                whole.push('\n');
                let _ = sender.send(line);
            }
            whole
        });
        let Some(ready) = ready_line(&lines) else {
            // A process that is killed here was not ready in time. One that ended by itself keeps its status.
            let _ = child.kill();
            let signal = child.wait().unwrap().signal();
            return Err(EarlyEnd { signal, log: log.join().unwrap() });
        };
        let address = ready["url"].as_str().and_then(|url| Some(url.split_once("://")?.1)).unwrap();
        Ok(Self { child, address: address.parse().unwrap(), ready, log: Some(log) })
    }

    pub fn call(&self, method: Method, path: &str) -> TestRequest {
        TestRequest::new(self.address, method, path)
    }

    pub fn post(&self, path: &str, body: &Value) -> TestRequest {
        self.call(Method::POST, path).json(body.clone())
    }

    pub fn get(&self, path: &str) -> TestRequest {
        self.call(Method::GET, path)
    }

    /// Sends a signal with the shell's `kill`.
    pub fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    }

    /// From now on every write to a file fails, as on a full disk.
    pub fn fill_disk(&self) {
        self.limit_file_size("0");
    }

    pub fn free_disk(&self) {
        self.limit_file_size("unlimited");
    }

    /// From now on the process can open only this many more files and connections.
    pub fn limit_descriptors(&self, more: usize) {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count();
        self.set_limit(&format!("--nofile={}:", open + more));
    }

    fn limit_file_size(&self, bytes: &str) {
        self.set_limit(&format!("--fsize={bytes}:unlimited"));
    }

    /// Sets a limit of the running process with util-linux's `prlimit`.
    fn set_limit(&self, limit: &str) {
        let id = self.child.id().to_string();
        let changed = Command::new("prlimit").args(["--pid", &id, limit]).status();
        assert!(changed.is_ok_and(|status| status.success()), "prlimit (util-linux) is needed for this test");
    }

    /// Waits for the process to exit and returns the exit code.
    pub fn wait_for_exit_code(&mut self) -> Option<i32> {
        wait_for_exit(&mut self.child)
    }

    /// Waits for the process to exit and returns the exit code and the log.
    pub fn wait(mut self) -> (Option<i32>, String) {
        let code = wait_for_exit(&mut self.child);
        (code, self.log.take().unwrap().join().unwrap())
    }
}

impl Drop for GatewayProcess {
    #[expect(clippy::print_stderr, reason = "shown by the test runner for tests that fail")]
    fn drop(&mut self) {
        let ended = self.child.try_wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A test that fails shows what the service wrote, and whether it had ended by itself.
        if std::thread::panicking()
            && let Some(log) = self.log.take().and_then(|log| log.join().ok())
        {
            eprintln!("the service at {}: {ended:?}\n{log}", self.address);
        }
    }
}

fn ready_line(lines: &Receiver<String>) -> Option<Value> {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left).ok()?;
        let parsed: Option<Value> = serde_json::from_str(&line).ok();
        if let Some(line) = parsed.filter(|line| line.get("url").is_some()) {
            return Some(line);
        }
    }
}

fn wait_for_exit(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the process did not end within {WAIT_TIMEOUT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
