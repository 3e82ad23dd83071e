//! The bytes of a client connection, plain or encrypted. Every read counts in a budget, also of bytes that are discarded, so
//! that a client that sends without a pause does not keep the thread from other connections.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::read_budget::ReadBudget;

pub struct ClientStream {
    io: Io,
    budget: ReadBudget,
}

enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl ClientStream {
    pub fn plain(stream: TcpStream) -> Self {
        Self { io: Io::Plain(stream), budget: ReadBudget::default() }
    }

    pub fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self { io: Io::Tls(Box::new(stream)), budget: ReadBudget::default() }
    }
}

/// Calls a method of the stream, whichever it is.
macro_rules! delegate {
    ($stream:expr, $method:ident $(, $argument:expr)*) => {
        match &mut $stream.io {
            Io::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Io::Tls(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        if self.budget.must_yield(context) {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = delegate!(self, poll_read, context, buffer);
        match polled {
            Poll::Ready(_) => self.budget.consume(buffer.filled().len() - before),
            Poll::Pending => self.budget.reset(),
        }
        polled
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        delegate!(self, poll_write, context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        delegate!(self, poll_write_vectored, context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(stream) => stream.is_write_vectored(),
            Io::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        delegate!(self, poll_flush, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        delegate!(self, poll_shutdown, context)
    }
}
