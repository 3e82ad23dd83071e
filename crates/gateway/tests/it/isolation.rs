//! Resources of another organization look exactly like missing ones, on every route.

use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{row, with};
use crate::support::routes::{fill_params, params, routes};
use crate::support::skills::{INSTALL, fields};
use crate::support::{Account, TestApp};
use crate::upstream::{Reply, Upstream};

/// A body that every route accepts: unknown fields are ignored, and existence is checked after the body.
fn any_body() -> Value {
    json!({
        "name": "x", "role": "viewer", "email": "x@example.com", "overlap_hours": 0, "scopes": ["*"],
        "content": "x", "input": "x", "log_ids": [4711], "format": "json", "data": "[]", "size": 1, "eval_id": 4711,
        "hash": "x", "headers": {},
    })
}

/// One resource of each kind in the account's organization.
struct Things {
    org: String,
    user: String,
    key: String,
    team: String,
    app: String,
    provider: String,
    model: String,
    log: String,
    session: String,
    eval: String,
    run: String,
    replay: String,
    dataset: String,
    case: String,
    play: String,
    skill: String,
    link: String,
    token: String,
    rubric: String,
    webhook: String,
    delivery: String,
    export: String,
    budget: String,
    alert: String,
    view: String,
    limit: String,
    server: String,
    invite: String,
    user_session: String,
    audit: String,
}

