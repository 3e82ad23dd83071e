//! nginx as a plain reverse proxy with its own configuration: the baseline.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::error::{BenchError, BenchResult, Context, StopFlag};
use crate::process::{Process, command};
use crate::procfs;
use crate::target::{Target, TargetKind};

pub(crate) struct Nginx {
    process: Process,
    addr: SocketAddr,
}

pub(crate) struct Settings<'a> {
    pub(crate) binary: &'a Path,
    pub(crate) cpus: Option<&'a str>,
    pub(crate) workers: usize,
    pub(crate) folder: &'a Path,
    pub(crate) upstream: SocketAddr,
    /// The upstream speaks TLS.
    pub(crate) has_tls: bool,
}

impl Nginx {
    pub(crate) fn start(settings: &Settings<'_>, stop: &StopFlag) -> BenchResult<Self> {
        // The port is chosen in advance, so another program may take it first; then the next one is tried.
        let mut last = BenchError::new("no free port below 32768");
        for attempt in 0..5 {
            let Some(addr) = free_address(attempt) else { continue };
            match Self::start_at(settings, addr, stop) {
                Ok(nginx) => return Ok(nginx),
                Err(failure) => last = failure,
            }
            stop.check()?;
        }
        Err(last)
    }

    pub(crate) fn target(&self) -> Target {
        Target { kind: TargetKind::Nginx, addr: self.addr, pids: procfs::tree(self.process.pid()) }
    }

    fn start_at(settings: &Settings<'_>, addr: SocketAddr, stop: &StopFlag) -> BenchResult<Self> {
        let file = settings.folder.join("nginx.conf");
        std::fs::create_dir_all(settings.folder)?;
        std::fs::write(&file, configuration(settings, addr)).context("writing nginx.conf")?;
        let mut command = command(settings.binary, settings.cpus);
        command.arg("-p").arg(settings.folder).arg("-c").arg(&file);
        let mut process = Process::start("nginx", &mut command)?;
        for _ in 0..200 {
            stop.sleep(Duration::from_millis(10))?;
            if let Err(failure) = process.check_alive() {
                let log = std::fs::read_to_string(settings.folder.join("error.log")).unwrap_or_default();
                return Err(BenchError::new(format!("{failure}; its log says:\n{log}")));
            }
            // The master listens before its workers have started, and all of them must be measured.
            let complete = procfs::tree(process.pid()).len() > settings.workers;
            if complete && TcpStream::connect(addr).is_ok() {
                return Ok(Self { process, addr });
            }
        }
        Err(BenchError::new("nginx did not come up within 2 s"))
    }
}

fn configuration(settings: &Settings<'_>, addr: SocketAddr) -> String {
    let folder = settings.folder.display();
    let mut text = String::new();
    if procfs::status_line("Uid:").is_some_and(|ids| ids.starts_with("0\t")) {
        // Workers that drop root could not write below our directory.
        text.push_str("user root;\n");
    }
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "daemon off;
worker_processes {workers};
worker_rlimit_nofile 16384;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  tcp_nodelay on;
  keepalive_timeout 600s;
  keepalive_requests 1000000000;
  client_max_body_size 64m;
  # The default of 16 KiB would write the greater prompts to disk.
  client_body_buffer_size 128k;
  client_body_temp_path {folder}/client;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream provider {{
    server {upstream};
    keepalive 256;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
  }}
  server {{
    listen {addr} backlog=4096;
    location / {{
      proxy_pass {scheme}://provider;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_read_timeout 600s;
      # Plain answers are buffered as by default; streams switch it off with X-Accel-Buffering.
    }}
  }}
}}
",
        workers = settings.workers,
        upstream = settings.upstream,
        scheme = if settings.has_tls { "https" } else { "http" },
    );
    text
}

/// A port below the ephemeral port range.
fn free_address(attempt: u32) -> Option<SocketAddr> {
    let from = 20_000 + (std::process::id().wrapping_mul(31).wrapping_add(attempt * 997) % 10_000) as u16;
    (from..from + 50).find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()?.local_addr().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_stay_below_the_range_of_outgoing_connections() {
        for attempt in 0..20 {
            let port = free_address(attempt).unwrap().port();
            assert!((20_000..32_768).contains(&port));
        }
    }
}
