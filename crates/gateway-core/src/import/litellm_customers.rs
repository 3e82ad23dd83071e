//! LiteLLM's customers, which are end users: each budget becomes one of scope `user`.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::litellm_keys::{columns, period};
use super::report::Fate::{Approximate, Exact, Manual};
use super::report::{Known, Report, item, join};
use super::{PlannedUserBudget, Status};
use crate::budget::{MAX_USER_BUDGETS, MAX_USER_BYTES, limit_units};

const CUSTOMER_COLUMNS: &Known = &[
    ("user_id", Exact("is the user of the budget")),
    ("budget_id", Exact("is the budget of the user")),
    ("litellm_budget_table", Approximate("becomes a budget of the user per calendar day, week or month")),
    ("max_budget", Approximate("becomes a budget of the user per calendar day, week or month")),
    ("budget_duration", Approximate("24h and 1d become a calendar day, 7d a week, 30d and 1mo a month")),
    ("blocked", Manual("users are not blocked here; give the user a budget of 0")),
    ("spend", Exact("the spending of users is counted from the first call here")),
    ("alias", Exact("is information that the gateway does not need")),
    ("allowed_model_region", Manual("users are not limited to regions here")),
    ("default_model", Manual("create a named model with a condition on `user`")),
];
const BUDGET_COLUMNS: &Known = &[
    ("budget_id", Exact("customers refer to it")),
    ("max_budget", Approximate("becomes the hard limit of the users' budgets")),
    ("soft_budget", Approximate("becomes the soft limit of the users' budgets")),
    ("budget_duration", Approximate("24h and 1d become a calendar day, 7d a week, 30d and 1mo a month")),
    ("tpm_limit", Manual("limits of one user do not exist; create a limit with `per: user` for all of them")),
    ("rpm_limit", Manual("limits of one user do not exist; create a limit with `per: user` for all of them")),
    (
        "max_parallel_requests",
        Manual("limits of one user do not exist; create a limit with `per: user` for all of them"),
    ),
    ("model_max_budget", Manual("budgets by model are not imported")),
    ("budget_reset_at", Exact("budgets here begin with the calendar day, week or month")),
    ("created_at", Exact("is information that the gateway does not need")),
    ("created_by", Exact("is information that the gateway does not need")),
    ("updated_at", Exact("is information that the gateway does not need")),
    ("updated_by", Exact("is information that the gateway does not need")),
];

/// The budgets of customers. `budgets` has those that they refer to.
pub fn budgets(
    report: &mut Report,
    customers: &[Map<String, Value>],
    budgets: &[Map<String, Value>],
) -> Vec<PlannedUserBudget> {
    columns(report, "customers", customers, CUSTOMER_COLUMNS, None);
    columns(report, "budgets", budgets, BUDGET_COLUMNS, None);
    let by_id: HashMap<&str, &Map<String, Value>> =
        budgets.iter().filter_map(|budget| Some((budget.get("budget_id")?.as_str()?, budget))).collect();
    let mut users = HashSet::new();
    let mut planned = Vec::new();
    for (index, row) in customers.iter().enumerate() {
        let path = item("customers", index);
        let user = row.get("user_id").and_then(Value::as_str).unwrap_or_default();
        if user.is_empty() || user.len() > MAX_USER_BYTES || user == "*" {
            let message = format!("a user has a name of 1 to {MAX_USER_BYTES} bytes; it is left out");
            report.set(&path, Status::Unsupported, message);
            continue;
        }
        let shared = row.get("budget_id").and_then(Value::as_str).and_then(|id| by_id.get(id).copied());
        let nested = row.get("litellm_budget_table").and_then(Value::as_object);
        let budget = budget(report, &path, nested.or(shared).unwrap_or(row), user);
        let Some(budget) = budget.filter(|_| users.insert(user)) else { continue };
        if planned.len() >= usize::try_from(MAX_USER_BUDGETS).unwrap_or(usize::MAX) {
            let message = format!("the budget is left out: there are at most {MAX_USER_BUDGETS} of users");
            report.set(&path, Status::Manual, message);
            continue;
        }
        planned.push(budget);
    }
    planned
}

fn budget(
    report: &mut Report,
    path: &str,
    row: &Map<String, Value>,
    user: &str,
) -> Option<PlannedUserBudget> {
    let hard = report.number(path, row, "max_budget");
    let soft = report.number(path, row, "soft_budget").filter(|usd| *usd > 0.0);
    if hard.is_none() && soft.is_none() {
        return None;
    }
    let Some(period) = period(row) else {
        let message = "budgets are per day, week or month here; create one by hand, or the user has none";
        report.set(&join(path, "budget_duration"), Status::Manual, message);
        return None;
    };
    let are_valid = [hard, soft].into_iter().flatten().all(|usd| limit_units(usd).is_ok());
    if !are_valid || soft.is_some_and(|soft| hard.is_some_and(|hard| soft > hard)) {
        let message = "the budget is left out: at most 1000000000 USD, with a soft limit below the hard one";
        report.set(&join(path, "max_budget"), Status::Manual, message);
        return None;
    }
    let user = user.to_owned();
    Some(PlannedUserBudget { user, period, soft_limit_usd: soft, hard_limit_usd: hard })
}
