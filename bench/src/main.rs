//! Measures the gateway beside nginx, in front of the same upstream, and prints what a request costs each of them.
//!
//! One executable plays three parts, each in a process of its own so that their CPU can be told apart: the
//! conductor (no subcommand), the upstream (`upstream`) and the load generator (`load`).

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

mod answers;
mod bench;
mod cli;
mod failure;
mod gateway;
mod http;
mod load;
mod machine;
mod nginx;
mod pinning;
mod plain;
mod process;
mod procfs;
mod report;
mod request;
mod scenarios;
mod stats;
mod target;
mod unsteady;
mod upstream;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::cli::{Cli, Part};
use crate::failure::{Failure, Outcome, Stop};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.part {
        Some(Part::Upstream(options)) => upstream::run(options).map(|()| true),
        Some(Part::Load(options)) => load::run(options).map(|()| true),
        None => conduct(cli),
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

/// Runs the scenarios on a thread that may block, and tells it to stop when a signal or the time limit comes.
/// The thread then unwinds by returning, so every child process and the temporary folder go with it.
fn conduct(cli: Cli) -> Outcome<bool> {
    let stop = Stop::default();
    let limit = Duration::from_secs(cli.options.max_seconds);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let work = {
            let stop = stop.clone();
            tokio::task::spawn_blocking(move || bench::run(cli.options, stop))
        };
        tokio::pin!(work);
        let reason = tokio::select! {
            done = &mut work => return done.map_err(|error| Failure::new(error.to_string()))?,
            _ = tokio::signal::ctrl_c() => "interrupted".to_owned(),
            _ = terminate.recv() => "terminated".to_owned(),
            () = tokio::time::sleep(limit) => format!("not done after {} s, the limit", limit.as_secs()),
        };
        stop.request();
        // Whatever the thread answers now is a consequence of being told to stop.
        let _ = work.await;
        Err(Failure::new(reason))
    })
}
