//! The audit log: every change leaves one entry in the transaction of the change, and no entry contains a secret.

use std::time::Duration;

use gateway_core::audit::chain::Position;
use gateway_core::audit::routes::ROUTES;
use gateway_core::audit::{ActorType, Chain, Outcome};
use gateway_store::audit::{self, Filter, Stored};
use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::row;
use crate::support::mcp::servers_path;
use crate::support::mcp_server::{McpServer, Speaks};
use crate::support::routes::fill_params;
use crate::support::skills::fields;
use crate::support::{Account, PASSWORD, TestApp};
use crate::upstream::Upstream;

const SECRET: &str = "sk-secret-of-the-audit-suite";
const DEADLINE: Duration = Duration::from_secs(10);

pub fn chain_of(org: &str) -> Chain {
    Chain::Org(org.parse().unwrap())
}

/// The entries of an organization after a number.
async fn entries(app: &TestApp, org: &str, after: i64) -> Vec<Stored> {
    let db = &app.app.services.db;
    audit::since(db, chain_of(org), &Filter::default(), (after, i64::MAX), 10_000).await.unwrap().found
}

pub async fn last_seq(app: &TestApp, org: &str) -> i64 {
    audit::head(&app.app.services.db, chain_of(org)).await.unwrap().map_or(0, |head| head.seq)
}

