//! Teams and their members.

use std::collections::HashMap;

use gateway_core::access::Role;
use gateway_core::ids::{OrgId, TeamId, UserId};
use gateway_core::time::Timestamp;

use crate::page::{Page, Paged};
use crate::row::args;
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Team {
    pub id: TeamId,
    pub org_id: OrgId,
    pub name: String,
    pub members: Vec<TeamMember>,
    pub created_at: Timestamp,
}

/// The role is the member's role in the organization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamMember {
    pub user_id: UserId,
    pub email: String,
    pub role: Role,
}

pub async fn insert(
    tx: &mut Tx,
    org: OrgId,
    id: TeamId,
    name: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.exec(
        "INSERT INTO teams (id, org_id, name, created_at) VALUES ($1, $2, $3, $4)",
        args![id, org, name, now],
    )
    .await
    .map(|_| ())
}

/// False when the team does not exist.
pub async fn rename(tx: &mut Tx, org: OrgId, id: TeamId, name: Option<&str>) -> Result<bool, StoreError> {
    let touched = tx
        .exec(
            "UPDATE teams SET name = COALESCE($3, name) WHERE org_id = $1 AND id = $2",
            args![org, id, name],
        )
        .await?;
    Ok(touched == 1)
}

/// Replaces the list of members. Returns the first id that is not a member of the organization, if any.
pub async fn set_members(
    tx: &mut Tx,
    org: OrgId,
    id: TeamId,
    users: &[UserId],
) -> Result<Option<UserId>, StoreError> {
    tx.exec("DELETE FROM team_members WHERE team_id = $1", args![id]).await?;
    for user in users {
        let added = tx
            .exec(
                "INSERT INTO team_members (team_id, user_id) \
                 SELECT $2, user_id FROM memberships WHERE org_id = $1 AND user_id = $3 \
                 ON CONFLICT DO NOTHING",
                args![org, id, *user],
            )
            .await?;
        if added == 0 && !is_team_member(tx, id, *user).await? {
            return Ok(Some(*user));
        }
    }
    Ok(None)
}

async fn is_team_member(tx: &mut Tx, team: TeamId, user: UserId) -> Result<bool, StoreError> {
    let row = tx
        .opt("SELECT 1 AS one FROM team_members WHERE team_id = $1 AND user_id = $2", args![team, user])
        .await?;
    Ok(row.is_some())
}

pub async fn delete(tx: &mut Tx, org: OrgId, id: TeamId) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM teams WHERE org_id = $1 AND id = $2", args![org, id]).await? == 1)
}

pub async fn exists(tx: &mut Tx, org: OrgId, id: TeamId) -> Result<bool, StoreError> {
    let row = tx.opt("SELECT 1 AS one FROM teams WHERE org_id = $1 AND id = $2", args![org, id]).await?;
    Ok(row.is_some())
}

pub async fn find(db: &Db, org: OrgId, id: TeamId) -> Result<Option<Team>, StoreError> {
    let page = Page { limit: 1, before: None };
    Ok(fetch(db, org, Some(id), &page).await?.rows.pop())
}

pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<Team>, StoreError> {
    fetch(db, org, None, page).await
}

async fn fetch(db: &Db, org: OrgId, id: Option<TeamId>, page: &Page) -> Result<Paged<Team>, StoreError> {
    let rows = db
        .all(
            "SELECT id, org_id, name, created_at FROM teams WHERE org_id = $1 AND ($2 IS NULL OR id = $2) \
             AND ($3 IS NULL OR id < $3) ORDER BY id DESC LIMIT $4",
            args![org, id, page.before.clone(), page.fetch()],
        )
        .await?;
    let teams = rows
        .iter()
        .map(|row| {
            Ok(Team {
                id: row.get("id")?,
                org_id: row.get("org_id")?,
                name: row.get("name")?,
                members: Vec::new(),
                created_at: row.get("created_at")?,
            })
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    let mut paged = page.cut(teams, |team| team.id.to_string());
    let mut members = members_by_team(db, org, id).await?;
    for team in &mut paged.rows {
        team.members = members.remove(&team.id).unwrap_or_default();
    }
    Ok(paged)
}

async fn members_by_team(
    db: &Db,
    org: OrgId,
    id: Option<TeamId>,
) -> Result<HashMap<TeamId, Vec<TeamMember>>, StoreError> {
    let rows = db
        .all(
            "SELECT t.id AS team_id, m.user_id, u.email, m.role FROM teams t \
             JOIN team_members tm ON tm.team_id = t.id \
             JOIN memberships m ON m.org_id = t.org_id AND m.user_id = tm.user_id \
             JOIN users u ON u.id = m.user_id \
             WHERE t.org_id = $1 AND ($2 IS NULL OR t.id = $2) ORDER BY m.user_id",
            args![org, id],
        )
        .await?;
    let mut teams: HashMap<TeamId, Vec<TeamMember>> = HashMap::new();
    for row in &rows {
        let member =
            TeamMember { user_id: row.get("user_id")?, email: row.get("email")?, role: row.get("role")? };
        teams.entry(row.get("team_id")?).or_default().push(member);
    }
    Ok(teams)
}
