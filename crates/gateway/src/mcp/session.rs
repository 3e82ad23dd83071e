//! Sessions with servers that have them, and the session ids of callers, which carry the sessions with their servers in
//! encrypted form: any node serves them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use gateway_core::ids::OrgId;
use gateway_core::mcp::{ClientFacts, Incoming, LATEST_LEGACY, Members, RequestId};
use gateway_core::time::{DAY, MINUTE, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Mcp;
use super::upstream::{Failure, FailureKind, Peer, ProtocolHeaders, notification_text, request_text};

/// A longer id would not fit in the headers of most servers.
const MAX_ID_BYTES: usize = 4 << 10;
const PREFIX: &str = "gws_";
/// A session that the gateway holds for a caller is dropped after this time without a call.
const IDLE_MS: i64 = 30 * MINUTE;

/// A session with a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamSession {
    /// `None` if the server assigned none.
    #[serde(rename = "i")]
    pub id: Option<String>,
    /// The revision that was negotiated.
    #[serde(rename = "v")]
    pub version: String,
}

impl UpstreamSession {
    pub fn headers(&self) -> ProtocolHeaders {
        let (version, session) = (self.version.clone(), self.id.clone());
        ProtocolHeaders { version, session, ..ProtocolHeaders::default() }
    }
}

/// The answer to `initialize`.
pub struct Initialized {
    pub session: UpstreamSession,
    pub result: Members,
}

/// Begins a session on behalf of a client.
pub async fn initialize(
    peer: &Peer<'_>,
    client: &ClientFacts,
    timeout: Duration,
) -> Result<Initialized, Failure> {
    let mut params = Members::default();
    params.set("protocolVersion", &LATEST_LEGACY);
    params.set("capabilities", &client.capabilities);
    params.set("clientInfo", &client_info(client));
    let invalid = |why: &str| Failure::new(FailureKind::Invalid, format!("initialize: {why}"));
    let id = RequestId::parse("0").ok_or_else(|| invalid("no id"))?;
    let exchange = async {
        let mut exchange =
            peer.post(request_text(&id, "initialize", &params), &ProtocolHeaders::default(), timeout).await?;
        loop {
            match exchange.next().await? {
                Some(Incoming::Response { outcome: Ok(result), .. }) => {
                    let result =
                        Members::from_raw(&result).ok_or_else(|| invalid("the result is no object"))?;
                    return Ok((exchange.session.take(), result));
                }
                Some(Incoming::Response { outcome: Err(error), .. }) => return Err(invalid(&error.message)),
                Some(_) => {}
                None => return Err(invalid("the server did not answer")),
            }
        }
    };
    let timed_out = |_| Failure::new(FailureKind::Timeout, "initialize: the server did not answer in time");
    let (session, result) = tokio::time::timeout(timeout, exchange).await.map_err(timed_out)??;
    let version = result.text("protocolVersion").unwrap_or_else(|| LATEST_LEGACY.to_owned());
    let session = UpstreamSession { id: session, version };
    let message = notification_text("notifications/initialized", &Members::default());
    peer.post(message, &session.headers(), timeout).await?;
    Ok(Initialized { session, result })
}

/// What the gateway says of the client. Clients have to have a name.
pub fn client_info(client: &ClientFacts) -> serde_json::Value {
    if client.info.get("name").is_some_and(serde_json::Value::is_string) {
        return client.info.clone();
    }
    json!({"name": "gateway", "version": env!("CARGO_PKG_VERSION")})
}

/// The content of a caller's session id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CallerSession {
    /// Who it was given to.
    #[serde(rename = "c")]
    pub caller: String,
    #[serde(rename = "s")]
    pub servers: BTreeMap<String, UpstreamSession>,
    /// Its end, in milliseconds.
    #[serde(rename = "e")]
    expires_at: i64,
}

/// A session that the gateway holds for a caller without one of its own.
pub struct KeptSession {
    pub session: UpstreamSession,
    used_at: std::sync::atomic::AtomicI64,
}

