//! Events of a stream that are ready to be sent. A client that reads slowly makes them wait, so they count in the memory
//! of its organization. They were made already, and their number has a bound: they count also beyond the share.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::memory::Reservation;

pub struct ReadyEvents {
    events: VecDeque<Bytes>,
    memory: Reservation,
}

impl ReadyEvents {
    /// The stream begins with a comment: the headers reach the client only with the first bytes of the body.
    pub fn new(memory: Reservation) -> Self {
        Self { events: VecDeque::from([Bytes::from_static(b": following\n\n")]), memory }
    }

    pub fn push(&mut self, event: impl Into<Bytes>) {
        let event = event.into();
        self.memory.charge(event.len());
        self.events.push_back(event);
    }

    pub fn pop(&mut self) -> Option<Bytes> {
        let event = self.events.pop_front()?;
        self.memory.shrink_to(self.memory.bytes().saturating_sub(event.len()));
        Some(event)
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::ids::OrgId;

    use super::*;
    use crate::memory::MemoryBudget;

    #[test]
    fn waiting_events_are_counted() {
        let budget = MemoryBudget::new(1 << 20);
        let mut ready = ReadyEvents::new(budget.account(OrgId(uuid::Uuid::nil())).open());
        for _ in 0..4 {
            ready.push(vec![b'x'; 100 << 10]);
        }
        assert!(budget.used() >= 400 << 10);
        assert_eq!(ready.pop().unwrap(), ": following\n\n");
        for _ in 0..4 {
            ready.pop().unwrap();
        }
        assert!(ready.is_empty() && ready.pop().is_none());
        assert_eq!(budget.used(), 0);
    }
}
