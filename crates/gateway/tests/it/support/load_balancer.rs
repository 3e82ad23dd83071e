//! A minimal round-robin TCP load balancer. A connection goes to the next node that accepts it.

#![allow(clippy::disallowed_methods, reason = "a test server is no task of the application's")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Closes its listener and all connections when dropped.
pub struct LoadBalancer {
    pub address: SocketAddr,
    nodes: Arc<Nodes>,
    accepting: JoinHandle<()>,
}

struct Nodes {
    addresses: RwLock<Vec<SocketAddr>>,
    next: AtomicUsize,
}

impl LoadBalancer {
    pub async fn start(addresses: Vec<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let nodes = Arc::new(Nodes { addresses: RwLock::new(addresses), next: AtomicUsize::new(0) });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&nodes)));
        Self { address, nodes, accepting }
    }

    /// Replaces the addresses of the nodes.
    pub fn set_nodes(&self, addresses: Vec<SocketAddr>) {
        *self.nodes.addresses.write().unwrap() = addresses;
    }
}

impl Drop for LoadBalancer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, nodes: Arc<Nodes>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(forward(stream, Arc::clone(&nodes)));
        while connections.try_join_next().is_some() {}
    }
}

async fn forward(mut from: TcpStream, nodes: Arc<Nodes>) {
    let addresses = nodes.addresses.read().unwrap().clone();
    let first = nodes.next.fetch_add(1, Ordering::Relaxed);
    for turn in 0..addresses.len() {
        if let Ok(mut onward) = TcpStream::connect(addresses[(first + turn) % addresses.len()]).await {
            let _ = onward.set_nodelay(true);
            let _ = copy_bidirectional(&mut from, &mut onward).await;
            return;
        }
    }
}