impl Mcp {
    /// The id of a caller's session. `None` if it is too long: then the sessions are held on this node.
    pub(super) fn seal_session(
        &self,
        org: OrgId,
        caller: &str,
        servers: BTreeMap<String, UpstreamSession>,
    ) -> Option<String> {
        let now = self.services.clock.now();
        let content = CallerSession { caller: caller.to_owned(), servers, expires_at: now.plus(DAY).0 };
        let plain = serde_json::to_vec(&content).ok()?;
        let sealed = self.session_vault.seal(&org.to_string(), plain, now).ok()?;
        let id = format!("{PREFIX}{}", BASE64.encode(sealed));
        (id.len() <= MAX_ID_BYTES).then_some(id)
    }

    /// The content of a session id. `None` if it is not one of the caller's, or was ended.
    pub(super) fn open_session(&self, org: OrgId, caller: &str, id: &str) -> Option<CallerSession> {
        let sealed = BASE64.decode(id.strip_prefix(PREFIX)?).ok()?;
        let plain = self.session_vault.open(&org.to_string(), sealed).ok()?;
        let content: CallerSession = serde_json::from_slice(&plain).ok()?;
        let is_valid = content.caller == caller && self.services.clock.now() < Timestamp(content.expires_at);
        let is_ended = self.ended_sessions().peek(org, &session_name(id)).is_some();
        (is_valid && !is_ended).then_some(content)
    }

    /// The session id is not accepted any more.
    pub(super) fn forget_session(&self, org: OrgId, id: &str) {
        let _ = self.ended_sessions().insert(org, session_name(id).into(), (), |()| true);
    }

    /// The session that is held for the caller.
    pub(super) fn kept_session(&self, org: OrgId, name: &str) -> Option<UpstreamSession> {
        let now = self.services.clock.now();
        let mut sessions = self.kept_sessions();
        let kept = sessions.get(org, name)?;
        let used_at = Timestamp(kept.used_at.load(std::sync::atomic::Ordering::Relaxed));
        if now.0 - used_at.0 > IDLE_MS {
            return None;
        }
        kept.used_at.store(now.0, std::sync::atomic::Ordering::Relaxed);
        Some(kept.session.clone())
    }

    pub(super) fn keep_session(&self, org: OrgId, name: &str, session: UpstreamSession) {
        let used_at = self.services.clock.now().0.into();
        let kept = Arc::new(KeptSession { session, used_at });
        let _ = self.kept_sessions().insert(org, name.into(), kept, |_| true);
    }
}

#[derive(Serialize, Deserialize)]
struct SealedState<'a> {
    #[serde(rename = "s")]
    state: std::borrow::Cow<'a, str>,
    /// Its end, in milliseconds.
    #[serde(rename = "e")]
    expires_at: i64,
}

impl Mcp {
    /// The state that a server gives with a question, for one request of one caller.
    pub(super) fn seal_state(&self, context: &str, state: &str, life_ms: i64) -> String {
        let now = self.services.clock.now();
        let content = SealedState { state: state.into(), expires_at: now.plus(life_ms).0 };
        let plain = serde_json::to_vec(&content).unwrap_or_default();
        let sealed = self.session_vault.seal(&format!("state|{context}"), plain, now);
        sealed.map(|sealed| BASE64.encode(sealed)).unwrap_or_default()
    }

    /// The state of a server. `None` if it belongs to another request or is too old.
    pub(super) fn open_state(&self, context: &str, sealed: &str) -> Option<String> {
        let sealed = BASE64.decode(sealed).ok()?;
        let plain = self.session_vault.open(&format!("state|{context}"), sealed).ok()?;
        let content: SealedState<'_> = serde_json::from_slice(&plain).ok()?;
        let is_valid = self.services.clock.now() < Timestamp(content.expires_at);
        is_valid.then(|| content.state.into_owned())
    }
}

/// Ids are long, so only their end, which is random, is remembered.
fn session_name(id: &str) -> String {
    id.chars().skip(id.len().saturating_sub(32)).collect()
}
