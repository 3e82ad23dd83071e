//! What a server offers: its revision, its capabilities and its lists, as it told them when it was last asked.

mod entries;

use std::sync::Arc;
use std::time::Duration;

use gateway_core::ids::OrgId;
use gateway_core::mcp::{
    ClientFacts, Incoming, LATEST_LEGACY, MODERN, Members, REVISIONS, RequestId, RpcError, SKILLS_EXTENSION,
    Transport, codes, for_modern_server, has_skills, meta,
};
use gateway_core::memory::tree_bytes;
use http::HeaderValue;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::session::{UpstreamSession, client_info, initialize};
use super::upstream::{Failure, FailureKind, METHOD, Peer, ProtocolHeaders, request_text, work};
use crate::memory::Reservation;
use entries::{Compiled, compile};
pub use entries::{Digests, Listed, Tool, digest_of};

const MAX_PAGES: usize = 50;
const MAX_ENTRIES: usize = 1_000;
/// Of all lists of a server together.
const MAX_BYTES: usize = 4 << 20;
/// Of what a server says about itself.
const MAX_ABOUT_BYTES: usize = 64 << 10;
const DEFAULT_TTL: Duration = Duration::from_secs(300);
const MIN_TTL: Duration = Duration::from_secs(1);
const MAX_TTL: Duration = Duration::from_secs(86_400);

/// The revisions that a server speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eras {
    /// 2026-07-28.
    pub is_modern: bool,
    /// The newest one with `initialize`, and whether the server assigns sessions.
    pub legacy: Option<(String, bool)>,
    /// The server has the transport before Streamable HTTP.
    pub is_sse: bool,
}

pub struct Catalogue {
    pub eras: Eras,
    pub server_info: Value,
    pub capabilities: Value,
    pub instructions: Option<String>,
    pub tools: Vec<Tool>,
    pub prompts: Vec<Listed>,
    pub resources: Vec<Listed>,
    pub templates: Vec<Listed>,
    /// Of the skills extension.
    pub skills: Vec<Listed>,
    pub digests: Digests,
    /// How long the lists are current.
    pub ttl: Duration,
    _memory: Reservation,
}

impl Catalogue {
    pub fn protocol_version(&self) -> &str {
        if self.eras.is_modern {
            MODERN
        } else {
            self.eras.legacy.as_ref().map_or(LATEST_LEGACY, |(version, _)| version)
        }
    }

    /// The server has sessions, and callers with sessions reach it in one.
    pub fn is_stateful(&self) -> bool {
        self.eras.legacy.as_ref().is_some_and(|(_, is_stateful)| *is_stateful)
    }

    /// The server says when one of its lists changes.
    pub fn tells_of_changes(&self) -> bool {
        let is_told = |name: &&str| self.capabilities[*name]["listChanged"] == true;
        ["tools", "prompts", "resources"].iter().any(is_told)
    }

    /// Clients can be told of updates of single resources.
    pub fn has_subscriptions(&self) -> bool {
        self.capabilities["resources"]["subscribe"] == true
    }

    pub fn has(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some()
    }
}

/// How the lists are asked for.
enum Voice {
    Modern,
    Legacy(UpstreamSession),
}

/// Lists as they were read.
#[derive(Default)]
struct Lists {
    tools: Vec<Box<RawValue>>,
    prompts: Vec<Box<RawValue>>,
    resources: Vec<Box<RawValue>>,
    templates: Vec<Box<RawValue>>,
    skills: Vec<Box<RawValue>>,
    bytes: usize,
    ttl: Option<Duration>,
}

impl Lists {
    /// The memory of the entries once they are parsed.
    fn tree_bytes(&self) -> usize {
        let lists = [&self.tools, &self.prompts, &self.resources, &self.templates, &self.skills];
        lists.into_iter().flatten().map(|entry| tree_bytes(entry.get().as_bytes())).sum()
    }
}

fn about_tree_bytes(about: &Members) -> usize {
    about.iter().map(|(name, value)| name.len() + tree_bytes(value.get().as_bytes())).sum()
}