/// Waits for an entry that is written behind its response.
pub async fn wait_for(app: &TestApp, org: &str, after: i64, action: &str) -> Stored {
    let end = tokio::time::Instant::now() + DEADLINE;
    loop {
        let found = entries(app, org, after).await;
        if let Some(entry) = found.iter().find(|stored| stored.entry.action == action) {
            return entry.clone();
        }
        assert!(tokio::time::Instant::now() < end, "no entry {action} in {found:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub async fn assert_intact(app: &TestApp, chain: Chain) {
    let db = &app.app.services.db;
    let head = audit::head(db, chain).await.unwrap().unwrap();
    let mut position = Position::start(&chain);
    while position.seq < head.seq {
        assert!(audit::verify_page(db, chain, &mut position, head.seq, 100).await.unwrap().unwrap() > 0);
    }
    assert_eq!(position.hash, head.hash);
}

/// Calls every recorded route once.
struct Walk<'a> {
    app: &'a TestApp,
    owner: &'a Account,
    walked: Vec<&'static str>,
    secrets: Vec<String>,
}

impl Walk<'_> {
    /// Makes a request that changes something, and checks its entry.
    async fn step(&mut self, route: &'static str, ids: &[(&str, &str)], body: Value) -> Value {
        let action = ROUTES.iter().find(|known| known.route == route).unwrap().action;
        self.step_as(route, action, ids, body).await
    }

    async fn step_as(
        &mut self,
        route: &'static str,
        action: &str,
        ids: &[(&str, &str)],
        body: Value,
    ) -> Value {
        let known = ROUTES.iter().find(|known| known.route == route).unwrap();
        let (method, path) = route.split_once(' ').unwrap();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let path = fill_params(path, |name| match name {
            "orgId" => self.owner.org_id.clone(),
            name => ids.iter().find(|(known, _)| *known == name).unwrap().1.to_owned(),
        });
        let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        let before = last_seq(self.app, &self.owner.org_id).await;
        let answer = self
            .app
            .call(method, &format!("/api/v1{path}{query}"))
            .header("x-request-id", "walk-1")
            .header("user-agent", "walker\u{9}1")
            .bearer(&self.owner.token)
            .json(body)
            .send()
            .await
            .expect(known.status);
        let found = entries(self.app, &self.owner.org_id, before).await;
        assert_eq!(found.len(), 1, "{route} must leave exactly one entry: {found:?}");
        let entry = &found[0].entry;
        assert_eq!((entry.seq, entry.action.as_str(), entry.outcome), (before + 1, action, Outcome::Success));
        assert_eq!((entry.actor.kind, entry.actor.id.as_ref()), (ActorType::User, Some(&self.owner.user_id)));
        assert_eq!(entry.actor.name.as_deref(), Some(self.owner.email.as_str()));
        assert!(entry.target.id.is_some(), "{route}: {entry:?}");
        assert_eq!(entry.status, Some(known.status));
        assert_eq!(entry.request_id.as_deref(), Some("walk-1"));
        assert_eq!(entry.user_agent.as_deref(), Some("walker\u{9}1"));
        assert_eq!(entry.ip.as_deref(), Some("127.0.0.1"));
        self.walked.push(route);
        answer
    }

    fn keep_secret(&mut self, value: &Value) {
        self.secrets.push(value.as_str().unwrap().to_owned());
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

const SETTINGS: [(&str, &str); 1] = [("GATEWAY_INSTALL_LINKS", "true")];

on_both!(every_change_leaves_exactly_one_entry_without_secrets, SETTINGS, |app| async move {
    let receiver = Upstream::start().await;
    let owner = app.signup("acme").await;
    let mut walk = Walk {
        app: &app,
        owner: &owner,
        walked: vec!["post /signup"],
        secrets: vec![SECRET.into(), PASSWORD.into()],
    };
    walk.secrets.extend([owner.api_key.clone(), owner.token.clone()]);
    let signup = entries(&app, &owner.org_id, 0).await;
    assert_eq!(signup.len(), 1);
    assert_eq!((signup[0].entry.action.as_str(), signup[0].entry.seq), ("org.create", 1));
    assert_eq!(signup[0].entry.actor.id.as_deref(), Some(owner.user_id.as_str()));

    walk.step_as("put /orgs/{orgId}", "org.plan", &[], json!({"plan": "enterprise"})).await;
    people(&mut walk).await;
    machines(&mut walk, &receiver).await;
    content(&mut walk).await;
    skills(&mut walk).await;
    mcp_servers(&mut walk).await;
    let before = last_seq(&app, &owner.org_id).await;
    let path = format!("/api/v1/orgs/{}/audit/verify", owner.org_id);
    app.post(&path, json!({})).bearer(&owner.token).send().await.expect(200);
    wait_for(&app, &owner.org_id, before, "audit.verify").await;
    walk.walked.push("post /orgs/{orgId}/audit/verify");
    sessions(&mut walk).await;

    let mut missing: Vec<&str> = ROUTES.iter().map(|route| route.route).collect();
    missing.retain(|route| !walk.walked.contains(route));
    assert!(missing.is_empty(), "not walked: {missing:?}");
    let rows = app.app.services.db.all("SELECT body FROM audit_entries", Vec::new()).await.unwrap();
    assert!(rows.len() > 60);
    for row in rows {
        let body: String = row.get("body").unwrap();
        for secret in &walk.secrets {
            assert!(!body.contains(secret.as_str()), "{secret} in {body}");
        }
    }
    assert_intact(&app, chain_of(&owner.org_id)).await;
    assert_intact(&app, Chain::System).await;
});

async fn people(walk: &mut Walk<'_>) {
    let invited = walk
        .step("post /orgs/{orgId}/members", &[], json!({"email": "bob@example.com", "role": "member"}))
        .await;
    walk.keep_secret(&invited["invite_token"]);
    let before = last_seq(walk.app, &walk.owner.org_id).await;
    let body =
        json!({"email": "bob@example.com", "password": PASSWORD, "invite_token": invited["invite_token"]});
    let joined = walk.app.post("/api/v1/signup", body).send().await.expect(201);
    let entry = wait_for(walk.app, &walk.owner.org_id, before, "member.add").await.entry;
    assert_eq!(entry.actor.id.as_deref(), joined["user"]["id"].as_str());
    let bob = text(&joined["user"]["id"]);
    walk.keep_secret(&joined["token"]);
    let again = walk.step("post /orgs/{orgId}/members", &[], json!({"email": "carl@example.com"})).await;
    let ids = [("inviteId", again["id"].as_str().unwrap())];
    walk.step("delete /orgs/{orgId}/invites/{inviteId}", &ids, Value::Null).await;
    let ids = [("userId", bob.as_str())];
    walk.step("put /orgs/{orgId}/members/{userId}", &ids, json!({"role": "admin"})).await;
    let team = walk.step("post /orgs/{orgId}/teams", &[], json!({"name": "t", "member_ids": [bob]})).await;
    let team = text(&team["id"]);
    walk.step("put /orgs/{orgId}/teams/{teamId}", &[("teamId", &team)], json!({"name": "u"})).await;
    walk.step("delete /orgs/{orgId}/teams/{teamId}", &[("teamId", &team)], Value::Null).await;
    let made = walk.step("post /orgs/{orgId}/apps", &[], json!({"name": "a"})).await;
    let made = text(&made["id"]);
    walk.step("put /orgs/{orgId}/apps/{appId}", &[("appId", &made)], json!({"description": "d"})).await;
    walk.step("delete /orgs/{orgId}/apps/{appId}", &[("appId", &made)], Value::Null).await;
    walk.step("delete /orgs/{orgId}/members/{userId}", &ids, Value::Null).await;
    walk.step_as("put /orgs/{orgId}", "settings.update", &[], json!({"settings": {"log_bodies": false}}))
        .await;
}

async fn machines(walk: &mut Walk<'_>, receiver: &Upstream) {
    let key = walk.step("post /keys", &[], json!({"name": "ci"})).await;
    walk.keep_secret(&key["raw_key"]);
    let key = text(&key["key"]["id"]);
    let ids = [("keyId", key.as_str())];
    walk.step("put /keys/{keyId}", &ids, json!({"scopes": ["provider:openai"]})).await;
    let successor = walk.step("post /keys/{keyId}/rotate", &ids, json!({"overlap_hours": 1})).await;
    walk.keep_secret(&successor["raw_key"]);
    walk.step("delete /keys/{keyId}", &ids, Value::Null).await;
    let new = json!({"scope": "org", "period": "daily", "hard_limit_usd": 9.5});
    let budget = text(&walk.step("post /orgs/{orgId}/budgets", &[], new).await["id"]);
    let ids = [("budgetId", budget.as_str())];
    walk.step("put /orgs/{orgId}/budgets/{budgetId}", &ids, json!({"hard_limit_usd": 10})).await;
    walk.step("delete /orgs/{orgId}/budgets/{budgetId}", &ids, Value::Null).await;
    let new = json!({"name": "team-tokens", "tokens": 60_000});
    let limit = text(&walk.step("post /orgs/{orgId}/limits", &[], new).await["id"]);
    let ids = [("limitId", limit.as_str())];
    let changed = json!({"name": "team-tokens", "tokens": 90_000});
    walk.step("put /orgs/{orgId}/limits/{limitId}", &ids, changed).await;
    walk.step("delete /orgs/{orgId}/limits/{limitId}", &ids, Value::Null).await;
    let new = json!({"name": "failures", "measure": "errors", "above": 5});
    let alert = text(&walk.step("post /orgs/{orgId}/alerts", &[], new.clone()).await["id"]);
    let ids = [("alertId", alert.as_str())];
    walk.step("put /orgs/{orgId}/alerts/{alertId}", &ids, new).await;
    walk.step("post /orgs/{orgId}/alerts/{alertId}/mute", &ids, json!({"minutes": 5})).await;
    walk.step("post /orgs/{orgId}/alerts/{alertId}/test", &ids, json!({})).await;
    walk.step("delete /orgs/{orgId}/alerts/{alertId}", &ids, Value::Null).await;
    let new = json!({"name": "errors", "page": "logs", "query": "status:error", "shared": true});
    let view = text(&walk.step("post /orgs/{orgId}/views", &[], new).await["id"]);
    let ids = [("viewId", view.as_str())];
    walk.step("patch /orgs/{orgId}/views/{viewId}", &ids, json!({"query": "status:5xx"})).await;
    walk.step("delete /orgs/{orgId}/views/{viewId}", &ids, Value::Null).await;
    let new = json!({
        "name": "mine", "kind": "openai", "base_url": receiver.url(), "api_key": SECRET,
        "headers": {"x-secret": SECRET},
    });
    walk.step("post /orgs/{orgId}/providers", &[], new).await;
    let ids = [("name", "mine")];
    let changed = json!({"api_keys": [{"label": "one", "api_key": SECRET}], "api_key": null});
    walk.step("put /orgs/{orgId}/providers/{name}", &ids, changed).await;
    walk.step("post /orgs/{orgId}/providers/{name}/test", &ids, Value::Null).await;
    walk.step("delete /orgs/{orgId}/providers/{name}", &ids, Value::Null).await;
    let model = json!({"name": "smart", "targets": [{"provider": "openai", "model": "gpt-4o"}]});
    walk.step("post /orgs/{orgId}/models", &[], model).await;
    let ids = [("model", "smart")];
    let changed = json!({"targets": [{"provider": "openai", "model": "gpt-4o-mini"}]});
    walk.step("put /orgs/{orgId}/models/{model}", &ids, changed).await;
    walk.step("delete /orgs/{orgId}/models/{model}", &ids, Value::Null).await;
    let yaml =
        format!("model_list: [{{model_name: m, litellm_params: {{model: openai/m, api_key: {SECRET}}}}}]");
    let import = json!({"source": "litellm", "data": yaml, "apply": true});
    walk.step("post /orgs/{orgId}/import", &[], import).await;
    walk.step("delete /cache", &[], Value::Null).await;
    let hook =
        walk.step("post /webhooks", &[], json!({"url": format!("{}/?t={SECRET}", receiver.url())})).await;
    walk.keep_secret(&hook["secret"]);
    let hook = text(&hook["id"]);
    let ids = [("webhookId", hook.as_str())];
    walk.step("put /webhooks/{webhookId}", &ids, json!({"events": ["key.create"]})).await;
    let rotated = walk.step("post /webhooks/{webhookId}/rotate-secret", &ids, json!({})).await;
    walk.keep_secret(&rotated["secret"]);
    let delivery = text(&walk.step("post /webhooks/{webhookId}/test", &ids, Value::Null).await["id"]);
    let both = [("webhookId", hook.as_str()), ("deliveryId", delivery.as_str())];
    walk.step("post /webhooks/{webhookId}/deliveries/{deliveryId}/retry", &both, Value::Null).await;
    walk.step("post /webhooks/{webhookId}/deliveries/retry", &ids, json!({})).await;
    walk.step("delete /webhooks/{webhookId}", &ids, Value::Null).await;
    let new = json!({
        "name": "e", "kind": "webhook", "endpoint": receiver.url(), "secret": SECRET,
        "headers": {"authorization": SECRET}, "enabled": false,
    });
    let export = text(&walk.step("post /exports", &[], new).await["id"]);
    let ids = [("exportId", export.as_str())];
    walk.step("put /exports/{exportId}", &ids, json!({"name": "f"})).await;
    walk.step("post /exports/{exportId}/test", &ids, Value::Null).await;
    walk.step("delete /exports/{exportId}", &ids, Value::Null).await;
}

async fn content(walk: &mut Walk<'_>) {
    walk.step("post /prompts", &[], json!({"namespace": "n", "slug": "s", "content": "x".repeat(9_000)}))
        .await;
    let ids = [("namespace", "n"), ("slug", "s")];
    walk.step("put /prompts/{namespace}/{slug}", &ids, json!({"content": "y"})).await;
    let saved = json!({"namespace": "n", "slug": "s", "content": "z"});
    walk.step("post /playground/save-version", &[], saved).await;
    let labelled = [("namespace", "n"), ("slug", "s"), ("label", "production")];
    walk.step("put /prompts/{namespace}/{slug}/labels/{label}", &labelled, json!({"version": 1})).await;
    walk.step("delete /prompts/{namespace}/{slug}/labels/{label}", &labelled, Value::Null).await;
    walk.step("delete /prompts/{namespace}/{slug}", &ids, Value::Null).await;
    let dataset = text(&walk.step("post /datasets", &[], json!({"name": "d"})).await["id"]);
    let ids = [("datasetId", dataset.as_str())];
    walk.step("put /datasets/{datasetId}", &ids, json!({"name": "e"})).await;
    let case = text(&walk.step("post /datasets/{datasetId}/cases", &ids, json!({"input": "i"})).await["id"]);
    let both = [("datasetId", dataset.as_str()), ("caseId", case.as_str())];
    walk.step("put /datasets/{datasetId}/cases/{caseId}", &both, json!({"expected": "o"})).await;
    let cases = json!({"cases": [{"input": "a"}, {"input": "b"}]});
    walk.step("post /datasets/{datasetId}/import", &ids, cases).await;
    walk.step("post /datasets/{datasetId}/versions", &ids, json!({})).await;
    let log = row(walk.owner, walk.app.app.services.clock.now());
    walk.app.write(std::slice::from_ref(&log)).await;
    let log = log.id;
    walk.step("post /datasets/{datasetId}/from-logs", &ids, json!({"log_ids": [log]})).await;
    let new = json!({"name": "v", "type": "static", "evaluator": "is_json", "config": {}});
    let eval = text(&walk.step("post /evals", &[], new).await["id"]);
    let of_eval = [("evalId", eval.as_str())];
    walk.step("put /evals/{evalId}", &of_eval, json!({"name": "w"})).await;
    let eval_id: i64 = eval.parse().unwrap();
    walk.step("post /datasets/{datasetId}/eval", &ids, json!({"eval_id": eval_id})).await;
    let run = walk.step("post /evals/{evalId}/run", &of_eval, json!({"log_ids": [log]})).await;
    walk.app.wait_for_run(walk.owner, &run).await;
    walk.app
        .app
        .services
        .db
        .exec("UPDATE eval_runs SET status = 'running', finished_at = NULL", Vec::new())
        .await
        .unwrap();
    let run = text(&run["id"]);
    walk.step("post /evals/runs/{runId}/cancel", &[("runId", &run)], Value::Null).await;
    walk.step("delete /evals/runs/{runId}", &[("runId", &run)], Value::Null).await;
    let new = json!({"log_ids": [log], "target": {"provider": "sandbox", "model": "m"}});
    let replay = walk.step("post /replays", &[], new).await;
    walk.app.wait_for_replay(walk.owner, &replay).await;
    let replay = text(&replay["id"]);
    let of_replay = [("replayId", replay.as_str())];
    walk.app
        .app
        .services
        .db
        .exec("UPDATE replays SET status = 'running', finished_at = NULL", Vec::new())
        .await
        .unwrap();
    walk.step("post /replays/{replayId}/cancel", &of_replay, Value::Null).await;
    walk.step("delete /replays/{replayId}", &of_replay, Value::Null).await;
    walk.step("delete /evals/{evalId}", &of_eval, Value::Null).await;
    walk.step("delete /datasets/{datasetId}/cases/{caseId}", &both, Value::Null).await;
    walk.step("delete /datasets/{datasetId}", &ids, Value::Null).await;
}

async fn mcp_servers(walk: &mut Walk<'_>) {
    let server = McpServer::start(Speaks::Modern).await;
    let new = json!({"name": "s", "url": server.url(), "pin": true, "headers": {"X-Token": SECRET}});
    walk.step("post /orgs/{orgId}/mcp-servers", &[], new).await;
    let ids = [("name", "s")];
    walk.step("post /orgs/{orgId}/mcp-servers/{name}/test", &ids, json!({})).await;
    walk.step("post /orgs/{orgId}/mcp-servers/{name}/refresh", &ids, json!({})).await;
    let path = format!("{}/s/tools", servers_path(walk.owner));
    let tools = walk.app.get(&path).bearer(&walk.owner.token).send().await.expect(200);
    let tool = &tools["tools"][0];
    let ids = [("name", "s"), ("tool", tool["name"].as_str().unwrap())];
    let approve = "post /orgs/{orgId}/mcp-servers/{name}/tools/{tool}/approve";
    walk.step(approve, &ids, json!({"hash": tool["hash"]})).await;
    let own = json!({"auth": {"type": "per_user_headers", "names": ["Authorization"]}});
    walk.step("put /orgs/{orgId}/mcp-servers/{name}", &ids, own).await;
    let ids = [("server", "s")];
    let headers = json!({"headers": {"Authorization": SECRET}});
    walk.step("put /mcp-connections/{server}", &ids, headers).await;
    walk.step("delete /mcp-connections/{server}", &ids, Value::Null).await;
    walk.step("delete /orgs/{orgId}/mcp-servers/{name}", &[("name", "s")], Value::Null).await;
}

async fn skills(walk: &mut Walk<'_>) {
    let rubric = walk.app.get("/api/v1/skills/rubric").bearer(&walk.owner.token).send().await.expect(200);
    let rubric = text(&rubric["id"]);
    let change = json!({"allowed_verdict_sources": ["ci"]});
    walk.step("put /skills/rubric/{rubricId}", &[("rubricId", &rubric)], change).await;
    let skill = text(&walk.step("post /skills", &[], fields("walked")).await["id"]);
    let ids = [("skillId", skill.as_str())];
    walk.step("put /skills/{skillId}", &ids, json!({"description": "Another description of it."})).await;
    let file = [("skillId", skill.as_str()), ("path", "notes.md")];
    walk.step("put /skills/{skillId}/files/{path}", &file, json!({"a": 1})).await;
    walk.step("delete /skills/{skillId}/files/{path}", &file, Value::Null).await;
    let link = walk.step("post /skills/install-links", &[], json!({"name": "agents"})).await;
    walk.keep_secret(&json!(text(&link["url"]).rsplit('/').next()));
    let id = text(&link["id"]);
    let route = "delete /skills/install-links/{installLinkId}";
    walk.step(route, &[("installLinkId", id.as_str())], Value::Null).await;
    let verdict =
        json!({"subject_type": "skill", "subject_id": skill, "source": "ci", "score": 1.0, "passed": true});
    walk.step("post /eval-results", &[], verdict).await;
    walk.step("post /skills/{skillId}/publish", &ids, Value::Null).await;
    walk.step("post /skills/public/{skillId}/adopt", &ids, Value::Null).await;
    walk.step("post /skills/{skillId}/unpublish", &ids, Value::Null).await;
    walk.step("post /skills/{skillId}/evaluate", &ids, Value::Null).await;
    walk.step("delete /skills/{skillId}", &ids, Value::Null).await;
}

async fn sessions(walk: &mut Walk<'_>) {
    let (app, owner) = (walk.app, walk.owner);
    let before = last_seq(app, &owner.org_id).await;
    let login = app.login(&owner.email, PASSWORD).await.expect(200);
    walk.keep_secret(&login["token"]);
    let found = entries(app, &owner.org_id, before).await;
    assert_eq!(found.iter().map(|stored| stored.entry.action.as_str()).collect::<Vec<_>>(), ["auth.login"]);
    let other =
        app.post("/api/v1/orgs", json!({"name": "Other"})).bearer(&owner.token).send().await.expect(201);
    let other = text(&other["id"]);
    assert_eq!(entries(app, &other, 0).await[0].entry.action, "org.create");
    let body = json!({"org_id": other});
    let switched = app.post("/api/v1/auth/switch-org", body).bearer(&owner.token).send().await.expect(200);
    assert_eq!(entries(app, &other, 1).await[0].entry.action, "auth.switch_org");
    let deleted = app
        .delete(&format!("/api/v1/orgs/{other}"))
        .bearer(&text(&switched["token"]))
        .send()
        .await
        .expect(200);
    assert_eq!(deleted["audit"]["seq"], 3);
    assert_eq!(deleted["audit"]["hash"].as_str().unwrap().len(), 64);
    let filter = Filter::default();
    let system = audit::since(&app.app.services.db, Chain::System, &filter, (0, i64::MAX), 100);
    let system = system.await.unwrap().found;
    assert_eq!(system[0].entry.action, "node.start");
    let remembered = system.iter().find(|stored| stored.entry.action == "org.delete").unwrap();
    assert!(remembered.entry.canonical().contains(deleted["audit"]["hash"].as_str().unwrap()));
    let setup = app.post("/api/v1/setup", json!({"org_name": "Set up"})).send().await.expect(201);
    walk.keep_secret(&setup["api_key"]);
    let found = entries(app, &text(&setup["org"]["id"]), 0).await;
    assert_eq!((found.len(), found[0].entry.action.as_str()), (1, "org.create"));
    own_sessions(walk, &text(&login["token"])).await;
    walk.walked.extend([
        "post /login",
        "post /orgs",
        "post /auth/switch-org",
        "delete /orgs/{orgId}",
        "post /setup",
    ]);
}

/// Of the user itself, and of a user whom another organization invites.
async fn own_sessions(walk: &mut Walk<'_>, other_token: &str) {
    let (app, owner) = (walk.app, walk.owner);
    let eve = app.signup("elsewhere").await;
    let path = format!("/api/v1/orgs/{}/members", eve.org_id);
    let invited = app.post(&path, json!({"email": owner.email})).bearer(&eve.token).send().await.expect(201);
    walk.keep_secret(&invited["invite_token"]);
    let accept = json!({"invite_token": invited["invite_token"]});
    let joined = app.post("/api/v1/auth/accept-invite", accept).bearer(&owner.token).send().await.expect(200);
    walk.keep_secret(&joined["token"]);
    let found = entries(app, &eve.org_id, 2).await;
    assert_eq!((found.len(), found[0].entry.action.as_str()), (1, "member.add"));
    let sessions = app.get("/api/v1/auth/sessions").bearer(other_token).send().await.expect(200);
    let all = sessions["sessions"].as_array().unwrap();
    let current = all.iter().find(|session| session["current"] == true).unwrap();
    let id = text(&current["id"]);
    walk.step("delete /auth/sessions/{userSessionId}", &[("userSessionId", &id)], Value::Null).await;
    let change = json!({"current_password": PASSWORD, "new_password": "another correct horse"});
    walk.step("post /auth/password", &[], change).await;
    walk.secrets.push("another correct horse".into());
    let user = owner.user_id.parse().unwrap();
    let (token, hash) = gateway::auth::passwords::new_reset_token().unwrap();
    let mut tx = app.app.services.db.begin().await.unwrap();
    let until = app.app.services.clock.now().plus(60_000);
    gateway_store::sign_ins::insert_reset(&mut tx, user, &hash, until).await.unwrap();
    tx.commit().await.unwrap();
    let before = last_seq(app, &owner.org_id).await;
    let reset = json!({"token": token, "new_password": PASSWORD});
    app.post("/api/v1/auth/reset", reset).send().await.expect(200);
    let found = entries(app, &owner.org_id, before).await;
    assert_eq!((found.len(), found[0].entry.action.as_str()), (1, "auth.reset"));
    assert_eq!(found[0].entry.actor.name.as_deref(), Some(owner.email.as_str()));
    walk.secrets.push(token);
    let login = app.login(&owner.email, PASSWORD).await.expect(200);
    let fresh = Account { token: text(&login["token"]), ..owner.clone() };
    let mut ending = Walk { app, owner: &fresh, walked: Vec::new(), secrets: Vec::new() };
    ending.step("post /auth/logout-all", &[], Value::Null).await;
    let login = app.login(&owner.email, PASSWORD).await.expect(200);
    let fresh = Account { token: text(&login["token"]), ..owner.clone() };
    let mut ending = Walk { app, owner: &fresh, walked: Vec::new(), secrets: Vec::new() };
    ending.step("post /auth/logout", &[], Value::Null).await;
    walk.walked.extend([
        "post /auth/accept-invite",
        "post /auth/reset",
        "post /auth/logout-all",
        "post /auth/logout",
    ]);
}
