//! Rate limit counts over all nodes, in one round trip.

use super::{LIMIT_TIMEOUT, RedisClient, RedisError};

/// Longer than the window of a minute, so that clock differences do not end a window early.
const TTL_S: u64 = 120;

/// Counts a request in a minute; returns the count over all nodes. Uses the long timeout, because a limit is not exact
/// when a request is not counted here.
pub async fn increment(redis: &RedisClient, id: &str, minute: i64) -> Result<u64, RedisError> {
    let name = format!("gateway:limit:{id}:{minute}");
    let mut pipe = ::redis::pipe();
    pipe.cmd("INCR").arg(&name);
    pipe.cmd("EXPIRE").arg(&name).arg(TTL_S).ignore();
    let (used,): (u64,) = redis.query(&pipe, LIMIT_TIMEOUT).await?;
    Ok(used)
}
