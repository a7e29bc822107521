//! ClusterStaticEntry: a custom resource, with what that means.

use serde_json::{Value, json};

use super::{Bench, Question};

/// What is wrong with an object, and how it is made so.
type Spoiled = (&'static str, fn(&mut Value));

pub(super) const QUESTIONS: &[Question] = &[
    Question { name: "Which entries are refused?", ask: |bench| Box::pin(refused(bench)) },
    Question { name: "When does the generation of an entry grow?", ask: |bench| Box::pin(generation(bench)) },
    Question { name: "Who writes the status of an entry?", ask: |bench| Box::pin(status(bench)) },
    Question { name: "What becomes of fields that nobody knows?", ask: |bench| Box::pin(unknown(bench)) },
];

async fn refused(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let all: [Spoiled; 6] = [
        ("no spec", |entry| drop(entry.as_object_mut().and_then(|entry| entry.remove("spec")))),
        ("no parent", |entry| drop(entry["spec"].as_object_mut().and_then(|spec| spec.remove("parentID")))),
        ("a number", |entry| entry["spec"]["x509SVIDTTL"] = 60.into()),
        ("a text", |entry| entry["spec"]["selectors"] = "k8s:ns:a".into()),
        ("no selectors", |entry| entry["spec"]["selectors"] = json!([])),
        ("a bad ID", |entry| entry["spec"]["spiffeID"] = "nonsense".into()),
    ];
    for (number, (name, change)) in all.into_iter().enumerate() {
        let mut entry = bench.entry(&format!("e{number}"));
        change(&mut entry);
        let reply = bench.client.post(&bench.entries(""), &entry).await?;
        bench.note(name, &reply, &["/metadata/name"]);
    }
    Ok(())
}

async fn generation(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    bench.client.post(&bench.entries(""), &bench.entry("e")).await?;
    for patch in [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"spec": {"hint": "x"}}),
        json!({"spec": {"hint": "x"}}),
        json!({"status": {"rendered": true, "masked": false, "set": true}}),
    ] {
        let reply = bench.client.patch(&bench.entries("/e"), &patch).await?;
        bench.note("patch", &reply, &["/metadata/generation", "/status"]);
    }
    let mut held = bench.entry("held");
    held["metadata"]["finalizers"] = json!(["example.org/hold"]);
    bench.client.post(&bench.entries(""), &held).await?;
    let reply = bench.client.delete(&bench.entries("/held"), &json!(null)).await?;
    let shown = ["/kind", "/metadata/generation", "/metadata/deletionGracePeriodSeconds"];
    bench.note("delete", &reply, &shown);
    let reply = bench.client.patch(&bench.entries("/held"), &json!({"metadata": {"finalizers": []}})).await?;
    bench.note("let go", &reply, &["/kind"]);
    bench.gone(&bench.entries("/held")).await
}

async fn status(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let mut entry = bench.entry("e");
    entry["status"] = json!({"rendered": true, "masked": true, "set": true});
    let reply = bench.client.post(&bench.entries(""), &entry).await?;
    bench.note("create", &reply, &["/status"]);
    let path = format!("{}/status", bench.entries("/e"));
    let patch = json!({"spec": {"hint": "x"}, "status": {"rendered": true, "masked": false, "set": true}});
    let reply = bench.client.patch(&path, &patch).await?;
    bench.note("patch", &reply, &["/status", "/spec/hint", "/metadata/generation"]);
    let reply = bench.client.patch(&path, &json!({"status": {"rendered": null}})).await?;
    bench.note("incomplete", &reply, &[]);
    Ok(())
}

async fn unknown(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let mut entry = bench.entry("e");
    entry["spec"]["colour"] = "red".into();
    entry["weight"] = 3.into();
    let reply = bench.client.post(&bench.entries(""), &entry).await?;
    bench.note("create", &reply, &["/spec/colour", "/weight"]);
    Ok(())
}
