//! The rules of the gateway as pure functions: no network, disk, clock or randomness.

pub mod llm;
