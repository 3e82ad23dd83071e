//! Streams of servers that the gateway reads while callers listen: changes of lists, updates of resources, and what a
//! server says in the session of a caller outside of calls. A stream that breaks is opened again; one that its server does
//! not have is not.

mod subscribed;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use gateway_core::ids::OrgId;
use gateway_core::mcp::{
    ClientFacts, Incoming, Members, RequestId, RpcError, for_modern_server, raw, response_text,
};
use gateway_store::connection_shares::on_behalf_of;
use http::HeaderMap;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Mcp;
use super::call::question_text;
use super::catalogue::{Catalogue, modern_headers};
use super::catalogues::CatalogueRequest;
use super::session::{UpstreamSession, client_info, initialize};
use super::upstream::{
    Exchange, Failure, FailureKind, Peer, ProtocolHeaders, notification_text, request_text,
};
use crate::mcp_servers::Server;
use crate::memory::Reservation;
pub use subscribed::{Subscribed, requested};

const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// A stream that says nothing for so long is opened again, because its connection may be gone.
const SILENCE: Duration = Duration::from_secs(600);
/// A longer URI is not passed on.
const MAX_URI: usize = 4 << 10;
const LIST_CHANGES: [&str; 3] = ["toolsListChanged", "promptsListChanged", "resourcesListChanged"];

/// What is read of a server.
pub(super) enum Source {
    /// Changes of its lists, for all callers.
    Lists,
    /// Updates of these resources, of a server of 2026-07-28. The sender gets those that the server acknowledges.
    Resources(Vec<String>, Mutex<Option<oneshot::Sender<Vec<String>>>>),
    /// Everything in the session of a caller.
    Session(UpstreamSession),
}

/// What a caller is told.
pub(super) enum Update {
    Resource {
        server: Arc<Server>,
        uri: String,
    },
    /// A message of the server, as the caller gets it.
    Message {
        server: Arc<Server>,
        text: String,
        memory: Reservation,
    },
}

/// A stream that is to be read.
pub(super) struct Follow {
    pub request: CatalogueRequest,
    /// The server is one of 2026-07-28.
    pub is_modern: bool,
    /// The headers of the caller's request.
    pub headers: Option<HeaderMap>,
    pub source: Source,
    pub updates: Option<mpsc::Sender<Update>>,
}

/// A stream is read until this is dropped.
pub(super) struct Followed {
    _stop: oneshot::Sender<()>,
}

/// The streams of list changes that several callers share.
pub(super) type SharedStreams = Mutex<HashMap<(OrgId, Arc<str>), Weak<Followed>>>;

impl Mcp {
    /// Reads a stream of a server. `None` if the organization has as many as it may.
    pub(super) async fn follow_server(self: &Arc<Self>, follow: Follow) -> Option<Followed> {
        let org = follow.request.org;
        let slot = self.followed.acquire(org, None).await.ok()?;
        let (stop, mut stopped) = oneshot::channel();
        let mcp = Arc::clone(self);
        self.services.tasks.spawn(on_behalf_of(org, async move {
            let _slot = slot;
            let mut session = None;
            tokio::select! {
                () = Box::pin(mcp.read_with_retries(&follow, &mut session)) => {}
                _ = &mut stopped => {}
                () = mcp.services.tasks.stopping() => {}
            }
            // A session of the gateway's own.
            if let Some(session) = session
                && let Ok(headers) = mcp.headers_for(&follow).await
            {
                mcp.followed_peer(&follow, headers).end_session(&session, HEAD_TIMEOUT).await;
            }
        }));
        Some(Followed { _stop: stop })
    }

    /// Follows the lists of a server, once for all callers. `None` if the server tells nobody of changes.
    pub(super) async fn follow_lists(
        self: &Arc<Self>,
        request: &CatalogueRequest,
        catalogue: &Catalogue,
    ) -> Option<Arc<Followed>> {
        if catalogue.eras.is_sse || !catalogue.tells_of_changes() {
            return None;
        }
        let name = (request.org, request.name());
        let shared = || self.shared_streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(followed) = shared().get(&name).and_then(Weak::upgrade) {
            return Some(followed);
        }
        let follow = Follow {
            request: request.clone(),
            is_modern: catalogue.eras.is_modern,
            headers: None,
            source: Source::Lists,
            updates: None,
        };
        let followed = Arc::new(self.follow_server(follow).await?);
        let mut shared = shared();
        shared.retain(|_, known| known.strong_count() > 0);
        shared.insert(name, Arc::downgrade(&followed));
        Some(followed)
    }

    async fn headers_for(&self, follow: &Follow) -> Result<HeaderMap, Failure> {
        let CatalogueRequest { org, server, caller, .. } = &follow.request;
        self.credentials(*org, server, caller, follow.headers.as_ref()).await
    }

    fn followed_peer<'a>(&'a self, follow: &'a Follow, headers: HeaderMap) -> Peer<'a> {
        let CatalogueRequest { org, server, memory, .. } = &follow.request;
        self.peer(*org, server, headers, memory)
    }

    async fn read_with_retries(self: &Arc<Self>, follow: &Follow, own: &mut Option<ProtocolHeaders>) {
        let (mut wait, mut is_again) = (RETRY_MIN, false);
        loop {
            let began = Instant::now();
            match self.read_stream(follow, own, is_again).await {
                // The server has no such stream.
                Err(failure) if failure.is_client_error() || failure.kind == FailureKind::Invalid => return,
                Err(_) | Ok(()) => {}
            }
            if began.elapsed() > RETRY_MAX {
                wait = RETRY_MIN;
            }
            tokio::time::sleep(wait).await;
            (wait, is_again) = ((wait * 2).min(RETRY_MAX), true);
        }
    }

