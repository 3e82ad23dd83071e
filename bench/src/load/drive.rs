//! The load modes: closed loop, open loop, a number of requests, and open streams; `blocks` has the fifth.
//!
//! In the open loop latency is measured from the time at which the request was due, so that a stall is charged to
//! every delayed request. When the connection was free at that time, it is measured from the actual send: the delay
//! was the generator's timer, which is reported separately.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::blocks;
use super::connection::{Connection, ResponseInfo};
use super::record::{Record, Window, nanoseconds};
use super::{Latency, LoadReport};
use crate::cli::{LoadMode, LoadOptions};
use crate::error::{BenchError, BenchResult, Context};
use crate::procfs;
use crate::stats::Histogram;

pub(super) async fn drive(options: &LoadOptions) -> BenchResult<()> {
    if options.mode == LoadMode::Blocks {
        return blocks::run(options).await;
    }
    let file = options.request.first().ok_or_else(|| BenchError::new("--request is missing"))?;
    let connections = connect(options, file).await?;
    let report = match options.mode {
        LoadMode::Closed => closed(options, connections).await?,
        LoadMode::Open => open(options, connections).await?,
        LoadMode::Count => count(options, connections).await?,
        LoadMode::Hold | LoadMode::Blocks => return hold(connections).await,
    };
    println!("{}", report.to_json());
    Ok(())
}

/// Opens all connections for the request in a file.
pub(super) async fn connect(options: &LoadOptions, file: &Path) -> BenchResult<Vec<Connection>> {
    let request = std::fs::read(file).context("reading a request")?;
    let mut connections = Vec::with_capacity(options.connections);
    for _ in 0..options.connections {
        connections.push(Connection::open(options.addr, &request).await?);
    }
    Ok(connections)
}

async fn closed(options: &LoadOptions, connections: Vec<Connection>) -> BenchResult<LoadReport> {
    let window = window(options);
    let meter = Meter::over(options, window);
    let record = Arc::new(Record::new(window));
    let mut tasks = JoinSet::new();
    let step = connections.len() as u64;
    for (connection, first) in connections.into_iter().zip(0_u64..) {
        let (record, lengths) = (Arc::clone(&record), options.accept_length.clone());
        tasks.spawn(async move {
            let mut connection = connection;
            let mut number = first;
            let mut start = Instant::now();
            while start < window.to {
                let answer = connection.exchange(number).await?;
                check(&answer, &lengths)?;
                let end = Instant::now();
                record.add(start, &answer, end, window.holds(end));
                number += step;
                start = end;
            }
            record.add_reconnects(connection.reconnects);
            BenchResult::Ok(())
        });
    }
    finish(tasks).await?;
    Ok(report(&record, &Histogram::new(), &meter.read()?))
}

async fn count(options: &LoadOptions, connections: Vec<Connection>) -> BenchResult<LoadReport> {
    let window = Window::new(Duration::ZERO, Duration::from_millis(options.limit_ms));
    let before = Cpu::now(options);
    let record = Arc::new(Record::new(window));
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for mut connection in connections {
        let (record, next, lengths) = (Arc::clone(&record), Arc::clone(&next), options.accept_length.clone());
        let requests = options.requests;
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= requests {
                    break;
                }
                let start = Instant::now();
                let answer = connection.exchange(number).await?;
                check(&answer, &lengths)?;
                record.add(start, &answer, Instant::now(), true);
            }
            record.add_reconnects(connection.reconnects);
            BenchResult::Ok(())
        });
    }
    finish(tasks).await?;
    Ok(report(&record, &Histogram::new(), &before.until_now(options)))
}

