//! Provider credentials of organizations. Callers encrypt the secrets before they pass them in.

use std::collections::HashSet;

use gateway_core::ids::OrgId;
use gateway_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::page::{Page, Paged};
use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

/// One of several credentials of the same provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// Shown to users; unique within its provider.
    pub label: String,
    pub weight: u32,
    /// Encrypted.
    pub sealed: String,
}

table! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Provider in "provider_credentials" {
        pub name: String [key],
        pub kind: String,
        pub base_url: Option<String>,
        /// What stands in the place of `/v1` in the paths of calls.
        pub path_prefix: Option<String>,
        /// Encrypted.
        pub api_key: Option<String>,
        /// Further credentials, over which requests are balanced.
        pub api_keys: Vec<ApiKey> [json],
        /// Encrypted JSON object.
        pub headers: Option<String>,
        pub models: Vec<String> [json],
        /// It keeps nothing of calls.
        pub no_retention: bool,
        pub created_at: Timestamp [once],
        pub updated_at: Timestamp,
    }
}

pub async fn insert(tx: &mut Tx, org: OrgId, provider: &Provider) -> Result<(), StoreError> {
    table::insert(tx, provider, vec![("org_id", org.into())]).await
}

pub async fn update(tx: &mut Tx, org: OrgId, provider: &Provider) -> Result<(), StoreError> {
    table::update(tx, provider, vec![("org_id", org.into())], "").await.map(|_| ())
}

/// All providers of an organization, ordered by name.
pub async fn list(db: &Db, org: OrgId) -> Result<Vec<Provider>, StoreError> {
    table::read_all(&db.all(Provider::select("org_id = $1 ORDER BY name"), args![org]).await?)
}

/// The names of all providers of an organization.
pub async fn names(tx: &mut Tx, org: OrgId) -> Result<HashSet<String>, StoreError> {
    let rows = tx.all("SELECT name FROM provider_credentials WHERE org_id = $1", args![org]).await?;
    rows.iter().map(|row| row.get("name")).collect()
}

/// Newest first.
pub async fn list_page(db: &Db, org: OrgId, page: &Page) -> Result<Paged<Provider>, StoreError> {
    let (time, name) = page.time_cursor();
    let sql = Provider::select(
        "org_id = $1 AND ($2 IS NULL OR created_at < $2 OR (created_at = $2 AND name < $3)) \
         ORDER BY created_at DESC, name DESC LIMIT $4",
    );
    let rows = db.all(sql, args![org, time, name, page.fetch()]).await?;
    let providers = table::read_all::<Provider>(&rows)?;
    Ok(page.cut(providers, |provider| Page::encode_time_cursor(provider.created_at, &provider.name)))
}

/// Reads the credential inside a transaction. `find_for_update` locks it.
pub async fn find_in_tx(tx: &mut Tx, org: OrgId, name: &str) -> Result<Option<Provider>, StoreError> {
    let row = tx.opt(Provider::select("org_id = $1 AND name = $2"), args![org, name]).await?;
    table::read_opt(row.as_ref())
}

/// Locks the credential until the transaction ends, so that concurrent changes do not overwrite each other.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, name: &str) -> Result<Option<Provider>, StoreError> {
    let row = tx.opt(Provider::select_for_update("org_id = $1 AND name = $2"), args![org, name]).await?;
    table::read_opt(row.as_ref())
}

pub async fn delete(tx: &mut Tx, org: OrgId, name: &str) -> Result<bool, StoreError> {
    let deleted =
        tx.exec("DELETE FROM provider_credentials WHERE org_id = $1 AND name = $2", args![org, name]).await?;
    Ok(deleted == 1)
}
