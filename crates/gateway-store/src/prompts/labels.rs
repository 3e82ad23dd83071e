//! Labels of prompts. A label points to one version and is moved, never copied: a prompt has it at most once. Changes
//! are made while the prompt is locked.

use std::collections::BTreeMap;

use gateway_core::ids::{OrgId, PromptId};
use gateway_core::time::Timestamp;

use super::PromptName;
use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

table! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PromptLabel in "prompt_labels" {
        pub prompt_id: PromptId [key],
        pub name: String [key],
        pub version: i64,
        /// Where the label pointed before it was moved.
        pub previous_version: Option<i64>,
        /// Who set or moved it.
        pub updated_by: Option<String>,
        pub created_at: Timestamp [once],
        pub updated_at: Timestamp,
    }
}

/// Locks the prompt until the transaction ends. Returns its id and its latest version; none when it does not exist.
pub async fn lock(
    tx: &mut Tx,
    org: OrgId,
    name: PromptName<'_>,
) -> Result<Option<(PromptId, i64)>, StoreError> {
    let row = tx
        .opt(
            "UPDATE prompts SET version = version WHERE org_id = $1 AND namespace = $2 AND slug = $3 \
             RETURNING id, version",
            args![org, name.namespace, name.slug],
        )
        .await?;
    row.map(|row| Ok((row.get("id")?, row.get("version")?))).transpose()
}

/// A label of a locked prompt.
pub async fn find_label(
    tx: &mut Tx,
    prompt: PromptId,
    name: &str,
) -> Result<Option<PromptLabel>, StoreError> {
    let row = tx.opt(PromptLabel::select("prompt_id = $1 AND name = $2"), args![prompt, name]).await?;
    table::read_opt(row.as_ref())
}

pub async fn count_labels(tx: &mut Tx, prompt: PromptId) -> Result<i64, StoreError> {
    let sql = "SELECT COUNT(*) AS found FROM prompt_labels WHERE prompt_id = $1";
    tx.opt(sql, args![prompt]).await?.map_or(Ok(0), |row| row.get("found"))
}

pub async fn insert_label(tx: &mut Tx, label: &PromptLabel) -> Result<(), StoreError> {
    table::insert(tx, label, vec![]).await
}

pub async fn update_label(tx: &mut Tx, label: &PromptLabel) -> Result<(), StoreError> {
    table::update(tx, label, vec![], "").await.map(|_| ())
}

pub async fn delete_label(tx: &mut Tx, prompt: PromptId, name: &str) -> Result<(), StoreError> {
    let sql = "DELETE FROM prompt_labels WHERE prompt_id = $1 AND name = $2";
    tx.exec(sql, args![prompt, name]).await.map(|_| ())
}

/// The labels of a locked prompt and the versions that they point to.
pub async fn labels_of(tx: &mut Tx, prompt: PromptId) -> Result<BTreeMap<String, i64>, StoreError> {
    let rows = tx.all("SELECT name, version FROM prompt_labels WHERE prompt_id = $1", args![prompt]).await?;
    rows.iter().map(|row| Ok((row.get("name")?, row.get("version")?))).collect()
}

/// All labels of a prompt by name. None when the prompt does not exist.
pub async fn list_labels(
    db: &Db,
    org: OrgId,
    name: PromptName<'_>,
) -> Result<Option<Vec<PromptLabel>>, StoreError> {
    let sql = "SELECT id FROM prompts WHERE org_id = $1 AND namespace = $2 AND slug = $3";
    let Some(row) = db.opt(sql, args![org, name.namespace, name.slug]).await? else { return Ok(None) };
    let prompt: PromptId = row.get("id")?;
    let rows = db.all(PromptLabel::select("prompt_id = $1 ORDER BY name"), args![prompt]).await?;
    table::read_all(&rows).map(Some)
}

/// Reads `production:3,staging:5`. Names have neither colons nor commas.
pub(super) fn parse_list(text: &str) -> BTreeMap<String, i64> {
    let label = |pair: &str| -> Option<(String, i64)> {
        let (name, version) = pair.split_once(':')?;
        Some((name.to_owned(), version.parse().ok()?))
    };
    text.split(',').filter_map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_labels_is_read() {
        assert!(parse_list("").is_empty());
        let expected = BTreeMap::from([("production".to_owned(), 3), ("staging".to_owned(), 12)]);
        assert_eq!(parse_list("staging:12,production:3"), expected);
    }
}
