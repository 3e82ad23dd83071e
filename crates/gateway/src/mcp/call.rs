//! Calls: what a caller asks of one server is resolved, sent on in the revision of the server, and answered. Calls are
//! never sent twice.

mod exchange;
mod resolve;
mod running;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::response::Response;
use futures_util::future::join_all;
use gateway_core::mcp::{
    ClientFacts, Members, RequestId, RpcError, codes, is_input_required, raw, refused_input, response_text,
    result_for, scoped_result,
};
use gateway_core::memory::shallow_tree_bytes;
use gateway_store::connection_shares::on_behalf_of;
use gateway_store::fair_slots::Slot;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::Mcp;
use super::catalogue::Catalogue;
use super::record::{Logged, Record, Subject};
use super::reply::{Outcome, Output, json, of_call};
use super::serve::Context;
use super::session::{UpstreamSession, initialize};
use super::upstream::{Failure, FailureKind, Peer, ProtocolHeaders, SESSION_ID, notification_text, work};
use crate::calls_in_progress::CallInProgress;
use crate::mcp_servers::Server;
use crate::problem::{ApiResult, Problem};
pub use exchange::question_text;
use exchange::{Answer, Sent};
pub use resolve::check_arguments;
use running::CallName;
pub use running::Running;

/// Messages that wait for a slow caller before the server is read no further.
const MAX_WAITING: usize = 32;
const SLOT_WAIT: Duration = Duration::from_secs(5);
/// The members of a result and the items of its content. What is deeper stays text.
const RESULT_DEPTH: usize = 2;
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// The name under which requests are marked in the sealed state of a question.
const STATE_LIFE_MS: i64 = 10 * 60_000;

/// A call that was resolved to one server.
pub struct Call {
    mcp: Arc<Mcp>,
    context: Context,
    server: Arc<Server>,
    catalogue: Arc<Catalogue>,
    id: RequestId,
    method: String,
    /// In the server's own names.
    params: Members,
    /// The tool, prompt or URI, as the server names it.
    name: Option<String>,
    /// Headers that repeat arguments.
    argument_headers: Vec<(http::HeaderName, http::HeaderValue)>,
    /// What was sent to the server, so that it can be cancelled.
    sent: Mutex<Option<Sent>>,
    record: Option<Record>,
}

/// The result of a server as the caller gets it.
enum Shaped {
    Result(Box<RawValue>, Logged),
    /// The server asks for more.
    Question(Option<Members>),
}

/// One of the MCP calls that an organization may have at the same time, which is also one of its calls in progress.
pub struct CallSlot {
    _slot: Slot,
    _call: CallInProgress,
}

impl Mcp {
    pub(super) async fn call(
        self: &Arc<Self>,
        context: Context,
        id: RequestId,
        method: &str,
        params: Members,
    ) -> ApiResult<Response> {
        let era = context.era;
        let asked = params.text("name").or_else(|| params.text("uri"));
        let resolved = self.resolve(&context, method, params).await;
        let mut call = match resolved {
            Ok(resolved) if resolved.is_subscription_of_older_client(&context, method) => {
                let is_wanted = method == "resources/subscribe";
                let outcome = self.change_subscription(&context, resolved.server(), (asked, is_wanted));
                return Ok(json(Some(&id), era, &outcome));
            }
            Ok(resolved) => resolved.into_call(self, context, id.clone(), method),
            Err(outcome) => {
                self.record_refused(&context, method, asked.as_deref(), &outcome).await?;
                return Ok(json(Some(&id), era, &outcome));
            }
        };
        let slot = self.call_slot(&call.context).await?;
        let Call { server, name, params, .. } = &call;
        let price = name.as_ref().filter(|_| method == "tools/call").and_then(|name| server.price(name));
        let subject = Subject { server: &server.name, price, method, name: name.as_deref(), params };
        call.record = Record::open(self, &call.context, subject).await?;
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let org = call.context.identity.org.id;
        self.services.tasks.spawn(on_behalf_of(org, async move {
            call.run(sender).await;
            drop(slot);
        }));
        Ok(of_call(id, era, receiver).await)
    }

