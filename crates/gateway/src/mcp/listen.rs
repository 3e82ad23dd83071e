//! Streams that tell callers that lists have changed: `subscriptions/listen` of 2026-07-28, and GET of older revisions.
//! A stream compares what its caller would be listed once a second, so that a change counts once however it came about:
//! by a server, by an admin on any node, or by other rights of the caller.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use gateway_core::mcp::{Era, Members, RequestId, RpcError, meta, namespaced_uri, raw, response_text};
use gateway_store::connection_shares::on_behalf_of;
use gateway_store::fair_slots::Slot;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Mcp;
use super::access::{sees_tool, sees_whole_server};
use super::catalogue::{Catalogue, Tool, digest_of};
use super::follow::{Follow, Followed, Source, Update, requested};
use super::lists::List;
use super::reply::{Outcome, event, events, held_event, json as json_response};
use super::serve::Context;
use super::upstream::notification_text;
use crate::auth::Denied;
use crate::mcp_servers::Server;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Prompts and skills are in the database, so they are compared less often.
const BUILTIN_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of comments that keep the connection alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Messages of servers that wait to be sent, and that are sent at once.
const MAX_UPDATES: usize = 64;

/// The lists that a client can be told about: the member of its request, the notification, and the list.
const KINDS: [(&str, &str, List); 3] = [
    ("toolsListChanged", "notifications/tools/list_changed", List::Tools),
    ("promptsListChanged", "notifications/prompts/list_changed", List::Prompts),
    ("resourcesListChanged", "notifications/resources/list_changed", List::Resources),
];

/// What a server is known by: both are replaced when something changes.
type Part = (Arc<Server>, Option<Arc<Catalogue>>);

struct Listener {
    mcp: Arc<Mcp>,
    context: Context,
    /// The request, for a client of 2026-07-28.
    id: Option<RequestId>,
    /// By the order of `KINDS`.
    wanted: [bool; 3],
    parts: Vec<Part>,
    seen: [u64; 3],
    seen_builtin: [u64; 3],
    next_builtin_check: Instant,
    /// Events that are ready to be sent.
    ready: VecDeque<Bytes>,
    is_over: bool,
    /// What servers say for this caller.
    updates: mpsc::Receiver<Update>,
    sender: mpsc::Sender<Update>,
    /// Streams of servers for this caller, and those of lists, which callers share.
    followed: Vec<Followed>,
    shared: Vec<Arc<Followed>>,
    /// What a client of an older revision has subscribed to at the server of the endpoint.
    subscribed: (BTreeSet<String>, Vec<Followed>),
    _slot: Slot,
}

impl Mcp {
    /// The stream of a client of 2026-07-28. Its first message says what it will be told.
    pub(super) async fn listen(
        self: &Arc<Self>,
        context: Context,
        id: RequestId,
        params: &Members,
    ) -> Response {
        let Some(filter) = params.members("notifications") else {
            let error = RpcError::invalid_params("`notifications` must be an object");
            return json_response(Some(&id), Era::Modern, &Outcome::error(error));
        };
        let uris = match requested(&filter) {
            Ok(uris) => uris,
            Err(error) => return json_response(Some(&id), Era::Modern, &Outcome::error(error)),
        };
        let wanted = KINDS.map(|(member, ..)| filter.value(member) == Some(Value::Bool(true)));
        let Some(mut listener) = self.listener(context, wanted).await else {
            let error = RpcError::internal("the organization has the maximum of open MCP streams; close one");
            return json_response(Some(&id), Era::Modern, &Outcome::error(error));
        };
        let mut honoured: serde_json::Map<String, Value> = KINDS
            .iter()
            .zip(wanted)
            .filter(|(_, is)| *is)
            .map(|((name, ..), _)| ((*name).into(), true.into()))
            .collect();
        let (uris, followed) = self.subscribe(&listener.context, uris, &listener.sender).await;
        listener.followed = followed;
        if !uris.is_empty() {
            honoured.insert("resourceSubscriptions".into(), uris.into());
        }
        let mut params = Members::default();
        params.set("notifications", &honoured);
        params.set("_meta", &subscription(&id));
        let acknowledged = notification_text("notifications/subscriptions/acknowledged", &params);
        listener.ready.push_back(event(&acknowledged));
        listener.id = Some(id);
        listener.into_response()
    }

    /// The stream of a client of an older revision. `None` if the organization has as many as it may.
    pub(super) async fn follow(self: &Arc<Self>, context: Context) -> Option<Response> {
        let mut listener = self.listener(context, [true; 3]).await?;
        listener.follow_sessions().await;
        // The headers reach the client only with the first bytes of the body.
        listener.ready.push_back(Bytes::from_static(b": following\n\n"));
        Some(listener.into_response())
    }

