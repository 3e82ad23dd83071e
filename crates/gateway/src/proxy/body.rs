//! The caller's body on its way to the provider: read only as far as the model must be known, then streamed on;
//! collected only where something must be done to the whole of it.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gateway_core::llm::aggregate::set_stream;
use gateway_core::llm::paths::Operation;
use gateway_core::llm::peek::{BodyPeek, PeekError, RequestPeek, add_include_usage, peek, replace_model};
use gateway_core::llm::translate::contains_wrapped_signatures;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::call::{Adaptation, Call, RouteTarget};
use super::record::Record;
use super::translate;
use crate::problem::{ApiResult, Problem};

/// A caller that sends nothing for this long is given up.
const SILENCE: Duration = Duration::from_secs(60);
/// With the model known, no more than this is held back for the sake of the rest.
const ENOUGH: usize = 64 << 10;

/// What has arrived of the caller's body.
pub struct Inbound {
    pieces: Vec<Bytes>,
    length: usize,
    rest: Option<Incoming>,
    /// What went wrong while nobody needed the body yet.
    broken: Option<Problem>,
    limit: usize,
}

impl Inbound {
    pub fn new(incoming: Incoming, limit: usize) -> Self {
        let rest = if incoming.is_end_stream() { None } else { Some(incoming) };
        Self { pieces: Vec::new(), length: 0, rest, broken: None, limit }
    }

    /// A body of our own making.
    pub fn whole(body: Bytes, limit: usize) -> Self {
        Self { length: body.len(), pieces: vec![body], rest: None, broken: None, limit }
    }

    /// The length that was announced is beyond the limit.
    pub fn is_too_large(&self) -> bool {
        let announced = self.rest.as_ref().map_or(0, |rest| rest.size_hint().lower());
        announced > self.limit as u64 || self.length > self.limit
    }

    /// How long the body is, when that is known.
    pub fn total(&self) -> Option<u64> {
        let rest = self.rest.as_ref().map_or(Some(0), |rest| rest.size_hint().exact());
        rest.map(|rest| rest.saturating_add(self.length as u64))
    }

    /// The request has no body.
    pub fn is_empty(&self) -> bool {
        self.rest.is_none() && self.pieces.is_empty()
    }

    /// The first piece: all that there is to see in the usual case.
    pub fn seen(&self) -> &[u8] {
        self.pieces.first().map_or(&[], |piece| piece)
    }

    /// Waits for something else, and reads the first piece beside it when that takes its time.
    pub async fn read_while<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let read = tokio::select! {
            biased;
            done = &mut work => return done,
            read = self.read_piece() => read,
        };
        self.broken = read.err();
        work.await
    }

    /// Reads until what the gateway needs is known, or there is nothing more. `whole`: to the end, because a second
    /// `model` further down must be seen.
    pub async fn peek(&mut self, whole: bool) -> ApiResult<Result<RequestPeek, PeekError>> {
        if self.pieces.is_empty() && !self.read_piece().await? {
            return Ok(peek(b""));
        }
        if self.rest.is_none() {
            return Ok(peek(self.seen()));
        }
        let mut found = BodyPeek::new();
        let mut fed = 0;
        loop {
            for piece in &self.pieces[fed..] {
                if let Err(error) = found.feed(piece) {
                    return Ok(Err(error));
                }
            }
            fed = self.pieces.len();
            match found.snapshot() {
                Err(error) => return Ok(Err(error)),
                Ok(peek)
                    if !whole && peek.model.is_some() && (peek.stream.is_some() || self.length >= ENOUGH) =>
                {
                    return Ok(Ok(peek));
                }
                Ok(_) => {}
            }
            if !self.read_piece().await? {
                return Ok(found.finish());
            }
        }
    }

    /// Reads up to about `enough` bytes into one piece.
    pub async fn read_some(&mut self, enough: usize) -> ApiResult<()> {
        while self.length < enough && self.read_piece().await? {}
        self.join();
        Ok(())
    }

    /// The body as it can be sent: kept when it may be needed whole or more than once, else streamed on as it comes.
    pub async fn settle(mut self, kept: bool, record: &mut Record) -> ApiResult<Payload> {
        if kept {
            while self.read_piece().await? {}
        }
        let Some(rest) = self.rest.take() else {
            let body = self.join();
            record.saw_request(&body);
            return Ok(Payload::Kept(body));
        };
        let copy = record.shares_request_copy();
        Ok(Payload::Passing(Some(Outbound {
            pieces: self.pieces.into(),
            rest: Some(rest),
            limit: self.limit,
            room: self.limit.saturating_sub(self.length),
            copy: Some(copy),
        })))
    }

    fn join(&mut self) -> Bytes {
        match self.pieces.len() {
            0 => Bytes::new(),
            1 => self.pieces[0].clone(),
            _ => {
                let mut whole = BytesMut::with_capacity(self.length);
                self.pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
                let whole = whole.freeze();
                self.pieces = vec![whole.clone()];
                whole
            }
        }
    }

    /// One more piece; false at the end.
    async fn read_piece(&mut self) -> ApiResult<bool> {
        if let Some(problem) = self.broken.take() {
            return Err(problem);
        }
        let Some(rest) = &mut self.rest else { return Ok(false) };
        let frame = tokio::time::timeout(SILENCE, rest.frame()).await;
        let Ok(frame) = frame else {
            return Err(Problem::new(
                http::StatusCode::REQUEST_TIMEOUT,
                "request_timeout",
                "the request body did not arrive in time",
            ));
        };
        match frame {
            None => {
                self.rest = None;
                Ok(false)
            }
            Some(Err(error)) => Err(unreadable(&error)),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.length += data.len();
                    if self.length > self.limit {
                        return Err(Problem::too_large(self.limit));
                    }
                    self.pieces.push(data);
                }
                if rest.is_end_stream() {
                    self.rest = None;
                }
                Ok(true)
            }
        }
    }
}

