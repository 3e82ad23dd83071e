//! The budget stage: reserves what a request may cost at most in every budget that covers it. The record commits the
//! real cost when the request has ended.

use gateway_core::budget::{Amount, Charge, CostInputs, max_cost};
use gateway_core::llm::paths::Operation;
use gateway_core::totals::cost_decimal;
use http::{HeaderName, HeaderValue, StatusCode};

use super::context::RequestContext;
use super::inbound::Inbound;
use super::plan::Plan;
use crate::budgets::{BudgetExceeded, Refused, Reservation};
use crate::problem::{ApiResult, Problem};

const REMAINING: HeaderName = HeaderName::from_static("x-gateway-budget-remaining");

/// None if no budget covers the caller.
pub async fn reserve(
    context: RequestContext<'_>,
    plan: &Plan<'_>,
    inbound: &Inbound,
) -> ApiResult<Option<Reservation>> {
    let RequestContext { state, identity, .. } = context;
    let Some(budgets) = &identity.org.budgets else { return Ok(None) };
    let prices = plan.targets.iter().map(|target| plan.price(context, target));
    // The most expensive target counts.
    let costs = plan.targets.iter().filter_map(|target| {
        let (max_tokens, choices) = (plan.facts.max_tokens, plan.facts.choices);
        let inputs = CostInputs {
            body_bytes: inbound.total_length(),
            max_tokens: target.edits().map_or(max_tokens, |edits| edits.max_tokens(max_tokens)),
            choices: target.edits().map_or(choices, |edits| edits.choices(choices)),
        };
        Some(max_cost(plan.price(context, target)?, &inputs))
    });
    let cost = costs.max().unwrap_or(0);
    let is_unpriced = match plan.directives.operation {
        Operation::Models => false,
        Operation::Other => Operation::Other.is_unmetered(context.head.method.as_str()),
        _ => prices.clone().any(|price| price.is_none()),
    };
    let charge = Charge { cost: cost.into(), is_unpriced };
    let user = plan.end_user(identity);
    let reserved = state.budgets.reserve(budgets, identity.spender(), user.as_deref(), charge).await;
    reserved.map_err(refused)
}

/// In the error of a budget whose rest is reserved for running requests: it may have some left when they end.
const RESERVED: &str = "reserved";

/// Whether a request was refused by a budget that is used up only for now.
pub fn is_reserved(problem: &Problem) -> bool {
    problem.extra.get(RESERVED).is_some_and(|value| value == true)
}

/// Why nothing was reserved, as the caller reads it.
pub fn refused(refused: Refused) -> Problem {
    match refused {
        Refused::Exceeded(exceeded) => problem(&exceeded),
        Refused::Unread(unread) => unread.into(),
    }
}

/// The header with the remaining amount in USD.
pub fn remaining_header(units: Amount) -> (HeaderName, HeaderValue) {
    let text = cost_decimal(units).to_string();
    (REMAINING, HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("0")))
}

fn problem(exceeded: &BudgetExceeded) -> Problem {
    let BudgetExceeded { budget, resets_at, is_reserved, is_unpriced } = exceeded;
    let (period, scope) = (budget.period, budget.scope.name());
    if *is_unpriced {
        let message = format!(
            "the cost of this request is not known, and the {period} budget of the {scope} refuses such requests; \
             use a model with a price, or ask an admin to change `unpriced` of the budget"
        );
        let mut problem = Problem::new(StatusCode::FORBIDDEN, "unpriced", message);
        problem.extra.insert("budget_id".into(), budget.id.to_string().into());
        return problem;
    }
    let message = match is_reserved {
        false => format!("the {period} budget of the {scope} is exhausted; it resets at {resets_at}"),
        true => format!(
            "the rest of the {period} budget of the {scope} is reserved for running requests; retry when they end"
        ),
    };
    let mut problem = Problem::new(StatusCode::FORBIDDEN, "budget_exceeded", message);
    problem.extra.insert("budget_id".into(), budget.id.to_string().into());
    problem.extra.insert("resets_at".into(), resets_at.to_string().into());
    if *is_reserved {
        problem.extra.insert(RESERVED.into(), true.into());
    }
    problem.headers.push(remaining_header(0));
    problem
}
