//! Tasks that can never run (T2, F02, SCH-6, NEW-14).

use connectrpc::ErrorCode;
use testkit::gitea::{CallEnd, FaultSpec, Gitea, JobSpec, JobState, Method, Status};
use testkit::world::{SOON, job};

use crate::world;

fn payload(text: &str) -> JobSpec {
    job("odd", &["say never"]).payload(text)
}

#[track_caller]
fn assert_refused(state: &JobState, reason: &str) {
    let rows = state.rows();
    assert!(rows.iter().any(|row| row.starts_with(&format!("##[error]{reason}:"))), "no {reason}: {rows:?}");
    assert!(state.archived, "{state:#?}");
    // Nobody knows the steps of what cannot be read.
    let readable = reason != "invalid_workflow";
    assert!(!readable || state.steps.iter().all(|step| step.status.is_end()), "{state:#?}");
}

/// T2, SCH-6, NEW-14, F02: five that can never run, then three good ones, one push each: reasons on their pages,
/// nothing made for them, the good ones run.
#[tokio::test]
async fn five_of_them_before_three_good_ones() {
    let world = world(1).await;
    const TWO: &str =
        "jobs:\n  a:\n    runs-on: local\n    steps: [{run: say a}]\n  b:\n    runs-on: local\n    steps: []\n";
    const THREE_LABELS: &str = "jobs:\n  a:\n    runs-on: [self-hosted, pod, vm]\n    steps: [{run: say a}]\n";
    let poison = [
        (job("a.b", &["say never"]), "invalid_job_key"),
        (job("Run on Ubuntu", &["say never"]), "invalid_job_key"),
        (payload(TWO), "invalid_workflow"),
        (payload("jobs: {a: [broken"), "invalid_workflow"),
        (payload(THREE_LABELS), "ambiguous_backend"),
    ];
    let refused: Vec<_> = poison.iter().map(|(job, reason)| (world.push_one(job.clone()), *reason)).collect();
    let good: Vec<_> = ["one", "two", "three"].map(|key| world.push_one(job(key, &["say here"]))).to_vec();
    world.all_succeed(&good, SOON).await;
    for (job, reason) in refused {
        assert_refused(&world.ends_as(job, Status::Failure, SOON).await, reason);
    }
    assert_eq!(world.desk.executions().len(), 3);
    assert_eq!(world.log().matches("invalid_workflow").count(), 4, "one event and one report each");
    world.finish().await;
}

/// T2, SCH-6, F02: the report of a poison task fails three times: it is repeated, and good jobs do not wait for it.
#[tokio::test]
async fn the_report_fails_three_times() {
    let world = world(1).await;
    world.gitea.fail_next(Method::UpdateTask, FaultSpec::gitea(ErrorCode::Internal, "database is locked").times(3));
    let poison = world.push_one(job("a.b", &["say never"]));
    world.gitea_shows("three failed reports", |gitea| failed_updates(gitea) == 3).await;
    let good = world.push_one(job("good", &["say here"]));
    world.ends_as(good, Status::Success, SOON).await;
    assert_refused(&world.ends_as(poison, Status::Failure, SOON).await, "invalid_job_key");
    world.finish().await;
}

fn failed_updates(gitea: &Gitea) -> usize {
    let failed = |end: &CallEnd| matches!(end, CallEnd::Answered { status: 500, .. });
    gitea.calls().iter().filter(|call| call.method == Method::UpdateTask && failed(&call.end)).count()
}

/// T2, SCH-6, F02: thirty in a row: the loop goes on without a pause.
#[tokio::test]
async fn thirty_in_a_row() {
    let world = world(1).await;
    let poison = world.push((0..30).map(|number| job(&format!("a.{number}"), &["say never"])));
    let good = world.push_one(job("good", &["say here"]));
    world.ends_as(good, Status::Success, SOON).await;
    for job in poison {
        assert_refused(&world.ends_as(job, Status::Failure, SOON).await, "invalid_job_key");
    }
    let fetches: Vec<_> = world.gitea.calls().into_iter().filter(|call| call.method == Method::FetchTask).collect();
    let brought: Vec<bool> = fetches.iter().map(|call| call.task.is_some()).skip_while(|brought| !brought).collect();
    assert!(brought.iter().take(31).all(|brought| *brought), "the loop paused: {brought:?}");
    world.finish().await;
}
