//! The client side of HTTP/1.1 on one connection, for one request after the other. It reads what the socket has into a
//! buffer of the thread and keeps only what has arrived, so that an open stream has no buffers of its own. It is polled
//! by the request that uses it and needs no task.

mod connection;
mod decoder;
mod head;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
mod upload;

use bytes::{Buf as _, Bytes};

pub use connection::Connection;

/// Removes bytes from the start. Empty `Bytes` may keep the memory of what was in them, and a connection lives for long.
fn consume(bytes: &mut Bytes, count: usize) {
    if count == bytes.len() {
        *bytes = Bytes::new();
    } else {
        bytes.advance(count);
    }
}

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("the connection broke")]
    Io(#[from] std::io::Error),
    #[error("the connection was closed before the message was complete")]
    Closed,
    #[error("{0}")]
    Invalid(&'static str),
    #[error("the request body could not be read")]
    RequestBody(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Of a connection that hyper serves.
    #[error(transparent)]
    Hyper(#[from] hyper::Error),
}