async fn open(options: &LoadOptions, connections: Vec<Connection>) -> BenchResult<LoadReport> {
    let window = window(options);
    let meter = Meter::over(options, window);
    let record = Arc::new(Record::new(window));
    let mut tasks = JoinSet::new();
    let mut queues = Vec::with_capacity(connections.len());
    let step = connections.len() as u64;
    for (mut connection, first) in connections.into_iter().zip(0_u64..) {
        let (sender, mut due): (_, UnboundedReceiver<Instant>) = unbounded_channel();
        queues.push(sender);
        let (record, lengths) = (Arc::clone(&record), options.accept_length.clone());
        tasks.spawn(async move {
            let mut number = first;
            let mut free_since = Instant::now();
            while let Some(due) = due.recv().await {
                let start = if due < free_since { due } else { Instant::now() };
                let answer = connection.exchange(number).await?;
                check(&answer, &lengths)?;
                free_since = Instant::now();
                record.add(start, &answer, free_since, window.holds(due));
                number += step;
            }
            record.add_reconnects(connection.reconnects);
            BenchResult::Ok(())
        });
    }
    let rate = f64::from(options.rate);
    let pacer = spawn(move || pace(queues, rate, window));
    finish(tasks).await?;
    let late = pacer.join().map_err(|_| BenchError::new("the pacer thread panicked"))?;
    Ok(report(&record, &late, &meter.read()?))
}

/// Releases the requests on schedule. Runs on its own thread, because the runtime's timer has a resolution of
/// milliseconds and would send bursts.
fn pace(queues: Vec<UnboundedSender<Instant>>, rate: f64, window: Window) -> Histogram {
    let mut late = Histogram::new();
    let start = Instant::now();
    for (queue, number) in queues.iter().cycle().zip(0_u32..) {
        let due = start + Duration::from_secs_f64(due_at(number) / rate);
        if due >= window.to {
            break;
        }
        sleep(due.saturating_duration_since(Instant::now()));
        late.record(nanoseconds(Instant::now().saturating_duration_since(due)));
        if queue.send(due).is_err() {
            break;
        }
    }
    drop(queues);
    // The CPU of an ended thread cannot be read exactly, and the meter samples about now.
    sleep(Duration::from_millis(50));
    late
}

/// Due time of a request, in units of the mean interval. Jittered, so that requests do not align with timers of the
/// target or the upstream.
fn due_at(number: u32) -> f64 {
    let number = f64::from(number);
    number + (number * 0.618_033_988_749_895).fract()
}

/// Opens one stream per connection, prints that, and holds them until standard input closes.
async fn hold(mut connections: Vec<Connection>) -> BenchResult<()> {
    for (connection, number) in connections.iter_mut().zip(0_u64..) {
        connection.begin(number).await?;
    }
    println!("open");
    super::wait_for_stdin_eof().await;
    drop(connections);
    println!("closed");
    Ok(())
}

pub(super) fn check(answer: &ResponseInfo, lengths: &[u64]) -> BenchResult<()> {
    if lengths.is_empty() || lengths.contains(&answer.length) {
        return Ok(());
    }
    Err(BenchError::new(format!("a response body has {} bytes instead of {lengths:?}", answer.length)))
}

fn window(options: &LoadOptions) -> Window {
    Window::new(Duration::from_millis(options.warmup_ms), Duration::from_millis(options.window_ms))
}

/// Stops at the first error, so that a broken target gets no further load.
async fn finish(mut tasks: JoinSet<BenchResult<()>>) -> BenchResult<()> {
    while let Some(done) = tasks.join_next().await {
        done.map_err(|error| BenchError::new(error.to_string()))??;
    }
    Ok(())
}

fn report(record: &Record, late: &Histogram, used: &Used) -> LoadReport {
    record.read(|seen| LoadReport {
        completed: seen.completed as f64,
        total: seen.total as f64,
        seconds: used.seconds,
        reconnects: seen.reconnects as f64,
        latency: Latency::of(&seen.latency),
        first: Latency::of(&seen.first),
        late: Latency::of(late),
        cpu_proxy: used.proxy,
        cpu_serving: used.serving,
        cpu_upstream: used.upstream,
        cpu_client: used.client,
        cpu_others: used.others,
    })
}

