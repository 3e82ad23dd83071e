//! Budgets of end users: which of them hold for a user.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::{Budget, Scope};

/// The scope id of a budget that holds for each user that has none of its own.
pub const EVERY_USER: &str = "*";
/// The longest name of a user, in bytes.
pub const MAX_USER_BYTES: usize = 256;

/// The name that a user's spending is counted under. PostgreSQL stores no NUL characters.
pub fn spending_user(name: &str) -> Cow<'_, str> {
    if name.contains('\0') { Cow::Owned(name.replace('\0', " ")) } else { Cow::Borrowed(name) }
}

/// The scope of a budget for this user.
pub fn user_scope(name: &str) -> Result<Scope, &'static str> {
    if name.is_empty() || name.len() > MAX_USER_BYTES {
        return Err("must be the name of a user, 1 to 256 bytes long, or * for each user");
    }
    if name.trim() != name || name.chars().any(char::is_control) {
        return Err("must not begin or end with spaces or contain control characters");
    }
    Ok(Scope::User(name.into()))
}

/// The budgets of an organization's users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserBudgets {
    defaults: Vec<Budget>,
    by_user: HashMap<Arc<str>, Vec<Budget>>,
}

impl UserBudgets {
    pub fn new(budgets: impl IntoIterator<Item = Budget>) -> Self {
        let mut sorted = Self::default();
        for budget in budgets {
            match &budget.scope {
                Scope::User(name) if &**name == EVERY_USER => sorted.defaults.push(budget),
                Scope::User(name) => sorted.by_user.entry(Arc::clone(name)).or_default().push(budget),
                Scope::Org(_) | Scope::Team(_) | Scope::App(_) | Scope::Key(_) => {}
            }
        }
        sorted
    }

    pub fn is_empty(&self) -> bool {
        self.defaults.is_empty() && self.by_user.is_empty()
    }

    /// Whether any budget holds for the user.
    pub fn covers(&self, user: &str) -> bool {
        !self.defaults.is_empty() || self.by_user.contains_key(user)
    }

    /// The budgets that hold for the user: its own if it has any, else the defaults. Their scope is the user.
    pub fn of(&self, user: &Arc<str>) -> Vec<Budget> {
        let found = self.by_user.get(user).unwrap_or(&self.defaults);
        found.iter().map(|budget| Budget { scope: Scope::User(Arc::clone(user)), ..budget.clone() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::budget::{Period, Unpriced};
    use crate::time::Timestamp;

    fn budget(number: u128, scope: Scope) -> Budget {
        Budget {
            id: Uuid::from_u128(number).into(),
            scope,
            keys: Vec::new(),
            period: Period::Daily,
            soft_limit: None,
            hard_limit: Some(1),
            unpriced: Unpriced::Allow,
            opening: 0,
            created_at: Timestamp(0),
        }
    }

    fn ids(budgets: &UserBudgets, user: &str) -> Vec<u128> {
        let found = budgets.of(&user.into());
        assert!(found.iter().all(|budget| budget.scope == Scope::User(user.into())), "{found:?}");
        found.iter().map(|budget| budget.id.0.as_u128()).collect()
    }

    #[test]
    fn a_budget_of_a_user_replaces_the_defaults() {
        let scope = |name: &str| user_scope(name).unwrap();
        let all = UserBudgets::new([
            budget(1, scope("*")),
            budget(2, scope("ada")),
            budget(3, scope("*")),
            budget(4, scope("ada")),
            budget(5, Scope::Org(Uuid::nil().into())),
        ]);
        assert_eq!(ids(&all, "ada"), [2, 4]);
        assert_eq!(ids(&all, "Ada"), [1, 3]);
        assert_eq!(ids(&all, "*"), [1, 3]);
        assert!(all.covers("anyone") && !all.is_empty());
        let named = UserBudgets::new([budget(2, scope("ada"))]);
        assert!(named.covers("ada") && !named.covers("bob") && !named.is_empty());
        assert_eq!(ids(&named, "bob"), [0_u128; 0]);
        assert!(UserBudgets::new([budget(5, Scope::Org(Uuid::nil().into()))]).is_empty());
    }

    #[test]
    fn names_are_those_that_a_header_can_have() {
        assert_eq!(user_scope("J\u{fc}rgen K."), Ok(Scope::User("J\u{fc}rgen K.".into())));
        assert!(user_scope(&"x".repeat(MAX_USER_BYTES)).is_ok());
        for wrong in ["", " ada", "ada ", "a\0b", "a\nb", &"x".repeat(MAX_USER_BYTES + 1)] {
            assert!(user_scope(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!((&*spending_user("a\0b"), &*spending_user(" ada")), ("a b", " ada"));
    }
}
