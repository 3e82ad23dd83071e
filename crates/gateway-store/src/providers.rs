//! Provider credentials of organizations. Secrets arrive here sealed and leave sealed.

use gateway_core::ids::OrgId;
use gateway_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::page::{Page, Paged};
use crate::row::{Row, args, json};
use crate::{Db, StoreError, Tx};

/// One of several credentials of the same provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// Told to people; unique within its provider.
    pub label: String,
    pub weight: u32,
    pub sealed: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    pub name: String,
    pub kind: String,
    pub base_url: Option<String>,
    /// Sealed.
    pub api_key: Option<String>,
    /// More of them, over which calls are spread.
    pub api_keys: Vec<ApiKey>,
    /// Sealed JSON object.
    pub headers: Option<String>,
    pub models: Vec<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

pub async fn insert(tx: &mut Tx, org: OrgId, provider: &Provider) -> Result<(), StoreError> {
    let Provider { name, kind, base_url, api_key, api_keys, headers, models, created_at, updated_at } =
        provider;
    tx.exec(
        "INSERT INTO provider_credentials (org_id, name, kind, base_url, api_key, headers, models, created_at, \
         updated_at, api_keys) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        args![
            org,
            name,
            kind,
            base_url.clone(),
            api_key.clone(),
            headers.clone(),
            json(models),
            *created_at,
            *updated_at,
            json(api_keys)
        ],
    )
    .await
    .map(|_| ())
}

pub async fn update(tx: &mut Tx, org: OrgId, provider: &Provider) -> Result<(), StoreError> {
    let Provider { name, kind, base_url, api_key, api_keys, headers, models, created_at: _, updated_at } =
        provider;
    tx.exec(
        "UPDATE provider_credentials SET kind = $3, base_url = $4, api_key = $5, headers = $6, models = $7, \
         updated_at = $8, api_keys = $9 WHERE org_id = $1 AND name = $2",
        args![
            org,
            name,
            kind,
            base_url.clone(),
            api_key.clone(),
            headers.clone(),
            json(models),
            *updated_at,
            json(api_keys)
        ],
    )
    .await
    .map(|_| ())
}

/// All of an organization, by name.
pub async fn list(db: &Db, org: OrgId) -> Result<Vec<Provider>, StoreError> {
    let rows = db
        .all(
            "SELECT name, kind, base_url, api_key, api_keys, headers, models, created_at, updated_at \
             FROM provider_credentials WHERE org_id = $1 ORDER BY name",
            args![org],
        )
        .await?;
    rows.iter().map(read).collect()
}

/// The newest first, in pages.
pub async fn list_page(db: &Db, org: OrgId, page: &Page) -> Result<Paged<Provider>, StoreError> {
    let (time, name) = page.before_in_time();
    let rows = db
        .all(
            "SELECT name, kind, base_url, api_key, api_keys, headers, models, created_at, updated_at \
             FROM provider_credentials WHERE org_id = $1 \
             AND ($2 IS NULL OR created_at < $2 OR (created_at = $2 AND name < $3)) \
             ORDER BY created_at DESC, name DESC LIMIT $4",
            args![org, time, name, page.fetch()],
        )
        .await?;
    let providers = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(page.cut(providers, |provider| Page::in_time(provider.created_at, &provider.name)))
}

/// The credential, held until the transaction ends, so that two changes at once do not undo each other.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, name: &str) -> Result<Option<Provider>, StoreError> {
    tx.exec("UPDATE provider_credentials SET name = name WHERE org_id = $1 AND name = $2", args![org, name])
        .await?;
    let row = tx
        .opt(
            "SELECT name, kind, base_url, api_key, api_keys, headers, models, created_at, updated_at \
             FROM provider_credentials WHERE org_id = $1 AND name = $2",
            args![org, name],
        )
        .await?;
    row.as_ref().map(read).transpose()
}

pub async fn delete(tx: &mut Tx, org: OrgId, name: &str) -> Result<bool, StoreError> {
    let gone =
        tx.exec("DELETE FROM provider_credentials WHERE org_id = $1 AND name = $2", args![org, name]).await?;
    Ok(gone == 1)
}

fn read(row: &Row) -> Result<Provider, StoreError> {
    Ok(Provider {
        name: row.get("name")?,
        kind: row.get("kind")?,
        base_url: row.get("base_url")?,
        api_key: row.get("api_key")?,
        api_keys: row.json("api_keys")?,
        headers: row.get("headers")?,
        models: row.json("models")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
    })
}
