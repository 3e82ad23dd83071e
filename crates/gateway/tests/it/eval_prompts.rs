//! Prompts in evals, replays and the playground: a model gets the same request as when an application names the prompt.

use serde_json::{Value, json};

use crate::replays::OPENAI;
use crate::support::{Backend, ProxyFixture};
use crate::upstream::Reply;

const CLAUDE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Paris"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}"#;
const PROMPT: &str = "support/hello";

async fn start(backend: Backend, content: &str) -> ProxyFixture {
    let proxy = ProxyFixture::start_with(backend, &[("GATEWAY_RATE_LIMIT_FREE", "0")]).await;
    let prompt = json!({"namespace": "support", "slug": "hello", "content": content});
    proxy.app.post("/api/v1/prompts", prompt).bearer(&proxy.ada.token).send().await.expect(201);
    proxy
}

/// What the provider receives of an application that names the prompt and sends these messages.
async fn sent_in_production(
    proxy: &ProxyFixture,
    provider: &str,
    messages: &Value,
    variables: &Value,
) -> Value {
    let body = json!({"model": "m", "messages": messages});
    let call = proxy.post(provider, "/v1/chat/completions", body.to_string());
    let call = call.header("x-gateway-format", "openai").header("x-gateway-prompt", PROMPT);
    call.header("x-gateway-prompt-variables", &variables.to_string()).send().await.expect(200);
    proxy.upstream.requests().pop().unwrap().json()
}

/// What the provider receives of an eval run over one case.
async fn sent_by_eval(proxy: &ProxyFixture, provider: &str, input: &Value, variables: &Value) -> Value {
    let (app, ada) = (&proxy.app, &proxy.ada);
    let dataset = app.dataset(ada, &[json!({"input": input})]).await;
    let eval = app.eval(ada, "static", "contains", json!({"value": "Paris"})).await;
    let prompt = json!({"namespace": "support", "slug": "hello", "variables": variables});
    let target = json!({"provider": provider, "model": "m", "prompt": prompt});
    let body = json!({"eval_id": eval["id"], "target": target});
    let path = format!("/api/v1/datasets/{dataset}/eval");
    let run = app.post(&path, body).bearer(&ada.token).send().await.expect(202);
    let run = app.wait_for_run(ada, &run).await;
    assert_eq!((&run["status"], &run["passed"]), (&json!("completed"), &json!(1)), "{run}");
    proxy.upstream.requests().pop().unwrap().json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_eval_sends_what_an_application_sends() {
    let chat = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "capital?"},
        {"role": "assistant", "content": "Of what?"},
        {"role": "user", "content": "France"},
    ]);
    let asked = |text: &str| json!([{"role": "user", "content": text}]);
    for backend in Backend::BOTH {
        let proxy = start(backend, "Help {{customer}} of {{company}}.").await;
        for (provider, reply) in [("openai", OPENAI), ("anthropic", CLAUDE)] {
            proxy.upstream.set_default_reply(Reply::json(200, reply));
            let all = json!({"customer": "Ada", "company": "Acme"});
            for (input, fixed, messages) in [
                (json!("capital?"), all.clone(), asked("capital?")),
                (json!({"messages": chat}), all.clone(), chat.clone()),
                (chat.clone(), all.clone(), chat.clone()),
                // Fields of the input are the variables that an application fills in.
                (
                    json!({"customer": "Ada", "question": "capital?"}),
                    json!({"company": "Acme"}),
                    asked("capital?"),
                ),
                (json!({"messages": chat, "customer": "Ada", "company": "Acme"}), json!({}), chat.clone()),
            ] {
                let expected = sent_in_production(&proxy, provider, &messages, &all).await;
                let sent = sent_by_eval(&proxy, provider, &input, &fixed).await;
                assert_eq!(sent, expected, "{provider} {input}");
                let system = expected["system"].to_string() + &expected["messages"][0].to_string();
                assert!(system.contains("Help Ada of Acme."), "{expected}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_that_takes_in_the_input_is_the_users_message() {
    for backend in Backend::BOTH {
        let proxy = start(backend, "Answer: {{input}}").await;
        for (provider, reply) in [("openai", OPENAI), ("anthropic", CLAUDE)] {
            proxy.upstream.set_default_reply(Reply::json(200, reply));
            let sent = sent_by_eval(&proxy, provider, &json!("capital?"), &json!({})).await;
            assert_eq!(sent["messages"].as_array().map(Vec::len), Some(1), "{sent}");
            assert_eq!(sent["messages"][0]["role"], "user");
            assert!(sent["messages"][0]["content"].to_string().contains("Answer: capital?"), "{sent}");
            assert_eq!(sent["system"], Value::Null);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_playground_and_replays_send_it_too() {
    for backend in Backend::BOTH {
        let proxy = start(backend, "Help {{customer}}.").await;
        let (app, ada) = (&proxy.app, &proxy.ada);
        let messages =
            json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "capital?"}]);
        let variables = json!({"customer": "Ada"});
        for (provider, reply) in [("openai", OPENAI), ("anthropic", CLAUDE)] {
            proxy.upstream.set_default_reply(Reply::json(200, reply));
            let expected = sent_in_production(&proxy, provider, &messages, &variables).await;
            let prompt = json!({"namespace": "support", "slug": "hello", "variables": variables});
            let body = json!({"provider": provider, "model": "m", "messages": messages, "prompt": prompt});
            app.post("/api/v1/playground/run", body).bearer(&ada.token).send().await.expect(200);
            assert_eq!(proxy.upstream.requests().pop().unwrap().json(), expected);

            let body = json!({"model": "m", "messages": messages});
            let call = proxy.post(provider, "/v1/chat/completions", body.to_string());
            let answer = call.header("x-gateway-format", "openai").send().await;
            answer.expect(200);
            let row = proxy.log_row(&answer).await;
            let target = json!({"prompt": {"namespace": "support", "slug": "hello"}, "variables": variables});
            let replay = app.replay(ada, json!({"log_ids": [row["id"]], "target": target})).await;
            assert_eq!(replay["status"], "completed", "{replay}");
            assert_eq!(proxy.upstream.requests().pop().unwrap().json(), expected);
        }
    }
}
