//! Budgets as a stage of the proxy: reserves the highest possible cost of a call before it is made. The record commits
//! the real cost when the call has ended.

use std::sync::Arc;

use gateway_core::budget::{CostInputs, max_cost};
use gateway_core::totals::cost_decimal;
use http::{HeaderName, HeaderValue, StatusCode};

use super::body::Inbound;
use super::call::Call;
use crate::app::App;
use crate::auth::Identity;
use crate::budgets::{BudgetExceeded, Reservation};
use crate::problem::{ApiResult, Problem};

const REMAINING: HeaderName = HeaderName::from_static("x-gateway-budget-remaining");

/// Returns `None` if no budget covers the caller.
pub async fn reserve(
    app: &Arc<App>,
    identity: &Identity,
    call: &Call,
    inbound: &Inbound,
) -> ApiResult<Option<Reservation>> {
    let Some(org) = &identity.org.budgets else { return Ok(None) };
    let inputs =
        CostInputs { body_bytes: inbound.total(), max_tokens: call.max_tokens, choices: call.answers };
    // The most expensive of all targets that may be tried. Models without a price cannot be counted.
    let prices = call.targets.iter().filter_map(|target| {
        let model = target.model.as_deref().or(call.body_model.as_deref())?;
        app.proxy.prices.find(target.target.kind.name, model)
    });
    let amount = prices.map(|price| max_cost(price, &inputs)).max().unwrap_or(0);
    let reserved = app.proxy.budgets.reserve(org, identity.spender(), amount).await;
    reserved.map_err(|exceeded| problem(&exceeded))
}

/// The header with what is left, in USD.
pub fn remaining_header(units: i64) -> (HeaderName, HeaderValue) {
    let text = cost_decimal(units).to_string();
    (REMAINING, HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("0")))
}

fn problem(exceeded: &BudgetExceeded) -> Problem {
    let BudgetExceeded { budget, resets_at, is_reserved } = exceeded;
    let (period, scope) = (budget.period, budget.scope.name());
    let message = match is_reserved {
        false => format!("the {period} budget of the {scope} is exhausted; it resets at {resets_at}"),
        true => format!(
            "the rest of the {period} budget of the {scope} is reserved for running requests; retry when they end"
        ),
    };
    let mut problem = Problem::new(StatusCode::FORBIDDEN, "budget_exceeded", message);
    problem.extra.insert("budget_id".into(), budget.id.to_string().into());
    problem.extra.insert("resets_at".into(), resets_at.to_string().into());
    problem.headers.push(remaining_header(0));
    problem
}
