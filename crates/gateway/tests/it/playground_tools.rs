//! Tools in the playground: calls in the answers, plain and streamed, kept in the history, and continued with results.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::client::Events;
use crate::support::{Account, Backend, ProxyFixture, TestApp};
use crate::upstream::Reply;

const RUN: &str = "/api/v1/playground/run";
const COMPARE: &str = "/api/v1/playground/compare";

fn tools() -> Value {
    let parameters =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    json!([{"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": parameters}}])
}

fn question() -> Value {
    json!([{"role": "user", "content": "Weather in Rome?"}])
}

async fn kept(app: &TestApp, by: &Account, run: &Value) -> Value {
    let path = format!("/api/v1/playground/history/{}", run["id"].as_str().unwrap());
    app.get(&path).bearer(&by.token).send().await.expect(200)
}

async fn collect(mut events: Events) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    while let Some(event) = events.next().await {
        all.push((event.name, serde_json::from_str(&event.data).unwrap()));
    }
    all
}

async fn last(events: Events) -> (String, Value) {
    collect(events).await.pop().unwrap()
}

on_both!(a_forced_call_is_in_the_answer_and_in_the_history, |app| async move {
    let ada = app.signup("acme").await;
    let params = json!({"tools": tools(), "tool_choice": "required"});
    let body = json!({"provider": "sandbox", "model": "m", "messages": question(), "params": params});
    let run = app.post(RUN, body.clone()).bearer(&ada.token).send().await.expect(200);
    let call = &run["tool_calls"][0];
    assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("weather")), "{run}");
    assert!(call["id"].is_string());
    assert_eq!((&run["output"], &run["finish_reason"]), (&json!(""), &json!("tool_calls")));
    assert_eq!(kept(&app, &ada, &run).await, run);

    let mut streamed = body;
    streamed["stream"] = json!(true);
    let (name, done) = last(app.post(RUN, streamed).bearer(&ada.token).open().await).await;
    assert_eq!(name, "done");
    assert_eq!(done["tool_calls"][0]["function"], call["function"]);
    assert_eq!(done["tool_calls"][0].get("index"), None);
    assert_eq!(kept(&app, &ada, &done).await["tool_calls"], done["tool_calls"]);

    let plain = json!({"provider": "sandbox", "model": "m", "messages": question()});
    let plain = app.post(RUN, plain).bearer(&ada.token).send().await.expect(200);
    assert_eq!(plain["tool_calls"], json!([]));
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_of_calls_are_joined_and_the_results_are_sent() {
    for backend in Backend::BOTH {
        let gateway = ProxyFixture::start_with(backend, &[]).await;
        let (app, ada) = (&gateway.app, &gateway.ada);
        let chunk = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]}).to_string();
        let start = |index: i64, id: &str, extra: Value| {
            let function = json!({"name": "weather", "arguments": ""});
            json!({"index": index, "id": id, "type": "function", "function": function, "extra": extra})
        };
        let piece = |index: i64, text: &str| {
            chunk(json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]}))
        };
        gateway.upstream.push(Reply::sse(&[
            &chunk(json!({"role": "assistant", "content": "Two "})),
            &chunk(
                json!({"content": "calls.", "tool_calls": [start(0, "call_1", json!({"signature": "s"}))]}),
            ),
            &piece(0, "{\"city\":"),
            &piece(0, "\"Rome\"}"),
            &chunk(json!({"tool_calls": [start(1, "call_2", Value::Null)]})),
            &piece(1, "{}"),
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
            "[DONE]",
        ]));
        let params = json!({"tools": tools()});
        let body = json!({"provider": "openai", "model": "m", "messages": question(), "params": params, "stream": true});
        let mut events = collect(app.post(RUN, body).bearer(&ada.token).open().await).await;
        let (name, done) = events.pop().unwrap();
        assert_eq!((name.as_str(), &done["output"]), ("done", &json!("Two calls.")));
        let pieces = events.iter().filter(|(name, _)| name == "delta");
        let pieces: Vec<&Value> =
            pieces.filter_map(|(_, delta)| delta["tool_calls"].as_array()).flatten().collect();
        assert_eq!(pieces.iter().map(|piece| &piece["index"]).collect::<Vec<_>>(), [0, 0, 0, 1, 1]);
        assert_eq!(pieces[1]["function"]["arguments"], "{\"city\":");
        let rome = json!({"name": "weather", "arguments": "{\"city\":\"Rome\"}"});
        let calls = done["tool_calls"].clone();
        // What a provider adds to a call goes back to it with the result.
        assert_eq!(
            calls[0],
            json!({"id": "call_1", "type": "function", "function": rome, "extra": {"signature": "s"}})
        );
        assert_eq!((&calls[1]["id"], &calls[1]["function"]["arguments"]), (&json!("call_2"), &json!("{}")));
        assert_eq!(calls.as_array().unwrap().len(), 2);

        gateway.upstream.push(Reply::json(200, crate::replays::OPENAI));
        let messages = json!([
            question()[0],
            {"role": "assistant", "content": null, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
            {"role": "tool", "tool_call_id": "call_2", "content": "rain"},
        ]);
        let body = json!({"provider": "openai", "model": "m", "messages": messages, "params": params});
        let run = app.post(RUN, body).bearer(&ada.token).send().await.expect(200);
        assert_eq!((&run["output"], &run["messages"]), (&json!("Paris"), &messages));
        let sent = gateway.upstream.requests().pop().unwrap().json();
        assert_eq!((&sent["messages"], &sent["tools"]), (&messages, &tools()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_every_format_look_like_those_of_chat_completions() {
    let gateway = ProxyFixture::start().await;
    let (app, ada) = (&gateway.app, &gateway.ada);
    let claude = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"tool_use","id":"toolu_1","name":"weather","input":{"city":"Rome"}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}"#;
    let gemini = r#"{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"weather","args":{"city":"Rome"}}}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,"totalTokenCount":5},"modelVersion":"m"}"#;
    for (provider, reply) in [("anthropic", claude), ("gemini", gemini)] {
        gateway.upstream.set_default_reply(Reply::json(200, reply));
        let params = json!({"tools": tools()});
        let body = json!({"provider": provider, "model": "m", "messages": question(), "params": params});
        let run = app.post(RUN, body).bearer(&ada.token).send().await.expect(200);
        let call = run["tool_calls"][0].clone();
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        assert_eq!((&call["function"]["name"], arguments), (&json!("weather"), json!({"city": "Rome"})));
        assert!(gateway.upstream.requests().pop().unwrap().json()["tools"].to_string().contains("weather"));

        let messages = json!([
            question()[0],
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "sunny"},
        ]);
        let body = json!({"provider": provider, "model": "m", "messages": messages, "params": params});
        app.post(RUN, body).bearer(&ada.token).send().await.expect(200);
        let sent = gateway.upstream.requests().pop().unwrap().json().to_string();
        assert!(sent.contains("sunny") && sent.contains("Rome"), "{provider}: {sent}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comparison_has_the_calls_of_each_target_and_only_so_many() {
    let gateway = ProxyFixture::start().await;
    let call = |n: usize| json!({"id": format!("c{n}"), "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let calls: Vec<Value> = (0..300).map(call).collect();
    let reply = json!({"choices": [{"message": {"role": "assistant", "content": null, "tool_calls": calls}, "finish_reason": "tool_calls"}]});
    gateway.upstream.push(Reply::json(200, &reply.to_string()));
    let targets = json!([{"provider": "openai", "model": "m"}, {"provider": "sandbox", "model": "m"}]);
    let body = json!({"messages": question(), "targets": targets});
    let both = gateway.app.post(COMPARE, body).bearer(&gateway.ada.token).send().await.expect(200);
    assert_eq!(both["results"][0]["tool_calls"].as_array().unwrap().len(), 128);
    assert_eq!(both["results"][0]["tool_calls"][127]["id"], "c127");
    assert_eq!(both["results"][1]["tool_calls"], json!([]));
}
