//! Budgets as a stage of the proxy: what a call may cost is held before it is made, in every budget that it counts
//! against; the record settles it when the call has ended.

use std::sync::Arc;

use gateway_core::budget::{Asked, most};
use gateway_core::totals::cost_decimal;
use http::{HeaderName, HeaderValue, StatusCode};

use super::body::Inbound;
use super::call::Call;
use crate::app::App;
use crate::auth::Identity;
use crate::budgets::{self, Refused, Reservation};
use crate::problem::{ApiResult, Problem};

const REMAINING: HeaderName = HeaderName::from_static("x-gateway-budget-remaining");

/// None when no budget covers the caller.
pub async fn reserve(
    app: &Arc<App>,
    identity: &Identity,
    call: &Call,
    inbound: &Inbound,
) -> ApiResult<Option<Reservation>> {
    let Some(budgets) = &identity.org.budgets else { return Ok(None) };
    let asked = Asked { body_bytes: inbound.total(), max_tokens: call.max_tokens, answers: call.answers };
    // Wherever the request may go, at the dearest; what has no price cannot be counted.
    let prices = call.targets.iter().filter_map(|hop| {
        let model = hop.model.as_deref().or(call.body_model.as_deref())?;
        app.proxy.prices.find(hop.target.kind.name, model)
    });
    let amount = prices.map(|price| most(price, &asked)).max().unwrap_or(0);
    budgets::hold(app, budgets, identity.spender(), amount).await.map_err(|refused| exceeded(&refused))
}

/// What is left, in USD.
pub fn remaining_header(units: i64) -> (HeaderName, HeaderValue) {
    let text = cost_decimal(units).to_string();
    (REMAINING, HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("0")))
}

fn exceeded(refused: &Refused) -> Problem {
    let Refused { budget, resets_at, is_held } = refused;
    let (period, scope) = (budget.period, budget.scope.name());
    let message = match is_held {
        false => format!("the {period} budget of the {scope} is spent; it resets at {resets_at}"),
        true => format!(
            "what is left of the {period} budget of the {scope} is held for requests under way; try again when they end"
        ),
    };
    let mut problem = Problem::new(StatusCode::FORBIDDEN, "budget_exceeded", message);
    problem.extra.insert("budget_id".into(), budget.id.to_string().into());
    problem.extra.insert("resets_at".into(), resets_at.to_string().into());
    problem.headers.push(remaining_header(0));
    problem
}
