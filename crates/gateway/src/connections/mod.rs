//! The open client connections: how many there may be in total and per address, and which idle one is closed when there
//! are too many. File descriptors are shared by all callers, so no caller may use them up.

mod idle;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ipnet::IpNet;

use idle::IdleConnections;
pub use idle::{ActiveRequest, ConnectionState};

/// Connections that may be open beyond the limit while those that were asked to close do so.
const MAX_CLOSING: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    pub total: usize,
    pub per_address: AddressLimit,
}

/// How many connections one address may have. An IPv6 address counts by its /64 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressLimit {
    Unlimited,
    /// Local clients, such as a proxy on the same machine, are exempt.
    Remote(usize),
    All(usize),
}

pub struct Connections {
    limits: ConnectionLimits,
    /// Exempt from the limit per address, because they connect for many clients.
    trusted_proxies: Vec<IpNet>,
    epoch: Instant,
    table: Mutex<Table>,
    saw_unknown_proxy: AtomicBool,
    pub counters: ConnectionCounters,
}

/// How often a connection was refused, or closed by the gateway.
#[derive(Default)]
pub struct ConnectionCounters {
    /// All connections were busy.
    pub refused_total: AtomicU64,
    pub refused_address: AtomicU64,
    /// Idle, and closed to make room for a new one.
    pub closed_for_room: AtomicU64,
    /// Without a complete request head in time.
    pub closed_head_timeout: AtomicU64,
    pub closed_idle: AtomicU64,
}

#[derive(Default)]
struct Table {
    next_id: u64,
    open: HashMap<u64, Arc<ConnectionState>>,
    by_address: HashMap<IpAddr, usize>,
    idle: IdleConnections,
    /// Connections in `open` that were asked to close.
    closing: usize,
}

/// Why a connection is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    Total,
    Address,
}

impl Connections {
    pub fn new(limits: ConnectionLimits, trusted_proxies: Vec<IpNet>) -> Self {
        Self {
            limits,
            trusted_proxies,
            epoch: Instant::now(),
            table: Mutex::default(),
            saw_unknown_proxy: AtomicBool::new(false),
            counters: ConnectionCounters::default(),
        }
    }

    /// True for the first call, when a proxy that is not trusted forwards a request.
    pub fn is_first_unknown_proxy(&self) -> bool {
        !self.saw_unknown_proxy.load(Ordering::Relaxed)
            && !self.saw_unknown_proxy.swap(true, Ordering::Relaxed)
    }

    /// Admits a connection. If there are too many, the one that has been idle for longest is asked to close.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<OpenConnection, Refused> {
        let address = self.counted_address(peer);
        let mut table = self.lock();
        if let Some((address, limit)) = address
            && table.by_address.get(&address).is_some_and(|open| *open >= limit)
        {
            drop(table);
            self.counters.refused_address.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::Address);
        }
        let is_full = table.open.len().saturating_sub(table.closing) >= self.limits.total;
        let has_room = table.open.len() < self.limits.total + MAX_CLOSING;
        if is_full && !(has_room && self.close_longest_idle(&mut table)) {
            drop(table);
            self.counters.refused_total.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::Total);
        }
        let id = table.next_id;
        table.next_id += 1;
        let state = Arc::new(ConnectionState::new(self.epoch));
        table.open.insert(id, Arc::clone(&state));
        let address = address.map(|(address, _)| address);
        if let Some(address) = address {
            *table.by_address.entry(address).or_default() += 1;
        }
        drop(table);
        Ok(OpenConnection { connections: Arc::clone(self), id, address, state })
    }

    /// Closes an idle connection, because there are no file descriptors left for a new one.
    pub fn make_room(&self) -> bool {
        self.close_longest_idle(&mut self.lock())
    }

    /// Asks all connections to close when their requests have ended.
    pub fn close_all(&self) {
        for state in self.lock().open.values() {
            state.request_close();
        }
    }

    pub fn open(&self) -> usize {
        self.lock().open.len()
    }

    fn close_longest_idle(&self, table: &mut Table) -> bool {
        let Table { open, idle, closing, .. } = table;
        let is_found = idle.close_longest(open.values());
        if is_found {
            *closing += 1;
            self.counters.closed_for_room.fetch_add(1, Ordering::Relaxed);
        }
        is_found
    }

    /// The address that the connection counts for, and its limit.
    fn counted_address(&self, peer: IpAddr) -> Option<(IpAddr, usize)> {
        let peer = peer.to_canonical();
        let limit = match self.limits.per_address {
            AddressLimit::Unlimited => return None,
            AddressLimit::Remote(_) if peer.is_loopback() => return None,
            AddressLimit::Remote(limit) | AddressLimit::All(limit) => limit,
        };
        if self.trusted_proxies.iter().any(|network| network.contains(&peer)) {
            return None;
        }
        Some((network_of(peer), limit))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One client usually has a whole /64 of IPv6 addresses.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

/// A connection that counts until it is dropped.
pub struct OpenConnection {
    connections: Arc<Connections>,
    id: u64,
    address: Option<IpAddr>,
    pub state: Arc<ConnectionState>,
}

impl OpenConnection {
    pub fn counters(&self) -> &ConnectionCounters {
        &self.connections.counters
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut table = self.connections.lock();
        table.open.remove(&self.id);
        table.closing = table.closing.saturating_sub(usize::from(self.state.was_chosen()));
        if let Some(address) = self.address
            && let Some(open) = table.by_address.get_mut(&address)
        {
            *open -= 1;
            if *open == 0 {
                table.by_address.remove(&address);
            }
        }
    }
}
