//! Archives, indexes and repositories are functions of the packages.

use std::collections::HashSet;
use std::io::Read as _;

use super::*;
use crate::git::Oid;

fn package(name: &str, files: &[(&str, &str)]) -> Package {
    let source = SkillSource::from_fields(name, "", "Does a thing. Use when asked.", "# Steps\n").unwrap();
    let files = files.iter().map(|(path, text)| PackageFile {
        path: (*path).to_owned(),
        bytes: text.as_bytes().to_vec(),
        executable: path.strip_suffix(".sh").is_some(),
    });
    Package::new(&source, 3, files.collect()).unwrap()
}

fn id(number: u128) -> SkillId {
    SkillId(uuid::Uuid::from_u128(number))
}

fn listing(packages: &[Package]) -> Listing {
    let skills = packages.iter().zip(1..).map(|(package, number)| ListedSkill::new(id(number), package));
    Listing {
        skills: skills.collect(),
        all_skills: sha256(&plugin_archive(ALL_SKILLS, packages)),
        left_out: Vec::new(),
    }
}

#[test]
fn archives_are_the_same_every_time_and_can_be_read() {
    let package = package("one", &[("scripts/run.sh", "#!/bin/sh\n"), ("x.md", &"y".repeat(70_000))]);
    assert_eq!(package.to_tar_gz(), package.to_tar_gz());
    let mut tar = Vec::new();
    flate2::read::GzDecoder::new(package.to_tar_gz().as_slice()).read_to_end(&mut tar).unwrap();
    assert_eq!(tar.len() % 512, 0);
    assert!(tar.starts_with(b"SKILL.md\0") && tar[257..].starts_with(b"ustar\x0000"));
    let at = memchr::memmem::find(&tar, b"scripts/run.sh\0").unwrap();
    assert_eq!(&tar[at + 100..at + 107], b"0000755");
    let sum: u32 = tar[at..at + 512]
        .iter()
        .enumerate()
        .map(|(offset, byte)| if (148..156).contains(&offset) { 32 } else { u32::from(*byte) })
        .sum();
    assert_eq!(&tar[at + 148..at + 154], format!("{sum:06o}").as_bytes());
    let zip = package.to_zip();
    assert!(zip.starts_with(b"PK\x03\x04\x14\0\0\x08"));
    assert_eq!(memchr::memmem::find_iter(&zip, b"PK\x01\x02").count(), 3);
    assert_eq!(&zip[zip.len() - 12..zip.len() - 10], [3, 0]);
}

#[test]
fn a_long_path_is_split_at_a_slash() {
    let path = format!("{}/{}", "a".repeat(99), "b".repeat(50));
    let tar = tar_gz(&[ArchiveFile { path: path.clone(), bytes: b"", executable: false }]);
    let mut read = Vec::new();
    flate2::read::GzDecoder::new(tar.as_slice()).read_to_end(&mut read).unwrap();
    assert!(read.starts_with("b".repeat(50).as_bytes()) && read[345..].starts_with(&path.as_bytes()[..99]));
}

#[test]
fn the_index_serves_single_files_as_such_and_others_as_archives() {
    let packages = [package("one", &[]), package("two", &[("a.md", "x")])];
    let listing = listing(&packages);
    let index = skills_index(&listing);
    assert_eq!(index["$schema"], "https://schemas.agentskills.io/discovery/0.2.0/schema.json");
    let [one, two] = [0, 1].map(|at| &index["skills"][at]);
    assert_eq!((&one["type"], &one["url"]), (&"skill-md".into(), &"one/SKILL.md".into()));
    assert_eq!(one["digest"], format!("sha256:{}", sha256(&packages[0].files[0].bytes)));
    assert_eq!((&two["type"], &two["url"]), (&"archive".into(), &"two.tar.gz".into()));
    assert_eq!(two["digest"], format!("sha256:{}", sha256(&packages[1].to_tar_gz())));
    assert!(index.get("left_out").is_none());
    let old = skills_index_v1(&listing);
    assert_eq!(old["skills"][1]["files"], serde_json::json!(["SKILL.md", "a.md"]));
}

#[test]
fn the_marketplace_has_a_plugin_per_skill_and_one_of_all() {
    let packages = [package("one", &[]), package("two", &[])];
    let market = url_marketplace("acme", &listing(&packages), "https://h/s/t");
    assert_eq!(market["name"], "acme-skills");
    let names: Vec<_> = market["plugins"].as_array().unwrap().iter().map(|plugin| &plugin["name"]).collect();
    assert_eq!(names, ["all-skills", "one", "two"]);
    assert_eq!(market["plugins"][1]["source"]["url"], "https://h/s/t/one.plugin.zip");
    let archive = plugin_archive("one", &packages[..1]);
    assert_eq!(market["plugins"][1]["source"]["sha256"], sha256(&archive));
    assert!(memchr::memmem::find(&archive, b"skills/one/SKILL.md").is_some());
    assert_eq!(marketplace_name("agent"), "agent-skills-1");
}

#[test]
fn the_repository_is_a_function_of_the_packages_and_shares_directories() {
    let packages = [package("one", &[("scripts/run.sh", "x")]), package("two", &[])];
    let nothing = HashSet::new();
    let first = Repository::build("acme", &packages, &nothing);
    assert_eq!(first.root, Repository::build("acme", &packages, &nothing).root);
    assert_ne!(first.root, Repository::build("acme", &packages[..1], &nothing).root);
    let known: HashSet<Oid> = first.objects.iter().map(|object| object.oid).collect();
    assert_eq!(known.len(), first.objects.len());
    assert!(Repository::build("acme", &packages, &known).objects.is_empty());
}

#[test]
fn a_commit_says_what_changed() {
    let [one, two] = [package("one", &[]), package("two", &[])];
    let both = listing(&[one.clone(), two]).skills;
    let only = listing(&[one]).skills;
    assert_eq!(change_message(&[], &only), "Add one (version 3)");
    assert_eq!(change_message(&both, &only), "Remove two");
    let mut newer = only.clone();
    newer[0].version = 4;
    assert_eq!(change_message(&only, &newer), "Update one to version 4");
    assert_eq!(change_message(&only, &only), "Update the manifests");
    assert!(change_message(&[], &both).starts_with("Change 2 skills\n\n- Add one"));
}
