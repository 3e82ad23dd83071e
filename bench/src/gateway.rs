//! Starts the gateway as a user would, waits until it is healthy, and signs up for a key.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::error::{BenchError, BenchResult, StopFlag};
use crate::http_client;
use crate::process::{Process, command, lines};
use crate::procfs;
use crate::target::{Target, TargetKind};

pub(crate) struct Gateway {
    process: Process,
    addr: SocketAddr,
    /// Time from the start of the process to the first successful /healthz.
    pub(crate) healthy_after: Duration,
}

/// A new organization and its first key.
pub(crate) struct Account {
    pub(crate) key: String,
    pub(crate) org: String,
}

/// Settings of a gateway. They may be reused to restart it on the same data.
pub(crate) struct Settings<'a> {
    pub(crate) binary: &'a Path,
    pub(crate) cpus: Option<&'a str>,
    pub(crate) data_dir: PathBuf,
    pub(crate) upstream: SocketAddr,
    /// `NAME=VALUE` from the command line.
    pub(crate) extra: &'a [String],
    /// A program that runs the gateway, with its arguments. Empty: none.
    pub(crate) wrapper: &'a [String],
}

/// A gateway that is traced starts slowly.
const START_LIMIT: Duration = Duration::from_secs(60);

impl Gateway {
    pub(crate) fn start(settings: &Settings<'_>, stop: &StopFlag) -> BenchResult<Self> {
        let started = Instant::now();
        let mut process = Process::start("the gateway", &mut command_for(settings))?;
        let log = process.child().stderr.take().map(lines);
        let log = log.ok_or_else(|| BenchError::new("the gateway has no standard error"))?;
        let addr = read_address(&log, &mut process, stop)?;
        loop {
            match http_client::get(addr, "/healthz") {
                Ok((200, _)) => break,
                Ok(_) | Err(_) if started.elapsed() < START_LIMIT => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok((status, body)) => {
                    let body = String::from_utf8_lossy(&body);
                    return Err(BenchError::new(format!("the gateway is not healthy: {status} {body}")));
                }
                Err(error) => return Err(BenchError::new(format!("the gateway does not respond: {error}"))),
            }
            process.check_alive()?;
            stop.check()?;
        }
        Ok(Self { process, addr, healthy_after: started.elapsed() })
    }

    pub(crate) fn sign_up(&self) -> BenchResult<String> {
        self.sign_up_as("bench").map(|account| account.key)
    }

    pub(crate) fn sign_up_as(&self, slug: &str) -> BenchResult<Account> {
        let body = format!(
            r#"{{"email":"{slug}@example.com","password":"correct horse battery","org_slug":"{slug}"}}"#
        );
        let (status, answer) = http_client::post_json(self.addr, "/api/v1/signup", &body)?;
        let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        match (text("/api_key"), text("/org/id")) {
            (Some(key), Some(org)) if status == 201 => Ok(Account { key, org }),
            _ => Err(BenchError::new(format!("signup returned {status} {answer}"))),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn target(&self) -> Target {
        Target { kind: TargetKind::Gateway, addr: self.addr, pids: procfs::tree(self.process.pid()) }
    }

    /// Stops the gateway with SIGTERM and returns how long that took.
    pub(crate) fn stop(mut self) -> BenchResult<Duration> {
        self.process.terminate(Duration::from_secs(30))
    }
}

fn command_for(settings: &Settings<'_>) -> std::process::Command {
    let mut command = match settings.wrapper {
        [] => command(settings.binary, settings.cpus),
        [program, arguments @ ..] => {
            let mut command = command(Path::new(program), settings.cpus);
            command.args(arguments).arg(settings.binary);
            command
        }
    };
    // The environment is cleared, so that no credential of the caller reaches the gateway.
    command.arg("serve").env_clear().stderr(Stdio::piped());
    command.envs(std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "HOME"));
    command
        .env("GATEWAY_LISTEN", "127.0.0.1:0")
        .env("GATEWAY_DATA_DIR", &settings.data_dir)
        .env("GATEWAY_PROVIDER_OPENAI_BASE_URL", format!("http://{}", settings.upstream))
        .env("GATEWAY_EGRESS_PRIVATE", "allow")
        .env("GATEWAY_DEFAULT_PLAN", "enterprise");
    for plan in ["FREE", "PRO", "ENTERPRISE"] {
        command.env(format!("GATEWAY_RATE_LIMIT_{plan}"), "0");
    }
    command.envs(settings.extra.iter().filter_map(|pair| pair.split_once('=')));
    command
}

/// The startup line is a JSON object with a field `url`, at the top level or under `fields`.
fn read_address(log: &Receiver<String>, process: &mut Process, stop: &StopFlag) -> BenchResult<SocketAddr> {
    let mut said = Vec::new();
    let give_up = Instant::now() + START_LIMIT;
    while Instant::now() < give_up {
        stop.check()?;
        match log.recv_timeout(Duration::from_millis(20)) {
            Ok(line) => match address_in(&line) {
                Some(addr) => return Ok(addr),
                None => said.push(line),
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(Duration::from_millis(50));
                let ended = process.check_alive().err().map(|failure| failure.to_string());
                let ended = ended.unwrap_or_else(|| "the gateway closed its log".to_owned());
                return Err(BenchError::new(format!("{ended}; its log:\n{}", said.join("\n"))));
            }
        }
    }
    let (seconds, said) = (START_LIMIT.as_secs(), said.join("\n"));
    Err(BenchError::new(format!("the gateway logged no url within {seconds} s; its log:\n{said}")))
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let value: Value = serde_json::from_str(line).ok()?;
    let url = value.get("url").or_else(|| value.get("fields")?.get("url"))?.as_str()?;
    url.strip_prefix("http://")?.trim_end_matches('/').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_found_in_both_shapes_of_the_log() {
        let addr = "127.0.0.1:1234".parse().ok();
        assert_eq!(address_in(r#"{"level":"INFO","url":"http://127.0.0.1:1234"}"#), addr);
        assert_eq!(address_in(r#"{"fields":{"url":"http://127.0.0.1:1234/"}}"#), addr);
        assert_eq!(address_in("listening on http://127.0.0.1:1234"), None);
        assert_eq!(address_in(r#"{"url":"postgres://somewhere"}"#), None);
    }
}
