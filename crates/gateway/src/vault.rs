//! Sealing of secrets at rest: AES-256-GCM under the master key. The place a secret belongs to (organization, row,
//! column) is bound to it, so that a sealed value copied elsewhere does not open.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use secrecy::{ExposeSecret, SecretString};

/// Names the key that sealed a value, so that a later version can hold several.
const KEY_ID: &str = "k1";

pub struct Vault {
    key: RandomizedNonceKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a stored secret cannot be opened: it was sealed with another master key, or damaged")]
pub struct Sealed;

impl Vault {
    /// `master_key` is 64 hex digits.
    pub fn new(master_key: &SecretString) -> Option<Self> {
        let bytes = hex::decode(master_key.expose_secret()).ok()?;
        let key = RandomizedNonceKey::new(&AES_256_GCM, &bytes).ok()?;
        Some(Self { key })
    }

    pub fn seal(&self, place: &str, secret: &str) -> Result<String, Sealed> {
        let mut buffer = secret.as_bytes().to_vec();
        let nonce = self
            .key
            .seal_in_place_append_tag(Aad::from(place.as_bytes()), &mut buffer)
            .map_err(|_| Sealed)?;
        let mut whole = nonce.as_ref().to_vec();
        whole.append(&mut buffer);
        Ok(format!("{KEY_ID}.{}", BASE64.encode(whole)))
    }

    pub fn open(&self, place: &str, sealed: &str) -> Result<SecretString, Sealed> {
        let text = sealed.strip_prefix(KEY_ID).and_then(|rest| rest.strip_prefix('.')).ok_or(Sealed)?;
        let mut whole = BASE64.decode(text).map_err(|_| Sealed)?;
        if whole.len() < NONCE_LEN {
            return Err(Sealed);
        }
        let (nonce, body) = whole.split_at_mut(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| Sealed)?;
        let plain = self.key.open_in_place(nonce, Aad::from(place.as_bytes()), body).map_err(|_| Sealed)?;
        std::str::from_utf8(plain).map(|text| text.to_owned().into()).map_err(|_| Sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vault(byte: &str) -> Vault {
        Vault::new(&byte.repeat(32).into()).unwrap()
    }

    #[test]
    fn a_secret_opens_only_where_it_was_sealed_and_with_its_key() {
        let sealed = vault("ab").seal("org/openai/api_key", "sk-live").unwrap();
        assert!(!sealed.contains("sk-live"));
        assert_eq!(vault("ab").open("org/openai/api_key", &sealed).unwrap().expose_secret(), "sk-live");
        assert!(vault("ab").open("other/openai/api_key", &sealed).is_err());
        assert!(vault("cd").open("org/openai/api_key", &sealed).is_err());
        assert!(vault("ab").open("org/openai/api_key", &sealed[..sealed.len() - 2]).is_err());
        assert!(vault("ab").open("org/openai/api_key", "k1.AAAA").is_err());
    }

    #[test]
    fn the_same_secret_is_sealed_differently_each_time() {
        let vault = vault("ab");
        assert_ne!(vault.seal("x", "secret").unwrap(), vault.seal("x", "secret").unwrap());
    }
}
