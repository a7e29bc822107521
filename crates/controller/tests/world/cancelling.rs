//! Newer Giteas and runners (1.27, 2.0.0): a cancel is put to the runner, which says how its job ended. On the double, from
//! the contract (§8): neither can be installed.

use connectrpc::ErrorCode;
use testkit::gitea::{Call, FaultSpec, Gitea, JobId, Method, Request, Rules, Settings, Status};
use testkit::outcome::Rule;
use testkit::world::{Allowance, Plan, SOON, World, job};

use crate::planned;

pub(crate) fn newer() -> Plan {
    Plan {
        rules: Rules { cancelling: true, ..Rules::default() },
        gitea: Settings { capabilities_header: Some("job-summary"), ..Settings::default() },
        runner_version: Some("2.0.0"),
        ..Plan::capacity(1)
    }
}

/// There CANCELLED is no end: what follows it is for [`assert_one_end`] and the pages of the reasons to judge.
pub(crate) async fn newer_world(plan: Plan) -> World {
    let mut world = planned(plan).await;
    world.allow(Allowance::Breaks(Rule::UpdateAfterEnd));
    world
}

/// One UpdateTask with a result, and none after it.
fn assert_one_end(world: &World, job: JobId) {
    let state = world.gitea.state(job);
    assert_eq!((state.status, state.updates_after_end), (Status::Cancelled, 0));
    let ends: Vec<_> = world.gitea.calls().iter().filter_map(Call::told).collect();
    assert_eq!(ends.len(), 1, "{ends:?}");
}

/// NEW-25, F09, T30: `cancelling` is declared exactly when the runner supports it.
#[tokio::test]
async fn is_declared_with_a_runner_that_can() {
    for (version, declared) in [("2.0.0", vec!["cancelling".to_owned()]), ("1.0.8", vec![])] {
        let world = newer_world(Plan { runner_version: Some(version), ..newer() }).await;
        let told = world.gitea.calls().into_iter().find_map(|call| match call.request {
            Request::Declare(request) => Some(request.capabilities),
            _ => None,
        });
        assert_eq!(told, Some(declared), "{version}");
        world.finish().await;
    }
}

/// NEW-24, NEW-163, NEW-167: the runner hears CANCELLED, goes on with what runs after a cancel, and its one end is Gitea's
/// last word of the task.
#[tokio::test]
async fn a_running_job_ends_by_its_runner() {
    let world = newer_world(newer()).await;
    let job = world.push_one(job("long", &["on-cancel obey\nsay here\ngate never"]));
    world.desk.arrived("never", 1, SOON).await;
    world.gitea.cancel(job);
    assert_eq!(world.gitea.state(job).status, Status::Cancelling);
    world.gitea_shows("the log is closed", |gitea| gitea.state(job).archived).await;
    world.nothing_left().await;
    assert_one_end(&world, job);
    world.finish().await;
}

/// NEW-167, F08, T29: a runner that does not heed it is not waited for longer than the deadline; what it says in the
/// meantime does not keep the task alive.
#[tokio::test]
async fn a_runner_that_goes_on_has_a_deadline() {
    for manners in ["mute", "ignore"] {
        let world = newer_world(newer().set("CANCEL_GRACE", "1s").set("TERMINAL_GRACE", "2s")).await;
        let script = format!("on-cancel {manners}\nsay here\ngate never");
        let job = world.push_one(job("long", &[&script]));
        world.desk.arrived("never", 1, SOON).await;
        world.gitea.cancel(job);
        world.gitea_shows("the log is closed", |gitea| gitea.state(job).archived).await;
        world.nothing_left().await;
        assert_one_end(&world, job);
        let rows = world.gitea.state(job).rows().join("\n");
        assert!(rows.contains("##[error]cancel_deadline: its runner did not end within 1 s"), "{rows}");
        world.finish().await;
    }
}

/// NEW-22, T12a: no runner has it: the end is ours, and soon.
#[tokio::test]
async fn a_waiting_job_ends_by_us() {
    let world = newer_world(newer().set("LOOK_AHEAD", "1")).await;
    let jobs = [job("runs", &["gate here"]), job("waits", &["say never"])].map(|job| world.push_one(job));
    world.desk.arrived("here", 1, SOON).await;
    world.gitea_shows("the second is held", |gitea| gitea.held().len() == 2).await;
    world.gitea.cancel(jobs[1]);
    assert_eq!(world.gitea.state(jobs[1]).status, Status::Cancelling);
    let ended = |gitea: &Gitea| gitea.state(jobs[1]).status == Status::Cancelled;
    world.gitea_shows("it has ended", ended).await;
    assert_one_end(&world, jobs[1]);
    world.desk.open_gate("here");
    world.ends_as(jobs[0], Status::Success, SOON).await;
    assert_eq!(world.desk.executions().len(), 1);
    world.finish().await;
}

/// NEW-24: a new process hears of the cancel from Gitea, like the one before.
#[tokio::test]
async fn a_restart_in_between() {
    let mut world = newer_world(newer()).await;
    let job = world.push_one(job("long", &["on-cancel obey\nsay here\ngate never"]));
    world.desk.arrived("never", 1, SOON).await;
    world.kill9();
    world.gitea.cancel(job);
    // Its job's runner may report before Gitea has said what it can do.
    world.gitea.fail_next(Method::Declare, FaultSpec::gitea(ErrorCode::Unavailable, "busy").times(2));
    world.restart();
    world.gitea_shows("the log is closed", |gitea: &Gitea| gitea.state(job).archived).await;
    world.nothing_left().await;
    assert_one_end(&world, job);
    world.finish().await;
}
