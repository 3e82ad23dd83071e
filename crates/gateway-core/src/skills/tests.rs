//! Tests of parsing, changing and writing skills.

use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::json;

use super::frontmatter::Document;
use super::*;

const GOOD: &str = "---\nname: code-review\nheadline: Careful reviews\ndescription: Reviews a change.\n---\n\n# Steps\n\n1. Read.\n";

fn refused(raw: &str) -> String {
    match SkillSource::from_raw(raw) {
        Err(SourceError::Frontmatter(why)) => why,
        other => panic!("{raw:?} gave {other:?}"),
    }
}

#[test]
fn a_file_is_parsed_into_its_fields() {
    let source = SkillSource::from_raw(GOOD).unwrap();
    assert_eq!((source.name.as_str(), source.headline.as_str()), ("code-review", "Careful reviews"));
    assert_eq!(source.description, "Reviews a change.");
    assert_eq!(source.body, "# Steps\n\n1. Read.\n");
    assert_eq!(source.raw_source, GOOD);
}

#[test]
fn windows_line_ends_a_byte_order_mark_and_trailing_spaces_are_accepted() {
    let raw = "\u{feff}---  \r\nname: a\r\ndescription: b\r\n---\t\r\n\r\nBody\r\n";
    let source = SkillSource::from_raw(raw).unwrap();
    assert_eq!(
        (source.name.as_str(), source.description.as_str(), source.body.as_str()),
        ("a", "b", "Body\r\n")
    );
}

#[test]
fn a_bad_frontmatter_says_what_is_wrong() {
    for (raw, named) in [
        ("", "begin with frontmatter"),
        ("name: a\ndescription: b\n", "begin with frontmatter"),
        ("---\nname: a\ndescription: b\n", "begin with frontmatter"),
        (" ---\nname: a\n---\n", "begin with frontmatter"),
        ("---\ndescription: b\n---\n", "name"),
        ("---\nname: a\n---\n", "description"),
        ("---\nname: a\ndescription:\n---\n", "description"),
        ("---\nname: a\ndescription: '  '\n---\n", "description"),
        ("---\nname: Code Review\ndescription: b\n---\n", "kebab-case"),
        ("---\nname: a--b\ndescription: b\n---\n", "kebab-case"),
        ("---\nname: -a\ndescription: b\n---\n", "kebab-case"),
        ("---\nname: a_b\ndescription: b\n---\n", "kebab-case"),
        ("---\nname: 12\ndescription: b\n---\n", "name"),
        ("---\nname: [a]\ndescription: b\n---\n", "name"),
        ("---\nname: a\ndescription: {b: c}\n---\n", "description"),
        ("---\nname: a\ndescription: b\nheadline: 3\n---\n", "headline"),
        ("---\n- name\n---\n", "keys and values"),
        ("---\nname: a\n\tdescription: b\n---\n", "YAML"),
        ("---\nname: [a\ndescription: b\n---\n", "YAML"),
        ("---\nname: a\nname: b\ndescription: c\n---\n", "YAML"),
    ] {
        let why = refused(raw);
        assert!(why.contains(named), "{raw:?}: {why}");
    }
    let long = format!("---\nname: a\ndescription: {}\n---\n", "x".repeat(1025));
    assert!(refused(&long).contains("1024"));
    let long = format!("---\nname: {}\ndescription: b\n---\n", "x".repeat(65));
    assert!(refused(&long).contains("kebab-case"));
}

#[test]
fn yaml_bombs_are_rejected_quickly() {
    let mut laughs = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
    for (new, old) in ["b", "c", "d", "e", "f", "g", "h"].iter().zip(["a", "b", "c", "d", "e", "f", "g"]) {
        let _ = writeln!(
            laughs,
            "{new}: &{new} [*{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}]"
        );
    }
    let deep = format!("x: {}{}", "[".repeat(2000), "]".repeat(2000));
    let wide = format!("x: [{}]", "1,".repeat(7000));
    let huge = format!("x: '{}'", "y".repeat(17 << 10));
    let start = std::time::Instant::now();
    for yaml in [laughs, deep, wide, huge, "x: &a [*a]".into(), "<<: {name: a}".into()] {
        refused(&format!("---\nname: a\ndescription: b\n{yaml}\n---\n"));
    }
    assert!(start.elapsed().as_millis() < 2_000, "{:?}", start.elapsed());
    let large = format!("---\nname: a\ndescription: b\n---\n{}", "x".repeat(MAX_SOURCE_BYTES));
    assert_eq!(SkillSource::from_raw(&large), Err(SourceError::TooLarge));
    assert_eq!(
        SkillSource::from_fields("a", "", "b", &"x".repeat(MAX_SOURCE_BYTES)),
        Err(SourceError::TooLarge)
    );
}

