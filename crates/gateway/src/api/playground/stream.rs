//! Runs and comparisons as they come: one stream of events for all targets, told apart by their index. A caller that
//! hangs up ends the calls.

use std::sync::Arc;

use bytes::Bytes;
use gateway_core::llm::sse::{EventItem, EventLimits, EventReader};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::runs::{Said, Try, refused, unreadable, whole};
use super::{ResultView, keep};
use crate::api::response::EventStream;
use crate::app::App;
use crate::auth::Identity;
use crate::problem::{ApiResult, Problem};
use crate::proxy::ask::{self, Streaming, Told};

/// Events that may wait for a slow reader before the model is held up.
const WAITING: usize = 64;
/// Of what a model said, this much is kept and shown.
const LONGEST: usize = 4 << 20;

/// Starts every try and answers with the events of all of them.
pub(super) fn begin(app: &Arc<App>, caller: &Identity, tries: Vec<Try>) -> EventStream {
    let (sender, receiver) = mpsc::channel(WAITING);
    for one in tries {
        let (own, caller, sender) = (Arc::clone(app), caller.clone(), sender.clone());
        app.services.tasks.spawn(async move {
            follow(&own, &caller, &one, &Sender { to: sender, index: one.index }).await
        });
    }
    drop(sender);
    let events = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|event: Bytes| (event, receiver))
    });
    EventStream::new(events)
}

struct Sender {
    to: mpsc::Sender<Bytes>,
    index: usize,
}

/// The caller has hung up.
struct Gone;

impl Sender {
    async fn send(&self, event: &str, mut data: Value) -> Result<(), Gone> {
        data["index"] = self.index.into();
        let bytes = Bytes::from(format!("event: {event}\ndata: {data}\n\n"));
        self.to.send(bytes).await.map_err(|_| Gone)
    }
}

/// One try from its first event to its last. Ends without a word when nobody listens any more.
async fn follow(app: &Arc<App>, caller: &Identity, one: &Try, events: &Sender) {
    let target = &one.target;
    let start = json!({
        "id": one.id, "comparison_id": one.comparison, "provider": target.provider, "model": target.model,
    });
    if events.send("start", start).await.is_err() {
        return;
    }
    let told = match listen(app, caller, one, events).await {
        Ok(Some(told)) => Ok(told),
        Ok(None) => return,
        Err(problem) => Err(problem),
    };
    let (name, play) = match told {
        Ok((said, log_id, told)) => ("done", one.answered(app, said, log_id, &told)),
        Err(problem) => ("error", one.failed(app, &problem)),
    };
    // A single run that failed leaves only its log row, as without a stream.
    let is_kept = play.error.is_none() || one.comparison.is_some();
    let view = |play| serde_json::to_value(ResultView::from(play)).unwrap_or_default();
    let ended = if is_kept && let Err(problem) = keep(app, caller, std::slice::from_ref(&play)).await {
        tracing::warn!(error = %problem.message, "a run of the playground could not be kept");
        ("error", json!({"error": {"code": problem.code, "message": problem.message}}))
    } else {
        (name, view(play))
    };
    let _ = events.send(ended.0, ended.1).await;
}

/// Passes the pieces on as they come. None when the caller has hung up.
async fn listen(
    app: &Arc<App>,
    caller: &Identity,
    one: &Try,
    events: &Sender,
) -> ApiResult<Option<(Said, i64, Told)>> {
    let provider = &one.target.provider;
    let Streaming { log_id, status, is_stream, mut body, told } =
        ask::ask_streaming(app, caller, one.question()).await?;
    let broken = |error: String| {
        Problem::new(http::StatusCode::BAD_GATEWAY, "provider_error", format!("{provider}: {error}"))
    };
    let mut said = Said::default();
    let mut read = EventReader::new(EventLimits::READ);
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        if !is_stream || !status.is_success() {
            rest.extend_from_slice(&data[..data.len().min(LONGEST.saturating_sub(rest.len()))]);
            continue;
        }
        let mut pieces = Vec::new();
        read.feed(&data, |item| {
            if let EventItem::Event(event) = item {
                pieces.extend(Piece::read(event.data));
            }
        });
        if !pass_on(pieces, &mut said, events).await.map_err(|error| broken(error.0))? {
            return Ok(None);
        }
    }
    if !status.is_success() {
        return Err(refused(provider, log_id, status, &rest));
    }
    if !is_stream {
        said = whole(&rest).ok_or_else(|| unreadable(provider, log_id))?;
        let text = json!({"content": said.output});
        if !said.output.is_empty() && events.send("delta", text).await.is_err() {
            return Ok(None);
        }
    }
    // The row is made with the last piece.
    drop(body);
    Ok(Some((said, log_id, told.await.unwrap_or_default())))
}

/// The provider said in the middle of its answer that it failed.
struct Failed(String);

async fn pass_on(pieces: Vec<Piece>, said: &mut Said, events: &Sender) -> Result<bool, Failed> {
    for piece in pieces {
        match piece {
            Piece::Error(message) => return Err(Failed(message)),
            Piece::Text { text, finish_reason } => {
                if finish_reason.is_some() {
                    said.finish_reason = finish_reason;
                }
                if text.is_empty() {
                    continue;
                }
                if said.output.len() < LONGEST {
                    said.output.push_str(&text);
                }
                if events.send("delta", json!({"content": text})).await.is_err() {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

enum Piece {
    Text { text: String, finish_reason: Option<String> },
    Error(String),
}

impl Piece {
    fn read(data: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(data).ok()?;
        if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
            let message = error.get("message").and_then(Value::as_str);
            return Some(Self::Error(message.map_or_else(|| error.to_string(), ToOwned::to_owned)));
        }
        let choice = value.pointer("/choices/0")?;
        let text = choice.pointer("/delta/content").and_then(Value::as_str).unwrap_or_default().to_owned();
        let finish_reason = choice.get("finish_reason").and_then(Value::as_str).map(ToOwned::to_owned);
        Some(Self::Text { text, finish_reason })
    }
}
