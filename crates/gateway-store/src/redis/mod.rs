//! Redis, which several nodes may share. It only ever makes the service faster: nothing is lost when it is away, every
//! question has a short limit, and while it is away nobody asks it. One task connects, looks after the connection and
//! connects again, so that start-up and requests never wait for that.

pub mod cache;
pub mod limits;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, Pipeline};
use tokio::sync::Notify;

/// A question that a request can do without: it is left out while Redis is slow.
pub const CACHE_TIMEOUT: Duration = Duration::from_millis(50);
/// A question that has to be answered: who does not in this time is away.
pub const LIMIT_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedisError {
    #[error("the address of Redis cannot be used: {0}")]
    InvalidUrl(String),
    #[error("Redis is away")]
    Unavailable,
    #[error("Redis refused: {0}")]
    Rejected(String),
}

pub struct RedisClient {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
    /// An answer was late. Whether Redis is only slow is found out by `run`.
    is_late: AtomicBool,
    doubt: Notify,
    /// When it was last connected again, after it had been lost.
    came_back: Mutex<Option<Instant>>,
}

impl RedisClient {
    /// Only reads the address; `run` connects.
    pub fn new(url: &str) -> Result<Self, RedisError> {
        // The error never repeats the address, which may hold a password.
        let client = Client::open(url).map_err(|error| RedisError::InvalidUrl(error.kind_text()))?;
        Ok(Self {
            client,
            connection: Mutex::default(),
            is_late: AtomicBool::default(),
            doubt: Notify::new(),
            came_back: Mutex::default(),
        })
    }

    /// Connects and stays connected, until it is dropped. `told` learns of every change. The connection lives on the
    /// runtime that runs this, whoever uses it.
    pub async fn run(&self, told: impl Fn(bool)) {
        let mut was_lost = false;
        loop {
            if let Ok(connection) = self.connect().await {
                if was_lost {
                    *self.came_back.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                }
                self.set(Some(connection));
                told(true);
                while self.is_alive().await {
                    self.is_late.store(false, Ordering::Relaxed);
                    let _ = tokio::time::timeout(HEALTH_CHECK_INTERVAL, self.doubt.notified()).await;
                }
                self.set(None);
                was_lost = true;
                told(false);
            }
            tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
        }
    }

    pub fn is_up(&self) -> bool {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Was it lost and connected again in this time?
    pub fn reconnected_within(&self, time: Duration) -> bool {
        let at = *self.came_back.lock().unwrap_or_else(PoisonError::into_inner);
        at.is_some_and(|at| at.elapsed() <= time)
    }

    /// Does it answer?
    pub async fn ping(&self, limit: Duration) -> bool {
        let mut ping = redis::pipe();
        ping.cmd("PING").ignore();
        self.ask::<()>(&ping, limit).await.is_ok()
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

    /// Sends commands and waits for their answers. After a late one, quick questions are not even asked until Redis has
    /// answered in time again, so that one slow answer does not become a queue of them.
    async fn ask<T: FromRedisValue>(&self, commands: &Pipeline, limit: Duration) -> Result<T, RedisError> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut connection = connection.ok_or(RedisError::Unavailable)?;
        if limit < LIMIT_TIMEOUT && self.is_late.load(Ordering::Relaxed) {
            return Err(RedisError::Unavailable);
        }
        match tokio::time::timeout(limit, commands.query_async(&mut connection)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) if !error.is_io_error() && !error.is_timeout() => {
                return Err(RedisError::Rejected(error.kind_text()));
            }
            // Slow, perhaps; the connection is still good.
            Err(_) if limit < LIMIT_TIMEOUT => self.is_late.store(true, Ordering::Relaxed),
            _ => self.set(None),
        }
        self.doubt.notify_one();
        Err(RedisError::Unavailable)
    }
}

trait KindText {
    fn kind_text(&self) -> String;
}

impl KindText for redis::RedisError {
    /// What kind of error it is, without what was sent or where.
    fn kind_text(&self) -> String {
        self.category().to_owned()
    }
}
