//! Closes a connection without losing its last response. A client that still sends its request body when the response is
//! complete, for example to a 413, gets a reset if the socket is closed with unread bytes, and a reset discards what the
//! client has received but not read. So the gateway announces the end, and discards what arrives for a limited time. It
//! reads slowly: a client that is refused over and over would otherwise keep the network stack of the machine busy.

use std::io::{IoSlice, Result};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::connections::ConnectionState;

/// How long a client may go on sending.
const MAX_TIME: Duration = Duration::from_secs(5);
/// How much of it is read: twice the largest body that is accepted by default.
const MAX_BYTES: usize = 64 << 20;
const PIECE: usize = 16 << 10;
/// So much is read before each pause, about 32 MiB a second.
const BURST: usize = 128 << 10;
const PAUSE: Duration = Duration::from_millis(4);

pub struct LingeringClose<S> {
    stream: S,
    state: Arc<ConnectionState>,
    /// The client sends nothing more.
    is_at_end: bool,
    discarding: Option<Discarding>,
}

struct Discarding {
    timer: Pin<Box<Sleep>>,
    pause: Option<Pin<Box<Sleep>>>,
    left: usize,
    left_of_burst: usize,
}

impl<S> LingeringClose<S> {
    pub fn new(stream: S, state: Arc<ConnectionState>) -> Self {
        Self { stream, state, is_at_end: false, discarding: None }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> LingeringClose<S> {
    /// Reads until the client closes, a limit is reached, or the connection must make room for others.
    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let discarding = self.discarding.get_or_insert_with(|| Discarding {
            timer: Box::pin(tokio::time::sleep(MAX_TIME)),
            pause: None,
            left: MAX_BYTES,
            left_of_burst: BURST,
        });
        loop {
            if self.state.is_close_requested() || discarding.timer.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            if let Some(pause) = &mut discarding.pause {
                ready!(pause.as_mut().poll(context));
                (discarding.pause, discarding.left_of_burst) = (None, BURST);
            }
            let mut space = [MaybeUninit::uninit(); PIECE];
            let mut piece = ReadBuf::uninit(&mut space);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut piece));
            let count = piece.filled().len();
            if read.is_err() || count == 0 || count > discarding.left {
                return Poll::Ready(());
            }
            discarding.left -= count;
            discarding.left_of_burst = discarding.left_of_burst.saturating_sub(count);
            if discarding.left_of_burst == 0 {
                discarding.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LingeringClose<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let (before, has_space) = (buffer.filled().len(), buffer.remaining() > 0);
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        self.is_at_end |= read.is_err() || (has_space && buffer.filled().len() == before);
        Poll::Ready(read)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LingeringClose<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.discarding.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        if !self.is_at_end && !self.state.is_close_requested() {
            ready!(self.poll_discard(context));
        }
        Poll::Ready(Ok(()))
    }
}
