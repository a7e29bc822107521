//! Objects as they are made, read and listed.

use serde_json::json;

use super::{Bench, Question};

pub(super) const QUESTIONS: &[Question] = &[
    Question { name: "What does the server write into a new object?", ask: |bench| Box::pin(made(bench)) },
    Question { name: "Is a name taken twice?", ask: |bench| Box::pin(twice(bench)) },
    Question { name: "How is a missing object told?", ask: |bench| Box::pin(missing(bench)) },
    Question { name: "Which objects fit a selector?", ask: |bench| Box::pin(selected(bench)) },
    Question { name: "How does a long list come in pages?", ask: |bench| Box::pin(pages(bench)) },
    Question { name: "Are both kinds of events the same?", ask: |bench| Box::pin(events(bench)) },
];

async fn made(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let common = ["/kind", "/apiVersion", "/metadata/name", "/metadata/namespace", "/metadata/generation", "/status"];
    let secret = bench.client.post(&bench.core("secrets"), &bench.secret("s", json!({}))).await?;
    bench.note("secret", &secret, &[&common[..], &["/data", "/stringData", "/type"]].concat());
    let lease = bench.client.post(&bench.leases(""), &bench.lease("l", "a")).await?;
    bench.note("lease", &lease, &[&common[..], &["/spec"]].concat());
    let entry = bench.client.post(&bench.entries(""), &bench.entry("e")).await?;
    bench.note("entry", &entry, &[&common[..], &["/spec"]].concat());
    let pod = bench.client.post(&bench.core("pods"), &bench.pod("p")).await?;
    let spec = [
        "/kind",
        "/apiVersion",
        "/metadata/generation",
        "/status/phase",
        "/status/qosClass",
        "/spec/restartPolicy",
        "/spec/terminationGracePeriodSeconds",
        "/spec/serviceAccountName",
        "/spec/enableServiceLinks",
        "/spec/schedulerName",
        "/spec/dnsPolicy",
        "/spec/tolerations",
        "/spec/containers/0/imagePullPolicy",
        "/spec/containers/0/resources",
        "/spec/containers/0/terminationMessagePath",
    ];
    bench.note("pod", &pod, &spec);
    Ok(())
}

async fn twice(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let all = [
        (bench.core("secrets"), bench.secret("x", json!({}))),
        (bench.core("pods"), bench.pod("x")),
        (bench.leases(""), bench.lease("x", "a")),
        (bench.entries(""), bench.entry("x")),
    ];
    for (path, object) in &all {
        for _ in 0..2 {
            let reply = bench.client.post(path, object).await?;
            bench.note("create", &reply, &["/metadata/name"]);
        }
    }
    Ok(())
}

async fn missing(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let paths = [bench.core("pods/x"), bench.core("secrets/x"), bench.leases("/x"), bench.entries("/x")];
    for path in &paths {
        let read = bench.client.get(path).await?;
        bench.note("get", &read, &[]);
        let patched = bench.client.patch(path, &json!({"metadata": {"labels": {"a": "b"}}})).await?;
        bench.note("patch", &patched, &[]);
        let deleted = bench.client.delete(path, &json!(null)).await?;
        bench.note("delete", &deleted, &[]);
    }
    let nowhere = bench.client.post("/api/v1/namespaces/nowhere/secrets", &bench.secret("x", json!({}))).await?;
    bench.note("create in no namespace", &nowhere, &[]);
    let empty = bench.client.get("/api/v1/namespaces/nowhere/secrets").await?;
    bench.note("list in no namespace", &empty, &["/kind", "/items"]);
    Ok(())
}

async fn selected(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    for (name, labels) in [("a", json!({"x": "1", "y": "1"})), ("b", json!({"x": "2"})), ("c", json!({}))] {
        bench.client.post(&bench.core("secrets"), &bench.secret(name, labels)).await?;
    }
    for selector in
        ["x", "x%3D1", "x%3D%3D2", "x!%3D1", "!x", "x+in+(1,2)", "x+notin+(1)", "x,y", "x%3D1,y%3D2", "x+in+1"]
    {
        let list = bench.client.get(&bench.core(&format!("secrets?labelSelector={selector}"))).await?;
        let names: Vec<_> =
            list.body["items"].as_array().into_iter().flatten().map(|item| item["metadata"]["name"].clone()).collect();
        bench.write(&format!("{selector}: {} {} {names:?}", list.status, list.body["kind"]));
    }
    let field = bench.client.get(&bench.core("secrets?fieldSelector=metadata.name%3Db")).await?;
    bench.note("field", &field, &["/kind", "/apiVersion", "/items/0/metadata/name", "/items/1"]);
    Ok(())
}

async fn pages(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    for name in ["a", "b", "c"] {
        bench.client.post(&bench.core("secrets"), &bench.secret(name, json!({}))).await?;
    }
    let first = bench.client.get(&bench.core("secrets?limit=2")).await?;
    bench.note(
        "first",
        &first,
        &["/metadata/remainingItemCount", "/items/0/metadata/name", "/items/1/metadata/name", "/items/2"],
    );
    let token = first.body["metadata"]["continue"].as_str().unwrap_or_default().replace('=', "%3D").replace(':', "%3A");
    let second = bench.client.get(&bench.core(&format!("secrets?limit=2&continue={token}"))).await?;
    bench.note(
        "second",
        &second,
        &["/metadata/remainingItemCount", "/metadata/continue", "/items/0/metadata/name", "/items/1"],
    );
    bench.write(&format!(
        "one version: {}",
        first.body["metadata"]["resourceVersion"] == second.body["metadata"]["resourceVersion"]
    ));
    Ok(())
}

async fn events(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let about = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": bench.namespace});
    let old = json!({"metadata": {"name": "old"}, "involvedObject": about, "reason": "Tried", "message": "words",
        "type": "Normal", "source": {"component": "us"}, "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"});
    bench.client.post(&bench.core("events"), &old).await?;
    let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", bench.namespace);
    let new = json!({"metadata": {"name": "new"}, "regarding": about, "reason": "Tried", "note": "words",
        "type": "Normal", "action": "Try", "reportingController": "example.org/us", "reportingInstance": "us-1",
        "eventTime": "2026-01-01T00:00:00.000000Z"});
    let made = bench.client.post(&path, &new).await?;
    bench.note("new", &made, &["/note", "/regarding/name", "/reportingController"]);
    let shown = bench.client.get(&format!("{path}/old")).await?;
    bench.note("old, as new", &shown, &["/note", "/regarding/name", "/deprecatedSource/component", "/deprecatedCount"]);
    let shown = bench.client.get(&bench.core("events/new")).await?;
    bench.note(
        "new, as old",
        &shown,
        &["/message", "/involvedObject/name", "/reportingComponent", "/reason", "/action"],
    );
    Ok(())
}
