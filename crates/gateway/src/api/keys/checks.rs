//! What a request may ask for a key.

use gateway_core::access::Role;
use gateway_core::ids::{AppId, OrgId};
use gateway_core::scopes::Scopes;
use gateway_core::time::Timestamp;
use gateway_store::keys::Key;
use gateway_store::{Tx, apps, budgets};

use super::super::caller::KeyManager;
use crate::problem::{ApiResult, Problem};

pub(super) fn checked_scopes(texts: Option<&[String]>) -> ApiResult<Option<Scopes>> {
    texts.map(|texts| Scopes::parse(texts).map_err(|why| Problem::field("scopes", why))).transpose()
}

/// Only admins take a key out of an application whose spending is limited.
pub(super) async fn check_may_leave_app(
    tx: &mut Tx,
    manager: &KeyManager,
    key: &Key,
    app_id: Option<AppId>,
) -> ApiResult<()> {
    let left = key.app_id.filter(|left| Some(*left) != app_id);
    if let Some(left) = left
        && manager.identity.role < Role::Admin
        && budgets::limit_app(tx, manager.identity.org.id, left).await?
    {
        return Err(Problem::forbidden(
            "the key's application or its team has a budget; only an admin can move the key out of it",
        ));
    }
    Ok(())
}

pub(super) async fn check_app(tx: &mut Tx, org: OrgId, app_id: Option<AppId>) -> ApiResult<()> {
    match app_id {
        Some(id) if apps::find(tx, org, id).await?.is_none() => {
            Err(Problem::field("app_id", "no such application in this organization"))
        }
        _ => Ok(()),
    }
}

pub(super) fn check_expiry(expires_at: Option<Timestamp>, now: Timestamp) -> ApiResult<()> {
    match expires_at {
        Some(at) if at <= now => Err(Problem::field("expires_at", "must be in the future")),
        _ => Ok(()),
    }
}
