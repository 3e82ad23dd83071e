//! Limits over all nodes, each in one round trip: counts of the fixed windows, and one script that takes everything a
//! call needs of its buckets and permits, or nothing. The server's clock decides.

use std::sync::OnceLock;
use std::time::Duration;

use gateway_core::ids::{LimitId, OrgId};
use redis::{FromRedisValue, Pipeline, ToRedisArgs};

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

static TAKE: Source = Source::new(include_str!("scripts/limit_take.lua"));
static SETTLE: Source = Source::new(include_str!("scripts/limit_settle.lua"));
static READ: Source = Source::new(include_str!("scripts/limit_read.lua"));
static RENEW: Source = Source::new(include_str!("scripts/limit_renew.lua"));
/// How long a permit is held without being renewed.
pub const LEASE: Duration = Duration::from_secs(30);

/// What a call takes from a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketTake {
    pub limit: LimitId,
    pub bucket: String,
    pub unit: &'static str,
    pub capacity: u64,
    pub window: Duration,
    pub amount: u64,
    /// False: the call goes on if the bucket has too little, and takes nothing from it.
    pub enforced: bool,
    /// The class of the call.
    pub class: Option<String>,
    /// What must stay in the bucket for each other class, unless the class is idle and the bucket has enough.
    pub reserved: Vec<(String, u64)>,
}

/// A permit of a limit of concurrent calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitTake {
    pub limit: LimitId,
    pub bucket: String,
    pub capacity: u64,
    /// False: the call goes on without it if there is none.
    pub enforced: bool,
    /// The class of the call, if a share is kept for it.
    pub class: Option<String>,
    /// How many must stay free for each other class, unless the class is idle and enough permits are free.
    pub reserved: Vec<(String, u64)>,
}

/// The outcome for a call: whether it took everything that is enforced. Otherwise it took nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub ok: bool,
    pub buckets: Vec<BucketState>,
    pub permits: Vec<PermitState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketState {
    pub taken: bool,
    /// Negative if calls used more than they reserved.
    pub left: i64,
    /// When the bucket has enough for the call.
    pub wait: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitState {
    pub taken: bool,
    /// Whether there was one for the call, even if it took nothing.
    pub fits: bool,
    /// How many calls hold one, this one included.
    pub held: u64,
}

/// Takes from every bucket and permit of a call, or from none. `call` identifies the call's permits.
pub async fn take(
    redis: &RedisClient,
    org: OrgId,
    call: &str,
    buckets: &[BucketTake],
    permits: &[PermitTake],
) -> Result<Taken, RedisError> {
    let mut script = Script::new(&TAKE);
    for bucket in buckets {
        script.key(bucket_name(org, bucket.limit, &bucket.bucket, bucket.unit));
    }
    for permit in permits {
        script.key(permit_name(org, permit.limit, &permit.bucket));
    }
    for permit in permits {
        script.key(class_name(org, permit.limit, &permit.bucket));
    }
    script.arg(millis(LEASE)).arg(call).arg(buckets.len());
    for bucket in buckets {
        let BucketTake { capacity, window, amount, enforced, class, reserved, .. } = bucket;
        script.arg(capacity).arg(millis(*window)).arg(amount).arg(u8::from(*enforced));
        script.arg(class.as_deref().unwrap_or_default()).arg(shares(reserved));
    }
    for permit in permits {
        let PermitTake { capacity, enforced, class, reserved, .. } = permit;
        script.arg(capacity).arg(u8::from(*enforced));
        script.arg(class.as_deref().unwrap_or_default()).arg(shares(reserved));
    }
    let reply: Vec<i64> = script.run(redis).await?;
    read_taken(&reply, buckets.len(), permits.len())
        .ok_or_else(|| RedisError::Rejected("the reply has another length".to_owned()))
}

/// `prod=30,batch=10`. Names of classes have no such characters.
fn shares(reserved: &[(String, u64)]) -> String {
    let shares: Vec<String> = reserved.iter().map(|(class, amount)| format!("{class}={amount}")).collect();
    shares.join(",")
}

fn read_taken(reply: &[i64], buckets: usize, permits: usize) -> Option<Taken> {
    let (ok, rest) = reply.split_first()?;
    let (of_buckets, of_permits) = rest.split_at_checked(buckets * 3)?;
    if of_permits.len() != permits * 3 {
        return None;
    }
    let bucket = |values: &[i64]| BucketState {
        taken: values[0] == 1,
        left: values[1],
        wait: Duration::from_millis(u64::try_from(values[2]).unwrap_or_default()),
    };
    let permit = |values: &[i64]| PermitState {
        taken: values[0] == 1,
        fits: values[1] == 1,
        held: u64::try_from(values[2]).unwrap_or_default(),
    };
    Some(Taken {
        ok: *ok == 1,
        buckets: of_buckets.chunks_exact(3).map(bucket).collect(),
        permits: of_permits.chunks_exact(3).map(permit).collect(),
    })
}

/// What a call puts back into a bucket that it took from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketSettle {
    pub limit: LimitId,
    pub bucket: String,
    pub unit: &'static str,
    /// Negative if the call used more than it took.
    pub give_back: i64,
}

