//! Password hashing with Argon2id, on threads of their own and bounded: half of the cores at low priority, and a short
//! queue. A caller with many addresses can cause a hash for each, which must not slow down anything else.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordHasher as _, PasswordVerifier as _};
use gateway_core::ids::UserId;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, oneshot};

use crate::compute::half_of_the_cores;
use crate::low_priority::{LowPriorityThreads, NiceValue};

/// Callers that may wait for a thread; more are rejected.
const MAX_QUEUED: usize = 256;
/// Of these, what one user or address may have.
const MAX_QUEUED_PER_USER: usize = 4;
const MAX_QUEUED_PER_ADDRESS: usize = 64;
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Verified if the email is unknown, so that both cases take the same time. It has the parameters of new hashes and
/// matches no password.
const DECOY_HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c2FsdC1vZi1ub2JvZHk$6IxKLHqC4E6T0LTwLbZ2G3gSyWsyFbTjbT0mYxV2rCk";

#[derive(Clone)]
pub struct Passwords {
    threads: LowPriorityThreads,
    free_threads: Arc<Semaphore>,
    waiting: Arc<Mutex<Waiting>>,
    max_wait: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    #[error("too many password checks are in progress")]
    Busy,
    #[error("password hashing failed")]
    Failed,
}

/// Who waits for a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Waiter {
    User(UserId),
    Address(IpAddr),
}

impl Waiter {
    fn max_queued(self) -> usize {
        match self {
            Self::User(_) => MAX_QUEUED_PER_USER,
            Self::Address(_) => MAX_QUEUED_PER_ADDRESS,
        }
    }
}

impl Passwords {
    pub fn start() -> std::io::Result<Self> {
        Self::with_threads(half_of_the_cores())
    }

    fn with_threads(count: usize) -> std::io::Result<Self> {
        Ok(Self {
            threads: LowPriorityThreads::start("passwords", count, NiceValue::Five)?,
            free_threads: Arc::new(Semaphore::new(count)),
            waiting: Arc::default(),
            max_wait: MAX_WAIT,
        })
    }

    /// For a caller whose attempts are few anyway.
    pub async fn hash(&self, password: SecretString) -> Result<String, PasswordError> {
        self.run(None, move || hash_now(password.expose_secret())).await?
    }

    pub async fn hash_for(&self, waiter: Waiter, password: SecretString) -> Result<String, PasswordError> {
        self.run(Some(waiter), move || hash_now(password.expose_secret())).await?
    }

    /// `stored` is `None` for an unknown email: the same work is done, and the result is false.
    pub async fn verify(
        &self,
        waiter: Waiter,
        password: SecretString,
        stored: Option<String>,
    ) -> Result<bool, PasswordError> {
        self.run(Some(waiter), move || {
            let hash = stored.as_deref().unwrap_or(DECOY_HASH);
            let matches = PasswordHash::new(hash).is_ok_and(|hash| {
                Argon2::default().verify_password(password.expose_secret().as_bytes(), &hash).is_ok()
            });
            matches && stored.is_some()
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        waiter: Option<Waiter>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PasswordError> {
        let slot = QueueSlot::take(&self.waiting, waiter)?;
        let thread =
            tokio::time::timeout(self.max_wait, Arc::clone(&self.free_threads).acquire_owned()).await;
        let thread = thread.map_err(|_| PasswordError::Busy)?.map_err(|_| PasswordError::Failed)?;
        drop(slot);
        let (sender, receiver) = oneshot::channel();
        self.threads.run(move || {
            // A hash is not interrupted when the caller goes away, so the thread is free only at its end.
            let _thread = thread;
            let _ = sender.send(work());
        });
        receiver.await.map_err(|_| PasswordError::Failed)
    }
}

fn hash_now(password: &str) -> Result<String, PasswordError> {
    let hash: PasswordHash =
        Argon2::default().hash_password(password.as_bytes()).map_err(|_| PasswordError::Failed)?;
    Ok(hash.to_string())
}

/// A one-time token for a password reset, with its hash, which alone is stored.
pub fn new_reset_token() -> Option<(String, String)> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).ok()?;
    let token = format!("rst-{}", hex::encode(random));
    let hash = hash_reset_token(&token);
    Some((token, hash))
}

pub fn hash_reset_token(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
}

/// How many wait for a thread, in all and by who has a limit of their own.
#[derive(Default)]
struct Waiting {
    all: usize,
    by_waiter: HashMap<Waiter, usize>,
}

/// A slot in the queue, released on drop.
struct QueueSlot<'a> {
    waiting: &'a Mutex<Waiting>,
    waiter: Option<Waiter>,
}

