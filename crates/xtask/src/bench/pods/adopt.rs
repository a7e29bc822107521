//! A start that finds thousands of executors whose jobs run: until each has its life, and the memory that they take.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use domain::id::{AssignmentId, Backend, Epoch, PayloadDigest, TaskId, executor_name};
use domain::metadata::{Claim, ExecutorRecord};
use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::kubernetes::Resource;

use super::site::{INSTANCE, NAMESPACE, Site};
use super::{eventually, handed_out};
use crate::bench::figure::{Figure, mib, millis};
use crate::bench::process::Memory;
use crate::bench::subject::now;
use crate::say::Step;

/// Slots beside theirs: who has none asks for no task, by which it is seen that it serves.
const FREE: usize = 10;
/// What a start leaves behind for a moment is gone after this.
const SETTLED: Duration = Duration::from_secs(5);

pub(super) async fn measure(program: &Path, count: usize) -> anyhow::Result<Vec<Figure>> {
    let mut site = Site::prepare(count + FREE).await?;
    let mut step = Step::begin(format!("{count} executors that exist at a start"));
    let tasks = handed_out(&site.gitea, &site, count).await?;
    step.tick("their Pods");
    for task in &tasks {
        site.kubernetes.add(Resource::Pods, NAMESPACE, pod(*task)?);
    }
    let runs =
        |site: &Site| site.kubernetes.objects(Resource::Pods).iter().all(|pod| pod["status"]["phase"] == "Running");
    eventually(&site, "every Pod runs", runs).await?;
    let began = now();
    site.serve(program).await?;
    let adopted = |site: &Site| site.tells("executor_adopted") >= count;
    eventually(&site, "every executor was adopted", adopted).await?;
    let adopted = site.told("executor_adopted")?.into_iter().map(|(_, at)| at).max().context("none was adopted")?;
    let leads = site.told("starting")?.into_iter().map(|(_, at)| at).max().context("it never led")?;
    tokio::time::sleep(SETTLED).await;
    let Memory { all, own } = site.memory()?;
    step.end("done");
    let goal = if count >= 5_000 { "150 MiB" } else { "60 MiB" };
    let row = |what: &str, value: String, goal| Figure::new(format!("{count} executors: {what}"), value, goal);
    Ok(vec![
        row("the program leads → all adopted, the double's lists in it", millis(adopted.saturating_sub(leads)), "1 s"),
        row("process start → all adopted", millis(adopted.saturating_sub(began)), ""),
        row("memory: resident", mib(all), goal),
        row("memory: of it private to the process", mib(own), ""),
    ])
}

/// A Pod as an earlier process left it: its executor has taken its task.
fn pod(task: i64) -> anyhow::Result<Value> {
    let now = Timestamp::now();
    let record = ExecutorRecord {
        id: AssignmentId::of(TaskId::try_from(task)?),
        instance: INSTANCE.parse()?,
        backend: Backend::Pod,
        epoch: Epoch::FIRST,
        digest: PayloadDigest::of(&task.to_be_bytes()),
        repository: "acme/app".parse()?,
        job_key: "bench".parse()?,
        spiffe_id: "spiffe://td.test/ci/acme/app/bench".parse()?,
        fetched_at: now,
        deadline: now + Duration::from_secs(3600),
        claim: Some(Claim { at: now, log_shift: 1 }),
        interrupted_at: None,
        steps: Some(r#"{"c":"n","s":[[0,0,0,0,0]]}"#.to_owned()),
        terminal: false,
    };
    Ok(json!({
        "metadata": {
            "name": executor_name(record.id, &record.instance, record.epoch),
            "labels": record.labels(), "annotations": record.annotations(),
        },
        "spec": {
            "restartPolicy": "Never", "serviceAccountName": "gitea-task-executor",
            "containers": [{"name": "executor", "image": "registry.example.org/ci/executor", "args": ["executor"]}],
        },
    }))
}
