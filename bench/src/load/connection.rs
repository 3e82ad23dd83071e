//! One keep-alive connection: sends a request, reads the response, and checks that it is complete and successful.

use std::net::SocketAddr;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::{BenchError, BenchResult, Context};
use crate::http::{parse_head, status};
use crate::request::{SEQUENCE_DIGITS, SEQUENCE_MARK};

pub(super) struct Connection {
    addr: SocketAddr,
    stream: TcpStream,
    buffer: Vec<u8>,
    request: Vec<u8>,
    /// Position of the sequence number in the request, if it has one.
    number_at: Option<usize>,
    pub(super) reconnects: u64,
}

pub(super) struct ResponseInfo {
    /// Time at which the first byte of the body arrived.
    pub(super) first: Instant,
    pub(super) length: u64,
}

impl Connection {
    pub(super) async fn open(addr: SocketAddr, request: &[u8]) -> BenchResult<Self> {
        let number_at = memchr::memmem::find(request, SEQUENCE_MARK).map(|at| at + SEQUENCE_MARK.len());
        Ok(Self {
            addr,
            stream: connect(addr).await?,
            buffer: vec![0; 16 * 1024],
            request: request.to_vec(),
            number_at,
            reconnects: 0,
        })
    }

    /// Sends the request with this sequence number and reads the whole response.
    pub(super) async fn exchange(&mut self, number: u64) -> BenchResult<ResponseInfo> {
        self.send(number).await?;
        self.receive(false).await
    }

    /// Sends the request and returns at the first byte of the body.
    pub(super) async fn begin(&mut self, number: u64) -> BenchResult<ResponseInfo> {
        self.send(number).await?;
        self.receive(true).await
    }

    async fn send(&mut self, number: u64) -> BenchResult<()> {
        if let Some(at) = self.number_at {
            write_number(self.request.get_mut(at..at + SEQUENCE_DIGITS).unwrap_or_default(), number);
        }
        self.stream.write_all(&self.request).await.context("sending a request")
    }

    async fn receive(&mut self, only_begin: bool) -> BenchResult<ResponseInfo> {
        let mut filled = 0;
        let mut head = loop {
            filled += self.read_at(filled).await?;
            if let Some(head) = parse_head(self.buffer.get(..filled).unwrap_or_default()) {
                break head;
            }
            if filled == self.buffer.len() {
                return Err(BenchError::new("a response head is longer than 16 KiB"));
            }
        };
        let bytes = self.buffer.get(..filled).unwrap_or_default();
        if !status(bytes).is_some_and(|status| (200..300).contains(&status)) {
            let text = String::from_utf8_lossy(bytes.get(..filled.min(1200)).unwrap_or_default());
            return Err(BenchError::new(format!("unsuccessful response:\n{text}")));
        }
        let mut length = 0;
        let mut first = None;
        let mut from = head.length;
        loop {
            let input = self.buffer.get(from..filled).unwrap_or_default();
            let taken = head.body.feed(input, &mut |content| length += content.len() as u64)?;
            if length > 0 && first.is_none() {
                first = Some(Instant::now());
            }
            if head.body.is_done() || (only_begin && first.is_some()) {
                if from + taken < filled && !only_begin {
                    return Err(BenchError::new("bytes after the end of a response"));
                }
                break;
            }
            filled = self.read_at(0).await?;
            from = 0;
        }
        if head.close && !only_begin {
            self.stream = connect(self.addr).await?;
            self.reconnects += 1;
        }
        Ok(ResponseInfo { first: first.unwrap_or_else(Instant::now), length })
    }

    async fn read_at(&mut self, at: usize) -> BenchResult<usize> {
        let room = self.buffer.get_mut(at..).unwrap_or_default();
        match self.stream.read(room).await.context("reading a response")? {
            0 => Err(BenchError::new("the connection was closed in the middle of a response")),
            taken => Ok(taken),
        }
    }
}

async fn connect(addr: SocketAddr) -> BenchResult<TcpStream> {
    let stream = TcpStream::connect(addr).await.context(format!("connecting to {addr}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn write_number(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Sends one request to a server that writes these parts and then closes.
    fn exchange(pieces: &'static [&'static [u8]]) -> BenchResult<ResponseInfo> {
        let runtime = crate::load::runtime(1).unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 100]).await;
                for piece in pieces {
                    stream.write_all(piece).await.unwrap();
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            });
            Connection::open(addr, b"GET / HTTP/1.1\r\n\r\n").await?.exchange(0).await
        })
    }

    #[test]
    fn a_whole_answer_is_counted_without_its_framing() {
        let plain = exchange(&[b"HTTP/1.1 200 OK\r\nContent-Le", b"ngth: 5\r\n\r\nhe", b"llo"]).unwrap();
        assert_eq!(plain.length, 5);
        let chunked = exchange(&[
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"5\r\nhello\r\n",
            b"1\r\n!\r\n0\r\n\r\n",
        ]);
        assert_eq!(chunked.unwrap().length, 6);
    }

    #[test]
    fn short_refused_and_overlong_answers_are_failures() {
        assert!(exchange(&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"]).is_err());
        assert!(exchange(&[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"]).is_err());
        assert!(exchange(&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello?"]).is_err());
        let refused = exchange(&[b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"]).err().unwrap();
        assert!(refused.to_string().contains("403"));
    }

    #[test]
    fn the_sequence_number_is_written_at_its_position() {
        let mut place = *b"00000000";
        write_number(&mut place, 4711);
        assert_eq!(&place, b"00004711");
    }
}
