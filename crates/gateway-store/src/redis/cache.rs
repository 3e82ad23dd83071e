//! Cached answers in Redis. An entry's name begins with its organization; what is in it is sealed by the caller. Emptying
//! a namespace costs one write however many entries it has: an entry remembers the generations of its organization and
//! its namespace, and counts only as long as they are the current ones. What was emptied is also told to the other nodes,
//! through a short stream that each of them reads.

use std::fmt::Display;
use std::time::Duration;

use gateway_core::cache::CacheKey;
use gateway_core::ids::OrgId;

use super::{CACHE_TIMEOUT, LIMIT_TIMEOUT, RedisClient, RedisError};

/// Longer than any entry lives, so that no entry outlives the mark that ended it.
const GENERATION_LIFE_S: u64 = 40 * 24 * 3600;
const PURGES: &str = "gateway:cache:purges";
/// As many as the stream remembers.
const PURGES_KEPT: u64 = 1_000;

/// The generations under which an entry is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation(String);

pub struct CacheLookup {
    pub generation: Generation,
    pub entry: Option<Vec<u8>>,
}

/// What was emptied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeScope {
    All,
    Namespace(String),
    Entry(CacheKey),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purge {
    pub org: OrgId,
    pub scope: PurgeScope,
}

/// Looks for an entry. `fresh` names the generation where none is yet.
pub async fn get(
    shared: &RedisClient,
    org: OrgId,
    namespace: &str,
    key: CacheKey,
    fresh: &str,
) -> Result<CacheLookup, RedisError> {
    let (of_org, of_namespace) = (org_generation(org), namespace_generation(org, namespace));
    let mut pipe = redis::pipe();
    for name in [&of_org, &of_namespace] {
        pipe.cmd("SET").arg(name).arg(fresh).arg("NX").arg("EX").arg(GENERATION_LIFE_S).ignore();
    }
    pipe.cmd("MGET").arg(&of_org).arg(&of_namespace);
    pipe.cmd("HMGET").arg(entry_name(org, key)).arg("generation").arg("sealed");
    type Answer = ((String, String), (Option<String>, Option<Vec<u8>>));
    let ((org_now, namespace_now), (stored_in, sealed)): Answer = shared.ask(&pipe, CACHE_TIMEOUT).await?;
    let generation = Generation(format!("{org_now}/{namespace_now}"));
    let entry = sealed.filter(|_| stored_in.as_ref() == Some(&generation.0));
    Ok(CacheLookup { generation, entry })
}

/// Keeps an entry under the generation that `find` told, so that one computed before a purge does not come back after it.
pub async fn put(
    shared: &RedisClient,
    org: OrgId,
    key: CacheKey,
    generation: &Generation,
    sealed: &[u8],
    life: Duration,
) -> Result<(), RedisError> {
    let name = entry_name(org, key);
    let mut pipe = redis::pipe();
    pipe.atomic();
    pipe.cmd("HSET").arg(&name).arg("generation").arg(&generation.0).arg("sealed").arg(sealed).ignore();
    pipe.cmd("PEXPIRE").arg(&name).arg(u64::try_from(life.as_millis()).unwrap_or(u64::MAX)).ignore();
    shared.ask(&pipe, LIMIT_TIMEOUT).await
}

/// Empties an organization's cache or a part of it, and tells the other nodes. `node` is who says so.
pub async fn purge(shared: &RedisClient, node: &str, purge: &Purge, fresh: &str) -> Result<(), RedisError> {
    let org = purge.org;
    let mut pipe = redis::pipe();
    pipe.atomic();
    let mut end = |name: String| {
        pipe.cmd("SET").arg(name).arg(fresh).arg("EX").arg(GENERATION_LIFE_S).ignore();
    };
    let (kind, name) = match &purge.scope {
        PurgeScope::All => {
            end(org_generation(org));
            ("all", String::new())
        }
        PurgeScope::Namespace(namespace) => {
            end(namespace_generation(org, namespace));
            ("namespace", namespace.clone())
        }
        PurgeScope::Entry(key) => {
            pipe.cmd("DEL").arg(entry_name(org, *key)).ignore();
            ("entry", key.to_string())
        }
    };
    pipe.cmd("XADD").arg(PURGES).arg("MAXLEN").arg("~").arg(PURGES_KEPT).arg("*");
    for (field, value) in [("node", node), ("org", &org.to_string()), ("kind", kind), ("name", &name)] {
        pipe.arg(field).arg(value);
    }
    pipe.ignore();
    shared.ask(&pipe, LIMIT_TIMEOUT).await
}

/// What other nodes emptied since `last`, which is moved on. Begin with `0`.
pub async fn purges_since(
    shared: &RedisClient,
    node: &str,
    last: &mut String,
) -> Result<Vec<Purge>, RedisError> {
    let mut pipe = redis::pipe();
    pipe.cmd("XREAD").arg("COUNT").arg(PURGES_KEPT).arg("STREAMS").arg(PURGES).arg(&*last);
    type Items = Vec<(String, Vec<String>)>;
    let (answer,): (Option<Vec<(String, Items)>>,) = shared.ask(&pipe, LIMIT_TIMEOUT).await?;
    let mut purges = Vec::new();
    for (id, fields) in answer.into_iter().flatten().flat_map(|(_, items)| items) {
        *last = id;
        let value = |name: &str| {
            let (pairs, _) = fields.as_chunks::<2>();
            pairs.iter().find(|[field, _]| field == name).map(|[_, value]| value.as_str())
        };
        if value("node") != Some(node) {
            purges.extend(read_purge(value("org"), value("kind"), value("name")));
        }
    }
    Ok(purges)
}

/// A message that a later version wrote is passed over.
fn read_purge(org: Option<&str>, kind: Option<&str>, name: Option<&str>) -> Option<Purge> {
    let scope = match (kind?, name?) {
        ("all", _) => PurgeScope::All,
        ("namespace", name) => PurgeScope::Namespace(name.to_owned()),
        ("entry", name) => PurgeScope::Entry(CacheKey::parse(name)?),
        _ => return None,
    };
    Some(Purge { org: org?.parse().ok()?, scope })
}

fn entry_name(org: OrgId, key: impl Display) -> String {
    format!("gateway:cache:entry:{org}:{key}")
}

fn org_generation(org: OrgId) -> String {
    format!("gateway:cache:org:{org}")
}

fn namespace_generation(org: OrgId, namespace: &str) -> String {
    format!("gateway:cache:namespace:{org}:{namespace}")
}
