//! Scripted replies of the upstream: status and headers, the steps of the body, and how the reply ends.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// A reply builder.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(super) shape: Shape,
    /// Sent before the final head, such as 103.
    pub(super) interim: Vec<u16>,
    pub(super) before_head: Vec<Step>,
    pub(super) steps: Vec<Step>,
    pub(super) end: End,
    /// Reply as soon as the request head is complete, without reading the body or sending 100 Continue.
    pub(super) early: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Shape {
    Http {
        status: u16,
        headers: Vec<(String, String)>,
        framing: Framing,
    },
    /// Only the bytes of the steps, without head or framing.
    Raw,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Framing {
    /// `Content-Length` with the total length of all steps.
    Length,
    /// `Content-Length` with an arbitrary, possibly wrong number.
    ClaimedLength(usize),
    /// One chunk per step of bytes.
    Chunked,
    /// No length: the body ends when the connection closes.
    UntilClose,
    /// No body and no length at all, as for 204 and 304.
    None,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Bytes(Vec<u8>),
    Flush,
    Delay(Duration),
    Wait(Signal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The body is complete and the connection stays open for the next request.
    Clean,
    /// The body is complete and the connection closes without having been announced.
    CleanThenClose,
    /// The connection is reset (RST) after the steps.
    Reset,
    /// The connection is closed after the steps, before the body is finished.
    Half,
    /// Nothing more is sent until the client disconnects.
    Hang,
}

impl Reply {
    /// A status without headers and body.
    pub(crate) fn new(status: u16) -> Self {
        let framing = if matches!(status, 204 | 304) { Framing::None } else { Framing::Length };
        Self::shaped(Shape::Http { status, headers: Vec::new(), framing })
    }

    /// A JSON body, sent exactly as given.
    pub(crate) fn json(status: u16, body: &str) -> Self {
        Self::new(status).header("content-type", "application/json").body(body)
    }

    /// A stream of server-sent events. Each element of `data` is one event in its own chunk.
    pub(crate) fn sse(data: &[&str]) -> Self {
        let stream = Self::new(200).header("content-type", "text/event-stream").chunked();
        data.iter().fold(stream, |reply, data| reply.event(data))
    }

    /// Sends bytes that are not HTTP and closes the connection.
    pub(crate) fn garbage(bytes: impl AsRef<[u8]>) -> Self {
        let mut reply = Self::shaped(Shape::Raw).body(bytes);
        reply.end = End::Half;
        reply
    }

    /// Sends nothing until the client disconnects.
    pub(crate) fn no_response() -> Self {
        Self::shaped(Shape::Raw).then_stall()
    }

    /// Resets the connection after reading the request.
    pub(crate) fn reset() -> Self {
        Self::shaped(Shape::Raw).then_reset()
    }

    /// The reply to a request without a scripted one. It shows up in the test failure.
    pub(super) fn unscripted() -> Self {
        Self::json(500, r#"{"error":"the test gave the upstream no reply for this request"}"#)
    }

    fn shaped(shape: Shape) -> Self {
        let (interim, before_head, steps) = (Vec::new(), Vec::new(), Vec::new());
        Self { shape, interim, before_head, steps, end: End::Clean, early: false }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        if let Shape::Http { headers, .. } = &mut self.shape {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    // ---- framing ----

    pub(crate) fn chunked(self) -> Self {
        self.framed(Framing::Chunked)
    }

    pub(crate) fn until_close(self) -> Self {
        self.framed(Framing::UntilClose)
    }

    /// Sends this `Content-Length`, whatever the steps send.
    pub(crate) fn with_content_length(self, length: usize) -> Self {
        self.framed(Framing::ClaimedLength(length))
    }

    fn framed(mut self, with: Framing) -> Self {
        if let Shape::Http { framing, .. } = &mut self.shape {
            *framing = with;
        }
        self
    }

    // ---- steps ----

    /// Adds bytes to the body. They are sent at the next flush, delay or wait, or at the end.
    pub(crate) fn body(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.steps.push(Step::Bytes(bytes.as_ref().to_vec()));
        self
    }

    /// Adds bytes and flushes them.
    pub(crate) fn piece(self, bytes: impl AsRef<[u8]>) -> Self {
        self.body(bytes).flush()
    }

    /// Adds one server-sent event and flushes it.
    pub(crate) fn event(self, data: &str) -> Self {
        self.piece(format!("data: {data}\n\n"))
    }

    /// Sends the buffered bytes, including the head.
    pub(crate) fn flush(mut self) -> Self {
        self.steps.push(Step::Flush);
        self
    }

    pub(crate) fn delay(mut self, time: Duration) -> Self {
        self.steps.push(Step::Delay(time));
        self
    }

    /// Continues when the test notifies the signal.
    pub(crate) fn wait_for(mut self, signal: &Signal) -> Self {
        self.steps.push(Step::Wait(signal.clone()));
        self
    }

    // ---- the head ----

    pub(crate) fn delay_head(mut self, time: Duration) -> Self {
        self.before_head.push(Step::Delay(time));
        self
    }

    /// Delays the head until the test notifies the signal.
    pub(crate) fn wait_before_head(mut self, signal: &Signal) -> Self {
        self.before_head.push(Step::Wait(signal.clone()));
        self
    }

    /// Sends an interim response first, such as 100 or 103.
    pub(crate) fn interim(mut self, status: u16) -> Self {
        self.interim.push(status);
        self
    }

    /// Replies when the request head is complete, without reading the body or sending 100 Continue.
    pub(crate) fn early(mut self) -> Self {
        self.early = true;
        self
    }

    // ---- the end ----

    /// Completes the body and closes the connection unannounced, as an idle timeout does.
    pub(crate) fn then_close(self) -> Self {
        self.ending(End::CleanThenClose)
    }

    /// Resets the connection after the steps (RST).
    pub(crate) fn then_reset(self) -> Self {
        self.ending(End::Reset)
    }

    /// Closes the connection before the body is complete: the announced length is one byte too long, or the last
    /// chunk is missing. Not possible for a body that ends with the connection.
    pub(crate) fn then_truncate(self) -> Self {
        self.ending(End::Half)
    }

    /// Sends nothing more after the steps and keeps the connection open until the client disconnects.
    pub(crate) fn then_stall(self) -> Self {
        self.ending(End::Hang)
    }

    fn ending(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    // ---- bytes ----

    pub(super) fn head(&self) -> Vec<u8> {
        let Shape::Http { status, headers, framing } = &self.shape else { return Vec::new() };
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(*status));
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let missing = usize::from(self.end != End::Clean && self.end != End::CleanThenClose);
        let _ = match framing {
            Framing::Length => write!(head, "content-length: {}\r\n", self.payload_length() + missing),
            Framing::ClaimedLength(length) => write!(head, "content-length: {length}\r\n"),
            Framing::Chunked => write!(head, "transfer-encoding: chunked\r\n"),
            Framing::UntilClose => write!(head, "connection: close\r\n"),
            Framing::None => Ok(()),
        };
        head.push_str("\r\n");
        head.into_bytes()
    }

    pub(super) fn frame(&self, bytes: &[u8]) -> Vec<u8> {
        if !self.is_chunked() || bytes.is_empty() {
            return bytes.to_vec();
        }
        [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
    }

    pub(super) fn last_bytes(&self) -> &'static [u8] {
        if self.is_chunked() { b"0\r\n\r\n" } else { b"" }
    }

    /// Whether the connection can be reused after a complete reply.
    pub(super) fn keeps_connection(&self) -> bool {
        matches!(&self.shape, Shape::Http { framing, .. } if !matches!(framing, Framing::UntilClose))
    }

    fn is_chunked(&self) -> bool {
        matches!(&self.shape, Shape::Http { framing: Framing::Chunked, .. })
    }

    fn payload_length(&self) -> usize {
        self.steps.iter().map(|step| if let Step::Bytes(bytes) = step { bytes.len() } else { 0 }).sum()
    }
}

pub(super) fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Unknown")
}

/// Lets a test decide when a reply continues. A notified signal stays notified.
#[derive(Clone, Debug)]
pub(crate) struct Signal(Arc<watch::Sender<bool>>);

impl Signal {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::channel(false).0))
    }

    pub(crate) fn notify(&self) {
        self.0.send_replace(true);
    }

    pub(super) async fn wait(&self) {
        // Cannot fail: `self` keeps the sender alive.
        let _ = self.0.subscribe().wait_for(|given| *given).await;
    }
}