/// What is sent, once or more often.
pub enum Payload {
    Kept(Bytes),
    /// Gone once it was sent.
    Passing(Option<Outbound>),
}

impl Payload {
    /// The body for the attempt under way. None: it has been sent already and was not kept.
    pub fn outbound(&mut self, call: &mut Call) -> ApiResult<Option<Outbound>> {
        let body = match self {
            Payload::Passing(body) => return Ok(body.take()),
            Payload::Kept(body) => body.clone(),
        };
        call.hide_usage = false;
        // A conversation that has been elsewhere may carry signatures that only their maker can read.
        let has_travelled =
            || call.targets.len() > 1 && call.caller_is_known && contains_wrapped_signatures(&body);
        if call.hop().adaptation == Adaptation::Translate || has_travelled() {
            let (translation, body) = translate::request(call, call.hop(), &body)?;
            call.translation = Some(translation);
            return Ok(Some(Outbound::whole(body)));
        }
        let body = Self::edited(call, body);
        if asks_for_usage(call, call.hop())
            && !call.usage_refused
            && let Some(asking) = add_include_usage(&body)
        {
            call.hide_usage = true;
            return Ok(Some(Outbound::whole(asking.into())));
        }
        Ok(Some(Outbound::whole(body)))
    }

    /// The caller's body with the model of the hop, and the stream that the caller asked for by a header.
    fn edited(call: &Call, body: Bytes) -> Bytes {
        let is_renamed = !call.model_in_path && call.model() != call.asked_model.as_deref();
        let renamed = call.model().filter(|_| is_renamed).and_then(|model| replace_model(&body, model));
        let body = renamed.map_or(body, Bytes::from);
        let format = call.format().filter(|_| call.sets_stream());
        let streaming = format.and_then(|format| set_stream(format, &body, true));
        streaming.map_or(body, Bytes::from)
    }

    pub fn kept(&self) -> Option<&Bytes> {
        match self {
            Payload::Kept(body) => Some(body),
            Payload::Passing(_) => None,
        }
    }
}

/// Is the usage of this stream asked for, although the caller did not?
pub fn asks_for_usage(call: &Call, hop: &RouteTarget) -> bool {
    call.stream
        && hop.target.kind.supports_include_usage
        && !hop.target.refuses_usage.load(Ordering::Relaxed)
        && matches!(call.operation, Operation::Chat | Operation::Completions)
        && !call.wants_usage
}

/// A body that passes: its beginning where that may be kept, and its length, which an estimate needs all the same.
pub struct StreamedCopy {
    pub beginning: Vec<u8>,
    room: usize,
    pub length: usize,
}

impl StreamedCopy {
    pub fn with_room(room: usize) -> Self {
        Self { beginning: Vec::new(), room, length: 0 }
    }

    fn saw(&mut self, data: &[u8]) {
        self.length += data.len();
        let kept = data.len().min(self.room);
        self.room -= kept;
        self.beginning.extend_from_slice(&data[..kept]);
    }
}

/// The caller's body cannot be had, or must not be sent: its own fault, which it is told as such.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub struct RequestBodyError(pub Problem);

fn unreadable(error: &hyper::Error) -> Problem {
    let io = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    if error.is_incomplete_message() || io.is_some_and(|io| io.kind() == ErrorKind::UnexpectedEof) {
        let status = http::StatusCode::from_u16(499).unwrap_or(http::StatusCode::BAD_REQUEST);
        return Problem::new(status, "client_closed", "the caller hung up before the end of its request");
    }
    Problem::bad_request("the request body could not be read to its end")
}

/// The body that goes to the provider.
#[derive(Default)]
pub struct Outbound {
    pieces: VecDeque<Bytes>,
    rest: Option<Incoming>,
    limit: usize,
    /// Bytes that may still come.
    room: usize,
    copy: Option<Arc<Mutex<StreamedCopy>>>,
}

impl Outbound {
    pub fn whole(body: Bytes) -> Self {
        let pieces = if body.is_empty() { VecDeque::new() } else { VecDeque::from([body]) };
        Self { pieces, ..Self::default() }
    }

    /// The whole body, when it is in one piece.
    pub fn bytes(&self) -> Option<Bytes> {
        match (self.pieces.len(), &self.rest) {
            (0, None) => Some(Bytes::new()),
            (1, None) => self.pieces.front().cloned(),
            _ => None,
        }
    }
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let data = if let Some(piece) = this.pieces.pop_front() {
            piece
        } else {
            let Some(rest) = &mut this.rest else { return Poll::Ready(None) };
            match std::task::ready!(Pin::new(rest).poll_frame(context)) {
                None => {
                    this.rest = None;
                    return Poll::Ready(None);
                }
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(RequestBodyError(unreadable(&error)).into())));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.len() > this.room => {
                        let problem = Problem::too_large(this.limit);
                        return Poll::Ready(Some(Err(RequestBodyError(problem).into())));
                    }
                    Ok(data) => {
                        this.room -= data.len();
                        data
                    }
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
            }
        };
        if let Some(copy) = &this.copy {
            copy.lock().unwrap_or_else(PoisonError::into_inner).saw(&data);
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let held: u64 = self.pieces.iter().map(|piece| piece.len() as u64).sum();
        match self.rest.as_ref().map(|rest| rest.size_hint().exact()) {
            None => SizeHint::with_exact(held),
            Some(Some(rest)) => SizeHint::with_exact(held + rest),
            Some(None) => SizeHint::default(),
        }
    }
}
