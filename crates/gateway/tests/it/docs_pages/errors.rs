//! The page of error codes, and the check that it has all of them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use gateway::problem::codes::{ERROR_CODES, ErrorCode, is_documented};

use super::NOTICE;

const INTRODUCTION: &str = "\
Every error of the gateway has a status, a stable code and a message that names the thing and the remedy. Errors of the
management API are `{\"code\", \"message\"}`; those of skills, verdicts and exports are `{\"error\", \"error_code\"}`. Proxied
requests get the fields of both, because SDKs read either. Further fields depend on the code. An error response of a
provider with a status below 500 is forwarded unchanged, so it has the provider's own format.

The header `x-request-id` of every response, also of an error, is in the server's log. A proxied request has a log row with
its code as `error_code`, under the id in `X-Gateway-Log-Id`.
";

pub fn page() -> String {
    let mut text = format!("{NOTICE}\n\n# Errors\n\n{INTRODUCTION}\n| code | status |\n|---|---|\n");
    let shown = |statuses: &[u16]| statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    for ErrorCode { code, statuses, .. } in ERROR_CODES {
        let _ = writeln!(text, "| [`{code}`](#{code}) | {} |", shown(statuses));
    }
    for ErrorCode { code, statuses, cause, remedy } in ERROR_CODES {
        let _ = write!(
            text,
            "\n## {code}\n\nStatus {}.\n\n**Cause.** {cause}\n\n**Remedy.** {remedy}\n",
            shown(statuses)
        );
    }
    text
}

/// The literals that follow a status, a variable with a status or a field, and all those of `let code = …;`.
fn codes_of(source: &str) -> BTreeSet<String> {
    let mut found: Vec<&str> = Vec::new();
    for start in ["StatusCode::", "(status", "code: "] {
        for (at, _) in source.match_indices(start) {
            let rest = source[at + start.len()..]
                .trim_start_matches(|c: char| c.is_ascii_uppercase() || c == '_')
                .trim_start_matches(',')
                .trim_start();
            found.extend(rest.strip_prefix('"').and_then(|rest| rest.split('"').next()));
        }
    }
    for (at, _) in source.match_indices("let code = ") {
        let statement = source[at..].split(';').next().unwrap_or_default();
        found.extend(statement.split('"').skip(1).step_by(2));
    }
    let is_code = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    found.into_iter().filter(is_code).map(ToOwned::to_owned).collect()
}

fn codes_below(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            codes_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("problem/codes.rs")
        {
            found.extend(codes_of(&fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn every_error_code_has_a_cause_and_a_remedy() {
    let mut found = BTreeSet::new();
    codes_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    let missing: Vec<_> = found.iter().filter(|code| !is_documented(code)).collect();
    assert!(missing.is_empty(), "add these to ERROR_CODES in problem/codes.rs: {missing:?}");
    let unused: Vec<_> =
        ERROR_CODES.iter().filter(|known| !found.contains(known.code)).map(|known| known.code).collect();
    assert!(unused.is_empty(), "no source file has these codes: {unused:?}");
}

#[test]
fn codes_are_found_in_the_forms_that_the_code_uses() {
    let source = r#"
        Problem::new(StatusCode::FORBIDDEN, "one", why);
        Problem::new(
            StatusCode::CONFLICT,
            "two",
        );
        Problem::new(status, "three", message)
        let code = match error { A => "four", B => "five" };
        let code = if x { "seven" } else { "eight" };
        StreamFailure { code: "six", message }
        match x { A => "text" }
    "#;
    let found: Vec<_> = codes_of(source).into_iter().collect();
    assert_eq!(found, ["eight", "five", "four", "one", "seven", "six", "three", "two"]);
}
