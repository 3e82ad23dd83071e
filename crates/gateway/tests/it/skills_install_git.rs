//! The git repository of installed skills, with the real git: clone, shallow clone, partial clone and pull.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;
use tempfile::TempDir;

use crate::on_both;
use crate::support::skills::{INSTALL, fields, path};
use crate::support::{Account, TestApp};

/// Runs git without any configuration of this machine.
async fn git(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("git");
    command.current_dir(directory).args(arguments);
    command.env("HOME", directory).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
    for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(proxy);
    }
    tokio::task::spawn_blocking(move || command.output().expect("git is needed for this test")).await.unwrap()
}

#[track_caller]
fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap().trim().to_owned()
}

async fn run(directory: &Path, arguments: &[&str]) -> String {
    let output = git(directory, arguments).await;
    text(&output)
}

fn read(directory: &Path, file: &str) -> String {
    std::fs::read_to_string(directory.join(file)).unwrap()
}

/// The address of a link's repository on loopback.
async fn repository(app: &TestApp, by: &Account, selection: serde_json::Value) -> String {
    let link = app.install_link(by, selection).await;
    let token = link["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    format!("http://{}/s/{token}.git", app.address)
}

on_both!(a_clone_has_the_skills_and_pulls_fast_forward, INSTALL, |app| async move {
    let ada = app.signup("acme").await;
    app.change_rubric(
        &ada,
        json!({"allowed_verdict_sources": ["scanner"], "allow_files": {"executable": true}}),
    )
    .await;
    let skill = app.skill(&ada, fields("first")).await;
    app.put_file(&ada, &skill, "scripts/run.sh?executable=true", b"#!/bin/sh\n").await.expect(200);
    app.verdict(&ada, &skill, true).await.expect(201);
    let url = repository(&app, &ada, json!("passed")).await;
    let home = TempDir::new().unwrap();
    let clone = home.path().join("clone");
    run(home.path(), &["clone", "--quiet", &url, "clone"]).await;
    assert_eq!(run(&clone, &["log", "--format=%s"]).await, "Add first (version 2)");
    assert_eq!(run(&clone, &["branch", "--show-current"]).await, "main");
    let served = app.get(&format!("{}/SKILL.md", path(&skill))).bearer(&ada.token).send().await;
    for below in ["skills/first", "plugins/first/skills/first", "plugins/all-skills/skills/first"] {
        assert_eq!(read(&clone, &format!("{below}/SKILL.md")), served.text());
    }
    let modes =
        run(&clone, &["ls-tree", "HEAD", "skills/first/scripts/run.sh", "skills/first/SKILL.md"]).await;
    assert!(modes.contains("100755 blob") && modes.contains("100644 blob"), "{modes}");
    let market: serde_json::Value =
        serde_json::from_str(&read(&clone, ".claude-plugin/marketplace.json")).unwrap();
    assert_eq!(market["plugins"][1]["source"], "./plugins/first");
    let manifest = read(&clone, "plugins/first/.claude-plugin/plugin.json");
    assert!(manifest.contains("\"version\": \"2.0.0\""), "{manifest}");
    run(&clone, &["fsck", "--strict"]).await;

    // Nothing changed: nothing to fetch, no new commit.
    let head = run(&clone, &["rev-parse", "HEAD"]).await;
    run(&clone, &["pull", "--quiet", "--ff-only"]).await;
    assert_eq!(run(&clone, &["rev-parse", "HEAD"]).await, head);

    let second = app.skill(&ada, fields("second")).await;
    app.verdict(&ada, &second, true).await.expect(201);
    run(&clone, &["pull", "--quiet", "--ff-only"]).await;
    assert!(clone.join("skills/second/SKILL.md").exists());
    app.put(&path(&skill), json!({"body": "# Changed"})).bearer(&ada.token).send().await.expect(200);
    app.verdict(&ada, &skill, true).await.expect(201);
    run(&clone, &["pull", "--quiet", "--ff-only"]).await;
    assert!(read(&clone, "skills/first/SKILL.md").contains("# Changed"));
    // A skill that is gone is removed by a commit.
    app.delete(&path(&second)).bearer(&ada.token).send().await.expect(200);
    run(&clone, &["pull", "--quiet", "--ff-only"]).await;
    assert!(!clone.join("skills/second").exists() && !clone.join("plugins/second").exists());
    let log = run(&clone, &["log", "--format=%s"]).await;
    let expected = "Remove second\nUpdate first to version 3\nAdd second (version 1)\nAdd first (version 2)";
    assert_eq!(log, expected);
    run(&clone, &["fsck", "--strict"]).await;
    // A clone of the whole history still has what was removed since.
    run(home.path(), &["clone", "--quiet", &url, "again"]).await;
    let again = home.path().join("again");
    run(&again, &["fsck", "--strict"]).await;
    assert!(run(&again, &["show", "HEAD~1:skills/second/SKILL.md"]).await.contains("name: second"));
});

on_both!(shallow_and_partial_clones_are_updated, INSTALL, |app| async move {
    let ada = app.signup("acme").await;
    app.change_rubric(&ada, json!({"allowed_verdict_sources": ["scanner"]})).await;
    let url = repository(&app, &ada, json!("passed")).await;
    let home = TempDir::new().unwrap();
    run(home.path(), &["clone", "--quiet", &url, "empty"]).await;
    let skill = app.skill(&ada, fields("first")).await;
    app.verdict(&ada, &skill, true).await.expect(201);
    run(home.path(), &["clone", "--quiet", "--depth", "1", &url, "shallow"]).await;
    let shallow = home.path().join("shallow");
    assert_eq!(run(&shallow, &["rev-list", "--count", "HEAD"]).await, "1");
    assert_eq!(run(&shallow, &["rev-parse", "--is-shallow-repository"]).await, "true");
    let partial = ["clone", "--quiet", "--filter=blob:none", "--sparse", &url, "partial"];
    run(home.path(), &partial).await;
    let partial = home.path().join("partial");
    assert!(!partial.join("skills").exists());
    run(&partial, &["sparse-checkout", "set", "skills/first"]).await;
    assert!(read(&partial, "skills/first/SKILL.md").contains("name: first"));
    for (number, body) in ["# Two", "# Three"].into_iter().enumerate() {
        app.put(&path(&skill), json!({"body": body})).bearer(&ada.token).send().await.expect(200);
        app.verdict(&ada, &skill, true).await.expect(201);
        let pull: &[&str] = if number == 0 {
            &["pull", "--quiet", "--ff-only"]
        } else {
            &["fetch", "--quiet", "--depth", "1"]
        };
        run(&shallow, pull).await;
        run(&partial, &["pull", "--quiet", "--ff-only"]).await;
        assert!(read(&partial, "skills/first/SKILL.md").contains(body));
    }
    assert!(read(&shallow, "skills/first/SKILL.md").contains("# Two"));
    run(&shallow, &["fetch", "--quiet", "--unshallow"]).await;
    assert_eq!(run(&shallow, &["rev-list", "--count", "origin/main"]).await, "4");
    run(&shallow, &["merge", "--quiet", "--ff-only", "origin/main"]).await;
    run(&shallow, &["fsck", "--strict"]).await;
    // The first clone was of a repository without skills.
    let empty = home.path().join("empty");
    run(&empty, &["pull", "--quiet", "--ff-only"]).await;
    assert!(read(&empty, "skills/first/SKILL.md").contains("# Three"));
});

on_both!(the_same_repository_is_cloned_with_a_key, INSTALL, |app| async move {
    let ada = app.signup("acme").await;
    app.passed(&ada, fields("first")).await;
    let url = format!("http://{}/api/v1/skills/install/skills.git", app.address);
    let home = TempDir::new().unwrap();
    let header = format!("http.extraHeader=X-Gateway-Key: {}", ada.api_key);
    run(home.path(), &["-c", &header, "clone", "--quiet", &url, "by-key"]).await;
    let link = repository(&app, &ada, json!("passed")).await;
    run(home.path(), &["clone", "--quiet", &link, "by-link"]).await;
    let heads = [
        run(&home.path().join("by-key"), &["rev-parse", "HEAD"]).await,
        run(&home.path().join("by-link"), &["rev-parse", "HEAD"]).await,
    ];
    assert_eq!(heads[0], heads[1]);
    let refused = git(home.path(), &["clone", "--quiet", &url, "without-key"]).await;
    assert!(!refused.status.success());
    let list = app.get("/api/v1/skills/install-links").bearer(&ada.token).send().await.expect(200);
    let fetch = &list["links"][0]["fetches"][0];
    assert!(fetch["kind"] == "git" && fetch["client"].as_str().unwrap().starts_with("git/"), "{fetch}");
});

on_both!(a_repository_can_only_be_read_and_ends_with_its_link, INSTALL, |app| async move {
    let ada = app.signup("acme").await;
    app.passed(&ada, fields("first")).await;
    let url = repository(&app, &ada, json!("passed")).await;
    let home = TempDir::new().unwrap();
    run(home.path(), &["clone", "--quiet", &url, "clone"]).await;
    let clone = home.path().join("clone");
    let identity = ["-c", "user.name=x", "-c", "user.email=x@example.com"];
    run(&clone, &[&identity[..], &["commit", "--quiet", "--allow-empty", "-m", "x"]].concat()).await;
    assert!(!git(&clone, &["push", "--quiet"]).await.status.success());
    let below = url.split_once(&app.address.to_string()).unwrap().1.to_owned();
    // Requests that no git sends.
    let post = async |body: &[u8]| {
        let call = app.call(http::Method::POST, &format!("{below}/git-upload-pack"));
        call.raw(body.to_vec()).send().await
    };
    for bad in [
        b"".as_slice(),
        b"0000",
        b"zzzz",
        b"0032want 0000000000000000000000000000000000000000\n00000009done\n",
    ] {
        let answer = post(bad).await;
        assert!(answer.status == 200 && answer.text().contains("ERR "), "{}", answer.text());
    }
    post(&vec![b'0'; 70_000]).await.expect_error(413, "payload_too_large");
    for missing in ["", "/HEAD", "/objects/info/packs", "/git-receive-pack"] {
        let answer = app.get(&format!("{below}{missing}")).send().await;
        assert!(matches!(answer.status.as_u16(), 400 | 401 | 404), "{missing}: {}", answer.status);
    }
    let links = app.get("/api/v1/skills/install-links").bearer(&ada.token).send().await.expect(200);
    let id = links["links"][0]["id"].as_str().unwrap();
    app.delete(&format!("/api/v1/skills/install-links/{id}")).bearer(&ada.token).send().await.expect(200);
    assert!(!git(&clone, &["fetch", "--quiet"]).await.status.success());
});
