//! The calls that run on this node, so that their callers can cancel them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gateway_core::ids::OrgId;
use tokio::sync::Notify;

/// What a caller names a call by. Clients that share a key count their requests alike, so the session belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallName {
    pub org: OrgId,
    pub caller: String,
    /// `None` for a caller without a session.
    pub session: Option<String>,
    /// The id that the caller gave its request.
    pub id: String,
}

/// Several calls have one name if clients without sessions share a key.
type Calls = HashMap<CallName, Vec<Arc<Notify>>>;

#[derive(Clone, Default)]
pub struct Running(Arc<Mutex<Calls>>);

/// A call that runs until this is dropped.
pub struct RunningCall {
    running: Running,
    name: CallName,
    cancelled: Arc<Notify>,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn register(&self, name: CallName) -> RunningCall {
        let cancelled = Arc::new(Notify::new());
        self.lock().entry(name.clone()).or_default().push(Arc::clone(&cancelled));
        RunningCall { running: self.clone(), name, cancelled }
    }

    /// False if no such call runs here, or if several do: then it is unknown which one is meant.
    pub fn cancel(&self, name: &CallName) -> bool {
        let calls = self.lock();
        let Some([call]) = calls.get(name).map(Vec::as_slice) else { return false };
        call.notify_one();
        true
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
        if let Some(same) = calls.get_mut(&self.name) {
            same.retain(|call| !Arc::ptr_eq(call, &self.cancelled));
            if same.is_empty() {
                calls.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn name(org: u128, caller: &str, session: Option<&str>) -> CallName {
        CallName {
            org: Uuid::from_u128(org).into(),
            caller: caller.into(),
            session: session.map(Into::into),
            id: "1".into(),
        }
    }

    #[tokio::test]
    async fn a_call_is_cancelled_by_its_caller_only_and_only_while_it_runs() {
        let running = Running::default();
        let own = name(1, "a", Some("s"));
        let call = running.register(own.clone());
        for other in
            [name(2, "a", Some("s")), name(1, "b", Some("s")), name(1, "a", Some("t")), name(1, "a", None)]
        {
            assert!(!running.cancel(&other), "{other:?}");
        }
        assert!(!running.cancel(&CallName { id: "2".into(), ..own.clone() }));
        assert!(running.cancel(&own));
        call.cancelled().await;
        drop(call);
        assert!(!running.cancel(&own) && running.lock().is_empty());
    }

    #[test]
    fn of_several_calls_with_one_name_none_is_cancelled() {
        let running = Running::default();
        let shared = name(1, "a", None);
        let first = running.register(shared.clone());
        let second = running.register(shared.clone());
        assert!(!running.cancel(&shared));
        drop(first);
        assert!(running.cancel(&shared));
        drop(second);
        assert!(!running.cancel(&shared));
    }
}
