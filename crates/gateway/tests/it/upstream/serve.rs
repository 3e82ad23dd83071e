//! Serves one connection: reads, records and answers requests while watching for a disconnect.

use std::future::{Future, pending};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::sleep;

use super::State;
use super::reply::{End, Reply, Step, reason};
use super::request::{BodyReader, Request, head_length};

const READ_SIZE: usize = 16 * 1024;

/// Serves until the client closes, a reply closes the connection, or the bytes are not HTTP.
pub(super) async fn connection(mut stream: TcpStream, number: usize, state: &State) {
    let _ = stream.set_nodelay(true);
    let reset = {
        let (reader, writer) = stream.split();
        let mut peer = Peer { reader, writer, inbox: Vec::new(), number, state };
        loop {
            match peer.exchange().await {
                Next::Request => {}
                Next::Close => break false,
                Next::Reset => break true,
            }
        }
    };
    if reset {
        let _ = stream.set_zero_linger();
    }
}

enum Next {
    Request,
    Close,
    Reset,
}

/// The client disconnected or sent malformed bytes.
struct Gone;

struct Peer<'a> {
    reader: ReadHalf<'a>,
    writer: WriteHalf<'a>,
    /// Received bytes that are not parsed yet.
    inbox: Vec<u8>,
    number: usize,
    state: &'a State,
}

impl Peer<'_> {
    /// Reads one request and sends its reply.
    async fn exchange(&mut self) -> Next {
        let Some(head) = self.read_head().await else { return Next::Close };
        let Some(request) = Request::from_head(head, self.number) else { return Next::Close };
        let is_last = request.is_last();
        let (index, reply) = self.state.arrive(request.clone());
        match self.answer(&request, index, &reply).await {
            Err(Gone) => {
                self.state.abort(self.number, index);
                Next::Close
            }
            Ok(Next::Request) if is_last => Next::Close,
            Ok(next) => next,
        }
    }

    async fn answer(&mut self, request: &Request, index: usize, reply: &Reply) -> Result<Next, Gone> {
        if !reply.early {
            if request.expects_continue() {
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            }
            self.read_body(request, index).await?;
        }
        let next = self.play(reply).await?;
        if reply.early && matches!(next, Next::Request) {
            self.read_body(request, index).await?;
        }
        Ok(next)
    }

    async fn read_head(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(length) = head_length(&self.inbox) {
                return Some(self.inbox.drain(..length).collect());
            }
            read_more(&mut self.reader, &mut self.inbox).await.ok()?;
        }
    }

    /// Reads the body and records each part as it arrives.
    async fn read_body(&mut self, request: &Request, index: usize) -> Result<(), Gone> {
        let mut body = BodyReader::new(request.body_framing());
        loop {
            let inbox = &mut self.inbox;
            let complete = self.state.change(|inner| {
                let kept = &mut inner.arrivals[index];
                body.take(inbox, kept).map(|()| kept.complete)
            });
            if complete.map_err(|_| Gone)? {
                return Ok(());
            }
            read_more(&mut self.reader, &mut self.inbox).await?;
        }
    }

    /// Plays the script of a reply.
    async fn play(&mut self, reply: &Reply) -> Result<Next, Gone> {
        for step in &reply.before_head {
            self.wait(step).await?;
        }
        let mut gathered = Vec::new();
        for status in &reply.interim {
            gathered.extend_from_slice(format!("HTTP/1.1 {status} {}\r\n\r\n", reason(*status)).as_bytes());
        }
        gathered.extend_from_slice(&reply.head());
        for step in &reply.steps {
            if let Step::Bytes(bytes) = step {
                gathered.extend_from_slice(&reply.frame(bytes));
            } else {
                self.write(&std::mem::take(&mut gathered)).await?;
                self.wait(step).await?;
            }
        }
        if matches!(reply.end, End::Clean | End::CleanThenClose) {
            gathered.extend_from_slice(reply.last_bytes());
        }
        self.write(&gathered).await?;
        Ok(match reply.end {
            End::Clean if reply.keeps_connection() => Next::Request,
            End::Clean | End::CleanThenClose | End::Half => Next::Close,
            End::Reset => {
                // A reset discards bytes in flight; loopback needs a moment to deliver them.
                sleep(Duration::from_millis(20)).await;
                Next::Reset
            }
            End::Hang => self.until_disconnect(pending()).await?,
        })
    }

    async fn wait(&mut self, step: &Step) -> Result<(), Gone> {
        match step {
            Step::Bytes(_) | Step::Flush => Ok(()),
            Step::Delay(time) => self.until_disconnect(sleep(*time)).await,
            Step::Wait(signal) => self.until_disconnect(signal.wait()).await,
        }
    }

    /// Runs a future until the client disconnects. Bytes received meanwhile are buffered.
    async fn until_disconnect<T>(&mut self, doing: impl Future<Output = T>) -> Result<T, Gone> {
        tokio::pin!(doing);
        loop {
            tokio::select! {
                done = &mut doing => return Ok(done),
                more = read_more(&mut self.reader, &mut self.inbox) => more?,
            }
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        let (reader, inbox, writer) = (&mut self.reader, &mut self.inbox, &mut self.writer);
        let writing = writer.write_all(bytes);
        tokio::pin!(writing);
        loop {
            // Polls the write first: a client that has read everything may close at once, which is not an abort.
            tokio::select! {
                biased;
                written = &mut writing => return written.map_err(|_| Gone),
                more = read_more(reader, inbox) => more?,
            }
        }
    }
}

async fn read_more(reader: &mut ReadHalf<'_>, inbox: &mut Vec<u8>) -> Result<(), Gone> {
    inbox.reserve(READ_SIZE);
    match reader.read_buf(inbox).await {
        Ok(0) | Err(_) => Err(Gone),
        Ok(_) => Ok(()),
    }
}
