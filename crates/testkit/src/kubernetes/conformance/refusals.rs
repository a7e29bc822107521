//! What is refused, and in which words.

use serde_json::json;

use super::{Bench, Question};

pub(super) const QUESTIONS: &[Question] = &[
    Question { name: "What is told to who has no right?", ask: |bench| Box::pin(forbidden(bench)) },
    Question { name: "What is told to who is not known?", ask: |bench| Box::pin(unknown(bench)) },
    Question { name: "Which names and labels are refused?", ask: |bench| Box::pin(names(bench)) },
    Question { name: "Which paths and bodies are refused?", ask: |bench| Box::pin(bodies(bench)) },
];

async fn forbidden(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let secret = bench.secret("s", json!({}));
    bench.client.post(&bench.core("secrets"), &secret).await?;
    let stranger = bench.stranger().await?;
    let (one, all) = (bench.core("secrets/s"), bench.core("secrets"));
    let replies = [
        stranger.get(&one).await?,
        stranger.get(&all).await?,
        stranger.get("/api/v1/pods").await?,
        stranger.post(&all, &secret).await?,
        stranger.put(&one, &secret).await?,
        stranger.patch(&one, &json!({})).await?,
        stranger.delete(&one, &json!(null)).await?,
        stranger.get(&format!("{all}?watch=1")).await?,
        stranger.get(&bench.entries("")).await?,
        stranger.patch(&format!("{}/status", bench.entries("/e")), &json!({})).await?,
    ];
    for mut reply in replies {
        // Who asks is not the question.
        let message = reply.body["message"].as_str().unwrap_or_default().to_owned();
        if let Some((before, rest)) = message.split_once("User \"") {
            let (_, after) = rest.split_once('"').unwrap_or_default();
            reply.body["message"] = format!("{before}User USER{after}").into();
        }
        bench.note("forbidden", &reply, &[]);
    }
    Ok(())
}

async fn unknown(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let nobody = bench.client.with_token("nobody");
    let reply = nobody.get(&bench.core("pods")).await?;
    bench.note("list", &reply, &[]);
    let reply = nobody.post(&bench.core("pods"), &bench.pod("p")).await?;
    bench.note("create", &reply, &[]);
    Ok(())
}

async fn names(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let long = "a".repeat(254);
    for name in ["Upper", "under_score", "-start", "a..b", long.as_str(), ""] {
        let reply = bench.client.post(&bench.core("secrets"), &bench.secret(name, json!({}))).await?;
        bench.note(if name.len() > 60 { "long" } else { name }, &reply, &[]);
    }
    let long = "a".repeat(64);
    for labels in
        [json!({"a": "b/c"}), json!({"a b": "c"}), json!({"a": "-b"}), json!({"a": long}), json!({"x/y/z": "1"})]
    {
        let reply = bench.client.post(&bench.core("secrets"), &bench.secret("s", labels)).await?;
        bench.write(&format!(
            "label: {} {} {}",
            reply.status, reply.body["reason"], reply.body["details"]["causes"][0]["field"]
        ));
    }
    let mut pod = bench.pod("Upper");
    pod["spec"]["containers"][0]["name"] = "Executor".into();
    let reply = bench.client.post(&bench.core("pods"), &pod).await?;
    bench.note("pod", &reply, &[]);
    Ok(())
}

async fn bodies(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let reply = bench.client.get("/api/v1/namespaces/default/pots").await?;
    bench.note("no such resource", &reply, &[]);
    let reply = bench.client.get("/apis/example.org/v1/things").await?;
    bench.write(&format!("no such group: {}", reply.status));
    let reply = bench.client.post(&bench.core("secrets"), &json!("text")).await?;
    bench.write(&format!("no object: {} {}", reply.status, reply.body["reason"]));
    let mut elsewhere = bench.secret("s", json!({}));
    elsewhere["metadata"]["namespace"] = "default".into();
    let reply = bench.client.post(&bench.core("secrets"), &elsewhere).await?;
    bench.note("another namespace", &reply, &[]);
    let mut wrong = bench.secret("s", json!({}));
    wrong["kind"] = "Pod".into();
    wrong["apiVersion"] = "v1".into();
    let reply = bench.client.post(&bench.core("secrets"), &wrong).await?;
    bench.write(&format!("another kind: {} {}", reply.status, reply.body["reason"]));
    Ok(())
}
