//! The memory budget: what requests and jobs hold of bodies is reserved here first, so that no organization can use up
//! the memory of the process, and no account with many of them. `core::fair_share` decides how they share the budget.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use gateway_core::fair_share::{ShareRule, Use};
use gateway_core::ids::{OrgId, OwnerId};
use gateway_store::org_owners::OrgOwners;

use crate::org_accounts::OrgAccounts;
use crate::problem::Problem;

/// Reservations are made in multiples of this, so that a request with a small body takes one step. It also stands for
/// the other memory of a request.
const QUANTUM: usize = 16 << 10;
/// Callers that are not authenticated have one of so many parts of the budget together.
const ANONYMOUS_PARTS: u64 = 16;
const MIN_BUFFER: usize = 1 << 10;
/// Responses of the management API up to this size are sent however much memory the organization uses, also those that
/// have it after their compression: lists shrink to about a tenth.
const SMALL_RESPONSE: usize = 64 << 10;
const SMALL_UNCOMPRESSED: usize = 512 << 10;

pub struct MemoryBudget {
    shared: Arc<Shared>,
    owners: Arc<OrgOwners>,
    accounts: OrgAccounts<MemoryAccount>,
    of_owners: OrgAccounts<AtomicU64, OwnerId>,
    anonymous: Arc<MemoryAccount>,
}

struct Shared {
    total: u64,
    used: AtomicU64,
    refusals: AtomicU64,
}

/// What one organization holds.
pub struct MemoryAccount {
    shared: Arc<Shared>,
    used: AtomicU64,
    /// By all organizations of the owner.
    of_owner: Arc<AtomicU64>,
    max: u64,
}

/// The organization holds as much as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryExhausted;

impl From<MemoryExhausted> for Problem {
    fn from(_: MemoryExhausted) -> Self {
        Problem::overloaded(
            "the requests in progress of this organization use up its share of the gateway's memory; retry after the \
             time in Retry-After, with smaller bodies or fewer requests at once",
        )
    }
}

impl MemoryBudget {
    pub fn new(total: u64) -> Self {
        let shared = Arc::new(Shared { total, used: AtomicU64::new(0), refusals: AtomicU64::new(0) });
        let anonymous = Arc::new(MemoryAccount::new(&shared, Arc::default(), total / ANONYMOUS_PARTS));
        Self {
            shared,
            owners: Arc::default(),
            accounts: OrgAccounts::default(),
            of_owners: OrgAccounts::default(),
            anonymous,
        }
    }

    /// The same budget, shared between these owners. Otherwise each organization is its own owner.
    pub fn sharing_by(self, owners: &Arc<OrgOwners>) -> Self {
        Self { owners: Arc::clone(owners), ..self }
    }

    /// The account of an organization. There is one as long as something uses it.
    pub fn account(&self, org: OrgId) -> Arc<MemoryAccount> {
        let owner = self.owners.of(org);
        let open = || {
            let of_owner = self.of_owners.get(owner, AtomicU64::default);
            MemoryAccount::new(&self.shared, of_owner, self.shared.total)
        };
        self.accounts.get((org, owner), open)
    }

    /// The account of all callers that are not authenticated.
    pub fn anonymous(&self) -> &Arc<MemoryAccount> {
        &self.anonymous
    }

    pub fn used(&self) -> u64 {
        self.shared.used.load(Ordering::Relaxed)
    }

    pub fn refusals(&self) -> u64 {
        self.shared.refusals.load(Ordering::Relaxed)
    }
}

impl MemoryAccount {
    fn new(shared: &Arc<Shared>, of_owner: Arc<AtomicU64>, max: u64) -> Self {
        Self { shared: Arc::clone(shared), used: AtomicU64::new(0), of_owner, max }
    }

