//! Threads of low scheduling priority: a runtime for work that no caller waits for, such as exports, and plain threads
//! for computation. Threads started by these threads, for example SQLite's connection threads, inherit the priority.
//!
//! The priority is a nice value and not the kernel's idle class. Threads of the idle class may get no time at all on a
//! busy host, and then hold what others wait for, such as SQLite's write lock.

use std::sync::{Arc, Mutex, PoisonError, mpsc};

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

type Work = Box<dyn FnOnce() + Send>;

/// A fixed number of threads. They end when this is dropped.
#[derive(Clone)]
pub struct LowPriorityThreads {
    work: mpsc::Sender<Work>,
    count: usize,
}

impl LowPriorityThreads {
    pub fn start(name: &str, count: usize, nice: NiceValue) -> std::io::Result<Self> {
        let (work, queue) = mpsc::channel::<Work>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..count {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                lower_priority_to(nice);
                loop {
                    // Bound to a name, so that the lock is released before the work begins.
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    match next {
                        Ok(work) => work(),
                        Err(mpsc::RecvError) => return,
                    }
                }
            })?;
        }
        Ok(Self { work, count })
    }

    /// Queues the work, which must not panic. Callers bound how much is queued. False if the threads have ended.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) -> bool {
        self.work.send(Box::new(work)).is_ok()
    }

    pub fn count(&self) -> usize {
        self.count
    }
}

/// The share of the time of an ordinary thread that wants the same core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NiceValue {
    /// About a third: for short work that a person waits for.
    Five = 5,
    /// About a tenth.
    Ten = 10,
}

fn lower_priority() {
    lower_priority_to(NiceValue::Ten);
}

/// Lowers the priority of the calling thread; on Linux no process means the calling thread. If the kernel refuses, the
/// thread keeps its priority.
#[cfg(target_os = "linux")]
fn lower_priority_to(nice: NiceValue) {
    let _ = rustix::process::setpriority_process(None, nice as i32);
}

/// Other systems have priorities per process only.
#[cfg(not(target_os = "linux"))]
fn lower_priority_to(_: NiceValue) {}

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
        assert_eq!(task.await.unwrap(), (10, 10));
        assert_eq!(blocking.await.unwrap(), 10);
        assert_eq!(nice(), before);
    }

    #[test]
    fn computing_threads_are_nice_and_others_are_not() {
        let before = nice();
        for (value, expected) in [(NiceValue::Five, 5), (NiceValue::Ten, 10)] {
            let threads = LowPriorityThreads::start("test", 2, value).unwrap();
            assert_eq!(threads.count(), 2);
            let (sender, receiver) = mpsc::channel();
            for _ in 0..2 {
                let report = sender.clone();
                assert!(threads.run(move || report.send(nice()).unwrap()));
                assert_eq!(receiver.recv().unwrap(), expected);
            }
        }
        assert_eq!(nice(), before);
    }
}
