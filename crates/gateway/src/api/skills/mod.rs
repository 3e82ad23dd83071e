//! Skills: those of an organization, the shelf that all organizations share, and the rubric for judging them. The rules
//! of the publish gate are in `gateway_core::skills::gate`; the judge runs in `jobs::judge_skill`.

mod files;
mod install;
mod manage;
mod publish;
mod rubric;
mod shelf;
mod view;

pub use install::area as install_area;
pub use view::EvaluationView;

use gateway_core::skills::SourceError;
use http::StatusCode;

use super::caller::{Admin, Caller, Member, SkillMarketplace, Viewer};
use super::openapi::Area;
use crate::problem::Problem;

type Reader = Caller<Viewer, SkillMarketplace>;
type Writer = Caller<Member, SkillMarketplace>;
type Manager = Caller<Admin, SkillMarketplace>;

pub fn area() -> Area {
    Area::new(
        "skills",
        "Instructions for agents: create, judge, publish on the shelf for all organizations, and adopt them.",
    )
    .get("/skills/public", shelf::list_public, "List the shelf: the published skills of all organizations")
    .get("/skills/public/{skillId}", shelf::get_public, "Get a skill of the shelf, as published")
    .get(
        "/skills/public/{skillId}/SKILL.md",
        shelf::public_file,
        "Get the SKILL.md file of a skill of the shelf",
    )
    .get(
        "/skills/public/{skillId}/files/{path}",
        shelf::public_extra_file,
        "Get another file of a skill of the shelf",
    )
    .post(
        "/skills/public/{skillId}/adopt",
        shelf::adopt,
        "Copy a skill of the shelf into the caller's organization",
    )
    .get(
        "/skills/rubric",
        rubric::get_rubric,
        "Get the rubric by which skills are judged; created from the server's defaults on first use",
    )
    .put("/skills/rubric/{rubricId}", rubric::update_rubric, "Update the rubric")
    .get(
        "/skills/install-links",
        install::links::list_install_links,
        "List the links from which agents install skills",
    )
    .post(
        "/skills/install-links",
        install::links::create_install_link,
        "Create a link from which agents install skills; its token is returned only in this response",
    )
    .delete(
        "/skills/install-links/{installLinkId}",
        install::links::delete_install_link,
        "Revoke a link with immediate effect",
    )
    .get(
        "/skills/install/{path}",
        install::install_by_key,
        "Install with a key: the discovery indexes, archives, marketplace.json, and git at skills.git",
    )
    .post(
        "/skills/install/{path}",
        install::install_git_by_key,
        "Fetch from the git repository at skills.git",
    )
    .get("/skills", manage::list, "List the organization's skills")
    .post("/skills", manage::create, "Create a skill from a SKILL.md or from fields; it is then judged")
    .get("/skills/{skillId}", manage::get, "Get a skill")
    .put(
        "/skills/{skillId}",
        manage::update,
        "Update a skill; this creates the next version, which is then judged",
    )
    .delete(
        "/skills/{skillId}",
        manage::delete,
        "Delete a skill and remove it from the shelf; adopted copies stay",
    )
    .get("/skills/{skillId}/SKILL.md", manage::file, "Get the SKILL.md file of a skill")
    .get("/skills/{skillId}/files/{path}", files::get_file, "Get another file of a skill")
    .put(
        "/skills/{skillId}/files/{path}",
        files::put_file,
        "Add or replace a file; this creates the next version, which is then judged",
    )
    .delete(
        "/skills/{skillId}/files/{path}",
        files::delete_file,
        "Delete a file; this creates the next version, which is then judged",
    )
    .get("/skills/{skillId}/versions", manage::versions, "List all versions, newest first")
    .post(
        "/skills/{skillId}/publish",
        publish::publish,
        "Publish the current version on the shelf, if it passed the gate",
    )
    .post("/skills/{skillId}/unpublish", publish::unpublish, "Remove a skill from the shelf")
    .post("/skills/{skillId}/evaluate", publish::evaluate, "Judge the current version again")
    .get("/skills/{skillId}/evaluations", publish::evaluations, "List the evaluations, newest first")
}

fn coded(
    status: StatusCode,
    code: &'static str,
    message: impl Into<std::borrow::Cow<'static, str>>,
) -> Problem {
    Problem::new(status, code, message)
}

fn duplicate_name(name: &str) -> Problem {
    coded(
        StatusCode::CONFLICT,
        "duplicate_name",
        format!("a skill named '{name}' already exists in the organization"),
    )
}

/// Maps errors in a skill's source.
impl From<SourceError> for Problem {
    fn from(error: SourceError) -> Self {
        let (status, code) = match &error {
            SourceError::Frontmatter(_) => (StatusCode::BAD_REQUEST, "invalid_frontmatter"),
            SourceError::TooLarge => (StatusCode::BAD_REQUEST, "invalid_body"),
            SourceError::Synthesis => (StatusCode::INTERNAL_SERVER_ERROR, "internal_frontmatter_synthesis"),
        };
        coded(status, code, error.to_string())
    }
}
