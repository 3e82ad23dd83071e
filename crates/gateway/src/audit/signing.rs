//! The Ed25519 key that signs checkpoints. It is made once, sealed with the master key and shared by all nodes. Public
//! keys are kept, so that old signatures stay verifiable.

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gateway_core::audit::Chain;
use gateway_core::audit::checkpoint::{Checkpoint, SignedCheckpoint};
use gateway_core::time::Timestamp;
use gateway_store::audit::{self, StoredKey};
use gateway_store::{Db, StoreError};
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};

use crate::services::Services;
use crate::vault::{Vault, encryption_context};

/// Characters of a key's id.
const ID_LENGTH: usize = 16;

pub struct SigningKey {
    id: String,
    pair: Ed25519KeyPair,
}

#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot make or open the signing key of the audit log")]
    Key,
}

impl From<SigningError> for StoreError {
    fn from(error: SigningError) -> Self {
        match error {
            SigningError::Store(error) => error,
            SigningError::Key => StoreError::Other(error.to_string()),
        }
    }
}

/// The encryption context of a private key.
pub fn key_context(id: &str) -> String {
    encryption_context(Chain::System, &format!("audit_key/{id}"), "sealed")
}

impl SigningKey {
    /// The newest key that the master key opens, or a new one. It is read each time: checkpoints are rare, and another
    /// process may have added a key.
    pub async fn load(services: &Services) -> Result<Self, SigningError> {
        loop {
            let keys = audit::keys(&services.db).await?;
            if let Some(key) = keys.iter().rev().find_map(|key| Self::open(&services.vault, key)) {
                return Ok(key);
            }
            let (key, stored) = Self::generate(&services.vault, services.clock.now())?;
            // Only one of several nodes that start together makes it.
            if audit::insert_key(&services.db, &stored, keys.len()).await? {
                return Ok(key);
            }
        }
    }

    fn open(vault: &Vault, StoredKey { id, sealed, .. }: &StoredKey) -> Option<Self> {
        let opened = vault.open(&key_context(id), sealed).ok()?;
        let pair = Ed25519KeyPair::from_pkcs8(&BASE64.decode(opened.expose_secret()).ok()?).ok()?;
        Some(Self { id: id.clone(), pair })
    }

    pub fn generate(vault: &Vault, now: Timestamp) -> Result<(Self, StoredKey), SigningError> {
        let pair = Ed25519KeyPair::generate().map_err(|_| SigningError::Key)?;
        let der = pair.to_pkcs8v1().map_err(|_| SigningError::Key)?;
        let public = pair.public_key().as_ref();
        let id: String = hex::encode(Sha256::digest(public)).chars().take(ID_LENGTH).collect();
        let sealed = vault.seal(&key_context(&id), &BASE64.encode(der.as_ref()));
        let stored = StoredKey {
            id: id.clone(),
            public_key: BASE64.encode(public),
            sealed: sealed.map_err(|_| SigningError::Key)?,
            created_at: now,
        };
        Ok((Self { id, pair }, stored))
    }

    pub fn sign(&self, checkpoint: Checkpoint) -> SignedCheckpoint {
        let signature = BASE64.encode(self.pair.sign(checkpoint.text().as_bytes()));
        SignedCheckpoint { checkpoint, signature, key_id: self.id.clone() }
    }
}

/// The keys that this installation has signed with.
pub struct PublicKeys(Vec<StoredKey>);

impl PublicKeys {
    pub async fn load(db: &Db) -> Result<Self, StoreError> {
        audit::keys(db).await.map(Self)
    }

    pub fn verify(&self, signed: &SignedCheckpoint) -> bool {
        let key = self.0.iter().find(|key| key.id == signed.key_id);
        key.is_some_and(|key| verifies(&key.public_key, &signed.checkpoint, &signed.signature))
    }
}

/// Checks a signature with a public key in base64.
pub fn verifies(public_key: &str, checkpoint: &Checkpoint, signature: &str) -> bool {
    let (Ok(public_key), Ok(signature)) = (BASE64.decode(public_key), BASE64.decode(signature)) else {
        return false;
    };
    UnparsedPublicKey::new(&ED25519, public_key).verify(checkpoint.text().as_bytes(), &signature).is_ok()
}
