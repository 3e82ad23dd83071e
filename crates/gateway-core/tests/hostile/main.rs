//! Everything that reads a tenant's bytes, met with hostile ones. `cost`: the CPU time per byte of the worst input is
//! within a small factor of an ordinary one's. `growth`: it grows in proportion to the length. `fuzz`: no input breaks
//! a property of its reader.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on must fail"
)]

mod canonical;
mod cost;
mod fuzz;
mod growth;
mod harness;
mod ordinary;
mod shapes;
mod targets;