/// CPU time of proxy, upstream and client at one moment.
struct Cpu {
    at: Instant,
    proxy: procfs::CpuSample,
    upstream: procfs::CpuSample,
    client: procfs::CpuSample,
    machine: f64,
}

/// CPU time of proxy, upstream and client over an interval, in microseconds.
struct Used {
    seconds: f64,
    proxy: f64,
    /// Of the threads of the proxy that serve connections.
    serving: f64,
    upstream: f64,
    client: f64,
    others: f64,
}

impl Cpu {
    fn now(options: &LoadOptions) -> Self {
        Self::of(&options.proxy_pids, &options.upstream_pids)
    }

    fn of(proxy: &[u32], upstream: &[u32]) -> Self {
        Self {
            at: Instant::now(),
            proxy: procfs::cpu(proxy),
            upstream: procfs::cpu(upstream),
            client: procfs::cpu(&[std::process::id()]),
            machine: procfs::machine_busy(),
        }
    }

    fn until(&self, later: &Self) -> Used {
        let proxy = procfs::cpu_between(&self.proxy, &later.proxy);
        let upstream = procfs::cpu_between(&self.upstream, &later.upstream);
        let client = procfs::cpu_between(&self.client, &later.client);
        Used {
            seconds: later.at.duration_since(self.at).as_secs_f64(),
            proxy,
            serving: procfs::serving_cpu_between(&self.proxy, &later.proxy),
            upstream,
            client,
            others: (later.machine - self.machine - proxy - upstream - client).max(0.0),
        }
    }

    fn until_now(&self, options: &LoadOptions) -> Used {
        self.until(&Self::now(options))
    }
}

/// Samples the CPU at both ends of a window while the connections are busy.
struct Meter(JoinHandle<Used>);

impl Meter {
    fn over(options: &LoadOptions, window: Window) -> Self {
        let (proxy, upstream) = (options.proxy_pids.clone(), options.upstream_pids.clone());
        Self(spawn(move || {
            sleep(window.from.saturating_duration_since(Instant::now()));
            let before = Cpu::of(&proxy, &upstream);
            sleep(window.to.saturating_duration_since(Instant::now()));
            before.until(&Cpu::of(&proxy, &upstream))
        }))
    }

    fn read(self) -> BenchResult<Used> {
        self.0.join().map_err(|_| BenchError::new("the CPU meter thread panicked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn requests_are_due_in_order_and_at_the_mean_rate() {
        let due: Vec<f64> = (0..10_000).map(due_at).collect();
        assert!(due.windows(2).all(|pair| pair[0] < pair[1]));
        assert!((due[9_999] - 9_999.0).abs() <= 1.0);
        let close = due.windows(2).filter(|pair| pair[1] - pair[0] < 0.7).count();
        assert!(close > 1000, "hardly spread: {close}");
    }

    #[test]
    fn a_stall_is_charged_to_every_delayed_request() {
        let runtime = crate::load::runtime(1).unwrap();
        let report = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            // Ten requests are due within 100 ms, but each takes 30 ms.
            tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                while stream.read(&mut [0; 100]).await.unwrap() > 0 {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
                }
            });
            let options = LoadOptions {
                addr,
                request: Vec::new(),
                accept_length: vec![2],
                mode: LoadMode::Open,
                connections: 1,
                rate: 100,
                requests: 0,
                blocks: 0,
                warmup_ms: 0,
                window_ms: 100,
                limit_ms: 5000,
                threads: 1,
                proxy_pids: Vec::new(),
                upstream_pids: Vec::new(),
            };
            let connection = Connection::open(addr, b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            open(&options, vec![connection]).await.unwrap()
        });
        assert!(report.total >= 9.0, "{report:?}");
        assert!(report.latency.max > 150_000.0, "{report:?}");
        assert!(report.latency.p50 > 80_000.0, "{report:?}");
    }
}
