//! Password hashing with Argon2id, on blocking threads and bounded: at most one hash per core at a time, and a short
//! queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordHasher as _, PasswordVerifier as _};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;

/// Callers that may wait for a core; more are rejected.
const MAX_QUEUED: usize = 256;

/// Verified if the email is unknown, so that both cases take the same time. It has the parameters of new hashes and
/// matches no password.
const DECOY_HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c2FsdC1vZi1ub2JvZHk$6IxKLHqC4E6T0LTwLbZ2G3gSyWsyFbTjbT0mYxV2rCk";

#[derive(Clone)]
pub struct Passwords {
    cores: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    #[error("too many password checks are in progress")]
    Busy,
    #[error("password hashing failed")]
    Failed,
}

impl Default for Passwords {
    fn default() -> Self {
        Self::new()
    }
}

impl Passwords {
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self { cores: Arc::new(Semaphore::new(cores)), waiting: Arc::default() }
    }

    pub async fn hash(&self, password: SecretString) -> Result<String, PasswordError> {
        self.run_blocking(move || hash_now(password.expose_secret())).await?
    }

    /// `stored` is `None` for an unknown email: the same work is done, and the result is false.
    pub async fn verify(
        &self,
        password: SecretString,
        stored: Option<String>,
    ) -> Result<bool, PasswordError> {
        self.run_blocking(move || {
            let hash = stored.as_deref().unwrap_or(DECOY_HASH);
            let matches = PasswordHash::new(hash).is_ok_and(|hash| {
                Argon2::default().verify_password(password.expose_secret().as_bytes(), &hash).is_ok()
            });
            matches && stored.is_some()
        })
        .await
    }

    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PasswordError> {
        let _slot = QueueSlot::take(&self.waiting)?;
        let _core = self.cores.acquire().await.map_err(|_| PasswordError::Failed)?;
        tokio::task::spawn_blocking(work).await.map_err(|_| PasswordError::Failed)
    }
}

fn hash_now(password: &str) -> Result<String, PasswordError> {
    let hash: PasswordHash =
        Argon2::default().hash_password(password.as_bytes()).map_err(|_| PasswordError::Failed)?;
    Ok(hash.to_string())
}

/// A slot in the queue, released on drop.
struct QueueSlot<'a>(&'a AtomicUsize);

impl<'a> QueueSlot<'a> {
    fn take(waiting: &'a AtomicUsize) -> Result<Self, PasswordError> {
        if waiting.fetch_add(1, Ordering::Relaxed) >= MAX_QUEUED {
            waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(PasswordError::Busy);
        }
        Ok(Self(waiting))
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let passwords = Passwords::new();
        let hash = passwords.hash("secret".to_owned().into()).await.unwrap();
        assert_eq!(passwords.verify("secret".to_owned().into(), Some(hash.clone())).await, Ok(true));
        assert_eq!(passwords.verify("Secret".to_owned().into(), Some(hash)).await, Ok(false));
        assert_eq!(passwords.verify("secret".to_owned().into(), None).await, Ok(false));
    }
}
