//! Keys that members make for themselves, within the bounds of the organization.

use gateway_core::access::Role;
use gateway_core::budget::{Amount, Budget, MAX_BUDGETS, Period, Scope, Unpriced, limit_units};
use gateway_core::scopes::Scopes;
use gateway_core::time::Timestamp;
use gateway_store::keys::Key;
use gateway_store::{Tx, budgets, keys, orgs};

use crate::app::App;
use crate::auth::Identity;
use crate::problem::{ApiResult, Problem};

/// What the organization allows the keys of members.
pub struct Bounds {
    scopes: Scopes,
    pub budget: Option<Amount>,
    max: Option<u32>,
}

impl Bounds {
    /// None if the caller may make any key: admins, or without the setting.
    pub fn of(identity: &Identity) -> ApiResult<Option<Self>> {
        let setting = identity.org.settings.self_service_keys.as_ref();
        let Some(setting) = setting.filter(|_| identity.role < Role::Admin) else { return Ok(None) };
        let budget = setting.budget_usd.map(limit_units).transpose().map_err(Problem::internal)?;
        let scopes = Scopes::parse(&setting.scopes).map_err(Problem::internal)?;
        Ok(Some(Self { scopes, budget, max: setting.max }))
    }

    /// The scopes of a key: all that are allowed, or the given ones.
    pub fn check(&self, scopes: Option<Scopes>) -> ApiResult<Scopes> {
        match scopes {
            None => Ok(self.scopes.clone()),
            Some(scopes) if scopes.is_within(&self.scopes) => Ok(scopes),
            Some(_) => {
                let allowed = Vec::<String>::from(self.scopes.clone()).join(", ");
                Err(Problem::forbidden(format!(
                    "members of this organization make keys within these scopes: {allowed}; ask an admin for others"
                )))
            }
        }
    }

    /// Checks that the caller may have another valid key.
    pub async fn check_count(&self, tx: &mut Tx, identity: &Identity, now: Timestamp) -> ApiResult<()> {
        let Some(max) = self.max else { return Ok(()) };
        check_below(tx, identity, max, now).await
    }

    /// Checks that the caller may have one more valid key while a rotated one ends.
    pub async fn check_overlap(&self, tx: &mut Tx, identity: &Identity, now: Timestamp) -> ApiResult<()> {
        let Some(max) = self.max else { return Ok(()) };
        check_below(tx, identity, max + 1, now).await
    }
}

async fn check_below(tx: &mut Tx, identity: &Identity, max: u32, now: Timestamp) -> ApiResult<()> {
    orgs::lock_for_update(tx, identity.org.id).await?;
    let count = keys::count_valid_made_by(tx, identity.org.id, &identity.actor(), now).await?;
    if count < i64::from(max) {
        return Ok(());
    }
    Err(Problem::conflict(format!(
        "you have {count} valid keys, and members of this organization have at most {max} at a time; revoke one first"
    )))
}

/// Inserts the monthly budget of a key that a member made.
pub async fn insert_budget(app: &App, tx: &mut Tx, key: &Key, limit: Amount) -> ApiResult<()> {
    if budgets::count(tx, key.org_id).await? >= MAX_BUDGETS {
        return Err(Problem::conflict(format!(
            "each key of a member gets a budget, and the organization already has the maximum of {MAX_BUDGETS}; ask an \
             admin to delete budgets of revoked keys"
        )));
    }
    let budget = Budget {
        id: app.services.ids.new_id(),
        scope: Scope::Key(key.id),
        keys: vec![key.id],
        period: Period::Monthly,
        soft_limit: None,
        hard_limit: Some(limit),
        unpriced: Unpriced::Allow,
        opening: 0,
        created_at: key.created_at,
    };
    Ok(budgets::insert(tx, key.org_id, &budget).await?)
}