    /// A reservation of nothing, which can grow.
    pub fn open(self: &Arc<Self>) -> Reservation {
        Reservation { account: Arc::clone(self), bytes: 0, reserved: 0 }
    }

    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Result<Reservation, MemoryExhausted> {
        let mut reservation = self.open();
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    fn take(&self, bytes: u64) -> Result<(), MemoryExhausted> {
        let Shared { total, used, refusals } = &*self.shared;
        let is_admitted = |[used, own, of_owner]: [u64; 3]| {
            own.saturating_add(bytes) <= self.max
                && ShareRule::BODIES.admits(Use { total: *total, used, own, of_owner }, bytes)
        };
        let counts: [&AtomicU64; 3] = [used, &self.used, &self.of_owner];
        // A refused reservation must not disturb the others, so it is usually found before anything is added.
        if is_admitted(counts.map(|count| count.load(Ordering::Relaxed))) {
            if is_admitted(counts.map(|count| count.fetch_add(bytes, Ordering::Relaxed))) {
                return Ok(());
            }
            self.give_back(bytes);
        }
        refusals.fetch_add(1, Ordering::Relaxed);
        Err(MemoryExhausted)
    }

    fn add(&self, bytes: u64) {
        self.shared.used.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.of_owner.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        self.shared.used.fetch_sub(bytes, Ordering::Relaxed);
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.of_owner.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Memory that is reserved until this is dropped.
pub struct Reservation {
    account: Arc<MemoryAccount>,
    bytes: usize,
    /// At least `bytes`, in whole quanta.
    reserved: usize,
}

impl Reservation {
    pub fn grow(&mut self, bytes: usize) -> Result<(), MemoryExhausted> {
        let wanted = self.bytes.saturating_add(bytes);
        if wanted > self.reserved {
            let reserved = wanted.checked_next_multiple_of(QUANTUM).ok_or(MemoryExhausted)?;
            self.account.take((reserved - self.reserved) as u64)?;
            self.reserved = reserved;
        }
        self.bytes = wanted;
        Ok(())
    }

    /// Counts memory that is in use already, also beyond the share. For work that has limits of its own.
    pub fn charge(&mut self, bytes: usize) {
        let reserved = self.bytes.saturating_add(bytes).next_multiple_of(QUANTUM).max(self.reserved);
        self.account.add((reserved - self.reserved) as u64);
        (self.bytes, self.reserved) = (self.bytes.saturating_add(bytes), reserved);
    }

    /// Releases all but this many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
        let reserved = self.bytes.next_multiple_of(QUANTUM).min(self.reserved);
        self.account.give_back((self.reserved - reserved) as u64);
        self.reserved = reserved;
    }

    /// Grows or shrinks to this many bytes.
    pub fn resize(&mut self, bytes: usize) -> Result<(), MemoryExhausted> {
        if bytes <= self.bytes {
            self.shrink_to(bytes);
            return Ok(());
        }
        self.grow(bytes - self.bytes)
    }

    /// Another reservation of the same organization.
    pub fn sibling(&self, bytes: usize) -> Result<Self, MemoryExhausted> {
        self.account.reserve(bytes)
    }

    /// A reservation of nothing for the same organization.
    pub fn empty_sibling(&self) -> Self {
        self.account.open()
    }

    /// Adds what another reservation of the same organization has reserved.
    pub fn absorb(&mut self, mut other: Self) {
        if Arc::ptr_eq(&self.account, &other.account) {
            self.bytes += std::mem::take(&mut other.bytes);
            self.reserved += std::mem::take(&mut other.reserved);
        } else {
            // The organization has got another owner in between, and with it another account.
            self.account.add(other.reserved as u64);
            self.bytes += other.bytes;
            self.reserved += other.reserved;
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.reserved > 0 {
            self.account.give_back(self.reserved as u64);
        }
    }
}

/// The memory of a management request, from the start of its body to the end of its response.
#[derive(Clone)]
pub struct RequestMemory(Arc<Mutex<RequestParts>>);

struct RequestParts {
    request: Reservation,
    response: Reservation,
}

impl RequestMemory {
    pub fn new(memory: Reservation) -> Self {
        let response = memory.empty_sibling();
        Self(Arc::new(Mutex::new(RequestParts { request: memory, response })))
    }

    pub fn grow(&self, bytes: usize) -> Result<(), MemoryExhausted> {
        self.parts().request.grow(bytes)
    }

    /// A reservation of nothing for the same organization.
    pub fn open(&self) -> Reservation {
        self.parts().request.empty_sibling()
    }

    /// Reserves what a response takes while it is made, before its rows are read. `bytes`: what they have in the database.
    pub fn reserve_response(&self, bytes: usize, held_per_byte: usize) -> Result<(), MemoryExhausted> {
        if bytes <= SMALL_UNCOMPRESSED {
            return Ok(());
        }
        self.parts().response.grow(bytes.saturating_mul(held_per_byte))
    }

    /// The response has been made and has this length. A large one is refused if there is no room for it.
    pub fn hold_response(&self, length: usize, is_compressed_next: bool) -> Result<(), MemoryExhausted> {
        let small = if is_compressed_next { SMALL_UNCOMPRESSED } else { SMALL_RESPONSE };
        if length > small {
            return self.parts().response.resize(length);
        }
        self.charge_response(length);
        Ok(())
    }

    /// The same for a response that is sent in any case.
    pub fn charge_response(&self, length: usize) {
        let response = &mut self.parts().response;
        response.shrink_to(length);
        response.charge(length.saturating_sub(response.bytes()));
    }

    fn parts(&self) -> MutexGuard<'_, RequestParts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes whose memory is reserved until the last copy of them is dropped.
pub fn hold(bytes: impl AsRef<[u8]> + Send + 'static, memory: Reservation) -> Bytes {
    struct Held<T> {
        bytes: T,
        _memory: Reservation,
    }
    impl<T: AsRef<[u8]>> AsRef<[u8]> for Held<T> {
        fn as_ref(&self) -> &[u8] {
            self.bytes.as_ref()
        }
    }
    Bytes::from_owner(Held { bytes, _memory: memory })
}

/// A growing buffer whose memory is reserved before it is allocated. Chunks are merged, so many small ones take no more
/// than their length.
pub struct HeldBuffer {
    bytes: Vec<u8>,
    memory: Reservation,
}

impl HeldBuffer {
    pub fn new(memory: Reservation) -> Self {
        Self { bytes: Vec::new(), memory }
    }

    /// Prepares the buffer for this many bytes in total.
    pub fn reserve(&mut self, length: usize) -> Result<(), MemoryExhausted> {
        if length > self.bytes.capacity() {
            self.memory.grow(length - self.bytes.capacity())?;
            self.bytes.reserve_exact(length - self.bytes.len());
        }
        Ok(())
    }

    pub fn append(&mut self, data: &[u8]) -> Result<(), MemoryExhausted> {
        let length = self.bytes.len() + data.len();
        if length > self.bytes.capacity() {
            let doubled = length.max(self.bytes.capacity() * 2).max(MIN_BUFFER);
            // Without room for the double, just enough may still be possible.
            self.reserve(doubled).or_else(|_| self.reserve(length))?;
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes, whose memory stays reserved until the last copy of them is dropped.
    pub fn finish(self) -> Bytes {
        hold(self.bytes, self.memory)
    }

    /// The bytes, for an owner with a limit of its own.
    pub fn release(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests;
