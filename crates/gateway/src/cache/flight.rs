//! Requests under way. The same request made again while it is under way waits for the one that leads it. The lead is a
//! baton: a leader whose caller hangs up drops it, and exactly one of those who wait picks it up; a leader that
//! succeeds or fails closes the flight, which wakes all of them at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gateway_core::cache::CacheKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Hit;
use super::tenant::Tenant;

/// Requests that take near answers do not lead those that want the exact one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlightId {
    pub key: CacheKey,
    pub semantic: bool,
}

pub struct Flight {
    baton: Arc<Semaphore>,
    /// The answer, or nothing when the leader failed.
    outcome: OnceLock<Option<Hit>>,
    /// Leader and followers; changed under the lock of the tenant.
    members: AtomicUsize,
}

/// What a follower learns.
pub enum Followed {
    /// The leader is gone: whoever gets this leads now.
    Leads(Leading),
    Answered(Hit),
    /// The leader failed, or took too long: everybody for themselves.
    Alone,
}

/// A place in a flight. Leaving it last ends the flight.
pub struct Seat {
    tenant: Arc<Tenant>,
    id: FlightId,
    flight: Arc<Flight>,
}

/// The seat of the one who has the baton.
pub struct Leading {
    seat: Seat,
    _baton: OwnedSemaphorePermit,
}

impl Flight {
    /// A new flight and its baton.
    pub fn new() -> (Arc<Self>, Option<OwnedSemaphorePermit>) {
        let baton = Arc::new(Semaphore::new(1));
        let held = Arc::clone(&baton).try_acquire_owned().ok();
        (Arc::new(Self { baton, outcome: OnceLock::new(), members: AtomicUsize::new(0) }), held)
    }
}

impl Seat {
    /// Called under the lock of the tenant.
    pub fn take(tenant: &Arc<Tenant>, id: FlightId, flight: &Arc<Flight>) -> Self {
        flight.members.fetch_add(1, Ordering::Relaxed);
        Self { tenant: Arc::clone(tenant), id, flight: Arc::clone(flight) }
    }

    pub fn leading(self, baton: OwnedSemaphorePermit) -> Leading {
        Leading { seat: self, _baton: baton }
    }

    pub async fn follow(self, patience: Duration) -> Followed {
        let baton = Arc::clone(&self.flight.baton).acquire_owned();
        match tokio::time::timeout(patience, baton).await {
            Ok(Ok(baton)) => Followed::Leads(self.leading(baton)),
            Ok(Err(_closed)) => match self.flight.outcome.get() {
                Some(Some(hit)) => Followed::Answered(hit.clone()),
                _ => Followed::Alone,
            },
            Err(_elapsed) => Followed::Alone,
        }
    }
}

impl Leading {
    /// Ends the flight. Nobody can join any more, and all who wait go on.
    pub fn close(self, outcome: Option<Hit>) {
        let Seat { tenant, id, flight } = &self.seat;
        tenant.end_flight(*id, flight);
        let _ = flight.outcome.set(outcome);
        flight.baton.close();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let flight = &self.flight;
        self.tenant.leave_flight(self.id, flight, || flight.members.fetch_sub(1, Ordering::Relaxed) == 1);
    }
}
