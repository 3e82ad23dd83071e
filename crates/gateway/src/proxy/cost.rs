//! The cost in the answer, for callers that ask for it by `X-Gateway-Cost: true`: a header of plain answers,
//! `usage.cost` in streams of OpenAI's formats, and a trailer of streams where the caller accepts trailers.

use gateway_core::llm::{BodyFraming, WireFormat};
use gateway_core::totals::{cost_decimal, cost_units};
use http::header::{TE, TRAILER};
use http::{HeaderMap, HeaderName, HeaderValue};
use rust_decimal::Decimal;

use super::attempt::Attempt;
use super::context::RequestContext;
use super::plan::Plan;
use super::record::Record;
use super::response_format::ResponseContent;
use super::upstream::UpstreamResponse;

const NAME: &str = "x-gateway-cost-usd";
const COST: HeaderName = HeaderName::from_static(NAME);

/// The cost as it is shown, with the digits of the log row.
pub fn text(cost: Decimal) -> String {
    cost_decimal(cost_units(cost)).to_string()
}

/// Whether the events of the caller's stream get the cost in their usage.
pub fn is_in_events(plan: &Plan<'_>, format: Option<WireFormat>) -> bool {
    let is_openai = matches!(
        format,
        Some(WireFormat::OpenAiChat | WireFormat::OpenAiCompletions | WireFormat::OpenAiResponses)
    );
    plan.directives.wants_cost && is_openai
}

/// Adds the cost of a response that has arrived as a whole, or announces it for the end of a stream.
pub fn add_header(
    context: RequestContext<'_>,
    attempt: &Attempt<'_>,
    record: &Record,
    response: &mut UpstreamResponse,
) {
    if !attempt.plan.directives.wants_cost {
        return;
    }
    let is_stream = matches!(response.framing, BodyFraming::Sse | BodyFraming::EventStream);
    match &response.content {
        ResponseContent::Buffered(content) => {
            let cost = match &content.meter {
                Some(meter) => record.cost_by(&meter.snapshot()),
                None => record.cost_of(&content.raw, response.framing),
            };
            insert(&mut response.head.headers, cost);
        }
        ResponseContent::Streaming { .. } if is_stream => announce(context, &mut response.head.headers),
        ResponseContent::Streaming { .. } => {}
    }
}

pub fn insert(headers: &mut HeaderMap, cost: Option<Decimal>) {
    if let Some(value) = cost.and_then(|cost| HeaderValue::try_from(text(cost)).ok()) {
        headers.insert(COST, value);
    }
}

/// The trailer with the cost, if the head announced it.
pub fn trailers(cost: Option<Decimal>) -> Option<HeaderMap> {
    let mut trailers = HeaderMap::with_capacity(1);
    insert(&mut trailers, cost);
    (!trailers.is_empty()).then_some(trailers)
}

fn announce(context: RequestContext<'_>, headers: &mut HeaderMap) {
    let accepted = context.head.headers.get_all(TE).iter().filter_map(|value| value.to_str().ok());
    let mut accepted = accepted.flat_map(|value| value.split(',')).map(str::trim);
    if accepted.any(|coding| coding.eq_ignore_ascii_case("trailers")) {
        headers.insert(TRAILER, HeaderValue::from_static(NAME));
    }
}