/// Asks a server for everything. `known` are its revisions, if they are known already.
pub async fn fetch(
    mut peer: Peer<'_>,
    org: OrgId,
    known: Option<Eras>,
    timeout: Duration,
) -> Result<Catalogue, Failure> {
    let (voice, eras, about) = greet(&mut peer, known, timeout).await?;
    let peer = &peer;
    let is_brief = about.bytes() <= MAX_ABOUT_BYTES;
    let capabilities = if is_brief { about.value("capabilities") } else { None };
    let capabilities = capabilities.unwrap_or_else(|| json!({}));
    let mut lists = Lists::default();
    let read = async {
        if !is_brief {
            let why = format!("the server says more than {MAX_ABOUT_BYTES} bytes about itself");
            return Err(Failure::new(FailureKind::Invalid, why));
        }
        read_lists(peer, &voice, &capabilities, &mut lists).await
    };
    let timed_out = |_| Failure::new(FailureKind::Timeout, "the lists of the server did not arrive in time");
    let read = tokio::time::timeout(timeout, read).await.map_err(timed_out)?;
    if let Voice::Legacy(session) = &voice
        && session.id.is_some()
    {
        peer.end_session(&session.headers(), timeout).await;
    }
    read?;
    // What was read is held beside the trees until these are made.
    let held = lists.tree_bytes() + about_tree_bytes(&about);
    let mut memory = peer.memory.reserve(held + lists.bytes)?;
    let ttl = lists.ttl.unwrap_or(DEFAULT_TTL);
    let server = Arc::clone(&peer.server.name);
    let compiled = compile(peer.services, org, server, lists).await?;
    let Compiled { tools, prompts, resources, templates, skills, digests } = compiled;
    memory.shrink_to(held);
    Ok(Catalogue {
        eras,
        server_info: server_info(&about),
        capabilities,
        instructions: about.text("instructions"),
        tools,
        prompts,
        resources,
        templates,
        skills,
        digests,
        ttl,
        _memory: memory,
    })
}

/// Older revisions have it in the result, 2026-07-28 in its `_meta`.
fn server_info(about: &Members) -> Value {
    let in_meta = || about.members("_meta").and_then(|own| own.value(meta::SERVER_INFO));
    about.value("serverInfo").or_else(in_meta).unwrap_or_else(|| json!({}))
}

/// Finds out which revisions the server speaks, and what it says about itself.
async fn greet(
    peer: &mut Peer<'_>,
    known: Option<Eras>,
    timeout: Duration,
) -> Result<(Voice, Eras, Members), Failure> {
    let nobody = ClientFacts { info: json!({}), capabilities: json!({}) };
    peer.is_sse |= known.as_ref().is_some_and(|eras| eras.is_sse);
    let is_legacy = peer.is_sse || known.as_ref().is_some_and(|eras| !eras.is_modern);
    if !is_legacy {
        let discovered = ask(peer, &Voice::Modern, "server/discover", Members::default());
        let timed_out = |_| Failure::new(FailureKind::Timeout, "the server did not answer in time");
        let discovered = tokio::time::timeout(timeout, discovered).await.map_err(timed_out)?;
        match discovered {
            Ok(Ok(result)) => {
                let about = Members::from_raw(&result).unwrap_or_default();
                let versions = about
                    .value("supportedVersions")
                    .and_then(|versions| serde_json::from_value(versions).ok());
                let versions: Vec<String> = versions.unwrap_or_else(|| vec![MODERN.to_owned()]);
                let has = |revision: &str| versions.iter().any(|version| version == revision);
                if has(MODERN) {
                    // A server may serve both eras and name only the newer one here.
                    let legacy = match known {
                        Some(eras) => eras.legacy,
                        None => legacy_of(peer, &nobody, timeout).await,
                    };
                    return Ok((Voice::Modern, Eras { is_modern: true, legacy, is_sse: false }, about));
                }
            }
            Ok(Err(_)) => {}
            Err(failure) if failure.is_client_error() || failure.kind == FailureKind::Invalid => {}
            Err(failure) => return Err(failure),
        }
    }
    let initialized = match initialize(peer, &nobody, timeout).await {
        Err(failure) if may_be_sse(peer, &failure) => {
            peer.is_sse = true;
            // If it has neither transport, the answer to the newer one says why.
            initialize(peer, &nobody, timeout).await.map_err(|_| failure)?
        }
        initialized => initialized?,
    };
    let session = initialized.session;
    let legacy = Some((session.version.clone(), session.id.is_some()));
    let eras = Eras { is_modern: false, legacy, is_sse: peer.is_sse };
    Ok((Voice::Legacy(session), eras, initialized.result))
}

/// As the specification has clients find servers of the older transport: they refuse the message that was posted.
fn may_be_sse(peer: &Peer<'_>, failure: &Failure) -> bool {
    let is_refused = matches!(failure.kind, FailureKind::Status(400 | 404 | 405));
    is_refused && !peer.is_sse && peer.server.definition.transport == Transport::Auto
}

/// The older revision that a server speaks too, and whether it assigns sessions in it.
async fn legacy_of(peer: &Peer<'_>, client: &ClientFacts, timeout: Duration) -> Option<(String, bool)> {
    let session = initialize(peer, client, timeout).await.ok()?.session;
    let is_stateful = session.id.is_some();
    if is_stateful {
        peer.end_session(&session.headers(), timeout).await;
    }
    REVISIONS.contains(&session.version.as_str()).then_some((session.version, is_stateful))
}

