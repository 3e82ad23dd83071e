//! Child processes that stop with the run. They can be pinned and get the maximum number of file descriptors.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::error::{BenchError, BenchResult, Context, StopFlag};

/// A child process that is terminated, and killed if necessary, on drop.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    grace: Duration,
}

impl Process {
    pub(crate) fn start(name: &'static str, command: &mut Command) -> BenchResult<Self> {
        let child = command.spawn().context(format!("starting {name}"))?;
        Ok(Self { name, child, grace: Duration::from_secs(3) })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn check_alive(&mut self) -> BenchResult<()> {
        match self.child.try_wait()? {
            Some(status) => Err(BenchError::new(format!("{} ended by itself: {status}", self.name))),
            None => Ok(()),
        }
    }

    /// Waits for the child to exit by itself, until the run is stopped.
    pub(crate) fn wait(&mut self, stop: &StopFlag, limit: Duration) -> BenchResult<std::process::ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > until {
                return Err(BenchError::new(format!(
                    "{} did not end within {} s",
                    self.name,
                    limit.as_secs()
                )));
            }
            stop.sleep(Duration::from_millis(5))?;
        }
    }

    /// Terminates the child and returns how long that took. Fails when the child had to be killed.
    pub(crate) fn terminate(&mut self, grace: Duration) -> BenchResult<Duration> {
        let asked = Instant::now();
        if self.child.try_wait()?.is_some() {
            return Ok(Duration::ZERO);
        }
        // Uses the shell's `kill`: the standard library can only send SIGKILL.
        let _ = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &self.pid().to_string()]).status();
        while asked.elapsed() < grace {
            if self.child.try_wait()?.is_some() {
                return Ok(asked.elapsed());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.child.kill()?;
        self.child.wait()?;
        Err(BenchError::new(format!("{} did not stop within {} s of SIGTERM", self.name, grace.as_secs())))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.terminate(self.grace);
    }
}

/// A command that runs `program` on the given CPUs with the maximum number of file descriptors.
pub(crate) fn command(program: &Path, cpus: Option<&str>) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n \"$(ulimit -Hn)\" 2>/dev/null; exec \"$0\" \"$@\""]);
    if let Some(cpus) = cpus {
        command.args(["taskset", "-c", cpus]);
    }
    command.arg(program).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Finds a program on the path or in the usual directories of servers.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Lines of a child's pipe, read on a separate thread so that the child never blocks.
pub(crate) fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            // The pipe must be drained even when the receiver is gone.
            let _ = sender.send(line);
        }
    });
    receiver
}

/// A temporary directory that is removed on drop.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn create(parent: &Path) -> BenchResult<Self> {
        let path = parent.join(format!("gateway-bench-{}", std::process::id()));
        std::fs::create_dir_all(parent).context(format!("creating {}", parent.display()))?;
        std::fs::create_dir(&path).context(format!("creating {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_process_is_gone() {
        let process = Process::start("sleep", command(Path::new("sleep"), None).arg("30")).unwrap();
        let entry = format!("/proc/{}", process.pid());
        assert!(Path::new(&entry).exists());
        drop(process);
        assert!(!Path::new(&entry).exists());
    }

    #[test]
    fn a_process_that_ignores_the_request_is_forced() {
        let mut process = Process::start(
            "stubborn",
            command(Path::new("sh"), None).args(["-c", "trap '' TERM; while :; do sleep 0.05; done"]),
        )
        .unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert!(process.terminate(Duration::from_millis(100)).is_err());
        assert!(process.check_alive().is_err());
    }

    #[test]
    fn waiting_ends_when_the_run_is_stopped() {
        let stop = StopFlag::default();
        stop.request();
        let mut process = Process::start("sleep", command(Path::new("sleep"), None).arg("30")).unwrap();
        assert!(process.wait(&stop, Duration::from_secs(30)).is_err());
    }
}
