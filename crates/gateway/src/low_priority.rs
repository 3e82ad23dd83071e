//! A runtime whose threads have a low scheduling priority, for work that no caller waits for, such as exports. Threads
//! started by these threads, for example SQLite's connection threads, inherit the priority.
//!
//! The priority is a nice value and not the kernel's idle class. Threads of the idle class may get no time at all on a
//! busy host, and then hold what others wait for, such as SQLite's write lock.

use tokio::runtime::{Builder, Handle, Runtime};

pub struct LowPriorityRuntime {
    pub handle: Handle,
    runtime: Option<Runtime>,
}

impl LowPriorityRuntime {
    pub fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("low-priority")
            .on_thread_start(lower_priority)
            .enable_all()
            .build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }
}

/// The last owner may be a task, and blocking on thread shutdown is not allowed inside a task.
impl Drop for LowPriorityRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// About a tenth of the time of an ordinary thread that wants the same core.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Lowers the priority of the calling thread; on Linux no process means the calling thread. If the kernel refuses, the
/// thread keeps its priority.
#[cfg(target_os = "linux")]
fn lower_priority() {
    let _ = rustix::process::setpriority_process(None, NICE);
}

/// Other systems have priorities per process only.
#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// The nice value of the calling thread: field 19 of its stat file, the 17th after the name.
    fn nice() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(16).unwrap().parse().unwrap()
    }

    #[tokio::test]
    async fn its_threads_and_their_child_threads_have_low_priority_and_others_do_not() {
        let before = nice();
        let low_priority = LowPriorityRuntime::start().unwrap();
        let task = low_priority.handle.spawn(async { (nice(), std::thread::spawn(nice).join().unwrap()) });
        let blocking = low_priority.handle.spawn_blocking(nice);
        assert_eq!(task.await.unwrap(), (NICE, NICE));
        assert_eq!(blocking.await.unwrap(), NICE);
        assert_eq!(nice(), before);
    }
}
