//! Skills: an organization's own, the shelf that all organizations share, and the rubric between the two. What may go on
//! the shelf is decided in `gateway_core::skills::gate`; the judge runs in `jobs::judge_skill`.

mod manage;
mod publish;
mod rubric;
mod shelf;
mod view;

pub use view::EvaluationView;

use gateway_core::skills::SourceError;
use http::StatusCode;

use super::caller::{Caller, Member, SkillMarketplace, Viewer};
use super::openapi::Area;
use crate::problem::Problem;

type Reader = Caller<Viewer, SkillMarketplace>;
type Writer = Caller<Member, SkillMarketplace>;

pub fn area() -> Area {
    Area::new(
        "skills",
        "Instructions for agents: written, judged, published on a shelf for all organizations, adopted.",
    )
    .get("/skills/public", shelf::list_public, "The shelf: published skills of all organizations")
    .get("/skills/public/{skillId}", shelf::get_public, "One skill of the shelf, as published")
    .get("/skills/public/{skillId}/SKILL.md", shelf::public_file, "Its file, as agents load it")
    .post(
        "/skills/public/{skillId}/adopt",
        shelf::adopt,
        "Copy a skill of the shelf into the own organization",
    )
    .get(
        "/skills/rubric",
        rubric::get_rubric,
        "How skills are judged; made from the server's defaults on first use",
    )
    .put("/skills/rubric/{rubricId}", rubric::update_rubric, "Change how skills are judged")
    .get("/skills", manage::list, "The organization's skills")
    .post("/skills", manage::create, "Create a skill from a SKILL.md or from fields; it is then judged")
    .get("/skills/{skillId}", manage::get, "One skill")
    .put("/skills/{skillId}", manage::update, "Change a skill: the next version, which is then judged")
    .delete("/skills/{skillId}", manage::delete, "Delete a skill; it leaves the shelf, copies stay")
    .get("/skills/{skillId}/SKILL.md", manage::file, "The file, as agents load it")
    .get("/skills/{skillId}/versions", manage::versions, "Every version, newest first")
    .post(
        "/skills/{skillId}/publish",
        publish::publish,
        "Put the current version on the shelf, if it has passed",
    )
    .post("/skills/{skillId}/unpublish", publish::unpublish, "Take a skill off the shelf")
    .post("/skills/{skillId}/evaluate", publish::evaluate, "Have the current version judged again")
    .get("/skills/{skillId}/evaluations", publish::evaluations, "What judges said, newest first")
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
        format!("the organization already has a skill named {name}"),
    )
}

/// What is wrong with a text that was sent.
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
