//! Who gets which identity (T21): trust, pins, and the record of every decision.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::gitea::{JobId, Status};
use testkit::world::{Plan, SOON, World, job};

use crate::planned;

/// The audit lines about one task, oldest first.
fn audit(world: &World, job: JobId) -> Vec<Value> {
    let task = world.task_of(job);
    let lines = world.log();
    let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == "identity audit" && line["task_id"] == task).collect()
}

async fn refused(world: &World, job: JobId, reason: &str) {
    let state = world.ends_as(job, Status::Failure, SOON).await;
    let row = format!("##[error]{reason}:");
    assert!(state.rows().iter().any(|text| text.starts_with(&row)), "no {reason}: {:?}", state.rows());
    assert!(world.desk.told(world.task_of(job), "task").is_empty(), "it ran");
}

async fn pins(world: &World, arguments: &[&str]) -> (bool, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_gitea-dynamic-runner"));
    command.args(["identity", "pins"]).args(arguments).arg("--state").arg(world.state());
    let output = tokio::time::timeout(SOON, command.kill_on_drop(true).output()).await.unwrap().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), text.concat())
}

/// NEW-122, NEW-127, F122, T21: a repository made anew under an old name does not inherit its identity, until an operator
/// confirms; what was pinned outlives a restart, another spelling of the name is the same pin, and every decision has its
/// audit line.
#[tokio::test]
async fn a_name_that_changed_hands_is_refused_until_confirmed() {
    let mut world = planned(Plan::capacity(1).embedded()).await;
    let build = || job("build", &["say here"]).repository("acme/app");
    let first = world.push_one(build().ids(4, 2));
    world.ends_as(first, Status::Success, SOON).await;
    let other_case = world.push_one(build().repository("Acme/APP").ids(4, 2));
    world.ends_as(other_case, Status::Success, SOON).await;
    // A controller that ends before it noted this end would have the next one ask once more.
    world.nothing_left().await;
    world.sigterm(SOON).await;
    world.restart();
    let taken_over = world.push_one(build().ids(9, 2));
    refused(&world, taken_over, "identity_pin_changed").await;
    let (listed, text) = pins(&world, &["list"]).await;
    assert!(listed && text.contains("repository 4 of owner 2; REFUSED to repository 9 of owner 2"), "{text}");
    assert!(!pins(&world, &["confirm", "acme/other"]).await.0);
    let (confirmed, text) = pins(&world, &["confirm", "acme/app"]).await;
    assert!(confirmed && text.contains("/ci/acme/app/build  repository 9 of owner 2\n"), "{text}");
    let after = world.push_one(build().ids(9, 2));
    world.ends_as(after, Status::Success, SOON).await;
    let before = world.push_one(build().ids(4, 2));
    refused(&world, before, "identity_pin_changed").await;
    for (job, event) in [(first, "granted"), (taken_over, "pin_changed"), (after, "granted")] {
        let lines = audit(&world, job);
        // One that dies before it has its task, as on a busy machine, is replaced: that is one more decision.
        let executors: BTreeSet<&str> = lines.iter().map(|line| line["executor"].as_str().unwrap()).collect();
        assert!(!lines.is_empty() && executors.len() == lines.len(), "{lines:?}");
        for line in &lines {
            assert_eq!(line["event"], event);
            assert!(line["spiffe_id"].as_str().unwrap().ends_with("/ci/acme/app/build"), "{line:?}");
            assert_eq!((&line["class"], &line["git_ref"]), (&"trusted".into(), &"refs/heads/main".into()));
        }
    }
    world.finish().await;
}

/// NEW-120, NEW-121, NEW-127, F120, F121, T21: with a policy file and `UNTRUSTED_POLICY=refuse`, only the named refs and
/// workflow files of a repository run; the rest fails with a reason and an audit line.
#[tokio::test]
async fn only_what_the_policy_names_runs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trust.toml");
    let text = "[[repository]]\nname = \"acme/app\"\nrefs = [\"default\"]\nworkflows.publish = [\"release.yml\"]\n";
    std::fs::write(&file, text).unwrap();
    let plan = Plan::capacity(2).set("UNTRUSTED_POLICY", "refuse").set("TRUST_POLICY_FILE", file.to_str().unwrap());
    let world = planned(plan).await;
    let good = [
        world.push_one(job("build", &["say here"])),
        world.push_one(job("publish", &["say here"]).workflow(None, "release.yml")),
        world.push_one(job("publish", &["say here"]).repository("other/app").ids(5, 3)),
    ];
    let bad = [
        job("publish", &["say never"]),
        job("build", &["say never"]).context("ref", "refs/heads/topic"),
        job("build", &["say never"]).pull_request_from("eve/app"),
        job("build", &["say never"]).event("workflow_call"),
    ]
    .map(|job| world.push_one(job));
    world.all_succeed(&good, SOON).await;
    for job in bad {
        refused(&world, job, "policy_refused").await;
        let lines = audit(&world, job);
        assert_eq!((lines.len(), &lines[0]["event"]), (1, &"refused".into()), "{lines:?}");
    }
    world.finish().await;
}
