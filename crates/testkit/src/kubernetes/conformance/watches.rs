//! What a watch tells.

use serde_json::json;

use super::{Bench, Question};

pub(super) const QUESTIONS: &[Question] = &[
    Question { name: "What does a watch tell of an object's life?", ask: |bench| Box::pin(life(bench)) },
    Question { name: "What does a selector make of changes?", ask: |bench| Box::pin(selector(bench)) },
    Question { name: "What does a watch without a version begin with?", ask: |bench| Box::pin(initial(bench)) },
    Question { name: "How is a watch told that it comes too late?", ask: |bench| Box::pin(expired(bench)) },
    Question { name: "How does a watch end that has its time?", ask: |bench| Box::pin(ends(bench)) },
];

const SHOWN: [&str; 4] = ["/kind", "/metadata/name", "/metadata/labels", "/metadata/deletionTimestamp"];

async fn version(bench: &Bench<'_>) -> anyhow::Result<String> {
    let list = bench.client.get(&bench.core("secrets")).await?.body;
    Ok(list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
}

async fn life(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let version = version(bench).await?;
    let mut secret = bench.secret("s", json!({"a": "1"}));
    secret["metadata"]["finalizers"] = json!(["example.org/hold"]);
    bench.client.post(&bench.core("secrets"), &secret).await?;
    let path = bench.core("secrets/s");
    // Some of it happens before the watch begins, and is told all the same.
    bench.client.patch(&path, &json!({"metadata": {"labels": {"a": "2"}}})).await?;
    let mut watch = bench.client.watch(&bench.core(&format!("secrets?watch=1&resourceVersion={version}"))).await?;
    bench.client.delete(&path, &json!(null)).await?;
    bench.client.patch(&path, &json!({"metadata": {"finalizers": null}})).await?;
    for _ in 0..4 {
        let event = watch.next().await?;
        bench.note_event(event.as_ref(), &SHOWN);
    }
    Ok(())
}

async fn selector(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let version = version(bench).await?;
    let path = bench.core(&format!("secrets?watch=1&resourceVersion={version}&labelSelector=a%3D1"));
    let mut watch = bench.client.watch(&path).await?;
    bench.client.post(&bench.core("secrets"), &bench.secret("other", json!({"a": "2"}))).await?;
    bench.client.post(&bench.core("secrets"), &bench.secret("s", json!({"a": "2"}))).await?;
    for label in ["1", "2", "1"] {
        bench.client.patch(&bench.core("secrets/s"), &json!({"metadata": {"labels": {"a": label}}})).await?;
    }
    bench.client.patch(&bench.core("secrets/s"), &json!({"metadata": {"annotations": {"b": "c"}}})).await?;
    bench.client.delete(&bench.core("secrets/s"), &json!(null)).await?;
    for _ in 0..5 {
        let event = watch.next().await?;
        bench.note_event(event.as_ref(), &SHOWN);
    }
    Ok(())
}

async fn initial(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    bench.client.post(&bench.core("secrets"), &bench.secret("s", json!({"a": "1"}))).await?;
    let mut watch = bench.client.watch(&bench.core("secrets?watch=1")).await?;
    let event = watch.next().await?;
    bench.note_event(event.as_ref(), &SHOWN);
    bench.client.patch(&bench.core("secrets/s"), &json!({"metadata": {"labels": {"a": "2"}}})).await?;
    let event = watch.next().await?;
    bench.note_event(event.as_ref(), &SHOWN);
    Ok(())
}

async fn expired(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    bench.client.post(&bench.core("secrets"), &bench.secret("s", json!({}))).await?;
    bench.forget_history().await?;
    let mut watch = bench.client.watch(&bench.core("secrets?watch=1&resourceVersion=1")).await?;
    let event = watch.next().await?.unwrap_or_default();
    let status = &event["object"];
    let message = status["message"].as_str().unwrap_or_default().split(':').next().unwrap_or_default().to_owned();
    bench.write(&format!("{} {} {} {} {message}", event["type"], status["kind"], status["code"], status["reason"]));
    let event = watch.next().await?;
    bench.note_event(event.as_ref(), &[]);
    let bad = bench.client.watch(&bench.core("secrets?watch=1&resourceVersion=abc")).await.err();
    bench.write(&format!("no version: {:?}", bad.and_then(|error| error.status())));
    Ok(())
}

async fn ends(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let version = version(bench).await?;
    let path = bench.core(&format!("secrets?watch=1&resourceVersion={version}&timeoutSeconds=1"));
    let mut watch = bench.client.watch(&path).await?;
    let event = watch.next().await?;
    bench.note_event(event.as_ref(), &SHOWN);
    Ok(())
}
