//! The `gateway` binary.

use std::process::ExitCode;

use clap::Parser as _;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Chosen explicitly, because rustls cannot choose if a dependency enables a second one. This cannot fail here: the
    // provider is installed once.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    gateway::cli::run(gateway::cli::Cli::parse())
}
