//! How much a task reads of one connection before the other tasks of its thread have their turn. A peer that sends faster
//! than the gateway reads would otherwise occupy the thread for as long as it sends.

use std::task::Context;

/// What is copied and scanned in about a tenth of a millisecond.
const READ_BUDGET: usize = 128 << 10;

/// Counts what a task has read since it last waited or yielded.
#[derive(Default)]
pub struct ReadBudget {
    used: usize,
}

impl ReadBudget {
    /// Whether the task must yield. It is woken again at once, behind the tasks that are ready.
    pub fn must_yield(&mut self, context: &Context<'_>) -> bool {
        let is_exhausted = self.used >= READ_BUDGET;
        if is_exhausted {
            self.used = 0;
            context.waker().wake_by_ref();
        }
        is_exhausted
    }

    pub fn consume(&mut self, bytes: usize) {
        self.used += bytes;
    }

    /// The task waits for the peer, so other tasks run anyway.
    pub fn reset(&mut self) {
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_that_never_waits_yields_to_others() {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let context = Context::from_waker(&waker);
        let mut budget = ReadBudget::default();
        let yields = (0..16).filter(|_| {
            budget.consume(READ_BUDGET / 4);
            budget.must_yield(&context)
        });
        assert_eq!(yields.count(), 4);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 4, "the task is woken again");
        budget.consume(READ_BUDGET);
        budget.reset();
        assert!(!budget.must_yield(&context), "it has waited");
    }
}
