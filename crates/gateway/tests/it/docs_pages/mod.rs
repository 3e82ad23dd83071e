//! Pages of `docs/` that are generated from the code: errors, providers and the API. The tests fail if a page is out of
//! date; `GATEWAY_WRITE_DOCS=1 cargo test -p gateway --test it docs_pages` writes them.

mod api;
mod errors;
mod providers;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

const NOTICE: &str =
    "<!-- Generated from the code: GATEWAY_WRITE_DOCS=1 cargo test -p gateway --test it docs_pages -->";

/// Pages by file name.
type Pages = BTreeMap<String, String>;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Compares pages with the files of a directory, or writes them. With `is_whole` the directory has no other pages.
fn check(directory: &Path, pages: &Pages, is_whole: bool) {
    let is_written = env::var("GATEWAY_WRITE_DOCS").is_ok_and(|value| value == "1");
    if is_written {
        fs::create_dir_all(directory).unwrap();
    }
    let listed = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().file_name());
    let others: BTreeSet<String> = listed
        .map(|name| name.into_string().unwrap())
        .filter(|name| is_whole && !pages.contains_key(name))
        .collect();
    if is_written {
        for name in &others {
            fs::remove_file(directory.join(name)).unwrap();
        }
        for (name, text) in pages {
            fs::write(directory.join(name), text).unwrap();
        }
        return;
    }
    assert_eq!(others, BTreeSet::new(), "pages that nothing generates; {NOTICE}");
    for (name, text) in pages {
        let stored = fs::read_to_string(directory.join(name)).unwrap_or_default();
        assert!(stored == *text, "{name} is out of date: {}", first_difference(&stored, text));
    }
}

fn first_difference(stored: &str, wanted: &str) -> String {
    let lines = stored.lines().map(Some).chain([None]).zip(wanted.lines().map(Some).chain([None]));
    match lines.enumerate().find(|(_, (one, other))| one != other) {
        Some((at, (one, other))) => format!("line {} is {one:?} and must be {other:?}; {NOTICE}", at + 1),
        None => format!("its end differs; {NOTICE}"),
    }
}

/// A cell of a table: one line, without separators, and without tags outside of code.
fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    let pieces = line.split('`').enumerate();
    let escaped =
        pieces.map(|(at, piece)| if at % 2 == 0 { piece.replace('<', "&lt;") } else { piece.to_owned() });
    escaped.collect::<Vec<_>>().join("`")
}

#[test]
fn generated_pages_are_up_to_date() {
    check(&docs(), &Pages::from([("errors.md".to_owned(), errors::page())]), false);
    check(&docs().join("providers"), &providers::pages(), true);
    check(&docs().join("api"), &api::pages(), true);
}
