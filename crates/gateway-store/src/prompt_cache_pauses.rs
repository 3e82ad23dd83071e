//! Prompt caching that is paused for a key, because it lost money.

use gateway_core::ids::{KeyId, OrgId};
use gateway_core::time::Timestamp;

use crate::row::args;
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// None: calls of members without a key.
    pub key_id: Option<KeyId>,
    /// The named model with the setting. None: the setting of the organization.
    pub model: Option<String>,
    /// What was saved over the calls that led to it, in units of 1e-12 USD: negative.
    pub saved: i64,
    pub paused_at: Timestamp,
}

/// Inserts a pause, unless there is one.
pub async fn insert(tx: &mut Tx, org: OrgId, pause: &Pause) -> Result<(), StoreError> {
    let key = pause.key_id.map(|key| key.to_string()).unwrap_or_default();
    let model = pause.model.clone().unwrap_or_default();
    tx.exec(
        "INSERT INTO prompt_cache_pauses (org_id, key_id, model, saved, paused_at) \
         SELECT id, $2, $3, $4, $5 FROM orgs WHERE id = $1 ON CONFLICT (org_id, key_id, model) DO NOTHING",
        args![org, key, model, pause.saved, pause.paused_at],
    )
    .await
    .map(|_| ())
}

/// All pauses of an organization, oldest first.
pub async fn list(db: &Db, org: OrgId) -> Result<Vec<Pause>, StoreError> {
    let rows = db
        .all(
            "SELECT key_id, model, saved, paused_at FROM prompt_cache_pauses WHERE org_id = $1 \
             ORDER BY paused_at, key_id, model",
            args![org],
        )
        .await?;
    rows.iter()
        .map(|row| {
            let (key, model): (String, String) = (row.get("key_id")?, row.get("model")?);
            Ok(Pause {
                key_id: key.parse().ok(),
                model: Some(model).filter(|model| !model.is_empty()),
                saved: row.get("saved")?,
                paused_at: row.get("paused_at")?,
            })
        })
        .collect()
}

/// Ends the pauses of a setting: that of a named model, or that of the organization.
pub async fn delete(tx: &mut Tx, org: OrgId, model: Option<&str>) -> Result<u64, StoreError> {
    tx.exec(
        "DELETE FROM prompt_cache_pauses WHERE org_id = $1 AND model = $2",
        args![org, model.unwrap_or_default()],
    )
    .await
}
