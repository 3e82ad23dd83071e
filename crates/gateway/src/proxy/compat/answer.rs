//! The answers of requests below `/compat`: the dialect's headers, the cost in the body, and errors within streams.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use gateway_core::compat::{Answer, AnswerFacts, CostPlace, Dialect, StreamErrors};
use gateway_core::llm::sse::{EventEditor, EventLimits};
use gateway_core::llm::usage::with_cost;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use http_body_util::BodyExt as _;

use super::{CompatCall, ForeignRoute};
use crate::auth::Identity;
use crate::memory::hold;
use crate::problem::{ApiResult, Problem};
use crate::proxy::attempt::Attempt;
use crate::proxy::context::RequestContext;
use crate::proxy::headers::{DROPPED, PROVIDER};
use crate::proxy::record::Record;

const COST_USD: &str = "x-gateway-cost-usd";
const LOG_ID: &str = "x-gateway-log-id";
/// Before the names of headers of a provider that the gateway uses itself.
const RENAMED: &str = "x-upstream-";

/// What a call below `/compat` went through, for the headers of its answer.
pub fn note_call(context: RequestContext<'_>, attempt: &Attempt<'_>, record: &Record) -> Option<AnswerFacts> {
    context.head.extensions.get::<ForeignRoute>()?;
    let (retries, fallbacks) = record.attempt_counts();
    let (duration, overhead) = record.durations();
    let option = attempt.plan.option_of(attempt.target);
    Some(AnswerFacts { retries, fallbacks, duration, overhead, option })
}

impl CompatCall {
    /// Completes an answer for the dialect's clients.
    pub async fn complete(&self, response: Response, identity: &Identity) -> ApiResult<Response> {
        let facts = response.extensions().get::<AnswerFacts>().cloned();
        let mut response = self.shape(response, identity).await?;
        self.add_headers(response.headers_mut(), facts.as_ref());
        Ok(response)
    }

    /// Completes the headers of an error.
    pub fn complete_problem(&self, mut problem: Problem) -> Problem {
        let mut headers: HeaderMap = problem.headers.drain(..).collect();
        self.add_headers(&mut headers, None);
        problem.headers = headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect();
        problem
    }

    fn add_headers(&self, headers: &mut HeaderMap, facts: Option<&AnswerFacts>) {
        let added: Vec<(HeaderName, HeaderValue)> = self
            .dialect
            .answers
            .iter()
            .flat_map(|(name, answer)| match answer {
                Answer::OfProvider => of_provider(name, headers),
                answer => self
                    .value(*answer, headers, facts)
                    .map(|value| (HeaderName::from_static(name), value))
                    .into_iter()
                    .collect(),
            })
            .collect();
        for (name, value) in added {
            headers.insert(name, value);
        }
        if self.dropped.is_empty() {
            return;
        }
        let before = headers.get(&DROPPED).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let dropped: Vec<String> = before.into_iter().chain(self.dropped.iter().cloned()).collect();
        if let Ok(value) = HeaderValue::try_from(dropped.join(", ")) {
            headers.insert(DROPPED, value);
        }
    }

    fn value(&self, answer: Answer, headers: &HeaderMap, facts: Option<&AnswerFacts>) -> Option<HeaderValue> {
        match answer {
            Answer::Header(ours) => headers.get(ours).cloned(),
            Answer::HeaderOr(ours, other) => {
                Some(headers.get(ours).cloned().unwrap_or(HeaderValue::from_static(other)))
            }
            Answer::Echo(given, ours) => {
                let given = self.head.value(given).and_then(|given| HeaderValue::from_str(given).ok());
                given.or_else(|| headers.get(ours).cloned())
            }
            Answer::Requested => HeaderValue::from_str(self.requested.as_deref()?).ok(),
            answer => HeaderValue::from_str(&facts?.value(answer)?).ok(),
        }
    }

    /// Changes the body where the dialect's clients expect another one.
    async fn shape(&self, response: Response, identity: &Identity) -> ApiResult<Response> {
        let headers = response.headers();
        if text_of(headers, CONTENT_TYPE.as_str()).starts_with("text/event-stream") {
            return Ok(self.shape_stream(response));
        }
        let cost = text_of(headers, COST_USD).to_owned();
        if self.dialect.cost == CostPlace::Usage && !cost.is_empty() {
            return add_cost(response, cost, identity).await;
        }
        Ok(response)
    }

    fn shape_stream(&self, response: Response) -> Response {
        if self.dialect.stream_errors == StreamErrors::OfFormat {
            return response;
        }
        let provider = text_of(response.headers(), PROVIDER.as_str()).to_owned();
        let id = text_of(response.headers(), LOG_ID).to_owned();
        let (dialect, editor) = (self.dialect, EventEditor::new(EventLimits::READ));
        response.map(|inner| {
            let (trailers, is_finished) = (None, false);
            Body::new(ShapedStream { inner, dialect, provider, id, editor, trailers, is_finished })
        })
    }
}

fn text_of<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The provider's headers, with a prefix. Those of the gateway are left out.
fn of_provider(prefix: &str, headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    const OWN: [&str; 5] =
        ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "server-timing", "x-request-id"];
    let is_own = |name: &str| name.starts_with("x-gateway-") || OWN.contains(&name);
    let prefixed = |(name, value): (&HeaderName, &HeaderValue)| {
        let name = name.as_str();
        let name = format!("{prefix}{}", name.strip_prefix(RENAMED).unwrap_or(name));
        Some((HeaderName::try_from(name).ok()?, value.clone()))
    };
    headers.iter().filter(|(name, _)| !is_own(name.as_str())).filter_map(prefixed).collect()
}

/// Adds the cost to the usage of a body, which has arrived as a whole if its cost is known.
async fn add_cost(response: Response, cost: String, identity: &Identity) -> ApiResult<Response> {
    let (mut head, body) = response.into_parts();
    let body = body.collect().await.map_err(Problem::internal)?.to_bytes();
    let Some(edited) = with_cost(&body, || Some(cost)) else {
        return Ok(Response::from_parts(head, Body::from(body)));
    };
    let memory = identity.org.memory.reserve(edited.len())?;
    head.headers.insert(CONTENT_LENGTH, edited.len().into());
    Ok(Response::from_parts(head, Body::from(hold(edited, memory))))
}

/// A stream whose errors have the shape of the dialect.
struct ShapedStream {
    inner: Body,
    dialect: &'static Dialect,
    provider: String,
    id: String,
    editor: EventEditor,
    /// They follow the rest of the data.
    trailers: Option<Frame<Bytes>>,
    is_finished: bool,
}

impl http_body::Body for ShapedStream {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        loop {
            if let Some(trailers) = this.trailers.take() {
                return Poll::Ready(Some(Ok(trailers)));
            }
            if this.is_finished {
                return Poll::Ready(None);
            }
            let edit = |data: &[u8]| this.dialect.stream_error(data, &this.provider, &this.id);
            let polled = match Pin::new(&mut this.inner).poll_frame(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(polled) => polled,
            };
            let edited = match polled {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.editor.feed(&data, edit),
                    Err(trailers) => {
                        this.trailers = Some(trailers);
                        this.editor.finish(edit)
                    }
                },
                Some(Err(error)) => {
                    this.is_finished = true;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    this.is_finished = true;
                    this.editor.finish(edit)
                }
            };
            if !edited.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(edited.into()))));
            }
        }
    }
}
