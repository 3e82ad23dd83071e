//! Limits over all nodes, counted in one place and one round trip.

use super::{LIMIT_TIMEOUT, RedisClient, RedisError};

/// Longer than the window of a minute, so that none ends early by a clock that is off.
const LIFE_S: u64 = 120;

/// Counts one more request in a minute; answers how many there are on all nodes. Patient, because a limit that is not
/// counted here is not exact any more.
pub async fn increment(shared: &RedisClient, id: &str, minute: i64) -> Result<u64, RedisError> {
    let name = format!("gateway:limit:{id}:{minute}");
    let mut pipe = redis::pipe();
    pipe.cmd("INCR").arg(&name);
    pipe.cmd("EXPIRE").arg(&name).arg(LIFE_S).ignore();
    let (used,): (u64,) = shared.ask(&pipe, LIMIT_TIMEOUT).await?;
    Ok(used)
}