/// Corrects what a call took, and gives its permits back.
pub async fn settle(
    redis: &RedisClient,
    org: OrgId,
    call: &str,
    buckets: &[BucketSettle],
    permits: &[(LimitId, String)],
) -> Result<(), RedisError> {
    let mut script = Script::new(&SETTLE);
    for bucket in buckets {
        script.key(bucket_name(org, bucket.limit, &bucket.bucket, bucket.unit));
    }
    for (limit, bucket) in permits {
        script.key(permit_name(org, *limit, bucket));
    }
    script.arg(call).arg(buckets.len());
    for bucket in buckets {
        script.arg(bucket.give_back);
    }
    script.run::<i64>(redis).await.map(|_| ())
}

/// A permit that a call holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldPermit {
    pub limit: LimitId,
    pub bucket: String,
    pub call: String,
}

/// Extends the leases of permits of one organization. To be called more often than `LEASE`. `is_held` is asked afterwards:
/// a call that has ended meanwhile has given its permit back, and the renewal took it again.
pub async fn renew_permits(
    redis: &RedisClient,
    org: OrgId,
    held: &[HeldPermit],
    is_held: impl Fn(&HeldPermit) -> bool,
) -> Result<(), RedisError> {
    let mut script = Script::new(&RENEW);
    script.arg(millis(LEASE));
    for permit in held {
        script.key(permit_name(org, permit.limit, &permit.bucket));
        script.arg(&permit.call);
    }
    let renewed = script.run::<i64>(redis).await;
    // Also after an error: the server may have renewed them all the same.
    for permit in held.iter().filter(|permit| !is_held(permit)) {
        settle(redis, org, &permit.call, &[], &[(permit.limit, permit.bucket.clone())]).await?;
    }
    renewed.map(|_| ())
}

/// A bucket of a limit to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketRead {
    pub bucket: String,
    pub unit: &'static str,
    pub capacity: u64,
    pub window: Duration,
}

/// What is left of buckets, `None` for those that nobody used, and how many calls hold permits.
pub async fn read(
    redis: &RedisClient,
    org: OrgId,
    limit: LimitId,
    buckets: &[BucketRead],
    permits: &[String],
) -> Result<(Vec<Option<i64>>, Vec<u64>), RedisError> {
    let mut script = Script::new(&READ);
    script.arg(buckets.len());
    for bucket in buckets {
        script.key(bucket_name(org, limit, &bucket.bucket, bucket.unit));
        script.arg(bucket.capacity).arg(millis(bucket.window));
    }
    for bucket in permits {
        script.key(permit_name(org, limit, bucket));
    }
    let reply: Vec<i64> = script.run(redis).await?;
    let (levels, held) = reply
        .split_at_checked(buckets.len() * 2)
        .filter(|(_, held)| held.len() == permits.len())
        .ok_or_else(|| RedisError::Rejected("the reply has another length".to_owned()))?;
    let levels = levels.chunks_exact(2).map(|values| (values[0] == 1).then_some(values[1]));
    let held = held.iter().map(|count| u64::try_from(*count).unwrap_or_default());
    Ok((levels.collect(), held.collect()))
}

