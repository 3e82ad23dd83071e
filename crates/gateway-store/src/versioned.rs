//! The deletion of prompts, skills and named models, which may have thousands of large versions. One with many is hidden
//! first, in the transaction of the change. Its versions are deleted in parts afterwards (`partial_deletion`), and then
//! the rest of it. What is hidden has version 0, which no version has, and a name that nothing can be given: readers join
//! the current version or look for a name, so they do not find it, and its name is free.

use gateway_core::ids::{ModelId, OrgId, PromptId, SkillId};
use serde::{Deserialize, Serialize};
use sqlx::AssertSqlSafe;

use crate::row::{Arg, args};
use crate::{Db, StoreError, Tx};

/// Something with versions. Jobs store it as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Versioned {
    Prompt(PromptId),
    Skill(SkillId),
    Model(ModelId),
}

impl Versioned {
    fn table(self) -> &'static str {
        match self {
            Self::Prompt(_) => "prompts",
            Self::Skill(_) => "skills",
            Self::Model(_) => "models",
        }
    }

    pub(crate) fn id(self) -> Arg {
        match self {
            Self::Prompt(id) => id.into(),
            Self::Skill(id) => id.into(),
            Self::Model(id) => id.into(),
        }
    }
}

/// Deletes it with all its versions in one statement. False when it does not exist.
pub async fn delete(tx: &mut Tx, org: OrgId, what: Versioned) -> Result<bool, StoreError> {
    let sql = format!("DELETE FROM {} WHERE org_id = $1 AND id = $2 AND version > 0", what.table());
    Ok(tx.exec(AssertSqlSafe(sql), args![org, what.id()]).await? == 1)
}

/// Hides it with all its versions. False when it does not exist.
pub async fn hide(tx: &mut Tx, org: OrgId, what: Versioned) -> Result<bool, StoreError> {
    let hidden = match what {
        Versioned::Prompt(_) => "namespace = '', slug = id",
        Versioned::Skill(_) => "name = '/' || id, published_version = NULL, published_at = NULL",
        Versioned::Model(_) => "name = '/' || id",
    };
    let table = what.table();
    let sql =
        format!("UPDATE {table} SET version = 0, {hidden} WHERE org_id = $1 AND id = $2 AND version > 0");
    Ok(tx.exec(AssertSqlSafe(sql), args![org, what.id()]).await? == 1)
}

/// Deletes what is left of a hidden one.
pub async fn delete_hidden(db: &Db, org: OrgId, what: Versioned) -> Result<(), StoreError> {
    let sql = format!("DELETE FROM {} WHERE org_id = $1 AND id = $2 AND version = 0", what.table());
    db.exec(AssertSqlSafe(sql), args![org, what.id()]).await.map(|_| ())
}
