//! Background tasks and graceful shutdown. Every task is started here, so that shutdown can wait for it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::low_priority::LowPriorityRuntime;

pub struct Tasks {
    /// The main runtime. Everything that may wait for the database runs here.
    pub runtime: Handle,
    low_priority: LowPriorityRuntime,
    stopping: watch::Sender<bool>,
    drained: watch::Sender<bool>,
    set: Mutex<JoinSet<()>>,
}

impl Tasks {
    pub fn new(runtime: Handle, low_priority: LowPriorityRuntime) -> Self {
        Self {
            runtime,
            low_priority,
            stopping: watch::Sender::new(false),
            drained: watch::Sender::new(false),
            set: Mutex::default(),
        }
    }

    /// Starts a task on the main runtime. Shutdown waits for it.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_on(&self.runtime, task);
    }

    /// The runtime of low priority, for work that no caller waits for.
    pub fn low_priority_runtime(&self) -> &Handle {
        &self.low_priority.handle
    }

    /// Starts a task on the low-priority runtime, for work that no caller waits for.
    pub fn spawn_low_priority(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_on(&self.low_priority.handle, task);
    }

    fn spawn_on(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        while set.try_join_next().is_some() {}
        set.spawn_on(task, runtime);
    }

    /// Resolves when the service begins to stop.
    pub async fn stopping(&self) {
        let mut stopping = self.stopping.subscribe();
        // An error means that the sender was dropped together with the application.
        let _ = stopping.wait_for(|stop| *stop).await;
    }

    /// Resolves when the last request has ended.
    pub async fn drained(&self) {
        let mut drained = self.drained.subscribe();
        let _ = drained.wait_for(|drained| *drained).await;
    }

    pub fn is_drained(&self) -> bool {
        *self.drained.borrow()
    }

    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Asks every task to end.
    pub fn begin_stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Records that the last request has ended. Tasks that waited for it may end now.
    pub fn set_drained(&self) {
        self.begin_stop();
        self.drained.send_replace(true);
    }

    /// Waits until all tasks have ended, at most for the given time.
    pub async fn join(&self, timeout: Duration) {
        let mut set = std::mem::take(&mut *self.set.lock().unwrap_or_else(PoisonError::into_inner));
        let all = async { while set.join_next().await.is_some() {} };
        if tokio::time::timeout(timeout, all).await.is_err() {
            tracing::warn!("some background tasks did not end in time");
        }
    }
}
