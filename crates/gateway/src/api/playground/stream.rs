//! Streamed runs and comparisons: one stream of events for all targets, each event with the index of its target. The
//! calls end when the client disconnects.

use std::sync::Arc;

use bytes::Bytes;
use gateway_core::json::append_member;
use gateway_core::llm::sse::{EventItem, EventLimits, EventReader};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::runs::{
    Completion, MAX_OUTPUT_BYTES, ModelRun, error_response, invalid_response, parse_completion,
};
use super::{ResultView, store};
use crate::api::response::EventStream;
use crate::app::App;
use crate::auth::Identity;
use crate::internal_call::{CallSummary, StreamingResponse};
use crate::memory::HeldBuffer;
use crate::problem::{ApiResult, Problem};

/// Events that are buffered for a slow client before reading from the provider pauses.
const MAX_BUFFERED_EVENTS: usize = 64;

/// Starts all runs and returns the stream of their events.
pub(super) fn start(app: &Arc<App>, caller: &Identity, runs: Vec<ModelRun>) -> EventStream {
    let (sender, receiver) = mpsc::channel(MAX_BUFFERED_EVENTS);
    for run in runs {
        let (own, caller, sender) = (Arc::clone(app), caller.clone(), sender.clone());
        app.services.tasks.spawn(async move {
            let events = EventSender { sender, index: run.index };
            execute_streamed(&own, &caller, &run, &events).await;
        });
    }
    drop(sender);
    let events = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|event: Bytes| (event, receiver))
    });
    EventStream::new(events)
}

/// Sends the events of one run.
struct EventSender {
    sender: mpsc::Sender<Bytes>,
    index: usize,
}

struct ClientDisconnected;

impl EventSender {
    /// Sends an event whose data is an object.
    async fn send(&self, event: &str, data: &impl Serialize) -> Result<(), ClientDisconnected> {
        let mut data = serde_json::to_string(data).unwrap_or_default();
        append_member(&mut data, "index", &self.index.to_string());
        let bytes = Bytes::from(format!("event: {event}\ndata: {data}\n\n"));
        self.sender.send(bytes).await.map_err(|_| ClientDisconnected)
    }
}

/// Executes one run and sends its events. Stops when the client disconnects.
async fn execute_streamed(app: &Arc<App>, caller: &Identity, run: &ModelRun, events: &EventSender) {
    let target = &run.target;
    let start = json!({
        "id": run.id, "comparison_id": run.comparison, "provider": target.provider, "model": target.model,
    });
    if events.send("start", &start).await.is_err() {
        return;
    }
    // A silent provider sends nothing that could fail, so the end of the receiver must be noticed by itself.
    let streamed = tokio::select! {
        streamed = stream_completion(app, caller, run, events) => streamed,
        () = events.sender.closed() => return,
    };
    let completed = match streamed {
        Ok(Some(completed)) => Ok(completed),
        Ok(None) => return,
        Err(problem) => Err(problem),
    };
    let (name, result) = match completed {
        Ok((completion, log_id, summary)) => ("done", run.completed(app, completion, log_id, &summary)),
        Err(problem) => ("error", run.failed(app, &problem)),
    };
    // A failed single run is not stored; its log row remains, as without a stream.
    let is_stored = result.error.is_none() || run.comparison.is_some();
    if is_stored && let Err(problem) = store(app, caller, std::slice::from_ref(&result)).await {
        tracing::warn!(error = %problem.message, "cannot store a playground run");
        let error = json!({"error": {"code": problem.code, "message": problem.message}});
        let _ = events.send("error", &error).await;
        return;
    }
    let _ = events.send(name, &ResultView::from(result)).await;
}

