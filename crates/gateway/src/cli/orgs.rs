//! `gateway orgs`: organizations and their members, at a running gateway.

use std::io::Write as _;

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::daily::items;
use super::remote::{MAX_ITEMS, Remote, segment};
use super::table::{Column, column, table};
use super::{Failure, print_line};

const ORGS: [Column; 5] = [
    column("id", "/id"),
    column("slug", "/slug"),
    column("name", "/name"),
    column("plan", "/plan"),
    column("role", "/role"),
];
const MEMBERS: [Column; 4] = [
    column("id", "/user_id"),
    column("email", "/email"),
    column("name", "/display_name"),
    column("role", "/role"),
];
const ROLES: [&str; 4] = ["viewer", "member", "admin", "owner"];

#[derive(Subcommand)]
pub enum OrgCommand {
    /// List the organizations that the key or token belongs to
    List {
        #[arg(long, default_value_t = 50, value_parser = items())]
        limit: u32,
    },
    /// Create an organization of your own; needs a session token in GATEWAY_KEY, not an API key
    Create {
        name: String,
        /// Short name in addresses; default: made from the name
        #[arg(long)]
        slug: Option<String>,
    },
    /// List the members of an organization
    Members {
        /// The id of the organization; default: the only one of the key or token
        id: Option<String>,
        #[arg(long, default_value_t = 50, value_parser = items())]
        limit: u32,
    },
    /// Invite a person; the token of the invitation is printed once
    Invite {
        email: String,
        #[arg(long, default_value = "member", value_parser = ROLES)]
        role: String,
        /// The id of the organization; default: the only one of the key or token
        #[arg(long)]
        org: Option<String>,
    },
    /// Change the role of a member
    Role {
        /// The id or the email address of the member
        member: String,
        #[arg(value_parser = ROLES)]
        role: String,
        /// The id of the organization; default: the only one of the key or token
        #[arg(long)]
        org: Option<String>,
    },
    /// Remove a member, and revoke the keys that they created
    Remove {
        /// The id or the email address of the member
        member: String,
        /// Keep the keys that the member created
        #[arg(long)]
        keep_keys: bool,
        /// The id of the organization; default: the only one of the key or token
        #[arg(long)]
        org: Option<String>,
    },
}

pub async fn run(remote: &Remote, command: OrgCommand) -> Result<(), Failure> {
    let (org, action) = match command {
        OrgCommand::List { limit } => {
            let listed = remote.list("/orgs", "orgs", &[], limit).await?;
            print_line(&remote.show(&listed, "orgs", &ORGS));
            return Ok(());
        }
        OrgCommand::Create { name, slug } => {
            let made = remote.call(Method::POST, "/orgs", Some(&json!({"name": name, "slug": slug}))).await?;
            print_line(&remote.show_one(&made, || table(&ORGS, std::slice::from_ref(&made))));
            return Ok(());
        }
        OrgCommand::Members { id, limit } => (id, Action::List { limit }),
        OrgCommand::Invite { email, role, org } => (org, Action::Invite { email, role }),
        OrgCommand::Role { member, role, org } => (org, Action::Role { member, role }),
        OrgCommand::Remove { member, keep_keys, org } => (org, Action::Remove { member, keep_keys }),
    };
    let org = match org {
        Some(org) => org,
        None => only_org(remote).await?,
    };
    let Some(switched) = remote.within(&org).await? else { return of_members(remote, &org, action).await };
    let done = of_members(&switched, &org, action).await;
    switched.end().await;
    done
}

/// What is done with the members of an organization.
enum Action {
    List { limit: u32 },
    Invite { email: String, role: String },
    Role { member: String, role: String },
    Remove { member: String, keep_keys: bool },
}

async fn of_members(remote: &Remote, org: &str, action: Action) -> Result<(), Failure> {
    let path = format!("/orgs/{}/members", segment(org));
    match action {
        Action::List { limit } => {
            let listed = remote.list(&path, "members", &[], limit).await?;
            print_line(&remote.show(&listed, "members", &MEMBERS));
        }
        Action::Invite { email, role } => {
            let body = json!({"email": email, "role": role});
            let invited = remote.call(Method::POST, &path, Some(&body)).await?;
            let text = |name: &str| invited[name].as_str().unwrap_or_default().to_owned();
            print_line(&remote.show_one(&invited, || text("invite_token")));
            let _ = writeln!(
                std::io::stderr(),
                "{} is invited as {} until {}; the link for them is {}",
                text("email"),
                text("role"),
                text("expires_at"),
                remote.console("invite/TOKEN"),
            );
        }
        Action::Role { member, role } => {
            let member = format!("{path}/{}", segment(&user_id(remote, &path, &member).await?));
            let changed = remote.call(Method::PUT, &member, Some(&json!({"role": role}))).await?;
            print_line(&remote.show_one(&changed, || table(&MEMBERS, std::slice::from_ref(&changed))));
        }
        Action::Remove { member, keep_keys } => {
            let id = segment(&user_id(remote, &path, &member).await?);
            let keys = if keep_keys { "keep" } else { "revoke" };
            let removed = remote.call(Method::DELETE, &format!("{path}/{id}?keys={keys}"), None).await?;
            print_line(&remote.show_one(&removed, || format!("{member} is removed")));
        }
    }
    Ok(())
}

/// The id of the organization that a command means if none is named.
async fn only_org(remote: &Remote) -> Result<String, Failure> {
    let listed = remote.list("/orgs", "orgs", &[], MAX_ITEMS).await?;
    choose(listed["orgs"].as_array().map_or(&[], Vec::as_slice)).map_err(Failure::Other)
}

fn choose(orgs: &[Value]) -> Result<String, String> {
    match orgs {
        [] => Err(
            "the key or token belongs to no organization; with a session token `gateway orgs create NAME` \
                   makes one"
                .into(),
        ),
        [org] => org["id"].as_str().map(str::to_owned).ok_or_else(|| "the organization has no id".into()),
        several => {
            let ids = table(&ORGS[..2], several);
            Err(format!("there are {} organizations; name one by its id:\n{ids}", several.len()))
        }
    }
}

/// The id of a member who may be named by an address.
async fn user_id(remote: &Remote, path: &str, member: &str) -> Result<String, Failure> {
    if !member.contains('@') {
        return Ok(member.to_owned());
    }
    let listed = remote.list(path, "members", &[], MAX_ITEMS).await?;
    let members = listed["members"].as_array().map_or(&[][..], Vec::as_slice);
    let is_meant =
        |found: &&Value| found["email"].as_str().is_some_and(|email| email.eq_ignore_ascii_case(member));
    let found = members.iter().find(is_meant).and_then(|found| found["user_id"].as_str());
    found.map(str::to_owned).ok_or_else(|| {
        Failure::Other(format!(
            "{member} is not a member; `gateway orgs members` lists them, without invitations"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_organization_is_meant_and_of_several_one_must_be_named() {
        let org = |id: &str| json!({"id": id, "slug": format!("slug-of-{id}")});
        assert_eq!(choose(&[org("o-1")]), Ok("o-1".to_owned()));
        let several = choose(&[org("o-1"), org("o-2")]).unwrap_err();
        for part in ["2 organizations", "o-1", "o-2", "slug-of-o-2"] {
            assert!(several.contains(part), "{part} is missing in {several}");
        }
        assert!(choose(&[]).unwrap_err().contains("orgs create"));
    }
}
