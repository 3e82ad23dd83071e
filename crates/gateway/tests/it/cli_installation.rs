//! Commands of the operator on the data of an installation: which settings they use, that they leave nothing in the wrong
//! place, and the progress of migrations.

use std::path::Path;
use std::process::Command;

use gateway_core::time::Timestamp;
use gateway_store::{Db, Part};
use serde_json::Value;

use crate::support::{
    Backend, GatewayProcess, MASTER_KEY, PASSWORD, ProcessOutput, TOKEN_SECRET, command, fresh_settings, run,
};

/// `gateway` in a directory, without any setting of the environment but the port.
fn bare(here: &Path, arguments: &[&str]) -> Command {
    let mut command = command(here, arguments);
    command.env_remove("GATEWAY_DATA_DIR");
    command
}

fn gateway(here: &Path, arguments: &[&str]) -> ProcessOutput {
    run(&mut bare(here, arguments))
}

/// What a person calls who forgot to say where the installation is.
const COMMANDS: [&[&str]; 6] = [
    &["admin", "set-plan", "acme", "pro"],
    &["admin", "rotate-master-key"],
    &["admin", "rotate-audit-key"],
    &["admin", "reset-password", "ada@example.com"],
    &["keys", "retire-foreign", "--org", "acme"],
    &["import", "litellm", "none.yaml", "--org", "acme"],
];

