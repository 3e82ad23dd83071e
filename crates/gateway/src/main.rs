//! The `gateway` binary.

use std::process::ExitCode;

use clap::Parser as _;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Two TLS providers in one tree would leave the choice to chance; a second call cannot happen.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    gateway::cli::run(gateway::cli::Cli::parse())
}