/// Forwards text and pieces of tool calls as they arrive. Returns `None` when the client has disconnected.
async fn stream_completion(
    app: &Arc<App>,
    caller: &Identity,
    run: &ModelRun,
    events: &EventSender,
) -> ApiResult<Option<(Completion, i64, CallSummary)>> {
    let provider = &run.target.provider;
    let StreamingResponse { log_id, status, is_stream, mut body, summary } =
        app.models.stream_model(caller, run.request()).await?;
    let provider_error = |error: String| {
        Problem::new(http::StatusCode::BAD_GATEWAY, "provider_error", format!("{provider}: {error}"))
    };
    let mut completion = Completion::default();
    let mut reader = EventReader::new(EventLimits::READ);
    let mut rest = HeldBuffer::new(caller.org.memory.open());
    let mut held = caller.org.memory.open();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| provider_error(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        if !is_stream || !status.is_success() {
            rest.append(&data[..data.len().min(MAX_OUTPUT_BYTES.saturating_sub(rest.len()))])?;
            continue;
        }
        held.resize(completion.output.len().min(MAX_OUTPUT_BYTES) + completion.tool_call_bytes + data.len())?;
        let mut chunks = Vec::new();
        reader.feed(&data, |item| {
            if let EventItem::Event(event) = item {
                chunks.extend(StreamChunk::parse(event.data));
            }
        });
        if !forward(chunks, &mut completion, events).await.map_err(|error| provider_error(error.0))? {
            return Ok(None);
        }
    }
    if !status.is_success() {
        return Err(error_response(provider, log_id, status, rest.as_slice()));
    }
    if !is_stream {
        completion = parse_completion(rest.as_slice()).ok_or_else(|| invalid_response(provider, log_id))?;
        let text = json!({"content": completion.output});
        if !completion.output.is_empty() && events.send("delta", &text).await.is_err() {
            return Ok(None);
        }
    }
    completion.finish();
    // Dropping the body closes the log record, which then reports usage and cost.
    drop(body);
    Ok(Some((completion, log_id, summary.await.unwrap_or_default())))
}

/// An error that the provider sent within its stream.
struct InBandError(String);

/// Appends the chunks to the completion and sends them. Returns false when the client has disconnected.
async fn forward(
    chunks: Vec<StreamChunk>,
    completion: &mut Completion,
    events: &EventSender,
) -> Result<bool, InBandError> {
    for chunk in chunks {
        match chunk {
            StreamChunk::Error(message) => return Err(InBandError(message)),
            StreamChunk::Delta { text, tool_calls, bytes, finish_reason } => {
                let mut delta = json!({"content": text});
                if !tool_calls.is_empty() {
                    delta["tool_calls"] = json!(tool_calls);
                }
                let is_empty = text.is_empty() && tool_calls.is_empty();
                completion.add_tool_calls(tool_calls, bytes);
                if finish_reason.is_some() {
                    completion.finish_reason = finish_reason;
                }
                if is_empty {
                    continue;
                }
                if completion.output.len() < MAX_OUTPUT_BYTES {
                    completion.output.push_str(&text);
                }
                if events.send("delta", &delta).await.is_err() {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

enum StreamChunk {
    /// `bytes` is the size of the chunk.
    Delta {
        text: String,
        tool_calls: Vec<Value>,
        bytes: usize,
        finish_reason: Option<String>,
    },
    Error(String),
}

impl StreamChunk {
    fn parse(data: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(data).ok()?;
        if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
            let message = error.get("message").and_then(Value::as_str);
            return Some(Self::Error(message.map_or_else(|| error.to_string(), ToOwned::to_owned)));
        }
        let choice = value.pointer("/choices/0")?;
        let text = choice.pointer("/delta/content").and_then(Value::as_str).unwrap_or_default().to_owned();
        let finish_reason = choice.get("finish_reason").and_then(Value::as_str).map(ToOwned::to_owned);
        let tool_calls = choice.pointer("/delta/tool_calls").and_then(Value::as_array).cloned();
        let tool_calls = tool_calls.unwrap_or_default();
        Some(Self::Delta { text, tool_calls, bytes: data.len(), finish_reason })
    }
}