    async fn listener(self: &Arc<Self>, context: Context, wanted: [bool; 3]) -> Option<Listener> {
        let slot = self.streams.acquire(context.identity.org.id, None).await.ok()?;
        let (sender, updates) = mpsc::channel(MAX_UPDATES);
        let mut listener = Listener {
            mcp: Arc::clone(self),
            context,
            id: None,
            wanted,
            parts: Vec::new(),
            // Of no entries: a server of which nothing is known yet is no change.
            seen: wanted.map(|is| if is { DefaultHasher::new().finish() } else { 0 }),
            seen_builtin: [0; 3],
            next_builtin_check: Instant::now(),
            ready: VecDeque::new(),
            is_over: false,
            updates,
            sender,
            followed: Vec::new(),
            shared: Vec::new(),
            subscribed: (BTreeSet::new(), Vec::new()),
            _slot: slot,
        };
        // What is there now is no change.
        listener.check().await;
        listener.ready.clear();
        Some(listener)
    }
}

/// The member of `_meta` that names the request of a stream.
fn subscription(id: &RequestId) -> Value {
    json!({meta::SUBSCRIPTION_ID: serde_json::from_str::<Value>(id.json()).unwrap_or_default()})
}

impl Listener {
    fn into_response(self) -> Response {
        events(stream::unfold(self, Self::next))
    }

    /// The next bytes for the client. `None` when the service stops or the credential becomes invalid.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        let keep_alive = Instant::now() + KEEP_ALIVE_INTERVAL;
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Some((bytes, self));
            }
            if self.is_over {
                return None;
            }
            let mcp = Arc::clone(&self.mcp);
            if mcp.services.tasks.is_stopping() {
                self.is_over = true;
                self.ready.extend(self.final_response());
                continue;
            }
            self = self.checked().await?;
            self.take_updates();
            if self.ready.is_empty() {
                if Instant::now() >= keep_alive {
                    return Some((Bytes::from_static(b": \n\n"), self));
                }
                let _ = tokio::time::timeout(CHECK_INTERVAL, mcp.services.tasks.stopping()).await;
            }
        }
    }

    /// Checks the credential and compares the lists, on the main runtime: response bodies are polled on workers, which
    /// must not use the database. `None` if the credential is invalid.
    async fn checked(mut self) -> Option<Self> {
        let (org, runtime) = (self.context.identity.org.id, self.mcp.services.tasks.runtime.clone());
        let check = Box::pin(on_behalf_of(org, async move {
            if !self.is_still_authorized().await {
                return None;
            }
            self.check().await;
            Some(self)
        }));
        // An error means that the service has stopped.
        runtime.spawn(check).await.ok().flatten()
    }

    /// The response that ends the stream when the service stops.
    fn final_response(&self) -> Option<Bytes> {
        let id = self.id.as_ref()?;
        let result = raw(&json!({"resultType": "complete", "_meta": subscription(id)}));
        Some(event(&response_text(Some(id), &Ok(result))))
    }

    /// A revoked credential ends the stream; other rights change what it is about. While the database is unreachable, an
    /// earlier authentication stays valid.
    async fn is_still_authorized(&mut self) -> bool {
        match self.mcp.proxy.access.identify_again(&self.context.headers).await {
            Ok(identity) => self.context.renew(identity),
            Err(error) => error == Denied::Unavailable,
        }
    }

    /// Compares the lists with what they were.
    async fn check(&mut self) {
        let (mcp, context) = (&self.mcp, &self.context);
        let glance =
            |server: &Arc<Server>| (Arc::clone(server), mcp.glance(&context.catalogue_request(server)));
        let parts: Vec<Part> = context.servers.iter().map(glance).collect();
        let mut changed = [false; 3];
        if !is_same(&parts, &self.parts) {
            let wanted = self.wanted;
            let seen = [0, 1, 2].map(|at| if wanted[at] { digest(context, &parts, KINDS[at].2) } else { 0 });
            changed = [0, 1, 2].map(|at| seen[at] != self.seen[at]);
            (self.parts, self.seen) = (parts, seen);
            self.follow_lists().await;
        }
        self.follow_subscribed().await;
        let context = &self.context;
        if context.has_builtin && Instant::now() >= self.next_builtin_check {
            self.next_builtin_check = Instant::now() + BUILTIN_INTERVAL;
            let wanted = self.wanted;
            for (at, (_, _, list)) in KINDS.into_iter().enumerate().filter(|(at, _)| wanted[*at]) {
                if let Ok(entries) = self.mcp.builtin_entries(&self.context, list).await {
                    let seen = digest_of(entries.iter());
                    changed[at] |= seen != self.seen_builtin[at];
                    self.seen_builtin[at] = seen;
                }
            }
        }
        for (at, (_, notification, _)) in KINDS.into_iter().enumerate() {
            if changed[at] {
                self.tell(notification, Members::default());
            }
        }
    }
}

