//! The optional Redis server that nodes share. The service works without it: every command has a short timeout, and
//! commands fail at once while there is no connection. One task connects, checks the connection and reconnects, so that
//! start-up and requests never wait for a connection.

pub mod cache;
pub mod limits;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, Pipeline};
use tokio::sync::Notify;

/// The timeout of optional commands, such as cache lookups. They are skipped while Redis is slow.
pub const CACHE_TIMEOUT: Duration = Duration::from_millis(50);
/// The timeout of required commands. When it expires, the connection counts as lost.
pub const LIMIT_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedisError {
    #[error("invalid Redis URL: {0}")]
    InvalidUrl(String),
    #[error("Redis is not available")]
    Unavailable,
    #[error("Redis rejected the command: {0}")]
    Rejected(String),
}

pub struct RedisClient {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
    /// A reply timed out. The health check of `run` finds out whether Redis is only slow.
    is_slow: AtomicBool,
    check_requested: Notify,
    /// When a lost connection was last re-established.
    reconnected_at: Mutex<Option<Instant>>,
}

impl RedisClient {
    /// Parses the URL; `run` connects.
    pub fn new(url: &str) -> Result<Self, RedisError> {
        // The error must not contain the URL, which may have a password.
        let client = Client::open(url).map_err(|error| RedisError::InvalidUrl(error.kind_text()))?;
        Ok(Self {
            client,
            connection: Mutex::default(),
            is_slow: AtomicBool::default(),
            check_requested: Notify::new(),
            reconnected_at: Mutex::default(),
        })
    }

    /// Connects and reconnects until dropped. Calls `on_change` whenever the connection is established or lost. The
    /// connection runs on the runtime of this task.
    pub async fn run(&self, on_change: impl Fn(bool)) {
        let mut was_lost = false;
        loop {
            if let Ok(connection) = self.connect().await {
                if was_lost {
                    *self.reconnected_at.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some(Instant::now());
                }
                self.set(Some(connection));
                on_change(true);
                while self.is_alive().await {
                    self.is_slow.store(false, Ordering::Relaxed);
                    let _ =
                        tokio::time::timeout(HEALTH_CHECK_INTERVAL, self.check_requested.notified()).await;
                }
                self.set(None);
                was_lost = true;
                on_change(false);
            }
            tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
        }
    }

    pub fn is_up(&self) -> bool {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether a lost connection was re-established within the last `time`.
    pub fn reconnected_within(&self, time: Duration) -> bool {
        let at = *self.reconnected_at.lock().unwrap_or_else(PoisonError::into_inner);
        at.is_some_and(|at| at.elapsed() <= time)
    }

    /// Whether Redis replies within the timeout.
    pub async fn ping(&self, timeout: Duration) -> bool {
        let mut ping = redis::pipe();
        ping.cmd("PING").ignore();
        self.query::<()>(&ping, timeout).await.is_ok()
    }

    /// Connects once and asks for a reply, for a check before the service starts.
    pub async fn check(&self) -> Result<(), RedisError> {
        let connection = self.connect().await?;
        self.set(Some(connection));
        let is_alive = self.is_alive().await;
        self.set(None);
        if is_alive { Ok(()) } else { Err(RedisError::Rejected("it does not reply in time".into())) }
    }

    async fn is_alive(&self) -> bool {
        self.is_up() && self.ping(LIMIT_TIMEOUT).await
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(LIMIT_TIMEOUT));
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(RedisError::Rejected(error.kind_text())),
            Err(_) => Err(RedisError::Unavailable),
        }
    }

    fn set(&self, connection: Option<MultiplexedConnection>) {
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = connection;
    }

    /// Sends commands and waits for the replies. After a timeout, optional commands fail at once until a health check
    /// succeeds, so that slow replies do not queue up.
    async fn query<T: FromRedisValue>(
        &self,
        commands: &Pipeline,
        timeout: Duration,
    ) -> Result<T, RedisError> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut connection = connection.ok_or(RedisError::Unavailable)?;
        if timeout < LIMIT_TIMEOUT && self.is_slow.load(Ordering::Relaxed) {
            return Err(RedisError::Unavailable);
        }
        match tokio::time::timeout(timeout, commands.query_async(&mut connection)).await {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(error)) if !error.is_io_error() && !error.is_timeout() => {
                return Err(RedisError::Rejected(error.kind_text()));
            }
            // Redis may only be slow, so the connection is kept.
            Err(_) if timeout < LIMIT_TIMEOUT => self.is_slow.store(true, Ordering::Relaxed),
            _ => self.set(None),
        }
        self.check_requested.notify_one();
        Err(RedisError::Unavailable)
    }
}

trait KindText {
    fn kind_text(&self) -> String;
}

impl KindText for redis::RedisError {
    /// The category of the error, without the command or the address.
    fn kind_text(&self) -> String {
        self.category().to_owned()
    }
}
