//! Budgets: what may be spent in a calendar period (UTC), and what one call may cost at most. Money is whole 1e-12 USD,
//! as everywhere in the log, so that sums are exact.

use std::fmt;
use std::str::FromStr;

use jiff::ToSpan as _;
use jiff::tz::TimeZone;
use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{AppId, BudgetId, KeyId, OrgId, TeamId};
use crate::llm::usage::Usage;
use crate::pricing::{Price, cost};
use crate::time::{Interval, Timestamp, jiff_timestamp};
use crate::totals::cost_units;

/// Bounds where neither the request nor the price table has one.
const UNKNOWN_INPUT: u64 = 200_000;
const UNKNOWN_OUTPUT: u64 = 16_384;
/// The fewest bytes that a token of text has on average: scripts of three bytes a character have about one token each.
const BYTES_PER_TOKEN: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    Daily,
    Weekly,
    Monthly,
}

impl Period {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
        }
    }

    /// The beginning of the period that the time lies in. Weeks begin on Monday.
    pub fn start_of(self, at: Timestamp) -> Timestamp {
        match self {
            Self::Daily => Interval::Day.start_of(at),
            Self::Weekly => Interval::Week.start_of(at),
            Self::Monthly => month(at, 0),
        }
    }

    /// When the period that the time lies in is over.
    pub fn end_of(self, at: Timestamp) -> Timestamp {
        match self {
            Self::Daily => Interval::Day.start_of(at).plus(Interval::Day.length()),
            Self::Weekly => Interval::Week.start_of(at).plus(Interval::Week.length()),
            Self::Monthly => month(at, 1),
        }
    }
}

impl FromStr for Period {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Daily, Self::Weekly, Self::Monthly]
            .into_iter()
            .find(|period| period.as_str() == text)
            .ok_or("no period")
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The first moment of a month, counted from the one that the time lies in.
fn month(at: Timestamp, later: i64) -> Timestamp {
    let first = jiff_timestamp(at).to_zoned(TimeZone::UTC).date().first_of_month();
    let first = first.checked_add(later.months()).unwrap_or(first);
    let zoned = first.to_zoned(TimeZone::UTC);
    zoned.map_or(at, |zoned| Timestamp(zoned.timestamp().as_millisecond()))
}

/// Whose spending is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Org(OrgId),
    Team(TeamId),
    App(AppId),
    Key(KeyId),
}

impl Scope {
    pub fn name(self) -> &'static str {
        match self {
            Self::Org(_) => "org",
            Self::Team(_) => "team",
            Self::App(_) => "app",
            Self::Key(_) => "key",
        }
    }

    pub fn id(self) -> String {
        match self {
            Self::Org(id) => id.to_string(),
            Self::Team(id) => id.to_string(),
            Self::App(id) => id.to_string(),
            Self::Key(id) => id.to_string(),
        }
    }
}

/// Who spends, inside an organization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spender {
    pub key: Option<KeyId>,
    pub app: Option<AppId>,
    pub team: Option<TeamId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    pub id: BudgetId,
    pub scope: Scope,
    /// For a key: itself and those that replaced it by rotation, so that rotating does not escape the budget.
    pub keys: Vec<KeyId>,
    pub period: Period,
    pub soft_limit: Option<i64>,
    pub hard_limit: Option<i64>,
    pub created_at: Timestamp,
}

impl Budget {
    /// Does this one's spending count?
    pub fn covers(&self, spender: &Spender) -> bool {
        match self.scope {
            Scope::Org(_) => true,
            Scope::Team(team) => spender.team == Some(team),
            Scope::App(app) => spender.app == Some(app),
            Scope::Key(_) => spender.key.is_some_and(|key| self.keys.contains(&key)),
        }
    }

    /// The limits that this much has reached.
    pub fn reached(&self, spent: i64) -> impl Iterator<Item = (Kind, i64)> {
        let limits = [(Kind::Warning, self.soft_limit), (Kind::Exceeded, self.hard_limit)];
        let limits = limits.into_iter().filter_map(|(kind, limit)| Some((kind, limit?)));
        limits.filter(move |(_, limit)| spent >= *limit)
    }

    /// May another call begin? While there is any money left that is not spoken for, one may: so what is spent stays
    /// below the limit and one call more, as long as calls cost no more than was reserved for them.
    pub fn allows(&self, spent: i64, reserved: i64) -> bool {
        self.hard_limit.is_none_or(|limit| spent.saturating_add(reserved) < limit)
    }

    /// What is left until the hard limit.
    pub fn remaining(&self, spent: i64) -> Option<i64> {
        self.hard_limit.map(|limit| limit.saturating_sub(spent).max(0))
    }
}

/// Which of the two limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Warning,
    Exceeded,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Exceeded => "exceeded",
        }
    }
}

/// What is known of a call before it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// None when the length of the body is not known.
    pub body_bytes: Option<u64>,
    pub max_tokens: Option<u64>,
    /// How many answers.
    pub answers: Option<u64>,
}

/// The most that a call may cost at this price: every input token in the dearest class of input, every output token in
/// the dearest class of output.
pub fn most(price: &Price, asked: &Asked) -> i64 {
    let input = asked.body_bytes.map_or(UNKNOWN_INPUT, |bytes| bytes.div_ceil(BYTES_PER_TOKEN));
    let input = input.min(price.max_input_tokens.unwrap_or(u64::MAX));
    let most_output = price.max_output_tokens;
    let output = match asked.max_tokens {
        // A limit beyond what the model can do is none.
        Some(limit) => limit.min(most_output.unwrap_or(u64::MAX)),
        None => most_output.unwrap_or(UNKNOWN_OUTPUT),
    };
    let makes_text = !matches!(&*price.mode, "embedding" | "rerank" | "moderation");
    let output =
        if makes_text { output.saturating_mul(asked.answers.unwrap_or(1).clamp(1, 1_024)) } else { 0 };
    let none = Usage::default;
    let inputs = [
        Usage { input, ..none() },
        Usage { cache_write: input, ..none() },
        Usage { cache_write_1h: input, ..none() },
        Usage { audio_input: input, ..none() },
    ];
    let outputs = |usage: &Usage| {
        [
            Usage { output, ..usage.clone() },
            Usage { reasoning: output, ..usage.clone() },
            Usage { audio_output: output, ..usage.clone() },
        ]
    };
    let dearest = inputs.iter().flat_map(outputs).filter_map(|usage| cost(price, &usage)).max();
    cost_units(dearest.unwrap_or(Decimal::ZERO))
}

/// A limit as it was written, in USD.
pub fn limit_units(usd: f64) -> Result<i64, &'static str> {
    let whole = Decimal::try_from(usd).map_err(|_| "must be an amount in USD")?;
    if whole.is_sign_negative() && !whole.is_zero() {
        return Err("must not be negative");
    }
    if whole > Decimal::from(1_000_000) {
        return Err("must be at most 1000000");
    }
    Ok(cost_units(whole))
}

#[cfg(test)]
mod tests;
