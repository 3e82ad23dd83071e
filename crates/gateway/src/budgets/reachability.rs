//! Whether the database can be reached at all. A lease request that takes long does not tell: the database may be gone,
//! or only slow, or busy with the requests of others. So it is asked over a connection that is opened for the question:
//! those of the pools may all be in use.

use std::time::{Duration, Instant};

use gateway_store::StoreError;
use tokio::sync::Mutex;

use crate::services::Services;

/// For so long a lease request may just be slow.
const FIRST_QUESTION: Duration = Duration::from_secs(2);
/// The database counts as unreachable when this answer takes longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// For so long an answer holds for all calls that wait, so that a node opens one connection for all of them.
const ANSWER_HOLDS: Duration = Duration::from_secs(1);

/// The last answer, shared by all calls that wait for a lease.
#[derive(Default)]
pub struct Reachability(Mutex<Option<(Instant, bool)>>);

impl Reachability {
    /// Waits until the database does not answer, which may be never.
    pub async fn lost(&self, services: &Services) {
        loop {
            tokio::time::sleep(FIRST_QUESTION).await;
            if !self.answers(services).await {
                return;
            }
        }
    }

    /// Whether the database answers now, or did a moment ago.
    pub async fn answers(&self, services: &Services) -> bool {
        self.shared(Box::pin(services.db.reach())).await
    }

    async fn shared(&self, question: impl Future<Output = Result<(), StoreError>>) -> bool {
        // Held while the database is asked, so that those who wait share the answer.
        let mut last = self.0.lock().await;
        if let Some((asked, answered)) = *last
            && asked.elapsed() < ANSWER_HOLDS
        {
            return answered;
        }
        let answered = matches!(tokio::time::timeout(ANSWER_TIMEOUT, question).await, Ok(Ok(())));
        *last = Some((Instant::now(), answered));
        answered
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn those_who_wait_share_one_answer() {
        for (gone, expected) in [(false, true), (true, false)] {
            let (reachability, asked) = (Reachability::default(), AtomicUsize::new(0));
            let ask = || {
                reachability.shared(async {
                    asked.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    if gone { Err(StoreError::Unavailable("gone".into())) } else { Ok(()) }
                })
            };
            assert_eq!(tokio::join!(ask(), ask(), ask()), (expected, expected, expected));
            assert_eq!(asked.load(Ordering::Relaxed), 1);
        }
    }
}