impl Things {
    async fn create(app: &TestApp, of: &Account, receiver: &Upstream) -> Self {
        let make = async |path: String, body: Value, at: &str| {
            let made = app.post(&path, body).bearer(&of.token).send().await.expect(201);
            made.pointer(at).and_then(Value::as_str).unwrap().to_owned()
        };
        let below = |what: &str| format!("/api/v1/orgs/{}/{what}", of.org_id);
        let session = format!("session of {}", of.slug).replace(' ', "-");
        let log = with(row(of, app.app.services.clock.now()), |row| row.session_id = Some(session.clone()));
        app.write(std::slice::from_ref(&log)).await;
        let prompt = json!({"namespace": "theirs", "slug": "prompt", "content": "x"});
        make("/api/v1/prompts".into(), prompt, "/id").await;
        let label = app.put("/api/v1/prompts/theirs/prompt/labels/production", json!({"version": 1}));
        label.bearer(&of.token).send().await.expect(200);
        let dataset = make("/api/v1/datasets".into(), json!({"name": "d"}), "/id").await;
        let below_dataset = |what: &str| format!("/api/v1/datasets/{dataset}/{what}");
        let case = make(below_dataset("cases"), json!({"input": "x"}), "/id").await;
        app.post(&below_dataset("versions"), json!({})).bearer(&of.token).send().await.expect(201);
        let eval = app.eval(of, "static", "is_json", json!({})).await;
        let run = app.eval_run(of, &eval, json!({})).await;
        let replay = json!({"log_ids": [log.id], "target": {"provider": "sandbox", "model": "m"}});
        let replay = app.replay(of, replay).await;
        let tried =
            json!({"provider": "sandbox", "model": "m", "messages": [{"role": "user", "content": "x"}]});
        let tried = app.post("/api/v1/playground/run", tried).bearer(&of.token).send().await.expect(200);
        let rubric = app.get("/api/v1/skills/rubric").bearer(&of.token).send().await.expect(200);
        let sessions = app.get("/api/v1/auth/sessions").bearer(&of.token).send().await.expect(200);
        // A receiver that accepts everything, so that the resource does not change by itself.
        let hook = json!({"url": receiver.url(), "events": ["budget.warning"]});
        let webhook = make("/api/v1/webhooks".into(), hook, "/id").await;
        let test =
            app.post(&format!("/api/v1/webhooks/{webhook}/test"), json!({})).bearer(&of.token).send().await;
        let export = json!({"name": "e", "kind": "otlp", "endpoint": receiver.url(), "enabled": false});
        let link = app.install_link(of, json!("passed")).await;
        let entries = app.get(&below("audit")).bearer(&of.token).send().await.expect(200);
        Self {
            audit: entries["entries"][0]["id"].as_str().unwrap().to_owned(),
            delivery: test.expect(202)["id"].as_str().unwrap().to_owned(),
            export: make("/api/v1/exports".into(), export, "/id").await,
            webhook,
            skill: make("/api/v1/skills".into(), fields("theirs"), "/id").await,
            link: link["id"].as_str().unwrap().to_owned(),
            token: link["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned(),
            rubric: rubric["id"].as_str().unwrap().to_owned(),
            eval: eval["id"].to_string(),
            run: run["id"].to_string(),
            replay: replay["id"].to_string(),
            play: tried["id"].as_str().unwrap().to_owned(),
            log: log.id.to_string(),
            session,
            dataset,
            case,
            invite: make(below("members"), json!({"email": "new@example.com"}), "/id").await,
            user_session: sessions["sessions"][0]["id"].as_str().unwrap().to_owned(),
            org: of.org_id.clone(),
            user: of.user_id.clone(),
            key: make("/api/v1/keys".into(), json!({"name": "k"}), "/key/id").await,
            budget: make(
                below("budgets"),
                json!({"scope": "org", "period": "daily", "hard_limit_usd": 9}),
                "/id",
            )
            .await,
            alert: make(below("alerts"), json!({"name": "theirs", "measure": "errors", "above": 1}), "/id")
                .await,
            view: make(below("views"), json!({"name": "theirs", "page": "logs", "shared": true}), "/id").await,
            limit: make(below("limits"), json!({"name": "theirs", "requests": 9}), "/id").await,
            server: make(
                below("mcp-servers"),
                json!({"name": "theirs", "url": receiver.url(), "auth": {"type": "per_user_headers", "names": ["x-a"]}}),
                "/name",
            )
            .await,
            team: make(below("teams"), json!({"name": "t"}), "/id").await,
            app: make(below("apps"), json!({"name": "a"}), "/id").await,
            provider: make(below("providers"), json!({"name": "theirs", "kind": "openai"}), "/name").await,
            model: make(
                below("models"),
                json!({"name": "theirs", "targets": [{"provider": "openai", "model": "x"}]}),
                "/id",
            )
            .await,
        }
    }

    fn id(&self, param: &str) -> String {
        match param {
            "orgId" => &self.org,
            "userId" => &self.user,
            "keyId" => &self.key,
            "teamId" => &self.team,
            "appId" => &self.app,
            "name" => &self.provider,
            "model" => &self.model,
            "logId" => &self.log,
            "sessionId" => &self.session,
            "namespace" => "theirs",
            "slug" => "prompt",
            "version" => "1",
            "label" => "production",
            "datasetId" => &self.dataset,
            "caseId" => &self.case,
            "evalId" => &self.eval,
            "runId" => &self.run,
            "replayId" => &self.replay,
            "playId" => &self.play,
            "skillId" => &self.skill,
            "installLinkId" => &self.link,
            "token" => &self.token,
            "path" => "notes.md",
            "rubricId" => &self.rubric,
            "webhookId" => &self.webhook,
            "deliveryId" => &self.delivery,
            "exportId" => &self.export,
            "budgetId" => &self.budget,
            "alertId" => &self.alert,
            "viewId" => &self.view,
            "limitId" => &self.limit,
            "server" => &self.server,
            "tool" => "echo",
            "inviteId" => &self.invite,
            "userSessionId" => &self.user_session,
            "auditId" => &self.audit,
            other => panic!("the table has a new parameter {{{other}}}: make one of it here"),
        }
        .to_owned()
    }
}

/// A well-formed id that no resource has.
fn nothing(param: &str) -> String {
    match param {
        "name" | "label" => "absent".into(),
        "logId" | "evalId" | "runId" | "replayId" => "4711".into(),
        "version" => "7".into(),
        _ => uuid::Uuid::new_v4().to_string(),
    }
}

async fn ask(app: &TestApp, by: &Account, with_key: bool, method: &Method, path: &str) -> (u16, String) {
    // Everything else that the route needs exists, so that only the ids matter.
    let query = if path.ends_with("/compare") { "?to=4711" } else { "" };
    let mut call = app.call(method.clone(), &format!("{path}{query}"));
    if [Method::POST, Method::PUT, Method::PATCH].contains(method) {
        // Some need more, and limits, models and views reject unknown fields.
        call = call.json(if path.contains("/budgets") {
            json!({"hard_limit_usd": 1})
        } else if path.contains("/limits") {
            json!({"name": "mine", "requests": 1})
        } else if path.contains("/labels/") {
            json!({"version": 1})
        } else if path.ends_with("/eval/estimate") {
            json!({"eval_ids": [4711]})
        } else if path.ends_with("/mute") {
            json!({"minutes": 1})
        } else if path.contains("/alerts") {
            json!({"name": "mine", "measure": "errors", "above": 1})
        } else if path.contains("/views") {
            json!({"name": "mine"})
        } else if path.contains("/webhooks") {
            // Their formats are not those of exports.
            let mut body = any_body();
            body.as_object_mut().unwrap().remove("format");
            body
        } else if path.contains("/models") {
            json!({"targets": [{"provider": "openai", "model": "x"}]})
        } else {
            any_body()
        });
    }
    let call = if with_key { call.key(&by.api_key) } else { call.bearer(&by.token) };
    let answer = call.send().await;
    (answer.status.as_u16(), answer.text())
}

on_both!(what_is_another_organizations_answers_as_if_it_did_not_exist, INSTALL, |app| async move {
    let ada = app.signup("acme").await;
    let eve = app.signup("evil").await;
    let receiver = Upstream::start().await;
    receiver.set_default_reply(Reply::new(204));
    let theirs = Things::create(&app, &ada, &receiver).await;
    let (mut asked, before) = (0, inventory(&app, &ada).await);
    for route in routes() {
        let params = params(&route.path);
        for target in &params {
            // The path has Eve's own organization and the foreign id, unless the organization itself is the foreign
            // id.
            let around = |param: &str| if param == "orgId" { eve.org_id.clone() } else { nothing(param) };
            let foreign = fill_params(&route.path, |p| if p == *target { theirs.id(p) } else { around(p) });
            let missing = fill_params(&route.path, |p| if p == *target { nothing(p) } else { around(p) });
            for with_key in [false, true] {
                let found = ask(&app, &eve, with_key, &route.method, &foreign).await;
                let absent = ask(&app, &eve, with_key, &route.method, &missing).await;
                // Owner-only routes reject a key before looking up the resource.
                let hidden = found.0 == 404 || with_key && found.0 == 403;
                assert!(hidden, "{} {}: {found:?}", route.method, route.path);
                assert_eq!(found, absent, "{} {} for {target}", route.method, route.path);
                asked += 1;
            }
        }
    }
    assert!(asked >= 2 * 25, "only {asked} requests: the table was not walked");
    assert_eq!(inventory(&app, &ada).await, before, "nothing of the other organization was touched");
});

/// Everything that the lists of an organization show, except for fields that reads change.
async fn inventory(app: &TestApp, of: &Account) -> Vec<Value> {
    let mut lists = Vec::new();
    let below = [
        "",
        "/members",
        "/invites",
        "/teams",
        "/apps",
        "/providers",
        "/models",
        "/budgets",
        "/limits",
        "/views",
        "/mcp-servers",
    ]
    .map(|b| format!("/api/v1/orgs/{}{b}", of.org_id));
    for path in below.iter().map(String::as_str).chain([
        "/api/v1/keys",
        "/api/v1/webhooks",
        "/api/v1/exports",
        "/api/v1/skills/rubric",
        "/api/v1/skills/install-links",
        "/api/v1/prompts",
        "/api/v1/datasets",
        "/api/v1/evals",
        "/api/v1/evals/runs",
        "/api/v1/replays",
        "/api/v1/playground/history",
    ]) {
        lists.push(app.get(path).bearer(&of.token).send().await.expect(200));
    }
    lists
}

on_both!(lists_show_only_the_callers_organization, INSTALL, |app| async move {
    let ada = app.signup("acme").await;
    let eve = app.signup("evil").await;
    let receiver = Upstream::start().await;
    receiver.set_default_reply(Reply::new(204));
    let theirs = Things::create(&app, &ada, &receiver).await;
    let seen = inventory(&app, &eve).await;
    let text = Value::from(seen).to_string();
    for id in [
        &theirs.org,
        &theirs.user,
        &theirs.key,
        &theirs.team,
        &theirs.app,
        &ada.email,
        &theirs.eval,
        &theirs.run,
        &theirs.replay,
        &theirs.play,
        &theirs.dataset,
        &theirs.rubric,
        &theirs.budget,
        &theirs.limit,
        &theirs.view,
        &theirs.model,
        &theirs.webhook,
        &theirs.export,
    ] {
        assert!(!text.contains(id.as_str()), "{id} in {text}");
    }
});

on_both!(ids_in_bodies_do_not_distinguish_foreign_from_missing, INSTALL, |app| async move {
    let ada = app.signup("acme").await;
    let eve = app.signup("evil").await;
    let receiver = Upstream::start().await;
    receiver.set_default_reply(Reply::new(204));
    let theirs = Things::create(&app, &ada, &receiver).await;
    let below = |what: &str| format!("/api/v1/orgs/{}/{what}", eve.org_id);
    for (path, field, foreign) in
        [("/api/v1/keys".to_owned(), "app_id", &theirs.app), (below("apps"), "team_id", &theirs.team)]
    {
        let send =
            async |id: &str| app.post(&path, json!({"name": "x", field: id})).bearer(&eve.token).send().await;
        let found = send(foreign).await;
        let error = found.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(field), "{error}");
        assert_eq!(found.text(), send(&nothing("id")).await.text());
    }
});