#[test]
fn a_change_of_fields_keeps_the_rest_of_the_frontmatter() {
    let raw = "---\n# a comment\nname: a\nlicense: MIT\ndescription: b\nmetadata:\n  author: ada\n---\nBody";
    let source = SkillSource::from_raw(raw).unwrap();
    let change =
        SkillChange { name: Some("new-name".into()), headline: Some("Hi".into()), ..SkillChange::default() };
    let changed = source.changed(&change).unwrap();
    assert_eq!(
        (changed.name.as_str(), changed.headline.as_str(), changed.body.as_str()),
        ("new-name", "Hi", "Body")
    );
    let fields = Document::parse(&changed.raw_source).unwrap().fields;
    assert_eq!(fields["license"], "MIT");
    assert_eq!(fields["metadata"], json!({"author": "ada"}));
    let body = SkillChange { body: Some("Other".into()), ..SkillChange::default() };
    let changed = source.changed(&body).unwrap();
    assert_eq!(
        changed.raw_source,
        raw.replace("---\nBody", "---\n\nOther"),
        "the frontmatter stays as it is written"
    );
    assert_eq!(
        source.changed(&SkillChange { name: Some("a".into()), ..SkillChange::default() }).unwrap().name,
        "a"
    );
    let bad = SkillChange { description: Some(String::new()), ..SkillChange::default() };
    assert!(matches!(source.changed(&bad), Err(SourceError::Frontmatter(_))));
    // The same values leave every byte of the file.
    let same = SkillChange {
        name: Some(source.name.clone()),
        headline: Some(source.headline.clone()),
        description: Some(source.description.clone()),
        body: Some(source.body.clone()),
    };
    assert_eq!(source.changed(&same).unwrap(), source);
}

#[test]
fn a_headline_under_metadata_is_read_and_moved_or_removed_by_a_change() {
    let source =
        SkillSource::from_raw("---\nname: a\ndescription: b\nmetadata:\n  headline: Below\n---\n").unwrap();
    assert_eq!(source.headline, "Below");
    let top =
        source.changed(&SkillChange { headline: Some("Top".into()), ..SkillChange::default() }).unwrap();
    assert_eq!(top.headline, "Top");
    assert!(!top.raw_source.contains("Below"), "{}", top.raw_source);
    let none =
        source.changed(&SkillChange { headline: Some(String::new()), ..SkillChange::default() }).unwrap();
    assert_eq!(none.headline, "");
}

#[test]
fn the_file_for_agents_has_only_keys_that_validators_know() {
    let raw = "---\nname: a\nheadline: Top\ndescription: Turns <b> into bold\nallowed-tools: [Bash, Read]\nversion: 2\nmetadata:\n  author: ada\n  level: 3\n---\n\nBody\n";
    let served = SkillSource::from_raw(raw).unwrap().for_agents().unwrap();
    let document = Document::parse(&served).unwrap();
    let keys: Vec<_> = document.fields.keys().map(String::as_str).collect();
    assert_eq!(keys, ["name", "description", "allowed-tools", "metadata"]);
    assert_eq!(
        document.fields["metadata"],
        json!({"author": "ada", "level": "3", "headline": "Top", "version": "2"})
    );
    assert_eq!(document.fields["allowed-tools"], "Bash Read");
    assert!(!document.fields["description"].as_str().unwrap().contains(['<', '>']));
    let again = SkillSource::from_raw(&served).unwrap();
    assert_eq!((again.headline.as_str(), again.body.as_str()), ("Top", "Body\n"));
    assert_eq!(again.for_agents().unwrap(), served, "serving what was served changes nothing");
}

proptest! {
    #[test]
    fn what_is_written_from_fields_reads_back_as_the_same(
        name in "[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,3}",
        headline in "\\PC{0,60}|(?s).{0,40}",
        description in "(?s).{1,200}",
        body in "(?s).{0,400}|(---\n|\n|\r\n|# x\n|- y\n){0,12}",
    ) {
        // The API rejects NUL.
        let [headline, description, body] = [headline, description, body].map(|text| text.replace('\0', "0"));
        prop_assume!(!description.trim().is_empty());
        let source = SkillSource::from_fields(&name, &headline, &description, &body);
        let source = source.unwrap_or_else(|error| panic!("{error} for {description:?} {headline:?}"));
        prop_assert_eq!(&source.name, &name);
        prop_assert_eq!(&source.headline, &headline);
        prop_assert_eq!(&source.description, &description);
        prop_assert_eq!(&source.body, &body);
        prop_assert_eq!(SkillSource::from_raw(&source.raw_source).unwrap(), source.clone());
        let renamed = source.changed(&SkillChange { name: Some("other".into()), ..SkillChange::default() }).unwrap();
        prop_assert_eq!((renamed.description, renamed.body), (description, body));
    }

    #[test]
    fn no_input_makes_the_parser_panic(raw in "(---\n)?(?s).{0,200}(---\n)?(?s).{0,50}") {
        let _ = SkillSource::from_raw(&raw).map(|source| source.for_agents());
    }
}