    /// Reads a stream to its end. `own` is the session that the gateway began for it.
    async fn read_stream(
        self: &Arc<Self>,
        follow: &Follow,
        own: &mut Option<ProtocolHeaders>,
        is_again: bool,
    ) -> Result<(), Failure> {
        let peer = self.followed_peer(follow, self.headers_for(follow).await?);
        let nobody = ClientFacts { info: json!({}), capabilities: json!({}) };
        let (mut exchange, protocol) = match &follow.source {
            Source::Session(session) => {
                let protocol = session.headers();
                (peer.get(&protocol, HEAD_TIMEOUT).await?, protocol)
            }
            Source::Lists if !follow.is_modern => {
                let protocol = initialize(&peer, &nobody, HEAD_TIMEOUT).await?.session.headers();
                *own = Some(protocol.clone()).filter(|protocol| protocol.session.is_some());
                (peer.get(&protocol, HEAD_TIMEOUT).await?, protocol)
            }
            Source::Lists | Source::Resources(..) => listen(&peer, &follow.source, nobody).await?,
        };
        if is_again {
            self.tell_of_all(follow).await;
        }
        loop {
            let Ok(next) = tokio::time::timeout(SILENCE, exchange.next()).await else { return Ok(()) };
            match next? {
                Some(Incoming::Notification { method, params }) => self.note(follow, &method, &params).await,
                Some(Incoming::Request { id, method, params }) => {
                    if let Some(answer) = self.ask(follow, &id, (&method, &params)).await {
                        let _ = peer.post(answer, &protocol, HEAD_TIMEOUT).await;
                    }
                }
                Some(Incoming::Response { outcome: Err(error), .. }) => {
                    return Err(Failure::new(FailureKind::Invalid, error.message));
                }
                Some(Incoming::Response { .. }) | None => return Ok(()),
            }
        }
    }

    /// What happened while the stream was broken is not known.
    async fn tell_of_all(self: &Arc<Self>, follow: &Follow) {
        match &follow.source {
            Source::Resources(uris, _) => {
                for uri in uris {
                    self.tell_of_resource(follow, uri.clone()).await;
                }
            }
            Source::Lists | Source::Session(_) => self.mark_outdated(&follow.request),
        }
    }

    async fn tell_of_resource(&self, follow: &Follow, uri: String) {
        if let Some(updates) = &follow.updates {
            let server = Arc::clone(&follow.request.server);
            let _ = updates.send(Update::Resource { server, uri }).await;
        }
    }

    async fn note(self: &Arc<Self>, follow: &Follow, method: &str, params: &Members) {
        match method {
            "notifications/subscriptions/acknowledged" => {
                if let Source::Resources(_, waiting) = &follow.source
                    && let Some(waiting) = waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
                {
                    let honoured = params.members("notifications").unwrap_or_default();
                    let _ = waiting.send(requested(&honoured).unwrap_or_default());
                }
            }
            "notifications/resources/updated" => {
                if let Some(uri) = params.text("uri").filter(|uri| uri.len() <= MAX_URI) {
                    self.tell_of_resource(follow, uri).await;
                }
            }
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => self.mark_outdated(&follow.request),
            "notifications/message" if matches!(follow.source, Source::Session(_)) => {
                self.pass(follow, notification_text(method, params)).await;
            }
            _ => {}
        }
    }

    /// Passes a message on to the caller whose session it is. False if there is no memory for it.
    async fn pass(&self, follow: &Follow, text: String) -> bool {
        let Some(updates) = &follow.updates else { return false };
        let Ok(memory) = follow.request.memory.reserve(text.len()) else { return false };
        let server = Arc::clone(&follow.request.server);
        updates.send(Update::Message { server, text, memory }).await.is_ok()
    }

    /// A question of the server. The caller answers it if it is asked in the caller's own session; others get an answer
    /// at once, which is returned.
    async fn ask(
        &self,
        follow: &Follow,
        id: &RequestId,
        (method, params): (&str, &Members),
    ) -> Option<String> {
        if method == "ping" {
            return Some(response_text(Some(id), &Ok(raw(&json!({})))));
        }
        if matches!(follow.source, Source::Session(_))
            && let Some(question) = question_text(&follow.request.server.name, id, (method, params))
            && self.pass(follow, question).await
        {
            return None;
        }
        Some(response_text(Some(id), &Err(RpcError::method_not_found(method))))
    }
}

/// Opens a stream of 2026-07-28.
async fn listen(
    peer: &Peer<'_>,
    source: &Source,
    nobody: ClientFacts,
) -> Result<(Exchange, ProtocolHeaders), Failure> {
    const METHOD: &str = "subscriptions/listen";
    let mut params = Members::default();
    match source {
        Source::Resources(uris, _) => params.set("notifications", &json!({"resourceSubscriptions": uris})),
        Source::Lists | Source::Session(_) => {
            let all: serde_json::Map<String, Value> =
                LIST_CHANGES.into_iter().map(|name| (name.to_owned(), true.into())).collect();
            params.set("notifications", &all);
        }
    }
    let client = ClientFacts { info: client_info(&nobody), ..nobody };
    let id = RequestId::from_text(METHOD).ok_or_else(|| Failure::new(FailureKind::Invalid, "no id"))?;
    let protocol = modern_headers(METHOD, None);
    let message = request_text(&id, METHOD, &for_modern_server(params, &client));
    Ok((peer.post(message, &protocol, HEAD_TIMEOUT).await?, protocol))
}
