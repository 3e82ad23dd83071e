//! Budgets: what an organization, team, application, key or end user may spend in a period. All amounts are integers in units of
//! 1e-12 USD, so that sums are exact.

mod estimate;
pub mod ledger;
mod users;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::ToSpan as _;
use jiff::tz::TimeZone;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{AppId, BudgetId, KeyId, OrgId, TeamId};
use crate::time::{Interval, Timestamp, jiff_timestamp};
pub use estimate::{CostInputs, max_cost};
pub use users::{EVERY_USER, MAX_USER_BYTES, UserBudgets, spending_user, user_scope};

/// An amount in units of 1e-12 USD. The highest limits, and sums of many days, exceed 64 bits.
pub type Amount = i128;

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

    /// The start of the period that contains the time. Weeks start on Monday.
    pub fn start_of(self, at: Timestamp) -> Timestamp {
        match self {
            Self::Daily => Interval::Day.start_of(at),
            Self::Weekly => Interval::Week.start_of(at),
            Self::Monthly => start_of_month(at, 0),
        }
    }

    /// The end of the period that contains the time, exclusive.
    pub fn end_of(self, at: Timestamp) -> Timestamp {
        match self {
            Self::Daily => Interval::Day.start_of(at).plus(Interval::Day.length()),
            Self::Weekly => Interval::Week.start_of(at).plus(Interval::Week.length()),
            Self::Monthly => start_of_month(at, 1),
        }
    }
}

impl FromStr for Period {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Daily, Self::Weekly, Self::Monthly]
            .into_iter()
            .find(|period| period.as_str() == text)
            .ok_or("must be one of daily, weekly, monthly")
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The start of the month that is `offset` months after the month of the given time.
fn start_of_month(at: Timestamp, offset: i64) -> Timestamp {
    let first = jiff_timestamp(at).to_zoned(TimeZone::UTC).date().first_of_month();
    let first = first.checked_add(offset.months()).unwrap_or(first);
    let zoned = first.to_zoned(TimeZone::UTC);
    zoned.map_or(at, |zoned| Timestamp(zoned.timestamp().as_millisecond()))
}

/// Whose spending counts against a budget.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Org(OrgId),
    Team(TeamId),
    App(AppId),
    Key(KeyId),
    /// An end user, or each of them for `EVERY_USER`.
    User(Arc<str>),
}

impl Scope {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Org(_) => "org",
            Self::Team(_) => "team",
            Self::App(_) => "app",
            Self::Key(_) => "key",
            Self::User(_) => "user",
        }
    }

    pub fn id(&self) -> String {
        match self {
            Self::Org(id) => id.to_string(),
            Self::Team(id) => id.to_string(),
            Self::App(id) => id.to_string(),
            Self::Key(id) => id.to_string(),
            Self::User(name) => name.to_string(),
        }
    }
}

/// The key, application and team of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spender {
    pub key: Option<KeyId>,
    pub app: Option<AppId>,
    pub team: Option<TeamId>,
}

/// What a call costs, or what it may cost at most before it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    pub cost: Amount,
    /// The call may have cost more, but there is no price for it.
    pub is_unpriced: bool,
}

impl Charge {
    pub fn priced(cost: Amount) -> Self {
        Self { cost, is_unpriced: false }
    }

    /// No budget counts it.
    pub fn is_nothing(&self) -> bool {
        self.cost <= 0 && !self.is_unpriced
    }
}

/// What a budget does about calls without a price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unpriced {
    /// They are admitted and count nothing.
    #[default]
    Allow,
    /// They are rejected.
    Refuse,
    /// Each counts this amount.
    Flat(Amount),
}

impl Unpriced {
    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Refuse => "refuse",
            Self::Flat(_) => "flat",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    pub id: BudgetId,
    pub scope: Scope,
    /// For a key budget: the key and all keys that replaced it by rotation, so that rotation does not evade the budget.
    pub keys: Vec<KeyId>,
    pub period: Period,
    pub soft_limit: Option<Amount>,
    pub hard_limit: Option<Amount>,
    pub unpriced: Unpriced,
    /// What was spent elsewhere before the budget was created. It counts in the period of its creation.
    pub opening: Amount,
    pub created_at: Timestamp,
}

impl Budget {
    /// What counts in the current period besides the calls of this gateway.
    pub fn opening_at(&self, now: Timestamp) -> Amount {
        let is_first = self.period.start_of(self.created_at) == self.period.start_of(now);
        if is_first { self.opening } else { 0 }
    }

