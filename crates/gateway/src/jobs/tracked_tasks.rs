//! A set of tasks with a key each. It also tells the key of a task that panicked, which a `JoinSet` of results does not.

use std::collections::HashMap;

use tokio::task::{Id, JoinSet};

pub struct TrackedTasks<K> {
    tasks: JoinSet<()>,
    keys: HashMap<Id, K>,
}

impl<K> Default for TrackedTasks<K> {
    fn default() -> Self {
        Self { tasks: JoinSet::new(), keys: HashMap::new() }
    }
}

impl<K> TrackedTasks<K> {
    pub fn spawn(&mut self, key: K, task: impl Future<Output = ()> + Send + 'static) {
        self.keys.insert(self.tasks.spawn(task).id(), key);
    }

    /// Waits for the end of a task and returns its key. `None` if there are no tasks.
    pub async fn join_next(&mut self) -> Option<K> {
        loop {
            let id = match self.tasks.join_next_with_id().await? {
                Ok((id, ())) => id,
                Err(error) => {
                    tracing::error!(%error, "a background task panicked");
                    error.id()
                }
            };
            if let Some(key) = self.keys.remove(&id) {
                return Some(key);
            }
        }
    }

    /// The keys of the tasks that have not been joined.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.keys.values()
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_gives_its_key_back() {
        let mut tasks = TrackedTasks::default();
        tasks.spawn("panics", async { panic!("on purpose") });
        tasks.spawn("waits", std::future::pending());
        assert_eq!(tasks.len(), 2);
        assert_eq!(tasks.join_next().await, Some("panics"));
        assert_eq!(tasks.keys().collect::<Vec<_>>(), [&"waits"]);
        tasks.spawn("ends", async {});
        assert_eq!(tasks.join_next().await, Some("ends"));
        tasks.tasks.abort_all();
        assert_eq!((tasks.join_next().await, tasks.join_next().await), (Some("waits"), None));
    }
}