#[test]
fn commands_do_not_begin_an_installation() {
    let here = tempfile::tempdir().unwrap();
    let data = here.path().join("data");
    for arguments in COMMANDS {
        // With the variable, so that a package on this machine does not matter.
        let done = run(bare(here.path(), arguments).env("GATEWAY_DATA_DIR", "./data"));
        assert_eq!(done.code, Some(1), "{arguments:?}: {done:?}");
        for part in ["./data/gateway.db does not exist", "sudo -u gateway", "--config", "GATEWAY_DATA_DIR"] {
            assert!(done.stderr.contains(part), "{part} is missing: {arguments:?}: {done:?}");
        }
        assert!(!data.exists(), "{arguments:?} left something");
    }
    for arguments in
        [&["upgrade-check"][..], &["upgrade-check", "--json"], &["config"], &["doctor", "--offline"]]
    {
        let done = run(bare(here.path(), arguments).env("GATEWAY_DATA_DIR", "./data"));
        assert_eq!(done.code, Some(0), "{arguments:?}: {done:?}");
        assert!(!data.exists(), "{arguments:?} left something");
    }
    let checked = run(bare(here.path(), &["upgrade-check"]).env("GATEWAY_DATA_DIR", "./data"));
    assert!(
        checked.stdout.contains("nothing to upgrade") && checked.stdout.contains("--config"),
        "{checked:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_server_as_database_a_command_needs_no_data_directory() {
    let here = tempfile::tempdir().unwrap();
    let settings = fresh_settings(Backend::Postgres, &here).await;
    let with = |arguments: &[&str]| {
        let mut command = bare(here.path(), arguments);
        let kept = settings.iter().filter(|(name, _)| name != "GATEWAY_DATA_DIR").cloned();
        run(command
            .envs(kept)
            .env("GATEWAY_TOKEN_SECRET", TOKEN_SECRET)
            .env("GATEWAY_MASTER_KEY", MASTER_KEY))
    };
    let migrated = with(&["migrate"]);
    assert_eq!(migrated.code, Some(0), "{migrated:?}");
    let unknown = with(&["admin", "set-plan", "acme", "pro"]);
    assert!(unknown.stderr.contains("no organization with the slug"), "{unknown:?}");
    assert_eq!(with(&["upgrade-check"]).code, Some(0));
    assert!(!here.path().join("data").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_of_the_working_directory_is_used_and_named() {
    let here = tempfile::tempdir().unwrap();
    let text = "data_dir = \"elsewhere\"\nplan_changes = \"operator\"\n";
    std::fs::write(here.path().join("gateway.toml"), text).unwrap();
    let service = GatewayProcess::start(&mut bare(here.path(), &["serve"]));
    let body = serde_json::json!({"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme"});
    service.post("/api/v1/signup", &body).send().await.expect(201);
    let done = gateway(here.path(), &["admin", "set-plan", "acme", "pro"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains("gateway: using the settings in ./gateway.toml"), "{done:?}");
    let shown = gateway(here.path(), &["config"]);
    assert!(shown.stdout.starts_with("# file: ./gateway.toml\n"), "{shown:?}");
    assert!(shown.stdout.contains("data_dir = \"elsewhere\"  # file"), "{shown:?}");
    let named = gateway(here.path(), &["admin", "set-plan", "acme", "free", "--config", "gateway.toml"]);
    assert_eq!((named.code, named.stderr.as_str()), (Some(0), ""));
    service.signal("TERM");
    let (code, log) = service.wait();
    assert!(code == Some(0) && log.contains("./gateway.toml"), "{log}");
    assert!(here.path().join("elsewhere/gateway.db").exists() && !here.path().join("data").exists());
}

/// A database that lacks the last migration of each part.
async fn behind(url: &str) -> [i64; 2] {
    let db = Db::open(url).await.unwrap();
    let logs = db.open_logs().await.unwrap();
    let versions = [Part::State, Part::Logs].map(|part| part.version() - 1);
    db.migrate_to(Part::State, versions[0], Timestamp(1)).await.unwrap();
    logs.migrate_to(Part::Logs, versions[1], Timestamp(1)).await.unwrap();
    logs.close().await;
    db.close().await;
    versions
}

/// The address of the database in the settings, and what a check says about it.
fn pending(data: &Path, settings: &[(String, String)]) -> [String; 2] {
    let checked = run(command(data, &["upgrade-check", "--json"]).envs(settings.iter().cloned()));
    let report: Value = serde_json::from_str(&checked.stdout).unwrap();
    assert_eq!(report["exists"], true, "{report}");
    [0, 1].map(|part| report["parts"][part]["pending"][0].as_str().unwrap().to_owned())
}

fn database_url(data: &Path, settings: &[(String, String)]) -> String {
    let found = settings.iter().find(|(name, _)| name == "GATEWAY_DATABASE_URL");
    found.map_or_else(|| format!("sqlite://{}", data.join("gateway.db").display()), |(_, url)| url.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrate_names_each_migration_with_its_duration() {
    for backend in Backend::BOTH {
        let data = tempfile::tempdir().unwrap();
        let settings = fresh_settings(backend, &data).await;
        let [state, logs] = behind(&database_url(data.path(), &settings)).await;
        let names = pending(data.path(), &settings);
        let migrated = run(command(data.path(), &["migrate"]).envs(settings.iter().cloned()));
        assert_eq!(migrated.code, Some(0), "{migrated:?}");
        for (part, version, name) in [("state", state + 1, &names[0]), ("logs", logs + 1, &names[1])] {
            let line = format!("  {part} {version}: {name} … ");
            let found = migrated.stderr.lines().find_map(|found| found.strip_prefix(&line));
            assert!(found.is_some_and(|took| took.ends_with(" ms")), "{line} is missing: {migrated:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_logs_each_migration_with_its_duration() {
    for backend in Backend::BOTH {
        let data = tempfile::tempdir().unwrap();
        let settings = fresh_settings(backend, &data).await;
        behind(&database_url(data.path(), &settings)).await;
        let names = pending(data.path(), &settings);
        let service = GatewayProcess::start(command(data.path(), &["serve"]).envs(settings.iter().cloned()));
        service.signal("TERM");
        let (code, log) = service.wait();
        assert_eq!(code, Some(0), "{log}");
        let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        for (part, name) in ["state", "logs"].into_iter().zip(&names) {
            let of = |line: &&Value| line["part"] == part && line["migration"] == **name;
            let found: Vec<&Value> = lines.iter().filter(of).collect();
            assert_eq!(found.len(), 2, "{log}");
            assert!(found[0]["took_ms"].is_null() && found[1]["took_ms"].is_u64(), "{log}");
        }
    }
}
