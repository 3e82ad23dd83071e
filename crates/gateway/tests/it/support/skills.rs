//! Fixtures for skills, and waiting for verdicts of the internal judge.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Account, TestApp, TestResponse};

/// Puts every organization on the plan with the marketplace.
pub const ENTERPRISE: [(&str, &str); 1] = [("GATEWAY_DEFAULT_PLAN", "enterprise")];

/// The same, with links for installing skills.
pub const INSTALL: [(&str, &str); 2] =
    [("GATEWAY_DEFAULT_PLAN", "enterprise"), ("GATEWAY_INSTALL_LINKS", "true")];

pub fn path(skill: &Value) -> String {
    format!("/api/v1/skills/{}", skill["id"].as_str().unwrap())
}

pub fn shelf_path(skill: &Value) -> String {
    format!("/api/v1/skills/public/{}", skill["id"].as_str().unwrap())
}

/// The request body of a small skill.
pub fn fields(name: &str) -> Value {
    json!({"name": name, "description": format!("Does {name}. Use when {name} is asked for."), "body": "# Steps\n\nDo it."})
}

impl TestApp {
    pub async fn skill(&self, by: &Account, body: Value) -> Value {
        self.post("/api/v1/skills", body).bearer(&by.token).send().await.expect(201)
    }

    /// Submits a verdict of the source `scanner` on the skill's current version.
    pub async fn verdict(&self, by: &Account, skill: &Value, passed: bool) -> TestResponse {
        let body = json!({"subject_type": "skill", "subject_id": skill["id"], "source": "scanner", "passed": passed});
        self.post("/api/v1/eval-results", body).bearer(&by.token).send().await
    }

    pub async fn change_rubric(&self, by: &Account, change: Value) -> Value {
        let rubric = self.get("/api/v1/skills/rubric").bearer(&by.token).send().await.expect(200);
        let path = format!("/api/v1/skills/rubric/{}", rubric["id"].as_str().unwrap());
        self.put(&path, change).bearer(&by.token).send().await.expect(200)
    }

    /// Adds `scanner` to the organization's allowed verdict sources.
    pub async fn trust_scanner(&self, by: &Account) {
        self.change_rubric(by, json!({"allowed_verdict_sources": ["internal", "scanner"]})).await;
    }

    /// Creates a skill whose current version passes, by a verdict of `scanner`.
    pub async fn passed(&self, by: &Account, body: Value) -> Value {
        self.trust_scanner(by).await;
        let skill = self.skill(by, body).await;
        self.verdict(by, &skill, true).await.expect(201);
        skill
    }

    /// Adds a file to a skill. The answer is the skill's next version.
    pub async fn put_file(&self, by: &Account, skill: &Value, file: &str, bytes: &[u8]) -> TestResponse {
        let call = self.call(http::Method::PUT, &format!("{}/files/{file}", path(skill)));
        call.raw(bytes.to_vec()).bearer(&by.token).send().await
    }

    /// Creates an install link and returns the response.
    pub async fn install_link(&self, by: &Account, skills: Value) -> Value {
        let body = json!({"name": "agents", "skills": skills});
        self.post("/api/v1/skills/install-links", body).bearer(&by.token).send().await.expect(201)
    }

    pub async fn publish(&self, by: &Account, skill: &Value) -> TestResponse {
        self.post(&format!("{}/publish", path(skill)), json!({})).bearer(&by.token).send().await
    }

    /// Creates a skill, submits an external verdict and publishes it.
    pub async fn published(&self, by: &Account, body: Value) -> Value {
        self.trust_scanner(by).await;
        let skill = self.skill(by, body).await;
        self.verdict(by, &skill, true).await.expect(201);
        self.publish(by, &skill).await.expect(200);
        skill
    }

    pub async fn evaluations(&self, by: &Account, skill: &Value) -> Vec<Value> {
        let list =
            self.get(&format!("{}/evaluations", path(skill))).bearer(&by.token).send().await.expect(200);
        list["evaluations"].as_array().unwrap().clone()
    }

    /// Waits for `count` internal verdicts on the skill and returns them, newest first.
    pub async fn wait_for_verdicts(&self, by: &Account, skill: &Value, count: usize) -> Vec<Value> {
        for _ in 0..600 {
            let mut found = self.evaluations(by, skill).await;
            found.retain(|evaluation| evaluation["source"] == "internal");
            if found.len() >= count {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("not {count} verdicts on {} within 30 s", skill["name"]);
    }
}
