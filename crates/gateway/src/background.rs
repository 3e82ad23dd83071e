//! Threads that step back: for work that no caller waits for, such as moving log rows into the store. A core that they and
//! the requests both want goes to the requests. Threads that they start, as SQLite's connections do, step back as well.

use tokio::runtime::{Builder, Handle, Runtime};

pub struct Background {
    pub handle: Handle,
    runtime: Option<Runtime>,
}

impl Background {
    pub fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("background")
            .on_thread_start(step_back)
            .enable_all()
            .build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }
}

/// The last owner may be a task, which may not wait for the threads to end.
impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Runs only while nothing else wants the core, and is put aside the moment that something does. Where it is refused, the
/// work is done all the same.
#[cfg(target_os = "linux")]
fn step_back() {
    use thread_priority::{NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy};
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let this = thread_priority::thread_native_id();
    let _ = thread_priority::set_thread_priority_and_policy(this, ThreadPriority::Min, idle);
}

/// Elsewhere priorities are those of whole processes.
#[cfg(not(target_os = "linux"))]
fn step_back() {}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// SCHED_IDLE, as the kernel counts.
    const IDLE: &str = "5";

    /// Of the thread that asks: the 41st field, the 39th behind the name.
    fn policy() -> String {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(38).unwrap().to_owned()
    }

    #[tokio::test]
    async fn its_threads_and_those_that_they_start_give_way_and_others_do_not() {
        let background = Background::start().unwrap();
        let task = background.handle.spawn(async { (policy(), std::thread::spawn(policy).join().unwrap()) });
        let blocking = background.handle.spawn_blocking(policy);
        let (own, started) = task.await.unwrap();
        assert_eq!((own.as_str(), started.as_str()), (IDLE, IDLE));
        assert_eq!(blocking.await.unwrap(), IDLE);
        assert_ne!(policy(), IDLE);
    }
}
