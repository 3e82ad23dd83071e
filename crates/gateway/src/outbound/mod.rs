//! Outbound HTTP: connections to providers and to tenants' URLs, the egress guard, and one exchange with a timeout.

pub mod body;
pub mod clients;
mod connector;
pub mod exchange;
pub mod http1;
pub mod pool;
