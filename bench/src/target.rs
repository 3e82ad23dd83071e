//! A target of requests: the gateway, nginx, or the upstream itself.

use std::net::SocketAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetKind {
    Gateway,
    Nginx,
    /// The upstream without a proxy.
    Direct,
}

#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) kind: TargetKind,
    pub(crate) addr: SocketAddr,
    /// The processes of the target; empty for the upstream itself.
    pub(crate) pids: Vec<u32>,
}

impl TargetKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Nginx => "nginx",
            Self::Direct => "direct",
        }
    }
}
