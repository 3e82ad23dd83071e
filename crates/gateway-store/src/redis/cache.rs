//! Cached responses in Redis, encrypted by the caller. An entry stores the generations of its organization and
//! namespace and is valid only while both are current, so that a purge is one write however many entries it affects.
//! Purges are also announced to the other nodes through a short stream.

use std::fmt::Display;
use std::time::Duration;

use gateway_core::cache::CacheKey;
use gateway_core::ids::OrgId;

use super::{CACHE_TIMEOUT, LIMIT_TIMEOUT, RedisClient, RedisError};

/// Longer than the TTL of any entry, so that no entry outlives the generation that ended it.
const GENERATION_TTL_S: u64 = 40 * 24 * 3600;
const PURGE_STREAM: &str = "gateway:cache:purges";
/// The length of the stream.
const MAX_PURGES: u64 = 1_000;

/// The generations under which an entry is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation(String);

pub struct CacheLookup {
    pub generation: Generation,
    pub entry: Option<Vec<u8>>,
}

/// The part of a cache to purge.
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

/// Looks up an entry. `fresh` becomes the generation where there is none yet.
pub async fn get(
    redis: &RedisClient,
    org: OrgId,
    namespace: &str,
    key: CacheKey,
    fresh: &str,
) -> Result<CacheLookup, RedisError> {
    let (of_org, of_namespace) = (org_generation(org), namespace_generation(org, namespace));
    let mut pipe = ::redis::pipe();
    for name in [&of_org, &of_namespace] {
        pipe.cmd("SET").arg(name).arg(fresh).arg("NX").arg("EX").arg(GENERATION_TTL_S).ignore();
    }
    pipe.cmd("MGET").arg(&of_org).arg(&of_namespace);
    pipe.cmd("HMGET").arg(entry_name(org, key)).arg("generation").arg("sealed");
    type Reply = ((String, String), (Option<String>, Option<Vec<u8>>));
    let ((org_now, namespace_now), (stored_in, sealed)): Reply = redis.query(&pipe, CACHE_TIMEOUT).await?;
    let generation = Generation(format!("{org_now}/{namespace_now}"));
    let entry = sealed.filter(|_| stored_in.as_ref() == Some(&generation.0));
    Ok(CacheLookup { generation, entry })
}

/// An encrypted entry.
#[derive(Debug, Clone, Copy)]
pub struct CacheEntry<'a> {
    pub key: CacheKey,
    pub generation: &'a Generation,
    pub sealed: &'a [u8],
    pub ttl: Duration,
}

/// Stores an entry under the generation that `get` returned, so that a response from before a purge stays invalid after
/// it.
pub async fn put(redis: &RedisClient, org: OrgId, entry: &CacheEntry<'_>) -> Result<(), RedisError> {
    let CacheEntry { key, generation, sealed, ttl } = *entry;
    let name = entry_name(org, key);
    let mut pipe = ::redis::pipe();
    pipe.atomic();
    pipe.cmd("HSET").arg(&name).arg("generation").arg(&generation.0).arg("sealed").arg(sealed).ignore();
    pipe.cmd("PEXPIRE").arg(&name).arg(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)).ignore();
    redis.query(&pipe, LIMIT_TIMEOUT).await
}

/// Purges an organization's cache or a part of it, and announces that to the other nodes. `node` is the sender.
pub async fn purge(redis: &RedisClient, node: &str, purge: &Purge, fresh: &str) -> Result<(), RedisError> {
    let org = purge.org;
    let mut pipe = ::redis::pipe();
    pipe.atomic();
    let mut renew = |name: String| {
        pipe.cmd("SET").arg(name).arg(fresh).arg("EX").arg(GENERATION_TTL_S).ignore();
    };
    let (kind, name) = match &purge.scope {
        PurgeScope::All => {
            renew(org_generation(org));
            ("all", String::new())
        }
        PurgeScope::Namespace(namespace) => {
            renew(namespace_generation(org, namespace));
            ("namespace", namespace.clone())
        }
        PurgeScope::Entry(key) => {
            pipe.cmd("DEL").arg(entry_name(org, *key)).ignore();
            ("entry", key.to_string())
        }
    };
    pipe.cmd("XADD").arg(PURGE_STREAM).arg("MAXLEN").arg("~").arg(MAX_PURGES).arg("*");
    for (field, value) in [("node", node), ("org", &org.to_string()), ("kind", kind), ("name", &name)] {
        pipe.arg(field).arg(value);
    }
    pipe.ignore();
    redis.query(&pipe, LIMIT_TIMEOUT).await
}

/// The purges of other nodes since the stream position `last`, which is moved on. The first position is `0`.
pub async fn purges_since(
    redis: &RedisClient,
    node: &str,
    last: &mut String,
) -> Result<Vec<Purge>, RedisError> {
    let mut pipe = ::redis::pipe();
    pipe.cmd("XREAD").arg("COUNT").arg(MAX_PURGES).arg("STREAMS").arg(PURGE_STREAM).arg(&*last);
    type Items = Vec<(String, Vec<String>)>;
    let (reply,): (Option<Vec<(String, Items)>>,) = redis.query(&pipe, LIMIT_TIMEOUT).await?;
    let mut purges = Vec::new();
    for (id, fields) in reply.into_iter().flatten().flat_map(|(_, items)| items) {
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

/// Messages of newer versions are skipped.
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
