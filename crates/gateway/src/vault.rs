//! Encryption of secrets at rest: AES-256-GCM with the master key. A secret is bound to its encryption context
//! (organization, row, column), so that a sealed value copied elsewhere cannot be opened.

use std::fmt::Display;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use gateway_core::time::{DAY, Timestamp};
use secrecy::{ExposeSecret, SecretString};

/// The version of the sealed form.
const KEY_ID: &str = "k1";

pub struct Vault {
    key: RandomizedNonceKey,
    /// Keys that open, but do not seal, while the master key is being changed.
    accepted: Vec<RandomizedNonceKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot decrypt a stored secret: it was sealed with another master key, or it is damaged")]
pub struct VaultError;

impl Vault {
    /// `master_key` is 64 hex digits.
    pub fn new(master_key: &SecretString) -> Option<Self> {
        Some(Self { key: key_of(master_key)?, accepted: Vec::new() })
    }

    /// Also opens what one of these master keys has sealed.
    pub fn accepting(mut self, master_keys: &[SecretString]) -> Option<Self> {
        self.accepted = master_keys.iter().map(key_of).collect::<Option<_>>()?;
        Some(self)
    }

    pub fn seal(&self, context: &str, secret: &str) -> Result<String, VaultError> {
        let sealed = seal_with(&self.key, context, secret.as_bytes().to_vec())?;
        Ok(format!("{KEY_ID}.{}", BASE64.encode(sealed)))
    }

    pub fn open(&self, context: &str, sealed: &str) -> Result<SecretString, VaultError> {
        let plain = self.open_bytes(context, decode(sealed)?)?;
        String::from_utf8(plain).map(Into::into).map_err(|_| VaultError)
    }

    /// The value sealed with the master key. `None` if it is already.
    pub fn reseal(&self, context: &str, sealed: &str) -> Result<Option<String>, VaultError> {
        if open_with(&self.key, context, decode(sealed)?).is_ok() {
            return Ok(None);
        }
        let plain = self.open(context, sealed)?;
        self.seal(context, plain.expose_secret()).map(Some)
    }

    fn open_bytes(&self, context: &str, sealed: Vec<u8>) -> Result<Vec<u8>, VaultError> {
        let Some((last, others)) = self.accepted.split_last() else {
            return open_with(&self.key, context, sealed);
        };
        for key in [&self.key].into_iter().chain(others) {
            if let Ok(plain) = open_with(key, context, sealed.clone()) {
                return Ok(plain);
            }
        }
        open_with(last, context, sealed)
    }
}

/// Seals large numbers of values. Each day has a key of its own, derived from the master key: with random nonces, one key
/// must not seal more than some billion values.
pub struct DailyVault {
    key: hmac::Key,
    purpose: &'static str,
}

/// The day is in front of a sealed value.
const DAY_BYTES: usize = 8;

impl DailyVault {
    pub fn new(master_key: &SecretString, purpose: &'static str) -> Option<Self> {
        let bytes = hex::decode(master_key.expose_secret()).ok()?;
        Some(Self { key: hmac::Key::new(hmac::HMAC_SHA256, &bytes), purpose })
    }

    pub fn seal(&self, context: &str, plain: Vec<u8>, now: Timestamp) -> Result<Vec<u8>, VaultError> {
        let day = now.0.div_euclid(DAY);
        let mut whole = day.to_be_bytes().to_vec();
        whole.append(&mut seal_with(&self.key_of(day)?, context, plain)?);
        Ok(whole)
    }

    pub fn open(&self, context: &str, mut sealed: Vec<u8>) -> Result<Vec<u8>, VaultError> {
        let day = sealed.first_chunk::<DAY_BYTES>().map(|day| i64::from_be_bytes(*day)).ok_or(VaultError)?;
        open_with(&self.key_of(day)?, context, sealed.split_off(DAY_BYTES))
    }

