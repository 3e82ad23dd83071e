//! Whether URLs of tenants may reach private addresses, as it is now. With `auto` the answer changes once: a second
//! organization ends it, because from then on one tenant could reach what belongs to another.

use std::sync::atomic::{AtomicBool, Ordering};

use gateway_core::egress::EgressRule;

use crate::config::{Config, EgressPrivate};

pub struct Egress {
    is_auto: bool,
    allows_private: AtomicBool,
}

impl Egress {
    /// `orgs` is the number of organizations.
    pub fn new(config: &Config, orgs: u64) -> Self {
        let allows_private = match config.egress_private {
            EgressPrivate::Allow => true,
            EgressPrivate::Deny => false,
            EgressPrivate::Auto => !config.is_exposed() && orgs < 2,
        };
        let is_auto = config.egress_private == EgressPrivate::Auto;
        Self { is_auto, allows_private: allows_private.into() }
    }

    pub fn allows_private(&self) -> bool {
        self.allows_private.load(Ordering::Relaxed)
    }

    /// Notes how many organizations there are, when one is created.
    pub fn count_orgs(&self, orgs: u64) {
        if self.is_auto && orgs > 1 && self.allows_private.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                "there is a second organization: URLs of tenants can no longer reach private addresses; set \
                 GATEWAY_EGRESS_PRIVATE to allow or deny"
            );
        }
    }

    /// The rule for a request. `is_tenant_url`: a tenant chose its address.
    pub fn rule(&self, is_tenant_url: bool) -> EgressRule {
        match (is_tenant_url, self.allows_private()) {
            (false, _) => EgressRule::Any,
            (true, true) => EgressRule::Private,
            (true, false) => EgressRule::Public,
        }
    }
}
