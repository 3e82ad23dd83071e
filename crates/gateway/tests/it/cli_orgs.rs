//! `gateway orgs` against a running gateway: organizations, invitations, roles, and which organization is meant.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{GatewayProcess, PASSWORD, ProcessOutput, command, run};

struct Running {
    data: TempDir,
    service: GatewayProcess,
    url: String,
}

impl Running {
    fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let service = GatewayProcess::start(&mut command(data.path(), &["serve"]));
        let url = format!("http://{}", service.address);
        Self { data, service, url }
    }

    async fn signup(&self, name: &str) -> Value {
        let body = json!({"email": format!("{name}@example.com"), "password": PASSWORD, "org_slug": name});
        self.service.post("/api/v1/signup", &body).send().await.expect(201)
    }

    fn orgs(&self, credential: &Value, arguments: &[&str]) -> ProcessOutput {
        let mut command = command(self.data.path(), &["orgs"]);
        command
            .args(arguments)
            .env("GATEWAY_URL", &self.url)
            .env("GATEWAY_KEY", credential.as_str().unwrap());
        run(&mut command)
    }

    fn json(&self, credential: &Value, arguments: &[&str]) -> Value {
        let done = self.orgs(credential, &[arguments, &["--json"]].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
        serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    }

    /// Invites a person who then signs up.
    async fn join(&self, admin: &Value, name: &str) -> Value {
        let email = format!("{name}@example.com");
        let invited = self.orgs(admin, &["invite", &email, "--role", "viewer"]);
        assert_eq!(invited.code, Some(0), "{invited:?}");
        assert!(invited.stderr.contains(&format!("{email} is invited as viewer until 2")), "{invited:?}");
        assert!(invited.stderr.contains("/console/invite/TOKEN"), "{invited:?}");
        let body = json!({"email": email, "password": PASSWORD, "invite_token": invited.stdout.trim()});
        self.service.post("/api/v1/signup", &body).send().await.expect(201)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_invited_changed_and_removed() {
    let running = Running::start();
    let ada = running.signup("acme").await;
    let key = &ada["api_key"];
    let bob = running.join(key, "bob").await;
    let members = running.orgs(key, &["members"]);
    assert!(
        members.stdout.contains("acme@example.com") && members.stdout.contains("bob@example.com"),
        "{members:?}"
    );

    let id = bob["user"]["id"].as_str().unwrap();
    let changed = running.orgs(key, &["role", id, "admin"]);
    assert!(changed.code == Some(0) && changed.stdout.contains("admin"), "{changed:?}");
    let changed = running.json(key, &["role", "BOB@example.com", "member"]);
    assert_eq!((&changed["user_id"], &changed["role"]), (&json!(id), &json!("member")));
    let removed = running.orgs(key, &["remove", "bob@example.com"]);
    assert!(removed.code == Some(0) && removed.stdout.contains("bob@example.com is removed"), "{removed:?}");
    let listed = running.json(key, &["members", "--limit", "1"]);
    assert_eq!(listed["members"].as_array().unwrap().len(), 1);

    for (arguments, named) in [
        (&["remove", "bob@example.com"][..], "is not a member"),
        (&["role", "acme@example.com", "viewer"], "owner"),
        (&["invite", "nobody"], "email"),
        (&["members", "00000000-0000-7000-8000-000000000000"], "404"),
        (&["create", "Other"], "session token"),
    ] {
        let failed = running.orgs(key, arguments);
        assert!(failed.code == Some(1) && failed.stderr.contains(named), "{arguments:?}: {failed:?}");
    }
    let wrong = running.orgs(key, &["role", id, "king"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("viewer"), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_organizations_one_must_be_named() {
    let running = Running::start();
    let ada = running.signup("acme").await;
    let token = &ada["token"];
    assert_eq!(running.orgs(token, &["members"]).code, Some(0), "there is only one");

    let made = running.json(token, &["create", "Second one", "--slug", "second"]);
    let (first, second) = (ada["org"]["id"].as_str().unwrap(), made["id"].as_str().unwrap());
    assert_eq!(made["role"], "owner");
    let shown = running.orgs(token, &["create", "Third one"]);
    assert!(shown.code == Some(0) && shown.stdout.contains("third"), "{shown:?}");
    for arguments in [&["members"][..], &["invite", "eve@example.com"], &["remove", "eve@example.com"]] {
        let failed = running.orgs(token, arguments);
        assert_eq!(failed.code, Some(1), "{failed:?}");
        for part in ["3 organizations", first, second, "second"] {
            assert!(failed.stderr.contains(part), "{part} is missing in {failed:?}");
        }
    }

    // A session token is for one organization, and works for the others of the user.
    for id in [first, second] {
        let members = running.json(token, &["members", id]);
        assert_eq!(members["members"][0]["email"], "acme@example.com");
    }
    let invited = running.json(token, &["invite", "eve@example.com", "--org", second]);
    assert!(invited["invite_token"].as_str().unwrap().starts_with("inv-"), "{invited}");
    let sessions = running.service.get("/api/v1/auth/sessions").bearer(token.as_str().unwrap()).send().await;
    assert_eq!(sessions.expect(200)["sessions"].as_array().map(Vec::len), Some(1), "no session is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_organization_the_remedy_is_named() {
    let running = Running::start();
    let ada = running.signup("acme").await;
    let bob = running.join(&ada["api_key"], "bob").await;
    let removed =
        running.orgs(&ada["api_key"], &["remove", bob["user"]["id"].as_str().unwrap(), "--keep-keys"]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    let left = running.orgs(&bob["token"], &["members"]);
    assert_eq!(left.code, Some(1), "{left:?}");
    assert!(!left.stderr.contains("/orgs//"), "{left:?}");
}
