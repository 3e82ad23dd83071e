//! One connection, polled by the request that uses it.

use std::cell::RefCell;
use std::io::{IoSlice, Result as IoResult};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;

use super::ConnectionError;
use super::decoder::Decoder;
use super::head::HeadSearch;
use super::upload::Upload;
use crate::outbound::body::OutboundBody;
use crate::outbound::connector::Io;

/// The most that is read at once.
const READ_BYTES: usize = 32 << 10;

thread_local! {
    /// What is read goes here first. So a connection that waits for data takes no memory for it.
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// The bytes of a connection.
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TokioIo<Io>>),
}

impl From<Io> for Stream {
    fn from(io: Io) -> Self {
        match io {
            MaybeHttpsStream::Http(stream) => Self::Plain(stream.into_inner()),
            tls @ MaybeHttpsStream::Https(_) => Self::Tls(Box::new(TokioIo::new(tls))),
        }
    }
}

impl Stream {
    fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<IoResult<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }

    pub(super) fn poll_write_vectored(
        &mut self,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<IoResult<usize>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<IoResult<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    /// What is written must be flushed.
    pub(super) fn is_buffered(&self) -> bool {
        matches!(self, Self::Tls(_))
    }
}

pub struct Connection {
    stream: Stream,
    upload: Upload,
    /// Why the request could not be sent to its end. The response may come all the same.
    upload_error: Option<ConnectionError>,
    method: Method,
    /// What has been read and not decoded yet.
    input: Bytes,
    head_search: HeadSearch,
    body: Decoder,
    /// It can be used again after the response.
    keep_alive: bool,
}

impl Connection {
    pub fn new(stream: impl Into<Stream>) -> Self {
        Self {
            stream: stream.into(),
            upload: Upload::done(),
            upload_error: None,
            method: Method::GET,
            input: Bytes::new(),
            head_search: HeadSearch::default(),
            body: Decoder::NONE,
            keep_alive: true,
        }
    }

    /// Sends a request and waits for the head of its response. The URI has the host and the path.
    pub async fn send(&mut self, request: Request<OutboundBody>) -> Result<Response<()>, ConnectionError> {
        self.method = request.method().clone();
        // Until the whole response has been read.
        self.keep_alive = false;
        self.upload = Upload::new(request);
        self.head_search = HeadSearch::default();
        std::future::poll_fn(|context| self.poll_head(context)).await
    }

    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<Response<()>, ConnectionError>> {
        self.poll_upload(context)?;
        loop {
            if let Some(head) = self.head_search.find(&mut self.input, &self.method)? {
                (self.body, self.keep_alive) = (head.body, head.keep_alive);
                return Poll::Ready(Ok(head.response));
            }
            match self.poll_read(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(self.upload_error.take().unwrap_or(ConnectionError::Closed)));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Sends what can be sent. A host that refuses a body may respond before it closes the connection.
    fn poll_upload(&mut self, context: &mut Context<'_>) -> Result<(), ConnectionError> {
        if self.upload_error.is_some() {
            return Ok(());
        }
        match self.upload.poll(context, &mut self.stream) {
            Err(ConnectionError::Io(error)) => {
                self.upload_error = Some(ConnectionError::Io(error));
                Ok(())
            }
            sent => sent,
        }
    }

    /// The next data of the response body; None at its end.
    pub fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, ConnectionError>>> {
        self.poll_upload(context)?;
        loop {
            if let Some(data) = self.body.decode(&mut self.input)? {
                return Poll::Ready(Some(Ok(data)));
            }
            if self.body.is_done() {
                return Poll::Ready(None);
            }
            match self.poll_read(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => {
                    self.keep_alive = false;
                    self.body.close()?;
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }

    /// The response body has ended.
    pub fn is_done(&self) -> bool {
        self.body.is_done()
    }

    /// The rest of the response body, if its length is known.
    pub fn rest(&self) -> Option<u64> {
        self.body.rest()
    }

    /// Whether it can be used for another request, as far as is known. An idle connection needs no waker.
    pub fn is_idle(&mut self) -> bool {
        let is_free =
            self.keep_alive && self.body.is_done() && self.upload.is_done() && self.input.is_empty();
        // Whatever arrives now is the end of the connection, or belongs to no response. A task whose budget is used up
        // would see every connection as idle, also those that are closed.
        let read = std::pin::pin!(unconstrained(std::future::poll_fn(|context| self.poll_read(context))));
        is_free && read.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Reads more. Returns how much: nothing at the end of the connection.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<IoResult<usize>> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            std::task::ready!(self.stream.poll_read(context, &mut buffer))?;
            let read = buffer.filled();
            append(&mut self.input, read);
            Poll::Ready(Ok(read.len()))
        })
    }
}

/// Takes time in proportion to what is appended, however small the pieces are.
pub(super) fn append(input: &mut Bytes, read: &[u8]) {
    *input = match std::mem::take(input) {
        empty if empty.is_empty() => Bytes::copy_from_slice(read),
        kept => {
            let mut kept = BytesMut::from(kept);
            kept.extend_from_slice(read);
            kept.freeze()
        }
    };
}
