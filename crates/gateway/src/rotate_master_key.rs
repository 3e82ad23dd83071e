//! `gateway admin rotate-master-key`: encrypts all stored secrets with the current master key. It may run beside the
//! service, can be interrupted at any time, and the next run continues. Also the check at a start that the master key is
//! the one that encrypted what is stored.

use gateway_store::providers::ApiKey;
use gateway_store::sealed::{self, SEALED_COLUMNS, SealedColumn, SealedValue};
use gateway_store::{Db, Part, StoreError};

use crate::audit::signing::key_context;
use crate::vault::{Vault, VaultError, encryption_context};

const PAGE: i64 = 100;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Encrypted with the current key now.
    pub rotated: u64,
    /// Were already.
    pub current: u64,
    /// None of the known keys decrypts them.
    pub unreadable: u64,
}

/// Goes through all stored secrets once. `done` gets their number so far.
pub async fn run(
    db: &Db,
    logs: &Db,
    vault: &Vault,
    done: &mut (dyn FnMut(u64) + Send),
) -> Result<Rotation, StoreError> {
    let mut rotation = Rotation::default();
    for column in SEALED_COLUMNS {
        let db = match column.part {
            Part::State => db,
            Part::Logs => logs,
        };
        let mut last: Option<SealedValue> = None;
        loop {
            let page = sealed::list_after(db, column, last.as_ref(), PAGE).await?;
            for stored in &page {
                rotate(db, column, vault, stored, &mut rotation).await?;
            }
            done(rotation.rotated + rotation.current + rotation.unreadable);
            match page.into_iter().next_back() {
                Some(value) => last = Some(value),
                None => break,
            }
        }
    }
    Ok(rotation)
}

/// How many stored secrets of each kind are read at a start.
const SAMPLE: i64 = 20;

/// What the known keys can do with a few of the stored secrets of each kind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub readable: usize,
    pub unreadable: usize,
}

impl Sample {
    /// A few values may be damaged. If not one can be read, the key is not the one that encrypted them, and what is
    /// stored from now on could not be read with that one.
    pub fn is_other_key(&self) -> bool {
        self.readable == 0 && self.unreadable > 0
    }
}

/// Tries the known keys on a few stored secrets. The schema is up to date.
pub async fn sample(db: &Db, logs: &Db, vault: &Vault) -> Result<Sample, StoreError> {
    let mut sample = Sample::default();
    for column in SEALED_COLUMNS {
        let db = match column.part {
            Part::State => db,
            Part::Logs => logs,
        };
        for stored in sealed::list_after(db, column, None, SAMPLE).await? {
            // A list without keys has nothing to decrypt.
            if stored.value == "[]" {
                continue;
            }
            match reseal(column, vault, &stored) {
                Ok(_) => sample.readable += 1,
                Err(VaultError) => sample.unreadable += 1,
            }
        }
    }
    Ok(sample)
}

async fn rotate(
    db: &Db,
    column: SealedColumn,
    vault: &Vault,
    stored: &SealedValue,
    rotation: &mut Rotation,
) -> Result<(), StoreError> {
    match reseal(column, vault, stored) {
        Ok(None) => rotation.current += 1,
        // A value that was changed meanwhile was sealed by the running service.
        Ok(Some(new)) => rotation.rotated += u64::from(sealed::replace(db, column, stored, new).await?),
        Err(error) => {
            let (table, row) = (column.table, &stored.row);
            tracing::error!(%error, org = %stored.org, table, row, column = column.column, "not rotated");
            rotation.unreadable += 1;
        }
    }
    Ok(())
}

/// The stored text with its secrets sealed with the current key. `None` if they are already.
fn reseal(column: SealedColumn, vault: &Vault, stored: &SealedValue) -> Result<Option<String>, VaultError> {
    let context = |column: &str| encryption_context(&stored.org, &stored.row, column);
    match (column.table, column.column) {
        ("provider_credentials", "api_keys") => {
            let mut keys: Vec<ApiKey> = serde_json::from_str(&stored.value).map_err(|_| VaultError)?;
            let mut is_changed = false;
            for key in &mut keys {
                if let Some(new) = vault.reseal(&context(&format!("api_keys/{}", key.label)), &key.sealed)? {
                    (key.sealed, is_changed) = (new, true);
                }
            }
            let text = is_changed.then(|| serde_json::to_string(&keys).map_err(|_| VaultError));
            text.transpose()
        }
        ("provider_credentials", name) => vault.reseal(&context(name), &stored.value),
        // The previous secret of a webhook keeps the context that it had as the current one.
        ("webhooks", _) => {
            let owner = format!("webhook/{}", stored.row);
            vault.reseal(&encryption_context(&stored.org, &owner, "secret"), &stored.value)
        }
        ("mcp_servers", name) => {
            let owner = format!("mcp/{}", stored.row);
            vault.reseal(&encryption_context(&stored.org, &owner, name), &stored.value)
        }
        ("mcp_connections", name) => {
            let owner = format!("mcp-connection/{}", stored.row);
            vault.reseal(&encryption_context(&stored.org, &owner, name), &stored.value)
        }
        ("audit_keys", _) => vault.reseal(&key_context(&stored.row), &stored.value),
        (_, name) => {
            let owner = format!("export/{}", stored.row);
            vault.reseal(&encryption_context(&stored.org, &owner, name), &stored.value)
        }
    }
}