    /// One of the calls that an organization may have at the same time.
    pub(super) async fn call_slot(&self, context: &Context) -> ApiResult<CallSlot> {
        let slot = self.calls.acquire(context.identity.org.id, Some(SLOT_WAIT)).await;
        let slot = slot.map_err(|_| {
            Problem::overloaded("too many MCP calls of this organization are in progress; try again shortly")
        })?;
        Ok(CallSlot { _slot: slot, _call: context.identity.org.calls.begin()? })
    }

    /// The row of a call that reached no server: what it names does not exist for the caller, or the server is down.
    async fn record_refused(
        self: &Arc<Self>,
        context: &Context,
        method: &str,
        asked: Option<&str>,
        outcome: &Outcome,
    ) -> ApiResult<()> {
        let server = asked.and_then(|asked| Self::server_named(context, method, asked));
        let server = server.map(|server| server.name.to_string()).unwrap_or_default();
        let mut params = Members::default();
        if let Some(asked) = asked {
            params.set(if matches!(method, "tools/call" | "prompts/get") { "name" } else { "uri" }, &asked);
        }
        let subject = Subject { server: &server, price: None, method, name: asked, params: &params };
        if let Some(mut record) = Record::open(self, context, subject).await? {
            record.close(outcome);
        }
        Ok(())
    }

    /// Cancels a call that the caller names: one that runs on this node, or else by the sessions with its servers.
    pub(super) async fn cancel(self: &Arc<Self>, context: &Context, params: &Members) {
        let Some(id) = params.get("requestId") else { return };
        if self.running.cancel(&call_name(context, id.get())) {
            return;
        }
        let Some(session) = &context.session else { return };
        let told = session.servers.iter().filter_map(|(name, session)| {
            let server = context.server(name)?;
            Some(async move {
                let message = notification_text("notifications/cancelled", params);
                self.tell(context, server, &session.headers(), message).await;
            })
        });
        join_all(told).await;
    }

    /// Passes the answer to a question of a server on.
    pub(super) async fn pass_answer(
        self: &Arc<Self>,
        context: &Context,
        id: &RequestId,
        outcome: Result<Box<RawValue>, RpcError>,
    ) {
        let Some((server, own)) = exchange::question_of(id) else { return };
        let Some(server) = context.server(&server) else { return };
        let session = context.session.as_ref().and_then(|session| session.servers.get(&*server.name));
        if let Some(session) = session {
            let message = response_text(Some(&own), &outcome);
            self.tell(context, server, &session.headers(), message).await;
        }
    }

    /// Sends a message that has no answer.
    async fn tell(
        &self,
        context: &Context,
        server: &Arc<Server>,
        protocol: &ProtocolHeaders,
        message: String,
    ) {
        let org = context.identity.org.id;
        let headers = self.credentials(org, server, &context.caller, Some(&context.headers)).await;
        if let Ok(headers) = headers {
            let memory = &context.identity.org.memory;
            let peer = self.peer(org, server, headers, memory);
            let _ = peer.post(message, protocol, CANCEL_TIMEOUT).await;
        }
    }
}

/// The name of a call that runs on this node.
fn call_name(context: &Context, id: &str) -> CallName {
    let header = || context.headers.get(SESSION_ID)?.to_str().ok().map(ToOwned::to_owned);
    CallName {
        org: context.identity.org.id,
        caller: context.caller.clone(),
        session: context.session.as_ref().and_then(|_| header()),
        id: id.to_owned(),
    }
}