/// The braces make a cluster keep all buckets of an organization together, which a script needs.
fn bucket_name(org: OrgId, limit: LimitId, bucket: &str, unit: &str) -> String {
    format!("gateway:{{{org}}}:limit:{limit}:{unit}:{bucket}")
}

fn permit_name(org: OrgId, limit: LimitId, bucket: &str) -> String {
    format!("gateway:{{{org}}}:permits:{limit}:{bucket}")
}

/// When the classes that a share of the permits is kept for were there last.
fn class_name(org: OrgId, limit: LimitId, bucket: &str) -> String {
    format!("gateway:{{{org}}}:classes:{limit}:{bucket}")
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A script, and the hash by which the server knows it.
struct Source {
    text: &'static str,
    hash: OnceLock<String>,
}

impl Source {
    const fn new(text: &'static str) -> Self {
        Self { text, hash: OnceLock::new() }
    }
}

/// A call of a script.
struct Script {
    source: &'static Source,
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

impl Script {
    fn new(source: &'static Source) -> Self {
        Self { source, keys: Vec::new(), args: Vec::new() }
    }

    fn key(&mut self, name: String) {
        self.keys.push(name);
    }

    fn arg(&mut self, value: impl ToRedisArgs) -> &mut Self {
        self.args.extend(value.to_redis_args());
        self
    }

    /// Sends the hash of the script, or the script itself if the server does not know it.
    async fn run<T: FromRedisValue>(&self, redis: &RedisClient) -> Result<T, RedisError> {
        if let Some(hash) = self.source.hash.get() {
            let mut pipe = ::redis::pipe();
            self.add_to(&mut pipe, "EVALSHA", hash);
            match redis.query::<(T,)>(&pipe, LIMIT_TIMEOUT).await {
                // The server was restarted.
                Err(RedisError::Rejected(_)) => {}
                reply => return reply.map(|(reply,)| reply),
            }
        }
        let mut pipe = ::redis::pipe();
        pipe.cmd("SCRIPT").arg("LOAD").arg(self.source.text);
        self.add_to(&mut pipe, "EVAL", self.source.text);
        let (hash, reply): (String, T) = redis.query(&pipe, LIMIT_TIMEOUT).await?;
        self.source.hash.get_or_init(|| hash);
        Ok(reply)
    }

    fn add_to(&self, pipe: &mut Pipeline, command: &str, script: &str) {
        pipe.cmd(command).arg(script).arg(self.keys.len());
        for key in &self.keys {
            pipe.arg(key);
        }
        for arg in &self.args {
            pipe.arg(arg.as_slice());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_by_buckets_and_permits() {
        let taken = read_taken(&[0, 0, -5, 1_200, 1, 40, 0, 0, 1, 3], 2, 1).unwrap();
        let short = BucketState { taken: false, left: -5, wait: Duration::from_millis(1_200) };
        let enough = BucketState { taken: true, left: 40, wait: Duration::ZERO };
        assert_eq!(
            taken,
            Taken {
                ok: false,
                buckets: vec![short, enough],
                permits: vec![PermitState { taken: false, fits: true, held: 3 }]
            }
        );
        for wrong in [&[][..], &[1, 1, 1], &[1, 1, 1, 0, 1, 1, 0, 1, 3], &[1, 1, 1, 0, 1, 1, 0, 1, 1, 3, 1]] {
            assert_eq!(read_taken(wrong, 2, 1), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_buckets_of_an_organization_have_one_hash_tag() {
        let (org, limit) = (OrgId(uuid::Uuid::nil()), LimitId(uuid::Uuid::max()));
        let tag = format!("{{{org}}}");
        for name in [
            bucket_name(org, limit, "a{b}", "tokens"),
            permit_name(org, limit, "x"),
            class_name(org, limit, "x"),
        ] {
            let start = name.find('{').unwrap();
            let end = name.find('}').unwrap();
            assert_eq!(&name[start..=end], tag);
        }
    }
}
