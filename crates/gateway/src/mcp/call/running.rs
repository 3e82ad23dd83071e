//! The calls that run on this node, so that their callers can cancel them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

type Calls = HashMap<(String, String), Arc<Notify>>;

/// By the caller and the id that it gave its request.
#[derive(Clone, Default)]
pub struct Running(Arc<Mutex<Calls>>);

/// A call that runs until this is dropped.
pub struct RunningCall {
    running: Running,
    name: (String, String),
    cancelled: Arc<Notify>,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn register(&self, caller: &str, id: &str) -> RunningCall {
        let name = (caller.to_owned(), id.to_owned());
        let cancelled = Arc::new(Notify::new());
        self.lock().insert(name.clone(), Arc::clone(&cancelled));
        RunningCall { running: self.clone(), name, cancelled }
    }

    /// False if no such call runs here.
    pub fn cancel(&self, caller: &str, id: &str) -> bool {
        let found = self.lock().get(&(caller.to_owned(), id.to_owned())).cloned();
        if let Some(call) = &found {
            call.notify_one();
        }
        found.is_some()
    }
}

impl RunningCall {
    pub async fn cancelled(&self) {
        self.cancelled.notified().await;
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let mut calls = self.running.lock();
        // A later call of the same id has taken the place.
        if calls.get(&self.name).is_some_and(|call| Arc::ptr_eq(call, &self.cancelled)) {
            calls.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_is_cancelled_by_its_caller_only_and_only_while_it_runs() {
        let running = Running::default();
        let call = running.register("a", "1");
        assert!(!running.cancel("b", "1") && !running.cancel("a", "2"));
        assert!(running.cancel("a", "1"));
        call.cancelled().await;
        drop(call);
        assert!(!running.cancel("a", "1"));
    }

    #[test]
    fn a_later_call_of_the_same_id_stays_when_the_first_one_ends() {
        let running = Running::default();
        let first = running.register("a", "1");
        let second = running.register("a", "1");
        drop(first);
        assert!(running.cancel("a", "1"));
        drop(second);
        assert!(!running.cancel("a", "1"));
    }
}
