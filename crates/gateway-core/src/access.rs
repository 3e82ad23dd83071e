//! Access control: roles, plans and the features that a plan includes.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Roles in ascending order: a role includes the permissions of the lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Viewer,
    Member,
    Admin,
    Owner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Plan {
    Free,
    Pro,
    Enterprise,
}

/// A feature that only some plans include.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Entitlement {
    Integrations,
    SkillMarketplace,
    Webhooks,
}

impl Plan {
    pub fn entitlements(self) -> &'static [Entitlement] {
        match self {
            Plan::Free | Plan::Pro => &[],
            Plan::Enterprise => {
                &[Entitlement::Integrations, Entitlement::SkillMarketplace, Entitlement::Webhooks]
            }
        }
    }

    pub fn includes(self, feature: Entitlement) -> bool {
        self.entitlements().contains(&feature)
    }
}

/// Whether the actor may grant or revoke a role. Only owners may change ownership.
pub fn may_assign(actor: Role, role: Role) -> bool {
    actor >= Role::Admin && (role < Role::Owner || actor == Role::Owner)
}

macro_rules! text_form {
    ($type:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        impl $type {
            pub const ALL: &'static [$type] = &[$($type::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self { $($type::$variant => $text),+ }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(text: &str) -> Result<Self, UnknownName> {
                match text { $($text => Ok($type::$variant),)+ _ => Err(UnknownName) }
            }
        }

        /// Accepts only the plain string; a derived implementation would also accept `{"name": null}`.
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let unknown = |_| serde::de::Error::unknown_variant(&text, &[$($text),+]);
                text.parse().map_err(unknown)
            }
        }
    };
}

/// The text is not one of the known values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown value")]
pub struct UnknownName;

text_form!(Role { Owner = "owner", Admin = "admin", Member = "member", Viewer = "viewer" });
text_form!(Plan { Free = "free", Pro = "pro", Enterprise = "enterprise" });
text_form!(Entitlement {
    Integrations = "integrations",
    SkillMarketplace = "skill_marketplace",
    Webhooks = "webhooks",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_rank_owner_admin_member_viewer() {
        assert!(Role::Owner > Role::Admin && Role::Admin > Role::Member && Role::Member > Role::Viewer);
    }

    #[test]
    fn only_enterprise_includes_the_gated_features() {
        for feature in Entitlement::ALL {
            assert!(Plan::Enterprise.includes(*feature));
            assert!(!Plan::Pro.includes(*feature) && !Plan::Free.includes(*feature));
        }
    }

    #[test]
    fn only_owners_change_ownership() {
        assert!(may_assign(Role::Owner, Role::Owner));
        assert!(!may_assign(Role::Admin, Role::Owner));
        assert!(may_assign(Role::Admin, Role::Admin));
        assert!(!may_assign(Role::Member, Role::Viewer));
    }

    #[test]
    fn names_read_back() {
        for role in Role::ALL {
            assert_eq!(role.as_str().parse(), Ok(*role));
        }
        assert_eq!("root".parse::<Role>(), Err(UnknownName));
        assert_eq!(serde_json::from_str::<Role>("\"viewer\"").ok(), Some(Role::Viewer));
        for bad in ["{\"viewer\": null}", "\"root\"", "1", "null"] {
            assert!(serde_json::from_str::<Role>(bad).is_err(), "{bad}");
        }
    }
}