impl Call {
    /// Runs the call to its end. A modern caller that hangs up cancels it; older ones have a message for that.
    async fn run(mut self, output: mpsc::Sender<Output>) {
        let is_modern = self.context.era.is_modern();
        let running = self.mcp.running.register(call_name(&self.context, self.id.json()));
        let outcome = tokio::select! {
            outcome = self.execute(&output) => Some(outcome),
            () = running.cancelled() => None,
            () = output.closed(), if is_modern => None,
        };
        if let Some(mut outcome) = outcome {
            if let Some(mut record) = self.record.take() {
                record.close(&outcome);
            }
            outcome.release_derived();
            let _ = output.send(Output::Done(Box::new(outcome))).await;
        } else {
            drop(output);
            drop(self.record.take());
            self.cancel_upstream().await;
        }
    }

    async fn execute(&self, output: &mpsc::Sender<Output>) -> Outcome {
        let Context { identity, caller, headers, .. } = &self.context;
        let credentials = self.mcp.credentials(identity.org.id, &self.server, caller, Some(headers)).await;
        let headers = match credentials {
            Ok(headers) => headers,
            Err(failure) => return self.failed(&failure),
        };
        let mut peer = self.mcp.peer(identity.org.id, &self.server, headers, &identity.org.memory);
        peer.is_sse = self.catalogue.eras.is_sse;
        let mut gone = None;
        for is_last in [false, true] {
            let (voice, is_kept) = match self.voice(&peer, gone.as_ref()).await {
                Ok(voice) => voice,
                Err(failure) => return self.failed(&failure),
            };
            match self.exchange(&peer, voice.as_ref(), output).await {
                Ok(answer) => return self.finished(answer).await,
                // The server did nothing: it no longer knows the session that this node holds.
                Err(failure) if failure.kind == FailureKind::SessionGone && is_kept && !is_last => {
                    self.mark_sent(false);
                    gone = voice;
                }
                Err(failure) => return self.failed(&failure),
            }
        }
        self.failed(&Failure::new(FailureKind::SessionGone, "the server ended its session twice"))
    }

    /// Whether the server has got the request, and may have done what it asks for.
    fn mark_sent(&self, is_sent: bool) {
        if let Some(record) = &self.record {
            record.mark_sent(is_sent);
        }
    }

    /// How the server is spoken to: in the caller's era if it can be. True if this node holds the session. A session
    /// that is `gone` is replaced by a new one.
    async fn voice(
        &self,
        peer: &Peer<'_>,
        gone: Option<&UpstreamSession>,
    ) -> Result<(Option<UpstreamSession>, bool), Failure> {
        let eras = &self.catalogue.eras;
        let Some((version, is_stateful)) =
            eras.legacy.as_ref().filter(|_| !(eras.is_modern && self.context.era.is_modern()))
        else {
            return Ok((None, false));
        };
        let own = self.context.session.as_ref().and_then(|session| session.servers.get(&*self.server.name));
        if let Some(session) = own {
            return Ok((Some(session.clone()), false));
        }
        if !is_stateful {
            return Ok((Some(UpstreamSession { id: None, version: version.clone() }), false));
        }
        let (org, name) = (self.context.identity.org.id, self.kept_name());
        if let Some(session) = self.mcp.kept_session(org, &name).filter(|kept| Some(kept) != gone) {
            return Ok((Some(session), true));
        }
        // Nobody could answer its questions, so none are invited.
        let client = ClientFacts { info: self.context.client.info.clone(), capabilities: json!({}) };
        let session = initialize(peer, &client, self.server.timeout()).await?.session;
        self.mcp.keep_session(org, &name, session.clone());
        Ok((Some(session), true))
    }

    fn kept_name(&self) -> String {
        format!("{}|{}", self.server.key, self.context.caller)
    }

