//! Something that requests are sent to: the gateway, nginx, or the upstream itself.

use std::net::SocketAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gateway,
    Nginx,
    /// The upstream without anything before it.
    Direct,
}

#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) addr: SocketAddr,
    /// The processes whose CPU and memory are the target's; none for the upstream itself.
    pub(crate) pids: Vec<u32>,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Nginx => "nginx",
            Self::Direct => "direct",
        }
    }
}