    /// Returns true if the spender's calls count against this budget.
    pub fn covers(&self, spender: &Spender) -> bool {
        match &self.scope {
            // Each user has a ledger, which contains nothing but the budgets and rows of that user.
            Scope::Org(_) | Scope::User(_) => true,
            Scope::Team(team) => spender.team == Some(*team),
            Scope::App(app) => spender.app == Some(*app),
            Scope::Key(_) => spender.key.is_some_and(|key| self.keys.contains(&key)),
        }
    }

    /// What a call counts in this budget.
    pub fn amount_of(&self, charge: Charge) -> Amount {
        self.sum_of(charge.cost, u64::from(charge.is_unpriced))
    }

    /// What calls count in this budget: their known cost, and the number of those without a price.
    pub fn sum_of(&self, cost: Amount, unpriced_calls: u64) -> Amount {
        match self.unpriced {
            Unpriced::Allow | Unpriced::Refuse => cost,
            Unpriced::Flat(flat) => cost.saturating_add(flat.saturating_mul(Amount::from(unpriced_calls))),
        }
    }

    /// The limits that the amount has reached.
    pub fn reached(&self, spent: Amount) -> impl Iterator<Item = (AlertKind, Amount)> {
        let limits = [(AlertKind::Warning, self.soft_limit), (AlertKind::Exceeded, self.hard_limit)];
        let limits = limits.into_iter().filter_map(|(kind, limit)| Some((kind, limit?)));
        limits.filter(move |(_, limit)| spent >= *limit)
    }

    /// Returns true if another call may start, that is while any money is left that is not reserved. Spending therefore
    /// stays below the limit plus one call, provided that no call costs more than was reserved for it.
    pub fn allows(&self, spent: Amount, reserved: Amount) -> bool {
        self.hard_limit.is_none_or(|limit| spent.saturating_add(reserved) < limit)
    }

    /// The amount left below the hard limit.
    pub fn remaining(&self, spent: Amount) -> Option<Amount> {
        self.hard_limit.map(|limit| limit.saturating_sub(spent).max(0))
    }
}

/// Which limit was reached: the soft one or the hard one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlertKind {
    Warning,
    Exceeded,
}

impl AlertKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Exceeded => "exceeded",
        }
    }
}

/// Every proxied request checks all budgets of its organization.
pub const MAX_BUDGETS: i64 = 100;
/// Budgets of named users, and defaults for all users. A request looks up only those of its own user.
pub const MAX_USER_BUDGETS: i64 = 1_000;
/// The highest limit of a budget, in USD.
const MAX_LIMIT_USD: i64 = 1_000_000_000;
/// Limits above 64 bits are stored in coarser units.
const COARSE_UNITS: Amount = 1_000;

/// Converts a limit in USD as given by the user.
pub fn limit_units(usd: f64) -> Result<Amount, &'static str> {
    const WRONG: &str = "must be an amount in USD";
    let whole = Decimal::try_from(usd).map_err(|_| WRONG)?;
    if whole.is_sign_negative() && !whole.is_zero() {
        return Err("must not be negative");
    }
    if whole > Decimal::from(MAX_LIMIT_USD) {
        return Err("must be at most 1000000000");
    }
    let units = whole.checked_mul(Decimal::from(1_000_000_000_000_i64)).ok_or(WRONG)?;
    let units = units.round().to_i128().ok_or(WRONG)?;
    let is_large = i64::try_from(units).is_err();
    Ok(if is_large { units / COARSE_UNITS * COARSE_UNITS } else { units })
}

/// The stored form of a limit: units of 1e-12 USD, and units of 1e-9 USD if those exceed 64 bits.
pub fn limit_columns(limit: Option<Amount>) -> (Option<i64>, Option<i64>) {
    match limit.map(|limit| (limit, i64::try_from(limit))) {
        None => (None, None),
        Some((_, Ok(fine))) => (Some(fine), None),
        Some((limit, Err(_))) => (Some(i64::MAX), i64::try_from(limit / COARSE_UNITS).ok()),
    }
}

/// The limit that the stored form describes.
pub fn limit_from_columns(fine: Option<i64>, coarse: Option<i64>) -> Option<Amount> {
    coarse.map(|coarse| Amount::from(coarse) * COARSE_UNITS).or(fine.map(Amount::from))
}

#[cfg(test)]
mod tests;
