//! A dataset and requests on it.

use http::Method;
use serde_json::{Value, json};

use super::{Account, TestApp, TestResponse};

pub const DATASETS: &str = "/api/v1/datasets";

/// A dataset and the account whose token the requests use.
pub struct DatasetFixture<'a> {
    pub app: &'a TestApp,
    pub by: &'a Account,
    pub path: String,
}

impl<'a> DatasetFixture<'a> {
    pub async fn create(app: &'a TestApp, by: &'a Account) -> Self {
        let body = json!({"name": "questions"});
        let made = app.post(DATASETS, body).bearer(&by.token).send().await.expect(201);
        Self { app, by, path: format!("{DATASETS}/{}", made["id"].as_str().unwrap()) }
    }

    pub async fn get(&self, below: &str) -> TestResponse {
        self.app.get(&format!("{}{below}", self.path)).bearer(&self.by.token).send().await
    }

    pub async fn post(&self, below: &str, body: Value) -> TestResponse {
        self.app.post(&format!("{}{below}", self.path), body).bearer(&self.by.token).send().await
    }

    pub async fn put(&self, below: &str, body: Value) -> TestResponse {
        self.app.put(&format!("{}{below}", self.path), body).bearer(&self.by.token).send().await
    }

    pub async fn delete(&self, below: &str) -> TestResponse {
        self.app.delete(&format!("{}{below}", self.path)).bearer(&self.by.token).send().await
    }

    pub async fn import(&self, kind: &str, body: impl Into<bytes::Bytes>) -> TestResponse {
        let call = self.app.call(Method::POST, &format!("{}/import", self.path)).bearer(&self.by.token);
        call.header("content-type", kind).raw(body).send().await
    }

    pub async fn add(&self, inputs: &[&str]) -> Vec<String> {
        let cases: Vec<Value> = inputs.iter().map(|input| json!({"input": input})).collect();
        let added = self.post("/cases", json!({"cases": cases})).await.expect(201);
        added["cases"]
            .as_array()
            .unwrap()
            .iter()
            .map(|case| case["id"].as_str().unwrap().to_owned())
            .collect()
    }

    pub async fn freeze(&self) -> Value {
        self.post("/versions", json!({})).await.expect(201)
    }

    /// Returns the inputs of the cases, newest first.
    pub async fn inputs(&self, query: &str) -> Vec<Value> {
        let list = self.get(&format!("/cases?limit=200{query}")).await.expect(200);
        list["cases"].as_array().unwrap().iter().map(|case| case["input"].clone()).collect()
    }

    pub async fn count(&self) -> Value {
        self.get("").await.expect(200)["case_count"].clone()
    }
}