    /// The answer of the server as the caller gets it.
    async fn finished(&self, (result, mut memory): Answer) -> Outcome {
        let result = match result {
            Ok(result) => result,
            Err(error) => return Outcome::error(self.own_error(error)).holding(memory),
        };
        let (services, org) = (&self.mcp.services, self.context.identity.org.id);
        let bytes = result.get().len();
        let measuring = move || (shallow_tree_bytes(result.get().as_bytes(), RESULT_DEPTH), result);
        let (members, result) = match work(services, org, bytes, measuring).await {
            Ok(measured) => measured,
            Err(failure) => return self.failed(&failure),
        };
        // Two copies of the text, its members, and what the row keeps of them.
        let needed = bytes.saturating_mul(2).saturating_add(members.saturating_mul(2));
        if let Err(exhausted) = memory.resize(needed) {
            return self.failed(&exhausted.into());
        }
        let era = self.context.era;
        let scope = (!self.context.is_single).then(|| Arc::clone(&self.server.name));
        let log_bodies = self.record.as_ref().is_some_and(Record::log_bodies);
        let shaping = move || {
            if is_input_required(&result) {
                return Shaped::Question(Members::from_raw(&result));
            }
            let result = match scope {
                Some(server) => scoped_result(&server, &result),
                None => result,
            };
            let result = result_for(era, &result);
            let logged = Logged::of(&result, log_bodies);
            Shaped::Result(result, logged)
        };
        match work(services, org, bytes, shaping).await {
            Ok(Shaped::Result(result, logged)) => Outcome::ok(result).logging(logged).holding(memory),
            Ok(Shaped::Question(question)) if era.is_modern() => {
                Outcome::ok(self.seal_state(question.unwrap_or_default())).holding(memory)
            }
            Ok(Shaped::Question(_)) => Outcome::ok(refused_input()).holding(memory),
            Err(failure) => self.failed(&failure),
        }
    }

    /// An error of the server. Those about the protocol between the gateway and the server are not the caller's.
    fn own_error(&self, error: RpcError) -> RpcError {
        match error.code {
            codes::HEADER_MISMATCH | codes::UNSUPPORTED_VERSION | codes::PARSE | codes::INVALID_REQUEST => {
                RpcError::internal(format!("The MCP server '{}' failed: {}", self.server.name, error.message))
            }
            _ => error,
        }
    }

    fn failed(&self, failure: &Failure) -> Outcome {
        let request = self.context.catalogue_request(&self.server);
        match failure.kind {
            FailureKind::SignIn if self.method == "tools/call" => {
                return Outcome::sign_in(result_for(self.context.era, &self.sign_in(&failure.message)));
            }
            FailureKind::Refused => self.mcp.forget_token(self.context.identity.org.id, &self.server),
            FailureKind::Unreachable | FailureKind::Status(_) | FailureKind::Invalid => {
                self.mcp.mark_outdated(&request);
            }
            _ => {}
        }
        Outcome::failed(&self.server.name, failure)
    }

    /// Every client shows the text of a tool's result.
    fn sign_in(&self, why: &str) -> Box<RawValue> {
        let server = &self.server.name;
        let text = format!(
            "You have to sign in to the MCP server '{server}' first: {why}. Store your credential with PUT \
             /api/v1/mcp-connections/{server}, then call the tool again."
        );
        raw(&json!({"content": [{"type": "text", "text": text}], "isError": true}))
    }

    /// What the state of a question is bound to.
    fn state_context(&self) -> String {
        let Context { identity, caller, .. } = &self.context;
        let name = self.name.as_deref().unwrap_or_default();
        format!("{}|{caller}|{}|{}|{name}", identity.org.id, self.server.name, self.method)
    }

    /// The question of a server, whose state only this caller can send back, and only with this request.
    fn seal_state(&self, mut members: Members) -> Box<RawValue> {
        if let Some(state) = members.text("requestState") {
            let sealed = self.mcp.seal_state(&self.state_context(), &state, STATE_LIFE_MS);
            members.set("requestState", &sealed);
        }
        raw(&members)
    }

    /// Tells a server with sessions that nobody waits for its answer. Others notice that the connection is closed.
    async fn cancel_upstream(&self) {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Sent { id, protocol }) = sent {
            let mut params = Members::default();
            params.set("requestId", &id);
            params.set("reason", &"the caller cancelled the request");
            let message = notification_text("notifications/cancelled", &params);
            self.mcp.tell(&self.context, &self.server, &protocol, message).await;
        }
    }
}
