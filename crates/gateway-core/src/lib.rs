//! The rules of the gateway: pure functions and types, without network, disk, clock or randomness.

pub mod llm;
pub mod pricing;
