//! A TCP forwarder between the gateway and its database, with which a test simulates an outage.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Closes its listener and all connections when dropped.
pub struct TcpForwarder {
    address: SocketAddr,
    line: watch::Sender<Line>,
    accepting: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Open,
    /// Open connections are reset and new ones are closed at once.
    Cut,
    /// No bytes pass and no connection is closed, as with a network partition.
    Silent,
}

impl TcpForwarder {
    pub async fn start(to: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let line = watch::Sender::new(Line::Open);
        let accepting = tokio::spawn(accept(listener, to, line.clone()));
        Self { address, line, accepting }
    }

    /// Starts a forwarder to this database. Returns it with the URL that connects through it.
    pub async fn to_database(url: &str) -> (Self, String) {
        let mut url = url::Url::parse(url).unwrap();
        let (host, port) = (url.host_str().unwrap().to_owned(), url.port().unwrap_or(5432));
        let forwarder = Self::start(format!("{host}:{port}")).await;
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(forwarder.address.port())).unwrap();
        (forwarder, url.to_string())
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn open(&self) {
        self.line.send_replace(Line::Open);
    }

    pub fn cut(&self) {
        self.line.send_replace(Line::Cut);
    }

    pub fn blackhole(&self) {
        self.line.send_replace(Line::Silent);
    }
}

impl Drop for TcpForwarder {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, to: String, line: watch::Sender<Line>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(forward(stream, to.clone(), line.subscribe()));
        while connections.try_join_next().is_some() {}
    }
}

async fn forward(mut from: TcpStream, to: String, mut line: watch::Receiver<Line>) {
    if *line.borrow_and_update() == Line::Open {
        let Ok(mut onward) = TcpStream::connect(to).await else { return };
        tokio::select! {
            _ = copy_bidirectional(&mut from, &mut onward) => return,
            _ = line.wait_for(|line| *line != Line::Open) => {}
        }
        if *line.borrow() == Line::Silent {
            std::future::pending::<()>().await;
        }
    } else if *line.borrow() == Line::Silent {
        std::future::pending::<()>().await;
    }
    let _ = from.set_zero_linger();
}
