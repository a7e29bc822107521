//! How objects go.

use serde_json::json;

use super::{Bench, Question};

pub(super) const QUESTIONS: &[Question] = &[
    Question { name: "What do preconditions of a deletion hold?", ask: |bench| Box::pin(preconditions(bench)) },
    Question { name: "How does a finalizer hold an object?", ask: |bench| Box::pin(finalizer(bench)) },
    Question { name: "How does a running Pod go?", ask: |bench| Box::pin(grace(bench)) },
    Question { name: "What goes with its owner?", ask: |bench| Box::pin(owned(bench)) },
    Question { name: "Are many deleted at once?", ask: |bench| Box::pin(many(bench)) },
];

async fn preconditions(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let all = [
        (bench.core("secrets"), bench.secret("x", json!({})), bench.core("secrets/x")),
        (bench.core("pods"), bench.pod("x"), bench.core("pods/x")),
        (bench.leases(""), bench.lease("x", "a"), bench.leases("/x")),
        (bench.entries(""), bench.entry("x"), bench.entries("/x")),
    ];
    for (list, object, path) in &all {
        let made = bench.client.post(list, object).await?.body;
        let wrong = json!({"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}});
        let reply = bench.client.delete(path, &wrong).await?;
        bench.note("wrong uid", &reply, &[]);
        let wrong = json!({"preconditions": {"resourceVersion": "1"}});
        let reply = bench.client.delete(path, &wrong).await?;
        let version = made["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let body = reply.body.to_string().replace(&format!("({version})"), "(VERSION)");
        bench.write(&format!("wrong version: {} {body}", reply.status));
        let right = json!({"preconditions": {"uid": made["metadata"]["uid"]}});
        let reply = bench.client.delete(path, &right).await?;
        bench.note("right", &reply, &["/kind", "/metadata/name"]);
        let reply = bench.client.delete(path, &right).await?;
        bench.note("again", &reply, &[]);
    }
    Ok(())
}

async fn finalizer(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let mut secret = bench.secret("s", json!({}));
    secret["metadata"]["finalizers"] = json!(["example.org/hold"]);
    bench.client.post(&bench.core("secrets"), &secret).await?;
    let path = bench.core("secrets/s");
    let shown =
        ["/kind", "/metadata/deletionGracePeriodSeconds", "/metadata/deletionTimestamp", "/metadata/finalizers"];
    for _ in 0..2 {
        let reply = bench.client.delete(&path, &json!(null)).await?;
        bench.note("delete", &reply, &shown);
    }
    let reply = bench.client.post(&bench.core("secrets"), &secret).await?;
    bench.note("create again", &reply, &[]);
    let reply = bench.client.patch(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    bench.note("it can be changed", &reply, &["/metadata/labels"]);
    let reply = bench.client.patch(&path, &json!({"metadata": {"finalizers": null}})).await?;
    bench.note("let go", &reply, &["/kind", "/metadata/finalizers"]);
    let reply = bench.client.get(&path).await?;
    bench.note("afterwards", &reply, &[]);
    Ok(())
}

/// It has a node of which nothing is heard.
async fn grace(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let mut pod = bench.pod("p");
    pod["spec"]["nodeName"] = "nowhere".into();
    bench.client.post(&bench.core("pods"), &pod).await?;
    let path = bench.core("pods/p");
    let shown = ["/kind", "/metadata/deletionGracePeriodSeconds", "/status/phase", "/metadata/generation"];
    for options in [json!(null), json!(null), json!({"gracePeriodSeconds": 5}), json!({"gracePeriodSeconds": 20})] {
        let reply = bench.client.delete(&path, &options).await?;
        bench.note("delete", &reply, &shown);
    }
    let reply = bench.client.delete(&format!("{path}?gracePeriodSeconds=0"), &json!(null)).await?;
    bench.note("at once", &reply, &["/kind", "/status/phase"]);
    let reply = bench.client.get(&path).await?;
    bench.note("afterwards", &reply, &[]);
    Ok(())
}

async fn owned(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let owner = bench.client.post(&bench.core("pods"), &bench.pod("p")).await?.body;
    let owners = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner["metadata"]["uid"]}]);
    let mut secret = bench.secret("s", json!({}));
    secret["metadata"]["ownerReferences"] = owners.clone();
    bench.client.post(&bench.core("secrets"), &secret).await?;
    // An owner that has a namespace cannot own what has none: the entry stays when its Pod is gone.
    let mut entry = bench.entry("e");
    entry["metadata"]["ownerReferences"] = owners;
    bench.client.post(&bench.entries(""), &entry).await?;
    let reply = bench.client.get(&bench.core("secrets/s")).await?;
    bench.note("the secret is there", &reply, &["/kind"]);
    bench.client.delete(&bench.core("pods/p"), &json!(null)).await?;
    bench.gone(&bench.core("secrets/s")).await?;
    bench.write("the secret is gone");
    let reply = bench.client.get(&bench.entries("/e")).await?;
    bench.note("the entry is there", &reply, &["/kind"]);
    // One whose owner never was.
    secret["metadata"]["name"] = "orphan".into();
    bench.client.post(&bench.core("secrets"), &secret).await?;
    bench.gone(&bench.core("secrets/orphan")).await?;
    bench.write("the orphan is gone");
    Ok(())
}

async fn many(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    for (name, label) in [("a", "1"), ("b", "1"), ("c", "2")] {
        bench.client.post(&bench.core("secrets"), &bench.secret(name, json!({"x": label}))).await?;
    }
    let reply = bench.client.delete(&bench.core("secrets?labelSelector=x%3D1"), &json!(null)).await?;
    bench.note("delete", &reply, &["/kind"]);
    let left = bench.client.get(&bench.core("secrets")).await?;
    bench.note("left", &left, &["/items/0/metadata/name", "/items/1"]);
    Ok(())
}