async fn ask(
    peer: &Peer<'_>,
    voice: &Voice,
    method: &str,
    params: Members,
) -> Result<Result<Box<RawValue>, RpcError>, Failure> {
    let (params, protocol) = match voice {
        Voice::Modern => {
            let nobody = ClientFacts { info: json!({}), capabilities: json!({}) };
            let client = ClientFacts { info: client_info(&nobody), ..nobody };
            (for_modern_server(params, &client), modern_headers(method, None))
        }
        Voice::Legacy(session) => (params, session.headers()),
    };
    let id = RequestId::from_text(method).ok_or_else(|| Failure::new(FailureKind::Invalid, "no id"))?;
    let timeout = peer.server.timeout();
    let mut exchange = peer.post(request_text(&id, method, &params), &protocol, timeout).await?;
    loop {
        match exchange.next().await? {
            Some(Incoming::Response { outcome, .. }) => return Ok(outcome),
            Some(_) => {}
            None => {
                return Err(Failure::new(
                    FailureKind::Invalid,
                    format!("{method}: the server did not answer"),
                ));
            }
        }
    }
}

/// The headers of a request of 2026-07-28.
pub fn modern_headers(method: &str, name: Option<&str>) -> ProtocolHeaders {
    let header = |text: &str| HeaderValue::from_str(text).ok();
    let named = [
        (METHOD, header(method)),
        (super::upstream::NAME, name.and_then(|name| header(&gateway_core::mcp::encode_header(name)))),
    ];
    let others = named.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))).collect();
    ProtocolHeaders { version: MODERN.to_owned(), others, ..ProtocolHeaders::default() }
}

async fn read_lists(
    peer: &Peer<'_>,
    voice: &Voice,
    capabilities: &Value,
    lists: &mut Lists,
) -> Result<(), Failure> {
    for (capability, method, member) in [
        ("tools", "tools/list", "tools"),
        ("prompts", "prompts/list", "prompts"),
        ("resources", "resources/list", "resources"),
        ("resources", "resources/templates/list", "resourceTemplates"),
        (SKILLS_EXTENSION, "skills/list", "skills"),
    ] {
        let is_offered = match capability {
            SKILLS_EXTENSION => has_skills(capabilities),
            other => capabilities.get(other).is_some(),
        };
        if is_offered {
            let entries = read_list(peer, voice, (method, member), lists).await?;
            match member {
                "tools" => lists.tools = entries,
                "prompts" => lists.prompts = entries,
                "resources" => lists.resources = entries,
                "skills" => lists.skills = entries,
                _ => lists.templates = entries,
            }
        }
    }
    Ok(())
}

/// A page of a list.
struct ListPage {
    ttl: Option<Duration>,
    entries: Vec<Box<RawValue>>,
    next: Option<String>,
}

impl ListPage {
    fn read(result: &RawValue, member: &str) -> Self {
        let page = Members::from_raw(result).unwrap_or_default();
        let ttl = page.get("ttlMs").and_then(|ttl| serde_json::from_str(ttl.get()).ok());
        let entries = page.get(member).and_then(|raw| serde_json::from_str(raw.get()).ok());
        Self {
            ttl: ttl.map(Duration::from_millis),
            entries: entries.unwrap_or_default(),
            next: page.text("nextCursor"),
        }
    }
}

/// All pages of a list.
async fn read_list(
    peer: &Peer<'_>,
    voice: &Voice,
    (method, member): (&str, &'static str),
    lists: &mut Lists,
) -> Result<Vec<Box<RawValue>>, Failure> {
    let mut entries: Vec<Box<RawValue>> = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let mut params = Members::default();
        if let Some(cursor) = &cursor {
            params.set("cursor", cursor);
        }
        let page = match ask(peer, voice, method, params).await? {
            Ok(result) => {
                let bytes = result.get().len();
                work(peer.services, peer.org, bytes, move || ListPage::read(&result, member)).await?
            }
            Err(error) if error.code == codes::METHOD_NOT_FOUND => break,
            Err(error) => {
                return Err(Failure::new(FailureKind::Invalid, format!("{method}: {}", error.message)));
            }
        };
        if let Some(ttl) = page.ttl {
            let ttl = ttl.clamp(MIN_TTL, MAX_TTL);
            lists.ttl = Some(lists.ttl.map_or(ttl, |known| known.min(ttl)));
        }
        for entry in page.entries {
            lists.bytes += entry.get().len();
            if entries.len() >= MAX_ENTRIES || lists.bytes > MAX_BYTES {
                let why = format!(
                    "{method}: the server lists more than {MAX_ENTRIES} entries or {MAX_BYTES} bytes"
                );
                return Err(Failure::new(FailureKind::TooLarge, why));
            }
            entries.push(entry);
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(entries)
}
