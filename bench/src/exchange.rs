//! HTTP/1.1 exchanges over one kept connection, for clients that read whole responses.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::error::{BenchError, BenchResult};
use crate::http::{parse_head, status};

/// A client with at most one open connection. A failed or cancelled exchange closes it.
pub(crate) struct Client {
    addr: SocketAddr,
    from: Option<IpAddr>,
    kept: Option<TcpStream>,
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn new(addr: SocketAddr) -> Self {
        Self { addr, from: None, kept: None }
    }

    /// A client with another address of this machine.
    pub(crate) fn from(addr: SocketAddr, from: IpAddr) -> Self {
        Self { addr, from: Some(from), kept: None }
    }

    pub(crate) async fn connect(&self) -> BenchResult<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        if let Some(from) = self.from {
            socket.bind(SocketAddr::new(from, 0))?;
        }
        let stream = socket.connect(self.addr).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    pub(crate) async fn send(&mut self, request: &[u8]) -> BenchResult<Reply> {
        // Servers close idle connections, and HTTP clients look before they use one again.
        let mut stream = match self.kept.take().filter(is_open) {
            Some(stream) => stream,
            None => self.connect().await?,
        };
        stream.write_all(request).await?;
        let (reply, close) = read_reply(&mut stream).await?;
        if !close {
            self.kept = Some(stream);
        }
        Ok(reply)
    }
}

/// Whether the server has neither closed the connection nor sent anything since the last response.
fn is_open(stream: &TcpStream) -> bool {
    matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Returns the reply and whether the server closes the connection.
pub(crate) async fn read_reply(stream: &mut TcpStream) -> BenchResult<(Reply, bool)> {
    let mut input = Vec::new();
    let mut head = loop {
        if let Some(head) = parse_head(&input) {
            break head;
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err(BenchError::new("the connection was closed before a response"));
        }
    };
    let status = status(&input).ok_or_else(|| BenchError::new("the response has no status"))?;
    let mut rest = input.split_off(head.length);
    let mut body = Vec::new();
    loop {
        let taken = head.body.feed(&rest, &mut |bytes| body.extend_from_slice(bytes))?;
        rest.drain(..taken);
        if head.body.is_done() {
            break;
        }
        if stream.read_buf(&mut rest).await? == 0 {
            return Err(BenchError::new("the connection was closed in the middle of a response"));
        }
    }
    Ok((Reply { status, head: input, body }, head.close))
}

impl Reply {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let head = std::str::from_utf8(&self.head).ok()?;
        let pairs = head.lines().filter_map(|line| line.split_once(':'));
        pairs.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}
