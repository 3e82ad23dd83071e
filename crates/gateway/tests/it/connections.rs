//! Client connections: time limits, limits on their number, and which ones are closed.

use std::io::{Read as _, Write as _};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tempfile::tempdir;

use crate::support::{Backend, GatewayProcess, RawConnection, TestApp, command, request, request_head};

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nhost: gateway.test\r\n\r\n";
/// Settings frames follow the preface.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

async fn start(settings: &[(&str, &str)]) -> TestApp {
    TestApp::start_with(Backend::Sqlite, settings).await
}

/// Sends a request and keeps the connection. Returns false if the gateway closed it.
async fn is_answered(connection: &mut RawConnection) -> bool {
    if !connection.try_send(HEALTH).await {
        return false;
    }
    let Some(head) = connection.try_head().await else { return false };
    connection.body(&head).await.unwrap();
    head.status == 200
}

/// Waits until a new connection is served.
async fn served_connection(app: &TestApp) -> RawConnection {
    for _ in 0..250 {
        let mut connection = RawConnection::connect(app.address).await;
        if is_answered(&mut connection).await {
            return connection;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no connection was served within 5 s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_a_request_head_is_closed_whatever_it_speaks() {
    let app = start(&[("GATEWAY_HEAD_TIMEOUT_MS", "600")]).await;
    let starts: [&[u8]; 7] = [
        b"",
        b"PRI",
        b"PRI * HTTP/2.0\r\n\r\nSM",
        PREFACE,
        b"GET / HTTP/1.1\r\nhost:",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00\x00\x00\x00",
    ];
    let mut connections = Vec::new();
    for start in starts {
        let mut connection = RawConnection::connect(app.address).await;
        assert!(connection.try_send(start).await);
        connections.push(connection);
    }
    for (connection, start) in connections.iter_mut().zip(starts) {
        let sent = connection.until_closed().await;
        assert!(!sent.starts_with(b"HTTP/1.1 2"), "{start:?}: {}", String::from_utf8_lossy(&sent));
    }
    assert!(app.app.connections.counters.closed_head_timeout.load(Ordering::Relaxed) >= 4);
}

/// The payload of the first frame of this type in a sequence of HTTP/2 frames.
fn frame_of_type(mut frames: &[u8], wanted: u8) -> Option<&[u8]> {
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = frames {
        let length = (usize::from(*a) << 16) | (usize::from(*b) << 8) | usize::from(*c);
        let (payload, next) = rest.split_at_checked(length)?;
        if *kind == wanted {
            return Some(payload);
        }
        frames = next;
    }
    None
}

/// Each costs the gateway more than its client, so the connection ends after a few.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_reset_at_once_end_the_connection() {
    const GO_AWAY: u8 = 7;
    const ENHANCE_YOUR_CALM: u32 = 11;
    let app = start(&[]).await;
    let mut connection = RawConnection::connect(app.address).await;
    let mut frames = PREFACE.to_vec();
    for stream in (1..=1_001_u32).step_by(2) {
        // A whole request in a HEADERS frame, and RST_STREAM.
        frames.extend(b"\x00\x00\x06\x01\x05");
        frames.extend(stream.to_be_bytes());
        frames.extend(b"\x82\x84\x86\x41\x01a");
        frames.extend(b"\x00\x00\x04\x03\x00");
        frames.extend(stream.to_be_bytes());
        frames.extend(8_u32.to_be_bytes());
    }
    connection.try_send(&frames).await;
    let sent = connection.until_closed().await;
    // The reason may be lost when the connection is reset, because frames were not read.
    if let Some(reason) = frame_of_type(&sent, GO_AWAY).and_then(|payload| payload.get(4..8)) {
        assert_eq!(reason, ENHANCE_YOUR_CALM.to_be_bytes());
    }
    served_connection(&app).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_head_that_is_not_finished_closes_the_connection_but_a_slow_body_does_not() {
    let app = start(&[("GATEWAY_HEAD_TIMEOUT_MS", "600")]).await;
    let mut connection = served_connection(&app).await;
    connection.send("GET /healthz HT").await;
    connection.until_closed().await;

    let body = br#"{"email": "a@example.com", "password": "wrong password"}"#;
    let mut slow = RawConnection::connect(app.address).await;
    let whole = request("POST", "/api/v1/login", &[], body);
    let (first, last) = whole.split_at(whole.len() - 5);
    slow.send(first).await;
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    slow.send(last).await;
    assert_eq!(slow.head().await.status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_may_be_used_again_until_its_own_timeout() {
    let app = start(&[("GATEWAY_HEAD_TIMEOUT_MS", "300"), ("GATEWAY_IDLE_TIMEOUT_MS", "2500")]).await;
    let mut connection = served_connection(&app).await;
    for _ in 0..2 {
        // Longer than the timeout of a head, which begins with its first byte.
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert!(is_answered(&mut connection).await);
    }
    connection.until_closed().await;
    let counters = &app.app.connections.counters;
    assert_eq!(counters.closed_idle.load(Ordering::Relaxed), 1);
    assert_eq!(counters.closed_head_timeout.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_head_that_arrives_slowly_has_the_time_of_a_head() {
    let app = start(&[("GATEWAY_HEAD_TIMEOUT_MS", "800")]).await;
    let mut connection = served_connection(&app).await;
    // More than the time of a head passes before, and none of it counts.
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let (first, last) = HEALTH.split_at(20);
    connection.send(first).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    connection.send(last).await;
    let head = connection.head().await;
    assert_eq!(head.status, 200);
    connection.body(&head).await.unwrap();
    // Each byte of it is sent in time, but not all of them.
    let mut sent = 0;
    for byte in HEALTH.as_bytes() {
        if !connection.try_send([*byte]).await {
            break;
        }
        sent += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(sent < HEALTH.len(), "{sent} bytes were accepted");
    assert_eq!(app.app.connections.counters.closed_head_timeout.load(Ordering::Relaxed), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_limit_the_longest_idle_connection_makes_room() {
    let app = start(&[("GATEWAY_MAX_CONNECTIONS", "3")]).await;
    let mut first = served_connection(&app).await;
    let mut second = served_connection(&app).await;
    let mut third = served_connection(&app).await;
    // The first one is not the one that has been idle for longest.
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(is_answered(&mut first).await);
    let mut fourth = RawConnection::connect(app.address).await;
    assert!(is_answered(&mut fourth).await);
    second.until_closed().await;
    for connection in [&mut first, &mut third, &mut fourth] {
        assert!(is_answered(connection).await);
    }
    let counters = &app.app.connections.counters;
    assert_eq!(counters.closed_for_room.load(Ordering::Relaxed), 1);
    assert_eq!(counters.refused_total.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_all_connections_are_busy_a_new_one_is_refused() {
    let app = start(&[("GATEWAY_MAX_CONNECTIONS", "2")]).await;
    let ada = app.signup("acme").await;
    let waiting = request_head(
        "POST",
        "/v1/chat/completions",
        &[
            ("x-gateway-key", &ada.api_key),
            ("x-gateway-provider", "sandbox"),
            ("x-sandbox-delay-ms", "60000"),
            ("content-length", "0"),
        ],
    );
    let mut busy = Vec::new();
    for _ in 0..2 {
        let mut connection = served_connection(&app).await;
        connection.send(&waiting).await;
        busy.push(connection);
    }
    let counters = &app.app.connections.counters;
    // Until both requests have arrived, a connection may still be idle.
    for _ in 0..250 {
        if counters.refused_total.load(Ordering::Relaxed) > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        RawConnection::connect(app.address).await.until_closed().await;
    }
    assert!(counters.refused_total.load(Ordering::Relaxed) > 0);
    busy.clear();
    served_connection(&app).await;
}

/// A client that reads only after it has sent all of a refused body. Without the rest being read, the kernel resets the
/// connection, and the response is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_its_whole_body_first_gets_the_refusal() {
    let app = start(&[("GATEWAY_MAX_BODY_BYTES", "100000")]).await;
    let address = app.address;
    let received = tokio::task::spawn_blocking(move || {
        let mut connection = std::net::TcpStream::connect(address).unwrap();
        let (piece, pieces) = (vec![b'x'; 1 << 20], 16);
        let head = format!(
            "POST /api/v1/signup HTTP/1.1\r\nhost: gateway.test\r\ncontent-length: {}\r\n\r\n",
            pieces << 20
        );
        connection.write_all(head.as_bytes()).unwrap();
        for number in 0..pieces {
            connection.write_all(&piece).unwrap_or_else(|error| panic!("piece {number}: {error}"));
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut received = String::new();
        connection.read_to_string(&mut received).unwrap();
        received
    });
    let received = received.await.unwrap();
    assert!(received.starts_with("HTTP/1.1 413 "), "{received}");
    assert!(received.contains("payload_too_large"), "{received}");
}

/// A client that never stops sending is cut off, and what it sends is read slowly until then: it must not keep the machine
/// busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_client_that_sends_without_end_is_cut_off() {
    let app = start(&[("GATEWAY_MAX_BODY_BYTES", "100000")]).await;
    let address = app.address;
    let sending = tokio::task::spawn_blocking(move || {
        let mut connection = std::net::TcpStream::connect(address).unwrap();
        let head = "POST /api/v1/signup HTTP/1.1\r\nhost: gateway.test\r\ncontent-length: 9000000000\r\n\r\n";
        connection.write_all(head.as_bytes()).unwrap();
        let (piece, began) = (vec![b'x'; 1 << 20], Instant::now());
        let sent = (0..200_u32).take_while(|_| connection.write_all(&piece).is_ok()).count();
        (u32::try_from(sent).unwrap(), began.elapsed())
    });
    let (sent, time) = sending.await.unwrap();
    assert!(sent < 100, "{sent} MiB");
    let (in_buffers, rate) = (16.0, 40.0);
    assert!(f64::from(sent) <= in_buffers + rate * time.as_secs_f64(), "{sent} MiB in {time:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_has_a_limit_of_its_own() {
    let app = start(&[("GATEWAY_MAX_CONNECTIONS_PER_ADDRESS", "2")]).await;
    let mut first = served_connection(&app).await;
    let second = served_connection(&app).await;
    let mut third = RawConnection::connect(app.address).await;
    assert!(third.until_closed().await.is_empty());
    assert!(is_answered(&mut first).await);
    drop(second);
    served_connection(&app).await;
    assert!(app.app.connections.counters.refused_address.load(Ordering::Relaxed) >= 1);

    let exempt =
        start(&[("GATEWAY_MAX_CONNECTIONS_PER_ADDRESS", "1"), ("GATEWAY_TRUSTED_PROXIES", "127.0.0.0/8")])
            .await;
    let _first = served_connection(&exempt).await;
    let mut second = RawConnection::connect(exempt.address).await;
    assert!(is_answered(&mut second).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_file_descriptors_idle_connections_make_room() {
    let data = tempdir().unwrap();
    let process = GatewayProcess::start(command(data.path(), &["serve"]).env("GATEWAY_WORKERS", "1"));
    let mut idle = Vec::new();
    for _ in 0..4 {
        let mut connection = RawConnection::connect(process.address).await;
        assert!(is_answered(&mut connection).await);
        idle.push(connection);
    }
    process.limit_descriptors(6);
    // These wait in the backlog of the kernel until the gateway accepts them.
    for _ in 0..40 {
        idle.push(RawConnection::connect(process.address).await);
    }
    for _ in 0..5 {
        let mut connection = RawConnection::connect(process.address).await;
        assert!(is_answered(&mut connection).await, "accepting never stops");
    }
}
