//! Subscriptions to resources: those of a request of 2026-07-28, and those that clients of older revisions make one by
//! one at a server that has only the newer form.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use gateway_core::mcp::{Members, RpcError, namespaced_uri, raw, split_uri};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::{Follow, Followed, MAX_URI, Source, Update};
use crate::mcp::Mcp;
use crate::mcp::access::sees_whole_server;
use crate::mcp::reply::Outcome;
use crate::mcp::serve::Context;
use crate::mcp_servers::Server;

/// Of one stream, and of one caller at one server.
const MAX_URIS: usize = 100;
/// Of the text of a list of URIs: what is parsed takes a multiple of short ones.
const MAX_LIST_BYTES: usize = 512 << 10;
/// How long a server has to acknowledge.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(3);

/// What a client of an older revision has subscribed to at a server.
#[derive(Default)]
pub struct Subscribed(Mutex<BTreeSet<String>>);

impl Subscribed {
    fn uris(&self) -> BTreeSet<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The URIs in a request for a stream, or in its acknowledgement.
pub fn requested(filter: &Members) -> Result<Vec<String>, RpcError> {
    let Some(given) = filter.get("resourceSubscriptions") else { return Ok(Vec::new()) };
    let given = Some(given.get()).filter(|text| text.len() <= MAX_LIST_BYTES);
    let uris: Option<Vec<String>> = given.and_then(|text| serde_json::from_str(text).ok());
    let fits = |uris: &Vec<String>| uris.len() <= MAX_URIS && uris.iter().all(|uri| uri.len() <= MAX_URI);
    let message = format!("`resourceSubscriptions` must be at most {MAX_URIS} URIs of {MAX_URI} bytes");
    uris.filter(fits).ok_or_else(|| RpcError::invalid_params(message))
}

fn name_of(context: &Context, server: &Server) -> String {
    format!("{}|{}", server.key, context.caller)
}

impl Mcp {
    /// Follows resources of several servers. Returns the URIs that will be told of, as the caller named them.
    pub(in crate::mcp) async fn subscribe(
        self: &Arc<Self>,
        context: &Context,
        uris: Vec<String>,
        updates: &mpsc::Sender<Update>,
    ) -> (Vec<String>, Vec<Followed>) {
        let mut by_server: BTreeMap<&str, (&Arc<Server>, Vec<String>)> = BTreeMap::new();
        for uri in &uris {
            let found = if context.is_single {
                context.servers.first().map(|server| (server, uri.clone()))
            } else {
                split_uri(uri).and_then(|(server, own)| Some((context.server(server)?, own)))
            };
            if let Some((server, own)) = found {
                by_server.entry(&server.name).or_insert_with(|| (server, Vec::new())).1.push(own);
            }
        }
        let opened = by_server.into_values().map(|(server, own)| async move {
            let (honoured, followed) = self.subscribe_at(context, server, own, updates).await?;
            let exposed =
                |uri: String| if context.is_single { uri } else { namespaced_uri(&server.name, &uri) };
            Some((honoured.into_iter().map(exposed).collect::<Vec<_>>(), followed))
        });
        let (honoured, followed): (Vec<_>, Vec<_>) = join_all(opened).await.into_iter().flatten().unzip();
        (honoured.into_iter().flatten().collect(), followed)
    }

    /// `None` if the server is not one of 2026-07-28, does not answer, or honours none of the URIs.
    async fn subscribe_at(
        self: &Arc<Self>,
        context: &Context,
        server: &Arc<Server>,
        uris: Vec<String>,
        updates: &mpsc::Sender<Update>,
    ) -> Option<(Vec<String>, Followed)> {
        let request = context.catalogue_request(server);
        let catalogue = self.look_up_briefly(&request).await.catalogue?;
        if !catalogue.eras.is_modern || !sees_whole_server(&context.identity, &server.name) {
            return None;
        }
        let (acknowledge, acknowledged) = oneshot::channel();
        let follow = Follow {
            request,
            is_modern: true,
            headers: Some(context.headers.clone()),
            source: Source::Resources(uris.clone(), Mutex::new(Some(acknowledge))),
            updates: Some(updates.clone()),
        };
        let followed = self.follow_server(follow).await?;
        let honoured = tokio::time::timeout(ACKNOWLEDGED_WITHIN, acknowledged).await.ok()?.ok()?;
        let honoured: Vec<String> = honoured.into_iter().filter(|uri| uris.contains(uri)).collect();
        (!honoured.is_empty()).then_some((honoured, followed))
    }

    /// A client of an older revision subscribes at a server that has only streams with a list of resources. What it is
    /// told of comes with its own stream, on the same node.
    pub(in crate::mcp) fn change_subscription(
        &self,
        context: &Context,
        server: &Server,
        (uri, is_wanted): (Option<String>, bool),
    ) -> Outcome {
        let Some(uri) = uri else {
            return Outcome::error(RpcError::invalid_params("`uri` must be a string"));
        };
        let (org, name) = (context.identity.org.id, name_of(context, server));
        let known = self.subscribed().get(org, &name).cloned();
        let known = known.unwrap_or_else(|| {
            let new = Arc::new(Subscribed::default());
            let _ = self.subscribed().insert(org, name.into(), Arc::clone(&new), |_| true);
            new
        });
        let mut uris = known.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_wanted {
            uris.remove(&uri);
        } else if uri.len() > MAX_URI || (uris.len() >= MAX_URIS && !uris.contains(&uri)) {
            let message =
                format!("a client may subscribe to {MAX_URIS} resources with URIs of {MAX_URI} bytes");
            return Outcome::error(RpcError::invalid_params(message));
        } else {
            uris.insert(uri);
        }
        Outcome::ok(raw(&json!({})))
    }

    /// What the caller has subscribed to at the server.
    pub(in crate::mcp) fn subscriptions_of(&self, context: &Context, server: &Server) -> BTreeSet<String> {
        let known = self.subscribed().get(context.identity.org.id, &name_of(context, server)).cloned();
        known.map(|known| known.uris()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(list: &str) -> Members {
        serde_json::from_str(&format!(r#"{{"resourceSubscriptions": {list}}}"#)).unwrap()
    }

    #[test]
    fn lists_of_resources_are_bounded_before_they_are_parsed() {
        let list = |count: usize| format!("[{}]", vec![r#""a""#; count].join(","));
        assert_eq!(requested(&Members::default()).unwrap(), Vec::<String>::new());
        assert_eq!(requested(&filter(&list(MAX_URIS))).unwrap().len(), MAX_URIS);
        assert!(requested(&filter(&list(MAX_URIS + 1))).is_err());
        // The text alone is too long, whatever is in it.
        let padded = format!("[{}\"a\"]", " ".repeat(MAX_LIST_BYTES));
        assert!(requested(&filter(&padded)).is_err());
    }
}
