//! A runtime whose threads have the lowest scheduling priority, for work that no caller waits for, such as moving log
//! rows into the store. Threads started by these threads, for example SQLite's connection threads, inherit the
//! priority.

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

/// Puts the thread into the kernel's idle scheduling class: it runs only on an otherwise idle core. If the kernel
/// refuses, the thread keeps its priority.
#[cfg(target_os = "linux")]
fn lower_priority() {
    use thread_priority::{NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy};
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let this = thread_priority::thread_native_id();
    let _ = thread_priority::set_thread_priority_and_policy(this, ThreadPriority::Min, idle);
}

/// Other systems have priorities per process only.
#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// The kernel's number for SCHED_IDLE.
    const IDLE: &str = "5";

    /// The scheduling policy of the calling thread: field 41 of its stat file, the 39th after the name.
    fn policy() -> String {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(38).unwrap().to_owned()
    }

    #[tokio::test]
    async fn its_threads_and_their_child_threads_are_idle_class_and_others_are_not() {
        let low_priority = LowPriorityRuntime::start().unwrap();
        let task =
            low_priority.handle.spawn(async { (policy(), std::thread::spawn(policy).join().unwrap()) });
        let blocking = low_priority.handle.spawn_blocking(policy);
        let (own, started) = task.await.unwrap();
        assert_eq!((own.as_str(), started.as_str()), (IDLE, IDLE));
        assert_eq!(blocking.await.unwrap(), IDLE);
        assert_ne!(policy(), IDLE);
    }
}