impl<'a> QueueSlot<'a> {
    fn take(waiting: &'a Mutex<Waiting>, waiter: Option<Waiter>) -> Result<Self, PasswordError> {
        let mut counts = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.all >= MAX_QUEUED {
            return Err(PasswordError::Busy);
        }
        if let Some(waiter) = waiter {
            let own = counts.by_waiter.entry(waiter).or_insert(0);
            if *own >= waiter.max_queued() {
                return Err(PasswordError::Busy);
            }
            *own += 1;
        }
        counts.all += 1;
        drop(counts);
        Ok(Self { waiting, waiter })
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        let mut counts = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all = counts.all.saturating_sub(1);
        let Some(waiter) = self.waiter else { return };
        if let Entry::Occupied(mut own) = counts.by_waiter.entry(waiter) {
            if *own.get() > 1 {
                *own.get_mut() -= 1;
            } else {
                own.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HOME: Waiter = Waiter::Address(IpAddr::V4(Ipv4Addr::LOCALHOST));

    #[test]
    fn the_decoy_costs_as_much_as_a_real_hash() {
        let (real, decoy) = (hash_now("x").unwrap(), PasswordHash::new(DECOY_HASH).unwrap());
        let real = PasswordHash::new(&real).unwrap();
        assert_eq!((real.algorithm, real.version), (decoy.algorithm, decoy.version));
        assert_eq!(real.params.to_string(), decoy.params.to_string());
        assert_eq!(real.hash.unwrap().len(), decoy.hash.unwrap().len());
    }

    #[tokio::test]
    async fn only_the_right_password_of_a_known_account_matches() {
        let passwords = Passwords::start().unwrap();
        let hash = passwords.hash("secret".to_owned().into()).await.unwrap();
        assert_eq!(passwords.verify(HOME, "secret".to_owned().into(), Some(hash.clone())).await, Ok(true));
        assert_eq!(passwords.verify(HOME, "Secret".to_owned().into(), Some(hash)).await, Ok(false));
        assert_eq!(passwords.verify(HOME, "secret".to_owned().into(), None).await, Ok(false));
    }

    #[tokio::test]
    async fn a_caller_that_leaves_frees_no_thread() {
        let passwords = Passwords::with_threads(1).unwrap();
        let (finish, may_finish) = std::sync::mpsc::channel::<()>();
        let left = passwords.run(None, move || may_finish.recv());
        assert!(tokio::time::timeout(Duration::from_millis(20), left).await.is_err());
        let mut next = std::pin::pin!(passwords.run(None, || 1));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut next).await.is_err());
        finish.send(()).unwrap();
        assert_eq!(next.await, Ok(1));
    }

    #[tokio::test]
    async fn waiting_is_bounded_in_number_and_time() {
        let mut passwords = Passwords::with_threads(1).unwrap();
        let held = Arc::clone(&passwords.free_threads).acquire_owned().await.unwrap();
        let mut waiting: Vec<_> = (0..MAX_QUEUED).map(|_| Box::pin(passwords.run(None, || 1))).collect();
        for caller in &mut waiting {
            assert!(futures_util::future::poll_immediate(caller).await.is_none());
        }
        assert_eq!(passwords.run(None, || 1).await, Err(PasswordError::Busy));
        drop(waiting);
        passwords.max_wait = Duration::from_millis(5);
        assert_eq!(passwords.run(None, || 1).await, Err(PasswordError::Busy));
        drop(held);
        assert_eq!(passwords.run(None, || 1).await, Ok(1));
    }

    #[tokio::test]
    async fn one_user_or_address_cannot_fill_the_queue() {
        let passwords = Passwords::with_threads(1).unwrap();
        let held = Arc::clone(&passwords.free_threads).acquire_owned().await.unwrap();
        let user = Waiter::User(UserId(uuid::Uuid::from_u128(1)));
        for (waiter, share) in [(user, MAX_QUEUED_PER_USER), (HOME, MAX_QUEUED_PER_ADDRESS)] {
            let mut waiting: Vec<_> =
                (0..share).map(|_| Box::pin(passwords.run(Some(waiter), || 1))).collect();
            for caller in &mut waiting {
                assert!(futures_util::future::poll_immediate(caller).await.is_none());
            }
            assert_eq!(passwords.run(Some(waiter), || 1).await, Err(PasswordError::Busy));
            // Others still find a place.
            let other = Waiter::User(UserId(uuid::Uuid::from_u128(2)));
            let mut other = Box::pin(passwords.run(Some(other), || 1));
            assert!(futures_util::future::poll_immediate(&mut other).await.is_none());
            // A caller that leaves makes room.
            waiting.pop();
            let mut again = Box::pin(passwords.run(Some(waiter), || 1));
            assert!(futures_util::future::poll_immediate(&mut again).await.is_none());
        }
        {
            let counts = passwords.waiting.lock().unwrap();
            assert_eq!((counts.all, counts.by_waiter.len()), (0, 0));
        }
        drop(held);
        assert_eq!(passwords.run(Some(user), || 1).await, Ok(1));
    }
}
