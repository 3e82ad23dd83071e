//! Webhooks of organizations. Callers encrypt the secrets before they pass them in.

use gateway_core::ids::{OrgId, WebhookId};
use gateway_core::time::Timestamp;
use gateway_core::webhooks::WebhookFormat;

use crate::page::{Page, Paged};
use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

table! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Webhook in "webhooks" {
        pub id: WebhookId [key],
        pub org_id: OrgId [key],
        pub url: String,
        /// Encrypted.
        pub secret: String,
        /// Encrypted. The secret before the last rotation, which signs as well until `previous_until`.
        pub previous_secret: Option<String>,
        pub previous_until: Option<Timestamp>,
        /// Empty: all types.
        pub events: Vec<String> [json],
        pub format: WebhookFormat,
        pub active: bool,
        pub failing_since: Option<Timestamp>,
        pub deactivated_reason: Option<String>,
        /// Counts the changes by the owner.
        pub revision: i64,
        pub created_at: Timestamp [once],
    }
}

pub async fn insert(tx: &mut Tx, webhook: &Webhook) -> Result<(), StoreError> {
    table::insert(tx, webhook, vec![]).await
}

pub async fn update(tx: &mut Tx, webhook: &Webhook) -> Result<(), StoreError> {
    table::update(tx, webhook, vec![], "").await.map(|_| ())
}

pub async fn find(db: &Db, org: OrgId, id: WebhookId) -> Result<Option<Webhook>, StoreError> {
    let row = db.opt(Webhook::select("org_id = $1 AND id = $2"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

/// Locks the webhook until the transaction ends, so that concurrent changes do not overwrite each other.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, id: WebhookId) -> Result<Option<Webhook>, StoreError> {
    let row = tx.opt(Webhook::select_for_update("org_id = $1 AND id = $2"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

/// Newest first.
pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<Webhook>, StoreError> {
    let sql = Webhook::select("org_id = $1 AND ($2 IS NULL OR id < $2) ORDER BY id DESC LIMIT $3");
    let rows = db.all(sql, args![org, page.before.clone(), page.fetch()]).await?;
    Ok(page.cut(table::read_all::<Webhook>(&rows)?, |webhook| webhook.id.to_string()))
}

/// Deletes the webhook and its deliveries.
pub async fn delete(tx: &mut Tx, org: OrgId, id: WebhookId) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM webhooks WHERE org_id = $1 AND id = $2", args![org, id]).await? == 1)
}
