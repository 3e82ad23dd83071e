//! The names of resources, for lists that have only their ids.

use std::collections::HashMap;

use gateway_core::ids::OrgId;

use crate::row::args;
use crate::{Db, StoreError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedResource {
    Keys,
    Apps,
    Teams,
    /// Named by email.
    Members,
}

/// The names of all resources of one kind in an organization.
pub async fn names_by_id(
    db: &Db,
    org: OrgId,
    resource: NamedResource,
) -> Result<HashMap<String, String>, StoreError> {
    let sql = match resource {
        NamedResource::Keys => "SELECT id, name FROM api_keys WHERE org_id = $1",
        NamedResource::Apps => "SELECT id, name FROM apps WHERE org_id = $1",
        NamedResource::Teams => "SELECT id, name FROM teams WHERE org_id = $1",
        NamedResource::Members => {
            "SELECT u.id, u.email AS name FROM memberships m JOIN users u ON u.id = m.user_id WHERE m.org_id = $1"
        }
    };
    let rows = db.all(sql, args![org]).await?;
    rows.iter().map(|row| Ok((row.get("id")?, row.get("name")?))).collect()
}