    fn key_of(&self, day: i64) -> Result<RandomizedNonceKey, VaultError> {
        let derived = hmac::sign(&self.key, format!("{}/{day}", self.purpose).as_bytes());
        RandomizedNonceKey::new(&AES_256_GCM, derived.as_ref()).map_err(|_| VaultError)
    }
}

fn seal_with(key: &RandomizedNonceKey, context: &str, mut plain: Vec<u8>) -> Result<Vec<u8>, VaultError> {
    let nonce = key.seal_in_place_append_tag(Aad::from(context.as_bytes()), &mut plain);
    let mut whole = nonce.map_err(|_| VaultError)?.as_ref().to_vec();
    whole.append(&mut plain);
    Ok(whole)
}

/// `master_key` is 64 hex digits.
fn key_of(master_key: &SecretString) -> Option<RandomizedNonceKey> {
    let bytes = hex::decode(master_key.expose_secret()).ok()?;
    RandomizedNonceKey::new(&AES_256_GCM, &bytes).ok()
}

fn decode(sealed: &str) -> Result<Vec<u8>, VaultError> {
    let text = sealed.strip_prefix(KEY_ID).and_then(|rest| rest.strip_prefix('.')).ok_or(VaultError)?;
    BASE64.decode(text).map_err(|_| VaultError)
}

fn open_with(key: &RandomizedNonceKey, context: &str, mut sealed: Vec<u8>) -> Result<Vec<u8>, VaultError> {
    if sealed.len() < NONCE_LEN {
        return Err(VaultError);
    }
    let mut body = sealed.split_off(NONCE_LEN);
    let nonce = Nonce::try_assume_unique_for_key(&sealed).map_err(|_| VaultError)?;
    let opened = key.open_in_place(nonce, Aad::from(context.as_bytes()), &mut body);
    let length = opened.map_err(|_| VaultError)?.len();
    body.truncate(length);
    Ok(body)
}

/// The encryption context of a secret of an organization, or of the installation.
pub fn encryption_context(org: impl Display, owner: &str, column: &str) -> String {
    format!("{org}/{owner}/{column}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vault(byte: &str) -> Vault {
        Vault::new(&byte.repeat(32).into()).unwrap()
    }

    #[test]
    fn a_secret_opens_only_in_its_context_and_with_its_key() {
        let sealed = vault("ab").seal("org/openai/api_key", "sk-live").unwrap();
        assert!(!sealed.contains("sk-live"));
        assert_eq!(vault("ab").open("org/openai/api_key", &sealed).unwrap().expose_secret(), "sk-live");
        assert!(vault("ab").open("other/openai/api_key", &sealed).is_err());
        assert!(vault("cd").open("org/openai/api_key", &sealed).is_err());
        assert!(vault("ab").open("org/openai/api_key", &sealed[..sealed.len() - 2]).is_err());
        assert!(vault("ab").open("org/openai/api_key", "k1.AAAA").is_err());
    }

    #[test]
    fn bytes_open_only_in_their_context_and_with_the_key_of_their_purpose() {
        let key = "ab".repeat(32).into();
        let cache = DailyVault::new(&key, "cache").unwrap();
        let sealed = cache.seal("a", b"\xff\x00body".to_vec(), Timestamp(0)).unwrap();
        assert_eq!(cache.open("a", sealed.clone()).unwrap(), b"\xff\x00body");
        assert!(cache.open("b", sealed.clone()).is_err());
        assert!(DailyVault::new(&key, "other").unwrap().open("a", sealed.clone()).is_err());
        assert!(Vault::new(&key).unwrap().open_bytes("a", sealed[DAY_BYTES..].to_vec()).is_err());
        assert!(
            cache.open("a", sealed[..5].to_vec()).is_err() && cache.open("a", sealed[..15].to_vec()).is_err()
        );
    }

    #[test]
    fn each_day_has_a_key_of_its_own_and_old_values_still_open() {
        let cache = DailyVault::new(&"ab".repeat(32).into(), "cache").unwrap();
        let [first, last, next] =
            [0, DAY - 1, DAY].map(|at| cache.seal("a", b"x".to_vec(), Timestamp(at)).unwrap());
        for sealed in [&first, &last, &next] {
            assert_eq!(cache.open("a", sealed.clone()).unwrap(), b"x");
        }
        assert_eq!(first[..DAY_BYTES], last[..DAY_BYTES]);
        // The value of one day does not open as that of another.
        let moved = [&next[..DAY_BYTES], &first[DAY_BYTES..]].concat();
        assert!(cache.open("a", moved).is_err());
    }

    #[test]
    fn an_accepted_key_opens_and_only_the_master_key_seals() {
        let old = vault("ab").seal("x", "secret").unwrap();
        let accepted = ["12".repeat(32).into(), "ab".repeat(32).into()];
        let both = vault("cd").accepting(&accepted).unwrap();
        assert_eq!(both.open("x", &old).unwrap().expose_secret(), "secret");
        assert!(both.open("y", &old).is_err());
        let new = both.reseal("x", &old).unwrap().unwrap();
        assert_eq!(vault("cd").open("x", &new).unwrap().expose_secret(), "secret");
        assert_eq!(both.reseal("x", &new), Ok(None), "it is sealed with the master key already");
        assert!(both.reseal("x", &vault("ef").seal("x", "secret").unwrap()).is_err());
        assert!(vault("ab").open("x", &both.seal("x", "other").unwrap()).is_err());
        assert!(vault("cd").accepting(&["short".to_owned().into()]).is_none());
    }

    #[test]
    fn the_same_secret_is_sealed_differently_each_time() {
        let vault = vault("ab");
        assert_ne!(vault.seal("x", "secret").unwrap(), vault.seal("x", "secret").unwrap());
    }
}