impl Listener {
    /// Reads what the servers say about changes of their lists.
    async fn follow_lists(&mut self) {
        let mut shared = Vec::new();
        if !self.wanted.contains(&true) {
            return;
        }
        for (server, catalogue) in &self.parts {
            let request = self.context.catalogue_request(server);
            if let Some(catalogue) = catalogue {
                shared.extend(self.mcp.follow_lists(&request, catalogue).await);
            }
        }
        self.shared = shared;
    }

    /// Reads what servers say in the sessions of the caller outside of its requests.
    async fn follow_sessions(&mut self) {
        let sessions = self.context.session.iter().flat_map(|own| &own.servers);
        for (name, session) in sessions.filter(|(_, session)| session.id.is_some()) {
            let Some(server) = self.context.server(name) else { continue };
            let follow = Follow {
                request: self.context.catalogue_request(server),
                is_modern: false,
                headers: Some(self.context.headers.clone()),
                source: Source::Session(session.clone()),
                updates: Some(self.sender.clone()),
            };
            self.followed.extend(self.mcp.follow_server(follow).await);
        }
    }

    /// Reads updates of the resources that a client of an older revision has subscribed to.
    async fn follow_subscribed(&mut self) {
        let is_single = self.context.is_single && !self.context.era.is_modern();
        let Some(server) = self.context.servers.first().filter(|_| is_single) else { return };
        let wanted = self.mcp.subscriptions_of(&self.context, server);
        if wanted != self.subscribed.0 {
            let uris = wanted.iter().cloned().collect();
            let (_, followed) = self.mcp.subscribe(&self.context, uris, &self.sender).await;
            self.subscribed = (wanted, followed);
        }
    }

    /// What servers have said since the last time. Several updates of one resource count as one.
    fn take_updates(&mut self) {
        let mut told = BTreeSet::new();
        for _ in 0..MAX_UPDATES {
            match self.updates.try_recv() {
                Ok(Update::Resource { server, uri }) => {
                    let is_seen = sees_whole_server(&self.context.identity, &server.name)
                        && self.context.server(&server.name).is_some();
                    let uri = if self.context.is_single { uri } else { namespaced_uri(&server.name, &uri) };
                    if is_seen && told.insert(uri.clone()) {
                        let mut params = Members::default();
                        params.set("uri", &uri);
                        self.tell("notifications/resources/updated", params);
                    }
                }
                Ok(Update::Message { server, text, memory }) => {
                    if self.context.server(&server.name).is_some() {
                        self.ready.push_back(held_event(&text, memory));
                    }
                }
                Err(_) => break,
            }
        }
    }

    fn tell(&mut self, notification: &str, mut params: Members) {
        if let Some(id) = &self.id {
            params.set("_meta", &subscription(id));
        }
        self.ready.push_back(event(&notification_text(notification, &params)));
    }
}

/// Whether nothing was replaced.
fn is_same(a: &[Part], b: &[Part]) -> bool {
    let same_catalogue = |a: &Option<Arc<Catalogue>>, b: &Option<Arc<Catalogue>>| match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(&a.0, &b.0) && same_catalogue(&a.1, &b.1))
}

/// Identifies what the caller is listed. Only the same process compares it.
fn digest(context: &Context, parts: &[Part], list: List) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (server, catalogue) in parts {
        let Some(catalogue) = catalogue else { continue };
        let is_whole = || sees_whole_server(&context.identity, &server.name);
        match list {
            List::Tools => {
                let visible = |tool: &&Tool| sees_tool(&context.identity, server, tool);
                for tool in catalogue.tools.iter().filter(visible) {
                    (&tool.exposed, tool.digest).hash(&mut hasher);
                }
            }
            List::Prompts if is_whole() && !catalogue.prompts.is_empty() => {
                (&server.name, catalogue.digests.prompts).hash(&mut hasher);
            }
            List::Resources if is_whole() && !catalogue.resources.is_empty() => {
                (&server.name, catalogue.digests.resources).hash(&mut hasher);
            }
            List::Prompts | List::Resources | List::Templates | List::Skills => {}
        }
    }
    hasher.finish()
}
