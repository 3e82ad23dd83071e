//! The operator's commands for audit logs: the check of an exported file, a new signing key, and their entries.

use serde_json::{Value, json};

use crate::support::{Backend, GatewayProcess, PASSWORD, ProcessOutput, command, fresh_settings, run};

/// The manifest of an export.
fn manifest(export: &str) -> Value {
    let last: Value = serde_json::from_str(export.lines().last().unwrap()).unwrap();
    last["manifest"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_is_verified_by_command_and_the_signing_key_is_replaced() {
    for backend in Backend::BOTH {
        let here = tempfile::tempdir().unwrap();
        let settings = fresh_settings(backend, &here).await;
        let gateway = |arguments: &[&str]| -> ProcessOutput {
            run(command(here.path(), arguments).envs(settings.iter().cloned()))
        };
        let service = GatewayProcess::start(command(here.path(), &["serve"]).envs(settings.iter().cloned()));
        let body = json!({"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme"});
        let ada = service.post("/api/v1/signup", &body).send().await.expect(201);
        let (token, org) = (ada["token"].as_str().unwrap(), ada["org"]["id"].as_str().unwrap());
        let export = async || {
            let path = format!("/api/v1/orgs/{org}/audit/export");
            service.get(&path).bearer(token).send().await.text()
        };
        let keys = async || {
            let list = service.get("/api/v1/audit/keys").bearer(token).send().await.expect(200);
            list["keys"].as_array().unwrap().clone()
        };
        let first = export().await;
        let file = here.path().join("audit.jsonl");
        let verify = |text: &str, key: &Value| {
            std::fs::write(&file, text).unwrap();
            gateway(&["audit", "verify", file.to_str().unwrap(), "--key", key.as_str().unwrap()])
        };
        let known = keys().await;
        assert_eq!((known.len(), &known[0]["id"]), (1, &manifest(&first)["key_id"]));
        let good = verify(&first, &known[0]["public_key"]);
        assert_eq!(good.code, Some(0), "{good:?}");
        assert!(good.stdout.starts_with("intact: 1 entries, 1 to 1; signed by key"), "{good:?}");
        let bad = verify(&first.replace("acme", "evil"), &known[0]["public_key"]);
        assert_eq!((bad.code, bad.stdout.as_str()), (Some(1), ""), "{bad:?}");
        assert!(bad.stderr.contains("entry 1: its content does not match its hash"), "{bad:?}");
        let missing = gateway(&["audit", "verify", "/nowhere/audit.jsonl"]);
        assert_eq!(missing.code, Some(1), "{missing:?}");
        assert!(missing.stderr.contains("/nowhere/audit.jsonl"), "{missing:?}");

        let rotated = gateway(&["admin", "rotate-audit-key"]);
        assert_eq!(rotated.code, Some(0), "{rotated:?}");
        let second = export().await;
        let known = keys().await;
        assert_eq!((known.len(), &known[1]["id"]), (2, &manifest(&second)["key_id"]));
        assert_eq!(verify(&second, &known[1]["public_key"]).code, Some(0));
        assert_eq!(verify(&second, &known[0]["public_key"]).code, Some(1));
        assert_eq!(verify(&first, &known[0]["public_key"]).code, Some(0));
    }
}
