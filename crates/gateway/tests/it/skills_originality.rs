//! Embeddings of the shelf: whose vectors a judgement uses, and which vectors are accepted.

use serde_json::{Value, json};

use crate::support::skills::{ENTERPRISE, fields};
use crate::support::{Account, Backend, ProxyFixture};
use crate::upstream::{Reply, Upstream};

const GOOD: &str = include_str!("../../../gateway-core/fixtures/skills/good/postgres-slow-query.md");
const MODEL: &str = "text-embedding-3-small";
const DECOYS: usize = 3;

fn copy_of_good() -> Value {
    json!({"raw_source": GOOD.replace("name: postgres-slow-query", "name: my-own-work")})
}

fn embeddings(vectors: &[Vec<f64>]) -> Reply {
    let data: Vec<Value> = vectors
        .iter()
        .enumerate()
        .map(|(index, vector)| json!({"object": "embedding", "index": index, "embedding": vector}))
        .collect();
    let body = json!({"object": "list", "data": data, "model": MODEL, "usage": {"prompt_tokens": 1}});
    Reply::json(200, &body.to_string())
}

/// A unit vector of eight dimensions.
fn unit(axis: usize) -> Vec<f64> {
    (0..8).map(|index| if index == axis { 1.0 } else { 0.0 }).collect()
}

async fn embed_with_openai(proxy: &ProxyFixture, by: &Account) {
    let change = json!({"embed_provider": "openai", "embed_model": MODEL, "embed_dims": 8});
    proxy.app.change_rubric(by, change).await;
}

/// Publishes the skill that others copy, and some that are nothing like it.
async fn fill_shelf(proxy: &ProxyFixture, by: &Account) {
    proxy.app.published(by, json!({"raw_source": GOOD})).await;
    for number in 0..DECOYS {
        proxy.app.published(by, fields(&format!("decoy-{number}"))).await;
    }
}

async fn originality(proxy: &ProxyFixture, by: &Account, skill: &Value) -> Value {
    proxy.app.wait_for_verdicts(by, skill, 1).await.remove(0)["axes"]["originality"].clone()
}

fn inputs(request: &crate::upstream::Request) -> Vec<String> {
    let body = request.json();
    body["input"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// The reply to a request for these texts, in which texts that contain a word have the vector of that word.
fn reply_by(texts: &[String], word: &str, with: usize, without: usize) -> Reply {
    let vector = |text: &String| unit(if text.contains(word) { with } else { without });
    embeddings(&texts.iter().map(vector).collect::<Vec<_>>())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vectors_of_one_organization_do_not_make_a_copy_of_another_original() {
    for backend in Backend::BOTH {
        let settings = [ENTERPRISE[0], ("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-operator")];
        let proxy = ProxyFixture::start_with(backend, &settings).await;
        fill_shelf(&proxy, &proxy.ada).await;
        // Eve's own `openai` says that the decoys are alike and the copied skill is like nothing.
        let (eve, bob) = (proxy.app.signup("evil").await, proxy.app.signup("honest").await);
        let evil = Upstream::start().await;
        evil.push(embeddings(&[unit(0), unit(0), unit(0), unit(0), unit(1)]));
        let provider = json!({"name": "openai", "kind": "openai", "base_url": evil.url(), "api_key": "sk-e"});
        let path = format!("/api/v1/orgs/{}/providers", eve.org_id);
        proxy.app.post(&path, provider).bearer(&eve.token).send().await.expect(201);
        embed_with_openai(&proxy, &eve).await;
        let skill = proxy.app.skill(&eve, fields("bait")).await;
        originality(&proxy, &eve, &skill).await;
        let asked = inputs(&evil.requests()[0]);
        assert_eq!(asked.len(), 2 + DECOYS);
        assert!(asked[4].contains("slow"), "the oldest is the last: {asked:?}");

        // The operator's `openai` tells the truth about the copy.
        embed_with_openai(&proxy, &bob).await;
        let shelf_order: Vec<String> =
            std::iter::once(asked[4].clone()).chain(asked[1..].iter().cloned()).collect();
        proxy.upstream.push(reply_by(&shelf_order, "slow", 0, 1));
        let copy = proxy.app.skill(&bob, copy_of_good()).await;
        let judged = originality(&proxy, &bob, &copy).await;
        let rationale = judged["rationale"].as_str().unwrap();
        assert_eq!(judged["score"], 0.0, "{judged}");
        assert!(
            rationale.contains("copy of \"postgres-slow-query\"") && rationale.contains(MODEL),
            "{rationale}"
        );
        assert_eq!(inputs(&proxy.upstream.requests()[0]).len(), 2 + DECOYS, "none of eve's vectors is used");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vectors_of_another_length_or_that_are_no_numbers_are_refused() {
    let settings = [ENTERPRISE[0], ("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-operator")];
    let proxy = ProxyFixture::start_with(Backend::Sqlite, &settings).await;
    proxy.app.published(&proxy.ada, json!({"raw_source": GOOD})).await;
    let bob = proxy.app.signup("honest").await;
    embed_with_openai(&proxy, &bob).await;
    let infinite = vec![1e39; 8];
    let short = vec![1.0, 0.0, 0.0];
    for (number, vector) in [short, infinite].into_iter().enumerate() {
        proxy.upstream.push(embeddings(&[vector.clone(), vector]));
        let name = format!("name: copy-{number}");
        let copy = json!({"raw_source": GOOD.replace("name: postgres-slow-query", &name)});
        let copy = proxy.app.skill(&bob, copy).await;
        let judged = originality(&proxy, &bob, &copy).await;
        let rationale = judged["rationale"].as_str().unwrap();
        // The built-in embedding takes over.
        assert!(rationale.contains("hash-v1"), "{rationale}");
    }
}
