//! The exchange with the server of a call: its messages until the answer, and its questions to the caller.

use std::sync::PoisonError;
use std::time::Duration;

use gateway_core::mcp::{
    Incoming, MAX_TIMEOUT_MS, Members, RequestId, RpcError, for_legacy_server, for_modern_server, raw,
    response_text,
};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Call;
use crate::mcp::catalogue::modern_headers;
use crate::mcp::reply::Output;
use crate::mcp::session::{UpstreamSession, client_info};
use crate::mcp::upstream::{Failure, FailureKind, Peer, ProtocolHeaders, notification_text, request_text};
use crate::memory::Reservation;

/// Marks the ids of questions that servers ask callers.
const QUESTION: &str = "gw:";

/// A request that a server with sessions has got.
pub struct Sent {
    pub id: RequestId,
    pub protocol: ProtocolHeaders,
}

/// The answer of a server, with the memory that it takes.
pub type Answer = (Result<Box<RawValue>, RpcError>, Reservation);

/// The server and its own id of a question that the caller answers.
pub fn question_of(id: &RequestId) -> Option<(String, RequestId)> {
    let text: String = serde_json::from_str(id.json()).ok()?;
    let (server, own) = text.strip_prefix(QUESTION)?.split_once(':')?;
    Some((server.to_owned(), RequestId::parse(own)?))
}

/// A question of a server as the caller gets it.
pub fn question_text(server: &str, id: &RequestId, (method, params): (&str, &Members)) -> Option<String> {
    let own = RequestId::from_text(&format!("{QUESTION}{server}:{}", id.json()))?;
    Some(request_text(&own, method, params))
}

impl Call {
    /// Sends the request and reads until its answer. `session` is `None` for a server without sessions of 2026-07-28.
    pub(super) async fn exchange(
        &self,
        peer: &Peer<'_>,
        session: Option<&UpstreamSession>,
        output: &mpsc::Sender<Output>,
    ) -> Result<Answer, Failure> {
        let mut params = self.params.clone();
        if let Some(state) = params.text("requestState") {
            let Some(state) = self.mcp.open_state(&self.state_context(), &state) else {
                let why = "Invalid requestState: it is not of this request, or too old";
                return Ok((Err(RpcError::invalid_params(why)), peer.memory.open()));
            };
            params.set("requestState", &state);
        }
        let (params, mut protocol) = if let Some(session) = session {
            (for_legacy_server(params), session.headers())
        } else {
            let mut client = self.context.client.clone();
            client.info = client_info(&client);
            let mut headers = modern_headers(&self.method, self.name.as_deref());
            headers.others.extend(self.argument_headers.iter().cloned());
            (for_modern_server(params, &client), headers)
        };
        let id = self.upstream_id();
        if session.is_some() {
            let sent = Sent { id: id.clone(), protocol: protocol.clone() };
            *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = Some(sent);
        }
        let message = request_text(&id, &self.method, &params);
        drop(params);
        let timeout = self.server.timeout();
        let started = Instant::now();
        self.mark_sent(true);
        let mut exchange = peer.post(message, &protocol, timeout).await?;
        protocol.endpoint = exchange.endpoint.clone();
        let last = started + Duration::from_millis(MAX_TIMEOUT_MS);
        let mut deadline = started + timeout;
        loop {
            let timed_out = |_| {
                let message = format!("no answer within {} ms", timeout.as_millis());
                Failure::new(FailureKind::Timeout, message)
            };
            let next = tokio::time::timeout_at(deadline, exchange.next()).await.map_err(timed_out)??;
            match next {
                Some(Incoming::Response { outcome, .. }) => return Ok((outcome, exchange.into_memory())),
                Some(Incoming::Notification { method, params }) => {
                    if method == "notifications/progress" {
                        deadline = (Instant::now() + timeout).min(last);
                    }
                    self.notify(&method, &params, output).await;
                }
                Some(Incoming::Request { id, method, params }) => {
                    let asked = self.ask(peer, &protocol, (id, &method, &params), output);
                    tokio::time::timeout_at(deadline, asked).await.map_err(timed_out)?;
                }
                None => {
                    let message = "the server ended its answer without a result";
                    return Err(Failure::new(FailureKind::Invalid, message));
                }
            }
        }
    }

    /// A caller with a session of its own has the same ids in it, so that any node can pass a cancellation on.
    fn upstream_id(&self) -> RequestId {
        let has_own =
            self.context.session.as_ref().is_some_and(|own| own.servers.contains_key(&*self.server.name));
        let fresh = || RequestId::from_text(&format!("gw-{}", self.mcp.services.ids.next_row_id()));
        if has_own { self.id.clone() } else { fresh().unwrap_or_else(|| self.id.clone()) }
    }

    /// Passes on what belongs to the request, and notes that lists have changed.
    async fn notify(&self, method: &str, params: &Members, output: &mpsc::Sender<Output>) {
        match method {
            "notifications/progress" | "notifications/message" => {
                let text = notification_text(method, params);
                // Without memory for it the caller misses it.
                if let Ok(memory) = self.context.identity.org.memory.reserve(text.len()) {
                    let _ = output.send(Output::Message(text, memory)).await;
                }
            }
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => {
                self.mcp.mark_outdated(&self.context.catalogue_request(&self.server));
            }
            _ => {}
        }
    }

    /// A question of the server. It is asked only if the caller's own session with the server invited it; otherwise the
    /// server is told at once that nobody answers.
    async fn ask(
        &self,
        peer: &Peer<'_>,
        protocol: &ProtocolHeaders,
        (id, method, params): (RequestId, &str, &Members),
        output: &mpsc::Sender<Output>,
    ) {
        let has_own =
            self.context.session.as_ref().is_some_and(|own| own.servers.contains_key(&*self.server.name));
        let answer = match method {
            "ping" => Ok(raw(&json!({}))),
            _ if has_own && !self.context.era.is_modern() => {
                let Some(question) = question_text(&self.server.name, &id, (method, params)) else { return };
                match self.context.identity.org.memory.reserve(question.len()) {
                    Ok(memory) => {
                        let _ = output.send(Output::Message(question, memory)).await;
                        return;
                    }
                    Err(exhausted) => Err(RpcError::internal(Failure::from(exhausted).message)),
                }
            }
            _ => Err(RpcError::method_not_found(method)),
        };
        let message = response_text(Some(&id), &answer);
        let _ = peer.post(message, protocol, self.server.timeout()).await;
    }
}
