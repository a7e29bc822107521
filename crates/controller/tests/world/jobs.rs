//! What a workflow's author expects of any runner.

use testkit::gitea::{JobSpec, Status};
use testkit::world::{SOON, job};

use crate::world;

/// FAC-8, FAC-1: rows of both steps under their steps, states of their own.
#[tokio::test]
async fn two_steps() {
    let world = world(1).await;
    let job = world.push_one(job("two", &["say one\nsay two", "say three"]));
    let state = world.ends_as(job, Status::Success, SOON).await;
    let steps: Vec<_> = state.steps.iter().map(|step| step.status).collect();
    assert_eq!(steps, [Status::Success, Status::Success]);
    assert_eq!(state.page().steps, [vec!["one", "two"], vec!["three"]]);
    assert_eq!(state.completed_webhooks, 1);
    world.finish().await;
}

/// A failing step ends the job; what comes after it is skipped.
#[tokio::test]
async fn a_failing_step() {
    let world = world(1).await;
    let job = world.push_one(job("breaks", &["say before", "fail", "say never"]));
    let state = world.ends_as(job, Status::Failure, SOON).await;
    let steps: Vec<_> = state.steps.iter().map(|step| step.status).collect();
    assert_eq!(steps, [Status::Success, Status::Failure, Status::Skipped]);
    assert!(!state.rows().contains(&"never"));
    world.finish().await;
}

/// Outputs of a job reach the one that needs it, and a needed job's failure keeps the other from running.
#[tokio::test]
async fn outputs_across_needs() {
    let world = world(2).await;
    let jobs = world.push([
        job("first", &["output word forty-two"]),
        job("second", &["need first word forty-two"]).needs(["first"]),
        job("third", &["need second word none"]).needs(["second"]),
        job("fourth", &["say never"]).needs(["third"]),
    ]);
    world.ends_as(jobs[1], Status::Success, SOON).await;
    world.ends_as(jobs[2], Status::Failure, SOON).await;
    let fourth = world.ends_as(jobs[3], Status::Skipped, SOON).await;
    assert_eq!(fourth.task, None);
    world.finish().await;
}

/// SCH-5, NEW-6, F01: five jobs of one push with room for two: never more than two at a time, and the last runs
/// although nobody pushes again.
#[tokio::test]
async fn five_jobs_through_two_slots() {
    let world = world(2).await;
    let jobs = world.push(["a", "b", "c", "d", "e"].map(|key| job(key, &["gate here"])));
    world.desk.arrived("here", 2, SOON).await;
    assert_eq!(world.gitea.held().len(), 2, "nothing is fetched without a slot (NEW-5)");
    world.desk.open_gate("here");
    world.all_succeed(&jobs, SOON).await;
    world.finish().await;
}

/// NEW-28: five thousand rows at once and rows of 60 KiB: every line once, in order.
#[tokio::test]
async fn bursts_and_long_rows() {
    let world = world(2).await;
    let jobs = world.push([job("many", &["burst 5000"]), job("long", &["burst 60 60000"])]);
    let expected = |count: usize| (1..=count).map(|row| format!("row {row}")).collect::<Vec<_>>();
    for (job, count) in [(jobs[0], 5000), (jobs[1], 60)] {
        let state = world.ends_as(job, Status::Success, SOON).await;
        let rows: Vec<_> = state.rows().iter().map(|row| row.trim_end_matches('.').to_owned()).collect();
        let rows: Vec<_> = rows.into_iter().filter(|row| row.starts_with("row ")).collect();
        assert_eq!(rows, expected(count));
    }
    world.finish().await;
}

/// IDN, ENV-5: names with capitals, dots and dashes, secrets and a payload with fields of a later Gitea.
#[tokio::test]
async fn odd_names() {
    let world = world(2).await;
    let named = |key: &str, repository: &str| job(key, &["say here"]).repository(repository);
    let jobs = world.push([
        named("_", "Acme-Corp/app.with.dots"),
        named("Build_it-2", "a/b"),
        named("x", "acme/.github"),
        named("deploy", "ACME/App").secret("PASSWORD", "correct-horse").unknown_fields(vec![0xfa, 0x3e, 0x01, b'x']),
    ]);
    world.all_succeed(&jobs, SOON).await;
    assert!(!world.log().contains("correct-horse"), "a secret stands in the log");
    world.finish().await;
}

/// The default job of the double runs as well: no words of ours in it.
#[tokio::test]
async fn the_plainest_job() {
    let world = world(1).await;
    let job = world.push_one(JobSpec::new("plain"));
    let state = world.ends_as(job, Status::Success, SOON).await;
    assert_eq!(state.page().steps, [vec!["hello"]]);
    world.finish().await;
}

/// T71, IDN-9, F126: a job that ended is run again: a task of its own, at once, with the identity of the first one.
#[tokio::test]
async fn run_again() {
    let world = world(1).await;
    let job = world.push_one(job("again", &["say here"]));
    world.ends_as(job, Status::Success, SOON).await;
    world.gitea.rerun(job);
    let twice = |gitea: &testkit::gitea::Gitea| {
        let state = gitea.state(job);
        state.attempts.len() == 2 && state.status == Status::Success
    };
    world.gitea_shows("its second try has succeeded", twice).await;
    let lines = world.log();
    let granted = lines.lines().filter(|line| line.contains(r#""event":"granted""#));
    let granted: Vec<serde_json::Value> = granted.map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> =
        granted.iter().map(|line| (line["spiffe_id"].as_str().unwrap(), line["task_id"].as_i64())).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].0 == told[1].0 && told[0].0.ends_with("/ci/acme/app/again") && told[0].1 != told[1].1, "{told:?}");
    world.finish().await;
}
