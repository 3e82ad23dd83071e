//! The MCP gateway: what it adds to the call of a tool, lists of many servers of which some are dead, and whether calls
//! that hang slow chat completions down.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::rounds;
use crate::bench::{Bench, Load, Measured, Pair};
use crate::cli::LoadMode;
use crate::error::{BenchError, BenchResult};
use crate::gateway::Account;
use crate::http_client::{self, Api};
use crate::mcp_upstream::{HANGING_TOOL, TOOL, call_answer};
use crate::report::{Goal, Row, Section};
use crate::request;
use crate::responses::ResponseScript;
use crate::stats::Spread;

const SERVERS: usize = 200;
const DEAD: usize = 10;
/// Tools of a page.
const PAGE: usize = 200;
/// Lists after the first one.
const LISTS: usize = 50;
/// Calls of a hanging tool that are open at the same time.
const HANGING_CALLS: usize = 100;
const SERVER: &str = "bench";

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let mut rows = overhead(bench)?;
    rows.extend(lists(bench)?);
    rows.extend(beside_hanging_calls(bench)?);
    Ok(Section {
        id: "q",
        title: format!(
            "MCP: calls of a tool one by one; {SERVERS} servers, {DEAD} of them dead; {HANGING_CALLS} hanging calls"
        ),
        rows,
        notes: Vec::new(),
    })
}

