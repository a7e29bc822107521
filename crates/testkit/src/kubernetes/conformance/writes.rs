//! Replacements and patches, and how two writers meet.

use http::Method;
use serde_json::{Value, json};

use super::{Bench, Question};
use crate::kubernetes::Content;

pub(super) const QUESTIONS: &[Question] = &[
    Question { name: "Who wins when two replace a Lease?", ask: |bench| Box::pin(rivals(bench)) },
    Question { name: "Is a replacement without a version taken?", ask: |bench| Box::pin(unconditional(bench)) },
    Question { name: "What does a merge patch change?", ask: |bench| Box::pin(merge(bench)) },
    Question { name: "Is a patch that changes nothing a write?", ask: |bench| Box::pin(nothing(bench)) },
    Question { name: "Which other patches are there?", ask: |bench| Box::pin(others(bench)) },
    Question { name: "Does a foreign uid stop a replacement?", ask: |bench| Box::pin(foreign_uid(bench)) },
];

async fn rivals(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let path = bench.leases("/l");
    let first = bench.client.post(&bench.leases(""), &bench.lease("l", "a")).await?.body;
    for holder in ["b", "c"] {
        let mut mine = first.clone();
        mine["spec"]["holderIdentity"] = holder.into();
        let reply = bench.client.put(&path, &mine).await?;
        bench.note(holder, &reply, &["/spec/holderIdentity"]);
    }
    let version = first["metadata"]["resourceVersion"].clone();
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": "d"}});
    let reply = bench.client.patch(&path, &patch).await?;
    bench.note("patch with the old version", &reply, &[]);
    let now = bench.client.get(&path).await?;
    bench.note("now", &now, &["/spec/holderIdentity"]);
    Ok(())
}

async fn unconditional(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    bench.client.post(&bench.leases(""), &bench.lease("l", "a")).await?;
    let reply = bench.client.put(&bench.leases("/l"), &bench.lease("l", "b")).await?;
    bench.note("lease", &reply, &["/spec/holderIdentity"]);
    bench.client.post(&bench.core("secrets"), &bench.secret("s", json!({}))).await?;
    let reply = bench.client.put(&bench.core("secrets/s"), &bench.secret("s", json!({"a": "b"}))).await?;
    bench.note("secret", &reply, &["/metadata/labels"]);
    bench.client.post(&bench.entries(""), &bench.entry("e")).await?;
    let reply = bench.client.put(&bench.entries("/e"), &bench.entry("e")).await?;
    bench.note("entry", &reply, &["/metadata/generation"]);
    let reply = bench.client.put(&bench.core("secrets/other"), &bench.secret("s", json!({}))).await?;
    bench.note("another name", &reply, &[]);
    Ok(())
}

async fn merge(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let made = bench.client.post(&bench.core("secrets"), &bench.secret("s", json!({"a": "1", "b": "2"}))).await?.body;
    let path = bench.core("secrets/s");
    let patch =
        json!({"metadata": {"labels": {"a": null, "c": "3"}, "annotations": {"n": "x"}}, "data": {"key": null}});
    let reply = bench.client.patch(&path, &patch).await?;
    bench.note("patch", &reply, &["/metadata/labels", "/metadata/annotations", "/data"]);
    let patch = json!({"metadata": {"labels": null}});
    let reply = bench.client.patch(&path, &patch).await?;
    bench.note("labels away", &reply, &["/metadata/labels"]);
    let version = &made["metadata"]["resourceVersion"];
    let patch = json!({"metadata": {"resourceVersion": version, "labels": {"d": "4"}}});
    let reply = bench.client.patch(&path, &patch).await?;
    bench.note("old version", &reply, &[]);
    let patch = json!({"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}});
    let reply = bench.client.patch(&path, &patch).await?;
    bench.write(&format!("foreign uid: {} {}", reply.status, reply.body["reason"]));
    Ok(())
}

async fn nothing(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let made = bench.client.post(&bench.core("secrets"), &bench.secret("s", json!({"a": "1"}))).await?.body;
    let path = bench.core("secrets/s");
    let same = bench.client.patch(&path, &json!({"metadata": {"labels": {"a": "1"}}})).await?.body;
    bench.write(&format!(
        "same version: {}",
        made["metadata"]["resourceVersion"] == same["metadata"]["resourceVersion"]
    ));
    let same = bench.client.put(&path, &same).await?.body;
    bench.write(&format!(
        "same version: {}",
        made["metadata"]["resourceVersion"] == same["metadata"]["resourceVersion"]
    ));
    Ok(())
}

async fn others(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    bench.client.post(&bench.core("secrets"), &bench.secret("s", json!({"a": "1"}))).await?;
    bench.client.post(&bench.entries(""), &bench.entry("e")).await?;
    let labels = json!({"metadata": {"labels": {"b": "2"}}});
    for path in [bench.core("secrets/s"), bench.entries("/e")] {
        let reply = bench.client.call(Method::PATCH, &path, Content::StrategicMergePatch, &labels).await?;
        bench.write(&format!(
            "strategic: {} {} {}",
            reply.status, reply.body["reason"], reply.body["metadata"]["labels"]
        ));
        let test = |value: &str| json!([{"op": "test", "path": "/metadata/name", "value": value}, {"op": "add", "path": "/metadata/annotations", "value": {"n": "x"}}]);
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        let reply = bench.client.call(Method::PATCH, &path, Content::JsonPatch, &test(&name)).await?;
        bench.note("json", &reply, &["/metadata/annotations"]);
        let reply = bench.client.call(Method::PATCH, &path, Content::JsonPatch, &test("other")).await?;
        bench.write(&format!("json, test fails: {} {}", reply.status, reply.body["reason"]));
        let reply = bench.client.call(Method::PATCH, &path, Content::Json, &labels).await?;
        bench.write(&format!("no patch: {} {}", reply.status, reply.body["reason"]));
    }
    Ok(())
}

async fn foreign_uid(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let mut object = bench.client.post(&bench.core("secrets"), &bench.secret("s", json!({}))).await?.body;
    object["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000".into();
    let reply = bench.client.put(&bench.core("secrets/s"), &object).await?;
    bench.write(&format!("{} {} {}", reply.status, reply.body["reason"], reply.body["details"]));
    object["metadata"]["resourceVersion"] = Value::Null;
    let reply = bench.client.put(&bench.core("secrets/s"), &object).await?;
    bench.write(&format!("{} {} {}", reply.status, reply.body["reason"], reply.body["details"]));
    Ok(())
}
