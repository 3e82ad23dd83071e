//! The files in the data directory can be read by their owner only.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::{Backend, GatewayProcess, PASSWORD, command, migrated_postgres};

fn everything_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(everything_below(&path)) } else { found.push(path) }
    }
    found
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[track_caller]
fn assert_private(directory: &Path) {
    let files = everything_below(directory);
    assert!(files.len() > 3, "{files:?}");
    for path in files {
        assert_eq!(mode(&path) & 0o077, 0, "{} has the mode {:o}", path.display(), mode(&path));
    }
}

async fn work(process: &GatewayProcess, slug: &str) {
    let body = json!({"email": format!("{slug}@example.com"), "password": PASSWORD, "org_slug": slug});
    let made = process.post("/api/v1/signup", &body).send().await.expect(201);
    let chat = json!({"model": "sandbox-small", "messages": [{"role": "user", "content": "hi"}]});
    let call = process.post("/v1/chat/completions", &chat).key(made["api_key"].as_str().unwrap());
    call.header("x-gateway-provider", "sandbox").send().await.expect(200);
}

async fn files_are_private_whatever_the_umask_is(backend: Backend) {
    let here = tempfile::tempdir().unwrap();
    let mut settings: Vec<(&str, String)> = Vec::new();
    if backend == Backend::Postgres {
        settings.push(("GATEWAY_DATABASE_URL", migrated_postgres().await));
        settings.push(("GATEWAY_TOKEN_SECRET", "x".repeat(32)));
        settings.push(("GATEWAY_MASTER_KEY", "ab".repeat(32)));
    }
    let serve = || {
        let mut serve = command(here.path(), &["serve"]);
        // The shell's umask is inherited by the service.
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "umask 000; exec \"$0\" serve"]).arg(serve.get_program());
        shell.env_clear().envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.envs(settings.iter().map(|(name, value)| (*name, value))).current_dir(here.path());
        serve.env_clear();
        tokio::task::block_in_place(|| GatewayProcess::start(&mut shell))
    };
    let process = serve();
    work(&process, "acme").await;
    let data = here.path().join("data");
    assert_private(&data);
    drop(process);
    // Files from an earlier version or a backup.
    for path in everything_below(&data) {
        let open = if path.is_dir() { 0o755 } else { 0o644 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(open)).unwrap();
    }
    let process = serve();
    work(&process, "other").await;
    for path in everything_below(&data).into_iter().filter(|path| *path != data) {
        assert_eq!(mode(&path) & 0o077, 0, "{} has the mode {:o}", path.display(), mode(&path));
    }
    assert_eq!(mode(&data), 0o755, "the directory itself is left to its owner");
    process.signal("TERM");
    let log = process.wait().1;
    assert!(log.contains("other users have access to the data directory"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_private_whatever_the_umask_is_on_sqlite() {
    files_are_private_whatever_the_umask_is(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_private_whatever_the_umask_is_on_postgres() {
    files_are_private_whatever_the_umask_is(Backend::Postgres).await;
}
