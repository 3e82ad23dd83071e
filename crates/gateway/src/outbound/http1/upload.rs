//! Sends a request: its head, and its body as it comes.

use std::io::{ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request};
use http_body::Body as _;

use super::connection::Stream;
use super::head::{RequestLength, encode};
use super::{ConnectionError, consume};
use crate::outbound::body::{OutboundBody, RequestBodyError};
use crate::problem::Problem;

const CHUNK_END: &[u8] = b"\r\n";
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
const CHUNK_END_AND_LAST: &[u8] = b"\r\n0\r\n\r\n";

/// What is to be sent of a request.
pub(super) struct Upload {
    /// Before the data: the head, and the size of a chunk.
    before: Bytes,
    data: Bytes,
    /// What ends a chunk.
    after: &'static [u8],
    /// None once all of it has been taken.
    body: Option<OutboundBody>,
    length: RequestLength,
    needs_flush: bool,
}

impl Upload {
    pub(super) fn done() -> Self {
        Self {
            before: Bytes::new(),
            data: Bytes::new(),
            after: &[],
            body: None,
            length: RequestLength::None,
            needs_flush: false,
        }
    }

    pub(super) fn new(request: Request<OutboundBody>) -> Self {
        let (head, body) = request.into_parts();
        let length = match body.size_hint().exact() {
            _ if body.is_end_stream() => RequestLength::None,
            Some(length) => RequestLength::Known(length),
            // These have no body unless its length is known.
            None if matches!(head.method, Method::GET | Method::HEAD | Method::CONNECT) => {
                RequestLength::None
            }
            None => RequestLength::Chunked,
        };
        let mut before = Vec::with_capacity(64 + head.headers.len() * 48);
        encode((&head.method, &head.uri), &head.headers, length, &mut before);
        let body = Some(body).filter(|_| length != RequestLength::None);
        Self { before: before.into(), body, length, ..Self::done() }
    }

    pub(super) fn is_done(&self) -> bool {
        self.body.is_none() && !self.has_unwritten() && !self.needs_flush
    }

    fn has_unwritten(&self) -> bool {
        !(self.before.is_empty() && self.data.is_empty() && self.after.is_empty())
    }

    /// Sends what can be sent now. The task is woken when there is more, or when more can be sent.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut Stream,
    ) -> Result<(), ConnectionError> {
        if self.is_done() {
            return Ok(());
        }
        loop {
            if self.data.is_empty() && self.after.is_empty() {
                self.next_data(context)?;
            }
            if !self.has_unwritten() {
                break;
            }
            let parts = [&self.before[..], &self.data[..], self.after].map(IoSlice::new);
            match stream.poll_write_vectored(context, &parts) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err(ConnectionError::Io(ErrorKind::WriteZero.into())),
                Poll::Ready(written) => self.advance(written?),
            }
            self.needs_flush = stream.is_buffered();
        }
        if self.needs_flush
            && let Poll::Ready(flushed) = stream.poll_flush(context)
        {
            flushed?;
            self.needs_flush = false;
        }
        Ok(())
    }

    fn advance(&mut self, written: usize) {
        let of_before = written.min(self.before.len());
        let of_data = (written - of_before).min(self.data.len());
        let of_after = (written - of_before - of_data).min(self.after.len());
        for (part, written) in [(&mut self.before, of_before), (&mut self.data, of_data)] {
            consume(part, written);
        }
        self.after = &self.after[of_after..];
    }

    /// Takes the next data of the body, if there is some.
    fn next_data(&mut self, context: &mut Context<'_>) -> Result<(), ConnectionError> {
        while let Some(body) = &mut self.body {
            let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) else { return Ok(()) };
            // Trailers are not sent: nothing has announced them.
            let data = match frame {
                Some(frame) => frame.map_err(ConnectionError::RequestBody)?.into_data().ok(),
                None => None,
            };
            let is_last = data.is_none() || body.is_end_stream();
            if is_last {
                self.body = None;
            }
            let data = data.unwrap_or_default();
            match &mut self.length {
                RequestLength::Chunked if data.is_empty() => {
                    self.after = if is_last { LAST_CHUNK } else { &[] };
                }
                RequestLength::Chunked => {
                    let size = format!("{:x}\r\n", data.len());
                    self.before = [&self.before[..], size.as_bytes()].concat().into();
                    self.after = if is_last { CHUNK_END_AND_LAST } else { CHUNK_END };
                }
                RequestLength::Known(rest) => {
                    let left = rest.checked_sub(data.len() as u64);
                    let Some(left) = left else {
                        let problem = Problem::bad_request("the request body is longer than its length");
                        return Err(ConnectionError::RequestBody(RequestBodyError(problem).into()));
                    };
                    *rest = left;
                    if is_last && *rest > 0 {
                        let problem = Problem::incomplete_body();
                        return Err(ConnectionError::RequestBody(RequestBodyError(problem).into()));
                    }
                }
                RequestLength::None => {}
            }
            self.data = data;
            if self.has_data() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn has_data(&self) -> bool {
        !(self.data.is_empty() && self.after.is_empty())
    }
}
