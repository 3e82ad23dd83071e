//! Quotas: how much an organization may have and store, by plan. They bound what one organization costs all others, and
//! are far above what its work needs.

use std::str::FromStr;

use crate::access::{Plan, UnknownName};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quota {
    Keys,
    Providers,
    Prompts,
    Datasets,
    Webhooks,
    Exports,
    /// Named models.
    Models,
    Teams,
    /// Applications.
    Apps,
    Members,
    Evals,
    /// Runs of evals that are kept, until their eval is deleted.
    EvalRuns,
    Skills,
    /// Log rows of a day. Further ones are counted in usage and budgets but not stored.
    RowsPerDay,
    /// Bytes of the bodies of a day's log rows. Further rows are stored without bodies.
    BodyBytesPerDay,
}

impl Quota {
    pub const ALL: [Self; 15] = [
        Self::Keys,
        Self::Providers,
        Self::Prompts,
        Self::Datasets,
        Self::Webhooks,
        Self::Exports,
        Self::Models,
        Self::Teams,
        Self::Apps,
        Self::Members,
        Self::Evals,
        Self::EvalRuns,
        Self::Skills,
        Self::RowsPerDay,
        Self::BodyBytesPerDay,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Providers => "providers",
            Self::Prompts => "prompts",
            Self::Datasets => "datasets",
            Self::Webhooks => "webhooks",
            Self::Exports => "exports",
            Self::Models => "models",
            Self::Teams => "teams",
            Self::Apps => "apps",
            Self::Members => "members",
            Self::Evals => "evals",
            Self::EvalRuns => "eval_runs",
            Self::Skills => "skills",
            Self::RowsPerDay => "rows_per_day",
            Self::BodyBytesPerDay => "body_bytes_per_day",
        }
    }
}

impl FromStr for Quota {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|quota| quota.as_str() == name).ok_or(UnknownName)
    }
}

/// The limits of all plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotas([[u64; Quota::ALL.len()]; 3]);

const GIB: u64 = 1 << 30;

/// Versions of one prompt, skill, dataset or named model. Each stays readable, so only the deletion of all makes room.
pub const MAX_VERSIONS: i64 = 5_000;

/// Keys, providers, prompts and datasets; teams, applications and members; evals, their runs and skills; a million rows
/// and 10 GiB of bodies a day, so many times.
const fn of_plan(basic: [u64; 4], people: [u64; 3], judged: [u64; 3], daily: u64) -> [u64; Quota::ALL.len()] {
    let [keys, providers, prompts, datasets] = basic;
    let [teams, apps, members] = people;
    let [evals, eval_runs, skills] = judged;
    let (webhooks, exports, models) = (100, 100, 2_000);
    let (rows, body_bytes) = (daily * 1_000_000, daily * 10 * GIB);
    [
        keys, providers, prompts, datasets, webhooks, exports, models, teams, apps, members, evals,
        eval_runs, skills, rows, body_bytes,
    ]
}

impl Default for Quotas {
    fn default() -> Self {
        Self([
            of_plan([1_000, 100, 1_000, 1_000], [1_000, 1_000, 1_000], [1_000, 10_000, 1_000], 1),
            of_plan([10_000, 500, 10_000, 10_000], [1_000, 10_000, 10_000], [2_000, 100_000, 10_000], 10),
            of_plan(
                [100_000, 2_000, 100_000, 100_000],
                [10_000, 100_000, 100_000],
                [5_000, 1_000_000, 50_000],
                100,
            ),
        ])
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("PLAN.QUOTA=NUMBER as entry {0}, such as free.keys=50 or pro.rows_per_day=0 (0 means unlimited)")]
pub struct InvalidQuota(usize);

impl Quotas {
    /// The limit of a plan. None is unlimited.
    pub fn limit(&self, plan: Plan, quota: Quota) -> Option<u64> {
        Some(self.0[plan_index(plan)][quota as usize]).filter(|limit| *limit > 0)
    }

    /// The lowest limit of any plan.
    pub fn lowest(&self, quota: Quota) -> Option<u64> {
        Plan::ALL.iter().filter_map(|plan| self.limit(*plan, quota)).min()
    }

    /// The limits with some of them replaced, in the form `free.keys=50, pro.prompts=0`. 0 means unlimited.
    pub fn with_overrides(mut self, text: &str) -> Result<Self, InvalidQuota> {
        for (at, item) in text.split(',').map(str::trim).enumerate().filter(|(_, item)| !item.is_empty()) {
            let (plan, quota, limit) = parse(item).ok_or(InvalidQuota(at + 1))?;
            self.0[plan_index(plan)][quota as usize] = limit;
        }
        Ok(self)
    }
}

fn plan_index(plan: Plan) -> usize {
    match plan {
        Plan::Free => 0,
        Plan::Pro => 1,
        Plan::Enterprise => 2,
    }
}

fn parse(item: &str) -> Option<(Plan, Quota, u64)> {
    let (name, limit) = item.split_once('=')?;
    let (plan, quota) = name.trim().split_once('.')?;
    // Sums and counts are signed in the store.
    let limit = limit.trim().parse().ok().filter(|limit| i64::try_from(*limit).is_ok())?;
    Some((plan.parse().ok()?, quota.parse().ok()?, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_plan_has_no_lower_quota() {
        let quotas = Quotas::default();
        for quota in Quota::ALL {
            let of = |plan| quotas.limit(plan, quota).unwrap();
            assert!(of(Plan::Free) <= of(Plan::Pro) && of(Plan::Pro) <= of(Plan::Enterprise));
            assert_eq!(quotas.lowest(quota), Some(of(Plan::Free)));
            assert_eq!(quota.as_str().parse(), Ok(quota));
        }
    }

    #[test]
    fn the_operator_replaces_some_of_them() {
        let quotas = Quotas::default().with_overrides(" free.keys = 3, pro.rows_per_day=0,").unwrap();
        assert_eq!(quotas.limit(Plan::Free, Quota::Keys), Some(3));
        assert_eq!(quotas.limit(Plan::Pro, Quota::RowsPerDay), None);
        assert_eq!(quotas.limit(Plan::Pro, Quota::Keys), Quotas::default().limit(Plan::Pro, Quota::Keys));
        assert_eq!(Quotas::default().with_overrides("").unwrap(), Quotas::default());
        for bad in
            ["keys=3", "free.webhooks", "free.keys=-1", "free.teapots=1", "basic.keys=1", "free.keys=1e3"]
        {
            let error = Quotas::default().with_overrides(bad).unwrap_err().to_string();
            assert!(error.contains("entry 1") && !error.contains(bad), "{error}");
        }
        let second = Quotas::default().with_overrides("free.keys=1, free.keys=9999999999999999999");
        assert_eq!(second, Err(InvalidQuota(2)));
    }
}
