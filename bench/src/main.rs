//! Benchmarks the gateway against nginx in front of the same upstream and prints the cost per request of each.
//!
//! The executable runs as three kinds of processes, so that their CPU usage can be measured separately: the
//! controller (no subcommand), the upstream (`upstream`) and the load generator (`load`).

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing the table is this program's job")]
#![allow(
    clippy::disallowed_methods,
    reason = "the bans guard the service's clock, tasks and settings; this program has none of them"
)]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for people: counts and microseconds stay far below 2^52"
)]

mod audit;
mod bench;
mod chaos_provider;
mod cli;
mod corpus;
mod error;
mod exchange;
mod gateway;
mod http;
mod http_client;
mod instructions;
mod load;
mod machine;
mod mcp_upstream;
mod nginx;
mod pinning;
mod process;
mod procfs;
mod queries;
mod query_language;
mod report;
mod request;
mod responses;
mod rows;
mod scenarios;
mod siege;
mod stats;
mod target;
mod tls;
mod upstream;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::cli::{Cli, ProcessRole};
use crate::error::{BenchError, BenchResult, StopFlag};

/// The allocator of the gateway: what is measured in this process costs the same there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long a measurement of the store may take.
const STORE_LIMIT: Duration = Duration::from_secs(600);

/// Ten million rows take a while to store.
const QUERIES_LIMIT: Duration = Duration::from_secs(3_600);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.part {
        Some(ProcessRole::Upstream(options)) => upstream::run(options).map(|()| true),
        Some(ProcessRole::Load(options)) => load::run(options).map(|()| true),
        Some(ProcessRole::Attack(options)) => siege::attack(options).map(|()| true),
        Some(ProcessRole::Siege(options)) => {
            let (options, limit) = (options.clone(), siege::time_limit(options));
            run_until_stopped(limit, move |stop| siege::run(&options, &stop))
        }
        Some(ProcessRole::Instructions(options)) => {
            let options = options.clone();
            run_until_stopped(STORE_LIMIT, move |stop| instructions::run(&options, &stop))
        }
        Some(ProcessRole::Audit(options)) => {
            let options = options.clone();
            run_until_stopped(STORE_LIMIT, move |stop| audit::run(&options, &stop))
        }
        Some(ProcessRole::Rows(options)) => {
            let options = options.clone();
            run_until_stopped(STORE_LIMIT, move |stop| rows::run(&options, &stop))
        }
        Some(ProcessRole::Queries(options)) => {
            let options = options.clone();
            run_until_stopped(QUERIES_LIMIT, move |stop| queries::run(&options, &stop))
        }
        None => {
            let limit = Duration::from_secs(cli.options.max_seconds);
            let options = cli.options;
            run_until_stopped(limit, move |stop| bench::run(options, stop))
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(failure) => {
            eprintln!("gateway-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the work on a blocking thread and stops it on a signal or at the time limit. The thread returns normally, so
/// child processes and the temporary directory are cleaned up.
fn run_until_stopped(
    limit: Duration,
    work: impl FnOnce(StopFlag) -> BenchResult<bool> + Send + 'static,
) -> BenchResult<bool> {
    let stop = StopFlag::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let work = {
            let stop = stop.clone();
            tokio::task::spawn_blocking(move || work(stop))
        };
        tokio::pin!(work);
        let reason = tokio::select! {
            done = &mut work => return done.map_err(|error| BenchError::new(error.to_string()))?,
            _ = tokio::signal::ctrl_c() => "interrupted".to_owned(),
            _ = terminate.recv() => "terminated".to_owned(),
            () = tokio::time::sleep(limit) => format!("not done after {} s, the limit", limit.as_secs()),
        };
        stop.request();
        // The result after a stop request is irrelevant.
        let _ = work.await;
        Err(BenchError::new(reason))
    })
}