fn overhead(bench: &Bench) -> BenchResult<Vec<Row>> {
    let pair = bench.start_alone(&[])?;
    let account = pair.gateway.sign_up_as("tools")?;
    register(&pair, &account, SERVER, bench.direct().addr)?;
    let params =
        format!(r#""name":"{TOOL}","arguments":{{"text":"request-number-00000000 is a short note"}}"#);
    let request = message(&account.key, &format!("/mcp/{SERVER}"), ("tools/call", Some(TOOL)), &params);
    let load = Load {
        mode: LoadMode::Closed,
        request: request.as_bytes(),
        lengths: vec![call_answer("1").len() as u64],
        connections: 1,
        rate: 0,
        requests: 0,
    };
    let runs = rounds(bench, &[bench.direct(), pair.gateway.target()], &load)?;
    Ok(vec![
        runs.added_row("p50 added to the direct call of a tool", "us", |run| run.load.latency.p50)
            .goal(Goal::Below(300.0)),
        runs.added_row("p99 added to the direct call of a tool", "us", |run| run.load.latency.p99),
        runs.row("p50 of a call", "us", |run| run.load.latency.p50),
        super::without_direct(runs.row("CPU per call", "us", Measured::cpu_per_answer)),
    ])
}

/// Half of the dead servers refuse connections, the others accept them and say nothing.
fn lists(bench: &Bench) -> BenchResult<Vec<Row>> {
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let (mut first, mut later, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.rounds.min(3) {
        let pair = bench.start_alone(&[])?;
        let account = pair.gateway.sign_up_as("lists")?;
        for number in 0..SERVERS {
            bench.stop.check()?;
            let addr = match number {
                number if number >= DEAD => bench.direct().addr,
                number if number % 2 == 0 => closed_port()?,
                _ => silent.local_addr()?,
            };
            register(&pair, &account, &format!("server-{number:03}"), addr)?;
        }
        let request = message(&account.key, "/mcp", ("tools/list", None), "");
        let request = request.replacen("\r\n", "\r\nConnection: close\r\n", 1);
        let answer = list(&pair, &request)?;
        eprintln!("    round {} first list {:.0} ms", round + 1, answer.ms);
        first.push(answer.ms);
        missing.push(answer.stale.saturating_sub(DEAD) as f64);
        wait_until_read(bench, &pair, &request)?;
        for _ in 0..LISTS {
            later.push(list(&pair, &request)?.ms);
        }
    }
    let slowest = later.iter().copied().fold(0.0, f64::max);
    let row = |name: &str, values: Vec<f64>| Row {
        gateway: Spread::of(values),
        ..Row::of_gateway(name, "ms", 0.0)
    };
    Ok(vec![
        row("first list of all servers", first).goal(Goal::Below(3_500.0)),
        Row { unit: "servers", ..row("missing in it besides the dead ones", missing) },
        row("lists after it", later),
        Row::of_gateway("the slowest list after it", "ms", slowest).goal(Goal::Below(50.0)),
    ])
}

struct Listed {
    ms: f64,
    /// Servers that could not be asked.
    stale: usize,
}

fn list(pair: &Pair, request: &str) -> BenchResult<Listed> {
    let began = Instant::now();
    let (status, body) = http_client::call(pair.gateway.target().addr, request)?;
    let ms = began.elapsed().as_secs_f64() * 1_000.0;
    let answer: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let length = |pointer: &str| answer.pointer(pointer).and_then(|list| list.as_array()).map_or(0, Vec::len);
    let (tools, stale) = (length("/result/tools"), length("/result/_meta/gateway~1stale"));
    if status == 200 && stale >= DEAD && (tools == PAGE || stale > DEAD) {
        return Ok(Listed { ms, stale });
    }
    Err(BenchError::new(format!(
        "tools/list returned {status} with {tools} tools, and {stale} servers are stale"
    )))
}

/// Waits until the lists of all servers but the dead ones are known.
fn wait_until_read(bench: &Bench, pair: &Pair, request: &str) -> BenchResult<()> {
    for _ in 0..100 {
        if list(pair, request)?.stale == DEAD {
            return Ok(());
        }
        bench.stop.sleep(Duration::from_millis(200))?;
    }
    Err(BenchError::new("the lists of the servers were not read within 20 s"))
}

fn beside_hanging_calls(bench: &Bench) -> BenchResult<Vec<Row>> {
    let pair = bench.start_alone(&[])?;
    let account = pair.gateway.sign_up_as("hanging")?;
    register(&pair, &account, SERVER, bench.direct().addr)?;
    let silent = TcpListener::bind("127.0.0.1:0")?;
    register(&pair, &account, "silent", silent.local_addr()?)?;
    let (path, params) = (format!("/mcp/{SERVER}"), format!(r#""name":"{HANGING_TOOL}""#));
    let hanging = message(&account.key, &path, ("tools/call", Some(HANGING_TOOL)), &params);
    let lists = message(&account.key, "/mcp", ("tools/list", None), "");
    let chat = request::chat(2048, ResponseScript::default(), &pair.key);
    let load = Load {
        mode: LoadMode::Open,
        request: &chat,
        lengths: ResponseScript::default().lengths(),
        connections: 32,
        rate: bench.options.rate,
        requests: 0,
    };
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds {
        for is_beside in [round % 2 == 1, round % 2 == 0] {
            let open = if is_beside {
                hold_open(pair.gateway.target().addr, &[(&hanging, HANGING_CALLS), (&lists, 1)])?
            } else {
                Vec::new()
            };
            bench.stop.sleep(Duration::from_millis(300))?;
            let measured = bench.measure(&pair.gateway.target(), &load)?;
            drop(open);
            let runs = if is_beside { &mut beside } else { &mut alone };
            eprintln!(
                "    round {} {} p99 {:.0} us",
                round + 1,
                if is_beside { "beside" } else { "alone " },
                measured.load.latency.p99
            );
            runs.push(measured.load.latency.p99);
        }
    }
    let ratio = beside.iter().zip(&alone).map(|(beside, alone)| beside / alone).collect::<Vec<_>>();
    let row = |name: &str, unit, values: Vec<f64>| Row {
        gateway: Spread::of(values),
        ..Row::of_gateway(name, unit, 0.0)
    };
    Ok(vec![
        row("p99 of chat completions", "us", alone),
        row("p99 of chat completions beside hanging calls", "us", beside),
        row("p99 beside hanging calls against none", "x", ratio).goal(Goal::Below(1.1)),
    ])
}

/// Sends requests whose answers are not waited for. They are open until the connections are dropped.
fn hold_open(addr: SocketAddr, requests: &[(&str, usize)]) -> BenchResult<Vec<TcpStream>> {
    let all = requests.iter().flat_map(|(request, count)| std::iter::repeat_n(request, *count));
    let open = all.map(|request| {
        let mut stream = TcpStream::connect_timeout(&addr, Duration::from_secs(2))?;
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    });
    open.collect()
}

fn register(pair: &Pair, account: &Account, name: &str, addr: SocketAddr) -> BenchResult<()> {
    let api = Api { addr: pair.gateway.target().addr, key: &account.key };
    let body = format!(r#"{{"name":"{name}","url":"http://{addr}/mcp"}}"#);
    api.request("POST", &format!("/orgs/{}/mcp-servers", account.org), &body).map(|_| ())
}

/// A port on which nobody listens.
fn closed_port() -> BenchResult<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// A request of 2026-07-28. `params` are its members besides `_meta`.
fn message(key: &str, path: &str, (method, name): (&str, Option<&str>), params: &str) -> String {
    let comma = if params.is_empty() { "" } else { "," };
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}{comma}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}},"io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"1"}}}}}}}}"#
    );
    let name = name.map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n\
         Content-Type: application/json\r\nX-Gateway-Key: {key}\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: {method}\r\n{name}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
