//! Names of keys, applications, teams and members in queries, which log rows contain as ids.

use gateway_core::ids::OrgId;
use gateway_core::query::{Field, Query};
use gateway_store::names::{NamedResource, names_by_id};
use gateway_store::{Db, StoreError};

/// The fields whose values are names of resources.
pub const NAMED: [(Field, NamedResource); 4] = [
    (Field::Key, NamedResource::Keys),
    (Field::App, NamedResource::Apps),
    (Field::Team, NamedResource::Teams),
    (Field::User, NamedResource::Members),
];

/// Replaces the names by the ids that they have now.
pub async fn resolve(db: &Db, org: OrgId, query: &mut Query) -> Result<(), StoreError> {
    for (field, resource) in NAMED {
        if query.uses(field) {
            query.resolve(field, &names_by_id(db, org, resource).await?);
        }
    }
    Ok(())
}
