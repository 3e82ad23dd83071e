//! One organization's budgets: its ledger, and the rules for the ledgers of its users.

use std::sync::{Arc, PoisonError, RwLock};

use gateway_core::budget::ledger::Sharing;
use gateway_core::budget::{Budget, UserBudgets};
use gateway_core::ids::OrgId;
use tokio::sync::Notify;

use super::shared_ledger::SharedLedger;

pub struct OrgBudgets {
    /// Of all budgets but those of users.
    pub(super) ledger: Arc<SharedLedger>,
    users: RwLock<Arc<UserRules>>,
}

/// The budgets of an organization's users, as of one read.
#[derive(Default)]
pub struct UserRules {
    /// A ledger that was read with another revision has to be read again. 0 is none.
    pub revision: u64,
    pub budgets: UserBudgets,
}

impl OrgBudgets {
    pub fn new(org: OrgId, wake: Arc<Notify>, sharing: Sharing) -> Self {
        Self { ledger: Arc::new(SharedLedger::of_org(org, wake, sharing)), users: RwLock::default() }
    }

    pub fn id(&self) -> OrgId {
        self.ledger.org()
    }

    /// No budget applies to the organization or its users.
    pub fn is_empty(&self) -> bool {
        self.ledger.is_empty() && self.user_rules().budgets.is_empty()
    }

    pub(super) fn user_rules(&self) -> Arc<UserRules> {
        Arc::clone(&self.users.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The budgets of users were read. Ledgers of users are read again if any of them has changed.
    pub(super) fn set_user_budgets(&self, budgets: Vec<Budget>) {
        let budgets = UserBudgets::new(budgets);
        let mut rules = self.users.write().unwrap_or_else(PoisonError::into_inner);
        if rules.revision == 0 || rules.budgets != budgets {
            *rules = Arc::new(UserRules { revision: rules.revision + 1, budgets });
        }
    }
}
