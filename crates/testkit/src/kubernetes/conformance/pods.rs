//! What is particular to Pods.

use serde_json::{Value, json};

use super::{Bench, Question};

/// What is wrong with an object, and how it is made so.
type Spoiled = (&'static str, fn(&mut Value));

pub(super) const QUESTIONS: &[Question] = &[
    Question { name: "Which Pods are refused?", ask: |bench| Box::pin(refused(bench)) },
    Question { name: "Is a Pod with a bad image refused?", ask: |bench| Box::pin(images(bench)) },
    Question { name: "What of a Pod can be changed?", ask: |bench| Box::pin(changed(bench)) },
    Question { name: "Who writes the status of a Pod?", ask: |bench| Box::pin(status(bench)) },
    Question { name: "What is told when a quota is used up?", ask: |bench| Box::pin(quota(bench)) },
    Question {
        name: "What is told when a quota of Secrets is used up?",
        ask: |bench| Box::pin(quota_of_secrets(bench, "secrets")),
    },
    Question {
        name: "What is told when a count of Secrets is used up?",
        ask: |bench| Box::pin(quota_of_secrets(bench, "count/secrets")),
    },
];

async fn refused(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let path = bench.core("pods");
    let with = |bench: &Bench<'_>, change: fn(&mut Value)| {
        let mut pod = bench.pod("p");
        change(&mut pod["spec"]);
        pod
    };
    let all: [Spoiled; 6] = [
        ("no account", |spec| spec["serviceAccountName"] = "nobody".into()),
        ("no container", |spec| spec["containers"] = json!([])),
        ("no image", |spec| drop(spec["containers"][0].as_object_mut().and_then(|each| each.remove("image")))),
        ("no volume", |spec| spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}])),
        ("no time", |spec| spec["activeDeadlineSeconds"] = 0.into()),
        ("a wrong type", |spec| spec["activeDeadlineSeconds"] = "x".into()),
    ];
    for (name, change) in all {
        let reply = bench.client.post(&path, &with(bench, change)).await?;
        if name == "a wrong type" {
            bench.write(&format!("{name}: {} {}", reply.status, reply.body["reason"]));
        } else {
            bench.note(name, &reply, &[]);
        }
    }
    Ok(())
}

async fn images(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    for (name, image) in [("a", "UPPER/image:tag"), ("b", "image@sha256:short"), ("c", "image"), ("d", "image:latest")]
    {
        let mut pod = bench.pod(name);
        pod["spec"]["containers"][0]["image"] = image.into();
        let reply = bench.client.post(&bench.core("pods"), &pod).await?;
        bench.note(image, &reply, &["/spec/containers/0/image", "/spec/containers/0/imagePullPolicy"]);
    }
    Ok(())
}

async fn changed(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    bench.client.post(&bench.core("pods"), &bench.pod("p")).await?;
    let path = bench.core("pods/p");
    for (name, patch) in [
        ("label", json!({"metadata": {"labels": {"a": "b"}}})),
        ("deadline", json!({"spec": {"activeDeadlineSeconds": 100}})),
        ("policy", json!({"spec": {"restartPolicy": "Always"}})),
        ("node", json!({"spec": {"nodeName": "n"}})),
    ] {
        let reply = bench.client.patch(&path, &patch).await?;
        let causes = &reply.body["details"]["causes"];
        let cause = [&causes[0]["reason"], &causes[0]["field"]];
        bench.write(&format!(
            "{name}: {} {} {cause:?} {}",
            reply.status, reply.body["reason"], reply.body["metadata"]["generation"]
        ));
    }
    Ok(())
}

async fn status(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let mut pod = bench.pod("p");
    pod["status"] = json!({"phase": "Failed"});
    let reply = bench.client.post(&bench.core("pods"), &pod).await?;
    bench.note("create", &reply, &["/status/phase"]);
    let path = bench.core("pods/p");
    let patch = json!({"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Failed"}});
    let reply = bench.client.patch(&path, &patch).await?;
    bench.note("patch", &reply, &["/metadata/labels", "/status/phase"]);
    let patch = json!({"spec": {"activeDeadlineSeconds": 100}, "status": {"phase": "Running"}});
    let reply = bench.client.patch(&format!("{path}/status"), &patch).await?;
    bench.note("patch of the status", &reply, &["/spec/activeDeadlineSeconds", "/status/phase"]);
    Ok(())
}

async fn limit(bench: &mut Bench<'_>, key: &str) -> anyhow::Result<()> {
    let quota = json!({"metadata": {"name": "executors"}, "spec": {"hard": {key: "1"}}});
    bench.client.post(&bench.core("resourcequotas"), &quota).await?;
    bench.until(&bench.core("resourcequotas/executors"), |reply| reply.body["status"]["hard"][key] == "1").await?;
    Ok(())
}

async fn quota_of_secrets(bench: &mut Bench<'_>, key: &str) -> anyhow::Result<()> {
    limit(bench, key).await?;
    for name in ["a", "b"] {
        let reply = bench.client.post(&bench.core("secrets"), &bench.secret(name, json!({}))).await?;
        bench.note(name, &reply, &["/metadata/name"]);
    }
    Ok(())
}

async fn quota(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    limit(bench, "pods").await?;
    for name in ["a", "b"] {
        let reply = bench.client.post(&bench.core("pods"), &bench.pod(name)).await?;
        bench.note(name, &reply, &["/metadata/name"]);
    }
    Ok(())
}
