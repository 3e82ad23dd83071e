//! Limits: how much a caller may use in a time span. The rules only; counts, waiting and headers of requests are the
//! service's. Times are given in.
//!
//! A limit is defined by an organization (`definition`, `check`), compiled once (`compiled`), and has buckets that
//! refill continuously (`bucket`, `account`). What a call will use is estimated before it (`estimate`) and settled
//! after it. The requests per minute of a plan are counted in fixed windows (`fixed_window`), because the headers
//! promise them.

mod account;
mod bucket;
mod check;
mod compiled;
mod definition;
mod estimate;
mod fixed_window;
mod headers;
mod lru;
mod policy;
mod queue;

pub use account::{Account, Demand, Floor, Reading, Shortage};
pub use bucket::Bucket;
pub use check::is_valid_class;
pub use compiled::{CallFacts, Limit, LimitSet, MissingSubject};
pub use definition::{Definition, Missing, Mode, Per, Scope, Window};
pub use estimate::{Averages, TokenEstimate, TokenFacts, TokensUsed};
pub use fixed_window::{LimitStatus, window_end, window_of};
pub use headers::{HEADER_NAMES, HeaderWriter, POLICY_HEADER, retry_after};
pub use lru::Lru;
pub use policy::{Policy, Tightest, share_left, tightest as tightest_policies};
pub use queue::{Order, WaitQueue};

use serde::Serialize;

/// Limits that an organization may have.
pub const MAX_LIMITS: usize = 100;
/// The highest number of a limit.
pub const MAX_AMOUNT: u64 = 10_000_000_000;
/// The first that is served among those who wait.
pub const MAX_PRIORITY: u8 = 9;
pub const DEFAULT_PRIORITY: u8 = 5;
/// The longest time that a call waits.
pub const MAX_WAIT_MS: u32 = 30_000;
/// Buckets of one limit that a node keeps.
pub const MAX_BUCKETS: usize = 100_000;

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Requests,
    Tokens,
    InputTokens,
    OutputTokens,
    /// Calls that run at the same time.
    Concurrent,
}

impl Unit {
    /// Those that refill: the first ones.
    pub const REFILLING: [Self; 4] = [Self::Requests, Self::Tokens, Self::InputTokens, Self::OutputTokens];
    /// In the order of their declaration.
    pub const ALL: [Self; 5] =
        [Self::Requests, Self::Tokens, Self::InputTokens, Self::OutputTokens, Self::Concurrent];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::Concurrent => "concurrent",
        }
    }

    pub fn counts_tokens(self) -> bool {
        matches!(self, Self::Tokens | Self::InputTokens | Self::OutputTokens)
    }
}

#[cfg(test)]
mod tests;
