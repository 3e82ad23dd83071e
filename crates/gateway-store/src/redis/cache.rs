//! Cached responses in Redis, encrypted by the caller. An entry stores the generation in which it was requested and is
//! valid only while that is current, so that a purge needs no access to Redis (`cache_purges`).

use std::time::Duration;

use gateway_core::cache::CacheKey;
use gateway_core::ids::OrgId;

use super::{CACHE_TIMEOUT, LIMIT_TIMEOUT, RedisClient, RedisError};
use crate::cache_purges::Generation;

/// Returns the entry if it belongs to this generation.
pub async fn get(
    redis: &RedisClient,
    org: OrgId,
    key: CacheKey,
    generation: &Generation,
) -> Result<Option<Vec<u8>>, RedisError> {
    let mut pipe = ::redis::pipe();
    pipe.cmd("HMGET").arg(entry_name(org, key)).arg("generation").arg("sealed");
    type Reply = ((Option<String>, Option<Vec<u8>>),);
    let ((stored_in, sealed),): Reply = redis.query(&pipe, CACHE_TIMEOUT).await?;
    Ok(sealed.filter(|_| stored_in.as_ref() == Some(&generation.0)))
}

/// An encrypted entry.
#[derive(Debug, Clone, Copy)]
pub struct CacheEntry<'a> {
    pub key: CacheKey,
    /// The generation when the response was requested, so that a response from before a purge stays invalid after it.
    pub generation: &'a Generation,
    pub sealed: &'a [u8],
    pub ttl: Duration,
}

pub async fn put(redis: &RedisClient, org: OrgId, entry: &CacheEntry<'_>) -> Result<(), RedisError> {
    let CacheEntry { key, generation, sealed, ttl } = *entry;
    let name = entry_name(org, key);
    let mut pipe = ::redis::pipe();
    pipe.atomic();
    pipe.cmd("HSET").arg(&name).arg("generation").arg(&generation.0).arg("sealed").arg(sealed).ignore();
    pipe.cmd("PEXPIRE").arg(&name).arg(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)).ignore();
    redis.query(&pipe, LIMIT_TIMEOUT).await
}

fn entry_name(org: OrgId, key: CacheKey) -> String {
    format!("gateway:cache:entry:{org}:{key}")
}
